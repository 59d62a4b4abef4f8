"""What a client knows of broker time: never behind it, and for a moment ahead of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ternmq.client.content.broker_time import BrokerTime, moved_clocks

PORT = 1
S = 1_000_000


class Clock:
    now_us = 1000 * S


@pytest.fixture
def clock() -> Iterator[Clock]:
    one = Clock()
    moved_clocks[PORT] = lambda: one.now_us
    yield one
    del moved_clocks[PORT]


@pytest.mark.parametrize("transit_us", [0, S, 8 * S])
def test_a_jump_is_never_underestimated(clock: Clock, transit_us: int) -> None:
    """However long the news was on its way, since the last answer: the result is not behind."""
    known = BrokerTime(PORT)
    known.told(50_000 * S, clock.now_us)
    clock.now_us += transit_us
    sent_us = 60_000 * S  # the broker's time when it sent the news, at most so long ago
    known.moved(sent_us)
    assert sent_us + transit_us <= known.at(known.moment_us()) <= sent_us + 10 * S
    known.told(sent_us + transit_us, clock.now_us)
    assert known.at(known.moment_us()) == sent_us + transit_us, "as precise as before"


def test_a_client_that_heard_nothing_for_long_is_not_far_ahead(clock: Clock) -> None:
    known = BrokerTime(PORT)
    known.told(50_000 * S, clock.now_us)
    clock.now_us += 86_400 * S
    known.moved(60_000 * S)
    assert known.at(known.moment_us()) == 60_010 * S


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no such clock")
def test_a_suspend_of_the_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of suspend, which CLOCK_MONOTONIC does not count: the result is not behind."""
    known = BrokerTime()
    known.told(50_000 * S, known.moment_us())
    read, hour_ns = time.clock_gettime_ns, 3600 * 10**9
    suspended = {time.CLOCK_BOOTTIME: hour_ns}
    monkeypatch.setattr(
        time, "clock_gettime_ns", lambda clock: read(clock) + suspended.get(clock, 0)
    )
    assert known.at(known.moment_us()) >= 53_600 * S
