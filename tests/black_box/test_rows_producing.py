"""Rows of MISSION, Producing: shown with one broker process, by both clients."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ternmq
from tests.black_box.process import BrokerProcess, wait_until
from tests.black_box.users import Async, Blocking, User
from tests.black_box.wire import Wire


@pytest.fixture
def wire(dev: BrokerProcess) -> Iterator[Wire]:
    with Wire(dev.port) as wire:
        yield wire


@pytest.fixture(params=[Async, Blocking])
def make(request: pytest.FixtureRequest) -> Callable[..., User]:
    made: Callable[..., User] = request.param
    return made


@pytest.mark.row("B2")
def test_sends_return_at_once_and_callbacks_tell_what_became_of_them(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    heard: list[ternmq.Receipt | BaseException] = []

    def on_done(future: object) -> None:
        error = future.exception()  # type: ignore[attr-defined]
        heard.append(error or future.result())  # type: ignore[attr-defined]

    with make(dev.url) as user:
        user.send(topic, b"first", id="taken")
        for number in range(500):
            user.send_soon(topic, b"%d" % number).add_done_callback(on_done)
        user.send_soon(topic, b"another body", id="taken").add_done_callback(on_done)
        wait_until(lambda: len(heard) == 501, "every callback called")
        errors = [one for one in heard if not isinstance(one, ternmq.Receipt)]
        assert [type(one) for one in errors] == [ternmq.IdConflict]
        assert len(user.values(topic)) == 501


@pytest.mark.row("B2", "B3")
def test_neither_waits_for_the_broker(make: Callable[..., User], wire: Wire, topic: str) -> None:
    with make(wire.url) as user:
        user.send(topic, b"so that the topic is known")
        wire.frozen = True
        began = time.monotonic()
        told = user.send_soon(topic, b"soon")
        user.send_oneway(topic, b"one way")
        assert time.monotonic() - began < 10
        assert not told.done()
        wire.frozen = False
        user.flush()
        assert told.done()


@pytest.mark.row("B3")
def test_one_way_sends_are_not_answered(
    make: Callable[..., User], dev: BrokerProcess, wire: Wire, topic: str
) -> None:
    with make(wire.url) as user, Blocking(dev.url) as other:
        user.send(topic, b"0")
        before, sent = wire.down_bytes, wire.up_bytes
        for number in range(1, 101):
            user.send_oneway(topic, b"%d" % number)
        wait_until(lambda: len(other.values(topic)) == 101, "all are stored")
        assert wire.up_bytes > sent
        assert wire.down_bytes == before
        got = other.bodies(topic, "g", max_messages=200)
        assert [int(body) for body in got] == list(range(101))


@pytest.mark.row("B5")
def test_a_broker_that_does_not_answer_costs_the_timeout_once(
    make: Callable[..., User], wire: Wire, topic: str
) -> None:
    with make(wire.url, timeout=1.0) as user:
        user.send(topic, b"first")
        wire.frozen = True
        began = time.monotonic()
        with pytest.raises(ternmq.SendTimeout, match="not known"):
            user.send(topic, b"second")
        assert 0.9 < time.monotonic() - began < 8
        wire.frozen = False


@pytest.mark.row("B7")
def test_a_queue_is_chosen_by_key_by_number_or_by_the_application(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    def last(message: ternmq.Message, queues: Sequence[int]) -> int:
        return queues[-1]

    with make(dev.url) as user:
        user.admin("create_topic", topic, queues=4)
        first = {f"k{n}": user.send(topic, b"x", key=f"k{n}").queue for n in range(20)}
        assert set(first.values()) == {0, 1, 2, 3}
        for key, queue in first.items():
            assert user.send(topic, b"y", key=key).queue == queue
        without = [user.send(topic, b"z").queue for _ in range(20)]
        assert set(without) == {0, 1, 2, 3}
        assert user.send(topic, b"a", key="k0", queue=2).queue == 2
        assert user.send(topic, b"b", key="k0", queue=last).queue == 3
        many = [ternmq.Message(b"c", queue=1), ternmq.Message(b"d", queue=last)]
        assert [one.queue for one in user.send_many(topic, many)] == [1, 3]
        told = user.send_soon(topic, b"e", queue=1)
        user.flush()
        assert told.result().queue == 1
        beyond: list[Any] = [4, lambda message, queues: len(queues)]
        for queue in beyond:
            with pytest.raises(ternmq.UnknownQueue, match="queues 0 to 3, not 4"):
                user.send(topic, b"f", queue=queue)


@pytest.mark.row("B7")
def test_another_client_has_the_same_queue_for_a_key(dev: BrokerProcess, topic: str) -> None:
    with Blocking(dev.url) as one, Async(dev.url) as other:
        one.admin("create_topic", topic, queues=8)
        for n in range(30):
            key = f"key-{n}"
            assert one.send(topic, b"", key=key).queue == other.send(topic, b"", key=key).queue


@pytest.mark.row("B8")
def test_many_messages_are_one_request(
    make: Callable[..., User], dev: BrokerProcess, wire: Wire, topic: str
) -> None:
    with make(wire.url) as user:
        user.send(topic, b"first")
        requests = dev.metric("ternmq_sends_total")
        receipts = user.send_many(topic, [b"%d" % number for number in range(1000)])
        assert dev.metric("ternmq_sends_total") - requests == 1
        assert len({receipt.id for receipt in receipts}) == 1000
        assert [one.offset for one in receipts] == list(range(1, 1001))
        got = user.bodies(topic, "g", max_messages=2000)
        assert got == [b"first", *(b"%d" % number for number in range(1000))]


@pytest.mark.row("B10")
def test_what_cannot_be_sent_is_refused_by_name_before_anything_leaves(
    make: Callable[..., User], wire: Wire, topic: str
) -> None:
    with make(wire.url) as user:
        user.send(topic, b"so that everything is known")
        before = wire.up_bytes
        for name, body, kind, says in [
            ("", b"", ternmq.InvalidName, "1 to 127"),
            ("a/../b", b"", ternmq.InvalidName, "not a name"),
            (topic, object(), ternmq.EncodeError, "object"),
            (topic, b"x" * 1_048_577, ternmq.MessageTooLarge, "accepts 1048576"),
        ]:
            with pytest.raises(kind, match=says):
                user.send(name, body)
        with pytest.raises(ternmq.InvalidRequest, match="at most 128"):
            user.send(topic, b"", id="x" * 129)
        assert wire.up_bytes == before
    with make(wire.url) as user:
        user.close()
        with pytest.raises(ternmq.ClientClosed):
            user.send(topic, b"")


@pytest.mark.row("B11")
def test_a_message_is_found_by_its_key_and_filtered_by_its_tag(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    with make(dev.url) as user:
        user.send_many(
            topic,
            [
                ternmq.Message({"n": n}, key=f"order-{n}", tag=("paid", "open")[n % 2])
                for n in range(100)
            ],
        )
        (found,) = user.find(topic, key="order-42")
        assert (found.value, found.key, found.offset) == ({"n": 42}, "order-42", 42)
        got = user.bodies(topic, "g", tags="paid", max_messages=100)
        assert [json.loads(body)["n"] for body in got] == list(range(0, 100, 2))


@pytest.mark.row("B12")
def test_a_receipt_says_where_the_message_is(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    with make(dev.url) as user:
        user.send(topic, b"one")
        receipt = user.send(topic, b"two", key="k")
        assert (receipt.topic, receipt.queue, receipt.offset) == (topic, 0, 1)
        assert (receipt.durable, receipt.duplicate, receipt.broker_group) == (True, False, "")
        by_offset = user.get(topic, queue=receipt.queue, offset=receipt.offset)
        assert (by_offset.id, by_offset.body) == (receipt.id, b"two")
        assert user.get(topic, receipt.id).offset == receipt.offset


@pytest.mark.row("B13")
def test_sends_of_many_tasks_share_a_connection_that_is_kept(wire: Wire, topic: str) -> None:
    """The documented number is 2: one for all, one to extend leases, which sends do not need."""

    async def work() -> None:
        async with ternmq.connect(wire.url) as client:

            async def send() -> None:
                for _ in range(100):
                    await client.send(topic, b"x")

            await asyncio.gather(*[send() for _ in range(100)])
            carried = wire.up_bytes
            stats = client.stats()
            assert (stats.sends, stats.stored, stats.failed) == (10_000, 10_000, 0)
            assert (stats.connections_opened, stats.connections_open) == (1, 1)
            assert (stats.reconnects, stats.resends) == (0, 0)
            assert 100 <= stats.batches <= 10_000
            assert stats.requests > stats.batches
            assert stats.bytes_sent >= carried > 10_000
            assert stats.bytes_received > 0
            (delivery,) = await client.pull(topic, group="g", max_messages=1)
            await delivery.ack()
            await client.send(topic, b"y")
            assert client.stats().connections_opened == 1
        assert wire.connections == 1

    asyncio.run(work())


@pytest.mark.row("B13")
def test_an_idle_connection_is_used_again_and_a_lost_one_is_made_anew(
    make: Callable[..., User], tmp_path: Path, topic: str
) -> None:
    with (
        BrokerProcess("dev", tmp_path, heartbeat="1s") as broker,
        Wire(broker.port) as wire,
        make(wire.url) as user,
    ):
        user.send(topic, b"x")
        asked = user.stats().requests
        wait_until(lambda: user.stats().requests >= asked + 2, "idle for two heartbeats")
        user.send(topic, b"y")
        assert user.stats().connections_opened == wire.connections == 1
        wire.cut()
        user.send(topic, b"z")
        stats = user.stats()
        assert (stats.connections_opened, stats.reconnects, stats.connections_open) == (2, 1, 1)
        assert stats.stored == 3


@pytest.mark.row("B13")
def test_a_consumer_needs_one_connection_more(dev: BrokerProcess, wire: Wire, topic: str) -> None:
    with Blocking(wire.url) as user:
        user.admin("create_topic", topic)
        user.admin("create_group", topic, "g")
        user.admin("change_group", topic, "g", lease=timedelta(seconds=3))
        user.send_many(topic, [b"%d" % n for n in range(100)])
        batch = user.client.pull(topic, group="g")
        wait_until(lambda: user.stats().connections_opened == 2, "the lease is extended")
        batch.ack()
        user.send(topic, b"x")
        assert user.stats().connections_opened == wire.connections == 2


@dataclass
class Order:
    number: int
    customer: str


@pytest.mark.row("B14")
def test_bodies_of_every_kind_make_the_round_trip(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    order = Order(7, "Ada")
    with make(dev.url) as user:
        user.register(
            "application/x-reversed",
            encode=lambda body: str(body)[::-1].encode(),
            decode=lambda body, _: body.decode()[::-1],
        )
        for body in (b"\x00\xff", "text \N{SNOWMAN}", {"a": [1, None]}, order):
            user.send(topic, body)
        user.send(topic, "desrever", content_type="application/x-reversed")
        values = user.values(topic)
        assert values == [
            b"\x00\xff", "text \N{SNOWMAN}", {"a": [1, None]}, asdict(order), "desrever",
        ]  # fmt: skip
        stored = user.bodies(topic, "g")
        assert stored[-1] == b"reversed"


@pytest.mark.row("B16")
def test_one_oversized_message_does_not_keep_the_others_back(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    items = [b"a", b"x" * 2_000_000, b"c"]
    with make(dev.url) as user:
        with pytest.raises(ternmq.PartialSendError, match="1 of 3") as caught:
            user.send_many(topic, items)
        (failure,) = caught.value.failures
        assert isinstance(failure, ternmq.Failure)
        assert (failure.row, type(failure.error)) == (1, ternmq.MessageTooLarge)
        assert [one and one.offset for one in caught.value.receipts] == [0, None, 1]
        assert user.bodies(topic, "g") == [b"a", b"c"]


@pytest.mark.row("B17")
def test_the_client_logs_what_it_could_not_send(
    make: Callable[..., User], wire: Wire, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failed send once at WARNING, others at DEBUG, bodies never."""
    with caplog.at_level("DEBUG", logger="ternmq"), make(wire.url, timeout=1.0) as user:
        stored = user.send(topic, b"secret-1", key="k-1", id="a-1")
        with pytest.raises(ternmq.IdConflict):
            user.send(topic, b"secret-2", key="k-2", id="a-1")
        wire.frozen = True
        with pytest.raises(ternmq.SendTimeout):
            user.send(topic, b"secret-3", key="k-3")
        with pytest.raises(ternmq.PartialSendError):
            user.send_many(topic, [b"secret-4", b"secret-5"])
        wire.frozen = False
        told = [one for one in caplog.records if "sent: " in one.getMessage()]
        debug = [one.getMessage() for one in told if one.levelname == "DEBUG"]
        failed = [one.getMessage() for one in told if one.levelname == "WARNING"]
    assert len(debug) >= 1
    assert f"topic={topic} key=k-1 id={stored.id} application_id=a-1" in debug[0]
    assert len(failed) == 4
    assert f"not sent: topic={topic} key=k-2 id=" in failed[0]
    assert "IdConflict" in failed[0]
    assert f"topic={topic} key=k-3 id=" in failed[1]
    assert "(send the same message with the same id= again, or look it up)" in failed[1]
    assert "secret" not in caplog.text


