"""What ``flush`` and closing say of messages of ``send_soon`` that were not stored."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

import ternmq
import ternmq.sync
from ternmq.client.producer import producer as producing
from ternmq.testing import InProcessBroker
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.fault.processes import wait_until
from tests.integration.client_shapes import API
from tests.unit.client.fake import FakeBroker


def third(message: ternmq.Message, queues: Sequence[int]) -> int:
    del message
    return queues[2]


async def test_a_failure_has_the_message_that_was_to_be_sent(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("t", queues=3)
        await client.send("t", "one", id="a")
        soon = client.send_soon(
            "t", "secret", id="a", key="k", tag="x", headers={"h": "1"}, queue=third
        )
        with pytest.raises(ternmq.UnsentMessages) as raised:
            await client.flush()
        (failure,) = raised.value.failures
        assert (failure.topic, failure.row) == ("t", 0)
        assert isinstance(failure.error, ternmq.IdConflict)
        message = failure.message
        assert isinstance(message, ternmq.Message)
        assert (message.body, message.content_type) == (b"secret", "text/plain")
        assert (message.key, message.tag, message.id) == ("k", "x", "a")
        assert (dict(message.headers), message.queue) == ({"h": "1"}, third)
        said = str(raised.value)
        assert said.startswith("1 message was not sent: topic=t key=k id=a: ")
        assert "secret" not in said
        assert "flush" not in said
        assert isinstance(soon.exception(), ternmq.IdConflict)
        message.id = "b"
        (receipt,) = await client.send_many(failure.topic, [message])
        assert receipt.queue == 2
        (read,) = [one async for one in client.read("t", queue=2)]
        assert (read.value, read.key, dict(read.headers)) == ("secret", "k", {"h": "1"})


async def test_closing_names_the_first_of_many(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.admin.create_topic("o", ordered=True)
    await client.send("o", "1", ordering_key="a")  # from here on the client knows the topic
    await client.send("o", "one", ordering_key="a", id="x")
    lost = [
        client.send_soon("o", f"body {n}", ordering_key=f"key\n{n}", id="x", key="k" * 500)
        for n in range(5)
    ]
    await until(lambda: all(one.done() for one in lost))  # to wait for them were to hear of it
    with pytest.raises(ternmq.UnsentMessages) as raised:
        await client.close()
    messages = [one.message for one in raised.value.failures]
    assert [one.ordering_key for one in messages if isinstance(one, ternmq.Message)] == [
        f"key\n{n}" for n in range(5)
    ]
    said = str(raised.value)
    assert said.startswith("5 messages were not sent: topic=o key=kkkk")
    assert said.count("ordering_key=key\\n") == 3
    assert "; and 2 more" in said
    assert "body" not in said
    assert "flush" not in said
    assert len(said) < 1500


async def test_a_message_that_send_soon_refuses_is_in_its_failure(real: InProcessBroker) -> None:
    def send() -> None:
        with ternmq.sync.connect(real.url) as client:
            client.send("t", "one", id="b")
            client.send_soon("t", object(), key="k", id="a")
            client.send_soon("t", "two", id="b")
            client.flush()

    with pytest.raises(ternmq.UnsentMessages, match="topic=t key=k id=a: ") as raised:
        await asyncio.to_thread(send)
    assert [one.topic for one in raised.value.failures] == ["t", "t"]
    refused, conflict = [one.message for one in raised.value.failures]
    assert isinstance(refused, ternmq.Message)
    assert isinstance(conflict, ternmq.Message)
    assert (refused.key, refused.id) == ("k", "a")
    assert (conflict.body, conflict.id) == (b"two", "b")


async def test_what_is_still_on_its_way_is_waited_for_by_another_flush() -> None:
    async with asyncio.timeout(20):
        client = ternmq.connect("ternmq://127.0.0.1:9")  # nobody listens there
        soon = client.send_soon("t", "one")
        with pytest.raises(ternmq.UnsentMessages, match="continues to send them") as raised:
            await client.flush(timeout=0.05)
        assert not raised.value.failures
        soon.cancel()
        await client.close(timeout=0)


async def test_failures_of_send_many_have_the_topic(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.send("t", "one", id="a")
        items = [ternmq.Message("two", id="a"), ternmq.Message(object()), ternmq.Message("three")]
        with pytest.raises(ternmq.PartialSendError) as raised:
            await client.send_many("t", items)
        assert [(one.row, one.topic) for one in raised.value.failures] == [(0, "t"), (1, "t")]
        assert [one.message for one in raised.value.failures] == items[:2]


def test_a_loop_that_ends_with_messages_to_send_is_told_of(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def forget() -> None:
        client = ternmq.connect("ternmq://127.0.0.1:9")  # nobody listens there
        for _ in range(3):
            client.send_soon("b", 1)
        client.send_soon("a", 1)
        client.send_oneway("c", 1)
        waiting = asyncio.ensure_future(client.send("d", 1))  # whoever awaits it is told
        await asyncio.sleep(0)
        del waiting

    gc.collect()
    asyncio.run(forget())
    with caplog.at_level(logging.WARNING, "ternmq"):
        gc.collect()
    (told,) = [one.getMessage() for one in caplog.records if "send_soon" in one.getMessage()]
    assert told.startswith("4 messages of send_soon (b: 3, a: 1) had no answer when ")
    assert "they are not stored. Nobody closed the client" in told
    caplog.clear()

    async def close() -> None:
        client = ternmq.connect(real.url)
        client.send_soon("b", 1)
        await client.close()
        async with ternmq.connect(real.url) as other:
            other.send_soon("b", 1)
            await other.flush()

    asyncio.run(close())
    gc.collect()
    assert not [one for one in caplog.records if "send_soon" in one.getMessage()]


FORGETS = """
import asyncio, sys, ternmq
async def main():
    global client
    client = ternmq.connect(sys.argv[1])
    for n in range(7):
        client.send_soon(f"t{n}", n)
    while len(sys.argv) > 2 and client.stats().sends < 7:
        await asyncio.sleep(0.01)
