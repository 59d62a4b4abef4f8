"""One lost lease kept the others of a batch from being settled: they were delivered again."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.client.consumer.deliveries import Deliveries
from ternmq.model.errors import LeaseExpired
from ternmq.testing import InProcessBroker


@pytest.mark.parametrize("how", ["ack", "process"])
async def test_the_others_are_settled(real: InProcessBroker, how: str) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send_many("orders", [b"0", b"1", b"2", b"3"])
        two = [await client.pull("orders", group="g", max_messages=2) for _ in range(2)]
        both = Deliveries("orders", [part for one in two for part in one._parts], client.codecs)
        client._settler.lose(two[0][0].lease)
        if how == "ack":
            with pytest.raises(LeaseExpired):
                await both.ack()
        else:
            async with both.process():
                pass
        assert [delivery.settled for delivery in both[:]] == [False, False, True, True]
