from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from ternmq.client.consumer.awake import Awake


class Loop:
    """Keeps what is to be called later."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        assert 0 < delay < 1
        self.later.append(call)


def test_what_is_read_after_a_freeze_may_have_arrived_at_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, ended = 100.0, False
    monkeypatch.setattr(time, "monotonic", lambda: now)
    loop = Loop()
    awake = Awake(loop, lambda: ended)  # type: ignore[arg-type]
    now = 100.9
    assert awake.arrived() == 100.9  # the loop is merely busy
    assert awake.look(now) == -math.inf
    now = 130.0
    assert awake.arrived() == 100.0
    assert awake.look(now) == 130.0
    now = 130.1
    assert (awake.look(now), awake.arrived()) == (130.0, 100.0)  # noticed once, until the tick
    loop.later.pop()()
    # Timers may run before sockets are read: the note is new, and yet the answer has waited.
    assert (awake.look(now), awake.arrived()) == (130.0, 100.0)
    now = 130.9
    loop.later.pop()()
    now = 131.0
    assert (awake.look(now), awake.arrived()) == (130.0, 131.0)
    now = 140.0
    loop.later.pop()()
    assert awake.thawed == 140.0  # the tick notices it, too
    ended = True
    loop.later.pop()()
    assert loop.later == []
