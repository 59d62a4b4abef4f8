"""A failure that was the last of its policy left the later rows of its key leased to nobody.

The client drops them when one before them fails, since the broker ends their leases; it does not
when the failure makes the row a dead letter. They came again by time, and counted.
"""

from __future__ import annotations

import asyncio

import ternmq
from ternmq.testing import InProcessBroker


async def test_the_next_comes_at_once(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("steps", ordered=True)
        await client.admin.create_group("steps", "g")
        await client.admin.change_group("steps", "g", retry=ternmq.RetryPolicy(attempts=1))
        for number in range(3):
            await client.send("steps", b"%d" % number, ordering_key="k")
        async with client.consume("steps", group="g", max_in_flight=10) as deliveries:
            first = await anext(deliveries)
            await first.retry(reason="never")
            async with asyncio.timeout(5):
                seen = [await anext(deliveries)]
                await seen[0].ack()
                seen.append(await anext(deliveries))
                await seen[1].ack()
        assert [(one.body, one.attempt) for one in seen] == [(b"1", 1), (b"2", 1)]
