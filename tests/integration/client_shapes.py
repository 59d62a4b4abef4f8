"""The blocking client, looking like the asynchronous one, so that a test is written once.

Whatever blocks runs in a thread; context managers, iterators and futures get their asynchronous
forms. Nothing is added or hidden: a method that the blocking client lacks fails its test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

import ternmq
import ternmq.sync
from ternmq.sync import Consumer, Deliveries, Delivery, Transaction
from tests.asynchronous import until_true

_END = object()
_ITERATORS = {"consume_batches", "read", "browse", "waiting", "matching"}


class API:
    """Makes clients."""

    blocking: bool
    connect: Callable[..., Any]


class AsyncAPI(API):
    """Makes ``ternmq.Client``."""

    blocking = False

    def connect(self, url: str, **settings: Any) -> Any:
        return ternmq.connect(url, **settings)


class BlockingAPI(API):
    """Makes ``ternmq.sync.Client``, looking asynchronous."""

    blocking = True

    def connect(self, url: str, **settings: Any) -> Any:
        return Shaped(ternmq.sync.connect(url, **settings))


def shape(value: Any) -> Any:
    """Return a value as the asynchronous client would have it."""
    if isinstance(value, Deliveries | Delivery | Consumer | Transaction):
        return Shaped(value)
    return value


def _awaited(client: Any, send_soon: Any, args: Any, kwargs: Any) -> asyncio.Future[Any]:
    """Send and wait for the outcome as one step: it does not come before somebody waits."""
    waited_for = threading.Event()
    client.reach()[0].post(lambda: waited_for.wait(2))
    try:
        return asyncio.wrap_future(send_soon(*args, **kwargs))
    finally:
        waited_for.set()


class Shaped:
    """Something of the blocking client."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name in {"admin", "deadletters"}:
            return Shaped(value)
        if not callable(value) or name in {
            "handler",
            "declare",
            "stop",
            "send_oneway",
            "to_arrow",
            "decode",
            "checker",
        }:
            return value
        if name == "process":
            return lambda **settings: _Context(value(**settings))
        client = isinstance(self._target, ternmq.sync.Client)
        if name == "consume" or (name == "transaction" and client):
            return lambda *args, **kwargs: Shaped(value(*args, **kwargs))
        if name == "send_soon":
            return lambda *args, **kwargs: _awaited(self._target, value, args, kwargs)
        if name in _ITERATORS:
            return lambda *args, **kwargs: _iterate(value, args, kwargs)

        async def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(getattr(one, "_target", one) for one in args)
            return shape(await asyncio.to_thread(value, *args, **kwargs))

        return call

    def __len__(self) -> int:
        return len(self._target)

    def __bool__(self) -> bool:
        return bool(self._target)

    def __iter__(self) -> Any:
        return map(shape, self._target)

    def __getitem__(self, place: Any) -> Any:
        return shape(self._target[place])

    def __await__(self) -> Any:
        async def connect() -> Shaped:
            await asyncio.to_thread(self._target.connect)
            return self

        return connect().__await__()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._target.__enter__)
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await asyncio.to_thread(self._target.__exit__, *error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        found = await asyncio.to_thread(next, self._target, _END)
        if found is _END:
            raise StopAsyncIteration
        return shape(found)


class _Context:
    def __init__(self, context: Any) -> None:
        self._context = context

    async def __aenter__(self) -> Any:
        return shape(self._context.__enter__())

    async def __aexit__(self, *error: object) -> Any:
        return self._context.__exit__(*error)


async def _iterate(make: Any, args: Any, kwargs: Any) -> Any:
    source = await asyncio.to_thread(make, *args, **kwargs)
    try:
        while (found := await asyncio.to_thread(next, source, _END)) is not _END:
            yield shape(found)
    finally:
        await asyncio.to_thread(source.close)


async def run(client: ternmq.Client | ternmq.sync.Client) -> None:
    """Run a client of either sort until it is stopped; raises what ``run`` raised."""
    if isinstance(client, ternmq.Client):
        await client.run()
    else:
        await asyncio.to_thread(client.run)


async def run_until_member(
    client: ternmq.Client | ternmq.sync.Client,
    looking: ternmq.Client,
    group: str = "billing",
) -> None:
    """Run a client until its handler of ``orders`` waits for messages, and stop it."""
    running = asyncio.ensure_future(run(client))

    async def begun() -> bool:
        found = await looking.admin.groups("orders", group)
        return running.done() or any(one.members for one in found)

    await until_true(begun)
    client.stop()
    await running
