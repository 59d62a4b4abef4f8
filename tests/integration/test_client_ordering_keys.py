"""Ordering keys where no order is kept: a topic made by a send, and topics that are not ordered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import until
from tests.integration.client_shapes import API

QUEUES = [1, 4]


@pytest.fixture(params=QUEUES, ids=["one-queue", "four-queues"])
def making(request: pytest.FixtureRequest) -> Any:
    with broker(settings={"topic_queues": request.param}) as one:
        yield one


async def kind(client: Any, topic: str) -> bool:
    info = await client.admin.topic(topic)
    assert isinstance(info.spec.ordered, bool)
    return info.spec.ordered


async def bodies_of(client: Any, topic: str) -> list[bytes]:
    queues = len((await client.admin.topic(topic)).queues)
    return [one.body for queue in range(queues) async for one in client.read(topic, queue=queue)]


async def test_a_topic_made_by_a_keyed_send_is_ordered(api: API, making: InProcessBroker) -> None:
    async with api.connect(making.url) as client:
        queue = (await client.send("one", b"1", ordering_key="a")).queue
        assert await kind(client, "one")
        assert (await client.send("one", b"2", ordering_key="a")).queue == queue
        with pytest.raises(ternmq.OrderingKeyRequired):
            await client.send("one", b"3")

        soon = [client.send_soon("soon", b"%d" % n, ordering_key="abc"[n % 3]) for n in range(30)]
        await client.flush()
        assert all(one.result().durable for one in soon)
        assert await kind(client, "soon")

        many = [ternmq.Message(b"%d" % n, ordering_key="abcdef"[n % 6]) for n in range(3000)]
        receipts = await client.send_many("many", many)
        assert len(receipts) == 3000
        assert await kind(client, "many")
        by_key: dict[str, list[tuple[int, int]]] = {}
        for message, receipt in zip(many, receipts, strict=True):
            by_key.setdefault(message.ordering_key, []).append((receipt.queue, receipt.offset))
        for places in by_key.values():
            assert places == sorted(places)
            assert len({queue for queue, _ in places}) == 1
        if not api.blocking:
            assert client.stats().batches < 100  # one goes ahead alone, the others together

        client.send_oneway("away", b"1", ordering_key="a")
        client.send_oneway("away", b"2", ordering_key="b")
        await client.send("away", b"3", ordering_key="a")
        assert await kind(client, "away")
        assert sorted(await bodies_of(client, "away")) == [b"1", b"2", b"3"]

        batches = await client.prepare("prepared", many[:12], writer="w", batch_id=1)
        assert await kind(client, "prepared")
        assert (await client.commit_prepared("w", 1, batches, digest=1)).rows == 12


async def test_the_first_message_decides_what_a_topic_made_by_it_is(
    api: API, making: InProcessBroker
) -> None:
    async with api.connect(making.url) as client:
        told = await client.send_many(
            "keyed",
            [ternmq.Message(b"1", ordering_key="a"), b"2", ternmq.Message(b"3", ordering_key="b")],
            return_errors=True,
        )
        assert await kind(client, "keyed")
        assert [type(one) for one in told] == [
            ternmq.Receipt, ternmq.OrderingKeyRequired, ternmq.Receipt,
        ]  # fmt: skip
        told = await client.send_many(
            "plain",
            [b"1", ternmq.Message(b"2", ordering_key="a"), b"3"],
            return_errors=True,
        )
        assert not await kind(client, "plain")
        assert [type(one) for one in told] == [
            ternmq.Receipt, ternmq.TopicNotOrdered, ternmq.Receipt,
        ]  # fmt: skip
        with pytest.raises(ternmq.InvalidRequest, match="leave out queue="):
            await client.send("nowhere", b"x", ordering_key="a", queue=0)
        assert {one.spec.name for one in await client.admin.topics()} == {"keyed", "plain"}


async def test_a_plain_topic_refuses_ordering_keys(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("plain", queues=2)
        # The first before anything is known of the topic.
        for _ in range(2):
            with pytest.raises(ternmq.TopicNotOrdered, match=r"not ordered.*--ordered"):
                await client.send("plain", b"x", ordering_key="k")
        with pytest.raises(ternmq.TopicNotOrdered):
            await client.send("plain", b"x", ordering_key="k", queue=1)
        with pytest.raises(ternmq.TopicNotOrdered):
            await client.prepare(
                "plain", [ternmq.Message(b"x", ordering_key="k")], writer="w", batch_id=1
            )
        with pytest.raises(ternmq.PartialSendError) as told:
            await client.send_many("plain", [b"a", ternmq.Message(b"b", ordering_key="k"), b"c"])
        assert [one.row for one in told.value.failures] == [1]
        assert isinstance(told.value.failures[0].error, ternmq.TopicNotOrdered)
        assert sorted(await bodies_of(client, "plain")) == [b"a", b"c"]


async def test_a_topic_may_be_set_to_ignore_ordering_keys(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("plain")
        with pytest.raises(ternmq.TopicNotOrdered):
            await client.send("plain", b"x", ordering_key="k")
        spec = await client.admin.change_topic("plain", ignore_ordering_keys=True)
        assert spec.ignore_ordering_keys
        receipt = await client.send("plain", b"y", ordering_key="k")
        found = [one.ordering_key async for one in client.read("plain")]
        assert (receipt.offset, found) == (0, ["k"])
        items = [ternmq.Message(b"z", ordering_key="k"), b"bare"]
        assert len(await client.send_many("plain", items)) == 2
        await client.admin.change_topic("plain", ignore_ordering_keys=False)
        with pytest.raises(ternmq.TopicNotOrdered):
            await client.send("plain", b"x", ordering_key="k")
        await client.admin.create_topic("taking", ignore_ordering_keys=True)
        await client.send("taking", b"y", ordering_key="k")
        assert [one.spec.ignore_ordering_keys for one in await client.admin.topics()] == [
            False, True,
        ]  # fmt: skip


async def test_what_stands_behind_a_message_that_is_worked_on_is_not_given_back(
    real: InProcessBroker,
) -> None:
    """As the page says: nobody may have it before."""
    async with ternmq.connect(real.url) as sender:
        await sender.admin.create_topic("t", ordered=True, queues=1)
        items = [ternmq.Message(n, ordering_key="k") for n in range(5)]
        await sender.send_many("t", items)
        client, go = ternmq.connect(real.url), asyncio.Event()

        @client.handler("t", group="g")
        async def handle(n: int) -> None:
            await go.wait()

        running = asyncio.ensure_future(client.run())
        await until(lambda: client.serving.handlers and client.serving.handlers[0].running)
        consumer = client.serving.handlers[0]._consumer
        assert consumer is not None
        assert consumer._prefetch is not None
        waiting = [one for line in consumer._lines.values() for one in line]
        assert len(waiting) == 4
        consumer._look(consumer._prefetch, waiting[-1])
        assert not any(one.settled for one in waiting)
        go.set()
        client.stop()
        await running
