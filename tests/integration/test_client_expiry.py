"""Messages that expire: sent, judged, dead or dropped, with both clients."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API

START = datetime(2026, 1, 1, tzinfo=UTC)


async def advance(broker: InProcessBroker, seconds: float) -> None:
    await asyncio.to_thread(broker.clock.advance, timedelta(seconds=seconds))


async def bodies(client: Any, topic: str, group: str = "g") -> list[bytes]:
    """Pull and settle all there is; return the bodies."""
    found: list[bytes] = []
    while deliveries := await client.pull(topic, group=group, wait=0):
        for delivery in deliveries:
            found.append(delivery.body)
            await delivery.ack()
    return found


async def dead(client: Any, topic: str, group: str = "g") -> dict[bytes, tuple[int, str]]:
    """Return body -> (attempts, cause) of the dead letters."""
    return {
        one.message.body: (one.attempts, one.failures[-1].reason)
        async for one in client.deadletters.browse(topic, group)
    }


@pytest.mark.row("G13")
async def test_an_expired_message_is_a_dead_letter_and_never_delivered(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.send("t", b"short", expires_after=5)
        await client.send("t", b"long", expires_after=timedelta(minutes=5))
        await client.send("t", b"ever")
        assert await bodies(client, "t", "quick") == [b"short", b"long", b"ever"]
        await client.admin.create_group("t", "g")
        await advance(timed, 5)
        assert await bodies(client, "t") == [b"long", b"ever"]
        assert await dead(client, "t") == {b"short": (0, "expired")}


@pytest.mark.row("G13")
async def test_a_group_may_drop_what_expired(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        spec = await client.admin.change_group("t", "g", expired="drop")
        assert spec.expired is ternmq.Expired.DROP
        await client.send_many("t", [b"a", ternmq.Message(b"b", expires_after=9)], expires_after=2)
        await advance(timed, 3)
        assert await bodies(client, "t") == [b"b"]
        assert await dead(client, "t") == {}
        status = await client.admin.status()
        assert status.metrics["ternmq_expired_dropped_rows_total"] == 1


async def test_a_topic_says_how_long_its_messages_live(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        client.declare(ternmq.Topic("quotes", expires_after=10))
        await client.send("quotes", b"old")
        await client.send("quotes", b"older", expires_after=3)
        await advance(timed, 5)
        await client.send("quotes", b"new", expires_after=3600)
        await advance(timed, 6)
        assert await bodies(client, "quotes") == [b"new"]
        assert sorted(await dead(client, "quotes")) == [b"old", b"older"]
        await client.send("quotes", b"later")
        spec = await client.admin.change_topic("quotes", expires_after=0)
        assert spec.expires_us == 0
        await advance(timed, 100)
        assert await bodies(client, "quotes") == [b"later"]


async def test_every_way_to_send_takes_an_expiry(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        future = await client.send_soon("t", b"soon", expires_after=5)
        del future
        await client.flush()
        await client.send_many("t", [b"many"] * 3, expires_after=5)
        await client.send("t", b"keyed", key="k", headers={"a": "b"}, expires_after=5)
        await advance(timed, 6)
        await client.send("t", b"x", expires_after=1e-6)
        await advance(timed, 0.001)
        assert await bodies(client, "t") == []


async def test_a_delayed_message_lives_from_when_it_is_due(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        await client.send("t", b"a", deliver_after=60, expires_after=5)
        await client.send("t", b"b", deliver_after=60, expires_after=20)
        await advance(timed, 64)
        assert await bodies(client, "t", "other") == [b"a", b"b"]
        await advance(timed, 10)
        assert await bodies(client, "t") == [b"b"]


async def test_a_message_that_was_due_before_its_send_lives_from_the_send(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        past = START - timedelta(days=2)
        await client.send("t", b"a", deliver_at=past, expires_after=20)
        await client.send_many("t", [ternmq.Message(b"b", deliver_at=past, expires_after=5), b"c"])
        await client.admin.create_group("t", "g")
        await advance(timed, 6)
        assert await bodies(client, "t", "g") == [b"a", b"c"]
        assert list(await dead(client, "t")) == [b"b"]


async def test_an_expiry_too_far_ahead_has_only_its_message_refused(
    api: API, timed: InProcessBroker
) -> None:
    longest, delay = timedelta(days=36_525), timedelta(days=730)
    second = timedelta(seconds=1)
    async with api.connect(timed.url) as client:
        await client.send("t", b"first")
        for when in ({"deliver_after": delay}, {"deliver_at": START + delay + timedelta(days=1)}):
            with pytest.raises(ternmq.InvalidRequest, match="hundred years"):
                await client.send("t", b"x", expires_after=longest - delay + second, **when)
            with pytest.raises(ternmq.InvalidRequest, match="hundred years"):
                await client.send_soon("t", b"x", expires_after=longest, **when)
        told = await client.send_many(
            "t",
            [
                b"second",
                ternmq.Message(b"x", deliver_after=delay, expires_after=longest),
                ternmq.Message(b"third", expires_after=longest),
                ternmq.Message(b"later", deliver_after=delay, expires_after=longest - delay),
            ],
            return_errors=True,
        )
        assert [type(one) for one in told] == [
            ternmq.Receipt, ternmq.InvalidRequest, ternmq.Receipt, ternmq.Receipt
        ]  # fmt: skip
        told = await client.send_many(
            "t",
            [b"x", ternmq.Message(b"fourth", deliver_at=START)],
            deliver_after=delay, expires_after=longest, return_errors=True,
        )  # fmt: skip
        assert [type(one) for one in told] == [ternmq.InvalidRequest, ternmq.Receipt]
        assert await bodies(client, "t") == [b"first", b"second", b"third", b"fourth"]


@pytest.mark.parametrize(
    "after",
    [
        0, -1, -0.5, timedelta(0), timedelta(days=-1), float("nan"), float("inf"), float("-inf"),
        10**400, 1e300, True, "5s", b"5", [5], timedelta.max, timedelta(days=36_526),
        datetime(2262, 5, 1, tzinfo=UTC), (2262 - 2026) * 365 * 86_400,
    ],
)  # fmt: skip
async def test_expiries_that_cannot_be_are_refused_and_nothing_is_stored(
    api: API, timed: InProcessBroker, after: Any
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        with pytest.raises(ternmq.InvalidRequest, match="expires_after") as raised:
            await client.send("t", b"x", expires_after=after)
        assert type(raised.value) is ternmq.InvalidRequest
        with pytest.raises(ternmq.InvalidRequest, match="expires_after"):
            await client.send_many("t", [b"x"], expires_after=after)
        with pytest.raises(ternmq.PartialSendError) as partial:
            await client.send_many("t", [ternmq.Message(b"x", expires_after=after)])
        assert type(partial.value.failures[0].error) is ternmq.InvalidRequest
        (queue,) = (await client.admin.topic("t")).queues
        assert queue.next == 0


@pytest.mark.parametrize("after", [-1, 1e-9, timedelta(days=36_526), "1d", True])
async def test_lives_of_topics_that_cannot_be_are_refused(
    api: API, timed: InProcessBroker, after: Any
) -> None:
    async with api.connect(timed.url) as client:
        with pytest.raises(ternmq.InvalidRequest, match="expires_after"):
            ternmq.Topic("t", expires_after=after)
        with pytest.raises(ternmq.InvalidRequest, match="expires_after"):
            await client.admin.create_topic("t", expires_after=after)
        with pytest.raises(ternmq.InvalidRequest, match="expires"):
            ternmq.RetryPolicy(expires=after)
        assert await client.admin.topics() == []


async def test_retries_end_when_a_message_is_too_old(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        policy = ternmq.RetryPolicy(first=10, factor=1, jitter=0, expires=25)
        assert (
            str(policy) == "10s x 1, cap 5m, jitter 0%, 16 attempts, at most 25s, then dead-letter"
        )
        spec = await client.admin.change_group("t", "g", retry=policy)
        assert ternmq.RetryPolicy.of(spec.retry) == policy
        await client.send("t", b"x")
        for attempt in (1, 2, 3):
            (delivery,) = await client.pull("t", group="g", wait=0)
            assert delivery.attempt == attempt
            await delivery.retry(reason="no")
            await advance(timed, 10)
        assert not await client.pull("t", group="g", wait=0)
        assert await dead(client, "t") == {b"x": (3, "no")}


async def test_a_held_message_that_has_expired_does_not_come_again(
    api: API, timed: InProcessBroker
) -> None:
    """An operator lets it come again; its key goes on without it."""
    once = ternmq.RetryPolicy(attempts=1, exhausted=ternmq.Exhausted.HOLD)
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("o", ordered=True)
        await client.admin.create_group("o", "g", retry=once)
        await client.send("o", b"held", ordering_key="k", expires_after=60)
        await client.send("o", b"next", ordering_key="k")
        first = await client.pull("o", group="g", wait=10)
        await first[0].retry(reason="no")
        await advance(timed, 100)
        assert await bodies(client, "o") == []
        assert await client.deadletters.retry("o", "g", [0]) == []
        assert await bodies(client, "o") == [b"next"]
        ((body, (attempts, reason)),) = (await dead(client, "o")).items()
        assert (body, attempts, reason) == (b"held", 1, "expired")


async def test_a_pull_that_does_not_wait_finds_what_is_behind_many_expired_messages(
    api: API, timed: InProcessBroker
) -> None:
    """One pull records some of them in a turn; it was answered with nothing then."""
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        await client.send_many("t", [b"x"] * 20_000, expires_after=1)
        await client.send("t", b"ever")
        await advance(timed, 2)
        (delivery,) = await client.pull("t", group="g", wait=0)
        assert delivery.body == b"ever"
        await delivery.ack()
        assert len(await client.pull("t", group="g", wait=0)) == 0


async def test_a_pull_that_does_not_wait_finds_what_is_behind_many_messages_of_others(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g", filter="a = '1'")
        await client.send_many("t", [ternmq.Message(b"x", headers={"a": "2"})] * 30_000)
        await client.send("t", b"mine", headers={"a": "1"})
        (delivery,) = await client.pull("t", group="g", wait=0)
        assert delivery.body == b"mine"
