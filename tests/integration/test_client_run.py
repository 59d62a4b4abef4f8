"""Handlers, against a real broker."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import dataclass

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import until


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

    @client.handler("orders", group="g", concurrency=3)
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
    await asyncio.sleep(0.1)
    real._settings["listen"] = client.options.address.host + f":{client.options.address.port}"
    await asyncio.to_thread(real.start)
    await got.wait()
    client.stop()
    await running


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