asyncio.run(main())
"""


async def forgotten(*args: str) -> str:
    """Return what a process says at its end that closes no client."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", FORGETS, *args, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(30):
        _, told = await process.communicate()
    assert process.returncode == 0
    return told.decode()


async def test_a_process_that_ends_with_messages_to_send_says_so() -> None:
    told = await forgotten("ternmq://127.0.0.1:9")
    assert told.count("7 messages of send_soon (t0: 1, t1: 1, ") == 1
    assert "t4: 1, and 2 topics more) had no answer" in told
    assert "they are not stored." in told
    async with FakeBroker() as fake:
        fake.silent = True
        told = await forgotten(fake.url, "until they have left")
    assert "7 messages of send_soon" in told
    assert "event loop ended: whether they are stored is not known." in told


FORGETS_IN_A_CHILD = """
import asyncio, multiprocessing, ternmq, ternmq.sync
kept = []
async def main():
    kept.append(ternmq.connect("ternmq://127.0.0.1:9"))
    kept[-1].send_soon("t", 1)
def run(url):
    blocking = ternmq.sync.connect(url)
    blocking.send_soon("t", 1)
    kept.append(blocking)
    asyncio.run(main())
def parent(url):
    child = multiprocessing.get_context("fork").Process(target=run, args=(url,))
    child.start()
    child.join()
parent(__import__("sys").argv[1])
"""


