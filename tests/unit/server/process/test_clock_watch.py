"""The log says that broker time does not follow the wall clock: once, and when it is over."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import cast

import pytest

from ternmq.broker.clock.clock import BrokerClock
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.types import DAY_US, HOUR_US, SECOND_US
from ternmq.server.engine.engine import Core
from ternmq.server.process.clock_watch import CALM_S, ClockWatch

REMEDY = "Compare the two with `ternmq clock`. "


class Clocked:
    """The part of ``Core`` that is looked at; a second passes with each look."""

    def __init__(self) -> None:
        self.clock = BrokerClock(0, 0)
        self.passed_us = 0
        self.ahead_us = 0

    def clock_gap_us(self) -> int:
        self.passed_us += SECOND_US
        self.clock.read(self.passed_us, self.passed_us + self.ahead_us)
        return self.clock.gap_us


class Watched:
    """A watch, its clock, and what it says."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.core = Clocked()
        self.watch = ClockWatch(cast("Core", self.core))
        self.caplog = caplog
        self.second = 0

    def look(self, seconds: float, ahead_us: int) -> list[str]:
        """Look once a second; return what was logged."""
        self.caplog.clear()
        self.core.ahead_us = ahead_us
        for _ in range(int(seconds)):
            self.second += 1
            self.watch.look(float(self.second))
        return self.caplog.messages


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    caplog.set_level(logging.INFO, "ternmq.server")
    return Watched(caplog)


def test_a_gap_is_told_once_and_its_end_when_it_stays_closed(watched: Watched) -> None:
    assert watched.look(100, 0) == []
    (said,) = watched.look(100, 3 * HOUR_US)
    assert said.startswith(
        f"the wall clock is 3 hours ahead of broker time, which does not follow it. {REMEDY}"
    )
    assert watched.look(CALM_S, 0) == []
    assert watched.look(1, 0) == ["broker time follows the wall clock again"]
    (said,) = watched.look(100, -DAY_US)
    assert said.startswith("the wall clock is 1 day behind broker time")


def test_a_gap_at_the_limit_does_not_fill_the_log(watched: Watched) -> None:
    said = []
    for _ in range(100):
        said += watched.look(1, 6 * SECOND_US)
        said += watched.look(3, 0)
    assert len(said) == 1


def test_a_start_that_did_not_believe_the_clock_says_so_and_nothing_more(watched: Watched) -> None:
    _, report = open_journal(MemoryDisk(), wall_us=1, segment_size=8192)
    watched.watch.started(report, 90 * DAY_US)
    assert watched.caplog.messages == []
    watched.watch.started(replace(report, disbelieved_us=70 * 365 * DAY_US), 90 * DAY_US)
    (said,) = watched.caplog.messages
    assert said.startswith(
        "the wall clock is 70 years ahead of the last record in the journal, which is more than"
        f" start_jump = 90d: broker time continues from the last record. {REMEDY}"
    )
    assert watched.look(100, 70 * 365 * DAY_US) == []
