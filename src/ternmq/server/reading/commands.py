"""The commands that a broker answers while it follows: those that change nothing.

All others are refused with NotPrimary, which leads the client to the primary. Before an answer, the
caller is told how far the copy is behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ternmq.access import Authoriser
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import NotPrimary
from ternmq.model.specs import check_name
from ternmq.server.commands.control import Answer, ControlCommands
from ternmq.server.commands.dispatch import Runner
from ternmq.server.commands.failed import FailedLists
from ternmq.server.commands.lookup import LookupCommands
from ternmq.server.commands.range_reads import RangeReads
from ternmq.server.commands.reads import ReadCommands
from ternmq.server.commands.scheduled import ScheduleLists
from ternmq.server.commands.topics import TopicLists
from ternmq.server.desk.desk import ReadingDesk
from ternmq.server.desk.routing import Routing
from ternmq.wire import bodies, control
from ternmq.wire.commands import TABLE, Command
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.port import Caller, Handler, Joined
from ternmq.wire.session import Request

TOLD_EVERY_S: Final = 0.01
"""Shortest time between two pushes to a caller that tell how far the copy is behind."""


class ReaderCommands(ControlCommands):
    """PING, BYE, CANCEL, ROUTES of readers. Not thread-safe: call it from the broker's loop."""

    def __init__(
        self,
        desk: ReadingDesk,
        authoriser: Authoriser,
        queries: Queries,
        reads: ReadCommands,
        routing: Routing,
    ) -> None:
        super().__init__(desk, authoriser, queries)
        self._reads = reads
        self._routing = routing
        self.handlers |= {
            Command.PING: self.ping,
            Command.BYE: self.bye,
            Command.CANCEL: self.cancel,
            Command.ROUTES: self.control(Command.ROUTES, control.RoutesAsk, self.routes),
        }

    def ping(self, caller: Caller, request: Request) -> None:
        """PING: answer with broker time."""
        bodies.unpack_nothing(request.body)
        caller.answer(request, bodies.pack_pong(self._core.now_us()))

    def bye(self, caller: Caller, request: Request) -> None:
        """BYE: answer what waits; the session ends with the connection."""
        bodies.unpack_nothing(request.body)
        self.end_all(caller)
        caller.answer(request, b"")

    def cancel(self, caller: Caller, request: Request) -> None:
        """CANCEL: answer a parked read at once, then the CANCEL."""
        id_ = bodies.unpack_cancel(request.body)
        self._reads.waiting.end(caller, id_)
        self._desk.late.hurry(caller, id_)
        caller.answer(request, b"")

    def end_all(self, caller: Caller) -> None:
        """Answer all parked requests of a caller, as if their time was over."""
        self._reads.waiting.end_all(caller)
        self._desk.late.hurry(caller)

    def routes(self, caller: Caller, asked: control.RoutesAsk) -> Answer:
        """ROUTES: return the brokers, and who is the primary."""
        return self._routing.ask(caller), 0


class CopyCommands(Runner):
    """What readers can have done; see ``wire.port.Commands``. Broker's loop only.

    Args:
        desk: State shared by all callers.
        auth: Clients must authenticate.
        welcome: Makes the answer to HELLO.
        routing: Has the answer to ROUTES.
        why: Returns why this broker refuses what it does not answer.
        behind_us: Returns how far the copy is behind.
    """

    def __init__(
        self,
        desk: ReadingDesk,
        *,
        auth: bool,
        welcome: Callable[[Joined], Welcome],
        routing: Routing,
        why: Callable[[], str],
        behind_us: Callable[[], int],
    ) -> None:
        core = desk.core
        queries = Queries(core.broker)
        authoriser = Authoriser(core.broker.views.catalog.apps, required=auth)
        reads = ReadCommands(desk, authoriser, queries)
        own = ReaderCommands(desk, authoriser, queries, reads, routing)
        answered: dict[Command, Handler] = {
            **own.handlers,
            Command.READ: reads.read,
            Command.QUEUE_RANGES: RangeReads(desk, authoriser, queries).ranges,
            **TopicLists(desk, authoriser, queries).handlers,
            **LookupCommands(desk, authoriser, queries).handlers,
            **FailedLists(desk, authoriser, queries).handlers,
            **ScheduleLists(desk, authoriser, queries).handlers,
        }
        others = dict.fromkeys(TABLE.keys() - {Command.HELLO} - answered.keys(), self._send_away)
        super().__init__(desk, answered | others)
        self.welcome = welcome
        self.withdraw = reads.waiting.withdraw
        self.end_all = own.end_all
        self._reads = reads
        self._authoriser = authoriser
        self._why = why
        self._behind_us = behind_us
        self._sessions = 0
        self._told: dict[Caller, float] = {}
        """When each caller was told last how far the copy is behind; none was told yet: -inf."""
        self._tokens: dict[Caller, bytes] = {}
        """Hash of the token with which each caller was authenticated."""
        core.on_woken = self._wake

    # -- callers ----------------------------------------------------------------------------------

    def greet(self, caller: Caller, hello: Hello) -> Joined:
        """Authenticate a reader; see ``Commands.greet``.

        Its session is nothing that the journal knows: it cannot be resumed, and ends with the
        connection.
        """
        if hello.reads is not True or hello.auxiliary:
            raise NotPrimary(self._why())
        self._authoriser.authenticate(hello.app, hello.token)
        check_name(hello.client)
        caller.enter(hello.app)
        caller.app = hello.app
        self._desk.callers.add(caller)
        self._told[caller] = float("-inf")
        self._tokens[caller] = self._token_of(hello.app)
        self._sessions += 1
        return Joined(self._sessions, 0, resumed=False)

    def gone(self, caller: Caller) -> None:
        """Forget a reader that is gone; see ``Commands.gone``."""
        desk = self._desk
        desk.callers.discard(caller)
        desk.late.drop(caller)
        desk.core.cold_reads.forget(caller)
        self.withdraw(caller)
        desk.route_watchers.discard(caller)
        self._told.pop(caller, None)
        self._tokens.pop(caller, None)

    def close_revoked(self) -> None:
        """Close the callers whose app was removed, or has another token. O(callers)."""
        for caller, token in list(self._tokens.items()):
            if self._token_of(caller.app) != token:
                caller.abandon("its app was removed, or has another token")

    def _token_of(self, app: str) -> bytes:
        known = self._desk.core.broker.views.catalog.apps.get(app)
        return b"" if known is None else known.hash

    # -- requests ---------------------------------------------------------------------------------

    def run(self, caller: Caller, request: Request) -> None:
        """Run a request; see ``Commands.run``."""
        self._tell(caller)
        super().run(caller, request)

    def read(self, caller: Caller, request: Request) -> None:
        """Run a request that ``LateReads`` has queued."""
        self._tell(caller)
        super().read(caller, request)

    def _tell(self, caller: Caller) -> None:
        """Push how far the copy is behind, unless that was done a moment ago."""
        now = self._desk.core.loop.time()
        if caller.closed or now - self._told.get(caller, now) < TOLD_EVERY_S:
            return
        self._told[caller] = now
        caller.push(Command.BEHIND, control.encode(control.Behind(behind_us=self._behind_us())))

    def _send_away(self, caller: Caller, request: Request) -> None:
        raise NotPrimary(self._why())

    def _wake(self) -> None:
        if self._desk.core.broker.parking.grown or self._reads.grown:
            self._reads.wake()