_FORK = """
import asyncio, os, sys
import ternmq, ternmq.sync

async def thousand(client, who):
    for n in range(0, 1000, 100):
        await asyncio.gather(*(client.send(topic, f"{who}-{n + m}") for m in range(100)))

async def parent_of_async():
    client = await ternmq.connect()
    await client.send(topic, "before")
    pid = os.fork()
    if not pid:
        os._exit(0 if child_of_async(client) else 1)
    await thousand(client, "parent")
    assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
    await client.close()

def child_of_async(client):
    # The loop of the parent is not this process's: a new one, and the client refuses or renews.
    asyncio.events._set_running_loop(None)
    async def work():
        try:
            await client.send(topic, "used in the child")
        except ternmq.ClientForked as error:
            assert "connect or open again" in str(error)
        async with ternmq.connect() as own:
            await thousand(own, "child")
    asyncio.run(work())
    return True

def sync_child(client):
    for n in range(1000):
        client.send_soon(topic, f"child-{n}")
    client.flush()

def parent_of_sync():
    import multiprocessing
    client = ternmq.sync.connect()
    client.send(topic, "before")
    child = multiprocessing.get_context("fork").Process(target=sync_child, args=(client,))
    child.start()
    for n in range(1000):
        client.send_soon(topic, f"parent-{n}")
    client.flush()
    child.join()
    assert child.exitcode == 0
    client.close()

topic = sys.argv[2]
asyncio.run(parent_of_async()) if sys.argv[1] == "async" else parent_of_sync()
"""


