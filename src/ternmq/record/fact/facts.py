"""Facts about deliveries: PULLED, EXTENDED, ENDED, SETTLED, CURSOR.

The body of a PULLED, EXTENDED, ENDED or SETTLED record is ``u32 fact_count, u32 0`` and that many
facts, back to back; each begins 8-aligned. A fact can be applied with only the object that it
names: so PULLED contains the cursor after the pull and the rows that were skipped or parked, and
SETTLED the attempt and the due time. Rulers::

    PULLED                                   SETTLED and ENDED
     0 u32 group                              0 u32 group
     4 u32 topic                              4 u32 topic
     8 u32 queue                              8 u32 queue
    12 u32 session                           12 u32 session      0: none (operator, expiry)
    16 u64 lease      number in this epoch   16 u64 lease        its number
    24 i64 until_us                          24 u32 lease_epoch  its epoch
    32 u64 cursor     after this pull        28 u32 round
    40 u16 leased     runs                   32 i64 due_us       when outcome is RETRY
    42 u16 skipped    runs                   40 u16 run_count
    44 u16 parked     runs                   42 u8  outcome      see ``Outcome``
    46 u16 flags      bit 0: keyed           43 u8  cause        see ``Cause``
    48     leased  x (u64 start, u32 count,  44 u32 reason_length
                     u16 attempt,            48     runs x (u64 start, u32 count, u16 attempt,
                     u16 deliveries)                        u16 deliveries [, u64 previous])
     .     skipped x (u64 start, u64 stop)    .     reason, UTF-8, zero padded to 8
     .     parked  x (u64 start, u64 stop)
     .     keyed: u64 ordering hash of every leased row, then of every parked row

``attempt`` counts against the retry policy, ``deliveries`` counts deliveries, this one included; in
SETTLED and ENDED they are those of the lease that ended. ``previous`` is present when the outcome
is RETRY, DEAD or HELD: the position of the record that holds the row's previous failure, 0 if none.

    EXTENDED: u32 group, u32 topic, u32 queue, u32 session, u64 lease, u32 lease_epoch, u32 0,
              i64 until_us
    CURSOR  : (one per record) u32 group, u32 topic, u32 queue, u32 move, u64 cursor, u32 round, u32
    0
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

COUNT: Final = struct.Struct("<II")
PULLED_HEAD: Final = struct.Struct("<IIIIQqQHHHH")
SETTLED_HEAD: Final = struct.Struct("<IIIIQIIqHBBI")
EXTENDED: Final = struct.Struct("<IIIIQIIq")
CURSOR: Final = struct.Struct("<IIIIQII")
LEASED_RUN: Final = struct.Struct("<QIHH")
FAILED_RUN: Final = struct.Struct("<QIHHQ")
SPAN: Final = struct.Struct("<QQ")
ONE_PULLED: Final = struct.Struct("<II" + "IIIIQqQHHHH" + "QIHH")
"""A PULLED body with one fact of one leased run, as most pulls make it."""
ONE_SETTLED: Final = struct.Struct("<II" + "IIIIQIIqHBBI" + "QIHH")
"""A SETTLED body with one fact of one run, done or released."""

MAX_REASON_BYTES: Final = 4096
FLAG_KEYED: Final = 1


class Outcome(enum.IntEnum):
    """The outcome of a row when its lease ended."""

    DONE = 0
    RETRY = 1
    DEAD = 2
    RELEASED = 3
    HELD = 4


class Cause(enum.IntEnum):
    """Why a lease ended, or what settled the rows."""

    CONSUMER = 0
    TIME = 1
    SESSION = 2
    DRAIN = 3
    KEY = 4
    OPERATOR = 5
    EXPIRED = 6
    REJECTED = 7
    EXHAUSTED = 8
    FAILED = 9
    """The consumer failed or rejected a row of a broadcast instance; the row is done."""


class Move(enum.IntEnum):
    """Why a cursor moved without a pull."""

    RESET = 1
    SKIP = 2
    FILTERED = 3
    START = 4
    EXPIRED = 5
    COMMIT = 6


LeasedRun = tuple[int, int, int, int]
"""Rows ``[start, stop)`` with their attempt and deliveries."""
FailedRun = tuple[int, int, int, int, int]
"""A ``LeasedRun`` and the position of the record that holds the previous failure."""
Span = tuple[int, int]
"""Offsets ``[start, stop)``."""


class Pulled(msgspec.Struct, frozen=True):
    """Rows delivered by one pull."""

    group: int
    topic: int
    queue: int
    session: int
    lease: int
    until_us: int
    cursor: int
    leased: Sequence[LeasedRun]
    skipped: Sequence[Span] = ()
    parked: Sequence[Span] = ()
    hashes: Sequence[int] = ()
    """For an ordered group: ordering hash of every leased row, then of every parked row."""


class Settled(msgspec.Struct, frozen=True):
    """The outcome of rows: of a SETTLED or, when their lease ended, an ENDED record."""

    group: int
    topic: int
    queue: int
    session: int
    lease: int
    lease_epoch: int
    round: int
    outcome: Outcome
    cause: Cause
    due_us: int
    runs: Sequence[LeasedRun]
    previous: Sequence[int] = ()
    """For RETRY, DEAD and HELD: the position of the previous failure, one for each run."""
    reason: bytes = b""


class Extended(msgspec.Struct, frozen=True):
    """A lease was extended until ``until_us``."""

    group: int
    topic: int
    queue: int
    session: int
    lease: int
    lease_epoch: int
    until_us: int


class CursorMoved(msgspec.Struct, frozen=True):
    """A group's cursor was moved by other means than a pull."""

    group: int
    topic: int
    queue: int
    move: Move
    cursor: int
    round: int


