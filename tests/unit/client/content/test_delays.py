"""Due times: how they are read, and how delays are counted by the broker's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from ternmq.client.content.broker_time import BrokerTime, moved_clocks
from ternmq.client.content.delays import LONGEST_US, Due, at, due_of
from ternmq.model.errors import DueTooFar, InvalidRequest

NOW_US = 1_800_000_000_000_000
PORT = 7


class Clock:
    """The monotonic clock of a client, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.us = 5_000_000
        monkeypatch.setitem(moved_clocks, PORT, lambda: self.us)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def settled(due: Due | None, time_: BrokerTime) -> int:
    assert due is not None
    return due.settle(time_)


def test_broker_time_is_never_behind_and_ahead_by_a_round_trip_at_most(clock: Clock) -> None:
    """Whenever the broker read its clock between the request and the answer."""
    trip_us = 30_000
    for read_after_us in (0, 10_000, trip_us):
        time_ = BrokerTime(PORT)
        known = [time_.known]
        asked_us = time_.moment_us()
        clock.us += trip_us
        time_.told(NOW_US + read_after_us, asked_us)
        known.append(time_.known)
        assert known == [False, True]
        real_us = NOW_US + trip_us  # of the broker, now
        assert real_us <= time_.at(time_.moment_us()) + trip_us - read_after_us
        assert 0 <= time_.at(time_.moment_us()) - real_us <= trip_us


def test_a_delay_begins_with_the_call_and_is_settled_once(clock: Clock) -> None:
    time_ = BrokerTime(PORT)
    due = due_of(60, None, time_)
    assert due is not None
    assert due.arguments() == (timedelta(seconds=60), None)
    clock.us += 20_000_000
    time_.told(NOW_US, time_.moment_us())
    clock.us += 5_000_000
    assert due.settle(time_) == NOW_US + 40_000_000
    assert due.arguments() == (None, at(NOW_US + 40_000_000))
    time_.told(NOW_US + 999, time_.moment_us())  # another connection: the due time is stored
    assert due.settle(time_) == NOW_US + 40_000_000
    other = due_of(60, None, time_, asked_us=5_000_000)
    assert other is not None
    assert other.settle(time_) != due.settle(time_)


@pytest.mark.parametrize(
    ("after", "us"),
    [
        (1, 1_000_000), (1.5, 1_500_000), (1e-7, 1), (0.1 + 0.2, 300_001),
        (timedelta(microseconds=1), 1), (timedelta(days=731), LONGEST_US),
        (731 * 86_400, LONGEST_US), (731 * 86_400.0, LONGEST_US),
    ],
)  # fmt: skip
def test_a_delay_is_never_rounded_down(clock: Clock, after: object, us: int) -> None:
    time_ = BrokerTime(PORT)
    time_.told(NOW_US, time_.moment_us())
    assert settled(due_of(after, None, time_), time_) == NOW_US + us


@pytest.mark.parametrize("after", [0, -1, -0.5, 0.0, timedelta(0), timedelta.min, -1e300])
def test_no_delay_is_at_once(after: object) -> None:
    assert due_of(after, None, BrokerTime()) is None


def test_times_are_kept_to_the_microsecond_and_in_any_zone(clock: Clock) -> None:
    time_ = BrokerTime(PORT)
    time_.told(NOW_US, time_.moment_us())
    moment = at(NOW_US) + timedelta(microseconds=1_000_001)
    for one in (moment, moment.astimezone()):
        assert settled(due_of(None, one, time_), time_) == NOW_US + 1_000_001
    assert due_of(None, datetime(1960, 1, 1, tzinfo=UTC), time_) is None
    assert due_of(None, None, time_) is None


def test_too_far_is_by_the_brokers_clock_if_that_is_known(clock: Clock) -> None:
    time_ = BrokerTime(PORT)
    machine = datetime.fromtimestamp(time.time(), UTC)
    with pytest.raises(DueTooFar, match=r"in 732\.[01] days"):
        due_of(None, machine + timedelta(days=732), time_)
    time_.told(NOW_US, time_.moment_us())
    assert due_of(None, at(NOW_US + LONGEST_US), time_)
    with pytest.raises(DueTooFar):
        due_of(None, at(NOW_US + LONGEST_US + 1), time_)
    with pytest.raises(DueTooFar, match=r"731\.1 days"):
        due_of(timedelta(days=731, microseconds=1), None, time_)
    for far in (1e300, 10**15):
        with pytest.raises(DueTooFar, match=r"deliver_after: .* over a million days"):
            due_of(far, None, time_)


def test_both_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="not both"):
        due_of(5, at(NOW_US), BrokerTime())
