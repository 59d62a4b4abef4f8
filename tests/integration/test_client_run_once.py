"""One ``run`` of a client at a time; what a handler may do with the client that calls it."""

from __future__ import annotations

import asyncio
import threading

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker


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
