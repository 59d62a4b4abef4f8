"""MOVED bodies: round trips, and that the rows' offsets come out in the rows' order."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.record.fact import moved
from ternmq.record.fact.moved import FailureEntry, Moved, MovedFailure, Piece

u8 = st.integers(0, 2**8 - 1)
u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)

pieces = st.builds(
    Piece, st.integers(0, 2**60), i64, u32, st.integers(1, 9), st.binary(max_size=30)
)
entries = st.builds(FailureEntry, i64, u32, u16, u8, u8, st.binary(max_size=30))
failures = st.builds(
    MovedFailure, u32, u16, u16, u64, i64, st.lists(entries, max_size=4).map(tuple)
)
bodies = st.builds(
    Moved,
    u32,
    u32,
    st.lists(pieces, max_size=4).map(tuple),
    st.lists(failures, max_size=4).map(tuple),
)


@given(bodies, st.integers(0, 7))
def test_round_trip_with_padding(one: Moved, padding: int) -> None:
    body = moved.pack(one)
    assert len(body) % 8 == 0
    assert moved.unpack(body + bytes(padding)) == one


@given(bodies)
def test_parts_know_what_they_take(one: Moved) -> None:
    parts = [piece.body_bytes for piece in one.pieces]
    parts += [failure.body_bytes for failure in one.failures]
    assert moved.HEAD.size + sum(parts) == len(moved.pack(one))


@given(bodies)
def test_offsets_are_in_the_order_of_the_rows(one: Moved) -> None:
    expected: list[int] = []
    for piece in one.pieces:
        expected += range(piece.first_offset, piece.first_offset + piece.row_count)
    assert one.offsets() == expected


@given(bodies, st.data())
def test_a_cut_head_is_refused(one: Moved, data: st.DataObject) -> None:
    body = moved.pack(one)
    with pytest.raises(struct.error):
        moved.unpack(body[: data.draw(st.integers(0, 15))])


def test_layouts() -> None:
    assert (moved.HEAD.size, moved.PIECE.size) == (16, 32)
    assert (moved.FAILURE.size, moved.ENTRY.size) == (32, 24)
