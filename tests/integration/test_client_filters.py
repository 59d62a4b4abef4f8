"""Header filters, asked for by clients of a real broker."""

from __future__ import annotations

import asyncio

import pytest

import ternmq
from ternmq.client.declaration.source import Source
from ternmq.model.specs import SubscriptionSpec
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API

WANTED = "region = 'eu' AND amount >= 100"


async def filled(api, url):
    """Return a client, and the bodies that the filter passes."""
    client = await api.connect(url)
    await client.admin.create_topic("orders")
    for body in ("eu 99", "eu 100", "us 500", "eu many", "eu 1e3"):
        region, amount = body.split()
        await client.send("orders", body.encode(), headers={"region": region, "amount": amount})
    await client.send("orders", b"none")
    return client, [b"eu 100", b"eu 1e3"]


async def test_pull_consume_and_batches_get_what_passes(api: API, real: InProcessBroker) -> None:
    client, expected = await filled(api, real.url)
    batch = await client.pull("orders", group="pull", filter=WANTED)
    assert batch.bodies == expected
    await batch.ack()
    assert not await client.pull("orders", group="pull", wait=0)
    got = []
    async with client.consume("orders", group="consume", filter=WANTED) as deliveries:
        async for delivery in deliveries:
            got.append(delivery.body)
            await delivery.ack()
            if len(got) == 2:
                break
    assert got == expected
    async for batch in client.consume_batches(
        "orders", group="batches", filter=WANTED, max_messages=2
    ):
        assert batch.bodies == expected
        await batch.ack()
        break
    (queue,) = (await client.admin.group("orders", "pull")).queues
    assert (queue.floor, queue.cursor, queue.lag) == (6, 6, 0)
    await client.close()


async def test_tags_and_headers_together(api: API, real: InProcessBroker) -> None:
    client, _ = await filled(api, real.url)
    await client.send("orders", b"both", tag="paid", headers={"region": "eu", "amount": "7"})
    await client.send("orders", b"tag", tag="paid", headers={"region": "us", "amount": "7"})
    batch = await client.pull(
        "orders", group="g", tags="paid", filter="region = 'eu' AND $tag STARTSWITH 'p'"
    )
    assert batch.bodies == [b"both"]
    await client.close()


async def test_a_group_has_one_filter(api: API, real: InProcessBroker) -> None:
    client, expected = await filled(api, real.url)
    spec = await client.admin.create_group("orders", "g", filter=WANTED)
    assert spec.filter == WANTED
    for same in (WANTED, "region='eu' and (amount >= 100)", None):
        batch = await client.pull("orders", group="g", filter=same)
        assert batch.bodies == expected
        await batch.release()
    for other in ("", "region = 'eu'"):
        with pytest.raises(ternmq.GroupSettingsMismatch, match=r"has filter .*, not"):
            await client.pull("orders", group="g", filter=other, wait=0)
    changed = await client.admin.change_group("orders", "g", filter="amount IS NULL")
    assert changed.filter == "amount IS NULL"
    await client.send("orders", b"amount", headers={"amount": "5"})
    await client.send("orders", b"new")
    batch = await client.pull("orders", group="g")
    assert batch.bodies[-1] == b"new"
    assert b"amount" not in batch.bodies
    await client.close()


async def test_wrong_filters_are_refused_before_anything_is_made(
    api: API, real: InProcessBroker
) -> None:
    client, _ = await filled(api, real.url)
    await client.admin.create_topic("steps", ordered=True)
    for wrong in ("amount >", "(" * 10_000, "x" * (1 << 20), "a LIKE 'x'"):
        with pytest.raises(ternmq.InvalidFilter, match="column"):
            await client.pull("orders", group="g", filter=wrong)
        with pytest.raises(ternmq.InvalidFilter, match="column"):
            await client.admin.create_group("orders", "g", filter=wrong)
    with pytest.raises(ternmq.InvalidRequest, match="filter is a str"):
        await client.pull("orders", group="g", filter=3)
    with pytest.raises(ternmq.InvalidRequest, match="keeps the order"):
        await client.pull("steps", group="g", filter="a = 1")
    assert await client.admin.groups() == []
    await client.close()


async def test_a_handler_declares_it_and_run_changes_it(api: API, real: InProcessBroker) -> None:
    client, expected = await filled(api, real.url)
    await client.admin.create_group("orders", "g", filter="region = 'xx'")
    got = []

    def handle(body: bytes) -> None:
        got.append(body)

    client.handler("orders", group="g", filter=WANTED)(handle)
    changes = await client.apply()
    assert [str(one) for one in changes] == [
        f"group g on orders: filter \"region = 'xx'\" -> {WANTED!r}"
    ]
    assert await client.apply() == []
    batch = await client.pull("orders", group="g")
    assert batch.bodies == expected
    await client.close()


def test_an_older_broker_that_ignores_the_filter_is_noticed() -> None:
    """It would deliver every message."""
    source = Source("orders", "g", filter=WANTED)
    source.check_joined(SubscriptionSpec(filter=f"({WANTED})"))
    with pytest.raises(ternmq.GroupSettingsMismatch, match="too old for filter="):
        source.check_joined(SubscriptionSpec())
    Source("orders", "g").check_joined(SubscriptionSpec(filter="a = 1"))


async def test_a_waiting_pull_wakes_for_a_message_that_passes(
    api: API, real: InProcessBroker
) -> None:
    client, _ = await filled(api, real.url)
    await client.pull("orders", group="g", filter="n = 1", wait=0)
    waiting = asyncio.ensure_future(client.pull("orders", group="g", wait=30))
    await client.send("orders", b"two", headers={"n": "2"})
    await client.send("orders", b"one", headers={"n": "1"})
    assert (await waiting).bodies == [b"one"]
    await client.close()