def pack_pulled(facts: Sequence[Pulled]) -> bytes:
    """Return the body of a PULLED record."""
    parts = [COUNT.pack(len(facts), 0)]
    for fact in facts:
        keyed = FLAG_KEYED if fact.hashes else 0
        parts.append(
            PULLED_HEAD.pack(
                fact.group,
                fact.topic,
                fact.queue,
                fact.session,
                fact.lease,
                fact.until_us,
                fact.cursor,
                len(fact.leased),
                len(fact.skipped),
                len(fact.parked),
                keyed,
            )
        )
        parts += [LEASED_RUN.pack(a, b - a, n, d) for a, b, n, d in fact.leased]
        parts += [SPAN.pack(a, b) for a, b in fact.skipped]
        parts += [SPAN.pack(a, b) for a, b in fact.parked]
        if keyed:
            parts.append(struct.pack(f"<{len(fact.hashes)}Q", *fact.hashes))
    return b"".join(parts)


def unpack_pulled(body: bytes) -> list[Pulled]:
    """Return the facts of a PULLED body in order."""
    found: list[Pulled] = []
    count, _ = COUNT.unpack_from(body)
    at = COUNT.size
    for _ in range(count):
        (
            group,
            topic,
            queue,
            session,
            lease,
            until_us,
            cursor,
            leased_count,
            skipped_count,
            parked_count,
            flags,
        ) = PULLED_HEAD.unpack_from(body, at)
        at += PULLED_HEAD.size
        leased: list[LeasedRun] = []
        for _ in range(leased_count):
            start, rows, attempt, deliveries = LEASED_RUN.unpack_from(body, at)
            leased.append((start, start + rows, attempt, deliveries))
            at += LEASED_RUN.size
        skipped: list[Span] = []
        for _ in range(skipped_count):
            start, stop = SPAN.unpack_from(body, at)
            skipped.append((start, stop))
            at += SPAN.size
        parked: list[Span] = []
        for _ in range(parked_count):
            start, stop = SPAN.unpack_from(body, at)
            parked.append((start, stop))
            at += SPAN.size
        hashes: tuple[int, ...] = ()
        if flags & FLAG_KEYED:
            rows = sum(b - a for a, b, _, _ in leased) + sum(b - a for a, b in parked)
            hashes = struct.unpack_from(f"<{rows}Q", body, at)
            at += 8 * rows
        found.append(
            Pulled(
                group, topic, queue, session, lease, until_us, cursor,
                leased, skipped, parked, hashes,
            )
        )  # fmt: skip
    return found


def failing(outcome: int) -> bool:
    """Return whether runs of this outcome name the previous failure."""
    return outcome in (Outcome.RETRY, Outcome.DEAD, Outcome.HELD)


