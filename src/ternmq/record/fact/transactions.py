"""PREPARED and RESOLVED: the rows of a transaction, invisible at first, and their outcome.

Rulers of the bodies::

    PREPARED                                   RESOLVED
     0 u32 topic                                0 u64 transaction    0: nothing had been prepared
     4 u32 queue                                8 u64 batch_id
     8 u64 transaction  number                 16 u64 digest         as the writer states it
    16 u64 batch_id     of the writer          24 u64 rows           of all parts and due parts
    24 u32 writer       number                 32 u32 writer         number
    28 u32 ordinal      in its transaction     36 u8  version        1
    32 u32 count        rows of the batch      37 u8  outcome        see ``Resolution``
    36 u32 batch_length bytes                  38 u8  why            see ``Why``
    40 u8  version      1                      39 u8  0
    41 u8  writer_bytes                        40 u32 part_count
    42 u8  part_bytes                          44 u32 dropped_count
    43 u8  app_bytes                           48 u8  writer_bytes
    44 u32 0                                   49 u8  app_bytes
    48     names: writer, part, app (UTF-8)    50 u16 0, u32 0
     .     zero padding to 8                   56     names: writer, app (UTF-8), zero padding to 8
     .     the batch, as its producer made it   .     parts:   u64 position, u64 first_offset,
                                                      u64 tag_mask, u32 topic, u32 queue, u32 rows,
                                                      u32 length (of the whole PREPARED record)
                                                .     dropped: u64 position

A transaction is named by its writer and a batch id. Its number names one attempt at it: after a
rollback the same name can be prepared again, with another number. A RESOLVED names every PREPARED
of its transaction: those that become messages (``parts``: all rows of the batch, at the offsets
from ``first_offset`` on) and those that never will (``dropped``). A RESOLVED can be applied without
reading a PREPARED.

Version 2 is that of transactions with check-back, and of writers' rows with due times. The former
have a producer group in the place of a writer (writer 0) and are named by the producer id and a
counter of their client (``batch_id``). Rulers of what differs::

    PREPARED                                   RESOLVED
    24 u32 0                                   16 u64 0
    40 u8  version      2                      32 u32 0
    41 u8  group_bytes                         36 u8  version      2
    42 u8  query_bytes                         39 u8  0
    43 u8  app_bytes                           48 u8  group_bytes
    44 u32 flags        1: a copy              49 u8  app_bytes
    48 u64 producer     of the name            50 u16 attempt      that was answered, 0: none
    56 u64 replaced     see below              52 u32 due_count
    64 i64 check_after_us  0: of the group     56 u32 settle_bytes
    72 u32 session      that wrote it          60 u32 move_count
    76 u32 0                                   64 u64 producer
    80 u32 settle_bytes                        72     names: group, app (UTF-8), zero padding to 8
    84 u32 move_count                           .     parts, dropped as in version 1
    88     names: group, query id, app          .     due parts: u64 position, u64 first_entry,
     .     zero padding to 8                           u32 topic, u32 queue, u32 rows, u32 length,
     .     settles: a body of SETTLED                  then rows x i64 due_us
     .     moves x a body of CURSOR             .     settles: a body of SETTLED
     .     the batch; of 0 rows: none           .     moves x a body of CURSOR

``settle_bytes`` is 0 if there are none. In a PREPARED, a settle says which rows leave their lease
and what becomes of them at the commit; ``due_us`` is the delay of a retry, -1 for that of the
group's policy. Until the decision they are leased to the transaction: epoch 0, number of the
transaction. In a RESOLVED the settles are what becomes of these rows. Rows with due times become
scheduled (``due parts``); their batch stays in the PREPARED.

A copy holds the batch of the record at ``replaced``, whose segment is to be removed; its settles
and moves are not repeated. A RESOLVED names the newest copy, and none that was replaced.

Of a writer, a batch with due times is a PREPARED of version 2, and a commit of such batches a
RESOLVED of version 2. They have the number of the writer, the names and, in the RESOLVED, the
digest of version 1; everything else that version 2 adds is 0 there, but for the due parts.

A reader refuses unknown versions, and bytes that must be zero and are not.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact import facts, messages
from ternmq.record.fact.facts import CursorMoved, Settled
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of

PREPARED: Final = struct.Struct("<IIQQIIIIBBBBI")
RESOLVED: Final = struct.Struct("<QQQQIBBBBIIBBHI")
PART: Final = struct.Struct("<QQQIIII")
DROPPED: Final = struct.Struct("<Q")
BATCH_LENGTH: Final = 7
"""Index of the field of PREPARED that holds the length of the batch."""
VERSION: Final = 1
CHECKED_VERSION: Final = 2
"""Versions of both bodies: of writers' rows without due times, and all others. Raise the second for
any addition; both stay readable."""
CHECKED_PREPARED: Final = struct.Struct("<QQqIIII")
"""What version 2 of PREPARED has behind the head."""
CHECKED_RESOLVED: Final = struct.Struct("<IIQ")
"""Likewise of RESOLVED."""
DUE_PART: Final = struct.Struct("<QQIIII")
FLAG_COPY: Final = 1
POLICY_DELAY: Final = -1
"""Delay of a prepared retry: that of the group's policy."""
MAX_WRITER_BYTES: Final = 128
MAX_PART_BYTES: Final = 128
MAX_NAMES_BYTES: Final = MAX_WRITER_BYTES + MAX_PART_BYTES + 128
"""Most bytes of the three names of a PREPARED, padding included."""

