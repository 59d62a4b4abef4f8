"""BYE and KEEP: a session returns leases, all of them or those that never reached its client.

The core returns them in pieces, one in each turn. The answer leaves when all are returned; later
requests of the connection wait until then, since they expect a session without these leases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ternmq.access import Authoriser
from ternmq.broker.gate.replies import DoneReply
from ternmq.broker.operation.drains import Drain
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.sessions import Sessions
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller, Handler
from ternmq.wire.session import Request


class _Waiting(NamedTuple):
    """A request whose leases are being returned."""

    caller: Caller
    request: Request
    body: bytes
    """Body of the answer."""


class ReturnCommands:
    """Handlers of BYE and KEEP. Not thread-safe: call it from the broker's loop.

    Args:
        desk: State shared by all callers.
        authoriser: Checks rights.
        sessions: The sessions' callers.
        end_all: Answers all parked requests of a caller.
    """

    def __init__(
        self,
        desk: Desk,
        authoriser: Authoriser,
        sessions: Sessions,
        end_all: Callable[[Caller], None],
    ) -> None:
        self._desk = desk
        self._core = desk.core
        self._broker = desk.core.broker
        self._authoriser = authoriser
        self._sessions = sessions
        self._end_all = end_all
        self._over = desk.core.broker.drains.over
        self._waiting: dict[Drain, _Waiting] = {}
        self.handlers: dict[Command, Handler] = {Command.BYE: self.bye, Command.KEEP: self.keep}

    def bye(self, caller: Caller, request: Request) -> None:
        """BYE: close the session; its rows are released, which counts as no attempt."""
        bodies.unpack_nothing(request.body)
        self._end_all(caller)
        self._desk.checkers.gone(caller)
        found = self._broker.clients.leave(self._core.now_us(), caller.session)
        self._sessions.left(caller.session, caller)
        self._answer(found, _Waiting(caller, request, b""))

    def keep(self, caller: Caller, request: Request) -> None:
        """KEEP: end the session's leases that have not reached the client."""
        asked = control.decode(request.body, control.Keep)
        self._authoriser.check(caller.app, Command.KEEP)
        leases = [(one.epoch, one.lease) for one in asked.leases]
        found = self._broker.clients.keep(self._core.now_us(), caller.session, leases)
        self._answer(found, _Waiting(caller, request, control.encode(control.Nothing())))

    def _answer(self, found: DoneReply | Drain, waiting: _Waiting) -> None:
        """Answer now, or when the leases have been returned."""
        if isinstance(found, DoneReply):
            waiting.caller.answer(waiting.request, waiting.body, found.position)
            return
        self._waiting[found] = waiting
        waiting.caller.block()
        self._core.touch()

    def answer(self) -> None:
        """Answer the requests whose leases have been returned. Called after the timers have run."""
        for drain in self._over:
            waiting = self._waiting.pop(drain, None)
            if waiting is None:
                continue  # of before the start, or of an instance that was taken over
            caller, request, body = waiting
            if not caller.closed:
                caller.unblock()
                caller.answer(request, body, drain.position)
                caller.go_on_later()
        self._over.clear()
