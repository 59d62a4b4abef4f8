"""PREPARED and RESOLVED bodies: round trips, what is cut short, what is newer than this version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact import messages, transactions
from ternmq.record.fact.header import HEADER, HEADER_BYTES, Kind
from ternmq.record.fact.transactions import Part, Prepared, Resolution, Resolved, Why

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
names = st.text(max_size=30)

prepared = st.builds(
    Prepared, u32, u32, u64, u64, u32, u32, u32, names, names, names, st.binary(max_size=60)
)
resolved = st.builds(
    Resolved,
    u64, u64, u64, u64, u32,
    st.sampled_from(Resolution), st.sampled_from(Why), names, names,
    st.lists(st.builds(Part, u64, u64, u64, u32, u32, u32, u32), max_size=4),
    st.lists(u64, max_size=4).map(tuple),
)  # fmt: skip


@given(prepared, st.integers(0, 7))
def test_prepared_round_trip_with_padding(one: Prepared, padding: int) -> None:
    body = transactions.pack_prepared(one)
    assert transactions.unpack_prepared(body + bytes(padding)) == one


@given(resolved, st.integers(0, 7))
def test_resolved_round_trip_with_padding(one: Resolved, padding: int) -> None:
    body = transactions.pack_resolved(one)
    assert len(body) % 8 == 0
    assert transactions.unpack_resolved(body + bytes(padding)) == one


ONE = Prepared(2, 3, 9, 4, 5, 6, 7, "writer", "3/0", "shop", bytes(range(40)))
TWO = Resolved(
    9, 4, 8, 7, 5, Resolution.COMMITTED, Why.WRITER, "writer", "shop",
    [Part(4096, 8, 1, 2, 3, 7, 216)], (512, 1024),
)  # fmt: skip


def test_bodies_that_are_cut_short() -> None:
    body = transactions.pack_prepared(ONE)
    for size in range(transactions.PREPARED.size, len(body)):
        with pytest.raises(ValueError, match="short"):
            transactions.unpack_prepared(body[:size])
    body = transactions.pack_resolved(TWO)
    for size in range(transactions.RESOLVED.size, len(body)):
        with pytest.raises(ValueError, match="short"):
            transactions.unpack_resolved(body[:size])


def test_what_a_newer_version_wrote_is_refused() -> None:
    for at in (40, 44, 47):
        body = bytearray(transactions.pack_prepared(ONE))
        body[at] += 1
        with pytest.raises(UnknownRecordKind):
            transactions.unpack_prepared(bytes(body))
    for at in (36, 39, 50, 52, 55):
        body = bytearray(transactions.pack_resolved(TWO))
        body[at] += 1
        with pytest.raises(UnknownRecordKind):
            transactions.unpack_resolved(bytes(body))


def test_the_room_that_a_resolved_is_given_is_enough() -> None:
    worst = Resolved(
        1, 1, 1, 1, 1, Resolution.COMMITTED, Why.WRITER, "w" * 128, "a" * 127,
        [Part(1, 1, 1, 1, 1, 1, 1)] * 9, (),
    )  # fmt: skip
    assert HEADER_BYTES + len(transactions.pack_resolved(worst)) <= transactions.resolved_bytes(9)


def test_a_prepared_reads_as_messages_at_its_resolved() -> None:
    body = transactions.pack_prepared(ONE)
    record = HEADER.pack(0, 1, 48 + len(body), 1, Kind.PREPARED, 0, 64, 32, 5, 3, 77) + body
    made = transactions.as_messages(record, 100, 4096, 999)
    _, magic, length, _, kind, flags, position, durable, time_us, epoch, prev = (
        HEADER.unpack_from(made)
    )  # fmt: skip
    assert (length, kind, flags, position) == (len(made), Kind.MESSAGES, 0, 4096)
    assert (durable, time_us, epoch, prev) == (32, 999, 3, 77)
    assert magic == int.from_bytes(b"TMR1", "little")
    assert messages.of_record(made) == messages.Messages(2, 3, 100, 7, (), ONE.batch)
