"""A replay of several requests that the broker refuses at a later one says what is done already.

With a filter, the broker only learns from the rows how many of them would wait.
"""

from __future__ import annotations

import pytest

import ternmq
from ternmq.testing import broker

MESSAGES = 1000
LIMITS = {"limits.replay_rows": "600"}


async def test_a_replay_that_is_too_large_says_what_is_done_already() -> None:
    with broker(settings=LIMITS) as one:
        async with ternmq.connect(one.url) as client:
            await client.admin.create_topic("orders")
            await client.send_many(
                "orders", [ternmq.Message(b"x", tag="a") for _ in range(MESSAGES)]
            )
            await client.admin.create_group("orders", "billing", tags="a", start="earliest")
            await client.admin.reset_group("orders", "billing", to="latest")
            with pytest.raises(ternmq.ReplayTooLarge) as raised:
                await client.replay("orders", "billing", offsets=range(MESSAGES))
            (group,) = await client.admin.groups("orders")
    assert str(raised.value).startswith("512 messages are delivered again, then: queue 0: 51")
    assert group.queues[0].ready == 512
