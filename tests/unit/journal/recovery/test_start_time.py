"""Broker time of a start: the wall clock, within bounds that a wrong clock does not exceed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.recovery.recovery import open_journal, start_time

JUMP = 1000
times = st.integers(1, 1 << 62)


@given(times, times, st.none() | st.integers(0, 1 << 62))
def test_it_never_goes_back_and_is_one_of_the_two(wall: int, last: int, jump: int | None) -> None:
    found = start_time(wall, last, jump)
    assert found >= last
    assert found == (last if jump is not None and wall > last + jump else max(wall, last))


def test_without_a_record_the_wall_clock_is_believed() -> None:
    assert start_time(1 << 60, 0, JUMP) == 1 << 60


@pytest.mark.parametrize(
    ("wall", "time", "disbelieved"),
    [(50, 100, 0), (100 + JUMP, 100 + JUMP, 0), (101 + JUMP, 100, 1 + JUMP)],
)
def test_a_start_says_how_far_it_did_not_believe_the_clock(
    wall: int, time: int, disbelieved: int
) -> None:
    disk = MemoryDisk()
    open_journal(disk, wall_us=100, segment_size=8192)
    _, report = open_journal(disk, wall_us=wall, start_jump_us=JUMP)
    assert (report.time_us, report.disbelieved_us) == (time, disbelieved)
    # What it wrote is of that time, too, so that the next start goes on from there.
    _, report = open_journal(disk, wall_us=0, start_jump_us=JUMP)
    assert report.time_us == time
