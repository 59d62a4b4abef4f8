"""A blocking client runs `async def` handlers in its own loop, which no call of it may block."""

from __future__ import annotations

import asyncio
import threading

import ternmq
import ternmq.sync
from ternmq.testing import broker


def test_an_async_handler_of_a_blocking_client_is_told_how_to_send() -> None:
    told: list[str] = []
    done = threading.Event()
    with broker() as one, ternmq.sync.connect(one.url) as client:

        @client.handler("orders", group="g")
        async def handle(delivery: ternmq.Delivery) -> None:
            try:
                client.send("others", b"here")
            except ternmq.ClientError as error:
                told.append(str(error))
            await asyncio.to_thread(client.send, "others", b"there")
            done.set()

        client.send("orders", b"x")
        runs = threading.Thread(target=client.run, kwargs={"signals": False})
        runs.start()
        assert done.wait(30)
        assert [message.body for message in client.read("others")] == [b"there"]
        client.stop()
        runs.join(30)
    assert "asyncio.to_thread" in told[0]