assert (PREPARED.size, RESOLVED.size, PART.size) == (48, 56, 40)
assert (CHECKED_PREPARED.size, CHECKED_RESOLVED.size, DUE_PART.size) == (40, 16, 32)


class Resolution(enum.IntEnum):
    """The outcome of a transaction."""

    COMMITTED = 1
    ROLLED_BACK = 2


class Why(enum.IntEnum):
    """Who or what decided."""

    WRITER = 0
    EXPIRED = 1
    """The transaction was undecided for too long."""
    OPERATOR = 2
    """An app that may manage everything decided; the writer or group belongs to another app."""
    CHECKER = 3
    """A checker answered the broker's question."""
    POLICY = 4
    """Nobody answered, and the producer group's policy decided."""


class Prepared(msgspec.Struct, frozen=True):
    """A decoded PREPARED body; of version 2 if it has a producer group, or due times."""

    topic: int
    queue: int
    transaction: int
    batch_id: int
    writer: int
    ordinal: int
    count: int
    writer_name: str
    part: str
    app: str
    batch: bytes
    producer: int = 0
    group: str = ""
    query_id: str = ""
    session: int = 0
    check_after_us: int = 0
    replaced: int | None = None
    """Position of the record that this one is a copy of."""
    settles: Sequence[Settled] = ()
    moves: Sequence[CursorMoved] = ()
    scheduled: bool = False
    """Whether it is a writer's batch with due times."""


class Part(NamedTuple):
    """A PREPARED whose rows are messages from its RESOLVED on."""

    position: int
    first_offset: int
    tag_mask: int
    topic: int
    queue: int
    rows: int
    length: int


class DuePart(NamedTuple):
    """A PREPARED whose rows are scheduled from its RESOLVED on."""

    position: int
    first_entry: int
    topic: int
    queue: int
    """The queue that the producer asked for; 2^32-1: none."""
    due_us: Sequence[int]
    """When each row comes due."""
    length: int


class Resolved(msgspec.Struct, frozen=True):
    """A decoded RESOLVED body; of version 2 if it has a producer group, or due parts."""

    transaction: int
    batch_id: int
    digest: int
    rows: int
    writer: int
    outcome: Resolution
    why: Why
    writer_name: str
    app: str
    parts: Sequence[Part] = ()
    dropped: Sequence[int] = ()
    producer: int = 0
    group: str = ""
    attempt: int = 0
    due: Sequence[DuePart] = ()
    settles: Sequence[Settled] = ()
    moves: Sequence[CursorMoved] = ()


