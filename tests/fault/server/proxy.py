"""A TCP proxy that cuts every connection through it from time to time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Final, Self

from tests.fault.processes import DEADLINE
from tests.fault.server.broker import Address

_PIECE: Final = 1 << 16


class Proxy:
    """Passes bytes both ways, in a thread; every ``period_s`` all connections are reset.

    Args:
        target: Where connections go on to.
        period_s: Time between cuts; 0: never.
    """

    def __init__(self, target: Address, period_s: float) -> None:
        self.target = target
        self.period_s = period_s
        self.address: Address
        self.cuts = 0
        """Connections that were cut."""
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(DEADLINE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()

    async def _begin(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        self._keep(self._cut())

    async def _end(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)

    def _keep(self, coroutine) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cut(self) -> None:
        while self.period_s:
            await asyncio.sleep(self.period_s)
            for writer in list(self._open):
                writer.transport.abort()
            self.cuts += len(self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        for one in (writer, back):
            self._open.add(one)
        self._keep(self._pass(reader, back, writer))
        self._keep(self._pass(there, writer, back))

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes on until one side ends; then both do."""
        try:
            while data := await reader.read(_PIECE):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            for one in (writer, other):
                self._open.discard(one)
                with contextlib.suppress(OSError, RuntimeError):
                    one.transport.abort()
