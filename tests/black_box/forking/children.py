"""Runs a scenario: ``python -m tests.black_box.forking.children NAME TOPIC``, with TERNMQ_URL.

Every wait has a deadline; a process or thread that is late is a failure. The exit status is 0 when
all went well. What is stored in the end is looked at by the test.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import faulthandler
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any, NoReturn

import pytest

import ternmq
import ternmq.sync

DEADLINE = 30.0
THREADS = 4

client = ternmq.sync.connect()
topic = sys.argv[2] if len(sys.argv) > 2 else ""


# -- processes and threads ------------------------------------------------------------------------


def leave(work: Callable[[], object]) -> NoReturn:
    """Do a child's work and end it, with 0 if all was well."""
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - told by the status
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if not pid:
        leave(work)
    return pid


def ended(*pids: int, statuses: tuple[int, ...] = (0,)) -> None:
    """Wait for children; those that are late are killed, by their ids."""
    left = set(pids)
    failed: list[str] = []
    until = time.monotonic() + DEADLINE
    pause = threading.Event()
    while left:
        for pid in list(left):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                left.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                if code not in statuses:
                    failed.append(f"{pid} ended with {code}")
        if time.monotonic() > until:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            failed.append(f"{sorted(left)} hung")
            break
        pause.wait(0.01)
    assert not failed, failed


def at_once(work: Callable[[int], object], count: int = THREADS) -> None:
    """Call something in threads that begin at one moment."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(DEADLINE)
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + DEADLINE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = [thread.name for thread in threads if thread.is_alive()]
    assert not late, f"hung: {late}"
    if errors:
        raise errors[0]


def sends(
    who: str, count: int = 10, to: str = topic, by: ternmq.sync.Client = client
) -> Callable[[], None]:
    """Return the work of a child: its threads send, whichever comes first."""

    def send(number: int) -> None:
        for n in range(count):
            by.send(to, f"{who}-{number}-{n}")

    return lambda: at_once(send)


def in_thread(work: Callable[[], None]) -> None:
    at_once(lambda _: work(), 1)


def refused(*calls: Callable[[], object]) -> None:
    """See that calls end at once, with ClientForked."""
    for call in calls:
        with pytest.raises(ternmq.ClientForked, match=r"fork.*connect or open again"):
            call()


# -- scenarios ------------------------------------------------------------------------------------


def threads_in_children() -> None:
    client.send(topic, "before")
    ended(*[fork(sends(f"child{n}")) for n in range(8)])
    client.send(topic, "after")


def fork_during_sends() -> None:
    told = threading.Event()
    counts = [0] * THREADS

    def hammer(number: int) -> None:
        for n in itertools.count():
            client.send(topic, f"parent-{number}-{n}")
            counts[number] += 1
            if told.is_set() and n >= 10:
                return

    def forks() -> None:
        try:
            for n in range(8):
                ended(fork(sends(f"child{n}")))
        finally:
            told.set()

    at_once(lambda n: hammer(n) if n < THREADS else forks(), THREADS + 1)
    print(*counts)


def fork_at_first_use() -> None:
    """Four threads begin to use a client that nobody used, while a fifth forks."""
    for n in range(20):
        with_a_new_client(n)


def with_a_new_client(n: int) -> None:
    pids: list[int] = []
    own = ternmq.sync.connect()

    def use(number: int) -> None:
        if number < THREADS:
            own.send(topic, f"parent{n}-{number}-0")
        else:
            pids.append(fork(sends(f"child{n}", 1, by=own)))

    at_once(use, THREADS + 1)
    ended(*pids)
    own.close()


def fork_in_a_thread() -> None:
    client.send(topic, "before")
    in_thread(lambda: ended(*[fork(sends(f"child{n}")) for n in range(4)]))


def fork_of_a_fork() -> None:
    def child() -> None:
        sends("child")()
        ended(*[fork(sends(f"grandchild{n}")) for n in range(2)])
        client.send(topic, "child-after")

    client.send(topic, "before")
    ended(fork(child))
    client.send(topic, "after")


def fork_of_an_idle_fork() -> None:
    """The process between never uses the client."""
    client.send(topic, "before")
    ended(fork(lambda: ended(fork(sends("grandchild")))))


def fork_without_hooks() -> None:
    """A host that is written in C forks, and Python's hooks do not run (uWSGI as it comes)."""
    client.send(topic, "before")
    with client.consume(topic, group="g") as deliveries:
        delivery = next(deliveries)
        pid = ctypes.PyDLL(None).fork()
        if not pid:
            sends("child")()
            leave(lambda: refused(delivery.ack, lambda: next(deliveries)))
        ended(pid)
        delivery.ack()
    client.send(topic, "after")


