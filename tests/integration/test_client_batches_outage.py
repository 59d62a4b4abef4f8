"""``consume_batches`` while the broker stops, or is away for longer than the client's timeout."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ternmq
from ternmq.client.consumer import puller
from ternmq.client.consumer.deliveries import Leased
from ternmq.client.consumer.puller import Puller
from ternmq.client.declaration.source import Source
from ternmq.testing import InProcessBroker
from tests.asynchronous import until_true
from tests.black_box.process import BrokerProcess
from tests.integration.client_shapes import API


async def test_batches_go_on_after_an_outage(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Exception] = []
    pull = Puller.pull

    async def watched(
        self: Puller, source: Source, most: int, wait: float, *, patience: float | None = None
    ) -> Leased | None:
        try:
            return await pull(self, source, most, wait, patience=patience)
        except ternmq.CannotConnect as error:
            failed.append(error)
            raise

    async def given_up() -> bool:
        """Whether a pull without a message in hand has given up, after one with."""
        return len(failed) >= 2

    monkeypatch.setattr(Puller, "pull", watched)
    monkeypatch.setattr(puller, "_LONG_WAIT", 0.2)

    async def leased() -> bool:
        return bool((await sender.admin.group("orders", "g")).queues[0].leased)

    async with (
        ternmq.connect(real.url, timeout=0.3) as client,
        ternmq.connect(real.url) as sender,
        asyncio.timeout(60),
    ):
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g", start="earliest")
        batches = client.consume_batches("orders", group="g", max_messages=10, max_wait=3)
        waiting = asyncio.ensure_future(anext(batches))
        await sender.send("orders", b"one")
        await until_true(leased)
        await asyncio.to_thread(real.stop, clean=False)
        # The rest of the batch does not come: what came is returned while the broker is away.
        batch = await waiting
        assert [one.body for one in batch] == [b"one"]
        waiting = asyncio.ensure_future(anext(batches))
        await until_true(given_up)
        assert not waiting.done()
        await asyncio.to_thread(real.start)
        for number in range(10):
            await sender.send("orders", b"%d" % number)
        assert len(await waiting) == 10
        await client.close()


async def test_what_a_batch_has_is_returned_when_the_broker_is_about_to_stop(
    api: API, tmp_path: Path
) -> None:
    """Else the broker would wait for messages that nobody can settle, for all of its drain."""
    own = BrokerProcess("dev", tmp_path, drain_timeout="10m")

    async def leased() -> bool:
        return bool((await client.admin.group("orders", "g")).queues[0].leased)

    async def next_batch() -> list[bytes]:
        async for batch in client.consume_batches(
            "orders", group="g", max_messages=10, max_wait=3600
        ):
            await batch.ack()
            return list(batch.bodies)
        pytest.fail("the loop ended without a batch")

    with own:
        client = await api.connect(own.url)
        async with asyncio.timeout(60):
            await client.admin.create_topic("orders")
            await client.admin.create_group("orders", "g", start="earliest")
            await client.send("orders", b"one")
            waiting = asyncio.ensure_future(next_batch())
            await until_true(leased)
            stopping = asyncio.ensure_future(asyncio.to_thread(own.stop))
            assert await waiting == [b"one"]
            await stopping
        await client.close()
