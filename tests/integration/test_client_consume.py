"""What consuming does, against a real broker."""

from __future__ import annotations

import asyncio
import logging

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.client_shapes import API


async def filled(api, url, count=10, **topic):
    client = await api.connect(url)
    await client.admin.create_topic("orders", **topic)
    await client.send_many("orders", [b"%d" % n for n in range(count)])
    return client


def fail(error):
    raise error


async def settled(client):
    """Return how the group stands when nothing is leased any more."""
    for _ in range(500):
        if not (stand := await group(client)).leased:
            return stand
    pytest.fail("rows stay leased")


async def group(client):
    return (await client.admin.group("orders", "g")).queues[0]


# ---------------------------------------------------------------------------------- pull and settle


async def test_pull_and_ack(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url)
    batch = await client.pull("orders", group="g", max_messages=4)
    assert batch
    assert batch.bodies == [b"0", b"1", b"2", b"3"]
    await batch.ack()
    stand = await group(client)
    assert (stand.floor, stand.leased, stand.cursor) == (4, 0, 4)
    rest = await client.pull("orders", group="g", max_messages=100)
    await rest.ack()
    nothing = await client.pull("orders", group="g", wait=0.05)
    assert not nothing
    assert len(nothing) == 0
    await client.close()


async def test_a_pull_waits_for_the_first_message(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url, 0)
    other = await api.connect(real.url)
    await other.admin.create_group("orders", "g")
    pulled = asyncio.ensure_future(client.pull("orders", group="g", wait=30))
    for _ in range(1000):
        if (await other.admin.group("orders", "g")).members:
            break
    await other.send("orders", b"late")
    assert (await pulled).bodies == [b"late"]
    await client.close()
    await other.close()


async def test_some_rows_differently(api: API, timed: InProcessBroker) -> None:
    client = await filled(api, timed.url)
    batch = await client.pull("orders", group="g", max_messages=10)
    await batch.retry(rows=[1, 3], reason="not yet", delay=60)
    await batch.reject(rows=[5], reason="never")
    await batch.release(rows=[7])
    with pytest.raises(ternmq.AlreadySettled):
        await batch.ack(rows=[5])
    assert batch.unsettled == 6
    await batch.ack()
    stand = await group(client)
    assert (stand.leased, stand.waiting, stand.dead, stand.ready) == (0, 2, 1, 1)
    again = await client.pull("orders", group="g", wait=1)
    assert [(one.offset, one.attempt, one.deliveries) for one in again] == [(7, 1, 2)]
    await again.ack()
    waiting = [one async for one in client.deadletters.waiting("orders", "g")]
    assert [(one.offset, one.reason, one.message.body) for one in waiting] == [
        (1, "not yet", b"1"),
        (3, "not yet", b"3"),
    ]
    (dead,) = [one async for one in client.deadletters.browse("orders", "g")]
    assert (dead.offset, dead.reason) == (5, "never")
    found = [await client.deadletters.get("orders", "g", offset) for offset in range(8)]
    assert [None if one is None else (one.offset, one.reason) for one in found] == [
        None, (1, "not yet"), None, (3, "not yet"), None, (5, "never"), None, None,
    ]  # fmt: skip
    await asyncio.to_thread(timed.clock.advance, minutes=2)
    again = await client.pull("orders", group="g", wait=1)
    assert [(one.offset, one.attempt) for one in again] == [(1, 2), (3, 2)]
    await again.ack()
    assert await client.deadletters.delete("orders", "g", [5]) == []
    assert (await group(client)).dead == 0
    await client.close()


async def test_a_delivery_is_settled_once(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url)
    first, second, *_ = await client.pull("orders", group="g")
    await first.ack()
    with pytest.raises(ternmq.AlreadySettled):
        await first.ack()
    with pytest.raises(ternmq.AlreadySettled):
        await first.retry()
    with pytest.raises(ternmq.AlreadySettled, match="was settled before"):
        await first.extend(10)
    await second.reject("bad")
    assert (first.settled, second.settled) == (True, True)
    await client.close()


