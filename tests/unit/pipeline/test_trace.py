"""The fold of the trace against the plain reference, however the journal is cut into pieces."""

from __future__ import annotations

import itertools
import random

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.pipeline.table import Table
from ternmq.pipeline.trace_pass import TracePass
from tests.unit.pipeline.trace_reference import of_table
from tests.unit.pipeline.trace_streams import Stream, table


def passing(tables):
    return TracePass(lambda spec: Table.open(tables, spec))


def fold(tables, events, cuts=(), last=None):
    """Fold events, cut at some places between records; return the pass."""
    one = passing(tables)
    bounds = [0, *sorted(cuts), last or events[-1]["position"] + 1]
    for begin, stop in itertools.pairwise(bounds):
        some = [event for event in events if begin <= event["position"] < stop]
        one.fold(begin, stop, table(some))
    return one


def same(found, wanted):
    found, wanted = of_table(found), wanted.told()
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key] == row, key


@pytest.mark.row("R7")
@pytest.mark.parametrize("seed", range(12))
def test_any_life_folded_in_any_pieces_is_as_the_reference_says(tables, seed):
    chance = random.Random(seed)
    stream = Stream(chance)
    for _ in range(150):
        stream.step()
    positions = sorted({one["position"] for one in stream.events})
    cuts = chance.sample(positions, chance.randrange(4))
    one = fold(tables, stream.events, cuts)
    same(one.trace.read(), stream.reference)
