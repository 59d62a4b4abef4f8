"""How far a copy is behind, by the primary's words and by what is applied."""

from __future__ import annotations

from ternmq.model.types import Position
from ternmq.server.reading.lag import APART_US, MOST, Lag

SECOND = 1_000_000


def heard(lag: Lag, commit: int, time_us: int) -> None:
    lag.heard(Position(commit), time_us)


def behind(lag: Lag, applied: int, now_us: int, applied_us: int = 0) -> int:
    return lag.behind_us(Position(applied), applied_us, now_us)


def test_it_is_the_time_since_the_newest_word_whose_records_are_applied() -> None:
    lag = Lag()
    heard(lag, 100, 1 * SECOND)
    heard(lag, 200, 2 * SECOND)
    heard(lag, 300, 3 * SECOND)
    assert behind(lag, 99, 4 * SECOND) == 4 * SECOND  # nothing is known of what is applied
    assert behind(lag, 100, 4 * SECOND) == 3 * SECOND
    assert behind(lag, 299, 4 * SECOND) == 2 * SECOND
    assert behind(lag, 300, 4 * SECOND) == 1 * SECOND


def test_it_grows_while_nothing_is_heard() -> None:
    lag = Lag()
    heard(lag, 100, SECOND)
    assert behind(lag, 100, SECOND) == 0
    assert behind(lag, 100, 61 * SECOND) == 60 * SECOND


def test_an_idle_primary_says_the_same_again() -> None:
    lag = Lag()
    for second in range(1, 5):
        heard(lag, 100, second * SECOND)
        assert behind(lag, 100, second * SECOND) == 0


def test_a_record_is_a_word_too() -> None:
    """Records are in order of time: what was committed before it is before it."""
    assert behind(Lag(), 100, 5 * SECOND, applied_us=3 * SECOND) == 2 * SECOND


def test_it_is_never_less_than_nothing() -> None:
    lag = Lag()
    heard(lag, 100, 2 * SECOND)
    assert behind(lag, 100, SECOND) == 0


def test_words_are_remembered_a_moment_apart_and_not_too_many() -> None:
    lag = Lag()
    heard(lag, 1, SECOND)
    heard(lag, 2, SECOND + APART_US - 1)
    assert len(lag._words) == 1
    for number in range(2 * MOST):
        heard(lag, 10 + number, 2 * SECOND + number * APART_US)
    assert len(lag._words) == MOST
    last = 2 * SECOND + (2 * MOST - 1) * APART_US
    assert behind(lag, 10 + MOST - 1, last) == last  # what was said of these is forgotten
    assert behind(lag, 10 + MOST, last) == (MOST - 1) * APART_US
    assert behind(lag, 10 + 2 * MOST - 1, last) == 0  # also if nobody asked for hours


def test_a_cut_forgets_what_was_applied() -> None:
    lag = Lag()
    heard(lag, 100, SECOND)
    assert behind(lag, 100, 2 * SECOND) == SECOND
    lag.cut()
    assert behind(lag, 100, 2 * SECOND) == 2 * SECOND