def pack_settled(facts: Sequence[Settled]) -> bytes:
    """Return the body of a SETTLED or ENDED record.

    Raises:
        ValueError: A reason is longer than ``MAX_REASON_BYTES``.
    """
    parts = [COUNT.pack(len(facts), 0)]
    for fact in facts:
        if len(fact.reason) > MAX_REASON_BYTES:
            raise ValueError("reason too long")
        parts.append(
            SETTLED_HEAD.pack(
                fact.group,
                fact.topic,
                fact.queue,
                fact.session,
                fact.lease,
                fact.lease_epoch,
                fact.round,
                fact.due_us,
                len(fact.runs),
                fact.outcome,
                fact.cause,
                len(fact.reason),
            )
        )
        if failing(fact.outcome):
            parts += [
                FAILED_RUN.pack(a, b - a, n, d, before)
                for (a, b, n, d), before in zip(fact.runs, fact.previous, strict=True)
            ]
        else:
            parts += [LEASED_RUN.pack(a, b - a, n, d) for a, b, n, d in fact.runs]
        if fact.reason:
            parts.append(fact.reason + bytes(-len(fact.reason) % 8))
    return b"".join(parts)


def unpack_settled(body: bytes) -> list[Settled]:
    """Return the facts of a SETTLED or ENDED body in order.

    Raises:
        struct.error, ValueError: The body is cut short, or a value is not valid.
    """
    found: list[Settled] = []
    count, _ = COUNT.unpack_from(body)
    at = COUNT.size
    for _ in range(count):
        (
            group,
            topic,
            queue,
            session,
            lease,
            lease_epoch,
            round_,
            due_us,
            run_count,
            outcome,
            cause,
            reason_length,
        ) = SETTLED_HEAD.unpack_from(body, at)
        at += SETTLED_HEAD.size
        runs: list[LeasedRun] = []
        previous: list[int] = []
        if failing(outcome):
            for _ in range(run_count):
                start, rows, attempt, deliveries, before = FAILED_RUN.unpack_from(body, at)
                runs.append((start, start + rows, attempt, deliveries))
                previous.append(before)
                at += FAILED_RUN.size
        else:
            for _ in range(run_count):
                start, rows, attempt, deliveries = LEASED_RUN.unpack_from(body, at)
                runs.append((start, start + rows, attempt, deliveries))
                at += LEASED_RUN.size
        reason = body[at : at + reason_length]
        at += reason_length + (-reason_length % 8)
        if at > len(body):
            raise ValueError("a reason is cut short")
        found.append(
            Settled(
                group,
                topic,
                queue,
                session,
                lease,
                lease_epoch,
                round_,
                Outcome(outcome),
                Cause(cause),
                due_us,
                runs,
                previous,
                reason,
            )
        )
    return found


def pack_extended(facts: Sequence[Extended]) -> bytes:
    """Return the body of an EXTENDED record."""
    return COUNT.pack(len(facts), 0) + b"".join(
        [
            EXTENDED.pack(
                f.group, f.topic, f.queue, f.session, f.lease, f.lease_epoch, 0, f.until_us
            )
            for f in facts
        ]
    )


def unpack_extended(body: bytes) -> list[Extended]:
    """Return the facts of an EXTENDED body in order."""
    found: list[Extended] = []
    count, _ = COUNT.unpack_from(body)
    for index in range(count):
        group, topic, queue, session, lease, epoch, _, until_us = EXTENDED.unpack_from(
            body, COUNT.size + index * EXTENDED.size
        )
        found.append(Extended(group, topic, queue, session, lease, epoch, until_us))
    return found


def pack_cursor(fact: CursorMoved) -> bytes:
    """Return the body of a CURSOR record."""
    return CURSOR.pack(fact.group, fact.topic, fact.queue, fact.move, fact.cursor, fact.round, 0)


def unpack_cursor(body: bytes) -> CursorMoved:
    """Return the fact of a CURSOR body."""
    group, topic, queue, move, cursor, round_, _ = CURSOR.unpack_from(body)
    return CursorMoved(group, topic, queue, Move(move), cursor, round_)