def pack_prepared(prepared: Prepared) -> bytes:
    """Return the body of a PREPARED record."""
    if prepared.group or prepared.scheduled:
        return _pack_checked(prepared)
    names = [one.encode() for one in (prepared.writer_name, prepared.part, prepared.app)]
    head = PREPARED.pack(
        prepared.topic,
        prepared.queue,
        prepared.transaction,
        prepared.batch_id,
        prepared.writer,
        prepared.ordinal,
        prepared.count,
        len(prepared.batch),
        VERSION,
        *[len(one) for one in names],
        0,
    )
    return head + _padded(b"".join(names)) + prepared.batch


def unpack_prepared(body: bytes) -> Prepared:
    """Return the parts of a PREPARED body (zero padding behind it is allowed).

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: The body is cut short.
    """
    (
        topic, queue, transaction, batch_id, writer, ordinal, count, length,
        version, writer_bytes, part_bytes, app_bytes, zero,
    ) = PREPARED.unpack_from(body)  # fmt: skip
    if version == CHECKED_VERSION:
        return _unpack_checked(body)
    if version != VERSION or zero:
        raise UnknownRecordKind(f"a PREPARED of version {version}")
    at = PREPARED.size
    writer_name, part, app = _names(body, at, (writer_bytes, part_bytes, app_bytes))
    at += _rounded(writer_bytes + part_bytes + app_bytes)
    if at + length > len(body):
        raise ValueError("PREPARED body shorter than its batch")
    return Prepared(
        topic, queue, transaction, batch_id, writer, ordinal, count,
        writer_name, part, app, body[at : at + length],
    )  # fmt: skip


def batch_start(body: bytes) -> int:
    """Return where the batch of a PREPARED body begins."""
    names = _rounded(sum(body[41:44]))
    if body[40] == VERSION:
        return PREPARED.size + names
    *_, settle_bytes, move_count = CHECKED_PREPARED.unpack_from(body, PREPARED.size)
    facts_bytes = int(settle_bytes) + facts.CURSOR.size * int(move_count)
    return PREPARED.size + CHECKED_PREPARED.size + names + facts_bytes


def _pack_checked(prepared: Prepared) -> bytes:
    """Return a body of version 2."""
    texts = prepared.group, prepared.query_id, prepared.app
    if not prepared.group:
        texts = prepared.writer_name, prepared.part, prepared.app
    names = [one.encode() for one in texts]
    settles = facts.pack_settled(prepared.settles) if prepared.settles else b""
    head = PREPARED.pack(
        prepared.topic,
        prepared.queue,
        prepared.transaction,
        prepared.batch_id,
        prepared.writer,
        prepared.ordinal,
        prepared.count,
        len(prepared.batch),
        CHECKED_VERSION,
        *[len(one) for one in names],
        0 if prepared.replaced is None else FLAG_COPY,
    )
    head += CHECKED_PREPARED.pack(
        prepared.producer,
        prepared.replaced or 0,
        prepared.check_after_us,
        prepared.session,
        0,
        len(settles),
        len(prepared.moves),
    )
    moves = b"".join([facts.pack_cursor(one) for one in prepared.moves])
    return head + _padded(b"".join(names)) + settles + moves + prepared.batch


