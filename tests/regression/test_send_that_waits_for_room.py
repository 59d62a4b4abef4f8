"""The time that ``send`` was given did not count while it waited for room."""

from __future__ import annotations

import time

import pytest

import ternmq
from ternmq.model.errors import BufferFull
from ternmq.testing import InProcessBroker
from tests.asynchronous import until


async def test_it_counts(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.send("orders", b"one")
    real.stop()
    await until(lambda: client._session.link is None, "the connection is lost")
    while not client._producer.room.full:
        client.send_soon("orders", bytes(1_000_000))
    began = time.monotonic()
    with pytest.raises(BufferFull):
        await client.send("orders", b"two", timeout=0.3)
    assert time.monotonic() - began < 9  # not the ten seconds that a send has by default
    with pytest.raises(ternmq.UnsentMessages):
        await client.close(timeout=0)
