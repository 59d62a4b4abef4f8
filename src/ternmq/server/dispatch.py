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
from ternmq.server.hub import Handler, Hub
from ternmq.server.peer import LATE, Peer
from ternmq.server.sessions import Place, Sessions
from ternmq.wire.commands import TABLE, Command
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.session import Request

log = logging.getLogger("ternmq.server")

IN_ORDER: Final = frozenset({Command.SEND})
"""When one of these waits for the disk, what its connection asked after it waits as well."""


class Dispatcher:
    """The one place where requests enter the broker.

    Args:
        hub: What connections share.
        sessions: Who is who.
        authoriser: Who may what.
        handlers: For every command of the table but HELLO.
        welcome: Makes the answer to HELLO.
        withdraw: Takes a connection's parked requests back.
        gone: Told that a connection is lost.

    Raises:
        ValueError: Table and handlers do not fit each other.
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
        """Say who a connection is; see ``Commands.greet``."""
        self._authoriser.authenticate(hello.app, hello.token)
        self._hub.enter(peer, hello.app)
        place = self._sessions.enter(peer, hello.app, hello, peer.address)
        peer.app = hello.app
        return place

    def gone(self, peer: Peer) -> None:
        """A connection is lost."""
        self._gone(peer)
        self._sessions.gone(peer, peer.session)

    def run(self, peer: Peer, request: Request) -> None:
        """Carry a request out; every error becomes an answer, or ends the broker."""
        if peer.closed:
            return
        if request.command in LATE:
            self._hub.read_late(peer, request)
        else:
            self._carry_out(peer, request)

    def read(self, peer: Peer, request: Request) -> None:
        """Carry a request out that came last; see ``Commands.read``."""
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
