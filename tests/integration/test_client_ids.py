"""Numbers of a topic through both clients, against a real broker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.model.errors import (
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    InvalidName,
    InvalidRequest,
    UnknownTopic,
    WrongEventLoop,
)
from ternmq.reliable import Ids, IdsStats
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API
from tests.integration.proxy import Proxy

RESERVE = 1 << 62
PATIENT = 20.0
"""Seconds: no test that is not about it falls back, however slow the machine is."""


class Numbers:
    """``Ids`` of either client, as the asynchronous one."""

    def __init__(self, client: Any, topic: Any = "orders", patience: float = PATIENT) -> None:
        self.blocking = hasattr(client, "_target")
        self.ids: Any = Ids(client._target if self.blocking else client, topic, patience=patience)

    async def _call(self, call: Any) -> Any:
        return await (asyncio.to_thread(call) if self.blocking else call())

    async def next(self) -> int:
        number = await self._call(self.ids.next)
        assert isinstance(number, int)
        return number

    async def start(self) -> None:
        await self._call(self.ids.start)

    def stats(self) -> IdsStats:
        found = self.ids.stats()
        assert isinstance(found, IdsStats)
        return found

    async def many(self, count: int) -> list[int]:
        if self.blocking:
            return await asyncio.to_thread(lambda: [self.ids.next() for _ in range(count)])
        return [await self.ids.next() for _ in range(count)]


def away(proxy: Proxy) -> None:
    """Let the broker be away: connections end, and no other one is made."""
    proxy.refuse(on=True)
    proxy.cut()


async def test_numbers_increase_and_blocks_grow(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        numbers = Numbers(client)
        found = await numbers.many(20_000)
        assert found[0] == 1
        assert found == sorted(set(found))
        assert found[-1] < RESERVE
        stats = numbers.stats()
        assert (stats.taken, stats.fallbacks, stats.away) == (20_000, 0, False)
        assert stats.blocks < 60


async def test_two_clients_and_two_objects_share_no_number(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as one, api.connect(real.url) as other:
        await one.admin.create_topic("orders")
        all_of_them = [Numbers(one), Numbers(one), Numbers(other)]
        found = [number for numbers in all_of_them for number in await numbers.many(300)]
        assert len(set(found)) == 900


async def test_each_topic_has_its_own_numbers(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        for name in ("a", "b"):
            await client.admin.create_topic(name)
        assert [await Numbers(client, name).next() for name in ("a", "b")] == [1, 1]
        await client.admin.delete_topic("a")
        await client.admin.create_topic("a")
        assert await Numbers(client, "a").next() > 100


async def test_a_declared_topic_is_created_and_another_is_unknown(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        topic = ternmq.Topic("invoices", queues=2)
        client.declare(topic)
        assert await Numbers(client, topic).next() == 1
        (info,) = await client.admin.topics(["invoices"])
        assert info.spec.queues == 2
        missing = Numbers(client, "missing")
        for _ in range(2):
            with pytest.raises(UnknownTopic):
                await missing.next()
        await client.admin.create_topic("missing")
        assert await missing.next() == 1
        with pytest.raises(UnknownTopic):
            await Numbers(client, "nowhere").start()


async def test_wrong_arguments(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        with pytest.raises(InvalidName):
            Numbers(client, "no topic")
        for patience in (-1.0, "1s", float("nan")):
            with pytest.raises(InvalidRequest):
                Numbers(client, patience=patience)  # type: ignore[arg-type]


async def test_a_process_that_never_reached_a_broker_has_no_numbers(api: API) -> None:
    client = api.connect("ternmq://127.0.0.1:1", timeout=30.0)
    numbers = Numbers(client, patience=0.05)
    for _ in range(2):
        with pytest.raises(CannotConnect, match=r"within 0\.05 s"):
            await numbers.next()
    assert numbers.stats().taken == 0
    await client.close()


async def test_start_waits_for_the_first_block_and_the_reserve(
    api: API, real: InProcessBroker
) -> None:
    async with Proxy(real.port) as proxy, api.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        numbers = Numbers(client, patience=0.05)
        await numbers.start()
        assert numbers.stats() == IdsStats(0, 0, 0, 0, away=False)
        away(proxy)
        found = await numbers.many(150)
        assert found == sorted(set(found))
        assert found[-1] >= RESERVE
        assert numbers.stats().fallbacks >= 50
        assert numbers.stats().away


async def test_while_no_answer_comes_numbers_come_from_the_reserve_and_then_from_blocks_again(
    api: API, real: InProcessBroker
) -> None:
    async with Proxy(real.port) as proxy, api.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        numbers = Numbers(client, patience=0.05)
        await numbers.start()
        seen = await numbers.many(10)
        away(proxy)
        while not numbers.stats().away:
            seen.append(await numbers.next())
        seen += await numbers.many(5)
        assert seen[-5] >= RESERVE
        proxy.refuse(on=False)
        async with asyncio.timeout(30):
            while numbers.stats().away:
                seen.append(await numbers.next())
                await asyncio.sleep(0.01)
        seen.append(await numbers.next())
        assert len(set(seen)) == len(seen)
        fallbacks = [number for number in seen if number >= RESERVE]
        assert numbers.stats().fallbacks == len(fallbacks)
        assert fallbacks == sorted(fallbacks)


async def test_the_reserve_belongs_to_the_client_and_is_asked_for_once(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        for name in ("a", "b"):
            await client.admin.create_topic(name)
        for name in ("a", "b"):
            await Numbers(client, name).start()
    async with api.connect(real.url) as client:
        await Numbers(client, "a").start()
    assert real._core().broker.views.numbers.next_reserve == 2


async def test_a_closed_client_gives_no_numbers(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        numbers = Numbers(client)
        await numbers.next()
    with pytest.raises(ClientClosed):
        await numbers.many(1_000)


async def test_an_asyncio_client_is_used_in_its_loop(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        ids = Ids(client, "orders")

        def elsewhere() -> None:
            with pytest.raises(WrongEventLoop):
                asyncio.run(ids.next())

        await asyncio.to_thread(elsewhere)
        assert await ids.next() == 1


async def test_a_request_that_is_not_answered_in_the_clients_time_is_lost(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
    async with Proxy(real.port) as proxy, api.connect(proxy.url, timeout=0.3) as client:
        proxy.mute = True
        with pytest.raises(ConnectionLost):  # it reached the broker, and has no reserve
            await Numbers(client, patience=0.05).next()
        proxy.mute = False


def test_threads_share_numbers_that_increase_in_each(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders")
        ids = Ids(client, "orders", patience=PATIENT)
        found: list[list[int]] = [[] for _ in range(6)]
        together = threading.Barrier(6)

        def take(into: list[int]) -> None:
            together.wait()
            into += [ids.next() for _ in range(5_000)]

        threads = [threading.Thread(target=take, args=(into,)) for into in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(into == sorted(into) for into in found)
        assert len({number for into in found for number in into}) == 30_000
        assert ids.stats().taken == 30_000
        assert max(map(max, found)) < RESERVE


async def test_many_tasks_wait_for_one_block(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        ids = Ids(client, "orders", patience=PATIENT)
        found = await asyncio.gather(*[ids.next() for _ in range(3_000)])
        assert len(set(found)) == 3_000
        assert max(found) < RESERVE


async def test_a_caller_that_never_waits_lets_the_loop_hear_the_broker(
    real: InProcessBroker,
) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        ids = Ids(client, "orders", patience=0.05)
        await ids.start()
        away(proxy)
        while not ids.stats().away:
            await ids.next()
        proxy.refuse(on=False)
        async with asyncio.timeout(30):
            while ids.stats().away:  # nothing else waits here
                await ids.next()
