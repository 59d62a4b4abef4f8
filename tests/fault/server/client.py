"""A client in the test's own process: one connection that comes back.

It knows the protocol from ``ternmq.wire`` and does what the protocol asks of a client: after a lost
connection it asks for its session, says which leases it holds, and sends every send that has no
answer again, oldest first, with the same bytes. Nothing here records or judges: see ``load``.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final

from ternmq.model.errors import TernMQError
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal, State
from tests.fault.server.broker import APP, TOKEN, Address

BACK_OFF_S: Final = (0.01, 0.02, 0.05, 0.1)
READ_BYTES: Final = 1 << 18


class LostError(Exception):
    """The connection was lost before the answer came."""


class Client:
    """One client instance. Everything happens in one asyncio loop.

    Args:
        where: Called for the address before each try.
        session: To begin with one of an earlier process; 0: none.
        client: Its secret name; made if empty.
    """

    def __init__(self, where: Callable[[], Address], session: int = 0, client: str = "") -> None:
        self.name = client or secrets.token_hex(16)
        self.session = session
        self.connected = asyncio.Event()
        self.connections = 0
        self.losses = 0
        self.lost_sessions = 0
        """How often it asked for its session and got another."""
        self.resent = 0
        self.drained = 0
        """Pushes that said that the broker stops."""
        self.refusals: Counter[str] = Counter()
        self.kept: Callable[[], list[tuple[int, int]]] = list
        """Asked after a resumption: epoch and number of the leases that are in hand."""
        self.lost_session: Callable[[], None] = lambda: None
        """Called when the session of before is gone, and its leases with it."""
        self._where = where
        self._session: ClientSession
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._sends: dict[int, tuple[bytes, asyncio.Future[bytes]]] = {}
        """Sends without an answer, by order of their first try."""
        self._next_send = 0
        self._closing = False

    async def run(self) -> None:
        """Stay connected until ``close``."""
        tries = 0
        while not self._closing:
            try:
                await self._once()
            except (OSError, TernMQError) as error:
                self.refusals[type(error).__name__] += isinstance(error, TernMQError)
            if self.connected.is_set():
                tries = 0
            self._lost()
            if not self._closing:
                await asyncio.sleep(BACK_OFF_S[min(tries, len(BACK_OFF_S) - 1)])
                tries += 1

    async def _once(self) -> None:
        """Connect, and read until the connection is over."""
        reader, writer = await asyncio.open_connection(*self._where(), limit=READ_BYTES)
        self._writer = writer
        try:
            session = ClientSession()
            writer.write(
                session.hello(
                    control.Hello(client=self.name, app=APP, token=TOKEN, session=self.session)
                )
            )
            while session.state is State.OPENING:
                data = await reader.read(READ_BYTES)
                if not data:
                    return
                for event in session.receive(data):
                    if isinstance(event, Refusal):
                        raise event.error
            assert session.welcome is not None
            self._session = session
            self._welcomed(session.welcome)
            while data := await reader.read(READ_BYTES):
                for event in session.receive(data):
                    self._take(event)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _welcomed(self, welcome: control.Welcome) -> None:
        if self.session and not welcome.resumed:
            self.lost_sessions += 1
            self.lost_session()
        elif welcome.resumed:
            leases = [control.KeptLease(epoch=epoch, lease=lease) for epoch, lease in self.kept()]
            self._write(Command.KEEP, control.encode(control.Keep(leases=leases)))
        self.session = welcome.session
        self.connections += 1
        waiting, self._sends = self._sends, {}
        for body, future in waiting.values():
            if not future.done():
                self.resent += 1
                self._send(body, future)
        self.connected.set()

    def _take(self, event: Answer | Refusal | Push) -> None:
        if isinstance(event, Push):
            self.drained += event.command is Command.DRAIN
            return
        if isinstance(event, Refusal):
            self.refusals[type(event.error).__name__] += 1
        self._sends.pop(event.id, None)
        future = self._answers.pop(event.id, None)
        if future is None or future.done():
            return
        if isinstance(event, Refusal):
            future.set_exception(event.error)
        else:
            future.set_result(event.body)

    def _lost(self) -> None:
        self.losses += self.connected.is_set()
        self.connected.clear()
        self._writer = None
        answers, self._answers = self._answers, {}
        sends = {id(future) for _, future in self._sends.values()}
        for future in answers.values():
            if not future.done() and id(future) not in sends:
                future.set_exception(LostError())

    def _write(self, command: Command, body: bytes) -> int:
        assert self._writer is not None
        id_, frame = self._session.ask(command, body)
        self._writer.write(frame)
        return id_

    def _send(self, body: bytes, future: asyncio.Future[bytes]) -> None:
        id_ = self._write(Command.SEND, body)
        self._sends[id_] = body, future
        self._answers[id_] = future

    async def open(self) -> None:
        """Wait until there is a connection."""
        while self._writer is None or not self.connected.is_set():
            await self.connected.wait()

    async def send(self, body: bytes) -> bytes:
        """Send a batch; return the answer's body, whatever the connection goes through."""
        await self.open()
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._send(body, future)
        return await future

    async def ask(self, command: Command, body: bytes = b"") -> bytes:
        """Ask; return the answer's body.

        Raises:
            LostError: The connection was lost first.
            TernMQError: It was refused.
        """
        await self.open()
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[self._write(command, body)] = future
        return await future

    @property
    def unanswered(self) -> int:
        """How many sends have no answer."""
        return len(self._sends)

    def close(self) -> None:
        """Cut the connection and do not come back."""
        self._closing = True
        if self._writer is not None:
            self._writer.transport.abort()

    def cut(self) -> None:
        """Cut the connection, as a network does; it comes back."""
        if self._writer is not None:
            self._writer.transport.abort()
