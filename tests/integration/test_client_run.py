"""Handlers, against a real broker."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import util
from multiprocessing.queues import SimpleQueue

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import until, until_true
from tests.integration.proxy import Proxy


@dataclass
class Order:
    number: int


async def fill(url, count, topic="orders", **settings):
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(topic, **settings)
        await client.send_many(topic, [Order(n) for n in range(count)])


async def stand(url, group="g", topic="orders"):
    async with ternmq.connect(url) as client:
        return (await client.admin.group(topic, group)).queues[0]


async def test_a_handler_that_is_declared_while_others_run_is_refused(
    real: InProcessBroker,
) -> None:
    """It would never be called."""
    client = ternmq.connect(real.url)
    refused: list[BaseException] = []

    async def late(body: bytes) -> None:
        pytest.fail("nobody calls it")

    @client.handler("orders", group="g")
    async def first(body: bytes) -> None:
        try:
            client.handler("others", group="g")(late)
        except ternmq.InvalidHandler as error:
            refused.append(error)
        client.stop()

    await fill(real.url, 1)
    async with asyncio.timeout(60):
        await client.run(signals=False)
    (error,) = refused
    assert "run() has begun" in str(error)
    assert "declare handlers before" in str(error)


async def test_a_handler_gets_what_it_asks_for(real: InProcessBroker) -> None:
    await fill(real.url, 100)
    client = ternmq.connect(real.url)
    got: list[Order] = []
    seen: list[tuple[int, str]] = []
    raw: list[bytes] = []

    @client.handler("orders", group="g")
    async def on_order(order: Order, delivery: ternmq.Delivery) -> None:
        got.append(order)
        seen.append((delivery.offset, delivery.group))

    @client.handler("orders", group="bare")
    async def on_delivery(delivery: ternmq.Delivery) -> None:
        raw.append(delivery.body)

    @client.handler("orders", group="body")
    async def on_body(body: bytes) -> None:
        raw.append(body)

    running = asyncio.ensure_future(client.run())
    await until(lambda: len(got) == 100 and len(raw) == 200)
    client.stop()
    await running
    assert sorted(one.number for one in got) == list(range(100))
    assert seen[0] == (0, "g")
    assert (await stand(real.url)).floor == 100


async def test_plain_functions_run_in_threads(real: InProcessBroker) -> None:
    await fill(real.url, 20)
    client = ternmq.connect(real.url)
    threads: set[str] = set()
    done: list[int] = []
    together = threading.Barrier(4)

    @client.handler("orders", group="g", concurrency=4)
    def on_order(order: Order, delivery: ternmq.sync.Delivery) -> None:
        threads.add(threading.current_thread().name)
        if order.number < 4:
            together.wait(10)
        if order.number == 7:
            delivery.reject("no sevens")
        done.append(order.number)

    running = asyncio.ensure_future(client.run())
    await until(lambda: len(done) == 20)
    client.stop()
    await running
    assert len(threads) == 4
    found = await stand(real.url)
    assert (found.floor, found.dead, found.leased) == (20, 1, 0)


async def test_what_cannot_be_decoded_is_rejected(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = ternmq.connect(real.url)
    await client.connect()
    await client.admin.create_topic("orders")
    await client.send("orders", {"number": "seven"})
    await client.send("orders", b"garbage")
    await client.send("orders", Order(7))
    got: list[Order] = []

    @client.handler("orders", group="g")
    async def on_order(order: Order) -> None:
        got.append(order)
        client.stop()

    await client.run()
    assert got == [Order(7)]
    async with ternmq.connect(real.url) as other:
        dead = [one async for one in other.deadletters.browse("orders", "g")]
    assert [one.offset for one in dead] == [0, 1]
    assert all(one.reason.startswith("decode") for one in dead)


async def test_failures_are_tried_again(timed: InProcessBroker) -> None:
    await fill(timed.url, 3)
    client = ternmq.connect(timed.url)
    tries: dict[int, list[int]] = {}

    @client.handler("orders", group="g", concurrency=2)
    async def on_order(order: Order, delivery: ternmq.Delivery) -> None:
        tries.setdefault(order.number, []).append(delivery.attempt)
        if order.number == 1 and delivery.attempt < 3:
            raise ConnectionError("stock service")

    running = asyncio.ensure_future(client.run())
    await until(lambda: len(tries) == 3)
    await asyncio.to_thread(timed.clock.advance, minutes=10)
    await until(lambda: tries[1] == [1, 2, 3])
    client.stop()
    await running
    assert tries[0] == tries[2] == [1]


async def test_stopping_finishes_what_runs_and_gives_back_the_rest(real: InProcessBroker) -> None:
    await fill(real.url, 50)
    client = ternmq.connect(real.url)
    begun, go = [], asyncio.Event()

    @client.handler("orders", group="g", concurrency=3, max_in_flight=50)
    async def on_order(order: Order) -> None:
        begun.append(order.number)
        await go.wait()

    running = asyncio.ensure_future(client.run())
    await until(lambda: len(begun) == 3)
    client.stop()
    go.set()
    await running
    found = await stand(real.url)
    assert (found.floor, found.leased, found.ready) == (3, 0, 47)
    async with ternmq.connect(real.url) as other:
        batch = await other.pull("orders", group="g")
        assert {one.attempt for one in batch} == {1}


@pytest.mark.parametrize("blocking", [False, True])
async def test_no_more_handlers_run_than_messages_may_be_in_flight(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture, *, blocking: bool
) -> None:
    """Tasks or threads that could never work are not made, and the log says why."""
    caplog.set_level(logging.INFO, "ternmq")
    await fill(real.url, 5)
    client = ternmq.connect(real.url)
    began: list[int] = []
    go = threading.Event()

    if blocking:

        @client.handler("orders", group="g", max_in_flight=2)
        def in_thread(order: Order) -> None:
            began.append(order.number)
            assert go.wait(60)

    else:

        @client.handler("orders", group="g", concurrency=3, max_in_flight=2)
        async def in_loop(order: Order) -> None:
            began.append(order.number)
            await until(go.is_set)

    running = asyncio.ensure_future(client.run())
    await until(lambda: len(began) == 2)
    (handler,) = client.serving.handlers
    assert len(handler.tasks) == 2
    assert "concurrency=2 (max_in_flight allows no more); retry" in caplog.text
    go.set()
    await until(lambda: len(began) == 5)
    client.stop()
    await running


async def test_handlers_that_do_not_end_are_cancelled_and_given_back(real: InProcessBroker) -> None:
    await fill(real.url, 1)
    base = ternmq.connect(real.url).options
    from dataclasses import replace

    client = ternmq.connect(options=replace(base, drain_timeout=0.05))
    begun = asyncio.Event()

    @client.handler("orders", group="g")
    async def on_order(order: Order) -> None:
        begun.set()
        await asyncio.sleep(60)

    running = asyncio.ensure_future(client.run())
    await begun.wait()
    client.stop()
    await running
    found = await stand(real.url)
    assert (found.floor, found.leased, found.ready, found.waiting) == (0, 0, 1, 0)


async def test_sigterm_ends_a_run(real: InProcessBroker) -> None:
    await fill(real.url, 1)
    client = ternmq.connect(real.url)
    got = []

    @client.handler("orders", group="g")
    async def on_order(order: Order) -> None:
        got.append(order)
        os.kill(os.getpid(), signal.SIGTERM)

    await client.run()
    assert got == [Order(0)]


@pytest.fixture
def terms() -> Iterator[list[int]]:
    """SIGTERM is handled, as by a web server; yields how often."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    yield told
    signal.signal(signal.SIGTERM, before)


