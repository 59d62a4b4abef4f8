"""Which connections belong to which session, and coming back to one.

The core stores sessions and counts their connections: a session outlives its last connection by its
grace, and restarts of the broker. This module only knows which connections they are: one working
connection, and auxiliary ones (a client's lease keeper). If a client comes back over a new
connection while the old one still seems alive (a cut cable, a frozen caller), the new one takes the
session over.
"""

from __future__ import annotations

from ternmq.model.errors import InvalidRequest, UnknownSession
from ternmq.model.specs import check_name
from ternmq.server.engine.engine import Core
from ternmq.wire.control import Hello
from ternmq.wire.port import Caller, Joined


class Sessions:
    """Sessions that have connections. Not thread-safe: call it from the broker's loop."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._working: dict[int, Caller] = {}
        self._auxiliary: dict[int, set[Caller]] = {}

    def enter(self, caller: Caller, app: str, hello: Hello, address: str) -> Joined:
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
            self._auxiliary.setdefault(hello.session, set()).add(caller)
            return Joined(hello.session, 0, resumed=True)
        if hello.session:
            try:
                broker.clients.resume(hello.session, app, hello.client)
            except UnknownSession:
                pass  # its grace is over: a new one, and the answer says so
            else:
                before = self._working.get(hello.session)
                self._working[hello.session] = caller
                if before is not None:
                    before.abandon("its client reconnected over another connection")
                return Joined(hello.session, 0, resumed=True)
        reply = broker.clients.join(now, app, hello.client, address, hello.pid, hello.library)
        session = reply.value
        if not isinstance(session, int):
            raise InvalidRequest("the session has no number")
        self._working[session] = caller
        return Joined(session, reply.position, resumed=False)

    def gone(self, caller: Caller, session: int) -> None:
        """Note a connection's end; after the last one of a session the core begins its grace."""
        others = self._auxiliary.get(session)
        if others is not None:
            others.discard(caller)
            if not others:
                del self._auxiliary[session]
        if self._working.get(session) is caller:
            del self._working[session]
        self._core.broker.clients.disconnected(self._core.now_us(), session)
        self._core.touch()

    def left(self, session: int, asker: Caller) -> None:
        """Close the other connections of a session that its client ended over ``asker``."""
        working = self._working.pop(session, None)
        others = self._auxiliary.pop(session, set())
        for caller in [*others] if working is None else [working, *others]:
            if caller is not asker:
                caller.abandon("its session was closed")

    def working(self, session: int) -> Caller | None:
        """Return the working connection of a session, or None."""
        return self._working.get(session)

    def peers(self) -> list[Caller]:
        """Return the working connections."""
        return list(self._working.values())
