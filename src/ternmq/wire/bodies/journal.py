"""JOURNAL_READ: the journal's records from a position on, as they are stored.

Ruler::

    JOURNAL_READ    0  u64 position, u32 max_bytes, u32 wait_ms
                   16  u32 flags (1 WITHOUT_BODIES, 2 ANYWHERE), u32 0
      answer        0  u64 position, u64 next, u64 oldest, u64 durable
                   32  u32 flags (1 EXPIRED), u32 0
                   40  records, one after the other, to the end of the frame

The records are those from ``position`` to ``next``, all of them durable. ``max_bytes`` 0 means as
many as the broker allows. A record that is not sent as it is stored has bit 15 of its flags set.

With ANYWHERE, the position may be any byte: the records begin with the first one at or after it,
and the answer's ``position`` is that record's. A client sets it only if WELCOME has
``journal_anywhere``.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest
from ternmq.wire.bodies.checks import answer_at_least, exactly, unfit

JOURNAL_READ: Final = Struct("<QIIII")
RECORDS: Final = Struct("<QQQQII")

WITHOUT_BODIES: Final = 1
ANYWHERE: Final = 2
EXPIRED: Final = 1


class JournalRead(NamedTuple):
    """A JOURNAL_READ request."""

    position: int
    max_bytes: int
    wait_ms: int
    without_bodies: bool
    anywhere: bool = False


class Records(NamedTuple):
    """A JOURNAL_READ answer: the records of ``[position, next)``.

    The journal keeps ``[oldest, durable)``. When ``expired``, ``position`` is below ``oldest``, and
    there are no records.
    """

    position: int
    next: int
    oldest: int
    durable: int
    expired: bool
    records: bytes


def pack_journal_read(asked: JournalRead) -> bytes:
    """Return the body of a JOURNAL_READ.

    Raises:
        InvalidRequest: A number does not fit.
    """
    flags = (WITHOUT_BODIES if asked.without_bodies else 0) | (ANYWHERE if asked.anywhere else 0)
    try:
        return JOURNAL_READ.pack(asked.position, asked.max_bytes, asked.wait_ms, flags, 0)
    except struct.error as error:
        raise unfit(error) from error


def unpack_journal_read(body: bytes) -> JournalRead:
    """Return the decoded body of a JOURNAL_READ.

    Raises:
        InvalidRequest: The body has another layout.
    """
    exactly(body, JOURNAL_READ.size)
    position, size, wait, flags, zero = JOURNAL_READ.unpack(body)
    if flags & ~(WITHOUT_BODIES | ANYWHERE) or zero:
        raise InvalidRequest("flags other than 1 and 2, or bytes 20 to 24 not 0")
    if position >= 1 << 63:
        raise InvalidRequest("a position is below 2^63")
    return JournalRead(position, size, wait, bool(flags & WITHOUT_BODIES), bool(flags & ANYWHERE))


def records_head(position: int, next_: int, oldest: int, durable: int, *, expired: bool) -> bytes:
    """Return the part of an answer to a JOURNAL_READ before its records."""
    return RECORDS.pack(position, next_, oldest, durable, EXPIRED if expired else 0, 0)


def unpack_records(body: bytes) -> Records:
    """Return the decoded answer to a JOURNAL_READ; its records are not parsed.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, RECORDS)
    position, next_, oldest, durable, flags, _ = RECORDS.unpack_from(body)
    return Records(position, next_, oldest, durable, bool(flags & EXPIRED), body[RECORDS.size :])
