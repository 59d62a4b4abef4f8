"""Broadcast: each instance gets every message; failures are not tried again; places are kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ternmq
from ternmq.client.consumer.telling import DONE_ALL_HERE, DONE_HERE
from ternmq.model.specs import SubscriptionSpec
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true
from tests.integration.client_shapes import API


async def values(client: Any, **stated: Any) -> list[object]:
    """Return what an instance gets now, and ack it."""
    batch = await client.pull("t", broadcast=True, wait=0, **stated)
    found = [one.value for one in batch]
    if batch:
        await batch.ack()
    return found


def fail(error: Exception) -> None:
    """Raise an error."""
    raise error


async def test_each_instance_gets_every_message_sent_since_it_came(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as one, api.connect(timed.url, instance="b") as other:
        await one.admin.create_topic("t")
        await one.send("t", 0)
        assert await values(one) == []
        await one.send("t", 1)
        assert await values(other) == []
        await one.send("t", 2)
        assert await values(one) == [1, 2]
        assert await values(other) == [2]
        assert await one.admin.groups("t") == []
        listed = await one.admin.groups("t", broadcast=True)
        assert [group.group for group in listed] == ["$b-1", "$b.b"]
        assert [group.spec.mode for group in listed] == [ternmq.Mode.BROADCAST] * 2
        topic = await one.admin.topic("t")
        assert (topic.groups, topic.instances) == ([], 2)
        assert (await one.admin.group("t", "$b.b")).spec.instance is not None
        await one.admin.delete_group("t", "$b.b")
        assert (await one.admin.topic("t")).instances == 1


async def test_a_named_instance_goes_on_after_a_restart_and_an_unnamed_one_is_new(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t", broadcast=True)
        for stated in ({"instance": "a"}, {}):
            async with api.connect(timed.url) as first:
                assert not await first.pull("t", wait=0, **stated)
            await client.send("t", 1)
            async with api.connect(timed.url) as again:
                batch = await again.pull("t", wait=0, **stated)
                assert [one.value for one in batch] == ([1] if stated else [])


async def test_a_second_living_client_of_an_instance_is_refused(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url, instance="a") as one, api.connect(timed.url) as other:
        await one.admin.create_topic("t")
        assert await values(one) == []
        with pytest.raises(ternmq.InstanceTaken, match="instance 'a' of topic 't'") as refused:
            await values(other, instance="a")
        assert "TERNMQ_INSTANCE" in str(refused.value)
        names = [found.client for found in await one.admin.clients()]
        (shown,) = [name for name in names if f"is client '{name}'," in str(refused.value)]
        assert len(shown) == 8  # who knows the whole name may take the session
        assert await values(other, instance="b") == []
    async with api.connect(timed.url) as later:
        assert await values(later, instance="a") == []


async def test_a_failing_handler_is_called_once(
    api: API, timed: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ternmq")
    calls: list[int] = []
    client = api.connect(timed.url)

    if api.blocking:

        @client.handler("t", broadcast=True)  # type: ignore[untyped-decorator]
        def fails(number: int) -> None:
            calls.append(number)
            raise ValueError("boom")

    else:

        @client.handler("t", broadcast=True)  # type: ignore[untyped-decorator]
        async def fails_async(number: int) -> None:
            calls.append(number)
            raise ValueError("boom")

    async with api.connect(timed.url) as sender:
        await sender.admin.create_topic("t")
        running = asyncio.ensure_future(client.run(signals=False))

        async def joined() -> bool:
            return bool((await sender.admin.topic("t")).instances)

        try:
            await until_true(joined)
            await sender.send("t", 7)
            await until(lambda: calls == [7])

            async def settled() -> bool:
                (group,) = await sender.admin.groups("t", broadcast=True)
                return bool(group.queues[0].leased == 0)

            await until_true(settled)
            timed.clock.advance(hours=2)
            (group,) = await sender.admin.groups("t", broadcast=True)
            (queue,) = group.queues
            assert (queue.waiting, queue.dead, queue.leased, queue.ready) == (0, 0, 0, 0)
            assert calls == [7]
            assert "retry: none: a failed message is done for this instance" in caplog.text
            assert f"failed, {DONE_HERE}" in caplog.text
            assert "it is a dead letter now" not in caplog.text
        finally:
            client.stop()
            await running


@pytest.mark.parametrize("alone", [True, False], ids=["delivery", "batch"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ternmq.Retry("busy"), "asked for a retry, but a broadcast instance has no retries: "),
        (ternmq.Reject("bad"), "rejected, "),
        (ValueError("boom"), "failed"),
    ],
    ids=["retry", "reject", "error"],
)
async def test_the_log_says_that_a_failed_message_is_done_for_the_instance(
    timed: InProcessBroker,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    told: str,
    alone: bool,
) -> None:
    async with ternmq.connect(timed.url, instance="a") as client:
        await client.admin.create_topic("t", broadcast=True)
        assert not await client.pull("t", wait=0)
        await client.send_many("t", [1, 2])
        batch = await client.pull("t", wait=0)
        async with batch[0].process() if alone else batch.process():
            fail(error)
        assert told in caplog.text
        assert (DONE_HERE if alone else DONE_ALL_HERE) in caplog.text
        assert "dead letter" not in caplog.text
        (queue,) = (await client.admin.group("t", "$b.a")).queues
        assert (queue.dead, queue.waiting) == (0, 0)


async def test_an_instance_takes_no_retry_policy(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url, instance="a") as client:
        await client.admin.create_topic("t", broadcast=True)
        assert not await client.pull("t", wait=0)
        for wrong in (
            ternmq.RetryPolicy(attempts=3),
            ternmq.RetryPolicy(enabled=False, attempts=3),
            ternmq.RetryPolicy(enabled=False, exhausted=ternmq.Exhausted.HOLD),
        ):
            with pytest.raises(ternmq.InvalidRequest, match="takes no retry policy"):
                await client.admin.change_group("t", "$b.a", retry=wrong)
        spec = await client.admin.change_group("t", "$b.a", lease=5)
        assert not spec.retry.enabled


async def test_two_handlers_with_an_instance_each_get_every_message(
    api: API, timed: InProcessBroker
) -> None:
    got: set[tuple[str, int]] = set()
    client = api.connect(timed.url, instance="web")

    def declare(name: str, instance: str | None) -> None:
        if api.blocking:

            def handle(number: int) -> None:
                got.add((name, number))

            client.handler("t", broadcast=True, instance=instance)(handle)
        else:

            async def handle_async(number: int) -> None:
                got.add((name, number))

            client.handler("t", broadcast=True, instance=instance)(handle_async)

    declare("own", None)
    declare("cache", "web-cache")
    async with api.connect(timed.url) as sender:
        await sender.admin.create_topic("t")
        running = asyncio.ensure_future(client.run(signals=False))

        async def joined() -> bool:
            return bool((await sender.admin.topic("t")).instances == 2)

        try:
            await until_true(joined)
            await sender.send("t", 7)
            await until(lambda: got == {("own", 7), ("cache", 7)})
        finally:
            client.stop()
            await running


async def test_a_session_that_ended_is_joined_again(api: API, timed: InProcessBroker) -> None:
    """The broker forgot the client: a named instance keeps its place, with the new session."""
    async with api.connect(timed.url, instance="a") as client, api.connect(timed.url) as sender:
        await sender.admin.create_topic("t")
        assert await values(client) == []
        timed.stop(clean=False)
        timed.clock.advance(hours=1)
        timed.start()
        timed.clock.advance(seconds=30)
        await sender.send("t", 1)
        assert await values(client) == [1]


async def test_an_instance_is_removed_seven_days_after_its_client_left(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        async with api.connect(timed.url, instance="a") as one:
            assert await values(one) == []
        timed.clock.advance(days=6)
        assert (await client.admin.topic("t")).instances == 1
        timed.clock.advance(days=2)

        async def gone() -> bool:
            timed.clock.advance(seconds=2)
            return not (await client.admin.topic("t")).instances

        await until_true(gone)


async def test_an_instance_belongs_to_its_client_until_that_is_closed(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url, instance="a") as one, api.connect(timed.url) as other:
        await one.admin.create_topic("t")
        assert await values(one) == []
        for group in ("$b.a", "$broadcast"):
            with pytest.raises(ternmq.InvalidRequest, match="its client until the client is clo"):
                await one.leave("t", group=group)
        with pytest.raises(ternmq.InstanceTaken):
            await values(other, instance="a")
        await one.close()
        assert await values(other, instance="a") == []


async def test_waits_of_the_testing_kit_for_an_instance(timed: InProcessBroker) -> None:
    async with ternmq.connect(timed.url, instance="a") as client:
        await client.admin.create_topic("t", broadcast=True)
        assert not await client.pull("t", wait=0)
        await client.send("t", 1)
        with pytest.raises(TimeoutError, match="lag 1"):
            await asyncio.to_thread(timed.wait_idle, "t", "$b.a", timeout=0)
        batch = await client.pull("t", wait=0)
        await batch[0].retry(reason="busy")
        await asyncio.to_thread(timed.wait_idle, "t", "$b.a")
        for group in ("$b.a", "$b-7"):
            with pytest.raises(ternmq.InvalidRequest, match="done at once: wait_idle waits"):
                timed.wait_failed("t", group, timeout=0)


async def test_what_a_consumer_states_wrongly(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_topic("b", broadcast=True)
        with pytest.raises(ternmq.InvalidRequest, match="no broadcast topic"):
            await client.pull("t", wait=0)
        with pytest.raises(ternmq.ModeNotAllowed, match="is a broadcast topic"):
            await client.pull("b", group="g", wait=0)
        for wrong in (
            {"group": "g", "broadcast": True},
            {"group": "g", "instance": "a"},
            {"broadcast": False},
            {"broadcast": True, "start": "earliest"},
            {"broadcast": True, "mode": "shared"},
            {"broadcast": "yes"},
        ):
            with pytest.raises(ternmq.InvalidRequest):
                await client.pull("t", wait=0, **wrong)
        with pytest.raises(ternmq.InvalidName):
            await client.pull("t", group="$b.x", wait=0)
        with pytest.raises(ternmq.InvalidName):
            await client.pull("t", broadcast=True, instance="a b", wait=0)
        assert SubscriptionSpec().instance is None
