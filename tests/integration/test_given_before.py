"""Messages that a group was given before say so when they come again after a replay or a reset."""

from __future__ import annotations

import asyncio

import pytest

from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API

pytestmark = pytest.mark.row("E19")


async def taken(client: object, count: int) -> list[tuple[bytes, bool, int]]:
    """Take and ack messages; return body, mark and deliveries of each, sorted."""
    found: list[tuple[bytes, bool, int]] = []
    while len(found) < count:
        got = await client.pull("orders", group="g", max_messages=count - len(found), wait=10)  # type: ignore[attr-defined]
        assert got, f"{len(found)} of {count}"
        found += [(one.body, one.maybe_redelivered, one.deliveries) for one in got]
        await got.ack()
    return sorted(found)


async def test_after_a_reset(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders", queues=1)
        await client.admin.create_group("orders", "g")
        await client.send_many("orders", [b"1", b"2", b"3"])
        assert await taken(client, 2) == [(b"1", False, 1), (b"2", False, 1)]
        await client.admin.reset_group("orders", "g", 0, queue=0)
        assert await taken(client, 3) == [(b"1", True, 2), (b"2", True, 2), (b"3", False, 1)]
        await client.admin.reset_group("orders", "g", "earliest")
        await client.send("orders", b"4")
        assert await taken(client, 4) == [
            (b"1", True, 2), (b"2", True, 2), (b"3", True, 2), (b"4", False, 1),
        ]  # fmt: skip


async def test_after_a_skip_and_a_reset(api: API, real: InProcessBroker) -> None:
    """What was skipped was never given."""
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders", queues=1)
        await client.admin.create_group("orders", "g")
        await client.send_many("orders", [b"1", b"2", b"3"])
        assert await taken(client, 1) == [(b"1", False, 1)]
        await client.admin.reset_group("orders", "g", 2, queue=0)
        assert await taken(client, 1) == [(b"3", False, 1)]
        await client.admin.reset_group("orders", "g", 0, queue=0)
        assert await taken(client, 3) == [(b"1", True, 2), (b"2", False, 1), (b"3", True, 2)]


async def test_after_a_replay(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders", queues=1)
        await client.admin.create_group("orders", "g")
        await client.send_many("orders", [b"1", b"2", b"3"])
        await taken(client, 3)
        await client.replay("orders", "g", offsets=range(1, 3))
        assert await taken(client, 2) == [(b"2", True, 2), (b"3", True, 2)]


@pytest.mark.parametrize("clean", [True, False])
async def test_after_a_restart_in_between(api: API, real: InProcessBroker, clean: bool) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders", queues=1)
        await client.admin.create_group("orders", "g")
        await client.send_many("orders", [b"1", b"2", b"3"])
        await taken(client, 2)
        await client.replay("orders", "g", offsets=[0])
        await asyncio.to_thread(real.restart, clean=clean)
        assert await taken(client, 1) == [(b"1", True, 2)]
        await client.admin.reset_group("orders", "g", "earliest")
        await asyncio.to_thread(real.restart, clean=clean)
        # After a kill, all that was stored then may have been delivered.
        assert await taken(client, 3) == [(b"1", True, 2), (b"2", True, 2), (b"3", not clean, 1)]


async def test_in_an_ordered_group(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders", queues=1, ordered=True)
        await client.admin.create_group("orders", "g")
        for at in range(4):
            await client.send("orders", b"%d" % at, ordering_key="ab"[at % 2])
        await taken(client, 4)
        await client.replay("orders", "g", offsets=[1])
        assert await taken(client, 1) == [(b"1", True, 2)]
        await client.admin.reset_group("orders", "g", "earliest")
        await client.send("orders", b"4", ordering_key="a")
        assert await taken(client, 5) == [
            (b"0", True, 2), (b"1", True, 2), (b"2", True, 2), (b"3", True, 2), (b"4", False, 1),
        ]  # fmt: skip


async def test_another_group_is_given_them_for_the_first_time(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders", queues=1)
        await client.admin.create_group("orders", "g")
        await client.send("orders", b"1")
        await taken(client, 1)
        await client.admin.reset_group("orders", "g", 0, queue=0)
        await client.admin.delete_group("orders", "g")
        await client.admin.create_group("orders", "g")
        assert await taken(client, 1) == [(b"1", False, 1)]
