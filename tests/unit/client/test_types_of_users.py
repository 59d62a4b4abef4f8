"""What a type checker says of an application's code."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

CODE = """
from collections.abc import Sequence
from typing import assert_type

import ternmq
import ternmq.sync

client = ternmq.connect()
blocking = ternmq.sync.connect()


@client.handler("orders", group="a")
async def in_the_loop(order: dict[str, int], delivery: ternmq.Delivery) -> None:
    assert_type(delivery.attempt, int)
    await delivery.extend(30)
    await delivery.ack()


@client.handler("orders", group="b")
@blocking.handler("orders", group="b")
def in_a_thread(order: dict[str, int], delivery: ternmq.sync.Delivery) -> None:
    assert_type(delivery.attempt, int)
    assert_type(delivery.decode(int), int)
    delivery.extend(30)
    delivery.ack()
    with delivery.process() as same:
        assert_type(same, ternmq.sync.Delivery)


assert_type(in_a_thread({}, blocking.pull("orders", group="c")[0]), None)


def iterates() -> None:
    with blocking.consume("orders", group="d") as deliveries:
        for delivery in deliveries:
            in_a_thread({}, delivery)


async def failures(topic: str) -> tuple[ternmq.TopicInfo, list[ternmq.GroupInfo]]:
    try:
        await client.send_many(topic, [1])
    except ternmq.PartialSendError as error:
        assert_type(error.failures, Sequence[ternmq.Failure])
        assert_type(error.receipts, Sequence[ternmq.Receipt | None])
    except ternmq.UnsentMessages as error:
        assert_type(error.failures, Sequence[ternmq.Failure])
    found = await client.get(topic, "id")
    assert_type(found.decode(int), int)
    async for dead in client.deadletters.browse(topic, "g"):
        assert_type(dead.failures, tuple[ternmq.FailureInfo, ...])
    changes: list[ternmq.Change] = await client.apply()
    groups = await client.admin.groups(topic)
    queue: ternmq.GroupQueueInfo = groups[0].queues[0]
    assert changes and queue
    return await client.admin.topic(topic), groups


# What is wrong is found; an ignore that is not needed would be an error.
async def wrong(one: ternmq.Delivery, other: ternmq.sync.Delivery) -> None:
    await other.ack()  # type: ignore[func-returns-value, misc]
    one.ack()  # type: ignore[unused-coroutine]
    in_a_thread({}, one)  # type: ignore[arg-type]
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_handlers_and_their_deliveries(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    code = tmp_path / "consumers.py"
    code.write_text(CODE)
    assert request.config.cache is not None
    kept = request.config.cache.mkdir("mypy")  # a second run takes a second
    checks = ["--strict", "--enable-error-code=unused-awaitable", "--cache-dir", str(kept)]
    said, trouble, status = api.run(["--config-file=", *checks, str(code)])
    assert (status, trouble) == (0, ""), said
