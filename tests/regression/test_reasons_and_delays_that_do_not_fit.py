"""One settle that could not be laid out took those of the same turn along: they were lost.

An exception with a lone surrogate in its text (a file name that is no UTF-8), or a delay beyond
64 bits, was enough. A negative ``Retry(after=)`` ended the whole worker.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import ternmq
from ternmq.model.errors import InvalidRequest
from ternmq.testing import InProcessBroker


@pytest.mark.parametrize("bad", ["reason", "delay", "infinite"])
async def test_the_others_are_settled(real: InProcessBroker, bad: str) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send_many("orders", [b"good", b"bad", b"good too"])
        batch = await client.pull("orders", group="billing")
        good, other, too = batch
        results = asyncio.gather(
            good.ack(),
            other.retry(reason="\udcff") if bad == "reason" else other.retry(
                timedelta.max if bad == "delay" else float("inf")
            ),
            too.ack(),
            return_exceptions=True,
        )  # fmt: skip
        async with asyncio.timeout(3):
            first, second, third = await results
        assert first is None
        assert third is None
        assert second is None if bad == "reason" else isinstance(second, InvalidRequest)


@pytest.mark.parametrize("after", [-1.0, float("inf"), float("nan")])
async def test_a_handler_that_asks_for_a_delay_that_cannot_be_goes_on(
    real: InProcessBroker, after: float
) -> None:
    client = ternmq.connect(real.url)
    seen: list[bytes] = []

    @client.handler("orders", group="billing")
    async def on_order(body: bytes) -> None:
        seen.append(body)
        if body == b"late":
            raise ternmq.Retry(after=after)
        client.stop()

    async with ternmq.connect(real.url) as sender:
        await sender.send_many("orders", [b"late", b"fine"])
        async with asyncio.timeout(5):
            await client.run()
    assert seen[:2] == [b"late", b"fine"]
