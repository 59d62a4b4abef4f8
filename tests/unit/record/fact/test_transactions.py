"""PREPARED and RESOLVED bodies: round trips, what is cut short, what is newer than this version."""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact import messages, transactions
from ternmq.record.fact.facts import Cause, CursorMoved, Move, Outcome, Settled
from ternmq.record.fact.header import HEADER, HEADER_BYTES, Kind
from ternmq.record.fact.transactions import DuePart, Part, Prepared, Resolution, Resolved, Why

T = TypeVar("T", Prepared, Resolved)
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

groups = st.text(min_size=1, max_size=30)
settles = st.lists(
    st.builds(
        Settled, u32, u32, u32, u32, u64, u32, u32, st.just(Outcome.DONE),
        st.sampled_from(Cause), st.integers(-1, 9), st.just([(3, 9, 1, 2)]), st.just([]),
        st.binary(max_size=9),
    ),
    min_size=1, max_size=3,
)  # fmt: skip
moves = st.lists(
    st.builds(CursorMoved, u32, u32, u32, st.sampled_from(Move), u64, u32), max_size=2
).map(tuple)
checked_prepared = st.builds(
    Prepared, u32, u32, u64, u64, st.just(0), u32, u32, st.just(""), st.just(""), names,
    st.binary(max_size=60), u64, groups, names, u32, st.integers(0, 2**63 - 1),
    st.none() | u64, settles | st.just(()), moves,
)  # fmt: skip
times = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple)
checked_resolved = st.builds(
    Resolved,
    u64, u64, st.just(0), u64, st.just(0),
    st.sampled_from(Resolution), st.sampled_from(Why), st.just(""), names,
    st.lists(st.builds(Part, u64, u64, u64, u32, u32, u32, u32), max_size=4),
    st.lists(u64, max_size=4).map(tuple), u64, groups, st.integers(0, 65_535),
    st.lists(st.builds(DuePart, u64, u64, u32, u32, times, u32), max_size=3).map(tuple),
    settles | st.just(()), moves,
)  # fmt: skip


writers = st.text(min_size=1, max_size=30)
due_prepared = st.builds(
    Prepared, u32, u32, u64, u64, st.integers(1, 2**32 - 1), u32, u32, writers, names, names,
    st.binary(max_size=60), scheduled=st.just(True),
)  # fmt: skip
due_resolved = st.builds(
    Resolved,
    u64, u64, u64, u64, st.integers(1, 2**32 - 1),
    st.sampled_from(Resolution), st.sampled_from(Why), writers, names,
    st.lists(st.builds(Part, u64, u64, u64, u32, u32, u32, u32), max_size=4),
    st.lists(u64, max_size=4).map(tuple),
    due=st.lists(
        st.builds(DuePart, u64, u64, u32, u32, times, u32), min_size=1, max_size=3
    ).map(tuple),
)  # fmt: skip


@given(prepared | checked_prepared | due_prepared, st.integers(0, 7))
def test_prepared_round_trip_with_padding(one: Prepared, padding: int) -> None:
    body = transactions.pack_prepared(one)
    assert transactions.unpack_prepared(body + bytes(padding)) == one
    assert body[transactions.batch_start(body) :] == one.batch


@given(resolved | checked_resolved | due_resolved, st.integers(0, 7))
def test_resolved_round_trip_with_padding(one: Resolved, padding: int) -> None:
    body = transactions.pack_resolved(one)
    assert len(body) % 8 == 0
    assert transactions.unpack_resolved(body + bytes(padding)) == one


