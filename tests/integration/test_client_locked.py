"""Groups of mode queue_lock: one consumer of a queue at a time, messages in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.client_shapes import API
from tests.integration.test_client_checked import GROUP, broken, unknowing


@contextlib.asynccontextmanager
async def filled(
    api: API, url: str, count: int, queues: int = 1, **group: Any
) -> AsyncIterator[Any]:
    """Yield a client of a broker whose topic has messages with their numbers."""
    async with api.connect(url) as client:
        await client.admin.create_topic("t", queues=queues)
        await client.admin.create_group("t", "g", mode="queue_lock", **group)
        for number in range(count):
            await client.send("t", number, queue=number % queues)
        yield client


async def test_a_second_puller_gets_a_queue_when_the_first_has_finished_it(
    api: API, timed: InProcessBroker
) -> None:
    async with filled(api, timed.url, 4) as client, api.connect(timed.url) as other:
        batch = await client.pull("t", group="g", max_messages=2)
        assert [one.value for one in batch] == [0, 1]
        assert not await other.pull("t", group="g", wait=0)
        await batch.ack(rows=[0])
        assert not await other.pull("t", group="g", wait=0)
        await batch.ack()
        rest = await other.pull("t", group="g")
        assert [one.value for one in rest] == [2, 3]
        assert not await client.pull("t", group="g", wait=0)
        timed.clock.advance(seconds=31)  # the lease ends by time
        again = await client.pull("t", group="g")
        assert [(one.value, one.attempt) for one in again] == [(2, 2), (3, 1)]


async def test_a_batch_of_a_locked_queue_does_not_wait_for_more(
    api: API, timed: InProcessBroker
) -> None:
    """No more can come of the queue before it is settled; the clock of the broker stands."""
    async with filled(api, timed.url, 3) as client:
        batches = client.consume_batches("t", group="g", max_messages=10, max_wait=3600)
        async with asyncio.timeout(10):
            batch = await anext(batches)
            assert [one.value for one in batch] == [0, 1, 2]
            await batch.ack()
            await client.send("t", 3)
            batch = await anext(batches)
            assert [one.value for one in batch] == [3]
            await batch.ack()
        await batches.aclose()


@pytest.mark.parametrize("verb", ["retry", "release"])
async def test_a_batch_loses_all_behind_a_message_that_comes_again(
    api: API, timed: InProcessBroker, verb: str
) -> None:
    async with filled(api, timed.url, 4) as client:
        batch = await client.pull("t", group="g")
        rows = batch[:]
        await batch.ack(rows=[0])
        await getattr(batch, verb)(rows=[1], **({"delay": 5} if verb == "retry" else {}))
        assert [one.lost for one in rows] == [False, False, True, True]
        with pytest.raises(
            ternmq.LeaseExpired, match="an earlier message of its queue is delivered again"
        ):
            await rows[2].ack()
        if verb == "retry":
            assert not await client.pull("t", group="g", wait=0)
            timed.clock.advance(seconds=6)
        again = await client.pull("t", group="g")
        assert [one.value for one in again] == [1, 2, 3]
        assert [one.attempt for one in again] == [2 if verb == "retry" else 1, 1, 1]


async def test_a_held_message_closes_its_queue_until_it_is_deleted(
    api: API, timed: InProcessBroker
) -> None:
    policy = ternmq.RetryPolicy(attempts=1, exhausted=ternmq.Exhausted.HOLD)
    async with filled(api, timed.url, 2, retry=policy) as client:
        batch = await client.pull("t", group="g")
        await batch.retry(rows=[0], reason="locked")
        timed.clock.advance(hours=1)
        assert not await client.pull("t", group="g", wait=0)
        await client.deadletters.delete("t", "g", [0])
        (last,) = await client.pull("t", group="g")
        assert last.value == 1


async def test_handlers_of_two_clients_process_each_queue_in_order(
    api: API, real: InProcessBroker
) -> None:
    at_work: set[int] = set()
    done: dict[int, list[int]] = {0: [], 1: []}
    failed: set[int] = set()

    async def work(value: int, delivery: Any) -> None:
        queue = delivery.queue
        assert queue not in at_work
        at_work.add(queue)
        try:
            await asyncio.sleep(0.001)
            if value % 7 == 3 and value not in failed:
                failed.add(value)
                raise ternmq.Retry(after=0)
            done[queue].append(value)
        finally:
            at_work.discard(queue)

    async with filled(api, real.url, 40, queues=2):
        workers = [ternmq.connect(real.url) for _ in range(2)]
        for worker in workers:

            @worker.handler("t", group="g", mode="queue_lock", concurrency=8)
            async def handle(value: int, delivery: ternmq.Delivery) -> None:
                await work(value, delivery)

        running = [asyncio.create_task(worker.run()) for worker in workers]
        await until(lambda: sum(map(len, done.values())) >= 40)
        for worker in workers:
            await worker.close()
        await asyncio.gather(*running)
    assert done == {0: list(range(0, 40, 2)), 1: list(range(1, 40, 2))}


async def test_a_transaction_keeps_the_queue_locked_until_its_decision(
    api: API, timed: InProcessBroker
) -> None:
    async with filled(api, timed.url, 2) as client:
        worker = ternmq.connect(timed.url)
        unknowing(worker)
        async with worker:
            (one,) = await worker.pull("t", group="g", max_messages=1)
            tx = worker.transaction(GROUP)
            async with tx:
                await tx.ack(one)
                assert not await client.pull("t", group="g", wait=0)
            (rest,) = await client.pull("t", group="g")
            assert rest.value == 1
            await rest.release()
            (again,) = await worker.pull("t", group="g", max_messages=1)
            await broken(worker, lambda tx: tx.ack(again))
            (back,) = await client.pull("t", group="g")
            assert (back.value, back.attempt) == (1, 1)


async def test_the_mode_is_a_setting_like_others(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.send("t", 1)
        (one,) = await client.pull("t", group="g", mode="queue_lock")
        assert one.value == 1
        assert (await client.admin.group("t", "g")).spec.mode is ternmq.Mode.QUEUE_LOCK
        with pytest.raises(ternmq.GroupSettingsMismatch, match="mode"):
            await client.pull("t", group="g", mode="shared")
        with pytest.raises(ternmq.InvalidRequest, match="states a tag filter and mode queue_lock"):
            await client.pull("t", group="h", mode="queue_lock", tags="a")
        with pytest.raises(ternmq.InvalidRequest, match="mode"):
            await client.pull("t", group="h", mode="queue-lock")
        # A topic that is missing is created, and not as an ordered one.
        assert not await client.pull("new", group="g", mode="queue_lock", wait=0)
        assert not (await client.admin.topic("new")).spec.ordered


def test_what_waits_behind_a_retry_is_left_to_the_clock(timed: InProcessBroker) -> None:
    with ternmq.sync.connect(timed.url) as client:
        client.send("t", 0)
        client.admin.create_group("t", "g", mode="queue_lock")
        client.send_many("t", [1, 2])
        client.pull("t", group="g")[0].retry(3600)
        timed.wait_idle("t", "g", timeout=0)
        timed.clock.advance(hours=1, seconds=1)
        with pytest.raises(TimeoutError, match="ready 3"):
            timed.wait_idle("t", "g", timeout=0)
        assert [one.value for one in client.pull("t", group="g")] == [0, 1, 2]