async def test_process_settles_as_it_ends(
    api: API, timed: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = await filled(api, timed.url, 5)
    batch = list(await client.pull("orders", group="g"))
    async with batch[0].process():
        pass
    with caplog.at_level(logging.ERROR, "ternmq"):
        async with batch[1].process():
            fail(ValueError("broken"))
        assert "ValueError: broken" in caplog.text
    async with batch[2].process():
        fail(ternmq.Retry("later", after=3600))
    async with batch[3].process():
        fail(ternmq.Reject("never"))
    caplog.clear()
    with pytest.raises(KeyError):
        async with batch[4].process(reraise=True):
            fail(KeyError("on"))
    stand = await settled(client)
    assert (stand.waiting, stand.dead) == (3, 1)
    assert "KeyError" not in caplog.text  # it is raised
    reasons = [one.reason async for one in client.deadletters.waiting("orders", "g")]
    assert reasons == ["ValueError: broken", "later", "KeyError: 'on'"]
    await client.close()


async def test_cancellation_gives_back_uncounted(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.send("orders", b"a")

        async def work() -> None:
            (one,) = await client.pull("orders", group="g")
            async with one.process():
                await asyncio.sleep(60)

        task = asyncio.ensure_future(work())
        for _ in range(2000):
            groups = await client.admin.groups("orders")
            if groups and groups[0].queues[0].leased:
                break
        task.cancel()
        (again,) = await client.pull("orders", group="g")
        assert (again.attempt, again.deliveries) == (1, 2)


async def test_a_cancelled_pull_gives_back_what_comes(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        for number in range(30):
            pulled = asyncio.ensure_future(client.pull("orders", group="g", wait=30))
            await client.send("orders", b"%d" % number)
            for _ in range(number % 5):
                await asyncio.sleep(0)
            pulled.cancel()
            await asyncio.wait([pulled])
            if not pulled.cancelled():
                await pulled.result().ack()
                continue
            (one,) = await client.pull("orders", group="g", wait=10)
            assert (one.body, one.attempt) == (b"%d" % number, 1)
            await one.ack()


# ------------------------------------------------------------------------------------------ consume


async def test_consume_one_by_one(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url, 1000)
    got = []
    async with client.consume("orders", group="g", max_in_flight=16) as deliveries:
        async for delivery in deliveries:
            async with delivery.process():
                got.append(int(delivery.body))
            if len(got) == 1000:
                break
    assert got == list(range(1000))
    assert (await group(client)).floor == 1000
    await client.close()


async def test_never_more_in_flight_than_asked_for(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.send_many("orders", [b""] * 100)
        held = []
        async with client.consume("orders", group="g", max_in_flight=5) as deliveries:
            for _ in range(5):
                held.append(await anext(deliveries))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(deliveries)
            await held[0].ack()
            held.append(await anext(deliveries))
            assert (await client.admin.group("orders", "g")).queues[0].leased == 5


async def test_leaving_gives_back(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url)
    async with client.consume("orders", group="g", max_in_flight=16) as deliveries:
        async for delivery in deliveries:
            await delivery.ack()
            break
    stand = await group(client)
    assert (stand.leased, stand.ready) == (0, 9)
    again = await client.pull("orders", group="g")
    assert {one.attempt for one in again} == {1}
    await client.close()


async def test_filters_modes_and_starts_are_as_stated(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url)
    await client.send("orders", b"paid", tag="paid")
    batch = await client.pull("orders", group="g", tags="paid")
    assert batch.bodies == [b"paid"]
    await batch.ack()
    for same in ("paid", " paid ", "paid||paid"):
        assert not await client.pull("orders", group="g", tags=same, wait=0)
    for other in ("refunded", "*", "paid || refunded"):
        with pytest.raises(ternmq.GroupSettingsMismatch, match="tags 'paid', not"):
            await client.pull("orders", group="g", tags=other)
    for same in ("*", "", " * "):
        assert (await client.pull("orders", group="whole", tags=same, max_messages=1)).bodies
    many = " || ".join(f"t{number}" for number in range(65))
    with pytest.raises(ternmq.InvalidRequest, match="at most 64 tags, not 65"):
        await client.pull("orders", group="many", tags=many)
    await client.pull("orders", group="late", start="latest", wait=0)
    await client.send("orders", b"new")
    assert (await client.pull("orders", group="late")).bodies == [b"new"]
    with pytest.raises(ternmq.ModeNotAllowed):
        await client.pull("orders", group="o", mode="ordered")
    with pytest.raises(ternmq.InvalidRequest):
        await client.pull("orders", group="o", mode="strange")
    await client.close()


async def test_two_consumers_share(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url, 400)
    got: list[bytes] = []

    async def work() -> None:
        async with client.consume("orders", group="g", max_in_flight=8) as deliveries:
            async for delivery in deliveries:
                async with delivery.process():
                    got.append(delivery.body)

    tasks = [asyncio.ensure_future(work()) for _ in range(2)]
    await until(lambda: len(got) >= 400)
    await client.close() if api.blocking else None
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(got) == sorted(b"%d" % n for n in range(400))
    await client.close()


# ------------------------------------------------------------------------------------------ batches


async def test_batches(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url, 1000)
    sizes = []
    async for batch in client.consume_batches("orders", group="g", max_messages=300, max_wait=2.0):
        async with batch.process():
            sizes.append(len(batch))
        if sum(sizes) == 1000:
            break
    assert sizes == [300, 300, 300, 100]
    assert (await group(client)).floor == 1000
    await client.close()


async def test_a_batch_that_fails_comes_again(api: API, timed: InProcessBroker) -> None:
    client = await filled(api, timed.url, 10)
    batch = await client.pull("orders", group="g")
    async with batch.process():
        await batch.ack(rows=[0, 1, 2])
        fail(RuntimeError("database is gone"))
    stand = await settled(client)
    assert (stand.waiting, stand.floor) == (7, 10)
    await asyncio.to_thread(timed.clock.advance, minutes=1)
    again = await client.pull("orders", group="g")
    assert [(one.offset, one.attempt) for one in again] == [(n, 2) for n in range(3, 10)]
    await client.close()


async def test_a_break_leaves_the_rest_of_a_batch_with_it(api: API, timed: InProcessBroker) -> None:
    client = await filled(api, timed.url, 4)
    batch = await client.pull("orders", group="g", max_messages=4)
    for delivery in batch:
        await delivery.ack()
        if delivery.offset == 1:
            break
    assert batch.unsettled == 2
    stand = await group(client)
    assert (stand.floor, stand.leased) == (2, 2)
    await batch.release()
    assert (await client.pull("orders", group="g")).bodies == [b"2", b"3"]
    await client.close()


async def test_a_batch_as_arrow(api: API, real: InProcessBroker) -> None:
    pytest.importorskip("pyarrow")
    client = await filled(api, real.url, 100)
    await client.send("orders", b"x", key="k", tag="t")
    batch = await client.pull("orders", group="g", max_messages=60)
    table = batch.to_arrow()
    assert table.column("offset").to_pylist() == list(range(60))
    assert table.column("body").to_pylist() == batch.bodies
    assert (await client.pull("orders", group="g", max_messages=60)).to_arrow().num_rows == 41
    assert (await client.pull("orders", group="g", wait=0)).to_arrow().num_rows == 0
    await client.close()


# ------------------------------------------------------------------------------------------ ordered


async def test_keys_stay_in_order_whatever_fails(api: API, timed: InProcessBroker) -> None:
    client = await api.connect(timed.url)
    await client.admin.create_topic("orders", ordered=True)
    messages = [ternmq.Message(b"%d" % n, ordering_key=f"k{n % 3}") for n in range(30)]
    await client.send_many("orders", messages)
    done: dict[str, list[int]] = {}
    failed = set()
    async with client.consume("orders", group="g", mode="ordered", max_in_flight=64) as deliveries:
        async for delivery in deliveries:
            number = int(delivery.body)
            async with delivery.process():
                if number % 5 == 0 and number not in failed:
                    failed.add(number)
                    fail(ternmq.Retry(after=0))
                done.setdefault(delivery.ordering_key, []).append(number)
            if sum(map(len, done.values())) == 30:
                break
    assert done == {f"k{key}": list(range(key, 30, 3)) for key in range(3)}
    await client.close()


async def test_a_key_waits_while_another_of_it_is_out(timed: InProcessBroker) -> None:
    async with ternmq.connect(timed.url) as client:
        await client.admin.create_topic("orders", ordered=True)
        await client.send_many(
            "orders", [ternmq.Message(b"%d" % n, ordering_key=f"k{n % 2}") for n in range(4)]
        )
        async with client.consume("orders", group="g") as deliveries:
            first, second = await anext(deliveries), await anext(deliveries)
            assert [first.body, second.body] == [b"0", b"1"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(deliveries)
            await second.ack()
            third = await anext(deliveries)
            assert third.body == b"3"


# --------------------------------------------------------------------------------------------- read


async def test_reading_without_a_group(api: API, real: InProcessBroker) -> None:
    client = await filled(api, real.url, 3000)

    async def read(**span):
        return [one.offset async for one in client.read("orders", **span)]

    assert await read() == list(range(3000))
    assert await read(start=2990) == list(range(2990, 3000))
    assert await read(start=10, stop=12) == [10, 11]
    assert await read(start="latest") == []
    async for one in client.read("orders", start=5):
        assert (one.body, one.group, one.lease_until) == (b"5", "", None)
        with pytest.raises(ternmq.InvalidRequest, match="without a group"):
            await one.ack()
        assert await read(start=one.stored_at)
        break
    with pytest.raises(ternmq.UnknownTopic):
        await anext(aiter(client.read("nowhere")))
    for queue in (1, 9, -1):
        for more in ({}, {"start": 7}, {"start": "latest"}, {"follow": True}, {"stop": 0}):
            with pytest.raises(ternmq.UnknownQueue, match=f"has queue 0 only, not {queue}"):
                await anext(aiter(client.read("orders", queue=queue, **more)))
    await client.close()


async def test_following(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        got = []

        async def follow() -> None:
            async for one in client.read("orders", follow=True):
                got.append(one.body)
                if len(got) == 3:
                    return

        task = asyncio.ensure_future(follow())
        for number in range(3):
            await client.send("orders", b"%d" % number)
        await task
        assert got == [b"0", b"1", b"2"]


async def test_a_pull_finds_what_was_freed_right_before_it(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("o", ordered=True)
        for n in range(3):
            await client.send("o", n, ordering_key="a")
        for n in range(3):
            (one,) = await client.pull("o", group="g", max_messages=1, wait=0)
            async with one.process():
                assert one.value == n


@pytest.mark.parametrize("what", ["group", "topic"])
async def test_a_deleted_group_is_made_again_by_the_next_pull(
    api: API, real: InProcessBroker, what: str
) -> None:
    async with api.connect(real.url) as client:
        await client.send("orders", b"old")
        await (await client.pull("orders", group="g")).ack()
        if what == "group":
            await client.admin.delete_group("orders", "g")
        else:
            await client.admin.delete_topic("orders")
            await client.admin.create_topic("orders")
            await client.send("orders", b"new")
        with pytest.raises(ternmq.UnknownGroup):
            await client.pull("orders", group="g", wait=0)
        again = await client.pull("orders", group="g")
        assert again.bodies == [b"old" if what == "group" else b"new"]
