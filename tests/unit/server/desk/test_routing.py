"""Who is told when the routes change: connections that asked for them, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec

from ternmq.server.desk.desk import Desk
from ternmq.server.desk.routing import Routing
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller


class Peer:
    def __init__(self) -> None:
        self.app, self.session, self.closed = "shop", 1, False
        self.told: list[tuple[int, bytes]] = []

    def push(self, command: int, body: bytes) -> None:
        self.told.append((command, body))


class State:
    """A desk of which only the watchers matter, and routes that change."""

    def __init__(self) -> None:
        self.now = control.Routes(group="main")
        self.watchers: set[Caller] = set()
        loop = SimpleNamespace(call_soon=lambda call: call())
        desk = SimpleNamespace(route_watchers=self.watchers, core=SimpleNamespace(loop=loop))
        self.routing = Routing(cast("Desk", desk), lambda: self.now)


PUSH = (Command.ROUTES_CHANGED, control.encode(control.RoutesChanged()))


def test_who_asked_is_told_of_each_change_once() -> None:
    state, asked, other = State(), Peer(), Peer()
    assert state.routing.ask(cast("Caller", asked)) == state.now
    state.routing.look()
    assert asked.told == []
    state.now = msgspec.structs.replace(state.now, generation=1)
    state.routing.look()
    state.routing.look()
    assert asked.told == [PUSH]
    assert other.told == []
    assert state.routing.ask(cast("Caller", asked)) == state.now
    state.now = msgspec.structs.replace(state.now, generation=2)
    state.routing.look()
    assert asked.told == [PUSH, PUSH], "asked twice, told once"


def test_who_is_gone_is_not_told() -> None:
    state, gone = State(), Peer()
    caller = cast("Caller", gone)
    state.routing.ask(caller)
    state.watchers.discard(caller)
    state.now = control.Routes()
    state.routing.look()
    assert gone.told == []
