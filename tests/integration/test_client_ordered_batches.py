"""Batches of ordered groups: a message that comes again takes the later ones of its key along."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API

Open = Callable[..., Any]


@contextlib.asynccontextmanager
async def filled(api: API, url: str, *bodies: str, **group: Any) -> AsyncIterator[Any]:
    """Yield a client of a broker where the key of each message is its first letter."""
    async with api.connect(url) as client:
        await fill(client, *bodies, **group)
        yield client


async def fill(client: Any, *bodies: str, **group: Any) -> None:
    await client.admin.create_topic("o", ordered=True)
    if group:
        await client.admin.create_group("o", "g", mode="ordered", **group)
    for body in bodies:
        await client.send("o", body, ordering_key=body[0])


async def pulled(client: Any, wait: float = 0) -> Any:
    return await client.pull("o", group="g", wait=wait)


async def batched(client: Any) -> Any:
    batches = client.consume_batches("o", group="g", max_wait=0.2)
    found = await anext(batches)
    client.kept_open = batches  # the end of the iterator gives back what is left
    return found


@pytest.fixture(params=[pulled, batched], ids=["pull", "consume_batches"])
def opened(request: pytest.FixtureRequest) -> Any:
    return request.param


def values(batch: Any) -> list[str]:
    return [one.value for one in batch]


async def worked(client: Any, batch: Any, *failing: str) -> list[str]:
    """Work on a batch as a program does; return what was worked on, with what failed."""
    found: list[str] = []
    for delivery in batch:
        async with delivery.process():
            found.append(delivery.value)
            if delivery.value in failing and delivery.attempt == 1:
                raise ternmq.Retry("locked", after=5)
    await client.admin.group("o", "g")  # what was settled is told before this is asked
    return found


async def test_a_loop_leaves_out_what_stands_behind_a_failure(
    api: API, timed: InProcessBroker, opened: Open
) -> None:
    async with filled(api, timed.url, "a0", "b0", "a1", "b1", "a2", "c0", "b2") as client:
        assert await worked(client, await opened(client), "a0", "b1") == ["a0", "b0", "b1", "c0"]
        assert not await pulled(client)
        timed.clock.advance(seconds=6)
        assert sorted(await worked(client, await pulled(client))) == ["a0", "a1", "a2", "b1", "b2"]


@pytest.mark.parametrize("verb", ["retry", "release"])
async def test_a_batch_loses_what_stands_behind_a_row_that_comes_again(
    api: API, timed: InProcessBroker, opened: Open, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with filled(api, timed.url, "a0", "b0", "a1", "a2", "b1") as client:
        batch = await opened(client)
        rows = batch[:]
        settings = {"reason": "locked", "delay": 5} if verb == "retry" else {}
        await getattr(batch, verb)(rows=[0], **settings)
        assert batch.unsettled == 2
        assert [one.lost for one in rows] == [False, False, True, True, False]
        assert [one.settled for one in rows] == [True, False, False, False, False]
        assert (len(batch), batch[2].value, values(batch)) == (5, "a1", ["a0", "b0", "b1"])
        with pytest.raises(
            ternmq.LeaseExpired, match="an earlier message of its ordering key is delivered again"
        ):
            await batch[2].ack()
        with pytest.raises(ternmq.LeaseExpired, match="ordering key"):
            await batch[2].extend(10)
        async with batch[3].process():
            pass
        with pytest.raises(ternmq.LeaseExpired, match="1 message of 'o' is no longer held"):
            await batch.ack(rows=[1, 2])
        assert "processed after it was taken back" in caplog.text
        assert batch[1].settled
        await batch.ack()
        assert batch[4].settled
        assert batch.unsettled == 0
        await batch.ack()
        timed.clock.advance(seconds=6)
        again = await pulled(client)
        assert values(again) == ["a0", "a1", "a2"]
        assert [one.attempt for one in again] == [2 if verb == "retry" else 1, 1, 1]
        await again.ack()
        assert not await pulled(client)


async def test_a_place_that_is_not_there_settles_nothing(api: API, timed: InProcessBroker) -> None:
    async with filled(api, timed.url, "a0", "a1") as client:
        batch = await pulled(client)
        for rows in ([0, 99], [-1, 0]):
            with pytest.raises(IndexError, match="there is no row"):
                await batch.ack(rows=rows)
        assert batch.unsettled == 2
        await batch.ack()


async def test_one_delivery_that_comes_again_takes_the_later_ones(
    api: API, timed: InProcessBroker
) -> None:
    async with filled(api, timed.url, "a0", "a1", "a2", "b0") as client:
        batch = await pulled(client)
        await batch[0].ack()
        await batch[1].retry(5)
        assert [one.lost for one in batch[:]] == [False, False, True, False]
        await batch.ack()
        timed.clock.advance(seconds=6)
        assert values(await pulled(client)) == ["a1", "a2"]


async def test_a_dead_letter_takes_none_along(api: API, timed: InProcessBroker) -> None:
    async with filled(
        api, timed.url, "a0", "a1", retry=ternmq.RetryPolicy(exhausted="hold")
    ) as client:
        batch = await pulled(client)
        await batch.reject(rows=[0], reason="wrong")
        assert values(batch) == ["a0", "a1"]
        assert (batch.unsettled, batch[1].lost) == (1, False)
        await batch.ack()
        assert batch[1].settled


@pytest.mark.parametrize("exhausted", ["dead-letter", "hold"])
async def test_behind_a_last_attempt(api: API, timed: InProcessBroker, exhausted: str) -> None:
    policy = ternmq.RetryPolicy(attempts=1, exhausted=ternmq.Exhausted(exhausted))
    async with filled(api, timed.url, "a0", "a1", "a2", "b0", retry=policy) as client:
        batch = await pulled(client)
        await batch.retry(rows=[0], reason="locked")
        assert values(batch) == ["a0", "b0"]
        await batch.ack()
        left = await pulled(client)
        if exhausted == "hold":
            assert not left
            (held,) = [one async for one in client.deadletters.waiting("o", "g")]
            await client.deadletters.retry("o", "g", [held])
            assert values(await pulled(client, wait=10)) == ["a0", "a1", "a2"]
        else:  # its key flows on: nothing waits for the end of the first lease
            assert [(one.value, one.attempt) for one in left] == [("a1", 1), ("a2", 1)]


async def test_rows_of_a_key_that_come_again_together_are_all_settled(
    api: API, timed: InProcessBroker
) -> None:
    async with filled(api, timed.url, "a0", "b0", "a1", "b1", "a2") as client:
        batch = await pulled(client)
        await batch.ack(rows=[1])
        await batch.retry(delay=5)
        assert [(one.settled, one.lost) for one in batch[:]] == [(True, False)] * 5
        timed.clock.advance(seconds=6)
        again = await pulled(client)
        assert sorted((one.value, one.attempt) for one in again) == [
            ("a0", 2), ("a1", 1), ("a2", 1), ("b1", 2),
        ]  # fmt: skip
        await again.release(rows=[0])
        await again.ack()
        assert again.unsettled == 0


async def test_what_was_done_before_a_failure_before_it_counts(timed: InProcessBroker) -> None:
    async with ternmq.connect(timed.url) as client:
        await client.admin.create_topic("o", ordered=True)
        for body in ("a0", "a1", "a2"):
            await client.send("o", body, ordering_key="a")
        first, second, third = await pulled(client)
        await asyncio.gather(second.ack(), first.retry(5))  # one turn of the loop
        assert (second.settled, third.lost) == (True, True)
        timed.clock.advance(seconds=6)
        assert values(await pulled(client)) == ["a0", "a2"]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_refused_settle_has_settled_nothing(
    api: API, timed: InProcessBroker, *, ordered: bool
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("o", ordered=ordered)
        for body in ("a", "b", "c"):
            await client.send("o", body, **({"ordering_key": body} if ordered else {}))
        batch = await pulled(client)
        rows = batch[:]
        await client.admin.reset_group("o", "g", "earliest")
        with pytest.raises(ternmq.LeaseExpired):
            await batch.ack(rows=[0])
        assert (rows[0].settled, rows[0].lost) == (False, True)
        with pytest.raises(ternmq.LeaseExpired):
            await batch.ack()
        assert [(one.settled, one.lost) for one in rows] == [(False, True)] * 3
        with pytest.raises(ternmq.LeaseExpired, match="no longer held"):
            await rows[1].ack()
        assert values(await pulled(client)) == ["a", "b", "c"]


async def batches_of(client: Any, *, by_pull: bool) -> AsyncGenerator[Any, None]:
    if by_pull:
        while True:
            yield await client.pull("o", group="g", max_messages=20, wait=0.2)
    else:
        async with contextlib.aclosing(
            client.consume_batches("o", group="g", max_messages=20, max_wait=0.05)
        ) as batches:
            async for batch in batches:
                yield batch


@pytest.mark.parametrize("by_pull", [True, False], ids=["pull", "consume_batches"])
async def test_order_under_failures_with_several_consumers(
    api: API, real: InProcessBroker, *, by_pull: bool
) -> None:
    keys, each, chance = "abcdefgh", 25, random.Random(6)
    done: dict[str, list[int]] = {key: [] for key in keys}
    failed = 0

    def over() -> bool:
        return sum(map(len, done.values())) >= len(keys) * each

    async def work() -> None:
        nonlocal failed
        async with (
            api.connect(real.url) as own,
            contextlib.aclosing(batches_of(own, by_pull=by_pull)) as batches,
        ):
            async for batch in batches:
                for delivery in batch:
                    if over():
                        break
                    async with delivery.process():
                        await asyncio.sleep(0)
                        what = chance.random()
                        failed += what < 0.2
                        if what < 0.15:
                            raise ternmq.Retry("locked", after=0.01)
                        if what < 0.2:
                            await delivery.release()
                            continue
                        done[delivery.value[0]].append(int(delivery.value[1:]))
                if over():
                    # Whoever waits for a message gets this one, and gives it back as it leaves.
                    await own.send("o", "end", ordering_key="end")
                    return

    async with api.connect(real.url) as client:
        await client.admin.create_topic("o", ordered=True, queues=2)
        await client.admin.create_group("o", "g", mode="ordered")
        for number in range(each):
            for key in keys:
                await client.send("o", f"{key}{number}", ordering_key=key)
        async with asyncio.timeout(60):
            await asyncio.gather(*[work() for _ in range(4)])
    assert done == {key: list(range(each)) for key in keys}
    assert failed > 20
