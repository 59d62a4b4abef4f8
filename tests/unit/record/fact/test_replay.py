"""The codec of REPLAY: round trips, sizes, and bodies that are cut short."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.record.fact import replay
from ternmq.record.fact.header import ALIGNMENT
from ternmq.record.fact.replay import Cause, Replayed
from tests.unit.record.fact.test_facts import leased_runs, padded, spans, u32, u64


@st.composite
def replayed(draw: st.DrawFn) -> Replayed:
    runs = draw(leased_runs())
    rows = sum(stop - start for start, stop, _, _ in runs)
    keyed = draw(st.booleans()) and rows
    hashes = tuple(draw(st.lists(u64, min_size=rows, max_size=rows))) if keyed else ()
    group, topic, queue, session, round_ = [draw(u32) for _ in range(5)]
    cause = draw(st.sampled_from(Cause))
    return Replayed(group, topic, queue, session, round_, cause, runs, draw(spans()), hashes)


@given(replayed())
def test_round_trip(fact: Replayed) -> None:
    body = replay.pack(fact)
    assert len(body) % ALIGNMENT == 0
    assert replay.unpack(padded(body)) == fact


def test_the_ruler_says_the_size() -> None:
    assert replay.HEAD.size == 32
    assert replay.HEAD.size % ALIGNMENT == 0


def test_a_million_rows_in_a_row_are_one_run() -> None:
    fact = Replayed(1, 2, 3, 4, 1, Cause.REPLAY, [(0, 1_000_000, 1, 0)])
    assert len(replay.pack(fact)) == 48


def test_a_body_that_is_cut_short_is_refused() -> None:
    fact = Replayed(1, 2, 3, 4, 8, Cause.REDRIVE, [(5, 7, 1, 3)], [(9, 12)], (7, 8))
    body = replay.pack(fact)
    for size in range(len(body)):
        with pytest.raises((struct.error, ValueError)):
            replay.unpack(body[:size])


def test_an_unknown_cause_is_refused() -> None:
    body = bytearray(replay.pack(Replayed(1, 2, 3, 4, 8, Cause.REDRIVE, [])))
    body[20] = 9
    with pytest.raises(ValueError, match="9"):
        replay.unpack(bytes(body))