def _unpack_checked(body: bytes) -> Prepared:
    (
        topic, queue, transaction, counter, writer, ordinal, count, length,
        _, group_bytes, query_bytes, app_bytes, flags,
    ) = PREPARED.unpack_from(body)  # fmt: skip
    producer, replaced, check_after_us, session, zero, settle_bytes, move_count = (
        CHECKED_PREPARED.unpack_from(body, PREPARED.size)
    )
    of_client = flags, producer, replaced, check_after_us, session, settle_bytes, move_count
    if zero or flags & ~FLAG_COPY or (writer and any(of_client)):
        raise UnknownRecordKind("a PREPARED of version 2 with unknown parts")
    at = PREPARED.size + CHECKED_PREPARED.size
    group, query_id, app = _names(body, at, (group_bytes, query_bytes, app_bytes))
    if not group:
        raise ValueError("a PREPARED of version 2 without a producer group or writer")
    at += _rounded(group_bytes + query_bytes + app_bytes)
    settles, moves, at = _facts(body, at, settle_bytes, move_count)
    if at + length > len(body):
        raise ValueError("PREPARED body shorter than its batch")
    if writer:
        return Prepared(
            topic, queue, transaction, counter, writer, ordinal, count, group, query_id, app,
            body[at : at + length], scheduled=True,
        )  # fmt: skip
    return Prepared(
        topic, queue, transaction, counter, 0, ordinal, count, "", "", app,
        body[at : at + length], producer, group, query_id, session, check_after_us,
        replaced if flags & FLAG_COPY else None, settles, moves,
    )  # fmt: skip


def _facts(
    body: bytes, at: int, settle_bytes: int, move_count: int
) -> tuple[Sequence[Settled], Sequence[CursorMoved], int]:
    """Return the settles and moves at ``at``, and where they end."""
    end = at + settle_bytes
    stop = end + facts.CURSOR.size * move_count
    if stop > len(body):
        raise ValueError("the settles of a transaction are cut short")
    settles = facts.unpack_settled(body[at:end]) if settle_bytes else []
    moves = [
        facts.unpack_cursor(body[one : one + facts.CURSOR.size])
        for one in range(end, stop, facts.CURSOR.size)
    ]
    return settles or (), tuple(moves), stop


def pack_resolved(resolved: Resolved) -> bytes:
    """Return the body of a RESOLVED record."""
    checked = bool(resolved.group or resolved.due)
    writer, app = (resolved.group or resolved.writer_name).encode(), resolved.app.encode()
    settles = facts.pack_settled(resolved.settles) if resolved.settles else b""
    head = RESOLVED.pack(
        resolved.transaction,
        resolved.batch_id,
        resolved.digest,
        resolved.rows,
        resolved.writer,
        CHECKED_VERSION if checked else VERSION,
        resolved.outcome,
        resolved.why,
        0,
        len(resolved.parts),
        len(resolved.dropped),
        len(writer),
        len(app),
        resolved.attempt,
        len(resolved.due),
    )
    if checked:
        head += CHECKED_RESOLVED.pack(len(settles), len(resolved.moves), resolved.producer)
    parts = b"".join([PART.pack(*part) for part in resolved.parts])
    dropped = struct.pack(f"<{len(resolved.dropped)}Q", *resolved.dropped)
    due = b"".join([_pack_due(part) for part in resolved.due])
    moves = b"".join([facts.pack_cursor(one) for one in resolved.moves])
    return head + _padded(writer + app) + parts + dropped + due + settles + moves


def _pack_due(part: DuePart) -> bytes:
    rows = len(part.due_us)
    head = DUE_PART.pack(part.position, part.first_entry, part.topic, part.queue, rows, part.length)
    return head + struct.pack(f"<{rows}q", *part.due_us)


