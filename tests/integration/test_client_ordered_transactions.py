"""Handlers of ordered groups that settle in transactions: one message of a key after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq import Decision
from ternmq.testing import InProcessBroker
from tests.asynchronous import until, until_true
from tests.integration.client_shapes import API
from tests.integration.test_client_checked import GROUP, taken, unknowing

COUNT = 5


async def running(
    real: InProcessBroker, work: Callable[[Any, Any, bytes], Any], **settings: Any
) -> tuple[Any, Any]:
    """Send messages of one key, and run a worker that settles each in a transaction of its own."""
    client = ternmq.connect(real.url)
    unknowing(client)

    @client.handler("o", group="g")
    async def handle(body: bytes, delivery: ternmq.Delivery) -> None:
        async with client.transaction(GROUP, **settings) as tx:
            await tx.ack(delivery)
            await tx.send("out", body)
            await work(client, tx, body)

    async with ternmq.connect(real.url) as sender:
        await sender.admin.create_topic("o", ordered=True)
        for number in range(COUNT):
            await sender.send("o", b"%d" % number, ordering_key="k")
    return client, asyncio.create_task(client.run())


async def test_the_next_message_of_a_key_waits_for_the_decision(
    api: API, real: InProcessBroker
) -> None:
    begun: list[bytes] = []
    at_once = 0

    async def work(client: Any, tx: Any, body: bytes) -> None:
        nonlocal at_once
        begun.append(body)
        at_once += 1
        assert at_once == 1
        try:
            await asyncio.sleep(0.05)  # others of the key would begin meanwhile
            if begun.count(b"2") == 1 and body == b"2":
                raise ZeroDivisionError
        finally:
            at_once -= 1
        if body == b"%d" % (COUNT - 1):
            client.stop()

    _, run = await running(real, work)
    await run
    assert begun == [b"0", b"1", b"2", b"2", b"3", b"4"]
    async with api.connect(real.url) as reader:
        assert await taken(reader, "out") == [b"%d" % number for number in range(COUNT)]


async def test_behind_a_message_whose_transaction_is_undecided_others_are_given_back(
    real: InProcessBroker,
) -> None:
    begun: list[bytes] = []
    ids: list[str] = []

    async def work(client: Any, tx: Any, body: bytes) -> None:
        begun.append(body)
        ids.append(tx.id)
        if len(begun) == 1:
            raise ZeroDivisionError  # the checker does not know what became of it
        if body == b"%d" % (COUNT - 1):
            client.stop()

    _, run = await running(real, work, on_error="check")
    await until(lambda: begun)
    async with ternmq.connect(real.url) as operator:

        async def given_back() -> bool:
            queue = (await operator.admin.group("o", "g")).queues[0]
            return (queue.leased, queue.ready) == (1, COUNT - 1)

        await until_true(given_back)
        assert begun == [b"0"]
        await operator.admin.resolve_transaction(ids[0], commit=True)
        await run
        assert begun == [b"%d" % number for number in range(COUNT)]
        assert await operator.transaction_outcome(ids[0]) is Decision.COMMIT


@pytest.mark.parametrize("restarted", [False, True])
def test_an_ack_of_a_transaction_that_others_rolled_back_keeps_the_order(
    real: InProcessBroker, *, restarted: bool
) -> None:
    """With a restart, the client cannot know whether its first request was carried out."""
    begun: list[tuple[int, bool]] = []
    refused: list[type[ternmq.TernMQError]] = []
    worker = ternmq.sync.connect(real.url)
    worker.checker(GROUP)(lambda tx: Decision.ROLLBACK)
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("o", ordered=True)

        @worker.handler("o", group="g", concurrency=4, retry=ternmq.RetryPolicy(first=0.1))
        def handle(number: int, delivery: ternmq.sync.Delivery) -> None:
            begun.append((number, delivery.maybe_redelivered))
            with worker.transaction(GROUP) as tx:
                tx.send("out", number)
                if not refused:
                    client.admin.resolve_transaction(tx.id, commit=False)
                    if restarted:
                        real.restart(clean=False)
                try:
                    tx.ack(delivery)
                except ternmq.TernMQError as error:
                    refused.append(type(error))
                    raise
            if number == 2:
                worker.stop()

        client.send_many("o", [ternmq.Message(at, ordering_key="k") for at in range(3)])
        worker.run()
        assert refused == [ternmq.TransactionDecided]
        assert [number for number, _ in begun] == [0, 0, 1, 2]
        assert begun[1] == (0, True)
        assert [one.value for one in client.read("out")] == [0, 1, 2]
