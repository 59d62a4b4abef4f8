"""How handlers end when their client stops, and what becomes of messages that they still run on."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.client.consumer.keeper import Keeper
from ternmq.client.handler.draining import drain
from ternmq.client.process import exiting
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true


class Gate:
    """A handler in a thread that runs until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.calls: list[str] = []
        self.go = threading.Event()
        self.error: Exception | None = None

    def __call__(self, body: str) -> None:
        self.calls.append(body)
        self.begun.release()
        assert self.go.wait(60)
        if self.error is not None:
            raise self.error

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=30)


@pytest.fixture
def gate() -> Iterator[Gate]:
    one = Gate()
    yield one
    one.go.set()


async def prepare(url: str, *bodies: str, lease: float = 30) -> None:
    async with ternmq.connect(url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g")
        await client.admin.change_group("orders", "g", lease=timedelta(seconds=lease))
        await client.send_many("orders", bodies)


async def place(url: str) -> Any:
    async with ternmq.connect(url) as client:
        return (await client.admin.group("orders", "g")).queues[0]


async def eventually(url: str, holds: Callable[[Any], bool]) -> None:
    end = time.monotonic() + 20
    while not holds(found := await place(url)):
        assert time.monotonic() < end, found
        await asyncio.sleep(0.01)


async def extended(client: Any, times: int = 3) -> None:
    """Wait until leases were extended: requests are made, and nobody else makes any."""
    before = client.stats().requests
    await until(lambda: client.stats().requests >= before + times, seconds=30)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_thread_that_outlives_the_drain_keeps_its_message(
    real: InProcessBroker, gate: Gate, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    caplog.set_level(logging.INFO, "ternmq")
    await prepare(real.url, "slow", "not begun", lease=1.5)
    client = ternmq.connect(real.url, drain_timeout=0.05)
    client.handler("orders", group="g", concurrency=1)(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    client.stop()
    await running

    said = [one.getMessage() for one in caplog.records]
    assert "stopping: waiting up to 0.05 s for 1 handler call" in said
    (named,) = [one for one in said if one.startswith("still running after 0.05 s")]
    assert "handler Gate, topic=orders group=g id=" in named
    assert "offset=0/0, since " in named
    assert any("stopped, but 1 handler call still runs: no other" in one for one in said)

    # Nobody gets it: its lease goes on being extended. What was not begun was given back.
    await extended(client)
    async with ternmq.connect(real.url) as other:
        (free,) = await other.pull("orders", group="g", wait=0)
        assert free.value == "not begun"
        await free.ack()
        assert not await other.pull("orders", group="g", wait=0)
    assert (await place(real.url)).leased == 1

    # It ends: its message is settled as the handler says, though the client is closed.
    gate.error = ValueError("no money") if fails else None
    gate.go.set()
    if fails:
        await eventually(real.url, lambda one: one.waiting == 1)
        async with ternmq.connect(real.url) as other:
            (again,) = await other.pull("orders", group="g", wait=20)
            assert (again.attempt, again.last_reason) == (2, "ValueError: no money")
    else:
        await eventually(real.url, lambda one: one.floor == 2)
    assert gate.calls == ["slow"]
    fate = "attempt 1 of 16: it is retried by the" if fails else "its message is acked"
    await until(lambda: f"s) ended after its client was closed: {fate}" in caplog.text)


async def test_the_end_of_a_process_waits_for_no_nap_of_the_keeper(
    real: InProcessBroker, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the handlers run on while another consumer works on their messages."""
    await prepare(real.url, "one", "two")
    client = ternmq.connect(real.url, drain_timeout=0)
    client.handler("orders", group="g", concurrency=2)(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    await gate.has_begun()
    client.stop()
    await running
    (keeper,) = exiting._own()
    assert isinstance(keeper, Keeper)
    await until(lambda: keeper.connected)
    nap = keeper._looks_at
    await until(lambda: keeper._looks_at > nap)  # the next one, of up to a second

    await asyncio.to_thread(exiting.tell)
    assert keeper._thread is not None
    assert not keeper._thread.is_alive()
    assert (
        caplog.text.count("still ran when its process ended: attempt 1 of 16: it is retried") == 2
    )
    await eventually(real.url, lambda one: one.waiting == 2)


async def test_at_the_end_of_a_process_it_tries_again_at_a_broker_that_comes_back(
    real: InProcessBroker, gate: Gate, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    await prepare(real.url, "one")
    client = ternmq.connect(real.url, drain_timeout=0)
    client.handler("orders", group="g")(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    client.stop()
    await running
    (keeper,) = exiting._own()
    assert isinstance(keeper, Keeper)
    await until(lambda: keeper.connected)
    failures = iter([ConnectionResetError("lost")] * 3)
    once = Keeper._exchange

    def lossy(self: Keeper, *arguments: Any) -> Any:
        for error in failures:
            raise error
        return once(self, *arguments)

    monkeypatch.setattr(Keeper, "_exchange", lossy)
    await asyncio.to_thread(exiting.tell)
    await eventually(real.url, lambda one: one.waiting == 1)
    assert caplog.text.count("still ran when its process ended: attempt 1 of 16: it is") == 1


async def test_a_run_has_a_drain_timeout_of_its_own(real: InProcessBroker, gate: Gate) -> None:
    await prepare(real.url, "of an async client")
    client = ternmq.connect(real.url, drain_timeout=3600)
    client.handler("orders", group="g")(gate)
    running = asyncio.create_task(client.run(signals=False, drain_timeout=timedelta(0)))
    await gate.has_begun()
    client.stop()
    await asyncio.wait_for(running, 60)  # an hour before the handler

    blocking = ternmq.sync.connect(real.url, drain_timeout=3600)
    other = Gate()
    blocking.handler("orders", group="other")(other)
    async with ternmq.connect(real.url) as sender:
        await sender.admin.create_group("orders", "other")
        await sender.send("orders", "of a blocking client")
    try:
        serving = asyncio.create_task(
            asyncio.to_thread(blocking.run, signals=False, drain_timeout=0.1)
        )
        await other.has_begun()
        blocking.stop()
        await asyncio.wait_for(serving, 60)
    finally:
        other.go.set()
    wrong: Any
    for wrong in (math.inf, -1, "1s"):
        client = ternmq.connect(real.url)
        client.handler("orders", group="g")(gate)
        with pytest.raises(ternmq.InvalidRequest, match="drain_timeout"):
            await client.run(drain_timeout=wrong)


async def test_the_session_of_a_thread_that_ended_is_over(
    real: InProcessBroker, gate: Gate
) -> None:
    await prepare(real.url, "slow")
    client = ternmq.connect(real.url, drain_timeout=0)
    client.handler("orders", group="g")(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    client.stop()
    await running
    async with ternmq.connect(real.url) as other:
        assert len(await other.admin.clients()) == 2
        gate.go.set()

        async def left() -> bool:
            return len(await other.admin.clients()) == 1

        await until_true(left, "its connection is closed")
    assert client.stats().connections_open == 0


async def test_a_coroutine_that_ignores_its_cancellation_keeps_its_message(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(real.url, "stubborn", lease=1.5)
    client = ternmq.connect(real.url, drain_timeout=0.05)
    begun, ignored, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @client.handler("orders", group="g")
    async def stubborn(body: str) -> None:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                ignored.set()

    running = asyncio.ensure_future(client.run())
    await begun.wait()
    client.stop()
    await ignored.wait()
    client.stop(at_once=True)  # else five more seconds
    await running
    assert "handler stubborn, topic=orders" in caplog.text
    await extended(client)
    assert (await place(real.url)).leased == 1
    go.set()
    await eventually(real.url, lambda one: one.floor == 1)


@pytest.mark.parametrize("blocking", [False, True])
async def test_stopping_at_once_waits_for_nobody(
    real: InProcessBroker, gate: Gate, blocking: bool
) -> None:
    await prepare(real.url, "slow")
    connect: Any = ternmq.sync.connect if blocking else ternmq.connect
    client = connect(real.url, drain_timeout=3600)
    client.handler("orders", group="g")(gate)
    running = asyncio.ensure_future(asyncio.to_thread(client.run) if blocking else client.run())
    await gate.has_begun()
    client.stop()
    client.stop(at_once=True)
    await running
    assert (await place(real.url)).leased == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_a_message_that_comes_again_is_not_handled_twice_at_one_time(
    real: InProcessBroker, gate: Gate, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    await prepare(real.url, "slow", lease=0.5)
    client = ternmq.connect(real.url)
    client.handler("orders", group="g")(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    async with ternmq.connect(real.url) as other:
        await other.replay("orders", "g", offsets=[0])  # whoever has it no longer holds it
    await until(lambda: "was delivered again while its handler runs" in caplog.text, seconds=30)
    gate.error = ValueError("no money") if fails else None
    gate.go.set()
    # What becomes of the call counts for the message that came.
    if fails:
        await until(lambda: len(gate.calls) == 2, seconds=30)
        gate.error = None
    await eventually(real.url, lambda one: one.floor == 1)
    client.stop()
    await running
    assert gate.calls == ["slow"] * (1 + fails)


async def test_a_message_that_its_handler_gave_back_comes_again_when_it_has_ended(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ternmq")
    await prepare(real.url, "again")
    client = ternmq.connect(real.url)
    at_one_time, calls = 0, 0
    came = asyncio.Event()
    handler = logging.Handler()
    handler.emit = lambda record: came.set() if "was delivered again" in record.msg else None  # type: ignore[method-assign]
    logging.getLogger("ternmq").addHandler(handler)

    @client.handler("orders", group="g")
    async def twice(body: str, delivery: ternmq.Delivery) -> None:
        nonlocal at_one_time, calls
        at_one_time += 1
        calls += 1
        assert at_one_time == 1
        if calls == 1:
            await delivery.release()
            await came.wait()
        else:
            client.stop()
        at_one_time -= 1

    try:
        await client.run()
    finally:
        logging.getLogger("ternmq").removeHandler(handler)
    assert calls == 2
    assert "is called again when this call ends" in caplog.text
    assert "the outcome of the running call counts" not in caplog.text
    assert (await place(real.url)).floor == 1


async def test_a_handler_keeps_its_message_beyond_the_longest_processing_time(
    real: InProcessBroker, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(real.url, "slow", "waits", "waits too", lease=1.5)
    client = ternmq.connect(real.url, max_processing_time=2)
    client.handler("orders", group="g", concurrency=1)(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    await until(lambda: "(max_processing_time)" in caplog.text, seconds=30)
    client_two = ternmq.connect(real.url)
    async with client_two as other:
        # What waits behind it goes to others.
        got: list[str] = []
        while len(got) < 2:
            for delivery in await other.pull("orders", group="g", wait=20):
                got.append(delivery.value)
                await delivery.ack()
        assert sorted(got) == ["waits", "waits too"]
        await extended(client)
        assert not await other.pull("orders", group="g", wait=0)
    gate.go.set()
    await eventually(real.url, lambda one: one.floor == 3)
    client.stop()
    await running
    assert gate.calls == ["slow"]


async def test_a_lease_is_not_extended_by_nothing(real: InProcessBroker) -> None:
    """Towards the end of the longest processing time an extension has nothing left to add."""
    await prepare(real.url, "one", lease=0.6)
    async with ternmq.connect(real.url, max_processing_time=1.2) as client:
        (held,) = await client.pull("orders", group="g")
        before = client.stats().requests
        await until(lambda: held.lost, seconds=30)
        # Each but the last lengthens it by two thirds; beyond that the loop itself asks nothing.
        assert client.stats().requests - before <= 4


async def test_a_coroutine_of_a_blocking_client_ends_with_its_loop(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ternmq.sync.loop_thread._END_TIMEOUT", 0.5)
    await prepare(real.url, "stubborn")
    client = ternmq.sync.connect(real.url, drain_timeout=0)
    begun, go = threading.Event(), threading.Event()

    @client.handler("orders", group="g")
    async def stubborn(body: str) -> None:
        begun.set()
        while not go.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    running = asyncio.ensure_future(asyncio.to_thread(client.run))
    assert await asyncio.to_thread(begun.wait, 30)
    client.stop(at_once=True)
    await running
    await eventually(real.url, lambda one: one.ready == 1)


async def test_a_middleware_that_gives_up_waits_for_the_thread(
    real: InProcessBroker, gate: Gate
) -> None:
    """Nobody else gets a message, and no second call has it, while a thread works on it."""
    await prepare(real.url, "slow")
    client = ternmq.connect(real.url, drain_timeout=0.05)
    gave_up = asyncio.Event()

    @client.handler_middleware
    async def limited(delivery: ternmq.Delivery) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(0.01):
                yield
        except TimeoutError:
            gave_up.set()
            raise

    client.handler("orders", group="g", concurrency=4)(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    await gave_up.wait()
    assert (await place(real.url)).leased == 1

    gate.go.set()
    await eventually(real.url, lambda one: one.waiting == 1 or one.leased == 0)
    client.stop()
    await running
    async with ternmq.connect(real.url) as other:
        (again,) = await other.pull("orders", group="g", wait=20)
        assert again.last_reason == "TimeoutError"


async def test_a_thread_that_outlives_the_drain_behind_a_middleware_that_gave_up(
    real: InProcessBroker, gate: Gate
) -> None:
    await prepare(real.url, "slow", lease=1.5)
    client = ternmq.connect(real.url, drain_timeout=0.05)
    gave_up = asyncio.Event()

    @client.handler_middleware
    async def limited(delivery: ternmq.Delivery) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(0.01):
                yield
        finally:
            gave_up.set()

    client.handler("orders", group="g", concurrency=1)(gate)
    running = asyncio.ensure_future(client.run())
    await gate.has_begun()
    await gave_up.wait()
    client.stop()
    await running
    await extended(client)
    assert (await place(real.url)).leased == 1
    gate.go.set()
    await eventually(real.url, lambda one: one.floor == 1)


@pytest.mark.parametrize("before", [True, False])
async def test_a_middleware_that_is_cancelled_beside_no_thread_gives_its_message_back(
    real: InProcessBroker, *, before: bool
) -> None:
    """Before the thread begins, or behind its end, nothing runs on that the message waits for."""
    await prepare(real.url, "one")
    client = ternmq.connect(real.url, drain_timeout=0.05)
    waits = asyncio.Event()

    @client.handler_middleware
    async def slow(delivery: ternmq.Delivery) -> AsyncIterator[None]:
        if not before:
            yield
        waits.set()
        await asyncio.Event().wait()
        if before:
            yield

    @client.handler("orders", group="g", concurrency=1)
    def handle(body: str) -> None:
        assert not before

    running = asyncio.ensure_future(client.run())
    await waits.wait()
    client.stop()
    await running
    await eventually(real.url, lambda one: one.leased == 0)
    async with ternmq.connect(real.url) as other:
        (free,) = await other.pull("orders", group="g", wait=20)
        assert free.attempt == 1


async def test_a_thread_that_cannot_be_started_leaves_no_call_behind(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes again; the call that failed is not made later, beside the next one."""
    await prepare(real.url, "one")
    start, refusals = threading.Thread.start, ["can't start new thread"]

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("ternmq-handle") and refusals:
            raise RuntimeError(refusals.pop())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    client = ternmq.connect(real.url)
    calls: list[int] = []

    @client.handler("orders", group="g", retry=ternmq.RetryPolicy(first=0.01))
    def handle(body: str, delivery: ternmq.sync.Delivery) -> None:
        calls.append(delivery.attempt)

    running = asyncio.ensure_future(client.run())
    await eventually(real.url, lambda one: one.floor == 1 and bool(calls))  # a failed row too
    client.stop()
    await running
    assert calls == [2]


async def test_the_end_waits_for_no_thread_of_the_application(
    real: InProcessBroker, gate: Gate
) -> None:
    """A handler that is cancelled leaves what it gave to ``asyncio.to_thread`` running."""
    await prepare(real.url, "one")
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    client = ternmq.connect(real.url, drain_timeout=0.05)

    @client.handler("orders", group="g")
    async def handle(body: str) -> None:
        await asyncio.to_thread(gate, body)

    running = asyncio.ensure_future(client.run())
    await until(lambda: gate.calls == ["one"], seconds=30)
    client.stop()
    try:
        await asyncio.wait_for(running, 30)
    finally:
        gate.go.set()


async def test_handlers_give_back_at_one_time() -> None:
    """Each may wait for a broker that does not answer; together they wait no longer than one."""
    closing = asyncio.Barrier(3)

    class Idle:
        tasks = running = ()

        def take_no_more(self) -> None: ...

        async def close(self, *, hurried: bool) -> None:
            assert not hurried
            await closing.wait()

    handlers: Any = [Idle() for _ in range(3)]
    assert await asyncio.wait_for(drain(handlers, 1.0, asyncio.Event()), 30) == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_thread_that_ends_when_its_loop_runs_no_more(
    real: InProcessBroker, gate: Gate, fails: bool
) -> None:
    """Such a loop takes what it is told, and never does it; nor was it closed."""
    asyncio.run(prepare(real.url, "slow", lease=1.5))
    client = ternmq.connect(real.url, drain_timeout=0.05)
    client.handler("orders", group="g", concurrency=1)(gate)

    async def run_and_stop() -> None:
        running = asyncio.ensure_future(client.run())
        await gate.has_begun()
        client.stop()
        await running

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run_and_stop())
    gate.error = ValueError("no money") if fails else None
    gate.go.set()
    try:
        asyncio.run(
            eventually(
                real.url,
                lambda one: one.waiting == 1 if fails else (one.floor, one.leased) == (1, 0),
            )
        )
    finally:
        loop.close()
