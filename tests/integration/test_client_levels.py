"""Topics with levels: priority in every way to send, what comes first, what is refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.model.errors import InvalidBatch
from ternmq.model.specs import TopicSpec
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.testing import InProcessBroker, broker
from ternmq.wire.commands import Command
from ternmq.wire.control import TopicChange
from tests.integration.client_shapes import API


async def pulled(client: Any, topic: str, most: int = 1000, group: str = "g") -> list[Any]:
    """Pull one message at a time and settle it; return at most so many deliveries."""
    found: list[Any] = []
    while len(found) < most:
        deliveries = await client.pull(topic, group=group, max_messages=1, wait=0)
        if not deliveries:
            break
        for delivery in deliveries:
            found.append(delivery)
            await delivery.ack()
    return found


async def make(client: Any, levels: int = 3, **settings: Any) -> None:
    await client.admin.create_topic("t", levels=levels, **settings)
    await client.pull("t", group="g", wait=0)


async def test_every_way_to_send_takes_a_priority(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await make(client)
        receipts = [
            await client.send("t", b"none"),
            await client.send("t", b"high", priority=2, key="k", headers={"a": "b"}),
            await client.send_soon("t", b"soon", priority=1),
            *await client.send_many(
                "t",
                [
                    b"bare",
                    ternmq.Message(b"low", priority=0),
                    ternmq.Message(b"own", priority=2, tag="x"),
                ],
                priority=1,
            ),
            *await client.send_many("t", [b"bare 2", b"bare 3"], priority=2),
            *await client.send_many("t", [b"bare 4", b"bare 5"]),
        ]
        assert [one.queue for one in receipts] == [0, 2, 1, 1, 0, 2, 2, 2, 0, 0]
        got = [(one.body, one.priority, one.queue) for one in await pulled(client, "t")]
        assert got == [
            (b"high", 2, 2), (b"own", 2, 2), (b"bare 2", 2, 2), (b"bare 3", 2, 2),
            (b"soon", 1, 1), (b"bare", 1, 1),
            (b"none", 0, 0), (b"low", 0, 0), (b"bare 4", 0, 0), (b"bare 5", 0, 0),
        ]  # fmt: skip
        client.send_oneway("t", b"away", priority=1)
        found = await client.pull("t", group="g", wait=30)
        assert [(one.body, one.priority) for one in found] == [(b"away", 1)]


async def test_a_message_with_a_priority_passes_a_backlog(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await make(client, levels=2, queues=2)
        await client.send_many("t", [b"%d" % one for one in range(100)])
        assert [one.priority for one in await pulled(client, "t", 5)] == [0] * 5
        await client.send("t", b"urgent", priority=1)
        assert [one.body for one in await pulled(client, "t", 1)] == [b"urgent"]
        assert len(await pulled(client, "t")) == 95


async def test_keys_and_selectors_choose_among_the_queues_of_the_level(
    api: API, real: InProcessBroker
) -> None:
    seen: list[list[int]] = []

    def last(message: object, queues: Any) -> int:
        seen.append(list(queues))
        return int(queues[-1])

    async with api.connect(real.url) as client:
        await make(client, levels=3, queues=4)
        for level in range(3):
            homes = set()
            for _ in range(3):
                receipt = await client.send("t", b"", key="same", priority=level)
                homes.add(receipt.queue)
            (home,) = homes
            assert home % 3 == level
            receipt = await client.send("t", b"", queue=last, priority=level)
            assert receipt.queue == 9 + level
            receipt = await client.send("t", b"", queue=3 + level, priority=level)
            assert receipt.queue == 3 + level
        assert seen[0] == [0, 3, 6, 9]
        assert seen[-1] == [2, 5, 8, 11]
        spread = {(await client.send("t", b"", priority=1)).queue for _ in range(8)}
        assert spread == {1, 4, 7, 10}


async def test_what_is_refused(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await make(client)
        await client.admin.create_topic("plain", queues=2)
        await client.admin.create_topic("sorted", ordered=True)
        wrong: tuple[Any, ...] = (-1, 8, 2**70, 1.0, "1", None, True, False, 0.0, "")
        for bad in wrong:
            with pytest.raises(ternmq.InvalidRequest, match="priority"):
                await client.send("t", b"", priority=bad)
            with pytest.raises(ternmq.InvalidRequest, match="priority"):
                await client.send_soon("t", b"", priority=bad)
            with pytest.raises(ternmq.InvalidRequest, match="priority"):
                await client.send_oneway("t", b"", priority=bad)
            async with client.transaction("g") as transaction:
                if bad is not None:
                    with pytest.raises(ternmq.InvalidRequest, match="priority"):
                        await transaction.send("t", b"", priority=bad)
                with pytest.raises(ternmq.InvalidRequest, match="priority"):
                    await transaction.send_many("t", [b""], priority=bad)
            if bad is not None:
                with pytest.raises(ternmq.PartialSendError, match="priority"):
                    await client.send_many("t", [ternmq.Message(b"", priority=bad)])
            with pytest.raises(ternmq.InvalidRequest, match="priority"):
                await client.send_many("t", [b""], priority=bad)
        with pytest.raises(ternmq.InvalidRequest, match="has 3 levels: priority is 0 to 2, not 3"):
            await client.send("t", b"", priority=3)
        with pytest.raises(ternmq.InvalidRequest, match="topic 'plain' has no levels"):
            await client.send("plain", b"", priority=1)
        with pytest.raises(ternmq.InvalidRequest, match="topic 'absent' does not exist, and"):
            await client.send("absent", b"", priority=1)
        with pytest.raises(ternmq.InvalidRequest, match="topic 'sorted' has no levels"):
            await client.send("sorted", b"", ordering_key="k", priority=1)
        with pytest.raises(ternmq.InvalidRequest, match="queue 1 of topic 't' is of level 1"):
            await client.send("t", b"", queue=1, priority=2)
        with pytest.raises(ternmq.InvalidRequest, match="queue 1 of topic 't' is of level 1"):
            await client.send("t", b"", queue=1)
        with pytest.raises(ternmq.PartialSendError, match="is of level 1") as failed:
            await client.send_many("t", [b"", b""], queue=1)
        assert len(failed.value.failures) == 2
        with pytest.raises(ternmq.PartialSendError) as failed:
            await client.send_many("plain", [b"good", ternmq.Message(b"bad", priority=1)])
        assert [one.row for one in failed.value.failures] == [1]
        with pytest.raises(ternmq.UnknownQueue, match="has queues 0 to 2"):
            await client.send("t", b"", queue=3)
        for topic, count in (("t", 0), ("plain", 1), ("sorted", 0)):
            info = await client.admin.topic(topic)
            assert sum(one.next for one in info.queues) == count
        assert "absent" not in {one.spec.name for one in await client.admin.topics()}


async def test_a_topic_that_no_send_makes_is_missing_also_for_a_priority(api: API) -> None:
    with broker(manual=False, settings={"create_topics": False}) as one:
        async with api.connect(one.url) as client:
            for priority in (0, 1):
                with pytest.raises(ternmq.UnknownTopic, match="absent"):
                    await client.send("absent", b"", priority=priority)
            await client.admin.create_topic("absent", levels=2)
            assert (await client.send("absent", b"", priority=1)).queue == 1


async def test_levels_of_topics(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        admin = client.admin
        await admin.create_topic(ternmq.Topic("t", levels=8, queues=2))
        assert (await admin.topic("t")).spec.levels == 8
        assert len((await admin.topic("t")).queues) == 16
        await admin.change_topic("t", queues=3)
        assert len((await admin.topic("t")).queues) == 24
        for bad in (0, -1, 9, 2**70):
            with pytest.raises(ternmq.InvalidRequest, match="levels"):
                await admin.create_topic("u", levels=bad)
        for wrong in (1.0, "2", True):
            with pytest.raises(ternmq.InvalidRequest, match="levels is a whole number"):
                await admin.create_topic("u", levels=wrong)
        with pytest.raises(ternmq.InvalidRequest, match="an ordered topic has no levels"):
            await admin.create_topic("u", levels=2, ordered=True)
        with pytest.raises(ternmq.InvalidRequest, match="queues times levels must be at most 4096"):
            await admin.create_topic("u", levels=8, queues=513)
        assert [one.spec.name for one in await admin.topics()] == ["t"]


async def test_levels_cannot_be_changed(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("t", levels=3)
        for levels in (1, 2, 4):
            spec = TopicSpec(name="t", levels=levels, queues=12)
            with pytest.raises(ternmq.InvalidRequest, match="which cannot be changed"):
                await client.admin._do(Command.TOPIC_CHANGE, TopicChange(topic="t", spec=spec))
        assert (await client.admin.topic("t")).spec == TopicSpec(name="t", levels=3)


async def test_a_declared_topic_has_levels_and_other_levels_are_a_conflict(
    api: API, real: InProcessBroker
) -> None:
    connect: Any = ternmq.sync.connect if api.blocking else ternmq.connect
    async with ternmq.connect(real.url) as looking:
        declared = connect(real.url)
        declared.declare(ternmq.Topic("t", levels=3))
        (change,) = await declared.topology.plan(looking.admin)
        assert (change.action, change.wants) == ("create", "levels 3")
        await declared.topology.apply(looking.admin)
        assert await declared.topology.plan(looking.admin) == []
        assert (await looking.send("t", b"", priority=2)).queue == 2
        other = connect(real.url)
        other.declare(ternmq.Topic("t", levels=2, retention=60))
        changes = await other.topology.plan(looking.admin)
        assert [(one.action, one.setting, one.has, one.wants) for one in changes] == [
            ("change", "retention", "7d", "1m"),
            ("conflict", "levels", "3", "2"),
        ]
        with pytest.raises(ternmq.TopologyMismatch, match="levels 3 -> 2 cannot be changed"):
            await other.topology.apply(looking.admin)
        assert (await looking.admin.topic("t")).spec == TopicSpec(name="t", levels=3)


async def test_a_first_message_makes_a_declared_topic_with_its_levels(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        receipt = await client.send(ternmq.Topic("declared", levels=3), b"", priority=2)
        assert (receipt.queue, receipt.offset) == (2, 0)
        assert (await client.admin.topic("declared")).spec.levels == 3


async def test_a_batch_of_several_priorities_is_refused(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await make(client)
        mixed = encode(
            [Row(body=b"a", priority=1), Row(body=b"b", priority=2)],
            topic_seed=topic_seed("t"),
            producer_id=77,
            first_sequence=0,
            born_us=0,
        )
        with pytest.raises(InvalidBatch, match="several priorities; split it"):
            await client.prepare("t", mixed, writer="w", batch_id=1)
        assert (await client.admin.transactions()).undecided == []


async def test_messages_that_are_due_later_keep_their_priority(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await make(client, queues=2)
        due = timedelta(seconds=10)
        receipts = await client.send_many(
            "t",
            [ternmq.Message(b"%d" % one, priority=one % 3) for one in range(9)],
            deliver_after=due,
        )
        assert all(one.due_at is not None for one in receipts)
        await client.send("t", b"2", priority=2, deliver_after=due, queue=5)
        assert await pulled(client, "t") == []
        await asyncio.to_thread(timed.clock.advance, due)
        got = await pulled(client, "t")
        assert [one.priority for one in got] == [2] * 4 + [1] * 3 + [0] * 3
        assert all(int(one.body) % 3 == one.priority == one.queue % 3 for one in got)


async def test_messages_of_transactions_keep_their_priority(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await make(client)
        await client.admin.put_producer_group("shop", without_checker=True)
        async with client.transaction("shop") as tx:
            await tx.send("t", b"low")
            await tx.send("t", b"high", priority=2)
            await tx.send_many("t", [b"middle", ternmq.Message(b"top", priority=2)], priority=1)
            with pytest.raises(ternmq.InvalidRequest, match="has 3 levels"):
                await tx.send("t", b"", priority=3)
        prepared = await client.prepare(
            "t",
            [ternmq.Message(b"written", priority=1), b"last"],
            writer="w",
            batch_id=1,
        )
        assert {one.queue for one in prepared} == {0, 1}
        await client.commit_prepared("w", 1, prepared, digest=1)
        got = [(one.body, one.priority) for one in await pulled(client, "t")]
        assert got == [
            (b"high", 2), (b"top", 2), (b"middle", 1), (b"written", 1), (b"low", 0), (b"last", 0),
        ]  # fmt: skip


async def test_a_middleware_sees_and_changes_the_priority(real: InProcessBroker) -> None:
    seen: list[Any] = []

    async with ternmq.connect(real.url) as client:

        @client.send_middleware
        def urgent(outbound: Any) -> Any:
            seen.append(outbound.message.priority)
            outbound.message.priority = 2
            yield

        await make(client)
        assert (await client.send("t", b"", priority=1)).queue == 2
        assert [one.queue for one in await client.send_many("t", [b"", b""])] == [2, 2]
        assert seen == [1, None, None]


async def test_found_messages_tell_their_priority(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await make(client)
        receipt = await client.send("t", b"x", priority=2)
        assert (await client.get("t", receipt.id)).row.priority == 2


async def test_a_failed_message_that_is_sent_again_keeps_its_priority(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await make(client)
        with pytest.raises(ternmq.PartialSendError) as failed:
            await client.send_many("t", [ternmq.Message(b"x", priority=2, queue=1)])
        (failure,) = failed.value.failures
        message: Any = failure.message
        assert message.priority == 2
        message.queue = None
        assert [one.queue for one in await client.send_many("t", [message])] == [2]


async def test_a_topic_that_is_made_again_may_have_other_levels(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await make(client)
        assert (await client.send("t", b"", priority=2)).queue == 2
        await client.admin.delete_topic("t")
        await client.admin.create_topic("t", levels=8)
        assert (await client.send("t", b"", priority=7)).queue == 7
        await client.admin.delete_topic("t")
        await client.admin.create_topic("t")
        with pytest.raises(ternmq.InvalidRequest, match="has no levels"):
            await client.send("t", b"", priority=1)
        assert (await client.send("t", b"")).offset == 0
