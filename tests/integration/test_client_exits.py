"""Handlers that call ``sys.exit()``, and what the log says of a message that failed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated

import pytest

import ternmq
import ternmq.sync
from ternmq.client.consumer.telling import LIBRARY
from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import until

TWICE = ternmq.RetryPolicy(first=0.0, attempts=2, jitter=0)


def provider() -> int:
    """A dependency that cannot be made."""
    return sys.exit(3)


async def run_until_dead(client: ternmq.Client, url: str, count: int) -> list[list[str]]:
    """Run handlers until so many messages are dead letters; return the reasons of each."""
    running = asyncio.ensure_future(client.run())
    async with ternmq.connect(url) as other:
        reasons = await dead_ones(other, running, count)
    client.stop()
    await running
    return reasons


async def dead_ones(
    client: ternmq.Client, running: asyncio.Future[None], count: int
) -> list[list[str]]:
    """Wait until so many messages are dead letters; return the reasons of each."""
    dead: list[ternmq.FailedMessage] = []
    async with asyncio.timeout(20):
        while len(dead) < count:
            assert not running.done(), "the worker ended"
            with contextlib.suppress(ternmq.UnknownGroup):  # it is made as the worker comes
                dead = [one async for one in client.deadletters.browse("t", "g")]
            await asyncio.sleep(0.01)
    return [[failure.reason for failure in one.failures] for one in dead]


def exits(kind: str, client: ternmq.Client) -> None:
    """Declare a handler of which something calls ``sys.exit(3)``."""

    if kind == "async-def":

        @client.handler("t", group="g", retry=TWICE)
        async def handle(n: int) -> None:
            sys.exit(3)

    elif kind == "def":

        @client.handler("t", group="g", retry=TWICE)
        def handle_in_thread(n: int) -> None:
            sys.exit(3)

    elif kind == "dependency":

        @client.handler("t", group="g", retry=TWICE)
        async def handle_given(n: int, given: Annotated[int, ternmq.Depends(provider)]) -> None:
            raise AssertionError

    elif kind == "middleware":

        @client.handler_middleware
        def around(delivery: ternmq.Delivery) -> Iterator[None]:
            if delivery.attempt:
                sys.exit(3)
            yield

        @client.handler("t", group="g", retry=TWICE)
        async def handle_around(n: int) -> None:
            raise AssertionError

    else:

        @client.handler_middleware
        async def outside(delivery: ternmq.Delivery) -> AsyncIterator[None]:
            yield

        @client.handler("t", group="g", retry=TWICE)
        def handle_inside(n: int) -> None:
            sys.exit(3)


@pytest.mark.parametrize(
    "kind", ["async-def", "def", "dependency", "middleware", "def-in-awaited-middleware"]
)
async def test_sys_exit_in_a_handler_is_a_failure_of_its_message(
    real: InProcessBroker, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = ternmq.connect(real.url)
    closed: list[str] = []

    @client.lifespan
    async def around() -> AsyncIterator[None]:
        try:
            yield
        finally:
            closed.append("closed")

    exits(kind, client)
    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t")
        await other.send_many("t", [1, 2])
    reasons = await run_until_dead(client, real.url, 2)
    assert reasons == [["RuntimeError: the handler raised SystemExit: 3"] * 2] * 2
    assert closed == ["closed"]
    assert "attempt 1 of 2: it is retried" in caplog.text
    assert "attempt 2 of 2: it is a dead letter now" in caplog.text


class Odd(BaseException):
    """Of an application, which means no end of the program by it."""


@pytest.mark.parametrize("kind", ["async-def", "def", "def-in-awaited-middleware"])
@pytest.mark.parametrize(
    "raised", [Odd("odd"), KeyboardInterrupt(), GeneratorExit(), StopIteration()], ids=repr
)
@pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "sync"])
async def test_whatever_a_handler_raises_is_a_failure_of_its_message(
    real: InProcessBroker, kind: str, raised: BaseException, blocking: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The worker goes on; the log names the message, and shows code of the application alone."""
    caplog.set_level(logging.INFO, "ternmq")
    made = ternmq.sync.connect(real.url) if blocking else ternmq.connect(real.url)

    if kind == "async-def":

        @made.handler("t", group="g", retry=TWICE)
        async def handle(n: int) -> None:
            raise type(raised)(*raised.args)  # not one object in two threads

    else:

        @made.handler("t", group="g", retry=TWICE)
        def handle_in_thread(n: int) -> None:
            raise type(raised)(*raised.args)  # not one object in two threads

    if kind == "def-in-awaited-middleware":

        @made.handler_middleware
        async def outside(delivery: ternmq.Delivery) -> AsyncIterator[None]:
            yield

    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t")
        await other.send_many("t", [1, 2])
        if isinstance(made, ternmq.Client):
            reasons = await run_until_dead(made, real.url, 2)
        else:
            running = asyncio.ensure_future(asyncio.to_thread(made.run))
            reasons = await dead_ones(other, running, 2)
            made.stop()
            await running
            await asyncio.to_thread(made.close)
    text = "RuntimeError: the handler raised " + type(raised).__name__
    assert reasons == [[text + (": odd" if str(raised) else "")] * 2] * 2
    assert "<Delivery t/0/0 attempt 2> failed, attempt 2 of 2" in caplog.text
    frames = [line for line in caplog.text.splitlines() if line.lstrip().startswith('File "')]
    assert frames
    assert [frame for frame in frames if LIBRARY in frame] == []


