"""The newest records in memory: a dict emptied from the front, in generations."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from ternmq.journal.log import recent
from ternmq.journal.log.recent import GENERATION_RECORDS, RecentRecords


def filled(limit: int, sizes: list[int], flush_every: int = 1) -> tuple[RecentRecords, list[int]]:
    records = RecentRecords(limit)
    positions: list[int] = []
    at = size = 0
    for number, length in enumerate(sizes, 1):
        records.young[at] = bytes(length)
        positions.append(at)
        at += length
        size += length
        if number % flush_every == 0:
            records.count(size)
            size = 0
    return records, positions


@given(
    limit=st.integers(0, 3000),
    sizes=st.lists(st.integers(48, 400), max_size=60),
    flush_every=st.integers(1, 5),
)
def test_the_newest_are_here_up_to_the_limit(limit, sizes, flush_every):
    records, positions = filled(limit, sizes, flush_every)
    counted = len(sizes) - len(sizes) % flush_every
    here = [position for position in positions if records.get(position) is not None]
    assert here == positions[len(positions) - len(here) :]
    assert len(records) == len(here)
    held = sum(sizes[len(sizes) - len(here) : counted])
    assert held <= limit or len(here) == len(sizes) - counted
    for position, size in zip(positions, sizes, strict=True):
        assert records.get(position) in (None, bytes(size))
        assert records.get(position + 1) is None
    for start in range(len(here)):
        assert records.gather(here[start:]) == [records.get(one) for one in here[start:]]
    missing = positions[: len(positions) - len(here)]
    if missing:
        assert records.gather([missing[-1], *here]) is None


@given(
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=60),
    share=st.integers(60, 1000),
    pulls=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.sets(st.integers(0, 60)))),
)
def test_stretches_with_and_without_gaps_are_gathered_alike(sizes, share, pulls):
    """Side by side, with gaps, twice the same (rows of one MOVED), over several generations."""
    records = RecentRecords(share * recent.GENERATIONS)
    positions: list[int] = []
    at = 0
    for size in sizes:
        records.young[at] = at.to_bytes(8, "big") * size
        positions.append(at)
        at += size * 8
        records.count(size * 8)
    for first, count, left_out in pulls:
        wanted = [one for one in positions[first : first + count] if one // 8 not in left_out]
        for asked in (wanted, sorted([*wanted, *wanted[:1]]), sorted([*wanted, *wanted[-1:]])):
            known = [records.get(one) for one in asked]
            expected = None if None in known else known
            assert records.gather(array("Q", asked)) == expected
        assert records.gather(array("Q", [*wanted, at])) is None


def test_a_generation_is_bounded_in_records():
    records, positions = filled(1 << 30, [48] * (3 * GENERATION_RECORDS), 100)
    assert len(records) == len(positions)
    assert len(records.young) < GENERATION_RECORDS
    assert records.gather(positions) == [bytes(48)] * len(positions)
    assert recent.GENERATIONS > 1


def test_nothing_is_gathered_of_nothing():
    assert RecentRecords(0).gather([]) == []