def _process(start: str) -> None:
    client.send(topic, "before")
    at_once(lambda _: None)
    context: Any = multiprocessing.get_context(start)
    processes = [context.Process(target=child_process, args=(topic, n)) for n in range(3)]
    for one in processes:
        one.start()
    sends("parent")()
    for one in processes:
        one.join(DEADLINE)
        if one.exitcode is None:
            one.kill()
            one.join()
    codes = [one.exitcode for one in processes]
    assert codes == [0, 0, 0], codes


def child_process(name: str, n: int) -> None:
    sends(f"child{n}", to=name)()
    # The process ends without a flush, and by os._exit where it was forked.
    for m in range(100):
        client.send_soon(name, f"soon{n}-{m}")


def multiprocessing_fork() -> None:
    _process("fork")


def multiprocessing_forkserver() -> None:
    _process("forkserver")


def multiprocessing_spawn() -> None:
    _process("spawn")


def pending() -> None:
    """Messages that wait at the fork are the parent's."""
    client.send(topic, "before")
    parents = [client.send_soon(topic, "parent-0")]
    done = parents[0].result(DEADLINE)
    parents += [client.send_soon(topic, f"parent-{n}") for n in range(1, 1000)]

    def child() -> None:
        told = 0
        for future in reversed(parents):
            try:
                assert future.result(DEADLINE).offset is not None
            except ternmq.ClientForked:
                told += 1
        assert parents[0].result() == done
        finished, left = concurrent.futures.wait(parents, timeout=DEADLINE)
        assert not left
        assert len(finished) == 1000
        print(told, flush=True)
        for n in range(100):
            client.send_soon(topic, f"child-{n}")
        client.flush()

    pid = fork(child)
    client.flush()
    ended(pid)
    assert all(future.result(0).offset is not None for future in parents)


def opened_before() -> None:
    """What was opened before the fork is the parent's; the child is told at once."""
    for n in range(6):
        client.send(topic, f"m{n}")
    batches = client.consume_batches(topic, group="b", max_messages=3)
    batch = next(batches)
    reading = client.read(topic, follow=True)
    assert next(reading).body == b"m0"
    pulled = client.pull(topic, group="p", max_messages=2)
    with client.consume(topic, group="g") as deliveries:
        first, second = next(deliveries), next(deliveries)

        def child() -> None:
            refused(
                first.ack, second.retry, lambda: next(deliveries), pulled.ack, batch.reject,
                lambda: next(reading), lambda: next(batches), lambda: second.extend(5.0),
                lambda: second.process().__exit__(None, None, None),
            )  # fmt: skip
            assert first.body == b"m0"
            assert first.process().__exit__(ValueError, ValueError("x"), None) is False
            deliveries.__exit__(None, None, None)
            closed(reading, batches)
            with client.consume(topic, group="g2") as own:
                assert next(own).body == b"m0"
            client.close()

        ended(fork(child))
        first.ack()
        with second.process():
            pass
    pulled.ack()
    batch.ack()
    assert next(reading).body == b"m1"
    batch = next(batches)
    assert [one.body for one in batch] == [b"m3", b"m4", b"m5"]
    batch.ack()
    closed(reading, batches)


def closed(*iterators: object) -> None:
    for one in iterators:
        assert isinstance(one, Generator)
        one.close()


def handlers() -> None:
    """Handlers that were declared before the fork work in the child."""
    client.send(topic, "before")

    @client.handler(topic, group="h")
    def handle(body: str, delivery: ternmq.sync.Delivery) -> None:
        print(os.getpid() != parent, body, flush=True)
        client.stop()

    parent = os.getpid()
    ended(fork(client.run))
    client.send(topic, "after")


def exits() -> None:
    """A child that leaves by sys.exit sends what waits, and leaves the parent's alone."""
    with client.consume(topic, group="g") as deliveries:
        client.send(topic, "before")
        delivery = next(deliveries)
        pid = os.fork()
        if not pid:
            for n in range(100):
                client.send_soon(topic, f"child-{n}")
            sys.exit(0)
        ended(pid)
        delivery.ack()
        client.send(topic, "after")
        next(deliveries).ack()


