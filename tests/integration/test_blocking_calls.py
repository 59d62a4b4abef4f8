"""Blocking calls end: within their timeout, or with what became of the loop that they wait for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import signal
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

import ternmq
import ternmq.sync
from ternmq.client.handler.blocking import Portal
from ternmq.sync.loop_thread import LoopThread
from ternmq.testing import InProcessBroker
from tests.black_box.process import wait_until
from tests.black_box.wire import Wire

DEADLINE = 60.0


def outcome(call: Callable[[], object]) -> BaseException | None:
    """Return the error that a call ends with; a call that does not end fails."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).exception(DEADLINE)


@pytest.fixture
def wire(real: InProcessBroker) -> Iterator[Wire]:
    with Wire(real.port) as wire:
        yield wire


@pytest.fixture
def client(wire: Wire) -> Iterator[ternmq.sync.Client]:
    options = replace(ternmq.connect(wire.url).options, timeout=0.5, connect_timeout=0.5)
    client = ternmq.sync.connect(options=options)
    client.send_many("orders", [f"{n}" for n in range(4)])
    yield client
    wire.frozen = False
    client.close()


CALLS: dict[str, Callable[[ternmq.sync.Client], object]] = {
    "send": lambda client: client.send("orders", b"x"),
    "send, stated": lambda client: client.send("orders", b"x", timeout=0.1),
    "send_many": lambda client: client.send_many("orders", [b"x"] * 10),
    "send_soon": lambda client: client.send_soon("orders", b"x").result(),
    "pull": lambda client: client.pull("orders", group="g", wait=0.1),
    "pull, another group": lambda client: client.pull("orders", group="new", wait=0.1),
    "consume": lambda client: client.consume("orders", group="new").__enter__(),
    "read": lambda client: next(client.read("orders")),
    "get": lambda client: client.get("orders", offset=0),
    "find": lambda client: client.find("orders", key="k"),
    "replay": lambda client: client.replay("orders", "g", offsets=[0]),
    "prepare": lambda client: client.prepare("orders", [b"x"], writer="w", batch_id=1),
    "commit": lambda client: client.commit_prepared("w", 1, [1], digest=1),
    "topics": lambda client: client.admin.topics(),
    "status": lambda client: client.admin.status(),
    "browse": lambda client: next(client.deadletters.browse("orders", "g")),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_broker_that_says_nothing(name: str, client: ternmq.sync.Client, wire: Wire) -> None:
    client.pull("orders", group="g", max_messages=1).ack()
    wire.frozen = True
    error = outcome(lambda: CALLS[name](client))
    unknown = (ternmq.SendTimeout, ternmq.PartialSendError, ternmq.ConnectionLost)
    assert isinstance(error, (*unknown, ternmq.CannotConnect)), error


@pytest.mark.parametrize("verb", ["ack", "retry", "reject", "release"])
@pytest.mark.parametrize("many", [False, True])
def test_settling_with_a_broker_that_says_nothing(
    verb: str, many: bool, client: ternmq.sync.Client, wire: Wire
) -> None:
    deliveries = client.pull("orders", group="g", max_messages=2)
    wire.frozen = True
    error = outcome(getattr(deliveries if many else deliveries[0], verb))
    assert isinstance(error, ternmq.ConnectionLost)
    assert "not known" in str(error)


@pytest.mark.slow
def test_flush_and_close_with_a_broker_that_says_nothing(
    client: ternmq.sync.Client, wire: Wire
) -> None:
    deliveries = client.pull("orders", group="g", max_messages=2)
    wire.frozen = True
    client.send_soon("orders", b"x")
    assert isinstance(outcome(lambda: client.flush(0.1)), ternmq.UnsentMessages)
    with deliveries.process():
        pass
    assert isinstance(outcome(lambda: client.close(0.1)), ternmq.UnsentMessages | None)


def test_a_loop_that_something_blocks(client: ternmq.sync.Client) -> None:
    release = threading.Event()
    thread, _ = client.reach()
    soon = client.send_soon("orders", b"x", queue=lambda *_: release.wait(DEADLINE) and 0)
    try:
        error = outcome(lambda: client.send("orders", b"y"))
        assert isinstance(error, ternmq.ClientStalled)
        assert "must not block" in str(error)
    finally:
        release.set()
    assert soon.result(DEADLINE).offset is not None
    client.send("orders", b"z")
    assert thread.call(asyncio.sleep(0)) is None


# -- portals


def test_a_time_out_of_the_call_is_its_own() -> None:
    async def late() -> None:
        raise TimeoutError("of the call")

    thread = LoopThread()
    assert str(outcome(lambda: thread.call(late()))) == "of the call"
    thread.stop()


def test_what_comes_while_the_thread_ends() -> None:
    """Calls, posts and promises at the end of a loop: each of them is told, whoever is first."""
    for _ in range(50):
        thread = LoopThread()
        begin = threading.Barrier(3)
        futures: list[concurrent.futures.Future[object]] = []

        def promise(
            thread: LoopThread = thread,
            begin: threading.Barrier = begin,
            futures: list[concurrent.futures.Future[object]] = futures,
        ) -> None:
            begin.wait(DEADLINE)
            for _ in range(20):
                future = thread.promise(concurrent.futures.Future[object]())
                futures.append(future)
                try:
                    thread.post(lambda future=future: future.set_result(None))  # type: ignore[misc]
                except ternmq.ClientClosed:
                    future.cancel()

        def call(thread: LoopThread = thread, begin: threading.Barrier = begin) -> None:
            begin.wait(DEADLINE)
            while True:
                thread.call(asyncio.sleep(0))

        with ThreadPoolExecutor(2) as threads:
            promised, called = threads.submit(promise), threads.submit(call)
            begin.wait(DEADLINE)
            thread.stop()
            assert promised.exception(DEADLINE) is None
            assert isinstance(called.exception(DEADLINE), ternmq.ClientClosed)
        for future in futures:
            if not future.cancelled():
                assert isinstance(future.exception(DEADLINE), ternmq.ClientClosed | None)


def test_a_task_that_will_not_end_does_not_hold_the_end() -> None:
    thread = LoopThread()
    began = threading.Event()

    async def stubborn() -> None:
        while True:
            try:
                began.set()
                await asyncio.sleep(DEADLINE)
            except asyncio.CancelledError:
                continue

    with ThreadPoolExecutor(1) as threads:
        called = threads.submit(thread.call, stubborn())
        assert began.wait(DEADLINE)
        thread.stop()
        assert isinstance(called.exception(DEADLINE), ternmq.ClientClosed)


def test_a_name_that_is_looked_up_for_long_does_not_hold_the_end() -> None:
    thread = LoopThread()
    began, release = threading.Event(), threading.Event()

    def look_up() -> None:
        began.set()
        release.wait(DEADLINE)

    thread.loop.call_soon_threadsafe(thread.loop.run_in_executor, None, look_up)
    assert began.wait(DEADLINE)
    try:
        assert outcome(thread.stop) is None
        assert thread.loop.is_closed()
    finally:
        release.set()


def test_a_loop_that_has_ended() -> None:
    loop = asyncio.new_event_loop()
    portal = Portal(loop, 0.1)
    work = asyncio.sleep(0)
    # It does not run: nothing will ever come of a call.
    assert isinstance(outcome(lambda: portal.call(work)), ternmq.ClientStalled)
    work.close()
    loop.close()
    assert isinstance(outcome(lambda: portal.call(asyncio.sleep(0))), ternmq.ClientClosed)


def test_a_future_that_its_owner_cancelled(client: ternmq.sync.Client, wire: Wire) -> None:
    wire.frozen = True
    future = client.send_soon("orders", b"x")
    assert future.cancel()
    wire.frozen = False
    client.flush()
    assert client.send("orders", b"y").offset is not None


def test_an_error_in_the_loop_reaches_who_sent_and_nobody_else(
    client: ternmq.sync.Client, wire: Wire
) -> None:
    """Of a middleware, or of a future that was cancelled: what was sent behind it leaves."""

    @client.send_middleware
    def strict(outbound: ternmq.Outbound) -> Iterator[None]:
        if outbound.message.key == "bad":
            raise ValueError("no such key")
        yield

    going, go = threading.Event(), threading.Event()

    def hold() -> None:
        going.set()
        assert go.wait(DEADLINE)

    client.reach()[0].post(hold)
    assert going.wait(DEADLINE)
    bad = client.send_soon("orders", b"x", key="bad")
    unwanted = client.send_soon("orders", b"x", key="k" * 10_000)
    assert unwanted.cancel()
    good = client.send_soon("orders", b"x")
    go.set()
    error = bad.exception(DEADLINE)
    assert isinstance(error, ValueError)
    assert str(error) == "no such key"
    assert good.result(DEADLINE).topic == "orders"

    client.send_soon("orders", b"x", key="bad")  # nobody waits for it
    with pytest.raises(ternmq.UnsentMessages, match="no such key"):
        client.flush()


def test_what_a_thread_posts_goes_on_behind_what_fails() -> None:
    portal = LoopThread()
    failed: list[object] = []
    portal.loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    done = threading.Event()

    async def post_both() -> None:  # in one turn, so that one wake-up is for both
        portal.post(lambda: 1 // 0)
        portal.post(done.set)

    portal.call(post_both())
    assert done.wait(DEADLINE)
    assert [type(one) for one in failed] == [ZeroDivisionError]
    portal.stop()


def test_clients_that_are_gone_leave_nothing_behind(real: InProcessBroker) -> None:
    def use() -> weakref.ref[ternmq.sync.Client]:
        with ternmq.sync.connect(real.url) as client:
            client.send("orders", b"x")
        return weakref.ref(client)

    gone = [use() for _ in range(3)]
    gc.collect()
    assert [one() for one in gone] == [None] * 3


def test_the_clock_of_a_broker_of_the_parent(timed: InProcessBroker) -> None:
    """A forked child cannot move it: the broker's thread is not there, and is not waited for."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            timed.clock.advance(timedelta(seconds=1))
        except RuntimeError as error:
            status = 0 if "forked" in str(error) else 2
        finally:
            os._exit(status)
    found = 0

    def ended() -> bool:
        nonlocal found
        done, found = os.waitpid(pid, os.WNOHANG)
        return bool(done)

    try:
        wait_until(ended, "the end of the child")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    assert os.waitstatus_to_exitcode(found) == 0
    timed.clock.advance(timedelta(seconds=1))


def test_an_interrupt_ends_an_iteration_as_itself() -> None:
    """What it waits for may need some turns of the loop to end; it is closed behind that."""
    closed: list[bool] = []

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            closed.append(True)

    thread = LoopThread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            found.extend(thread.iterate(source()))
        assert closed == [True]
    finally:
        signal.signal(signal.SIGINT, before)
        thread.stop()
