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
from ternmq.server.hub import Handler, Hub
from ternmq.server.peer import LATE, Peer
from ternmq.server.sessions import Place, Sessions
from ternmq.wire.commands import TABLE, Command
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.session import Request

log = logging.getLogger("ternmq.server")

IN_ORDER: Final = frozenset({Command.SEND})
"""Commands that keep the order: while one waits for the disk, its connection's later requests wait
as well."""


class Dispatcher:
    """The one place where requests enter the broker.

    Args:
        hub: State shared by all connections.
        sessions: Sessions and their connections.
        authoriser: Checks the token of a HELLO.
        handlers: For every command of the table but HELLO.
        welcome: Makes the answer to HELLO.
        withdraw: Takes a connection's parked requests back.
        gone: Called when a connection is lost.

    Raises:
        ValueError: A command has no handler, or a handler no command.
    """

    def __init__(
        self,
        hub: Hub,
        sessions: Sessions,
        authoriser: Authoriser,
        handlers: Mapping[Command, Handler],
        welcome: Callable[[Place], Welcome],
        withdraw: Callable[[Peer], list[Request]],
        gone: Callable[[Peer], None],
    ) -> None:
        wanted = TABLE.keys() - {Command.HELLO}
        if handlers.keys() != wanted:
            raise ValueError(
                f"commands without handler, or the reverse: {handlers.keys() ^ wanted}"
            )
        self.withdraw = withdraw
        self.welcome = welcome
        self._hub = hub
        self._sessions = sessions
        self._authoriser = authoriser
        self._handlers = dict(handlers)
        self._gone = gone

    def greet(self, peer: Peer, hello: Hello) -> Place:
        """Authenticate a connection and enter its session. Raises the error that refuses it."""
        self._authoriser.authenticate(hello.app, hello.token)
        self._hub.enter(peer, hello.app)
        place = self._sessions.enter(peer, hello.app, hello, peer.address)
        peer.app = hello.app
        return place

    def gone(self, peer: Peer) -> None:
        """Clean up after a lost connection."""
        self._gone(peer)
        self._sessions.gone(peer, peer.session)

    def run(self, peer: Peer, request: Request) -> None:
        """Run a request, or queue it if it is a late one; every error is answered or fatal."""
        if peer.closed:
            return
        if request.command in LATE:
            self._hub.read_late(peer, request)
        else:
            self._carry_out(peer, request)

    def read(self, peer: Peer, request: Request) -> None:
        """Run a request that ``Hub.read_late`` has queued."""
        self._carry_out(peer, request)

    def _carry_out(self, peer: Peer, request: Request) -> None:
        core = self._hub.core
        try:
            self._handlers[request.command](peer, request)
        except WouldBlock as blocked:
            self._later(peer, request, blocked)
        except JournalFull as error:
            peer.refuse(request, Busy(f"the journal has no room just now: {error.args[0]}"))
            core.touch_later(0.05)
        except RefusedError as error:
            peer.refuse(request, error, core.broker.refusal_rests_on(error))
        except (DiskReadError, CorruptJournal) as error:
            peer.refuse(request, core.unreadable(error))
        except JournalFailed as error:
            core.fail(error)
        except TernMQError as error:
            log.exception("%s failed", request.command.name)
            peer.refuse(request, error)

    def _later(self, peer: Peer, request: Request, blocked: WouldBlock) -> None:
        in_order = request.command in IN_ORDER
        if in_order:
            peer.block()
        again = partial(self._again, peer, request, in_order)
        self._hub.core.read_first(blocked, again, peer)

    def _again(self, peer: Peer, request: Request, in_order: bool) -> None:
        if in_order:
            peer.unblock()
        elif not peer.roomy and not request.one_way and not peer.closed:
            peer.put_back(request)
            return
        self.run(peer, request)
        if in_order:
            peer.go_on()
