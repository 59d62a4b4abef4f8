"""Lifetimes: from when they count, by the broker's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ternmq.client.content.broker_time import BrokerTime, moved_clocks
from ternmq.client.content.delays import due_of
from ternmq.client.content.lifetimes import Lifetime, lifetime_of
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import LONGEST_US

NOW_US = 1_800_000_000_000_000
SECOND = 1_000_000
PORT = 8


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> BrokerTime:
    monkeypatch.setitem(moved_clocks, PORT, lambda: 5 * SECOND)
    time = BrokerTime(PORT)
    time.told(NOW_US, 5 * SECOND)
    return time


def lives(after: float | timedelta, time: BrokerTime) -> Lifetime:
    lifetime = lifetime_of(after, time)
    assert lifetime is not None
    return lifetime


@pytest.mark.parametrize(
    ("due_us", "from_us"),
    [
        (0, NOW_US),
        (1, NOW_US),
        (NOW_US - SECOND, NOW_US),
        (NOW_US + SECOND, NOW_US + SECOND),
    ],
)
def test_a_lifetime_counts_from_the_later_of_the_call_and_the_due_time(
    known: BrokerTime, due_us: int, from_us: int
) -> None:
    lifetime = lives(10, known)
    assert lifetime.end_us(due_us) == from_us + 10 * SECOND
    known.told(NOW_US + 77, 5 * SECOND)  # a resend has the same bytes
    assert lifetime.end_us(due_us) == from_us + 10 * SECOND


def test_a_lifetime_and_a_delay_are_a_hundred_years_at_most(known: BrokerTime) -> None:
    hundred = timedelta(microseconds=LONGEST_US)
    for delay, after, good in (
        (1, hundred - timedelta(seconds=1), True),
        (1, hundred - timedelta(microseconds=999_999), False),
        (730 * 86_400, 1, True),
        (730 * 86_400, hundred, False),
    ):
        due = due_of(delay, None, known)
        assert due is not None
        at = due_of(None, datetime.fromtimestamp(NOW_US / 1e6 + delay, UTC), known)
        assert at is not None
        for one in (due, at):
            if good:
                lives(after, known).check(one)
            else:
                with pytest.raises(InvalidRequest, match="hundred years"):
                    lives(after, known).check(one)
    past = due_of(None, datetime(2000, 1, 1, tzinfo=UTC), known)
    assert past is not None
    lives(hundred, known).check(past)


def test_no_message_expires_later_than_the_broker_accepts(known: BrokerTime) -> None:
    """The due time was compared with a clock that was wrong."""
    lifetime = lives(timedelta(microseconds=LONGEST_US), known)
    assert lifetime.end_us(NOW_US + SECOND) == NOW_US + LONGEST_US
