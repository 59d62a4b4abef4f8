"""An asyncio client lives in one event loop: used elsewhere, it says so at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import ternmq
from ternmq.client.consumer.consuming import Consumer
from ternmq.testing import InProcessBroker

DEADLINE = 30.0
Call = Callable[[ternmq.Client, ternmq.Delivery, Consumer], Awaitable[object]]


async def _send_soon(client: ternmq.Client) -> object:
    return await client.send_soon("orders", b"x")


async def _send_oneway(client: ternmq.Client) -> None:
    client.send_oneway("orders", b"x")


async def _read(client: ternmq.Client) -> None:
    async for _ in client.read("orders"):
        break


async def _batches(client: ternmq.Client) -> None:
    async for _ in client.consume_batches("orders", group="g"):
        break


CALLS: dict[str, Call] = {
    "connect": lambda client, *_: client.connect(),
    "send": lambda client, *_: client.send("orders", b"x"),
    "send_soon": lambda client, *_: _send_soon(client),
    "send_oneway": lambda client, *_: _send_oneway(client),
    "send_many": lambda client, *_: client.send_many("orders", [b"x"]),
    "flush": lambda client, *_: client.flush(),
    "pull": lambda client, *_: client.pull("orders", group="g"),
    "consume": lambda client, *_: client.consume("orders", group="g").__aenter__(),
    "batches": lambda client, *_: _batches(client),
    "read": lambda client, *_: _read(client),
    "next": lambda _, __, consumer: anext(consumer),
    "ack": lambda _, delivery, __: delivery.ack(),
    "retry": lambda _, delivery, __: delivery.retry(),
    "extend": lambda _, delivery, __: delivery.extend(5),
    "process": lambda _, delivery, __: delivery.process().__aexit__(None, None, None),
    "get": lambda client, *_: client.get("orders", offset=0),
    "find": lambda client, *_: client.find("orders", key="k"),
    "admin": lambda client, *_: client.admin.topics(),
    "run": lambda client, *_: client.run(),
    "close": lambda client, *_: client.close(),
}


def made(url: str) -> ternmq.Client:
    client = ternmq.connect(url)

    @client.handler("orders", group="handled")
    async def handle(body: bytes) -> None: ...

    return client


async def opened(
    client: ternmq.Client,
) -> tuple[ternmq.Delivery, Consumer]:
    await client.send_many("orders", [b"a", b"b"])
    (delivery,) = await client.pull("orders", group="g", max_messages=1)
    consumer = client.consume("orders", group="g2")
    await consumer.__aenter__()
    return delivery, consumer


@pytest.mark.parametrize("name", CALLS)
def test_another_loop_at_the_same_time(name: str, real: InProcessBroker) -> None:
    found: list[BaseException] = []

    async def main() -> None:
        async with made(real.url) as client:
            delivery, consumer = await opened(client)

            async def elsewhere() -> None:
                async with asyncio.timeout(DEADLINE):  # awaited as it is, without a task of its own
                    await CALLS[name](client, delivery, consumer)

            def other() -> None:
                try:
                    asyncio.run(elsewhere())
                except ternmq.ClientError as error:
                    found.append(error)

            await asyncio.to_thread(other)
            # The client goes on where it lives.
            await delivery.ack()
            assert (await anext(consumer)).body == b"a"
            await client.send("orders", b"c")

    asyncio.run(main())
    (error,) = found
    assert type(error) is ternmq.WrongEventLoop
    assert "not this one (make a client in each event loop" in str(error)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the connection that nobody closed
def test_a_loop_after_the_one_of_the_client_has_ended(name: str, real: InProcessBroker) -> None:
    use_in_two_runs(name, real.url)
    # Nobody can close its connection any more: it goes with the client.
    for thread in threading.enumerate():
        if thread.name == "ternmq-keeper":
            thread.join(DEADLINE)
    gc.collect()


def use_in_two_runs(name: str, url: str) -> None:
    client = made(url)
    delivery, consumer = asyncio.run(opened(client))

    async def again() -> None:
        async with asyncio.timeout(DEADLINE):
            await CALLS[name](client, delivery, consumer)

    with pytest.raises(ternmq.WrongEventLoop, match="has ended"):
        asyncio.run(again())
    # The same in a thread, as views of Flask do it: theirs are looked after (``unawaited``).
    with (
        pytest.raises(ternmq.WrongEventLoop, match="has ended"),
        ThreadPoolExecutor(max_workers=1) as thread,
    ):
        thread.submit(asyncio.run, again()).result(DEADLINE)


def test_a_client_that_was_closed_in_its_loop_is_closed(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)

    async def use() -> None:
        async with client:
            await client.send("orders", b"a")

    asyncio.run(use())
    with pytest.raises(ternmq.ClientClosed):
        asyncio.run(use())


def test_a_client_for_each_run(real: InProcessBroker) -> None:
    async def use() -> str:
        async with ternmq.connect(real.url) as client:
            return (await client.send("orders", b"a")).id

    assert asyncio.run(use()) != asyncio.run(use())


async def test_a_thread_without_a_loop(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        for call in (client.send_soon, client.send_oneway):
            with pytest.raises(ternmq.WrongEventLoop, match=r"ternmq\.sync"):
                await asyncio.to_thread(call, "orders", b"x")
        await client.send("orders", b"y")
