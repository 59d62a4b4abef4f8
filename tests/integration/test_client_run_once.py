"""One ``run`` of a client at a time; what a handler may do with the client that calls it."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

import ternmq
import ternmq.sync
from ternmq.client.connection.link import Link
from ternmq.testing import InProcessBroker
from tests.asynchronous import until_true


async def test_a_second_run_is_refused_and_the_first_goes_on(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    @client.handler("orders", group="g")
    async def on_order(body: bytes) -> None:
        seen.put_nowait(body)

    first = asyncio.create_task(client.run(signals=False))
    async with ternmq.connect(real.url) as sender, asyncio.timeout(20):
        await sender.send("orders", b"one")
        assert await seen.get() == b"one"
        with pytest.raises(ternmq.ClientError, match=r"call run\(\) once"):
            await client.run(signals=False)
        await sender.send("orders", b"two")
        assert await seen.get() == b"two"
        client.stop()
        await first
    with pytest.raises(ternmq.ClientClosed):
        await client.run(signals=False)


def test_a_second_blocking_run_is_refused(real: InProcessBroker) -> None:
    client = ternmq.sync.connect(real.url)
    called = threading.Event()

    @client.handler("orders", group="g")
    def on_order(body: bytes) -> None:
        called.set()

    first = threading.Thread(target=client.run)
    first.start()
    with ternmq.sync.connect(real.url) as sender:
        sender.send("orders", b"one")
        assert called.wait(20)
        with pytest.raises(ternmq.ClientError, match=r"call run\(\) once"):
            client.run()
        called.clear()
        sender.send("orders", b"two")
        assert called.wait(20)
    client.stop()
    first.join(20)
    assert not first.is_alive()


@pytest.mark.parametrize("threaded", [False, True])
async def test_close_in_a_handler_is_refused(real: InProcessBroker, *, threaded: bool) -> None:
    client = ternmq.connect(real.url)
    blocking = ternmq.sync.connect(real.url)
    raised: list[Exception] = []

    async def on_order(body: bytes) -> None:
        try:
            await client.close()
        except ternmq.ClientError as error:
            raised.append(error)
        client.stop()

    def on_order_in_a_thread(body: bytes) -> None:
        try:
            blocking.close()
        except ternmq.ClientError as error:
            raised.append(error)
        blocking.stop()

    if threaded:
        blocking.handler("orders", group="g")(on_order_in_a_thread)
        run = asyncio.to_thread(blocking.run)
    else:
        client.handler("orders", group="g")(on_order)
        run = client.run(signals=False)
    async with ternmq.connect(real.url) as sender, asyncio.timeout(20):
        await sender.send("orders", b"one")
        await run
        assert [str(error) for error in raised if "call stop()" in str(error)], raised
        (queue,) = (await sender.admin.group("orders", "g")).queues
        assert (queue.waiting, queue.leased) == (0, 0)
    blocking.close()


async def test_a_task_of_a_handler_may_close_its_client(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    tasks: list[asyncio.Task[None]] = []

    @client.handler("orders", group="g")
    async def on_order(body: bytes) -> None:
        tasks.append(asyncio.create_task(client.close()))

    async with ternmq.connect(real.url) as sender, asyncio.timeout(20):
        await sender.send("orders", b"one")
        await client.run(signals=False)
        await asyncio.gather(*tasks)


async def test_flush_of_a_closed_client(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    await client.flush()  # not used yet: nothing was sent
    await client.send("orders", b"x")
    await client.flush()
    await client.close()
    with pytest.raises(ternmq.ClientClosed):
        await client.flush()


async def test_calls_that_wait_while_the_client_closes(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    await client.admin.create_topic("empty")

    async def batches() -> list[ternmq.Deliveries]:
        return [one async for one in client.consume_batches("empty", group="g")]

    async def each() -> list[ternmq.Delivery]:
        async with client.consume("empty", group="g") as consumer:
            return [one async for one in consumer]

    async def all_wait(link: Link) -> bool:
        return len(link._askers) >= 4

    async def read() -> list[ternmq.Delivery]:
        return [one async for one in client.read("empty", follow=True)]

    waits = [
        asyncio.create_task(one)
        for one in (batches(), each(), read(), client.pull("empty", group="g", wait=30))
    ]
    link = client._session.link
    assert link is not None
    async with asyncio.timeout(20):
        await until_true(partial(all_wait, link))
        await client.close()
        found = await asyncio.gather(*waits, return_exceptions=True)
    assert found[:2] == [[], []]
    assert [type(one) for one in found[2:]] == [ternmq.ClientClosed] * 2, found
