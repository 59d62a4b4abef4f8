"""Sends that turned out to lack an ordering key were forgotten: ``flush`` waited for ever."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.model.errors import OrderingKeyRequired, UnsentMessages
from ternmq.testing import InProcessBroker


async def test_flush_tells_of_them(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("steps", ordered=True)
    client = await ternmq.connect(real.url)
    sent = client.send_soon("steps", b"no key")
    client.send_oneway("steps", b"none either")
    with pytest.raises(UnsentMessages) as told:
        await client.flush(timeout=3)
    assert isinstance(told.value.failures[0].error, OrderingKeyRequired)
    assert isinstance(sent.exception(), OrderingKeyRequired)
    await client.close()
