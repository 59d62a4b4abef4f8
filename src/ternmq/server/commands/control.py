"""Base of the handlers of control commands: decode, authorise, run, answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from ternmq.access import Authoriser
from ternmq.broker.broker import Broker
from ternmq.broker.query.listings import Listings
from ternmq.broker.query.messages import Queries
from ternmq.model.transaction_ids import transaction_id
from ternmq.server.desk.desk import Desk, ReadingDesk
from ternmq.server.desk.whole_lists import WholeList
from ternmq.server.engine.engine import Core
from ternmq.server.telemetry.audit import CHANGES
from ternmq.wire import control
from ternmq.wire.commands import TABLE, Command, Scope
from ternmq.wire.port import Caller, Handler
from ternmq.wire.session import Request

T = TypeVar("T", bound=msgspec.Struct)

Answer = tuple[msgspec.Struct, int]
"""An answer, and the position that it depends on (0: on none)."""


class ControlCommands:
    """Base of handlers that only read. Not thread-safe: call it from the broker's loop.

    Args:
        desk: State shared by all callers.
        authoriser: Checks rights.
        queries: Queries to the core.

    Attributes:
        handlers: Command -> handler; subclasses fill it.
    """

    def __init__(self, desk: ReadingDesk, authoriser: Authoriser, queries: Queries) -> None:
        self._desk = desk
        self._core = desk.core
        self._broker = desk.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self._listings = Listings(desk.core.broker)
        self.handlers: dict[Command, Handler] = {}

    def control(
        self, command: Command, kind: type[T], handler: Callable[[Caller, T], Answer]
    ) -> Handler:
        """Return the handler of a command whose request is a ``kind``."""
        return partial(self._run, command, kind, handler)

    def listing(
        self, command: Command, kind: type[T], entries: str, page: Callable[[Caller, T], Answer]
    ) -> Handler:
        """Return the handler of a list command: it answers with a page, or with the whole list."""
        return partial(self._list, command, kind, entries, page)

    def _list(
        self,
        command: Command,
        kind: type[T],
        entries: str,
        page: Callable[[Caller, T], Answer],
        caller: Caller,
        request: Request,
    ) -> None:
        asked = control.decode(request.body, kind)
        self._authoriser.check(caller.app, command)
        if getattr(asked, "limit", None) is None:
            one = partial(page, caller)
            WholeList(self._desk, caller, request, asked, entries, one).go_on()
            return
        answer, position = page(caller, asked)
        caller.answer(request, control.encode(answer), position)

    def _run(
        self,
        command: Command,
        kind: type[T],
        handler: Callable[[Caller, T], Answer],
        caller: Caller,
        request: Request,
    ) -> None:
        """Decode, authorise, run, answer."""
        asked = control.decode(request.body, kind)
        scope = TABLE[command].policy.scope
        topic = getattr(asked, "topic", None) if scope in (Scope.TOPIC, Scope.GROUP) else None
        group = getattr(asked, "group", None) if scope is Scope.GROUP else None
        if scope is not Scope.TRANSACTION:  # the handler finds out which topics these are
            self._authoriser.check(caller.app, command, topic, group)
        answer, position = handler(caller, asked)
        if command in CHANGES and not getattr(asked, "dry_run", False):
            self._desk.audit.changed(
                caller.app, caller.address, command, topic or "", group or "", **_about(asked)
            )
        caller.answer(request, control.encode(answer), position)


class BrokerCommands(ControlCommands):
    """Base of handlers that need a broker that leads. Not thread-safe: the broker's loop only."""

    _desk: Desk
    _core: Core
    _broker: Broker

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self._listings = Listings(desk.core.broker, desk.core.broker.parking)


def _about(asked: msgspec.Struct) -> dict[str, str]:
    """Return further fields of a change's audit record: an app and its new grants, or a hold."""
    if isinstance(asked, control.AppPut):
        grants = " ".join(map(str, asked.grants))
        new_token = "yes" if asked.new_token else "no"
        return {"target": asked.app, "grants": grants, "new_token": new_token}
    if isinstance(asked, control.AlarmClear):
        return {"target": f"{asked.name} {asked.subject}".rstrip()}
    if isinstance(asked, control.TransactionCheckAgain):
        return {"target": transaction_id(asked.transaction)}
    if isinstance(asked, control.ProducerGroupPut):
        return {"target": asked.group, "owner": asked.app}
    if isinstance(asked, control.ProducerGroupDelete):
        return {"target": asked.group}
    if isinstance(asked, control.HoldDelete):
        return {"target": asked.name}
    return {"target": asked.app} if isinstance(asked, control.AppDelete) else {}
