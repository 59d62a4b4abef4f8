"""A connection between two processes that can be cut, for good, for a while, in one direction."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future

from tests.fault.processes import DEADLINE
from tests.fault.server.broker import Address
from tests.fault.server.proxy import _PIECE, Proxy


class Link(Proxy):
    """Passes bytes both ways, in a thread, until it is told otherwise.

    What is held back is delivered when the link is healed, as a network does whose packets are
    sent again.

    Args:
        target: Where connections go on to.
    """

    def __init__(self, target: Address) -> None:
        super().__init__(target, 0.0)
        self._there = asyncio.Event()
        self._back = asyncio.Event()
        self._refuses = False
        self._forward: set[asyncio.StreamWriter] = set()
        """Writers to the target."""

    # -- from the test's thread -------------------------------------------------------------------

    def cut(self) -> None:
        """Reset all connections, and take no new ones."""
        self._do(self._cut_all)

    def hold(self, *, there: bool = False, back: bool = False) -> None:
        """Let no byte arrive at the target (``there``), or at who has connected (``back``)."""

        def begin() -> None:
            if there:
                self._there.clear()
            if back:
                self._back.clear()

        self._do(begin)

    def heal(self) -> None:
        """Let everything pass again."""

        def end() -> None:
            self._refuses = False
            self._there.set()
            self._back.set()

        self._do(end)

    def _do(self, call) -> None:
        done: Future[None] = Future()

        def run() -> None:
            try:
                call()
                done.set_result(None)
            except Exception as error:  # noqa: BLE001 - raised in the other thread
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        done.result(DEADLINE)

    # -- in the loop ------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._there.set()
        self._back.set()
        await super()._begin()

    def _cut_all(self) -> None:
        self._refuses = True
        for writer in list(self._open):
            writer.transport.abort()
        self.cuts += len(self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(*self.target)
            if not self._refuses:
                self._open |= {writer, back}
                self._keep(self._pass_when(self._there, reader, back, writer))
                self._keep(self._pass_when(self._back, there, writer, back))
                return
            back.transport.abort()
        writer.transport.abort()

    async def _pass_when(
        self,
        open_: asyncio.Event,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes on, while that is allowed, until one side ends; then both do."""
        try:
            while data := await reader.read(_PIECE):
                await open_.wait()
                writer.write(data)
                await writer.drain()
            await open_.wait()  # nor does the other side hear of the end
        except OSError:
            pass
        finally:
            for one in (writer, other):
                self._open.discard(one)
                with contextlib.suppress(OSError, RuntimeError):
                    one.transport.abort()
