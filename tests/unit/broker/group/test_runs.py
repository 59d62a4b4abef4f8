"""Arithmetic of runs against sets and dictionaries of single offsets."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.group.runs import (
    RunList,
    SpanSet,
    cut,
    merge,
    missing,
    parts_in,
    put_all,
    row_count,
    split,
    split_all,
    union,
)
from ternmq.record.fact.facts import LeasedRun

END = 60
Known = dict[int, tuple[int, int]]
"""Offset -> attempt, deliveries."""

edges = st.tuples(st.integers(0, END), st.integers(0, END))
spans = edges.map(lambda pair: (min(pair), max(pair))).filter(lambda pair: pair[0] < pair[1])
tellings = st.tuples(st.integers(1, 2), st.integers(0, 1))


def known_of(runs: list[LeasedRun]) -> Known:
    known: Known = {}
    for start, stop, attempt, deliveries in runs:
        assert start < stop
        for offset in range(start, stop):
            assert offset not in known
            known[offset] = (attempt, deliveries)
    return known


def runs_of(known: Known) -> list[LeasedRun]:
    """The shortest sorted runs of what is known."""
    runs: list[LeasedRun] = []
    for offset in sorted(known):
        if runs and runs[-1][1] == offset and runs[-1][2:] == known[offset]:
            runs[-1] = (runs[-1][0], offset + 1, *known[offset])
        else:
            runs.append((offset, offset + 1, *known[offset]))
    return runs


known_rows = st.dictionaries(st.integers(0, END - 1), tellings, max_size=30)


@given(known_rows, spans)
def test_split_takes_out_what_lies_inside(known: Known, span: tuple[int, int]) -> None:
    start, stop = span
    outside, inside = split(runs_of(known), start, stop)
    assert known_of(outside) == {at: v for at, v in known.items() if not start <= at < stop}
    assert known_of(inside) == {at: v for at, v in known.items() if start <= at < stop}
    assert outside == sorted(outside)
    assert inside == sorted(inside)


@given(known_rows, st.lists(spans, max_size=8), st.randoms(use_true_random=False))
def test_split_all_is_splitting_by_one_after_the_other(
    known: Known, some: list[tuple[int, int]], chance: random.Random
) -> None:
    named = {at for start, stop in some for at in range(start, stop)}
    wanted = union(some)
    assert {at for start, stop in wanted for at in range(start, stop)} == named
    assert all(one[1] < other[0] for one, other in pairwise(wanted))
    runs = runs_of(known)
    chance.shuffle(runs)
    outside, inside = split_all(runs, wanted)
    assert known_of(outside) == {at: v for at, v in known.items() if at not in named}
    assert known_of(inside) == {at: v for at, v in known.items() if at in named}
    assert outside == sorted(outside)
    assert inside == sorted(inside)
    left = missing(wanted, inside)
    assert {at for start, stop in left for at in range(start, stop)} == named - set(known)
    assert sum(stop - start for start, stop in left) == len(named - set(known))


many_rows = st.dictionaries(st.integers(0, END - 1), tellings, min_size=20, max_size=END)
"""More runs than are looked at one by one."""


@given(st.one_of(known_rows, many_rows), st.lists(spans, max_size=3), st.booleans())
def test_few_spans_of_many_runs_are_the_same_as_in_one_pass(
    known: Known, some: list[tuple[int, int]], apart: bool
) -> None:
    singles = [(at, at + 1, *known[at]) for at in sorted(known)]
    runs = singles if apart else runs_of(known)
    before, wanted = list(runs), union(some)
    assert cut(runs, wanted) == split_all(runs, wanted)
    assert parts_in(runs, wanted) == split_all(runs, wanted)[1]
    assert runs == before, "a fact may refer to the list"


@given(known_rows, many_rows)
def test_many_runs_are_put_and_taken_as_one_by_one(first: Known, second: Known) -> None:
    more = {at: said for at, said in second.items() if at not in first}
    singles = [(at, at + 1, *more[at]) for at in sorted(more)]
    assert known_of(put_all(runs_of(first), singles)) == first | more
    one, other = RunList(runs_of(first)), RunList(runs_of(first))
    one.add_all(singles)
    for run in singles:
        other.add(*run)
    assert (one.runs, one.rows) == (other.runs, other.rows)
    named = [(at, at + 1) for at in sorted(second, reverse=True)]
    taken = one.take_all(named)
    assert known_of(taken) == {at: (first | more)[at] for at in second}
    assert known_of(one.runs) == {at: said for at, said in first.items() if at not in second}
    assert one.rows == row_count(one.runs)


@given(st.lists(st.integers(0, 200), unique=True, min_size=20, max_size=60))
def test_spans_that_are_apart_are_only_sorted(starts: list[int]) -> None:
    some = [(2 * at, 2 * at + 1) for at in starts]
    assert union(some) == sorted(some)
    assert union([*some, (2 * min(starts), 2 * max(starts) + 1)]) == [
        (2 * min(starts), 2 * max(starts) + 1)
    ]


@given(known_rows, st.randoms(use_true_random=False))
def test_merge_gives_the_shortest_runs(known: Known, chance: random.Random) -> None:
    singles = [(at, at + 1, *known[at]) for at in known]
    chance.shuffle(singles)
    assert merge(singles) == runs_of(known)
    assert row_count(singles) == len(known)


@given(st.lists(st.tuples(st.booleans(), spans, tellings), max_size=30))
def test_run_list_is_a_dictionary_of_offsets(
    steps: list[tuple[bool, tuple[int, int], tuple[int, int]]],
) -> None:
    runs = RunList()
    model: Known = {}
    for adding, (start, stop), telling in steps:
        if adding:
            if any(at in model for at in range(start, stop)):
                continue  # rows are added when they are not in the list yet
            runs.add(start, stop, *telling)
            model.update(dict.fromkeys(range(start, stop), telling))
        else:
            taken = runs.take(start, stop)
            gone = {at: model.pop(at) for at in range(start, stop) if at in model}
            assert known_of(taken) == gone
        assert known_of(runs.runs) == model
        assert runs.runs == sorted(runs.runs)
        assert runs.rows == len(model)
        assert bool(runs) == bool(model)
        assert len(runs) == len(runs.runs)
        for at in range(END):
            run = runs.find(at)
            assert (run is not None) == (at in model)
            if run is not None:
                assert run[0] <= at < run[1]
                assert run[2:] == model[at]


def test_neighbours_that_are_alike_are_joined() -> None:
    runs = RunList()
    runs.add(0, 5, 1, 1)
    runs.add(10, 15, 1, 1)
    runs.add(5, 10, 1, 1)
    runs.add(15, 16, 1, 2)
    assert runs.runs == [(0, 15, 1, 1), (15, 16, 1, 2)]


@given(st.lists(st.tuples(st.booleans(), edges), max_size=40), spans)
def test_span_set_is_a_set_of_offsets(
    steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]
) -> None:
    progress = SpanSet()
    model: set[int] = set()
    for adding, (start, stop) in steps:
        offsets = range(start, stop)
        if adding:
            progress.add(start, stop)
            model.update(offsets)
        elif start <= stop:
            progress.remove(start, stop)
            model.difference_update(offsets)
        assert {at for low, high in progress for at in range(low, high)} == model
        found = list(progress)
        assert len(progress) == len(found)
        assert bool(progress) == bool(model)
        # Disjoint, sorted, and merged: no two touch.
        assert all(low < high for low, high in found)
        assert all(one[1] < other[0] for one, other in pairwise(found))
    start, stop = asked
    assert progress.covers(start, stop) == model.issuperset(range(start, stop))
    assert progress.overlaps(start, stop) == bool(model.intersection(range(start, stop)))
    for at in range(END):
        end = at
        while end in model:
            end += 1
        assert progress.covering_end(at) == end
        starts = [low for low, _ in progress if low >= at]
        assert progress.next_start(at, END) == min([*starts, END])
