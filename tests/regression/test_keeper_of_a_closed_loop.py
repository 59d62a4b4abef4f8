"""The keeper went on when the client's loop was closed: for ten minutes nobody got its messages."""

from __future__ import annotations

import asyncio
import threading
import time

import ternmq
from ternmq.testing import broker
from tests.asynchronous import until


def test_it_ends_with_the_loop() -> None:
    with broker(manual=False) as one:

        async def leave() -> tuple[threading.Thread, object]:
            client = await ternmq.connect(one.url)
            await client.send("orders", b"one")
            held = await client.pull("orders", group="g")
            thread = client._keeper._thread
            link = client._session.link
            assert thread is not None
            assert link is not None
            client._session.closed = True  # nobody connects again
            link.abort()
            await until(lambda: client._session.link is None, "the connection is lost")
            return thread, held

        thread, _held = asyncio.run(leave())
        end = time.monotonic() + 5
        while thread.is_alive():
            assert time.monotonic() < end, "the keeper goes on"
            thread.join(0.1)
