"""A handler or block that fails after its lease was lost: the log says this, and no fate."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.fault.processes import wait_until
from tests.integration.client_shapes import API

FALSE = ("was processed", "processed after", "after it was settled", "is retried", "dead letter")
"""What is not true of a message that was lost and not settled."""


def assert_told(text: str) -> None:
    assert "ended; nothing was settled" in text
    assert [one for one in FALSE if one in text] == []


async def filled(client: Any) -> None:
    await client.admin.create_topic("t")
    await client.admin.create_group("t", "g", start="earliest", lease=1)
    await client.send("t", 1)


async def fail(timed: InProcessBroker, what: Any, delivery: Any) -> None:
    """Fail in the block of a delivery or batch after its lease was lost."""
    async with what.process():
        timed.clock.advance(seconds=60)
        await until(lambda: delivery.lost)
        raise ValueError("boom")


@pytest.mark.parametrize("way", ["pull", "consume", "batch"])
async def test_a_block(
    api: API, timed: InProcessBroker, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with api.connect(timed.url) as client:
        await filled(client)
        if way == "consume":
            async with client.consume("t", group="g") as consumer:
                await fail(timed, one := await anext(aiter(consumer)), one)
        else:
            batch = await client.pull("t", group="g", wait=10)
            await fail(timed, batch[0] if way == "pull" else batch, batch[0])
        await client.admin.group("t", "g")  # what is posted to the client's loop is over by now
    assert_told(caplog.text)
    assert "ValueError: boom" in caplog.text


async def test_an_async_handler(timed: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    client = ternmq.connect(timed.url)
    ended = asyncio.Event()

    @client.handler("t", group="g")
    async def work(delivery: ternmq.Delivery) -> None:
        if ended.is_set():
            return
        await client.admin.pause_group("t", "g")  # it does not come again to this handler
        timed.clock.advance(seconds=60)
        await until(lambda: delivery.lost)
        ended.set()
        raise ValueError("boom")

    async with client:
        await filled(client)
        running = asyncio.create_task(client.run(signals=False))
        await ended.wait()
        await until(lambda: "boom" in caplog.text)
        client.stop()
        await running
    assert_told(caplog.text)


def test_a_handler_in_a_thread(timed: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    client = ternmq.sync.connect(timed.url)
    ended = threading.Event()

    @client.handler("t", group="g")
    def work(delivery: ternmq.sync.Delivery) -> None:
        if ended.is_set():
            return
        client.admin.pause_group("t", "g")  # it does not come again to this handler
        timed.clock.advance(seconds=60)
        wait_until(lambda: delivery.lost, "its lease is lost")
        ended.set()
        raise ValueError("boom")

    with ternmq.sync.connect(timed.url) as admin:
        admin.admin.create_topic("t")
        admin.admin.create_group("t", "g", start="earliest", lease=1)
        admin.send("t", 1)
        thread = threading.Thread(target=client.run, kwargs={"signals": False})
        thread.start()
        assert ended.wait(60)
        wait_until(lambda: "boom" in caplog.text, "the failure is logged")
        client.stop()
        thread.join()
    assert_told(caplog.text)
