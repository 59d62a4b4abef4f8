"""How far one may read, and what it takes: against a plain list of batches, wherever they lie."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index import idx_file
from ternmq.journal.index.index import Index
from ternmq.journal.index.tail import Measure
from ternmq.model.types import Position
from tests.unit.journal.index.test_index import filled
from tests.unit.journal.index_kit import Stand, after_jobs

Batch = tuple[int, int, int]
"""First offset, offset behind the last, bytes."""


def by_hand(batches: list[Batch], start: int, end: int, most: int) -> Measure:
    """Return what a measure should be."""
    wanted = [one for one in batches if one[0] < end and one[1] > start]
    if not wanted or start >= end:
        return Measure(start, 0, 0)
    total = sum(one[2] for one in wanted)
    taken, size = 0, 0
    for one in wanted:
        if taken and size + one[2] > most:
            break
        size += one[2]
        taken += 1
        if size > most:
            break
    return Measure(min(end, wanted[taken - 1][1]), size, total)


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    start=st.integers(0, 60),
    rows=st.integers(0, 70),
    most=st.integers(0, 4000),
    cuts=st.sets(st.integers(0, 30), max_size=3),
)
def test_against_a_list(
    counts: list[int], start: int, rows: int, most: int, cuts: set[int]
) -> None:
    index = Index(MemoryDisk(), segment_size=2048)
    batches: list[Batch] = []
    offset, position = 0, 80
    for number, count in enumerate(counts):
        length = 96 + 8 * count
        if position % 2048 + length > 2048:
            position += 2048 - position % 2048 + 80
        if number in cuts:
            job = index.coverage.cut(Position(position), 0)
            if job is not None:
                job.run()
                index.coverage.installed(job)
        index.add(1, 0, offset, count, position, length, 0, 7, offset, b"", b"", 5)
        index.add(2, 0, number, 1, position + length, 80, 0, 7, offset, b"", b"", 5)
        batches.append((offset, offset + count, length))
        offset += count
        position += length + 80
    end = min(offset, start + rows)
    # The end is where a batch ends, as the durable mark is.
    end = max([0, *[one[1] for one in batches if one[1] <= end]])
    assert index.measure(1, 0, start, end, most) == by_hand(batches, start, end, most)
    assert index.measure(1, 0, start, end, 1 << 62).stop_bytes == by_hand(
        batches, start, end, most
    ).bytes  # fmt: skip
    assert index.measure(3, 0, start, end, most) == Measure(start, 0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_it_does_not_depend_on_where_the_index_lies(seed: int) -> None:
    stand = filled(seed=seed)
    rebuilt = stand.rebuilt()
    for (topic, queue), rows in stand.rows.items():
        end = len(rows)
        for start in range(0, end, 7):
            for most in (0, 300, 5000, 1 << 40):
                asked = (topic, queue, start, end, most)
                found, _ = after_jobs(stand.index.measure, *asked)
                assert found == after_jobs(rebuilt.measure, *asked)[0]
                located, _ = after_jobs(rebuilt.locate, topic, queue, start, end, max(most, 1))
                assert found.stop >= located.stop


def test_more_batches_than_a_block_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some thousand singles: sums of blocks, and what is left of them."""
    stand = Stand(segment_size=1 << 20)
    rows = 2 * idx_file.BATCHES_PER_BLOCK + 77
    for _ in range(rows):
        stand.send()
    stand.cut()
    rebuilt = stand.rebuilt()
    (length,) = {len(stand.store.get(position)) for position, _ in stand.rows[1, 0]}
    for start in (0, 1, 1023, 1024, 1025, 2047, 2048, rows - 1):
        for many in (1, 2, 1023, 1024, 1025, 2000):
            taken = min(many, rows - start)
            wanted = Measure(start + taken, taken * length, (rows - start) * length)
            for most in (many * length, many * length + length - 1):
                found, _ = after_jobs(stand.index.measure, 1, 0, start, rows, most)
                assert found == wanted
                assert rebuilt.measure(1, 0, start, rows, most) == wanted
    end = 1500
    found, _ = after_jobs(stand.index.measure, 1, 0, 1000, end, 1 << 40)
    assert found == Measure(end, 500 * length, 500 * length)
