"""Rows of a key that were leased again before their first lease was known to be lost.

They were dropped: nobody worked on them, and the client kept them leased for ten minutes.
"""

from __future__ import annotations

import asyncio

import ternmq
from ternmq.client.consumer.consuming import engine_of
from ternmq.testing import InProcessBroker
from tests.asynchronous import until


async def test_they_are_worked_on(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("steps", ordered=True)
        for number in range(3):
            await client.send("steps", b"%d" % number, ordering_key="k")
        async with client.consume("steps", group="g", max_in_flight=10) as deliveries:
            first = await anext(deliveries)
            await client.admin.reset_group("steps", "g", to="earliest")
            await until(lambda: len(engine_of(deliveries)._leases) == 2, "leased again")
            client._settler.lose(first.lease)
            seen: list[bytes] = []
            async with asyncio.timeout(5):
                while len(seen) < 3:
                    delivery = await anext(deliveries)
                    seen.append(delivery.body)
                    await delivery.ack()
            assert seen == [b"0", b"1", b"2"]
            assert not engine_of(deliveries)._in_flight
