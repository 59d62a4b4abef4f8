"""StopIteration of a threaded handler hung its worker; a cancelled inner task ended ``run``."""

from __future__ import annotations

import asyncio

import ternmq
from ternmq.testing import InProcessBroker


async def test_stop_iteration_in_a_thread(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    loop = asyncio.get_running_loop()
    seen: list[bytes] = []

    @client.handler("orders", group="billing", concurrency=1)
    def on_order(body: bytes) -> None:
        seen.append(body)
        if body == b"empty":
            next(iter(()))
        loop.call_soon_threadsafe(client.stop)

    async with ternmq.connect(real.url) as sender:
        await sender.send_many("orders", [b"empty", b"fine"])
        async with asyncio.timeout(5):
            await client.run()
    assert b"fine" in seen


async def test_a_handler_whose_inner_task_is_cancelled(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    attempts: list[int] = []

    @client.handler("orders", group="billing", concurrency=1)
    async def on_order(body: bytes, delivery: ternmq.Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) > 1:
            client.stop()
            return
        inner = asyncio.ensure_future(asyncio.sleep(10))
        inner.cancel()
        await inner

    async with ternmq.connect(real.url) as sender:
        await sender.send("orders", b"one")
        async with asyncio.timeout(10):
            await client.run()
    assert attempts == [1, 2], "it failed, and was tried again by the policy"
