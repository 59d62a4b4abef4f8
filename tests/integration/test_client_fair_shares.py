"""What waits in one consumer, while another of its group is free."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

import ternmq
import ternmq.sync
from ternmq.client.consumer.consuming import engine_of
from ternmq.testing import InProcessBroker
from tests.asynchronous import until


async def filled(url: str, count: int, *, keys: int = 0) -> None:
    async with ternmq.connect(url) as client:
        await client.admin.create_topic("orders", ordered=bool(keys))
        messages = [
            ternmq.Message(b"%d" % n, ordering_key=f"k{n % keys}" if keys else "")
            for n in range(count)
        ]
        await client.send_many("orders", messages)


@pytest.mark.parametrize("blocking", [False, True])
async def test_slow_handlers_take_as_many_as_they_work_on(
    real: InProcessBroker, blocking: bool
) -> None:
    await filled(real.url, 8)
    begun: Counter[int] = Counter()
    go = threading.Event()
    clients = [ternmq.connect(real.url) for _ in range(2)]

    def declare(number: int, client: ternmq.Client) -> None:
        if blocking:

            @client.handler("orders", group="g", concurrency=4)
            def in_a_thread(body: bytes) -> None:
                begun[number] += 1
                go.wait(60)

        else:

            @client.handler("orders", group="g", concurrency=4)
            async def in_the_loop(body: bytes) -> None:
                begun[number] += 1
                await asyncio.to_thread(go.wait, 60)

    for number, client in enumerate(clients):
        declare(number, client)
    runs = [asyncio.ensure_future(client.run()) for client in clients]
    try:
        await until(lambda: begun.total() == 8)
        assert begun == {0: 4, 1: 4}
    finally:
        go.set()
        for client in clients:
            client.stop()
        await asyncio.gather(*runs)


@pytest.mark.parametrize("keys", [0, 50])
async def test_what_a_handler_that_became_slow_has_not_begun_goes_to_another(
    real: InProcessBroker, keys: int
) -> None:
    """It was quick before: hundreds are ahead in its consumer when it meets a slow message."""
    count = 3000
    await filled(real.url, count, keys=keys)
    go = asyncio.Event()
    stuck = asyncio.Event()
    order: list[int] = []
    slow, free = ternmq.connect(real.url), ternmq.connect(real.url)

    @slow.handler("orders", group="g", concurrency=1)
    async def first_quick(body: bytes) -> None:
        if int(body) >= 1000 and not stuck.is_set():
            stuck.set()
            await go.wait()
        order.append(int(body))

    @free.handler("orders", group="g")
    async def quick(body: bytes) -> None:
        order.append(int(body))

    runs = [asyncio.ensure_future(slow.run())]
    try:
        await stuck.wait()
        runs.append(asyncio.ensure_future(free.run()))
        # Of a key that is worked on the later ones wait.
        behind = len([n for n in range(count) if keys and n % keys == 0]) + 1
        await until(lambda: len(order) >= count - behind)
        go.set()
        await until(lambda: len(order) == count)
    finally:
        go.set()
        for client in (slow, free):
            client.stop()
        await asyncio.gather(*runs)
    assert sorted(order) == list(range(count))
    for key in range(keys):
        of_key = [n for n in order if n % keys == key]
        assert of_key == sorted(of_key)


async def test_who_iterates_slowly_holds_one(real: InProcessBroker) -> None:
    await filled(real.url, 10)
    async with ternmq.connect(real.url) as client:
        async with client.consume("orders", group="g") as slow:
            first = await anext(slow)
            rest = [await client.pull("orders", group="g", max_messages=1) for _ in range(9)]
            assert sum(map(len, rest)) == 9
            await first.ack()
        for batch in rest:
            await batch.ack()


def _take(url: str, taken: list[int], stuck: threading.Event, go: threading.Event) -> None:
    with ternmq.sync.connect(url) as client, client.consume("orders", group="g") as deliveries:
        for delivery in deliveries:
            if int(delivery.body) >= 1000 and not stuck.is_set():
                stuck.set()
                go.wait(60)
            taken.append(int(delivery.body))
            delivery.ack()
            if go.is_set():
                return


async def test_what_its_key_lets_go_waits_no_longer_than_others(real: InProcessBroker) -> None:
    """It stood behind another of its key when the consumer looked for what waits."""
    await filled(real.url, 300, keys=1)
    async with (
        ternmq.connect(real.url) as slow,
        ternmq.connect(real.url) as free,
        slow.consume("orders", group="g") as deliveries,
    ):
        for _ in range(200):
            delivery = await anext(deliveries)
            await delivery.ack()
        held = await anext(deliveries)
        await until(lambda: engine_of(deliveries)._looking is None)
        assert sum(map(len, engine_of(deliveries)._lines.values())) > 0
        await held.ack()
        (next_one,) = await free.pull("orders", group="g", max_messages=1, wait=30)
        assert next_one.body == b"201"


async def test_a_thread_that_became_slow_gives_back_what_it_has_not_begun(
    real: InProcessBroker,
) -> None:
    await filled(real.url, 2000)
    taken: list[int] = []
    stuck, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=_take, args=(real.url, taken, stuck, go))
    thread.start()
    others: list[int] = []
    try:
        await until(stuck.is_set)
        async with ternmq.connect(real.url) as client:
            while len(taken) + len(others) < 1999:
                batch = await client.pull("orders", group="g", wait=30)
                others += map(int, batch.bodies)
                await batch.ack()
    finally:
        go.set()
        await asyncio.to_thread(thread.join, 60)
    assert sorted(taken + others) == list(range(2000))


async def test_what_is_asked_for_by_number_stays(real: InProcessBroker) -> None:
    """With ``max_in_flight`` nothing is given back before it is settled or left."""
    await filled(real.url, 50)
    async with (
        ternmq.connect(real.url) as client,
        client.consume("orders", group="g", max_in_flight=50) as deliveries,
    ):
        await anext(deliveries)
        assert engine_of(deliveries)._prefetch is None
        assert engine_of(deliveries)._looking is None
        assert (await client.admin.group("orders", "g")).queues[0].leased == 50
