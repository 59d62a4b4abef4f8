"""``consume_batches`` while the broker is away for longer than the client's timeout."""

from __future__ import annotations

import asyncio

import ternmq
from ternmq.testing import InProcessBroker
from tests.asynchronous import until_true


async def test_batches_go_on_after_an_outage(real: InProcessBroker) -> None:
    async def leased() -> bool:
        return bool((await sender.admin.group("orders", "g")).queues[0].leased)

    async with (
        ternmq.connect(real.url, timeout=0.3) as client,
        ternmq.connect(real.url) as sender,
        asyncio.timeout(60),
    ):
        await client.admin.create_topic("orders")
        batches = client.consume_batches("orders", group="g", max_messages=10, max_wait=20)
        waiting = asyncio.ensure_future(anext(batches))
        await sender.send("orders", b"one")
        await until_true(leased)
        await asyncio.to_thread(real.stop, clean=False)
        # The rest of the batch does not come: what came is returned while the broker is away.
        batch = await waiting
        assert [one.body for one in batch] == [b"one"]
        waiting = asyncio.ensure_future(anext(batches))
        assert not (await asyncio.wait([waiting], timeout=1.0))[0]  # longer than the timeout
        await asyncio.to_thread(real.start)
        for number in range(10):
            await sender.send("orders", b"%d" % number)
        assert len(await waiting) == 10
        await client.close()
