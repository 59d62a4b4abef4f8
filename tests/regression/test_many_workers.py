"""A thousand workers that wait: a message woke several, and each looked at all the others."""

from __future__ import annotations

import asyncio

import pytest

import ternmq
from ternmq.client.consumer.consuming import engine_of
from ternmq.testing import InProcessBroker

WORKERS = 300


async def test_all_of_them_run_at_once(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    running = 0
    most = 0
    all_there = asyncio.Event()

    @client.handler("orders", group="billing", concurrency=WORKERS)
    async def on_order(body: bytes) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == WORKERS:
            all_there.set()
        await all_there.wait()
        running -= 1
        if body == b"last":
            client.stop()

    async with ternmq.connect(real.url) as sender:
        await sender.send_many("orders", [b"body"] * (WORKERS - 1) + [b"last"])
        async with asyncio.timeout(30):
            await client.run()
    assert most == WORKERS


async def test_one_is_enough_for_work_that_does_not_wait(real: InProcessBroker) -> None:
    """All messages of an answer are worked off before a second worker has its turn."""
    client = ternmq.connect(real.url)
    workers: set[asyncio.Task[object] | None] = set()
    seen = 0

    @client.handler("orders", group="billing", concurrency=WORKERS)
    async def on_order(body: bytes) -> None:
        nonlocal seen
        workers.add(asyncio.current_task())
        seen += 1
        if body == b"last":
            client.stop()

    async with ternmq.connect(real.url) as sender:
        await sender.send_many("orders", [b"body"] * (WORKERS - 1) + [b"last"])
        async with asyncio.timeout(30):
            await client.run()
    assert seen == WORKERS
    assert len(workers) < WORKERS // 10


async def test_who_is_cancelled_when_woken_wakes_another(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        async with client.consume("orders", group="billing") as deliveries:
            first = asyncio.ensure_future(anext(deliveries))
            second = asyncio.ensure_future(anext(deliveries))
            engine = engine_of(deliveries)
            wake = engine._wake

            def wake_one_and_cancel_it(count: int) -> None:
                monkeypatch.undo()
                wake(1)
                first.cancel()

            await asyncio.sleep(0)  # both wait
            monkeypatch.setattr(engine, "_wake", wake_one_and_cancel_it)
            await client.send("orders", b"one")
            async with asyncio.timeout(10):
                delivery = await second
            assert delivery.body == b"one"
            await delivery.ack()
            with pytest.raises(asyncio.CancelledError):
                await first
