"""MESSAGES: a batch that was stored in a queue, and the offsets of its rows.

SCHEDULED has the same body; its rows become messages later (`record.fact.schedule`).

Ruler of the body (after the 48-byte header)::

     0  u32 topic         number
     4  u32 queue         number within the topic
     8  u64 first_offset  of the first row that is a message
    16  u32 count         rows that are messages
    20  u16 run_count     0: every row of the batch is a message
    22  u16 flags         bit 0, FULFILS: the rows were scheduled before and have come due;
                          bit 1, COPY (SCHEDULED only): the rows are copied from an older record
    24  u32 batch_length  bytes
    28  u32 0
    32      run_count x (u32 row_start, u32 row_end)
     .      the batch, as its producer made it; with FULFILS or COPY all of its rows or a slice
     .      with FULFILS, at the next multiple of 8: u64 position of the record that the rows come
            from (SCHEDULED, or PREPARED if a transaction scheduled them), u64 entry of the first
            row, i64 due_us, u64 0
     .      with COPY, likewise: u64 position of the record that the rows were stored with first,
            i64 time_us when they were scheduled, u64 0, u64 0

Offsets are dense: the k-th row that is a message, in row order, has offset ``first_offset + k``.
Rows outside the runs were left out because their application id had been stored before.

Rows of a record with FULFILS are consecutive entries of one source with one due time; rows of a
record with COPY are consecutive entries of one source. Neither leaves a row out (run_count is 0),
and no record has both flags.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec
from google_crc32c import value as crc32c

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact.header import CRC, HEADER, HEADER_BYTES, MAGIC, REST, VERSION, Kind

PREFIX: Final = struct.Struct("<IIQIHHII")
PREFIX_BYTES: Final = 32
RUN: Final = struct.Struct("<II")
MOST_RUNS: Final = (1 << 16) - 1
"""Runs that a record can have."""
TOPIC_QUEUE: Final = struct.Struct("<II")
"""The beginning of ``PREFIX``."""
FULFILS: Final = 1
"""Flag of a record whose rows were scheduled before."""
COPY: Final = 2
"""Flag of a SCHEDULED record whose rows were copied from an older one."""
FULFILMENT: Final = struct.Struct("<QQqQ")
ORIGIN: Final = struct.Struct("<QqQQ")
EXTRA_BYTES: Final = 32
"""Bytes behind the batch of a record with FULFILS or COPY."""
_MESSAGES: Final = int(Kind.MESSAGES)

assert (PREFIX.size, FULFILMENT.size, ORIGIN.size) == (PREFIX_BYTES, EXTRA_BYTES, EXTRA_BYTES)

RowRun = tuple[int, int]
"""Rows ``[start, stop)`` of a batch."""


class Fulfilment(NamedTuple):
    """What scheduled rows have come due: consecutive entries of one source with one due time."""

    source: int
    """Position of the record that holds them: a SCHEDULED, or the PREPARED of a transaction."""
    first_entry: int
    due_us: int


class Origin(NamedTuple):
    """Where copied rows come from."""

    position: int
    """Position of the record that they were stored with first: a SCHEDULED, or the PREPARED of a
    transaction."""
    time_us: int
    """Time of the SCHEDULED; of a PREPARED, a time up to that of its RESOLVED. No row is due
    before."""


class Messages(msgspec.Struct, frozen=True):
    """A decoded MESSAGES or SCHEDULED body; ``batch`` is a copy of the stored bytes.

    In a SCHEDULED body, ``first_offset`` is the entry of the first row, and ``queue`` is the one
    that the producer asked for.
    """

    topic: int
    queue: int
    first_offset: int
    count: int
    runs: tuple[RowRun, ...]
    batch: bytes
    fulfils: Fulfilment | None = None
    origin: Origin | None = None
    """Only in SCHEDULED: the rows are copies."""

    def row_of(self, offset: int) -> int:
        """Return the batch's row that has this offset.

        Raises:
            IndexError: The offset is not one of this record.
        """
        index = offset - self.first_offset
        if not 0 <= index < self.count:
            raise IndexError(offset)
        for start, stop in self.runs:
            if index < stop - start:
                return start + index
            index -= stop - start
        return index

    def offset_of(self, row: int) -> int | None:
        """Return the offset of a row of the batch, or None if the row was left out."""
        if not self.runs:
            return self.first_offset + row if 0 <= row < self.count else None
        before = 0
        for start, stop in self.runs:
            if start <= row < stop:
                return self.first_offset + before + row - start
            before += stop - start
        return None


def pack(
    topic: int, queue: int, first_offset: int, count: int, batch: bytes, runs: tuple[RowRun, ...]
) -> bytes:
    """Return the body of MESSAGES or SCHEDULED; ``runs`` is empty when no row was left out."""
    prefix = PREFIX.pack(topic, queue, first_offset, count, len(runs), 0, len(batch), 0)
    if not runs:
        return prefix + batch
    return prefix + b"".join([RUN.pack(*run) for run in runs]) + batch


def pack_fulfilled(
    topic: int, queue: int, first_offset: int, count: int, batch: bytes, fulfils: Fulfilment
) -> bytes:
    """Return the body of a MESSAGES record of rows that have come due."""
    prefix = PREFIX.pack(topic, queue, first_offset, count, 0, FULFILS, len(batch), 0)
    return prefix + batch + bytes(-len(batch) % 8) + FULFILMENT.pack(*fulfils, 0)


def pack_copy(
    topic: int, queue: int, first_entry: int, count: int, batch: bytes, origin: Origin
) -> bytes:
    """Return the body of a SCHEDULED record of rows that are copied from an older one."""
    prefix = PREFIX.pack(topic, queue, first_entry, count, 0, COPY, len(batch), 0)
    return prefix + batch + bytes(-len(batch) % 8) + ORIGIN.pack(*origin, 0, 0)


def unpack(body: bytes) -> Messages:
    """Return the parts of a MESSAGES or SCHEDULED body (zero padding behind it is allowed).

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: The body is cut short, or says two things that exclude each other.
    """
    topic, queue, first, count, run_count, flags, length, _ = PREFIX.unpack_from(body)
    at = PREFIX_BYTES
    runs: tuple[RowRun, ...] = ()
    if run_count:  # rare: most records skip this
        at += RUN.size * run_count
        runs = tuple((start, stop) for start, stop in RUN.iter_unpack(body[PREFIX_BYTES:at]))
    if at + length > len(body):
        raise ValueError("MESSAGES body shorter than its batch")
    stored = body[at : at + length]
    if flags:
        if run_count:
            raise ValueError("a record of due rows, or of copies, leaves no row out")
        extra = at + length + -length % 8
        if flags == FULFILS:
            fulfils = Fulfilment(*FULFILMENT.unpack_from(body, extra)[:3])
            return Messages(topic, queue, first, count, runs, stored, fulfils)
        if flags == COPY:
            origin = Origin(*ORIGIN.unpack_from(body, extra)[:2])
            return Messages(topic, queue, first, count, runs, stored, None, origin)
        raise UnknownRecordKind(f"MESSAGES or SCHEDULED with flags {flags}")
    return Messages(topic, queue, first, count, runs, stored)


def unpack_messages(body: bytes) -> Messages:
    """Do the same as ``unpack`` for a MESSAGES body.

    Raises:
        UnknownRecordKind, struct.error, ValueError: As from ``unpack``, or it is one of copies.
    """
    found = unpack(body)
    if found.origin is not None:
        raise ValueError("a MESSAGES record of copies")
    return found


def unpack_scheduled(body: bytes) -> Messages:
    """Do the same as ``unpack`` for a SCHEDULED body.

    Raises:
        UnknownRecordKind, struct.error, ValueError: As from ``unpack``, or it delivers due rows.
    """
    found = unpack(body)
    if found.fulfils is not None:
        raise ValueError("a SCHEDULED record that delivers due rows")
    return found


def of_record(record: bytes) -> Messages:
    """Return the parts of a whole MESSAGES record, header included."""
    return unpack(record[HEADER_BYTES:])


def made(like: bytes, body: bytes, position: int, time_us: int) -> bytes:
    """Return a MESSAGES record that is in no journal, made for readers.

    Args:
        like: A whole record; its durable position, epoch and ``prev_crc`` are copied.
        body: Result of ``pack``.
        position: Position for its header.
        time_us: Broker time for its header.
    """
    body += bytes(-len(body) % 8)
    _, _, _, _, _, _, _, durable, _, epoch, prev = HEADER.unpack_from(like)
    rest = REST.pack(
        MAGIC,
        HEADER_BYTES + len(body),
        VERSION,
        _MESSAGES,
        0,
        position,
        durable,
        time_us,
        epoch,
        prev,
    )
    data = rest + body
    return CRC.pack(crc32c(data)) + data