class Quits:
    """A body whose codec ends the program, or so it thinks."""


async def test_a_loop_in_a_thread_outlives_what_is_raised_in_it(real: InProcessBroker) -> None:
    """The codec runs in the client's thread: its caller gets what it raised, and can go on."""

    def encode(body: object) -> bytes:
        raise KeyboardInterrupt if isinstance(body, Quits) else SystemExit(3)

    def work() -> tuple[type[BaseException], type[BaseException], int | None]:
        with ternmq.sync.connect(real.url) as client:
            client.codecs.register("a/b", encode=encode, decode=lambda body, kind: body)
            with pytest.raises(KeyboardInterrupt) as first:
                client.send("t", Quits(), content_type="a/b")
            with pytest.raises(SystemExit) as second:
                client.send("t", 1, content_type="a/b")
            return first.type, second.type, client.send("t", 1).offset

    assert await asyncio.to_thread(work) == (KeyboardInterrupt, SystemExit, 0)


WORKER = """
import asyncio, sys
import ternmq

client = ternmq.connect(sys.argv[1])

@client.lifespan
async def around():
    try:
        yield
    finally:
        print("closed", flush=True)

async def task():
    sys.exit(3)

@client.handler("t", group="g")
async def handle(n: int) -> None:
    await asyncio.create_task(task())
"""


async def test_a_task_that_exits_ends_the_worker_and_lifespans_are_left(
    real: InProcessBroker, tmp_path: Path
) -> None:
    """Nobody can keep it from ending the loop: so the worker says so, and ends in order."""
    (tmp_path / "work.py").write_text(WORKER.replace("sys.argv[1]", repr(real.url)))
    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t")
        await other.send("t", 1)
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "ternmq", "worker", "work:client"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert ended.returncode == 3
    assert "closed" in ended.stdout
    assert "a task called sys.exit()" in ended.stderr


