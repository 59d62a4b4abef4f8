"""Whoever waited for a settle, or sent while the client closed, waited for ever."""

from __future__ import annotations

import asyncio

import ternmq
from ternmq.model.errors import ClientError
from ternmq.testing import InProcessBroker
from tests.asynchronous import until


async def test_an_ack_without_connection(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.send("orders", b"one")
    (delivery,) = await client.pull("orders", group="billing")
    real.stop()
    waiting = asyncio.create_task(delivery.ack())
    closing = asyncio.create_task(client.close())
    async with asyncio.timeout(20):
        await closing
        (told,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(told, ClientError)


async def test_an_ack_after_the_end(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.send("orders", b"one")
    (delivery,) = await client.pull("orders", group="billing")
    await client.close()
    async with asyncio.timeout(5):
        (told,) = await asyncio.gather(delivery.ack(), return_exceptions=True)
    assert isinstance(told, ClientError)


async def test_sends_while_it_closes(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    outcomes: list[object] = []

    async def send_on() -> None:
        try:
            while True:
                outcomes.append(await client.send("orders", b"one"))
        except ClientError as error:
            outcomes.append(error)

    senders = [asyncio.create_task(send_on()) for _ in range(8)]
    await until(lambda: len(outcomes) >= len(senders), "they send")
    await client.close(timeout=0.05)
    async with asyncio.timeout(5):
        await asyncio.gather(*senders)


async def test_many_more_than_the_buffer_while_it_closes(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    await client.send("orders", b"one")
    body = bytes(1_000_000)
    sending = asyncio.create_task(client.send_many("orders", [body] * 100, return_errors=True))
    await until(lambda: client.stats().batches > 1, "the first have left")
    await client.close(timeout=0.01)
    async with asyncio.timeout(15):
        outcomes = await sending
    assert len(outcomes) == 100
