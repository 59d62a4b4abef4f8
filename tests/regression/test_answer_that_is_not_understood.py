"""An answer that could not be understood was an end for whoever asked.

A consumer never pulled again, and a producer never asked again what a topic is like.
"""

from __future__ import annotations

import asyncio

import pytest

import ternmq
from ternmq.client.consumer import puller
from ternmq.client.consumer.chunk import chunks_of
from ternmq.model.errors import ProtocolError
from ternmq.testing import InProcessBroker
from ternmq.wire import control


async def test_a_consumer_pulls_again(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = iter([True])

    def once(*arguments: object) -> object:
        if next(damaged, False):
            raise ProtocolError("the answer's records are damaged")
        return chunks_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(puller, "chunks_of", once)
    async with ternmq.connect(real.url) as client:
        await client.send("orders", b"one")
        async with client.consume("orders", group="g") as deliveries, asyncio.timeout(10):
            delivery = await anext(deliveries)
            assert delivery.body == b"one"
            await delivery.ack()


async def test_a_producer_asks_again(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = iter([True])
    decode = control.decode_answer

    def once(body: bytes, kind: type[control.Topics]) -> control.Topics:
        if kind is control.Topics and next(damaged, False):
            raise ProtocolError("not understood")
        return decode(body, kind)

    monkeypatch.setattr(control, "decode_answer", once)
    async with ternmq.connect(real.url) as client, asyncio.timeout(5):
        assert (await client.send("orders", b"one")).durable