def unpack_resolved(body: bytes) -> Resolved:
    """Return the parts of a RESOLVED body (zero padding behind it is allowed).

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: The body is cut short.
    """
    (
        transaction, batch_id, digest, rows, writer, version, outcome, why, zero,
        part_count, dropped_count, writer_bytes, app_bytes, attempt, due_count,
    ) = RESOLVED.unpack_from(body)  # fmt: skip
    checked = version == CHECKED_VERSION
    if zero or not (checked or (version == VERSION and not attempt and not due_count)):
        raise UnknownRecordKind(f"a RESOLVED of version {version}")
    at = RESOLVED.size
    settle_bytes = move_count = producer = 0
    if checked:
        settle_bytes, move_count, producer = CHECKED_RESOLVED.unpack_from(body, at)
        at += CHECKED_RESOLVED.size
    name, app = _names(body, at, (writer_bytes, app_bytes))
    at += _rounded(writer_bytes + app_bytes)
    end = at + PART.size * part_count
    stop = end + DROPPED.size * dropped_count
    if stop > len(body):
        raise ValueError("RESOLVED body shorter than what it names")
    due, next_at = _unpack_due(body, stop, due_count)
    settles, moves, _ = _facts(body, next_at, settle_bytes, move_count)
    if checked and not name:
        raise ValueError("a RESOLVED of version 2 without a producer group or writer")
    if checked and (attempt or producer or settle_bytes or move_count if writer else digest):
        raise UnknownRecordKind("a RESOLVED of version 2 with unknown parts")
    group = name if checked and not writer else ""
    return Resolved(
        transaction,
        batch_id,
        digest,
        rows,
        writer,
        Resolution(outcome),
        Why(why),
        "" if group else name,
        app,
        [Part(*part) for part in PART.iter_unpack(body[at:end])],
        struct.unpack_from(f"<{dropped_count}Q", body, end),
        producer,
        group,
        attempt,
        due,
        settles,
        moves,
    )


def _unpack_due(body: bytes, at: int, count: int) -> tuple[Sequence[DuePart], int]:
    """Return the due parts at ``at``, and where they end."""
    parts: list[DuePart] = []
    for _ in range(count):
        position, first_entry, topic, queue, rows, length = DUE_PART.unpack_from(body, at)
        at += DUE_PART.size
        due_us = struct.unpack_from(f"<{rows}q", body, at)
        at += 8 * rows
        parts.append(DuePart(position, first_entry, topic, queue, due_us, length))
    return tuple(parts), at


def resolved_bytes(prepared: int, due_rows: int = 0) -> int:
    """Return the most bytes of a writer's RESOLVED record.

    Args:
        prepared: Number of PREPARED records that it names.
        due_rows: Rows with due times in them.
    """
    head = HEADER_BYTES + RESOLVED.size + CHECKED_RESOLVED.size + MAX_NAMES_BYTES
    return head + PART.size * prepared + 8 * due_rows


def as_messages(record: bytes, first_offset: int, position: int, time_us: int) -> bytes:
    """Return the rows of a PREPARED record as a MESSAGES record, which readers know.

    Args:
        record: A whole PREPARED record.
        first_offset: First offset, from its RESOLVED.
        position: Position of the RESOLVED, which made the rows messages.
        time_us: Broker time of the RESOLVED.
    """
    body = messages_body(unpack_prepared(record[HEADER_BYTES:]), first_offset)
    return messages.made(record, body, position, time_us)


def of_scheduled(record: bytes, first_entry: int = 0) -> messages.Messages:
    """Return the rows of a whole record that holds scheduled rows: SCHEDULED, or PREPARED.

    Args:
        record: The record, header included.
        first_entry: Entry of the first row of a PREPARED, which its RESOLVED has; 0: not needed.
    """
    if kind_of(record) != Kind.PREPARED:
        return messages.of_record(record)
    one = unpack_prepared(record[HEADER_BYTES:])
    return messages.Messages(one.topic, one.queue, first_entry, one.count, (), one.batch)


def messages_body(prepared: Prepared, first_offset: int) -> bytes:
    """Return the body of a MESSAGES record with the rows of a PREPARED."""
    return messages.pack(
        prepared.topic, prepared.queue, first_offset, prepared.count, prepared.batch, ()
    )


def _names(body: bytes, at: int, sizes: Sequence[int]) -> list[str]:
    names: list[str] = []
    for size in sizes:
        if at + size > len(body):
            raise ValueError("names of a transaction are cut short")
        names.append(body[at : at + size].decode())
        at += size
    return names


def _rounded(size: int) -> int:
    return size + -size % 8


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
