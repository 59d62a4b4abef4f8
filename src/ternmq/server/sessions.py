"""Which connections belong to which session, and coming back to one.

The core stores sessions and counts their connections: a session outlives its last connection by its
grace, and restarts of the broker. This module only knows which connections they are: one working
connection, and auxiliary ones (a client's lease keeper). If a client comes back over a new
connection while the old one still seems alive (a cut cable, a frozen peer), the new one takes the
session over.
"""

from __future__ import annotations

from typing import Protocol

from ternmq.broker.replies import Rests
from ternmq.model.errors import InvalidRequest, UnknownSession
from ternmq.model.specs import check_name
from ternmq.server.core import Core
from ternmq.wire.control import Hello


class Peer(Protocol):
    """A connection, as this module needs it."""

    def abandon(self, why: str) -> None:
        """Close without a last frame: another connection has the session now."""
        ...


class Place:
    """The result of a HELLO: a session, and the record that the answer depends on (0: none)."""

    __slots__ = ("position", "rests", "resumed", "session")

    def __init__(self, session: int, position: int, *, resumed: bool) -> None:
        self.session = session
        self.position = position
        self.rests = Rests.DURABLE
        self.resumed = resumed


class Sessions:
    """Sessions that have connections. Not thread-safe: call it from the broker's loop."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._working: dict[int, Peer] = {}
        self._auxiliary: dict[int, set[Peer]] = {}

    def enter(self, peer: Peer, app: str, hello: Hello, address: str) -> Place:
        """Give a connection its session: a new one, or the one it comes back to.

        Raises:
            InvalidRequest: The client's name is not allowed.
            UnknownSession: An auxiliary connection's session does not exist, or is not its own.
            Busy: There are too many sessions.
        """
        check_name(hello.client)
        broker = self._core.broker
        now = self._core.now_us()
        if hello.auxiliary:
            broker.clients.resume(hello.session, app, hello.client)
            self._auxiliary.setdefault(hello.session, set()).add(peer)
            return Place(hello.session, 0, resumed=True)
        if hello.session:
            try:
                broker.clients.resume(hello.session, app, hello.client)
            except UnknownSession:
                pass  # its grace is over: the client gets a new session, and ``resumed`` is False
            else:
                before = self._working.get(hello.session)
                self._working[hello.session] = peer
                if before is not None:
                    before.abandon("its client came back over another connection")
                return Place(hello.session, 0, resumed=True)
        reply = broker.clients.join(now, app, hello.client, address, hello.pid, hello.library)
        session = reply.value
        if not isinstance(session, int):
            raise InvalidRequest("the session has no number")
        self._working[session] = peer
        return Place(session, reply.position, resumed=False)

    def gone(self, peer: Peer, session: int) -> None:
        """Note a connection's end; after the last one of a session the core begins its grace."""
        others = self._auxiliary.get(session)
        if others is not None:
            others.discard(peer)
            if not others:
                del self._auxiliary[session]
        if self._working.get(session) is peer:
            del self._working[session]
        self._core.broker.clients.disconnected(self._core.now_us(), session)
        self._core.touch()

    def left(self, session: int, asker: Peer) -> None:
        """Close the other connections of a session that its client ended over ``asker``."""
        working = self._working.pop(session, None)
        others = self._auxiliary.pop(session, set())
        for peer in [*others] if working is None else [working, *others]:
            if peer is not asker:
                peer.abandon("its session was closed")

    def peers(self) -> list[Peer]:
        """Return the working connections."""
        return list(self._working.values())
