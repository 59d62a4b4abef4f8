"""The look once a second whether connections are late: some in each pass of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ternmq.server.commands.dispatch import Dispatcher
from ternmq.server.desk.desk import Desk
from ternmq.server.engine.engine import Core
from ternmq.server.native.hub import SWEPT_A_TURN, Hub, Member
from ternmq.server.telemetry.counters import Counters
from ternmq.settings import Mode, load


class FakeLoop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, call: Callable[..., None], *more: Any) -> None:
        self.soon.append(lambda: call(*more))


class FakeCore:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.on_turn: Callable[[], None] = lambda: None


class FakePeer:
    def __init__(self) -> None:
        self.looked: list[float] = []

    def look(self, now: float) -> None:
        self.looked.append(now)


def test_thousands_are_looked_at_some_at_a_time() -> None:
    core = FakeCore()
    desk = Desk(cast("Core", core), load(mode=Mode.TESTING), Counters())
    desk.commands = cast("Dispatcher", None)
    hub = Hub(desk)
    peers = [FakePeer() for _ in range(SWEPT_A_TURN * 2 + 7)]
    hub.peers = cast("set[Member]", set(peers))
    hub.sweep(5.0)
    counts = [sum(len(peer.looked) for peer in peers)]
    while core.loop.soon:
        core.loop.soon.pop(0)()
        counts.append(sum(len(peer.looked) for peer in peers))
    assert counts == [SWEPT_A_TURN, 2 * SWEPT_A_TURN, len(peers)]
    assert all(peer.looked == [5.0] for peer in peers), "each once"
    assert hub.accounts.second == 2, "however many passes it takes: a second is one"
