"""Sets of numbers as spans, against Python's own sets."""

from __future__ import annotations

from itertools import pairwise

import pytest

np = pytest.importorskip("numpy", reason="needs the extra spark")

from hypothesis import given
from hypothesis import strategies as st

from ternmq.pipeline.audit import spans as module
from ternmq.pipeline.audit.spans import (
    Spans,
    factor,
    id_hash,
    id_sums,
    joined,
    spans,
    sweep,
    totals,
    within,
    without,
)

some = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 6)).map(
        lambda one: (one[0], one[1], one[1] + one[2])
    ),
    max_size=8,
)


def made(rows: list[tuple[int, int, int]]) -> Spans:
    return spans(*(zip(*rows, strict=True) if rows else ([], [], [])))


def members(found: Spans) -> set[tuple[int, int]]:
    rows = zip(*(one.tolist() for one in found), strict=True)
    return {(space, at) for space, start, stop in rows for at in range(start, stop)}


@given(some, some)
def test_sets(one, other):
    a, b = made(one), made(other)
    assert members(joined(a)) == members(a)
    assert members(within(a, b)) == members(a) & members(b)
    assert members(without(a, b)) == members(a) - members(b)
    assert members(without(a, b, a)) == set()


@given(some)
def test_the_fewest_spans_in_order(rows):
    found = joined(made(rows))
    listed = list(zip(*(one.tolist() for one in found), strict=True))
    assert listed == sorted(listed)
    for (space, _, stop), (behind, start, _) in pairwise(listed):
        assert space < behind or stop < start


@given(some, some)
def test_depths_count_what_covers(one, other):
    pieces = sweep(made(one), made(other))
    for number, rows in enumerate((one, other)):
        for space, start, stop, depth in zip(
            *(part.tolist() for part in pieces.spans), pieces.depths[number].tolist(), strict=True
        ):
            for at in range(start, stop):
                assert depth == sum(r[0] == space and r[1] <= at < r[2] for r in rows)


def test_the_run_that_covers_a_piece():
    runs = made([(1, 10, 20), (0, 5, 5), (0, 0, 4), (1, 0, 10)])
    pieces = sweep(runs, made([(0, 2, 9), (1, 8, 12)]))
    found = {
        (space, start): run
        for space, start, run, depth in zip(
            pieces.spans.space.tolist(),
            pieces.spans.start.tolist(),
            pieces.run.tolist(),
            pieces.depths[0].tolist(),
            strict=True,
        )
        if depth
    }
    assert found == {(0, 0): 2, (0, 2): 2, (1, 0): 3, (1, 8): 3, (1, 10): 0, (1, 12): 0}


def test_factor_and_totals():
    code, first = factor([np.array([5, 5, 7, 5]), np.array([1, 2, 1, 1])])
    assert code[0] == code[3]
    assert len({*code.tolist()}) == len(first) == 3
    assert totals(code, np.array([1, 10, 100, 1000]), 3)[code[0]] == 1001


@pytest.mark.parametrize("piece", [3, 1 << 20])
def test_sums_do_not_depend_on_order_or_cuts(monkeypatch, piece):
    monkeypatch.setattr(module, "_PIECE", piece)
    whole = id_sums(np.array([0, 1]), np.array([7, -9]), np.array([1, 5]), np.array([10, 4]), 2)
    cut = id_sums(
        np.array([1, 0, 0, 1]),
        np.array([-9, 7, 7, -9]),
        np.array([8, 6, 1, 5]),
        np.array([1, 5, 5, 3]),
        2,
    )
    assert whole.tolist() == cut.tolist()
    assert whole[0] == int(np.sum(id_hash(np.full(10, 7), np.arange(1, 11))).astype(np.int64))
    assert id_sums(*(np.zeros(0, np.int64),) * 4, 1).tolist() == [0]


def test_a_sum_sees_one_lost_and_one_doubled():
    """Sums of the sequences themselves would not: 4 + 4 = 3 + 5."""
    right = id_hash(np.full(3, 7), np.array([3, 4, 5])).sum()
    wrong = id_hash(np.full(3, 7), np.array([4, 4, 4])).sum()
    assert right != wrong
