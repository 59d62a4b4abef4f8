"""Why a message failed, where no consumer said anything."""

from __future__ import annotations

import asyncio

import pytest

import ternmq
import ternmq.sync
from ternmq.client.content.causes import in_words
from ternmq.testing import InProcessBroker
from ternmq.wire.control import FailureInfo
from tests.integration.client_shapes import API


async def test_a_lease_that_ended_is_a_reason_in_every_place(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        policy = ternmq.RetryPolicy(first=60, attempts=2, jitter=0)
        await client.admin.change_group("t", "g", retry=policy)
        await client.send("t", "x")
        for reason in ("", "the lease ended"):
            (one,) = await client.pull("t", group="g")
            assert one.last_reason == reason
            await asyncio.to_thread(timed.clock.advance, minutes=1)
            if not reason:
                (waiting,) = [one async for one in client.deadletters.waiting("t", "g")]
                assert waiting.reason == "the lease ended"
                await asyncio.to_thread(timed.clock.advance, minutes=2)
        (dead,) = [one async for one in client.deadletters.browse("t", "g")]
        assert dead.reason == "the lease ended"
        told = [("time", "the lease ended")] * 2
        assert [(one.cause, one.reason) for one in dead.failures] == told
        found = await client.deadletters.get("t", "g", 0)
        assert found.failures == dead.failures
        standing = await client.deadletters.standing("t", "g", 0)
        assert tuple(standing.failures) == dead.failures
        with pytest.raises(ternmq.MessageNotFound, match="no message at offset 1 of queue 0 of"):
            await client.deadletters.standing("t", "g", 1)
        with pytest.raises(ternmq.InvalidRequest, match="offset is a whole number from 0"):
            await client.deadletters.standing("t", "g", -1)


def test_what_a_consumer_said_stays() -> None:
    said = [
        FailureInfo(time_us=1, session=1, attempt=1, outcome="retry", cause=cause, reason=reason)
        for cause, reason in [("session", ""), ("consumer", ""), ("consumer", "no"), ("time", "x")]
    ]
    assert [one.reason for one in in_words(said)] == ["the consumer was gone", "", "no", "x"]
