"""Broker time against what it promises of itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.clock.clock import GAP_US, SLEW, BrokerClock

START_US = 10**15

steps = st.lists(
    st.tuples(
        st.integers(-(10**6), 10**8),  # monotonic time that passed (may seem to go back)
        st.integers(-(10**8), 10**8),  # by how much the wall clock was set
        st.booleans(),  # accept
    ),
    max_size=30,
)


@given(st.integers(-(10**8), 10**8), steps)
def test_time_never_goes_back_and_never_jumps_unless_told(
    ahead: int, some: list[tuple[int, int, bool]]
) -> None:
    monotonic = 0
    wall = START_US + ahead
    clock = BrokerClock(START_US, monotonic)
    last = START_US
    newest = 0
    for passed, was_set, accept in some:
        monotonic += passed
        wall += passed + was_set
        if accept:
            clock.accept()
        now = clock.read(monotonic, wall)
        true_passed = max(0, monotonic - newest)
        newest = max(newest, monotonic)
        assert now >= last
        if not accept:
            assert abs(now - last - true_passed) <= true_passed // SLEW
        assert clock.gap_us == wall - now
        assert clock.alarmed == (abs(clock.gap_us) > GAP_US)
        last = now


def test_a_small_gap_closes_at_one_part_in_a_hundred() -> None:
    clock = BrokerClock(START_US, 0)
    wall = START_US + 1_000_000
    assert clock.read(50_000_000, wall + 50_000_000) == START_US + 50_500_000
    assert clock.read(100_000_000, wall + 100_000_000) == START_US + 101_000_000
    assert clock.gap_us == 0
    assert clock.read(200_000_000, wall + 200_000_000) == START_US + 201_000_000


def test_a_large_gap_is_reported_and_followed_when_accepted() -> None:
    clock = BrokerClock(START_US, 0)
    wall = START_US + 3_600_000_000
    assert clock.read(1_000_000, wall) == START_US + 1_000_000
    assert clock.alarmed
    clock.accept()
    assert clock.read(2_000_000, wall) == wall
    assert not clock.alarmed


def test_a_wall_clock_that_is_far_behind_is_not_followed_back() -> None:
    clock = BrokerClock(START_US, 0)
    clock.accept()
    assert clock.read(1_000_000, START_US - 3_600_000_000) == START_US + 1_000_000
    assert clock.alarmed
