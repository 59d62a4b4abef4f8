"""What was under way when `ternmq bench` was ended made its topic again, behind its removal."""

from __future__ import annotations

import asyncio

import ternmq
from ternmq.cli.broker import bench
from ternmq.testing import InProcessBroker


async def test_it_stays_away(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        async with bench._topic(client, None, "normal", groups=False) as name:
            sending = asyncio.ensure_future(client.send(name, b"x"))
            await asyncio.sleep(0)  # it has begun
            sending.cancel()
        await client.flush()
        assert name not in [one.spec.name for one in await client.admin.topics()]
