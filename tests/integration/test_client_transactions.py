"""Transactions named by their writers, from the client: invisible, then there, once; or never."""

from __future__ import annotations

import asyncio

import pytest

import ternmq
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.testing import InProcessBroker, broker
from ternmq.wire.control import Transactions
from tests.integration.client_shapes import API
from tests.integration.proxy import Proxy


async def bodies_of(client: ternmq.Client, topic: str = "t") -> list[bytes]:
    return [one.body async for one in client.read(topic)]


async def prepared(client: ternmq.Client) -> float:
    return (await client.admin.status()).metrics["ternmq_prepared_batches"]


async def test_prepared_messages_are_there_after_the_commit(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        await client.send("t", b"before")
        some = [ternmq.Message(b"a", key="k", tag="paid"), "b", {"c": 1}]
        one = await client.prepare("t", some, writer="w", batch_id=7, part="0/0")
        two = await client.prepare("t", [b"d"], writer="w", batch_id=7, part="1/0")
        lost = await client.prepare("t", [b"no"], writer="w", batch_id=7, part="1/1")
        assert [sum(one.rows for one in found) for found in (one, two, lost)] == [3, 1, 1]
        assert await bodies_of(client) == [b"before"]
        done = await client.commit_prepared("w", 7, [*two, *one], digest=2**64 - 1)
        assert done == ternmq.Committed(4, False)
        assert await bodies_of(client) == [b"before", b"d", b"a", b"b", b'{"c":1}']
        (found,) = await client.find("t", key="k")
        assert (found.offset, found.body) == (2, b"a")
        assert await client.commit_prepared("w", 7, [], digest=2**64 - 1) == ternmq.Committed(
            4, True
        )
        with pytest.raises(ternmq.TransactionConflict):
            await client.commit_prepared("w", 7, [], digest=1)
        with pytest.raises(ternmq.TransactionDecided, match="committed"):
            await client.abort_prepared("w", 7)
        with pytest.raises(ternmq.TransactionDecided, match="committed"):
            await client.prepare("t", [b"late"], writer="w", batch_id=7)


async def test_what_is_given_up_never_comes_and_may_be_done_again(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", queues=2, ordered=True)
        with pytest.raises(ternmq.OrderingKeyRequired):
            await client.prepare("t", [b"x"], writer="w", batch_id=0)
        rows = [ternmq.Message(b"%d" % at, ordering_key=f"o{at % 5}") for at in range(20)]
        first = await client.prepare("t", rows, writer="w", batch_id=0)
        await client.abort_prepared("w", 0)
        await client.abort_prepared("w", 0)
        with pytest.raises(ternmq.TransactionDecided, match="rolled back"):
            await client.commit_prepared("w", 0, first, digest=0)
        again = await client.prepare("t", rows, writer="w", batch_id=0)
        assert (await client.commit_prepared("w", 0, again, digest=0)).rows == 20
        seen: list[bytes] = []
        while len(seen) < 20:
            for one in await client.pull("t", group="g", max_messages=100):
                seen.append(one.body)
                await one.ack()
        assert sorted(seen, key=int) == [b"%d" % at for at in range(20)]
        with pytest.raises(ternmq.UnknownTransaction):
            await client.commit_prepared("w", 1, [12345], digest=0)


async def test_a_whole_batch_is_prepared_again_as_it_is(api: API, real: InProcessBroker) -> None:
    batch = encode(
        [Row(b"x"), Row(b"y")], topic_seed=topic_seed("t"), producer_id=5, first_sequence=0,
        born_us=1,
    )  # fmt: skip
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        (one,) = await client.prepare("t", batch, writer="w", batch_id=0)
        (again,) = await client.prepare("t", batch, writer="w", batch_id=0)
        assert (again.id, again.duplicate) == (one.id, True)
        await client.commit_prepared("w", 0, [one.id], digest=0)
        assert await bodies_of(client) == [b"x", b"y"]


async def test_what_cannot_be_prepared_is_said_before(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        with pytest.raises(ternmq.InvalidRequest):
            await client.prepare("t", "text", writer="w", batch_id=0)
        with pytest.raises(ternmq.InvalidRequest):
            await client.prepare("t", [ternmq.Message(b"x", id="a")], writer="w", batch_id=0)
        for writer, number in (("", 0), ("w\n", 0), ("w" * 129, 0), ("w", -1), ("w", 2**64)):
            with pytest.raises(ternmq.InvalidRequest):
                await client.prepare("t", [b"x"], writer=writer, batch_id=number)
        with pytest.raises(ternmq.InvalidRequest):
            await client.commit_prepared("w", 0, [], digest=2**64)


async def test_large_transactions_travel_in_several_batches(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        rows = [b"%06d" % at + b"x" * 400 for at in range(3000)]
        found = await client.prepare("t", rows, writer="w", batch_id=0)
        assert len(found) > 3
        assert (await client.commit_prepared("w", 0, found, digest=3)).rows == 3000
        assert await bodies_of(client) == rows


async def test_a_commit_whose_answer_was_lost_is_done_once(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("t")
        found = await client.prepare("t", [b"x"], writer="w", batch_id=0)
        proxy.mute = True
        pending = asyncio.ensure_future(client.commit_prepared("w", 0, found, digest=9))
        async with ternmq.connect(real.url) as direct:
            while (await direct.admin.topic("t")).queues[0].next == 0:
                pass
            proxy.mute = False
            proxy.cut()
            assert (await pending) == ternmq.Committed(1, True)
            with pytest.raises(ternmq.TransactionDecided):
                await direct.abort_prepared("w", 0)
            assert await bodies_of(direct) == [b"x"]


async def test_a_prepare_whose_answer_was_lost_is_stored_once(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("t")
        await client.prepare("t", [b"x"], writer="w", batch_id=0)
        proxy.mute = True
        pending = asyncio.ensure_future(client.prepare("t", [b"y"], writer="w", batch_id=0))
        async with ternmq.connect(real.url) as direct:
            while await prepared(direct) < 2:
                pass
            proxy.mute = False
            proxy.cut()
            (found,) = await pending
            assert found.duplicate
            assert await prepared(direct) == 2
        await client.commit_prepared("w", 0, [found], digest=0)
        assert await bodies_of(client) == [b"y"]


async def test_what_nobody_decides_ends_by_time(timed: InProcessBroker) -> None:
    async with ternmq.connect(timed.url) as client:
        await client.admin.create_topic("t")
        found = await client.prepare("t", [b"x"], writer="w", batch_id=0)
        await asyncio.to_thread(timed.clock.advance, hours=2)
        with pytest.raises(ternmq.TransactionDecided, match="rolled back"):
            await client.commit_prepared("w", 0, found, digest=0)


async def test_what_is_undecided_and_who_writes_is_told(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        assert (await client.admin.transactions()) == Transactions(undecided=[], writers=[])
        await client.admin.create_topic("t")
        await client.admin.create_topic("u")
        found = await client.prepare("t", [b"a", b"b"], writer="w", batch_id=2**64 - 1)
        await client.prepare("u", [b"c"], writer="w", batch_id=2**64 - 1)
        await client.prepare("t", [b"d"], writer="v", batch_id=0)
        told = await client.admin.transactions("w")
        (one,) = told.undecided
        assert (one.batch_id, one.topics, one.batches, one.rows) == (2**64 - 1, ["t", "u"], 2, 3)
        assert one.opened_us < one.expires_us
        assert [(one.writer, one.newest) for one in told.writers] == [("w", None)]
        assert [one.writer for one in (await client.admin.transactions()).undecided] == ["w", "v"]
        assert (await client.admin.transactions(limit=1)).more
        await client.commit_prepared("w", 2**64 - 1, found, digest=5)
        await client.prepare("t", [b"d"], writer="w", batch_id=7)
        await client.abort_prepared("w", 7)
        told = await client.admin.transactions(writer="w")
        assert told.undecided == []
        (writer,) = told.writers
        assert (writer.highest, writer.digest, writer.rows) == (2**64 - 1, 5, 2)
        assert (writer.decisions, writer.newest.batch_id, writer.newest.rows) == (2, 7, 0)
        assert not writer.newest.committed
        assert await client.admin.transactions("x") == Transactions(undecided=[], writers=[])
        for wrong in ({"writer": "w" * 129}, {"limit": 0}, {"limit": 10_001}):
            with pytest.raises(ternmq.InvalidRequest):
                await client.admin.transactions(**wrong)


async def test_texts_that_are_not_unicode_are_refused_by_name(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        for calls, name in (
            (client.prepare("t", ["a"], writer="w\ud800", batch_id=1), "writer"),
            (client.prepare("t", ["a"], writer="w", batch_id=1, part="\ud800"), "part"),
            (client.commit_prepared("w\ud800", 1, [], digest=5), "writer"),
            (client.get("t", "\ud800"), "id"),
            (client.find("t", key="\ud800"), "key"),
            (client.admin.put_app("shop", [], owner="\ud800"), "owner"),
            (client.pull("t", group="g", tags="\ud800"), "tags"),
        ):
            with pytest.raises(ternmq.InvalidRequest) as failed:
                await calls
            assert str(failed.value).startswith(f"{name} cannot be written as UTF-8: "), name
            assert "sent" not in str(failed.value)
        assert (await client.admin.transactions()).writers == []


async def test_messages_with_a_delay_are_scheduled_at_the_commit(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t", queues=2)
        rows = [ternmq.Message(b"%d" % at, deliver_after=10 * at) for at in (1, 6, 12)]
        some = [*rows, ternmq.Message(b"now"), ternmq.Message(b"key", key="k", deliver_after=10)]
        ids = await client.prepare("t", some, writer="w", batch_id=7)
        assert sum(one.rows for one in ids) == 5
        undone = await client.prepare("t", rows, writer="w", batch_id=8)
        await client.abort_prepared("w", 8)
        timed.clock.advance(seconds=20)
        assert await bodies_of(client) == []
        assert await client.admin.scheduled_messages("t") == []
        done = await client.commit_prepared("w", 7, ids, digest=1)
        assert done == ternmq.Committed(5, False)
        assert await client.commit_prepared("w", 7, ids, digest=1) == ternmq.Committed(5, True)
        with pytest.raises(ternmq.TransactionDecided):
            await client.commit_prepared("w", 8, undone, digest=1)
        timed.clock.advance(seconds=1)
        assert sorted(await bodies_of(client)) == [b"1", b"key", b"now"]
        first, last = await client.admin.scheduled_messages("t")
        assert (last.due_at - first.due_at).total_seconds() == 60
        await client.cancel("t", first.id)
        timed.restart()
        timed.clock.advance(seconds=200)
        assert sorted(await bodies_of(client)) == [b"1", b"12", b"key", b"now"]


async def test_a_transaction_has_a_limit_of_messages_with_a_delay(api: API) -> None:
    with broker(settings={"limits.transaction_due_rows": 2}) as tight:
        async with api.connect(tight.url) as client:
            await client.admin.create_topic("t")
            rows = [ternmq.Message(b"", deliver_after=60)] * 3
            with pytest.raises(ternmq.TransactionTooLarge, match="transaction_due_rows is 2"):
                await client.prepare("t", rows, writer="w", batch_id=1)
            assert await client.admin.scheduled_messages("t") == []
