"""What the handlers of control commands share: decode, authorise, carry out, answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from ternmq.access import Authoriser
from ternmq.broker.listings import Listings
from ternmq.broker.queries import Queries
from ternmq.server.audit import CHANGES
from ternmq.server.hub import Handler, Hub
from ternmq.server.peer import Peer
from ternmq.server.whole_lists import WholeList
from ternmq.wire import control
from ternmq.wire.commands import TABLE, Command, Scope
from ternmq.wire.session import Request

T = TypeVar("T", bound=msgspec.Struct)

Told = tuple[msgspec.Struct, int]
"""An answer, and the position that it rests on (0: on nothing)."""


class ControlCommands:
    """Base of the handlers. Loop only.

    Args:
        hub: What connections share.
        authoriser: Who may what.
        queries: Questions to the core.

    Attributes:
        handlers: By command; a subclass fills it.
    """

    def __init__(self, hub: Hub, authoriser: Authoriser, queries: Queries) -> None:
        self._hub = hub
        self._core = hub.core
        self._broker = hub.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self._listings = Listings(hub.core.broker.ledger)
        self.handlers: dict[Command, Handler] = {}

    def control(
        self, command: Command, kind: type[T], handler: Callable[[Peer, T], Told]
    ) -> Handler:
        """Return the handler of a command whose request is a ``kind``."""
        return partial(self._run, command, kind, handler)

    def listing(
        self, command: Command, kind: type[T], entries: str, page: Callable[[Peer, T], Told]
    ) -> Handler:
        """Return the handler of a list: of a page of it, or of all in one answer."""
        return partial(self._list, command, kind, entries, page)

    def _list(
        self,
        command: Command,
        kind: type[T],
        entries: str,
        page: Callable[[Peer, T], Told],
        peer: Peer,
        request: Request,
    ) -> None:
        asked = control.decode(request.body, kind)
        self._authoriser.check(peer.app, command)
        if getattr(asked, "limit", None) is None:
            one = partial(page, peer)
            WholeList(self._hub, peer, request, asked, entries, one).go_on()
            return
        answer, position = page(peer, asked)
        peer.answer(request, control.encode(answer), position)

    def _run(
        self,
        command: Command,
        kind: type[T],
        handler: Callable[[Peer, T], Told],
        peer: Peer,
        request: Request,
    ) -> None:
        """Decode, authorise, carry out, answer."""
        asked = control.decode(request.body, kind)
        scope = TABLE[command].policy.scope
        topic = getattr(asked, "topic", None) if scope in (Scope.TOPIC, Scope.GROUP) else None
        group = getattr(asked, "group", None) if scope is Scope.GROUP else None
        if scope is not Scope.TRANSACTION:  # the handler finds out which topics these are
            self._authoriser.check(peer.app, command, topic, group)
        answer, position = handler(peer, asked)
        if command in CHANGES and not getattr(asked, "dry_run", False):
            self._hub.audit.changed(
                peer.app, peer.address, command, topic or "", group or "", **_about(asked)
            )
        peer.answer(request, control.encode(answer), position)


def _about(asked: msgspec.Struct) -> dict[str, str]:
    """Return what else the audit tells of a change: of which app, its grants from then on."""
    if isinstance(asked, control.AppPut):
        grants = " ".join(map(str, asked.grants))
        new_token = "yes" if asked.new_token else "no"
        return {"target": asked.app, "grants": grants, "new_token": new_token}
    if isinstance(asked, control.HoldDelete):
        return {"target": asked.name}
    return {"target": asked.app} if isinstance(asked, control.AppDelete) else {}
