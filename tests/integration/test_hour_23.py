"""What an hour with the docs alone found, the 23rd."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API


async def test_a_reset_to_an_offset_of_the_only_queue(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("one", queues=1)
        await client.admin.create_topic("two", queues=2)
        for topic in ("one", "two"):
            await client.admin.create_group(topic, "g")
            await client.send_many(topic, [b"1", b"2", b"3"], queue=0)
        (told,) = await client.admin.reset_group("one", "g", 2)
        assert (told.offset, told.unread) == (2, 1)
        with pytest.raises(ternmq.InvalidRequest, match="has 2 queues"):
            await client.admin.reset_group("two", "g", 2)
        with pytest.raises(ternmq.InvalidRequest, match="to is an offset from 0 to"):
            await client.admin.reset_group("one", "g", -1)


async def test_offsets_out_of_bounds_say_what_the_bounds_are(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("one", queues=1)
        await client.admin.create_group("one", "g")
        await client.send_many("one", [b"1", b"2"])
        (delivery,) = await client.pull("one", group="g", max_messages=1)
        await delivery.ack()
        with pytest.raises(ternmq.InvalidRequest, match="offset must be 0 to 2: from the oldest"):
            await client.admin.reset_group("one", "g", 99)
        with pytest.raises(ternmq.InvalidRequest, match="offset must be 1 to 2: a skip goes forw"):
            await client.admin.skip("one", "g", queue=0, offset=0)


async def test_the_queue_of_a_message_that_is_named_by_its_id(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        receipt = await client.send("one", b"1", id="one")
        with pytest.raises(ternmq.InvalidRequest, match="queue= belongs to offset="):
            await client.get("one", "one", queue=3)
        assert (await client.get("one", "one")).id == receipt.id
