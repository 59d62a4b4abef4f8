"""A group's mode is changed while it is consumed; clients are switched off, and have limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true
from tests.integration.client_shapes import API


async def test_the_consumers_that_run_change_with_the_mode(
    api: API, timed: InProcessBroker
) -> None:
    """A handler works on messages side by side, then one after another, then side by side again."""
    async with api.connect(timed.url) as client, ternmq.connect(timed.url) as worker:
        await client.admin.create_topic("t")
        at_work: list[int] = []
        most: list[int] = []
        done: list[int] = []
        go_on = asyncio.Event()

        @worker.handler("t", group="g", concurrency=4)
        async def work(value: int) -> None:
            at_work.append(value)
            most.append(len(at_work))
            await go_on.wait()
            at_work.remove(value)
            done.append(value)

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.run(signals=False))
            for number in range(4):
                await client.send("t", number)
            await until(lambda: len(at_work) == 4)
            spec = await client.admin.change_group("t", "g", mode="queue_lock")
            assert spec.mode is ternmq.Mode.QUEUE_LOCK
            most.clear()
            go_on.set()
            for number in range(4, 12):
                await client.send("t", number)
            await until(lambda: len(done) == 12)
            assert done[4:] == list(range(4, 12))
            assert set(most) == {1}
            go_on.clear()
            await client.admin.change_group("t", "g", mode=ternmq.Mode.SHARED)
            for number in range(12, 16):
                await client.send("t", number)
            await until(lambda: len(at_work) == 4)
            go_on.set()
            await until(lambda: len(done) == 16)
            running.cancel()
        assert sorted(done) == list(range(16))


async def test_a_group_becomes_ordered_when_it_is_owed_nothing(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("o", ordered=True)
        await client.admin.create_group("o", "g", mode="shared")
        for number in range(4):
            await client.send("o", number, ordering_key="k")
        batch = await client.pull("o", group="g", max_messages=1)
        with pytest.raises(ternmq.GroupBusy, match="is owed 1 message of topic 'o'"):
            await client.admin.change_group("o", "g", mode="ordered")
        await batch.ack()
        await client.admin.change_group("o", "g", mode="ordered")
        first = await client.pull("o", group="g", max_messages=1)
        assert [one.value for one in first] == [1]
        assert not await client.pull("o", group="g", wait=0)
        await client.admin.change_group("o", "g", mode="shared")
        rest = await client.pull("o", group="g")
        assert [one.value for one in rest] == [2, 3]
        await rest.ack()
        await first.ack()  # its lease is from before the change


async def test_what_a_mode_does_not_allow_is_refused(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g", tags="a")
        change = client.admin.change_group
        with pytest.raises(ternmq.ModeNotAllowed):
            await change("t", "g", mode="ordered", tags="")
        with pytest.raises(ternmq.InvalidRequest, match="takes no tag filter"):
            await change("t", "g", mode="queue_lock")
        await change("t", "g", mode="queue_lock", tags="")
        with pytest.raises(ternmq.InvalidRequest, match="switch_off needs at least one client"):
            await client.admin.switch_off("t", "g")
        with pytest.raises(ternmq.InvalidRequest, match="mode"):
            await change("t", "g", mode="locked")
        with pytest.raises(ternmq.InvalidRequest, match="offline is a list of clients"):
            await change("t", "g", offline="abc")
        with pytest.raises(ternmq.InvalidRequest, match="not the name of a client: 'a b'"):
            await change("t", "g", offline=["a b"])
        with pytest.raises(ternmq.InvalidRequest, match="concurrency must be 0"):
            await change("t", "g", concurrency=-1)


async def test_a_client_that_is_switched_off_gets_nothing_until_it_is_on_again(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client, ternmq.connect(timed.url) as other:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        for number in range(4):
            await client.send("t", number)
        held = await client.pull("t", group="g", max_messages=1)
        found = await client.admin.clients()
        (name,) = [one.client for one in found if one.consumes]
        (consumed,) = [of for one in found for of in one.consumes]
        assert (consumed.topic, consumed.group, consumed.offline) == ("t", "g", False)
        spec = await client.admin.switch_off("t", "g", name)
        assert spec.offline == (name,)
        assert not await client.pull("t", group="g", wait=0)
        assert [of.offline for one in await client.admin.clients() for of in one.consumes] == [True]
        batch = await other.pull("t", group="g", max_messages=1)
        assert [one.value for one in batch] == [1]
        await held.ack()
        waiting = asyncio.ensure_future(client.pull("t", group="g", wait=3600))
        with pytest.raises(ternmq.InvalidRequest, match=f"is not switched off.*{name}"):
            await other.admin.switch_on("t", "g", "nobody")
        await other.admin.switch_on("t", "g", name)
        assert [one.value for one in await asyncio.wait_for(waiting, 20)] == [2, 3]
        await other.admin.switch_off("t", "g", "*/*", "a*")
        assert (await other.admin.switch_on("t", "g")).offline == ()


async def test_a_client_has_at_most_the_concurrency_of_the_group(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client, ternmq.connect(timed.url) as other:
        await client.admin.create_topic("t", queues=2)
        await client.admin.create_group("t", "g")
        await client.admin.change_group("t", "g", concurrency=3)
        for number in range(10):
            await client.send("t", number, queue=number % 2)
        held: list[Any] = [await client.pull("t", group="g", max_messages=2) for _ in range(2)]
        assert [len(one) for one in held] == [2, 1]
        assert not await client.pull("t", group="g", wait=0)
        assert len(await other.pull("t", group="g")) == 3
        await held[0].ack()
        assert len(await client.pull("t", group="g")) == 2


async def test_consumers_become_members_when_queues_get_owners(
    api: API, timed: InProcessBroker
) -> None:
    """Without a restart: each gets queues, later one of them all, and at last nobody owns any."""
    async with (
        api.connect(timed.url) as client,
        ternmq.connect(timed.url) as one,
        ternmq.connect(timed.url) as other,
    ):
        await client.admin.create_topic("t", queues=4)
        await client.admin.create_group("t", "g")
        got: list[tuple[str, int]] = []

        async def work(worker: ternmq.Client, name: str) -> None:
            async with worker.consume("t", group="g") as consumer:
                async for delivery in consumer:
                    got.append((name, delivery.queue))
                    await delivery.ack()

        async def a_round() -> dict[str, set[int]]:
            """Return who got messages of which queues, of one in each queue."""
            got.clear()
            for queue in range(4):
                await client.send("t", queue, queue=queue)
            await until(lambda: len(got) == 4)
            return {name: {queue for by, queue in got if by == name} for name in ("one", "other")}

        async def owners() -> list[str]:
            (group,) = await client.admin.groups("t")
            return [queue.owner for queue in group.queues]

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            working = [
                tasks.create_task(work(one, "one")), tasks.create_task(work(other, "other"))
            ]  # fmt: skip
            await a_round()
            await client.admin.change_group("t", "g", mode="owned")
            while sorted(Counter(await owners()).values()) != [2, 2] or "" in await owners():
                timed.clock.advance(seconds=1)
            assert sorted(len(queues) for queues in (await a_round()).values()) == [2, 2]
            await client.admin.change_group("t", "g", mode="exclusive")
            assert sorted(len(queues) for queues in (await a_round()).values()) == [0, 4]
            await client.admin.change_group("t", "g", mode="shared")
            assert sum(len(queues) for queues in (await a_round()).values()) == 4
            assert set(await owners()) == {""}
            for task in working:
                task.cancel()


async def test_a_client_stays_a_member_until_its_last_consumer_ends(
    api: API, timed: InProcessBroker
) -> None:
    """Also if its consumers began before the queues had owners."""
    async with api.connect(timed.url) as client, ternmq.connect(timed.url, instance="blue") as one:
        await client.admin.create_topic("t", queues=2)
        await client.admin.create_group("t", "g")
        got: list[str] = []

        async def owners() -> set[str]:
            """Ask over the connection that joins and leaves."""
            (group,) = await one.admin.groups("t")
            return {queue.owner.partition("/")[0] for queue in group.queues}

        async def owned_by(names: set[str]) -> bool:
            return await owners() == names

        async def work() -> None:
            async with one.consume("t", group="g") as consumer:
                async for delivery in consumer:
                    got.append(delivery.id)
                    await delivery.ack()

        async def a_message() -> None:
            got.clear()
            await client.send("t", b"x")
            await until(lambda: len(got) == 1)

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            first, second = tasks.create_task(work()), tasks.create_task(work())
            await a_message()
            await client.admin.change_group("t", "g", mode="owned")
            await until_true(lambda: owned_by({"blue"}))
            with pytest.raises(ternmq.InvalidRequest, match="end it first"):
                await one.leave("t", group="g")
            second.cancel()
            await asyncio.wait([second])
            assert await owners() == {"blue"}
            await a_message()
            await client.admin.change_group("t", "g", assign={"green": [0, 1]})
            assert await owners() == {""}
            spec = await client.admin.change_group("t", "g", mode="shared")
            assert spec.assign == ()
            await a_message()
            await one.leave("t", group="g")  # no effect in this mode
            await client.admin.change_group("t", "g", mode="exclusive")
            await until_true(lambda: owned_by({"blue"}))
            first.cancel()
        await until_true(lambda: owned_by({""}))