ONE = Prepared(2, 3, 9, 4, 5, 6, 7, "writer", "3/0", "shop", bytes(range(40)))
TWO = Resolved(
    9, 4, 8, 7, 5, Resolution.COMMITTED, Why.WRITER, "writer", "shop",
    [Part(4096, 8, 1, 2, 3, 7, 216)], (512, 1024),
)  # fmt: skip
DONE = Settled(1, 2, 3, 4, 5, 0, 7, Outcome.DONE, Cause.CONSUMER, 0, [(8, 40, 1, 1)])
MOVE = CursorMoved(1, 2, 3, Move.COMMIT, 77, 0)
CHECKED_ONE = Prepared(
    2, 3, 9, 4, 0, 6, 7, "", "", "shop", bytes(range(40)), 5, "orders", "o-1", 3, 99, None,
    [DONE], (MOVE,),
)  # fmt: skip
CHECKED_TWO = Resolved(
    9, 4, 0, 7, 0, Resolution.COMMITTED, Why.CHECKER, "", "shop",
    [Part(4096, 8, 1, 2, 3, 7, 216)], (512, 1024), 5, "orders", 3,
    (DuePart(8192, 70, 2, 3, (5, 6), 160),), [DONE], (MOVE,),
)  # fmt: skip


DUE_ONE = msgspec.structs.replace(ONE, scheduled=True)
DUE_TWO = msgspec.structs.replace(TWO, due=CHECKED_TWO.due)


@pytest.mark.parametrize("one", [ONE, CHECKED_ONE, DUE_ONE])
def test_prepared_bodies_that_are_cut_short(one: Prepared) -> None:
    body = transactions.pack_prepared(one)
    for size in range(len(body)):
        with pytest.raises((ValueError, struct.error)):
            transactions.unpack_prepared(body[:size])


@pytest.mark.parametrize("one", [TWO, CHECKED_TWO, DUE_TWO])
def test_resolved_bodies_that_are_cut_short(one: Resolved) -> None:
    body = transactions.pack_resolved(one)
    for size in range(len(body)):
        with pytest.raises((ValueError, struct.error)):
            transactions.unpack_resolved(body[:size])


def test_what_a_newer_version_wrote_is_refused() -> None:
    for one, places in (
        (ONE, (40, 44, 47)),
        (CHECKED_ONE, (24, 40, 45, 47, 76)),
        (DUE_ONE, (40, 45, 48, 56, 64, 72, 76)),
    ):
        for at in places:
            body = bytearray(transactions.pack_prepared(one))
            body[at] += 2
            with pytest.raises(UnknownRecordKind):
                transactions.unpack_prepared(bytes(body))
    for two, others in (
        (TWO, (36, 39, 50, 52, 55)),
        (CHECKED_TWO, (16, 32, 36, 39)),
        (DUE_TWO, (36, 39, 50, 64)),
    ):
        for at in others:
            body = bytearray(transactions.pack_resolved(two))
            body[at] += 2
            with pytest.raises(UnknownRecordKind):
                transactions.unpack_resolved(bytes(body))


def _bare(one: T) -> T:
    return msgspec.structs.replace(one, app="", settles=(), moves=())


def test_a_group_is_what_makes_version_2() -> None:
    body = bytearray(transactions.pack_prepared(_bare(CHECKED_ONE)))
    assert body[40] == 2
    body[41] = 0
    with pytest.raises(ValueError, match="producer group"):
        transactions.unpack_prepared(bytes(body))
    body = bytearray(transactions.pack_resolved(_bare(CHECKED_TWO)))
    body[48] = 0
    with pytest.raises(ValueError, match="producer group"):
        transactions.unpack_resolved(bytes(body))


def test_the_room_that_a_resolved_is_given_is_enough() -> None:
    worst = Resolved(
        1, 1, 1, 1, 1, Resolution.COMMITTED, Why.WRITER, "w" * 128, "a" * 127,
        [Part(1, 1, 1, 1, 1, 1, 1)] * 9, (),
    )  # fmt: skip
    assert HEADER_BYTES + len(transactions.pack_resolved(worst)) <= transactions.resolved_bytes(9)


def test_the_room_for_due_times_is_enough() -> None:
    worst = Resolved(
        1, 1, 1, 1, 1, Resolution.COMMITTED, Why.WRITER, "w" * 128, "a" * 127,
        [Part(1, 1, 1, 1, 1, 1, 1)] * 4, (), due=[DuePart(1, 1, 1, 1, (1, 2, 3), 1)] * 5,
    )  # fmt: skip
    size = HEADER_BYTES + len(transactions.pack_resolved(worst))
    assert size <= transactions.resolved_bytes(9, 15)


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
