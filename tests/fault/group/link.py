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
        of: Only connections whose first bytes contain this are cut or held; all if empty.
    """

    def __init__(self, target: Address, of: bytes = b"") -> None:
        super().__init__(target, 0.0)
        self._of = of
        self._always = asyncio.Event()
        self._spared: set[asyncio.StreamWriter] = set()
        """Writers of other connections."""
        self._there = asyncio.Event()
        self._back = asyncio.Event()
        self._refuses = False

    @property
    def connections(self) -> int:
        """How many connections there are that can be cut."""
        return len(self._open - self._spared) // 2

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
        for one in (self._there, self._back, self._always):
            one.set()
        await super()._begin()

    def _cut_all(self) -> None:
        self._refuses = True
        mine = self._open - self._spared
        for writer in mine:
            writer.transport.abort()
        self.cuts += len(mine)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            first = await reader.read(_PIECE) if self._of else b""
            mine = self._of in first
            there, back = await asyncio.open_connection(*self.target)
            if not (mine and self._refuses):
                self._open |= {writer, back}
                if not mine:
                    self._spared |= {writer, back}
                forth, home = (self._there, self._back) if mine else (self._always, self._always)
                self._keep(self._pass_when(forth, reader, back, writer, first))
                self._keep(self._pass_when(home, there, writer, back))
                return
            back.transport.abort()
        writer.transport.abort()

    async def _pass_when(
        self,
        open_: asyncio.Event,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
        first: bytes = b"",
    ) -> None:
        """Pass bytes on, while that is allowed, until one side ends; then both do."""
        try:
            while data := first or await reader.read(_PIECE):
                first = b""
                await open_.wait()
                writer.write(data)
                await writer.drain()
            await open_.wait()  # nor does the other side hear of the end
        except OSError:
            pass
        finally:
            for one in (writer, other):
                self._open.discard(one)
                self._spared.discard(one)
                with contextlib.suppress(OSError, RuntimeError):
                    one.transport.abort()
