"""The two clients behind one face, so that a row is shown for both.

``Blocking`` is ``ternmq.sync`` as it is; ``Async`` runs the asyncio client in a loop in a thread
and waits for each call. Only what the tests of rows call is here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import ternmq
import ternmq.sync

T = TypeVar("T")


class Async:
    """An asyncio client whose methods block the caller."""

    def __init__(self, url: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._url, self._options = url, options
        self.client: ternmq.Client

    def call(self, work: Callable[[ternmq.Client], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the client in its loop."""
        return asyncio.run_coroutine_threadsafe(work(self.client), self._loop).result(60)

    def __enter__(self) -> Self:
        self._thread.start()

        async def make() -> None:
            self.client = await ternmq.connect(self._url, **self._options)

        asyncio.run_coroutine_threadsafe(make(), self._loop).result(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.call(lambda client: client.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def close(self) -> None:
        self.call(lambda client: client.close())

    def send(self, *arguments: Any, **named: Any) -> ternmq.Receipt:
        return self.call(lambda client: client.send(*arguments, **named))

    def send_many(self, topic: str, items: list[Any]) -> list[ternmq.Receipt]:
        return self.call(lambda client: client.send_many(topic, items))

    def send_soon(self, *arguments: Any, **named: Any) -> asyncio.Future[ternmq.Receipt]:
        async def soon(client: ternmq.Client) -> asyncio.Future[ternmq.Receipt]:
            return client.send_soon(*arguments, **named)

        return self.call(soon)

    def send_oneway(self, *arguments: Any, **named: Any) -> None:
        async def soon(client: ternmq.Client) -> None:
            client.send_oneway(*arguments, **named)

        self.call(soon)

    def flush(self) -> None:
        self.call(lambda client: client.flush())

    def bodies(self, topic: str, group: str, **named: Any) -> list[bytes]:
        """Pull once, ack, return the bodies."""

        async def work(client: ternmq.Client) -> list[bytes]:
            batch = await client.pull(topic, group=group, **named)
            await batch.ack()
            return batch.bodies

        return self.call(work)

    def stats(self) -> ternmq.ClientStats:
        return self.client.stats()

    def get(self, *arguments: Any, **named: Any) -> ternmq.FoundMessage:
        return self.call(lambda client: client.get(*arguments, **named))

    def find(self, *arguments: Any, **named: Any) -> list[ternmq.FoundMessage]:
        return self.call(lambda client: client.find(*arguments, **named))

    def admin(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call ``client.admin.NAME``."""
        return self.call(lambda client: getattr(client.admin, name)(*arguments, **named))

    def register(self, *arguments: Any, **named: Any) -> None:
        self.client.codecs.register(*arguments, **named)

    def values(self, topic: str) -> list[Any]:
        """Read a topic; return the bodies, decoded."""

        async def work(client: ternmq.Client) -> list[Any]:
            return [one.value async for one in client.read(topic)]

        return self.call(work)


class Blocking:
    """``ternmq.sync``."""

    def __init__(self, url: str, **options: Any) -> None:
        self.client = ternmq.sync.connect(url, **options)
        self.close = self.client.close
        self.send = self.client.send
        self.send_many = self.client.send_many
        self.send_soon = self.client.send_soon
        self.send_oneway = self.client.send_oneway
        self.flush = self.client.flush
        self.stats = self.client.stats
        self.get = self.client.get
        self.find = self.client.find
        self.register = self.client.codecs.register

    def __enter__(self) -> Self:
        self.client.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.client.close()

    def bodies(self, topic: str, group: str, **named: Any) -> list[bytes]:
        batch = self.client.pull(topic, group=group, **named)
        batch.ack()
        return batch.bodies

    def admin(self, name: str, *arguments: Any, **named: Any) -> Any:
        return getattr(self.client.admin, name)(*arguments, **named)

    def values(self, topic: str) -> list[Any]:
        return [one.value for one in self.client.read(topic)]


User = Async | Blocking