async def test_sigterm_stays_with_a_server_that_handles_it(
    real: InProcessBroker, terms: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    await fill(real.url, 2)
    client = ternmq.connect(real.url)
    got = []

    @client.handler("orders", group="g", concurrency=1)
    async def on_order(order: Order) -> None:
        got.append(order)
        os.kill(os.getpid(), signal.SIGTERM)

    with caplog.at_level("INFO", "ternmq"):
        running = asyncio.ensure_future(client.run())
        await until(lambda: len(terms) == 2 and len(got) == 2)
    assert not running.done()
    assert "terms.<locals>.<lambda>, so run() does not handle signals" in caplog.text
    async with ternmq.connect(real.url) as sender:  # and the run goes on
        await sender.send("orders", Order(2))
    await until(lambda: len(got) == 3)
    client.stop()
    await running


async def test_signals_are_taken_from_a_server_where_that_is_asked_for(
    real: InProcessBroker, terms: list[int]
) -> None:
    await fill(real.url, 1)
    client = ternmq.connect(real.url)

    @client.handler("orders", group="g")
    async def on_order(order: Order) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    await client.run(signals=True)
    assert terms == []


def test_signals_are_left_alone_where_that_is_asked_for(
    real: InProcessBroker, terms: list[int]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    for signals in (False, None):
        client = ternmq.sync.connect(real.url)
        seen: list[object] = []

        @client.handler("orders", group="g")
        def on_order(
            body: bytes, client: ternmq.sync.Client = client, seen: list[object] = seen
        ) -> None:
            seen.append(signal.getsignal(signal.SIGINT))
            client.stop()

        with ternmq.sync.connect(real.url) as sender:
            sender.send("orders", b"")
        client.run(signals=signals)
        assert seen == [before]
    with pytest.raises(ternmq.InvalidRequest, match="signals is True or False, not int"):
        ternmq.sync.connect(real.url).run(signals=0)  # type: ignore[arg-type]


async def test_ordered_handlers_run_a_key_one_after_the_other(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("moves", ordered=True)
        messages = [ternmq.Message(Order(n), ordering_key=f"k{n % 4}") for n in range(200)]
        await client.send_many("moves", messages)
    client = ternmq.connect(real.url)
    running: set[int] = set()
    order: dict[int, list[int]] = {}
    count = 0

    @client.handler("moves", group="g", concurrency=8)
    async def on_move(one: Order) -> None:
        nonlocal count
        key = one.number % 4
        assert key not in running
        running.add(key)
        await asyncio.sleep(0)
        running.discard(key)
        order.setdefault(key, []).append(one.number)
        count += 1
        if count == 200:
            client.stop()

    await client.run()
    assert order == {key: list(range(key, 200, 4)) for key in range(4)}


async def test_a_run_waits_for_its_broker(real: InProcessBroker) -> None:
    await fill(real.url, 1)
    real.stop()
    client = ternmq.connect(real.url)
    got = asyncio.Event()

    @client.handler("orders", group="g")
    async def on_order(order: Order) -> None:
        got.set()

    running = asyncio.ensure_future(client.run())
    await until(lambda: client._session.failure, "an attempt to connect failed")
    real._settings["listen"] = client.options.address.host + f":{client.options.address.port}"
    await asyncio.to_thread(real.start)
    await got.wait()
    client.stop()
    await running


async def test_a_run_that_is_stopped_while_it_connects_waits_no_longer() -> None:
    """Not for the time that a broker has to answer, which may be minutes."""
    came = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        options = ternmq.connect(f"ternmq://127.0.0.1:{port}").options
        client = ternmq.connect(options=replace(options, connect_timeout=600))

        @client.handler("orders", group="g")
        async def on_order(order: Order) -> None: ...

        running = asyncio.ensure_future(client.run())
        await came.wait()
        client.stop()
        async with asyncio.timeout(60):
            await running


def _come_and_go(url: str, told: SimpleQueue[int]) -> None:
    for _ in range(5):
        with ternmq.sync.connect(url) as client:
            client.send("orders", b"x")
    told.put(len(util._finalizer_registry))  # type: ignore[attr-defined]


def test_clients_of_a_child_of_multiprocessing_leave_nothing_for_its_end(
    real: InProcessBroker,
) -> None:
    context = multiprocessing.get_context("spawn")
    told: SimpleQueue[int] = context.SimpleQueue()
    child = context.Process(target=_come_and_go, args=(real.url, told))
    child.start()
    assert told.get() == 1
    child.join()


async def test_a_worker_without_rights_or_handlers_says_so(real: InProcessBroker) -> None:
    with pytest.raises(ternmq.InvalidRequest, match="handler"):
        await ternmq.connect(real.url).run()
    client = ternmq.connect(real.url)
    with pytest.raises(ternmq.InvalidRequest):

        @client.handler("orders", group="g")
        async def strange(a: int, b: int, c: int) -> None: ...

    async def lost(a: int) -> None: ...

    with broker(manual=False, settings={"create_topics": False}) as strict:
        client = ternmq.connect(strict.url)
        client.handler("nowhere", group="g")(lost)
        with pytest.raises(ternmq.UnknownTopic):
            await client.run()


def test_a_blocking_worker(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders")
        client.send_many("orders", [Order(n) for n in range(10)])
    worker = ternmq.sync.connect(real.url)
    got: list[int] = []

    @worker.handler("orders", group="g")
    def on_order(order: Order, delivery: ternmq.sync.Delivery) -> None:
        got.append(order.number)
        if len(got) == 10:
            worker.stop()

    worker.run()
    assert sorted(got) == list(range(10))


# -- handlers that are mistaken


@dataclass
class Basket:
    orders: list[Missing]  # type: ignore[name-defined] # noqa: F821


class Plain:
    """Nothing here can decode it."""


@pytest.mark.parametrize("connect", [ternmq.connect, ternmq.sync.connect])
@pytest.mark.parametrize(("kind", "says"), [(Basket, "'Missing' is not"), (Plain, "a dataclass")])
def test_a_type_that_no_body_can_be_decoded_to(real: InProcessBroker, connect, kind, says) -> None:
    with ternmq.sync.connect(real.url) as other:
        other.send("orders", {"orders": []})
    client = connect(real.url)

    async def on_body(body) -> None: ...

    on_body.__annotations__["body"] = kind
    client.handler("orders", group="g")(on_body)
    with pytest.raises(ternmq.InvalidHandler, match=says):
        asyncio.run(client.run()) if connect is ternmq.connect else client.run()
    with ternmq.sync.connect(real.url) as other:
        assert "g" not in [one.group for one in other.admin.groups("orders")]


@pytest.mark.parametrize("sort", ["coroutine", "generator", "coroutine of an async def"])
async def test_a_handler_that_returns_its_work_undone(timed: InProcessBroker, sort: str) -> None:
    await fill(timed.url, 1)
    client = ternmq.connect(timed.url)
    calls: list[int] = []

    async def work(order: Order) -> None:
        raise AssertionError

    def generate(order: Order):
        calls.append(order.number)
        yield order

    if sort == "coroutine":

        @client.handler("orders", group="g")
        def on_order(order: Order):
            calls.append(order.number)
            return work(order)

    elif sort == "generator":

        @client.handler("orders", group="g")
        def on_order(order: Order):
            calls.append(order.number)
            return generate(order)

    else:

        @client.handler("orders", group="g")
        async def on_order(order: Order):
            calls.append(order.number)
            return work(order)

    running = asyncio.ensure_future(client.run())
    await until(lambda: len(calls) == 1)
    client.stop()
    await running
    found = await stand(timed.url)
    assert (found.waiting, found.dead) == (1, 0)
    await asyncio.to_thread(timed.clock.advance, seconds=5)
    async with ternmq.connect(timed.url) as other:
        (again,) = await other.pull("orders", group="g")
        assert "which was not run" in again.last_reason


@pytest.mark.parametrize("blocking", [False, True])
def test_the_delivery_is_of_the_type_that_is_annotated(
    real: InProcessBroker, blocking: bool
) -> None:
    with ternmq.sync.connect(real.url) as other:
        other.send("orders", Order(1))
    client = ternmq.sync.connect(real.url) if blocking else ternmq.connect(real.url)
    got: dict[str, bool] = {}

    def see(name: str, delivery: object, kind: type) -> None:
        got[name] = isinstance(delivery, kind)
        if len(got) == 3:
            client.stop()

    @client.handler("orders", group="a")
    async def in_the_loop(order: Order, delivery: ternmq.Delivery) -> None:
        await delivery.ack()
        see("async", delivery, ternmq.Delivery)

    @client.handler("orders", group="b")
    def in_a_thread(order: Order, delivery: ternmq.sync.Delivery) -> None:
        delivery.ack()
        see("thread", delivery, ternmq.sync.Delivery)

    @client.handler("orders", group="c")
    def alone(delivery: ternmq.sync.Delivery) -> None:
        see("alone", delivery, ternmq.sync.Delivery)

    client.run() if isinstance(client, ternmq.sync.Client) else asyncio.run(client.run())
    assert got == {"async": True, "thread": True, "alone": True}


@pytest.mark.parametrize("has_loop", [False, True], ids=["a thread", "another loop"])
async def test_stopped_by_a_thread_while_nothing_happens_in_its_loop(
    monkeypatch: pytest.MonkeyPatch, has_loop: bool
) -> None:
    with broker(manual=False) as one:
        client = ternmq.connect(one.url)

        @client.handler(ternmq.Topic("orders"), group="g")
        async def on_order(order: Order) -> None:
            """Nothing comes."""

        stopped_in: list[int] = []
        stop_here = client.serving._stop_here

        def noted(*, at_once: bool) -> None:
            stopped_in.append(threading.get_ident())
            stop_here(at_once=at_once)

        monkeypatch.setattr(client.serving, "_stop_here", noted)
        thread = threading.Thread(target=lambda: asyncio.run(client.run(signals=False)))
        thread.start()

        async def waits() -> bool:
            with suppress(ternmq.UnknownTopic, ternmq.UnknownGroup):
                return bool((await other.admin.group("orders", "g")).members)
            return False

        async with ternmq.connect(one.url) as other:
            await until_true(waits, "the worker waits for messages")
        if has_loop:
            client.stop()  # the loop of this test is not the client's
        else:
            await asyncio.to_thread(client.stop)
        await asyncio.to_thread(thread.join, 50)
        assert not thread.is_alive()
        assert stopped_in == [thread.ident], "its own loop was woken for it"


async def test_stopped_by_a_thread_before_it_runs(real: InProcessBroker) -> None:
    await fill(real.url, 1)
    client = ternmq.connect(real.url)

    @client.handler("orders", group="g")
    async def on_order(order: Order) -> None:
        pytest.fail("it was stopped")

    await asyncio.to_thread(client.stop)
    await client.run(signals=False)
    await asyncio.to_thread(client.stop)  # it has ended


def test_stopped_when_its_loop_is_closed(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)

    async def use() -> None:
        await client.send("orders", b"x")
        await client.close()

    asyncio.run(use())
    client.stop()


class _Answers(Proxy):
    """A proxy that passes only the first answers of each connection."""

    passes = 1

    async def _pass(self, reader, writer, *, answers=False):
        left = self.passes
        while data := await reader.read(65536):
            left -= answers
            if answers and left < 0 and self.mute:
                continue
            writer.write(data)
            await writer.drain()
        writer.transport.abort()


@pytest.mark.parametrize("cut", [True, False])
async def test_a_run_waits_for_a_broker_that_is_lost_while_it_starts(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture, *, cut: bool
) -> None:
    """It is greeted, and then not answered: for longer than the timeout of a request."""
    caplog.set_level(logging.INFO, "ternmq")
    await fill(real.url, 1)
    async with _Answers(real.port) as proxy:
        proxy.mute = True
        client = ternmq.connect(proxy.url, timeout=0.2)
        got = asyncio.Event()

        @client.handler("orders", group="g")
        async def on_order(order: Order) -> None:
            got.set()

        running = asyncio.ensure_future(client.run())
        await until(lambda: proxy.made, "it is connected")
        if cut:
            proxy.refuse(on=True)
            proxy.cut()
        await until(
            lambda: (
                caplog.text.count("lost during the start: waiting for it") >= 1
                or caplog.text.count("yet: waiting for it") >= 1
            ),
            "a request was given up",
        )
        assert not running.done()
        proxy.mute = False
        proxy.refuse(on=False)
        proxy.cut()
        await got.wait()
        client.stop()
        await running
        assert caplog.text.count("handler on_order: topic=orders") == 1


async def test_a_run_that_is_stopped_while_its_start_is_not_answered(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(real.url, 1)
    async with _Answers(real.port) as proxy:
        proxy.mute = True
        client = ternmq.connect(proxy.url, timeout=600)

        @client.handler("orders", group="g")
        async def on_order(order: Order) -> None: ...

        running = asyncio.ensure_future(client.run())
        await until(lambda: client._session.welcome is not None, "it is greeted")
        client.stop()
        async with asyncio.timeout(60):
            await running
        await client.close()
