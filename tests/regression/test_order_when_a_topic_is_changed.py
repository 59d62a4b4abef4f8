"""When an ordered topic of several queues was changed, its sends were laid out anew.

A batch that waited for its answer was forgotten: the next one of its keys left beside it, and those
of ``send_many`` all went to the first queue, which refused them.
"""

from __future__ import annotations

from datetime import timedelta

import ternmq
from ternmq.client.producer.lanes import TopicFacts
from ternmq.testing import InProcessBroker
from tests.asynchronous import until


async def test_lanes_stay(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client, ternmq.connect(real.url) as admin:
        await admin.admin.create_topic("steps", ordered=True, queues=4)
        keys = [f"k{number}" for number in range(32)]
        await client.send_many("steps", [ternmq.Message(b"0", ordering_key=key) for key in keys])
        topic = client._producer._topics["steps"]
        lanes = topic.lanes
        await admin.admin.change_topic("steps", retention=timedelta(hours=1))
        await until(lambda: topic.facts is None, "it is told")
        sent = [client.send_soon("steps", b"1", ordering_key=key) for key in keys]
        await client.flush()
        assert all(one.result().offset is not None for one in sent)
        assert topic.facts == TopicFacts(ordered=True, queues=4)
        assert topic.lanes is lanes, "what is under way in them counts"
