"""A message that joined a load that waited for a connection was given up with it, at once."""

from __future__ import annotations

import asyncio
import time

import pytest

import ternmq
from ternmq.model.errors import CannotConnect
from ternmq.testing import InProcessBroker
from tests.asynchronous import until


async def test_it_has_its_own_time(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url, timeout=2) as client:
        await client.send("orders", b"one")
        real.stop()
        await until(lambda: client._session.link is None, "the connection is lost")
        first = client.send_soon("orders", b"two")
        await asyncio.sleep(1.5)  # three quarters of the first one's time
        began = time.monotonic()
        with pytest.raises(CannotConnect):
            await client.send("orders", b"three")
        assert time.monotonic() - began > 1.5
        assert first.exception()
