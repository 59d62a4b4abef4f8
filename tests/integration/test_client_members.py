"""Members of groups: what a client does that is cut off, refused, or switched to another mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true
from tests.integration.client_shapes import API
from tests.integration.proxy import Proxy


async def prepare(client: Any, mode: str = "owned", queues: int = 2) -> None:
    await client.admin.create_topic("t", queues=queues)
    await client.admin.create_group("t", "g", mode=mode)


async def test_a_pull_without_a_wait_joins_a_group_that_has_become_owned(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await prepare(client, "shared")
        assert not await client.pull("t", group="g", wait=0)
        await client.admin.change_group("t", "g", mode="owned")
        await client.send("t", 1)
        batch = await client.pull("t", group="g", wait=0)
        assert [one.value for one in batch] == [1]


@pytest.mark.parametrize("stated", ["shared", "queue_lock", "exclusive"])
async def test_a_consumer_that_states_a_mode_goes_on_when_the_group_becomes_owned(
    api: API, timed: InProcessBroker, stated: str
) -> None:
    async with api.connect(timed.url) as client, ternmq.connect(timed.url) as other:
        await prepare(other, stated)
        async with client.consume("t", group="g", mode=stated) as deliveries:
            await other.send("t", 1)
            await (await anext(deliveries)).ack()
            await other.admin.change_group("t", "g", mode="owned")
            await other.send("t", 2)
            delivery = await asyncio.wait_for(anext(deliveries), 10)
            assert delivery.value == 2
            await delivery.ack()
            await asyncio.to_thread(timed.restart)
            await other.send("t", 3)
            delivery = await asyncio.wait_for(anext(deliveries), 10)
            assert delivery.value == 3
            await delivery.ack()


async def test_a_consumer_that_ends_while_it_is_cut_off_leaves_its_group(
    timed: InProcessBroker,
) -> None:
    async with (
        Proxy(timed.port) as proxy,
        ternmq.connect(proxy.url) as one,
        ternmq.connect(timed.url) as two,
    ):
        await prepare(two, "exclusive")
        async with one.consume("t", group="g"):
            proxy.refuse(on=True)
            proxy.cut()
            await until(lambda: one._session.link is None)
        proxy.refuse(on=False)
        await one.send("t", 1)  # its session goes on
        batch = await two.pull("t", group="g", wait=5)
        assert [one.value for one in batch] == [1]


@pytest.mark.parametrize("cut_first", [False, True])
async def test_a_client_does_not_make_a_deleted_topic_again_when_it_comes_back(
    timed: InProcessBroker, cut_first: bool
) -> None:
    async with (
        Proxy(timed.port) as proxy,
        ternmq.connect(proxy.url) as one,
        ternmq.connect(timed.url) as two,
    ):
        await prepare(two)
        assert not await one.pull("t", group="g", wait=0)
        proxy.refuse(on=cut_first)
        if cut_first:
            proxy.cut()
            await until(lambda: one._session.link is None)
        await two.admin.delete_topic("t")
        proxy.refuse(on=False)
        await one.admin.topics()
        opened = one.stats().connections_opened
        proxy.cut()
        await until(lambda: one.stats().connections_opened > opened)
        await one.admin.topics()
        assert await two.admin.topics() == []


async def test_each_pull_of_an_instance_has_the_tags_that_it_states(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        for tags in ("tea", "coffee", "tea"):
            assert not await client.pull("t", broadcast=True, tags=tags, wait=0)
            await client.send("t", "tea", tag="tea")
            await client.send("t", "coffee", tag="coffee")
            batch = await client.pull("t", broadcast=True, tags=tags, wait=0)
            assert [one.value for one in batch] == [tags]
            await batch.ack()


async def test_consumers_of_one_instance_that_state_other_tags_are_refused(
    api: API, timed: InProcessBroker
) -> None:
    """They would share the messages of one instance, and one would get what the other wants."""
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        async with client.consume("t", broadcast=True, tags="tea") as deliveries:
            with pytest.raises(ternmq.GroupSettingsMismatch, match="instance="):
                await client.pull("t", broadcast=True, tags="coffee", wait=0)
            assert not await client.pull("t", broadcast=True, instance="b", tags="coffee", wait=0)
            assert not await client.pull("t", broadcast=True, wait=0)
            await client.send("t", "tea", tag="tea")
            assert (await anext(deliveries)).value == "tea"


async def test_an_instance_that_another_client_was_meanwhile_goes_on(
    timed: InProcessBroker,
) -> None:
    async with (
        Proxy(timed.port) as proxy,
        ternmq.connect(proxy.url, instance="a") as one,
        ternmq.connect(timed.url) as sender,
    ):
        await sender.admin.create_topic("t")
        assert not await one.pull("t", broadcast=True, wait=0)
        async with one.consume("t", broadcast=True) as deliveries:
            for number in range(2):
                proxy.refuse(on=True)
                proxy.cut()
                await until(lambda: one._session.link is None)
                async with ternmq.connect(timed.url, instance="a") as other:
                    await sender.send("t", f"other {number}")
                    batch = await other.pull("t", broadcast=True, wait=5)
                    assert [each.value for each in batch] == [f"other {number}"]
                    await batch.ack()
                proxy.refuse(on=False)
                await sender.send("t", number)
                if number:
                    deliveries.stop()
                    batch = await one.pull("t", broadcast=True, wait=5)
                    assert [each.value for each in batch] == [number]
                else:
                    delivery = await asyncio.wait_for(anext(deliveries), 10)
                    assert delivery.value == number
                    await delivery.ack()


async def test_an_instance_without_a_name_begins_when_its_client_is_back(
    timed: InProcessBroker,
) -> None:
    """Also if its consumer is busy, and pulls nothing yet."""
    async with (
        Proxy(timed.port) as proxy,
        ternmq.connect(proxy.url) as one,
        ternmq.connect(timed.url) as sender,
    ):
        await sender.admin.create_topic("t")
        async with one.consume("t", broadcast=True, max_in_flight=1) as deliveries:
            await sender.send("t", "first")
            delivery = await anext(deliveries)
            proxy.refuse(on=True)
            proxy.cut()
            await until(lambda: one._session.link is None)
            timed.clock.advance(seconds=60)  # the grace of its session, and its lease
            await until_true(lambda: no_instance(sender))
            proxy.refuse(on=False)
            await one.admin.topics()
            await until_true(lambda: an_instance(sender))
            await sender.send("t", "second")
            assert delivery.value == "first"
            assert (await asyncio.wait_for(anext(deliveries), 10)).value == "second"


async def no_instance(client: ternmq.Client) -> bool:
    return (await client.admin.topic("t")).instances == 0


async def an_instance(client: ternmq.Client) -> bool:
    return (await client.admin.topic("t")).instances == 1