@pytest.mark.row("B18")
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_fork_with_a_live_client(kind: str, dev: BrokerProcess, topic: str) -> None:
    """Parent and child both send a thousand: two thousand are stored."""
    done = subprocess.run(
        [sys.executable, "-c", _FORK, kind, topic],
        env={**os.environ, "TERNMQ_URL": dev.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with Blocking(dev.url) as user:
        stored = user.values(topic)
    expected = ["before", *(f"{who}-{n}" for who in ("child", "parent") for n in range(1000))]
    assert sorted(stored) == sorted(expected)


@pytest.mark.row("C3")
def test_messages_sent_at_one_time_share_syncs(dev: BrokerProcess, topic: str) -> None:
    """64 clients, each sending when its last send was answered. That all survive: tests/fault."""

    async def work() -> float:
        clients = [await ternmq.connect(dev.url) for _ in range(64)]
        await clients[0].send(topic, b"first")
        syncs = dev.metric("ternmq_syncs_total")

        async def send(client: ternmq.Client) -> None:
            for _ in range(50):
                await client.send(topic, b"x" * 100)

        await asyncio.gather(*map(send, clients))
        syncs = dev.metric("ternmq_syncs_total") - syncs
        for client in clients:
            await client.close()
        return syncs

    syncs = asyncio.run(work())
    with Blocking(dev.url) as user:
        assert len(user.values(topic)) == 3201
    assert syncs < 3200 / 4  # the 64 do not always come in one turn of the loop
