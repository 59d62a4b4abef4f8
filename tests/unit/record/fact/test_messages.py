"""MESSAGES bodies: round trips, and offsets against rows with some left out."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.messages import Messages, RowRun

u32 = st.integers(0, 2**32 - 1)


@st.composite
def stored(draw: st.DrawFn) -> Messages:
    """A record of a batch of up to 40 rows, some of which may be left out."""
    rows = draw(st.lists(st.booleans(), min_size=1, max_size=40))
    if all(rows) or not any(rows):
        runs: tuple[RowRun, ...] = ()
        count = len(rows)
    else:
        found: list[RowRun] = []
        for row, kept in enumerate(rows):
            if kept and found and found[-1][1] == row:
                found[-1] = (found[-1][0], row + 1)
            elif kept:
                found.append((row, row + 1))
        runs = tuple(found)
        count = sum(rows)
    first = draw(st.integers(0, 2**40))
    return Messages(draw(u32), draw(u32), first, count, runs, draw(st.binary(max_size=50)))


def packed(one: Messages) -> bytes:
    return messages.pack(one.topic, one.queue, one.first_offset, one.count, one.batch, one.runs)


@given(stored(), st.integers(0, 7))
def test_round_trip_with_padding(one: Messages, padding: int) -> None:
    body = packed(one) + bytes(padding)
    assert messages.unpack(body) == one
    assert messages.of_record(bytes(HEADER_BYTES) + body) == one


@given(stored())
def test_offsets_and_rows_are_each_others_inverse(one: Messages) -> None:
    kept = [row for start, stop in one.runs for row in range(start, stop)] or range(one.count)
    assert [one.offset_of(row) for row in kept] == list(
        range(one.first_offset, one.first_offset + one.count)
    )
    assert [one.row_of(one.first_offset + at) for at in range(one.count)] == list(kept)
    for row in range(-1, 45):
        if row not in kept:
            assert one.offset_of(row) is None
    for outside in (one.first_offset - 1, one.first_offset + one.count):
        with pytest.raises(IndexError):
            one.row_of(outside)


@given(stored())
def test_the_batch_begins_where_the_ruler_says(one: Messages) -> None:
    body = packed(one)
    at = messages.PREFIX_BYTES + messages.RUN.size * len(one.runs)
    assert body[at:] == one.batch


@given(stored(), st.data())
def test_a_cut_body_is_refused(one: Messages, data: st.DataObject) -> None:
    body = packed(one)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises((struct.error, ValueError)):
        messages.unpack(cut)


@pytest.mark.parametrize("flags", [messages.FULFILS, messages.COPY])
def test_due_rows_and_copies_leave_no_row_out(flags: int) -> None:
    """No writer makes such a record: it is damage, not a newer version."""
    sound = (
        messages.pack_fulfilled(1, 0, 7, 2, b"batch", messages.Fulfilment(64, 5, 9))
        if flags == messages.FULFILS
        else messages.pack_copy(1, 0, 7, 2, b"batch", messages.Origin(64, 9))
    )
    assert messages.unpack(sound).count == 2
    odd = messages.pack(1, 0, 7, 2, b"batch", ((0, 1), (2, 3)))
    bent = odd[:22] + struct.pack("<H", flags) + odd[24:] + sound[-32:]
    with pytest.raises(ValueError, match="leaves no row out"):
        messages.unpack(bent)


def test_each_kind_has_the_flag_of_the_other_refused() -> None:
    due = messages.pack_fulfilled(1, 0, 7, 2, b"batch", messages.Fulfilment(64, 5, 9))
    copy = messages.pack_copy(1, 0, 7, 2, b"batch", messages.Origin(64, 9))
    assert messages.unpack_messages(due).fulfils
    assert messages.unpack_scheduled(copy).origin
    with pytest.raises(ValueError, match="of copies"):
        messages.unpack_messages(copy)
    with pytest.raises(ValueError, match="due rows"):
        messages.unpack_scheduled(due)


def test_a_record_has_as_many_runs_as_it_may_have() -> None:
    runs = tuple((row, row + 1) for row in range(0, 2 * messages.MOST_RUNS, 2))
    body = messages.pack(1, 2, 3, len(runs), b"batch", runs)
    assert messages.unpack(body).runs == runs
    with pytest.raises(struct.error):
        messages.pack(1, 2, 3, len(runs) + 1, b"batch", (*runs, (1 << 20, (1 << 20) + 1)))
