"""PREPARED and RESOLVED: the rows of a transaction, invisible at first, and their outcome.

Rulers of the bodies::

    PREPARED                                   RESOLVED
     0 u32 topic                                0 u64 transaction    0: nothing had been prepared
     4 u32 queue                                8 u64 batch_id
     8 u64 transaction  number                 16 u64 digest         as the writer states it
    16 u64 batch_id     of the writer          24 u64 rows           made visible, of all parts
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

Settles and cursor moves inside a transaction, and rows left out of a batch, need version 2; a
reader refuses unknown versions, and bytes that must be zero and are not.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER_BYTES

PREPARED: Final = struct.Struct("<IIQQIIIIBBBBI")
RESOLVED: Final = struct.Struct("<QQQQIBBBBIIBBHI")
PART: Final = struct.Struct("<QQQIIII")
DROPPED: Final = struct.Struct("<Q")
BATCH_LENGTH: Final = 7
"""Index of the field of PREPARED that holds the length of the batch."""
VERSION: Final = 1
"""Version of both bodies. Raise it for any addition; version 1 stays readable."""
MAX_WRITER_BYTES: Final = 128
MAX_PART_BYTES: Final = 128
MAX_NAMES_BYTES: Final = MAX_WRITER_BYTES + MAX_PART_BYTES + 128
"""Most bytes of the three names of a PREPARED, padding included."""

assert (PREPARED.size, RESOLVED.size, PART.size) == (48, 56, 40)


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
    """An app that may manage everything rolled it back; the writer belongs to another app."""


class Prepared(msgspec.Struct, frozen=True):
    """A decoded PREPARED body."""

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


class Part(NamedTuple):
    """A PREPARED whose rows are messages from its RESOLVED on."""

    position: int
    first_offset: int
    tag_mask: int
    topic: int
    queue: int
    rows: int
    length: int


class Resolved(msgspec.Struct, frozen=True):
    """A decoded RESOLVED body."""

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


def pack_prepared(prepared: Prepared) -> bytes:
    """Return the body of a PREPARED record."""
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
    return PREPARED.size + _rounded(sum(body[41:44]))


def pack_resolved(resolved: Resolved) -> bytes:
    """Return the body of a RESOLVED record."""
    writer, app = resolved.writer_name.encode(), resolved.app.encode()
    head = RESOLVED.pack(
        resolved.transaction,
        resolved.batch_id,
        resolved.digest,
        resolved.rows,
        resolved.writer,
        VERSION,
        resolved.outcome,
        resolved.why,
        0,
        len(resolved.parts),
        len(resolved.dropped),
        len(writer),
        len(app),
        0,
        0,
    )
    parts = b"".join([PART.pack(*part) for part in resolved.parts])
    dropped = struct.pack(f"<{len(resolved.dropped)}Q", *resolved.dropped)
    return head + _padded(writer + app) + parts + dropped


def unpack_resolved(body: bytes) -> Resolved:
    """Return the parts of a RESOLVED body (zero padding behind it is allowed).

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: The body is cut short.
    """
    (
        transaction, batch_id, digest, rows, writer, version, outcome, why, zero,
        part_count, dropped_count, writer_bytes, app_bytes, more, most,
    ) = RESOLVED.unpack_from(body)  # fmt: skip
    if version != VERSION or zero or more or most:
        raise UnknownRecordKind(f"a RESOLVED of version {version}")
    at = RESOLVED.size
    writer_name, app = _names(body, at, (writer_bytes, app_bytes))
    at += _rounded(writer_bytes + app_bytes)
    end = at + PART.size * part_count
    stop = end + DROPPED.size * dropped_count
    if stop > len(body):
        raise ValueError("RESOLVED body shorter than what it names")
    return Resolved(
        transaction,
        batch_id,
        digest,
        rows,
        writer,
        Resolution(outcome),
        Why(why),
        writer_name,
        app,
        [Part(*part) for part in PART.iter_unpack(body[at:end])],
        struct.unpack_from(f"<{dropped_count}Q", body, end),
    )


def resolved_bytes(prepared: int) -> int:
    """Return the most bytes of a RESOLVED record that names ``prepared`` PREPARED records."""
    return HEADER_BYTES + RESOLVED.size + MAX_NAMES_BYTES + PART.size * prepared


def as_messages(record: bytes, first_offset: int, position: int, time_us: int) -> bytes:
    """Return the rows of a PREPARED record as a MESSAGES record, which readers know.

    Args:
        record: A whole PREPARED record.
        first_offset: First offset, from its RESOLVED.
        position: Position of the RESOLVED, which made the rows messages.
        time_us: Broker time of the RESOLVED.
    """
    prepared = unpack_prepared(record[HEADER_BYTES:])
    body = messages.pack(
        prepared.topic, prepared.queue, first_offset, prepared.count, prepared.batch, ()
    )
    return messages.made(record, body, position, time_us)


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
