"""Carries requests out: who may, which handler, and what becomes of errors.

Every request passes ``Authoriser.check`` with what its policy in ``wire.commands.TABLE`` names. A
command without a handler here, or the other way round, keeps the server from starting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ternmq.access import Authoriser
from ternmq.journal.cold import WouldBlock
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskReadError,
    JournalFailed,
    JournalFull,
    RefusedError,
    TernMQError,
)
from ternmq.server.desk import Desk
from ternmq.server.late import LATE
from ternmq.server.messages import MessageCommands
from ternmq.server.sessions import Sessions
from ternmq.wire.commands import TABLE, Command
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.port import Caller, Handler, Joined
from ternmq.wire.session import Request

log = logging.getLogger("ternmq.server")

IN_ORDER: Final = frozenset({Command.SEND})
"""When one of these waits for the disk, what its connection asked after it waits as well."""


class Dispatcher:
    """The one place where requests enter the broker.

    Args:
        desk: What callers share.
        sessions: Who is who.
        authoriser: Who may what.
        handlers: For every command of the table but HELLO.
        welcome: Makes the answer to HELLO.
        messages: The requests that wait are theirs.

    Raises:
        ValueError: Table and handlers do not fit each other.
    """

    def __init__(
        self,
        desk: Desk,
        sessions: Sessions,
        authoriser: Authoriser,
        handlers: Mapping[Command, Handler],
        welcome: Callable[[Joined], Welcome],
        messages: MessageCommands,
    ) -> None:
        wanted = TABLE.keys() - {Command.HELLO}
        if handlers.keys() != wanted:
            raise ValueError(
                f"commands without handler, or the reverse: {handlers.keys() ^ wanted}"
            )
        self.welcome = welcome
        self.withdraw = messages.withdraw
        self.end_all = messages.end_all
        self._desk = desk
        self._sessions = sessions
        self._authoriser = authoriser
        self._handlers = dict(handlers)

    def greet(self, caller: Caller, hello: Hello) -> Joined:
        """Authenticate a client and give it a session; see ``Commands.greet``."""
        self._authoriser.authenticate(hello.app, hello.token)
        caller.enter(hello.app)
        joined = self._sessions.enter(caller, hello.app, hello, caller.address)
        caller.app = hello.app
        self._desk.callers.add(caller)
        return joined

    def gone(self, caller: Caller) -> None:
        """Forget a client that is gone; see ``Commands.gone``."""
        self._desk.callers.discard(caller)
        self.withdraw(caller)
        self._sessions.gone(caller, caller.session)

    def run(self, caller: Caller, request: Request) -> None:
        """Carry a request out; every error becomes an answer, or ends the broker."""
        if caller.closed:
            return
        if request.command in LATE:
            self._desk.late.put(caller, request)
        else:
            self._carry_out(caller, request)

    def read(self, caller: Caller, request: Request) -> None:
        """Carry a request out that came last; see ``Commands.read``."""
        self._carry_out(caller, request)

    def _carry_out(self, caller: Caller, request: Request) -> None:
        core = self._desk.core
        try:
            self._handlers[request.command](caller, request)
        except WouldBlock as blocked:
            self._later(caller, request, blocked)
        except JournalFull as error:
            caller.refuse(request, Busy(f"the journal has no room just now: {error.args[0]}"))
            core.touch_later(0.05)
        except RefusedError as error:
            caller.refuse(request, error, core.broker.refusal_rests_on(error))
        except (DiskReadError, CorruptJournal) as error:
            caller.refuse(request, core.unreadable(error))
        except JournalFailed as error:
            core.fail(error)
        except TernMQError as error:
            log.exception("%s failed", request.command.name)
            caller.refuse(request, error)

    def _later(self, caller: Caller, request: Request, blocked: WouldBlock) -> None:
        in_order = request.command in IN_ORDER
        if in_order:
            caller.block()
        again = partial(self._again, caller, request, in_order)
        self._desk.core.read_first(blocked, again, caller)

    def _again(self, caller: Caller, request: Request, in_order: bool) -> None:
        if in_order:
            caller.unblock()
        elif not caller.roomy and not request.one_way and not caller.closed:
            caller.put_back(request)
            return
        self.run(caller, request)
        if in_order:
            caller.go_on()