def idle_exits() -> None:
    """So does one that never used the client."""
    client.send(topic, "before")
    with client.consume(topic, group="g") as deliveries:
        delivery = next(deliveries)
        pid = os.fork()
        if not pid:
            with delivery.process():
                sys.exit(0)
        ended(pid)
        delivery.ack()
        client.send(topic, "after")
        next(deliveries).ack()


def _terminated() -> int | None:
    """Start a process out of a handler and terminate it; return how it ended."""
    ready, says = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_wait_for_ever, args=(says,))
    process.start()
    assert ready.poll(DEADLINE)
    process.terminate()
    process.join(DEADLINE)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
    return code


def _wait_for_ever(says: multiprocessing.connection.Connection) -> None:
    says.send(1)
    threading.Event().wait(2 * DEADLINE)


def signals() -> None:
    """SIGTERM to a child that a handler forked ends the child, and not the parent."""
    codes: list[int | None] = []

    @client.handler(topic, group="h")
    def handle(body: str) -> None:
        codes.append(_terminated())
        if body == "after":
            client.stop()

    client.send(topic, "before")
    client.send(topic, "after")
    client.run()
    assert codes == [-signal.SIGTERM] * 2, codes


def signals_of_asyncio() -> None:
    codes: list[int | None] = []
    own = ternmq.connect()
    loop: asyncio.AbstractEventLoop

    @own.handler(topic, group="h", concurrency=1)
    def handle(body: str) -> None:
        codes.append(_terminated())
        if body == "after":
            loop.call_soon_threadsafe(own.stop)

    async def run() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await asyncio.wait_for(own.run(), 2 * DEADLINE)

    with client:
        client.send(topic, "before")
        client.send(topic, "after")
    asyncio.run(run())
    assert codes == [-signal.SIGTERM] * 2, codes


def asyncio_in_a_child() -> None:
    """The asyncio client of the parent says what is wrong, in the loop of a child and outside."""

    async def parent() -> None:
        async with ternmq.connect() as own:
            unused = ternmq.connect()
            await own.send(topic, "before")
            (delivery,) = await own.pull(topic, group="g", max_messages=1)
            pid = os.fork()
            if not pid:
                leave(lambda: child(own, unused, delivery))
            await asyncio.to_thread(ended, pid)
            await delivery.ack()
            await own.send(topic, "after")

    def child(own: ternmq.Client, unused: ternmq.Client, delivery: ternmq.Delivery) -> None:
        refused(lambda: own.send_soon(topic, b"x"))
        asyncio.events._set_running_loop(None)

        async def work() -> None:
            for call in (
                lambda: own.send(topic, b"x"),
                lambda: own.send_many(topic, [b"x"]),
                lambda: own.pull(topic, group="g"),
                own.flush,
                own.connect,
                delivery.ack,
                delivery.retry,
                lambda: delivery.extend(5),
                lambda: delivery.process().__aexit__(None, None, None),
                lambda: own.get(topic, offset=0),
                own.admin.topics,
            ):
                with pytest.raises(ternmq.ClientForked, match="connect or open again"):
                    await asyncio.wait_for(call(), DEADLINE)
            await own.close()
            async with unused:
                await unused.send(topic, "child")

        asyncio.run(work())

    asyncio.run(parent())


def bulk_in_a_child() -> None:
    """A bulk client of the parent: the child has a session of its own."""
    from ternmq.client.bulk import Bulk, BulkOptions
    from ternmq.wire.control.bulk import RangesAsk

    client.send(topic, "before")
    with Bulk(BulkOptions()) as bulk:
        session = bulk._line.welcome.session

        def child() -> None:
            bulk.ranges([RangesAsk(topic=topic)])
            assert bulk._line.welcome.session != session
            bulk.close()

        ended(fork(child))
        assert bulk.ranges([RangesAsk(topic=topic)])[0].queues[0].next == 1
        assert bulk._line.welcome.session == session


def outlives() -> None:
    """The parent is killed, with two connections, while a child goes on: its number is printed."""
    client.send(topic, "before")
    client.admin.create_group(topic, "g")
    client.admin.change_group(topic, "g", lease=timedelta(seconds=0.3))
    with client.consume(topic, group="g") as deliveries:
        next(deliveries)
        pause = threading.Event()
        while client.stats().connections_open < 2:
            pause.wait(0.01)
        pid = fork(lambda: pause.wait(2 * DEADLINE))
        print(pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    faulthandler.enable()
    globals()[sys.argv[1]]()
    client.close()
