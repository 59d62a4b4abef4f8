"""CANCELLED: scheduled rows that will not be delivered. SCHEDULED has the body of MESSAGES.

Ruler of the body of CANCELLED::

     0  u32 count
     4  u8  cause    see ``CancelCause``
     5  u8  version  1
     6  u16 0
     8  count x (u32 topic, u32 flags (0), i64 due_us, u64 entry)

SCHEDULED is the body of MESSAGES (`record.fact.messages`) with these differences: ``first_offset``
is the *entry* of the first row, a number that the broker gives to each scheduled row, dense, never
used twice; ``queue`` is the queue that the producer asked for, 2^32-1 for none. The batch has the
column ``due_us``. The due time that counts is the later one of the column and the time of the
record that the row was stored with first (``due_times_us``): a row cannot come due before that.

Before a segment is removed, its pending rows are copied to new SCHEDULED records (flag COPY), with
their entries, the position of their first record and the time when they were scheduled.

A row is pending until a MESSAGES record with FULFILS contains it, a CANCELLED names it, or its
topic is deleted.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact.messages import Messages

HEAD: Final = struct.Struct("<IBBH")
ROW: Final = struct.Struct("<IIqQ")
VERSION: Final = 1
NO_QUEUE: Final = 2**32 - 1
"""The producer asked for no queue."""

assert (HEAD.size, ROW.size) == (8, 24)


class CancelCause(enum.IntEnum):
    """Why scheduled rows will not be delivered. The numbers are stored and never reused."""

    CLIENT = 0
    OPERATOR = 1
    UNREADABLE = 2
    """Their record cannot be read."""
    GIVEN_UP = 3
    """They were given up in a repair."""


class CancelledRow(NamedTuple):
    """A scheduled row that will not be delivered."""

    topic: int
    due_us: int
    entry: int


class Cancelled(msgspec.Struct, frozen=True):
    """A decoded CANCELLED body."""

    cause: CancelCause
    rows: Sequence[CancelledRow]


def pack_cancelled(cancelled: Cancelled) -> bytes:
    """Return the body of a CANCELLED record."""
    head = HEAD.pack(len(cancelled.rows), cancelled.cause, VERSION, 0)
    return head + b"".join([ROW.pack(topic, 0, due, entry) for topic, due, entry in cancelled.rows])


def unpack_cancelled(body: bytes) -> Cancelled:
    """Return the parts of a CANCELLED body (zero padding behind it is allowed).

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: The body is cut short, or its cause is unknown.
    """
    count, cause, version, zero = HEAD.unpack_from(body)
    if version != VERSION or zero:
        raise UnknownRecordKind(f"a CANCELLED of version {version}")
    end = HEAD.size + count * ROW.size
    if end > len(body):
        raise ValueError("CANCELLED body shorter than its rows")
    rows = [
        CancelledRow(topic, due_us, entry)
        for topic, _, due_us, entry in ROW.iter_unpack(body[HEAD.size : end])
    ]
    return Cancelled(CancelCause(cause), rows)


def due_times_us(
    stored: Messages, time_us: int, first: int = 0, stop: int | None = None
) -> list[int]:
    """Return when rows ``[first, stop)`` of a SCHEDULED record's batch come due, in broker time.

    Args:
        stored: The decoded body.
        time_us: Broker time of the record.
        first: A row of the batch.
        stop: The row after the last; None: of the batch.
    """
    if stored.origin is not None:
        time_us = stored.origin.time_us
    due = due_times_of(stored.batch, first, stop)
    return [one if one > time_us else time_us for one in due]
