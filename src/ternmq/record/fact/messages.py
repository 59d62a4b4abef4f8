"""MESSAGES: a batch that was stored in a queue, and the offsets of its rows.

Ruler of the body (after the 48-byte header)::

     0  u32 topic         number
     4  u32 queue         number within the topic
     8  u64 first_offset  of the first row that is a message
    16  u32 count         rows that are messages
    20  u16 run_count     0: every row of the batch is a message
    22  u16 0
    24  u32 batch_length  bytes
    28  u32 0
    32      run_count x (u32 row_start, u32 row_end)
     .      the batch, as its producer made it

Offsets are dense: the k-th row that is a message, in row order, has offset ``first_offset + k``.
Rows outside the runs were left out because their application id had been stored before.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
from google_crc32c import value as crc32c

from ternmq.record.fact.header import CRC, HEADER, HEADER_BYTES, MAGIC, REST, VERSION, Kind

PREFIX: Final = struct.Struct("<IIQIHHII")
PREFIX_BYTES: Final = 32
RUN: Final = struct.Struct("<II")
TOPIC_QUEUE: Final = struct.Struct("<II")
"""The beginning of ``PREFIX``."""
_MESSAGES: Final = int(Kind.MESSAGES)

assert PREFIX.size == PREFIX_BYTES

RowRun = tuple[int, int]
"""Rows ``[start, stop)`` of a batch."""


class Messages(msgspec.Struct, frozen=True):
    """A decoded MESSAGES body; ``batch`` is a copy of the stored bytes."""

    topic: int
    queue: int
    first_offset: int
    count: int
    runs: tuple[RowRun, ...]
    batch: bytes

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
    """Return the body of a MESSAGES record; ``runs`` is empty when every row is a message."""
    prefix = PREFIX.pack(topic, queue, first_offset, count, len(runs), 0, len(batch), 0)
    if not runs:
        return prefix + batch
    return prefix + b"".join([RUN.pack(*run) for run in runs]) + batch


def unpack(body: bytes) -> Messages:
    """Return the parts of a MESSAGES body (zero padding behind it is allowed)."""
    topic, queue, first, count, run_count, _, length, _ = PREFIX.unpack_from(body)
    at = PREFIX_BYTES
    runs: tuple[RowRun, ...] = ()
    if run_count:  # rare: most records skip this
        at += RUN.size * run_count
        runs = tuple((start, stop) for start, stop in RUN.iter_unpack(body[PREFIX_BYTES:at]))
    if at + length > len(body):
        raise ValueError("MESSAGES body shorter than its batch")
    return Messages(topic, queue, first, count, runs, body[at : at + length])


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
