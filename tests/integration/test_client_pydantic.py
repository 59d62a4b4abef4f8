"""Pydantic models as bodies, and by annotation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pydantic

import ternmq
from ternmq.client.admin.failedmessage import FailedMessage
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true
from tests.integration.client_shapes import API


class Line(pydantic.BaseModel):
    article: str
    price: Decimal = pydantic.Field(ge=0)


class Order(pydantic.BaseModel):
    no: int = pydantic.Field(gt=0)
    placed: datetime
    lines: list[Line] = []


ORDER = Order(
    no=7,
    placed=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    lines=[Line(article="pear", price=Decimal("1.25"))],
)


async def test_a_model_is_a_body_and_is_decoded(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.send("orders", ORDER)
        await client.send_many("orders", [ORDER, ternmq.Message(ORDER, key="k")])
        await client.send("orders", [ORDER], content_type="application/msgpack")
        first, *_, last = await client.pull("orders", group="g", max_messages=4)
        assert first.content_type == "application/json"
        assert first.value["lines"] == [{"article": "pear", "price": "1.25"}]
        assert first.decode(Order) == ORDER
        assert last.decode(list[Order]) == [ORDER]


async def test_a_handler_s_annotation_is_a_model(real: InProcessBroker) -> None:
    client = await ternmq.connect(real.url)
    got: list[Order] = []
    dead: list[FailedMessage] = []

    @client.handler("orders", group="g")
    async def handle(order: Order) -> None:
        got.append(order)

    await client.send("orders", ORDER)
    await client.send("orders", {"no": -1, "placed": "2026-01-02T03:04:05Z"})
    running = asyncio.ensure_future(client.run())
    async with ternmq.connect(real.url) as other:
        await until(lambda: got, "the good one is worked on", 30.0)

        async def died() -> bool:
            dead[:] = [one async for one in other.deadletters.browse("orders", "g")]
            return bool(dead)

        await until_true(died)
    client.stop()
    await running
    assert got == [ORDER]
    (one,) = dead
    assert one.reason.startswith("decode")
    assert "greater than 0" in one.reason
