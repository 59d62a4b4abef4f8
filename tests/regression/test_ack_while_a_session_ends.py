"""An ack that goes over a new connection is no ack whose answer was lost with the old one.

A client that gets another session loses its leases. An owner of one that loses it pulls, and the
pull sends what is recorded: that ack was marked as under way before, and given up as unknown.
"""

from __future__ import annotations

import ternmq
from ternmq.testing import InProcessBroker


async def test_an_ack_that_a_lost_lease_sends_is_answered(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send_many("orders", ["1", "2", "3"])
        async with client.consume("orders", group="consumed", max_in_flight=1) as consumer:
            await anext(consumer)
            (delivery,) = await client.pull("orders", group="pulled", max_messages=1)
            acked = delivery.lease.wait(delivery.offset, delivery.offset + 1)
            delivery.lease.ack(delivery.offset)
            link = client._session.link
            assert link is not None
            client._settler.opened(link, resumed=False)
            await acked
        (queue,) = (await client.admin.group("orders", "pulled")).queues
        assert queue.floor == 1