async def test_the_log_begins_where_the_handler_does(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = ternmq.connect(real.url)

    @client.handler_middleware
    def passing(delivery: ternmq.Delivery) -> Iterator[None]:
        yield

    @client.handler("t", group="g", retry=ternmq.RetryPolicy(first=0.0, attempts=1))
    async def handle(n: int) -> None:
        raise ValueError(n)

    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t")
        await other.send("t", 7)
    with caplog.at_level(logging.INFO, "ternmq"):
        await run_until_dead(client, real.url, 1)
    (record,) = [one for one in caplog.records if one.exc_info]
    assert record.exc_info is not None
    _, error, shown = record.exc_info
    first = traceback.extract_tb(shown)[0]
    assert (first.filename, first.name) == (__file__, "handle")
    assert error is not None
    # The error's own traceback is whole.
    assert "ternmq" in traceback.extract_tb(error.__traceback__)[0].filename
    caplog.clear()
    async with ternmq.connect(real.url) as other:
        await other.send("t", 8)
    client = ternmq.connect(real.url)
    client.handler("t", group="g")(handle)
    with caplog.at_level(logging.DEBUG, "ternmq"):
        await run_until_dead(client, real.url, 2)
    (record,) = [one for one in caplog.records if one.exc_info]
    assert record.exc_info is not None
    assert "handlers.py" in traceback.extract_tb(record.exc_info[2])[0].filename


async def test_what_becomes_of_a_message_is_said_of_the_policy_as_it_is_now(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = ternmq.connect(real.url)
    ran: list[int] = []
    go = asyncio.Event()

    @client.handler("t", group="g", retry=ternmq.RetryPolicy(first=0.0, attempts=5, jitter=0))
    async def handle(n: int) -> None:
        ran.append(n)
        await go.wait()
        raise ValueError(n)

    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t")
        await other.send("t", 7)
        running = asyncio.ensure_future(client.run())
        await until(lambda: ran)
        await other.admin.change_group("t", "g", retry=ternmq.RetryPolicy(attempts=1))
        policies = client._puller.settler.policies
        await until(lambda: (now := policies.of("t", "g")) is not None and now.attempts == 1)
        go.set()
        await until(lambda: "failed" in caplog.text)
    client.stop()
    await running
    assert "failed, attempt 1 of 1: it is a dead letter now" in caplog.text


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_after_a_restart_of_the_broker_the_log_still_says_what_becomes_of_a_message(
    caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    with broker(manual=False) as restarted:
        client = ternmq.connect(restarted.url)

        @client.handler("t", group="g", retry=ternmq.RetryPolicy(first=0.0, attempts=2, jitter=0))
        async def handle(n: int) -> None:
            if n == 1:
                raise ValueError(n)
            raise ternmq.Retry("busy")

        async with ternmq.connect(restarted.url) as other:
            await other.admin.create_topic("t")
        running = asyncio.ensure_future(client.run())
        policies = client._puller.settler.policies
        await until(lambda: policies.of("t", "g") is not None)
        before = client._session.link
        await asyncio.to_thread(lambda: restarted.restart(clean=clean))
        await until(lambda: client._session.link not in {None, before})
        await until(lambda: policies.of("t", "g") is not None)
        async with ternmq.connect(restarted.url) as other:
            await other.send_many("t", [1, 2])
            await until(lambda: caplog.text.count("it is a dead letter now") == 2)
        client.stop()
        await running
    assert "failed, attempt 2 of 2: it is a dead letter now" in caplog.text
    told = "asked for a retry, but attempt 2 of 2 was the last: it is a dead letter now: busy"
    assert told in caplog.text


async def test_a_retry_is_told_while_the_policy_is_not_known(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send("t", 1)
        (one,) = await client.pull("t", group="g")
        client._puller.settler.policies._known.clear()
        async with one.process():
            raise ternmq.Retry("busy")
    assert "attempt 1: the retry policy decides what happens to it: busy" in caplog.text


async def test_a_group_that_is_gone_is_not_asked_for(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client, ternmq.connect(real.url) as other:
        await client.send("t", 1)
        (one,) = await client.pull("t", group="g")
        await one.ack()
        policies = client._puller.settler.policies
        await other.admin.delete_group("t", "g")
        await until(lambda: policies.of("t", "g") is None)
        assert policies._asked == {}
        with pytest.raises(ternmq.UnknownGroup):
            await other.admin.group("t", "g")


async def test_a_batch_says_what_is_not_tried_again(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g", retry=ternmq.RetryPolicy(attempts=1))
        await client.send_many("t", [1, 2, 3])
        batch = await client.pull("t", group="g")
        await batch[0].ack()
        async with batch.process():
            raise ternmq.Retry("busy")
        await client.send_many("t", [4])
        batch = await client.pull("t", group="g")
        async with batch.process():
            raise ternmq.Reject("never")
    assert "asked for a retry, but it was the last attempt of 2 of them: busy" in caplog.text
    assert "are dead letters now: rejected: never" in caplog.text


async def test_a_retry_that_was_asked_for_at_the_last_attempt_is_told(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = ternmq.connect(real.url)

    @client.handler("t", group="g", retry=ternmq.RetryPolicy(first=0.0, attempts=1))
    async def handle(n: int) -> None:
        if n == 1:
            raise ternmq.Retry("later")
        raise ternmq.Reject("never")

    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t")
        await other.send_many("t", [1, 2])
    with caplog.at_level(logging.INFO, "ternmq"):
        await run_until_dead(client, real.url, 2)
    told = "asked for a retry, but attempt 1 of 1 was the last: it is a dead letter now: later"
    assert told in caplog.text
    assert "is a dead letter now: rejected: never" in caplog.text
    (rejected,) = [one for one in caplog.records if "rejected: never" in one.getMessage()]
    assert rejected.levelno == logging.WARNING  # `worker -q` shows it


@pytest.mark.parametrize("ordered", [False, True])
async def test_only_an_ordered_group_is_said_to_hold_a_key(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture, ordered: bool
) -> None:
    client = ternmq.connect(real.url)
    retry = ternmq.RetryPolicy(first=0.0, attempts=1, exhausted=ternmq.Exhausted.HOLD)

    @client.handler("t", group="g", retry=retry, mode="shared")
    async def handle(n: int) -> None:
        raise ValueError(n)

    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t", ordered=ordered)
        await other.send("t", 1, ordering_key="a" if ordered else "")
    await run_until_dead(client, real.url, 1)
    assert "attempt 1 of 1: it is a dead letter now" in caplog.text
    assert "waits for an operator" not in caplog.text


async def test_an_attempt_beyond_the_policy_is_no_number_of_it(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator let a message come again that was held after its last attempt."""
    client = ternmq.connect(real.url)
    retry = ternmq.RetryPolicy(first=0.0, attempts=1, exhausted=ternmq.Exhausted.HOLD)

    @client.handler(ternmq.Topic("t", ordered=True), group="g", retry=retry)
    async def handle(n: int) -> None:
        raise ValueError(n)

    async def held(other: ternmq.Client, attempts: int) -> list[ternmq.FailedMessage]:
        while True:
            found = [one async for one in other.deadletters.waiting("t", "g")]
            if found and found[0].held and found[0].attempts == attempts:
                return found
            await asyncio.sleep(0.01)

    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t", ordered=True, queues=1)
        await other.admin.create_group("t", "g", retry=retry)
        await other.send("t", 7, ordering_key="a")
        running = asyncio.ensure_future(client.run())
        async with asyncio.timeout(20):
            assert await other.deadletters.retry("t", "g", await held(other, 1)) == []
            await held(other, 2)
    client.stop()
    await running
    assert "attempt 1 of 1: its ordering key waits for an operator" in caplog.text
    assert "attempt 2 (the retry policy has 1): its ordering key waits" in caplog.text


def test_ctrl_c_keeps_its_meaning(real: InProcessBroker, tmp_path: Path) -> None:
    program = WORKER.replace("sys.argv[1]", repr(real.url)).replace(
        "await asyncio.create_task(task())",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    )
    (tmp_path / "work.py").write_text(program)
    with ternmq.sync.connect(real.url) as other:
        other.admin.create_topic("t")
        other.send("t", 1)
    ended = subprocess.run(
        [sys.executable, "-m", "ternmq", "worker", "work:client"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert "closed" in ended.stdout
    assert ended.returncode in {0, 128 + signal.SIGINT}
