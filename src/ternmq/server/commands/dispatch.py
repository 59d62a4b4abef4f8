"""Runs requests: finds the handler and turns errors into answers.

Handlers call ``Authoriser.check`` with the topic and group that the command's policy in
``wire.commands.TABLE`` needs. A command without a handler, or a handler without a command, keeps
the server from starting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ternmq.access import Authoriser
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskReadError,
    JournalFailed,
    JournalFull,
    RefusedError,
    TernMQError,
)
from ternmq.server.commands.sends import MessageCommands
from ternmq.server.desk.desk import Desk, ReadingDesk
from ternmq.server.desk.late import LATE
from ternmq.server.desk.sessions import Sessions
from ternmq.wire.commands import TABLE, Command
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.port import Caller, Handler, Joined
from ternmq.wire.session import Request

log = logging.getLogger("ternmq.server")

IN_ORDER: Final = frozenset({Command.SEND})
"""Commands that keep the order: while one waits for the disk, its connection's later requests wait
as well."""


class Runner:
    """Runs requests. Not thread-safe: call it from the broker's loop.

    Args:
        desk: State shared by all callers.
        handlers: For every command of the table but HELLO.

    Raises:
        ValueError: A command has no handler, or a handler no command.
    """

    def __init__(self, desk: ReadingDesk, handlers: Mapping[Command, Handler]) -> None:
        wanted = TABLE.keys() - {Command.HELLO}
        if handlers.keys() != wanted:
            raise ValueError(
                f"commands without handler, or the reverse: {handlers.keys() ^ wanted}"
            )
        self._desk = desk
        self._handlers = dict(handlers)

    def run(self, caller: Caller, request: Request) -> None:
        """Run a request, or queue it if it is a late one; every error is answered or fatal."""
        if caller.closed:
            return
        if request.command in LATE:
            self._desk.late.put(caller, request)
        else:
            self._carry_out(caller, request)

    def read(self, caller: Caller, request: Request) -> None:
        """Run a request that ``LateReads`` has queued."""
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
        self._desk.core.cold_reads.read(blocked, again, caller)

    def _again(self, caller: Caller, request: Request, in_order: bool) -> None:
        if in_order:
            caller.unblock()
        elif not caller.roomy and not request.one_way and not caller.closed:
            caller.put_back(request)
            return
        self.run(caller, request)
        if in_order:
            caller.go_on()


class Dispatcher(Runner):
    """The one place where requests enter a broker that leads.

    Args:
        desk: State shared by all callers.
        sessions: Sessions and their callers.
        authoriser: Checks the token of a HELLO.
        handlers: For every command of the table but HELLO.
        welcome: Makes the answer to HELLO.
        messages: The handlers whose requests may wait.

    Raises:
        ValueError: A command has no handler, or a handler no command.
    """

    _desk: Desk

    def __init__(
        self,
        desk: Desk,
        sessions: Sessions,
        authoriser: Authoriser,
        handlers: Mapping[Command, Handler],
        welcome: Callable[[Joined], Welcome],
        messages: MessageCommands,
    ) -> None:
        super().__init__(desk, handlers)
        self.welcome = welcome
        self.withdraw = messages.withdraw
        self.end_all = messages.end_all
        self._sessions = sessions
        self._authoriser = authoriser

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
        self._desk.late.drop(caller)
        self._desk.core.cold_reads.forget(caller)
        self.withdraw(caller)
        self._desk.checkers.gone(caller)
        self._desk.route_watchers.discard(caller)
        self._sessions.gone(caller, caller.session)
