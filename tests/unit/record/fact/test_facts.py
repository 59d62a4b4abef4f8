"""Codecs of delivery facts: round trips, promised sizes, and what the packers refuse."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.record.fact import facts
from ternmq.record.fact.facts import (
    COUNT,
    CURSOR,
    EXTENDED,
    FAILED_RUN,
    LEASED_RUN,
    MAX_REASON_BYTES,
    ONE_PULLED,
    ONE_SETTLED,
    PULLED_HEAD,
    SETTLED_HEAD,
    SPAN,
    Cause,
    CursorMoved,
    Extended,
    Move,
    Outcome,
    Pulled,
    Settled,
)
from ternmq.record.fact.header import ALIGNMENT, HEADER_BYTES

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
offsets = st.integers(0, 2**63 - 1)


@st.composite
def leased_runs(draw: st.DrawFn, most: int = 5) -> list[facts.LeasedRun]:
    runs = []
    for _ in range(draw(st.integers(0, most))):
        start = draw(offsets)
        runs.append((start, start + draw(st.integers(1, 100)), draw(u16), draw(u16)))
    return runs


@st.composite
def spans(draw: st.DrawFn, most: int = 4) -> list[facts.Span]:
    found = []
    for _ in range(draw(st.integers(0, most))):
        start = draw(offsets)
        found.append((start, start + draw(st.integers(0, 40))))
    return found


@st.composite
def pulled(draw: st.DrawFn) -> Pulled:
    leased = draw(leased_runs())
    parked = draw(spans())
    rows = sum(b - a for a, b, _, _ in leased) + sum(b - a for a, b in parked)
    keyed = rows and draw(st.booleans())
    hashes = tuple(draw(st.lists(u64, min_size=rows, max_size=rows))) if keyed else ()
    return Pulled(
        draw(u32), draw(u32), draw(u32), draw(u32), draw(u64), draw(i64), draw(u64),
        leased, draw(spans()), parked, hashes,
    )  # fmt: skip


@st.composite
def settled(draw: st.DrawFn) -> Settled:
    outcome = draw(st.sampled_from(Outcome))
    runs = draw(leased_runs())
    previous = []
    if facts.failing(outcome):
        previous = draw(st.lists(u64, min_size=len(runs), max_size=len(runs)))
    return Settled(
        draw(u32), draw(u32), draw(u32), draw(u32), draw(u64), draw(u32), draw(u32),
        outcome, draw(st.sampled_from(Cause)), draw(i64), runs, previous,
        draw(st.binary(max_size=30)),
    )  # fmt: skip


def padded(body: bytes) -> bytes:
    """The body as a record gives it back: zero padding behind it."""
    return body + bytes(-len(body) % ALIGNMENT)


@given(st.lists(pulled(), max_size=4))
def test_pulled_round_trip(some: list[Pulled]) -> None:
    body = facts.pack_pulled(some)
    assert len(body) % ALIGNMENT == 0
    assert list(facts.unpack_pulled(padded(body))) == some


@given(st.lists(settled(), max_size=4))
def test_settled_round_trip(some: list[Settled]) -> None:
    body = facts.pack_settled(some)
    assert len(body) % ALIGNMENT == 0
    assert list(facts.unpack_settled(padded(body))) == some


@given(st.lists(st.builds(Extended, u32, u32, u32, u32, u64, u32, i64), max_size=5))
def test_extended_round_trip(some: list[Extended]) -> None:
    body = facts.pack_extended(some)
    assert list(facts.unpack_extended(padded(body))) == some


@given(st.builds(CursorMoved, u32, u32, u32, st.sampled_from(Move), u64, u32))
def test_cursor_round_trip(fact: CursorMoved) -> None:
    assert facts.unpack_cursor(padded(facts.pack_cursor(fact))) == fact


def test_the_short_forms_are_the_long_forms_of_one_run() -> None:
    run = (77, 109, 3, 4)
    one = Pulled(1, 2, 3, 4, 5, 6, 109, [run])
    assert facts.pack_pulled([one]) == ONE_PULLED.pack(
        1, 0, 1, 2, 3, 4, 5, 6, 109, 1, 0, 0, 0, 77, 32, 3, 4
    )
    done = Settled(1, 2, 3, 4, 5, 6, 7, Outcome.DONE, Cause.CONSUMER, 0, [run])
    assert facts.pack_settled([done]) == ONE_SETTLED.pack(
        1, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, Outcome.DONE, Cause.CONSUMER, 0, 77, 32, 3, 4
    )


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (COUNT, 8), (PULLED_HEAD, 48), (SETTLED_HEAD, 48), (LEASED_RUN, 16), (FAILED_RUN, 24),
        (SPAN, 16), (EXTENDED, 40), (CURSOR, 32),
    ],
)  # fmt: skip
def test_the_rulers_say_the_sizes(layout: struct.Struct, size: int) -> None:
    assert layout.size == size
    assert size % ALIGNMENT == 0


# -- promised sizes --------------------------------------------------------------------------------


def record_bytes(body: bytes) -> int:
    return HEADER_BYTES + len(padded(body))


def test_a_pull_of_32_rows_in_a_row_costs_at_most_4_bytes_a_message() -> None:
    body = facts.pack_pulled([Pulled(1, 2, 0, 4, 5, 6, 32, [(0, 32, 1, 1)])])
    assert record_bytes(body) <= 4 * 32


def test_a_pull_of_one_row_costs_at_most_160_bytes() -> None:
    body = facts.pack_pulled([Pulled(1, 2, 0, 4, 5, 6, 1, [(0, 1, 1, 1)])])
    assert record_bytes(body) <= 160


def test_pulling_and_settling_32_rows_costs_at_most_8_bytes_a_message() -> None:
    run = (0, 32, 1, 1)
    pull = facts.pack_pulled([Pulled(1, 2, 0, 4, 5, 6, 32, [run])])
    done = facts.pack_settled(
        [Settled(1, 2, 0, 4, 5, 1, 0, Outcome.DONE, Cause.CONSUMER, 0, [run])]
    )
    assert record_bytes(pull) + record_bytes(done) <= 8 * 32


def test_an_ordered_pull_of_32_rows_in_a_row_costs_at_most_24_bytes_a_message() -> None:
    hashes = tuple(range(32))
    body = facts.pack_pulled([Pulled(1, 2, 0, 4, 5, 6, 32, [(0, 32, 1, 1)], hashes=hashes)])
    assert record_bytes(body) <= 24 * 32


# -- refusals --------------------------------------------------------------------------------------


def test_a_reason_that_is_too_long_is_refused() -> None:
    def pack(size: int) -> bytes:
        fact = Settled(
            1, 2, 3, 4, 5, 6, 7, Outcome.RETRY, Cause.CONSUMER, 9, [(0, 1, 1, 1)], [0], b"r" * size
        )
        return facts.pack_settled([fact])

    (back,) = facts.unpack_settled(pack(MAX_REASON_BYTES))
    assert len(back.reason) == MAX_REASON_BYTES
    with pytest.raises(ValueError, match="reason too long"):
        pack(MAX_REASON_BYTES + 1)


def test_a_failing_run_without_the_failure_before_is_refused() -> None:
    fact = Settled(
        1, 2, 3, 4, 5, 6, 7, Outcome.DEAD, Cause.REJECTED, 9, [(0, 1, 1, 1), (4, 5, 1, 1)], [0]
    )
    with pytest.raises(ValueError, match="zip"):
        facts.pack_settled([fact])


@given(st.lists(pulled(), min_size=1, max_size=2), st.data())
def test_a_body_that_was_cut_is_never_taken_for_a_whole_one(
    some: list[Pulled], data: st.DataObject
) -> None:
    body = facts.pack_pulled(some)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(struct.error):
        list(facts.unpack_pulled(cut))