def test_a_child_of_multiprocessing_that_ends_says_so(real: InProcessBroker) -> None:
    """It ends without ``atexit``; what a blocking client has to send is sent before."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORGETS_IN_A_CHILD, real.url],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stderr.count("of send_soon (") == 1
    assert "1 message of send_soon (t: 1)" in ended.stderr
    assert "127.0.0.1:9" not in ended.stderr
    with ternmq.sync.connect(real.url) as client:
        assert [one.value for one in client.read("t")] == [1]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("middleware", [False, True])
async def test_many_without_a_broker_fail_one_by_one_whether_the_topic_is_known(
    api: API, timed: InProcessBroker, known: bool, middleware: bool
) -> None:
    client = api.connect(timed.url, timeout=0.3)
    itself: ternmq.Client | ternmq.sync.Client = getattr(client, "_target", client)
    if middleware:

        @itself.send_middleware
        def around(outbound: ternmq.Outbound) -> Iterator[None]:
            yield

    if known:
        await client.send("t", "first")
    timed.stop(clean=False)
    await until(lambda: not itself.stats().connections_open)  # it has learned of the end
    items = ["one", object(), "three"]
    told = await client.send_many("t", items, return_errors=True)
    assert [type(one) for one in told] == [
        ternmq.CannotConnect, ternmq.EncodeError, ternmq.CannotConnect
    ]  # fmt: skip
    with pytest.raises(ternmq.PartialSendError, match="3 of 3 messages were not stored") as raised:
        await client.send_many("t", items)
    assert [(one.row, one.message) for one in raised.value.failures] == list(enumerate(items))
    assert raised.value.receipts == [None] * 3
    assert itself.stats().failed == 4
    timed.start()
    await client.close()


async def test_a_question_that_is_not_answered_is_no_send_of_unknown_outcome() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url, timeout=0.2) as client:
        fake.on[Command.TOPIC_LIST] = lambda _: None
        (told,) = await client.send_many("t", ["one"], return_errors=True)
        assert isinstance(told, ternmq.CannotConnect)
        assert "nothing was sent to 't': no answer to TOPIC_LIST within 0.2 s" in str(told)


async def test_failures_beyond_those_that_are_kept_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producing, "KEPT_FAILURES", 3)
    monkeypatch.setattr(producing, "KEPT_HOLDERS", 4)

    def send(look: int) -> ternmq.UnsentMessages:
        client = ternmq.sync.connect("ternmq://127.0.0.1:1", timeout=0.05)
        sent = [client.send_soon("t", f"{n}", key=f"k{n}", id=f"id-{n}") for n in range(10)]
        for one in sent[len(sent) - look :]:
            assert one.exception() is not None
        with pytest.raises(ternmq.UnsentMessages) as raised:
            client.close()
        return raised.value

    error = await asyncio.to_thread(send, 0)
    assert (len(error.failures), error.more) == (3, 7)
    assert str(error).startswith("10 messages were not sent: topic=t key=k0 id=id-0: ")
    assert "; and 7 more" in str(error)
    assert "lists the first 3" in error.hint
    error = await asyncio.to_thread(send, 2)
    assert len(error.failures) + error.more <= 10
    first = error.failures[0].message
    assert isinstance(first, ternmq.Message)
    assert first.id == "id-0"


@pytest.mark.parametrize("heard", [False, True])
async def test_failures_that_are_not_kept_are_counted(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    monkeypatch.setattr(producing, "KEPT_FAILURES", 2)
    monkeypatch.setattr(producing, "KEPT_HOLDERS", 3)
    async with ternmq.connect(real.url) as client:
        await client.send("t", "one", id="a")
        soon = [client.send_soon("t", f"{n}", id="a") for n in range(10)]
        await until(lambda: all(one.done() for one in soon))
        if heard:  # of those that are not even held, it cannot be known
            assert all(one.exception() for one in soon)
        with pytest.raises(ternmq.UnsentMessages) as raised:
            await client.flush()
        failures, more = (0, 5) if heard else (2, 8)
        assert (len(raised.value.failures), raised.value.more) == (failures, more)
        said = str(raised.value)
        assert said.startswith(f"{failures + more} messages were not sent: ")
        assert f"and {more} more" in said
        await client.flush()  # they are forgotten


def test_the_log_names_a_message_that_the_buffer_has_no_room_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refused() -> list[str]:
        return [one for one in caplog.messages if one.startswith("not sent: ")]

    options = replace(ternmq.sync.connect("ternmq://127.0.0.1:9").options, buffer_bytes=1000)
    client = ternmq.sync.connect(options=options)  # nobody listens there
    for n in range(20):
        client.send_soon("t", bytes(200), id=f"order-{n}", key="k")
    wait_until(lambda: bool(refused()), "a message is refused")
    assert re.match(r"not sent: topic=t key=k id=order-\d+: BufferFull: ", refused()[0])
    with contextlib.suppress(ternmq.UnsentMessages):
        client.close(timeout=0)
