"""The routes for clients, and the pushes that tell of another state of them.

A connection is told from its first ROUTES on, until it ends: an older client, which does not ask,
gets no push that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable

from ternmq.server.desk.desk import ReadingDesk
from ternmq.server.desk.telling import Telling
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller


class Routing:
    """Answers with the routes, and finds out when they change. Broker's loop only.

    Args:
        desk: State shared by all callers.
        routes: Returns the routes as they are known now; without I/O.
    """

    def __init__(self, desk: ReadingDesk, routes: Callable[[], control.Routes]) -> None:
        self._desk = desk
        self._routes = routes
        self._known = routes()
        self._telling = Telling(desk, desk.route_watchers)

    def ask(self, caller: Caller) -> control.Routes:
        """Return the routes; the caller is told of changes from now on."""
        self._desk.route_watchers.add(caller)
        return self._routes()

    def look(self) -> None:
        """Push ROUTES_CHANGED if the routes have changed since the last look."""
        routes = self._routes()
        if routes != self._known:
            self._known = routes
            body = control.encode(control.RoutesChanged())
            self._telling.tell(Command.ROUTES_CHANGED, body, lambda _: True)
