"""The port of a broker that does not lead: every client is sent to the primary.

A visitor may send one frame, a HELLO or a FOLLOW, and is refused with ``NotPrimary``, whose text
names the primary. A client that understands routes gets them before: it finds the primary at once,
whether its URL names that one or not. Nobody is authenticated here, so a visitor learns names and
addresses of brokers, and gets at most one frame of them. A SEGMENT_READ of another broker of the
group is handed over to what answers it, and checks its token; a HELLO of a client that only reads,
likewise, if this broker has views to read from. A peer of another protocol is told so, as at a
broker that leads.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, cast

from ternmq.model.errors import HandshakeTimeout, NotPrimary, ProtocolError
from ternmq.server.native.mistaken import mistaken
from ternmq.server.process.doorway import Accepting, Doorway
from ternmq.wire import control
from ternmq.wire.session import ServerSession, State

log = logging.getLogger("ternmq.cluster")

_FRAME_BYTES: Final = 4096
_PATIENCE_S: Final = 5.0
"""Longest that a visitor may take for its frame, and for reading the answer."""
Lend = Callable[[asyncio.Transport, ServerSession, str], None]
Read = Callable[[asyncio.Transport, bytes], bool]
MOST: Final = 1000
"""Most visitors at a time."""


class Visitor(asyncio.Protocol):
    """A connection to a broker that does not lead.

    Args:
        visitors: All of them.
        why: Returns the text of the refusal.
        routes: Returns the routes; None: they are not known.
        lend: Takes over a connection that began with SEGMENT_READ: its transport, its session, and
            the address of the other side.
        http: Returns HOST:PORT of this broker's port for HTTP; empty: it has none.
        read: Takes over a connection that began with the HELLO of a client that only reads: its
            transport, and the bytes that came. Returns False if it does not.
    """

    def __init__(
        self,
        visitors: set[Visitor],
        why: Callable[[], str],
        routes: Callable[[], control.Routes | None],
        lend: Lend,
        http: Callable[[], str],
        read: Read,
    ) -> None:
        self._visitors = visitors
        self._why = why
        self._routes = routes
        self._lend = lend
        self._http = http
        self._read = read
        self._received = b""
        self._session = ServerSession(_FRAME_BYTES)
        self._transport: asyncio.Transport
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first frame, but not for long."""
        self._transport = cast("asyncio.Transport", transport)
        if len(self._visitors) >= MOST:
            self._transport.abort()
            return
        self._visitors.add(self)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(_PATIENCE_S, self._turn_away)

    def data_received(self, data: bytes) -> None:
        """Answer the first frame."""
        session = self._session
        self._received += data
        try:
            session.receive(data)
        except ProtocolError as error:
            opening = session.state is State.OPENING
            known = mistaken(data, self._http()) if opening else None
            self._end(*(known or (error, None)))
            return
        if session.segment_read is not None:
            self.connection_lost(None)  # it is no visitor any more
            peer = self._transport.get_extra_info("peername")
            self._lend(self._transport, session, str(peer[0]) if peer else "local")
        elif session.state is State.GREETED and not self._is_taken():
            self._leave(session.refuse(NotPrimary(self._why()), self._routes()))

    def _is_taken(self) -> bool:
        """Hand a client that only reads over, if it can be; return whether that was done."""
        hello = self._session.hello
        if hello is None or hello.reads is not True:
            return False
        if not self._read(self._transport, self._received):
            return False
        self.connection_lost(None)  # it is no visitor any more
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the visitor."""
        del exc
        self._visitors.discard(self)
        if self._patience is not None:
            self._patience.cancel()

    def _turn_away(self) -> None:
        """End a connection that takes too long: for its frame, or to read the answer."""
        if self._session.state is not State.OPENING:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(_PATIENCE_S, self._transport.abort)
        self._end(HandshakeTimeout("no HELLO came in time"), None)

    def _end(self, error: ProtocolError, words: bytes | None) -> None:
        log.info("%s broke the protocol: %s", self._address(), error)
        self._leave(self._session.farewell(error) if words is None else words)

    def _address(self) -> str:
        peer = self._transport.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if peer else "local"

    def _leave(self, last: bytes) -> None:
        self._transport.write(last)
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()


class Porch:
    """Accepts connections at the address of a broker while it does not lead. Loop only.

    Args:
        why: Returns the text with which visitors are refused.
        routes: Returns the routes; None: they are not known.
        lend: As for ``Visitor``.
        http: As for ``Visitor``.
        read: As for ``Visitor``.
    """

    def __init__(
        self,
        why: Callable[[], str],
        routes: Callable[[], control.Routes | None],
        lend: Lend,
        http: Callable[[], str],
        read: Read = lambda _transport, _received: False,
    ) -> None:
        self._why = why
        self._routes = routes
        self._lend = lend
        self._http = http
        self._read = read
        self._visitors: set[Visitor] = set()
        self._accepting: Accepting | None = None

    async def open(self, doorway: Doorway, tls: ssl.SSLContext | None) -> None:
        """Accept visitors."""
        self._accepting = await doorway.accept(
            lambda: Visitor(
                self._visitors, self._why, self._routes, self._lend, self._http, self._read
            ),
            tls,
        )

    async def close(self) -> None:
        """Accept no more; end the connections."""
        accepting, self._accepting = self._accepting, None
        if accepting is not None:
            await accepting.end()
        for one in list(self._visitors):
            one.abort()
