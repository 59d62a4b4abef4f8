"""Groups of mode owned and exclusive: clients join, leave, come back, and hear their queues."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.client_shapes import API


async def prepare(client: Any, queues: int = 5, rows: int = 2, **group: Any) -> None:
    await client.admin.create_topic("t", queues=queues)
    await client.admin.create_group("t", "g", **({"mode": "owned"} | group))
    for number in range(queues * rows):
        await client.send("t", number // queues, queue=number % queues)


def owned(told: Iterable[ternmq.AssignedQueues]) -> tuple[int, ...] | None:
    """Return the queues that a client was told last; None: nothing."""
    last = None
    for one in told:
        assert (one.topic, one.group) == ("t", "g")
        last = one.queues
    return last


async def taken(client: Any, wait: float = 0) -> set[int]:
    """Pull until nothing comes; return the queues."""
    found = set()
    while batch := await client.pull("t", group="g", wait=wait):
        assert [one.value for one in batch] == sorted(one.value for one in batch)
        found.add(batch[0].queue)
        await batch.ack()
    return found


async def test_queues_are_shared_among_members_who_come_and_leave(
    api: API, timed: InProcessBroker
) -> None:
    told: defaultdict[str, list[ternmq.AssignedQueues]] = defaultdict(list)
    async with (
        api.connect(timed.url) as one,
        api.connect(timed.url) as two,
        api.connect(timed.url) as three,
    ):
        for name, client in (("one", one), ("two", two), ("three", three)):
            done = client.on_assigned(told[name].append)
            if inspect.isawaitable(done):
                await done
        await prepare(one)
        assert (await one.admin.group("t", "g")).members == []  # who makes a group is no member
        assert await taken(one) == {0, 1, 2, 3, 4}
        assert not await two.pull("t", group="g", wait=0)
        timed.clock.advance(seconds=1)
        await until(lambda: owned(told["two"]) == (3, 4))
        await until(lambda: owned(told["one"]) == (0, 1, 2))
        assert not await three.pull("t", group="g", wait=0)
        timed.clock.advance(seconds=1)
        await until(lambda: owned(told["three"]) == (2,))
        for number in range(5):
            await one.send("t", number, queue=number)
        assert await taken(three) == {2}
        assert await taken(two) == {3, 4}
        assert await taken(one) == {0, 1}
        info = await one.admin.group("t", "g")
        assert len(info.members) == 3
        assert len({queue.owner for queue in info.queues}) == 3
        assert info.queues[0].owner == info.queues[1].owner != info.queues[2].owner
        await two.leave("t", group="g")
        await until(lambda: len(owned(told["one"]) or ()) + len(owned(told["three"]) or ()) == 5)


async def test_a_consumer_that_ends_leaves_its_group(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as one, api.connect(timed.url) as two:
        await prepare(one, 2, mode="exclusive")
        async with one.consume("t", group="g") as deliveries:
            delivery = await anext(deliveries)
            assert not await two.pull("t", group="g", wait=0)
            assert len((await two.admin.group("t", "g")).members) == 2
            await delivery.ack()
        assert await taken(two, wait=0) == {0, 1}
        assert len((await two.admin.group("t", "g")).members) == 1


async def test_a_consumer_goes_on_after_a_restart_of_the_broker(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as one, api.connect(timed.url) as two:
        await prepare(one, 2)
        seen = []
        async with one.consume("t", group="g") as deliveries:
            async for delivery in deliveries:
                seen.append((delivery.queue, delivery.value))
                await delivery.ack()
                if len(seen) == 2:
                    await asyncio.to_thread(timed.restart)
                if len(seen) == 4:
                    break
        assert sorted(seen) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        await two.send("t", 9, queue=1)
        assert await taken(two, wait=5) == {1}


async def test_configured_queues_wait_for_their_member(
    api: API, timed: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERNMQ_INSTANCE", "green")
    async with api.connect(timed.url) as one, api.connect(timed.url, instance="blue-7") as two:
        await prepare(one, 3, assign={"blue-*": [0, 1], "green": [2]})
        assert await taken(one) == {2}
        assert not await two.pull("t", group="g", wait=0)
        timed.clock.advance(seconds=1)
        assert await taken(two) == {0, 1}
        queues = (await one.admin.group("t", "g")).queues
        assert [queue.owner.split("/")[0] for queue in queues] == ["blue-7", "blue-7", "green"]
        spec = await one.admin.change_group("t", "g", assign={})
        assert spec.assign == ()


async def test_what_an_owned_group_cannot_be(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t", queues=2)
        await client.admin.create_group("t", "g")
        with pytest.raises(ternmq.GroupSettingsMismatch, match="mode 'shared', not 'exclusive'"):
            await client.pull("t", group="g", mode="exclusive", wait=0)
        assert (await client.admin.group("t", "g")).spec.mode is ternmq.Mode.SHARED
        with pytest.raises(ternmq.InvalidRequest, match="tag filter"):
            await client.pull("t", group="h", mode="owned", tags="a", wait=0)
        with pytest.raises(ternmq.InvalidRequest, match="no queue 2"):
            await client.admin.create_group("t", "h", mode="owned", assign={"*": [2]})
        with pytest.raises(ternmq.InvalidRequest, match="mode owned"):
            await client.admin.create_group("t", "h", mode="exclusive", assign={"*": [1]})
        assert [one.group for one in await client.admin.groups("t")] == ["g"]
        with pytest.raises(ternmq.UnknownGroup):
            await client.leave("t", group="h")
        async with client.consume("t", group="o", mode="owned"):
            with pytest.raises(ternmq.InvalidRequest, match="end it first"):
                await client.leave("t", group="o")
