"""SEND: a batch for a topic, and the receipt.

Ruler::

    SEND            0  u32 queue (2**32-1: the broker chooses), u8 topic_bytes, 3 x u8 0
                    8  names: topic
                    .  the batch, to the end of the frame
      answer        0  u64 first_offset (2**64-1: none), u32 topic, u32 queue
                   16  u32 count, u32 flags (1 duplicate, 2 written, not synced yet, 4 scheduled)
                   24  u32 row_count, u32 0
                   32  row_count x (u64 offset (2**64-1: none), u32 row, u16 flags (1 conflict,
                       2 cancelled), u16 queue + 1 (0: none))

``count`` rows were stored from ``first_offset`` on. The answer lists the rows that were not stored,
because their application id is known already, with the offset of the message that has it.
*conflict*: that message has another body, or (*cancelled*) it was scheduled and cancelled.
*scheduled*: the rows are stored until they are due; they have no offset yet, and ``queue`` is only
the one that was asked for.
"""

from __future__ import annotations

import functools
import struct
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest
from ternmq.wire.bodies.checks import (
    MAX_NAME_BYTES,
    NO_OFFSET,
    NO_QUEUE,
    answer_at_least,
    answer_exactly,
    at_least,
    bytes_of,
    name_of,
    padded,
    padding,
    unfit,
)

SEND: Final = Struct("<II")
"""queue; topic_bytes and the zeros behind it, read as one number."""
_TOPIC_BYTES_AT: Final = 4
RECEIPT: Final = Struct("<QIIIIII")
RECEIPT_ROW: Final = Struct("<QIHH")
"""offset, row, flags, queue + 1 (0: not stated)."""

DUPLICATE: Final = 1
WRITTEN: Final = 2
SCHEDULED: Final = 4
CONFLICT: Final = 1
CANCELLED: Final = 2


class Send(NamedTuple):
    """A SEND request; ``queue`` None lets the broker choose."""

    topic: str
    queue: int | None
    batch: bytes


class ReceiptRow(NamedTuple):
    """A row of a batch that was not stored now.

    ``offset`` None: refused, or no longer known. ``queue`` None: not known, or from a broker that
    does not state it.
    """

    row: int
    offset: int | None
    conflict: bool
    queue: int | None = None
    cancelled: bool = False


class Receipt(NamedTuple):
    """A SEND answer: ``stored`` rows were stored from ``first_offset`` on.

    ``first_offset`` None: durability ``fast``, a duplicate whose messages retention has removed, or
    rows that are scheduled.
    """

    first_offset: int | None
    topic: int
    queue: int
    stored: int
    duplicate: bool
    written: bool
    others: tuple[ReceiptRow, ...]
    scheduled: bool = False


def pack_send(topic: str, queue: int | None, batch: bytes) -> bytes:
    """Return the body of a SEND.

    Raises:
        InvalidRequest: The name is not allowed, or a number does not fit.
    """
    name = bytes_of(topic)
    try:
        return SEND.pack(NO_QUEUE if queue is None else queue, len(name)) + padded(name) + batch
    except struct.error as error:
        raise unfit(error) from error


def send_prefix(topic: str, queue: int | None) -> bytes:
    """Return the part of the body before the batch; it is the same for all SENDs to a queue."""
    return pack_send(topic, queue, b"")


def unpack_send(body: bytes) -> Send:
    """Return the decoded body of a SEND; the batch is not parsed.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, SEND)
    size = body[_TOPIC_BYTES_AT]
    head = body[: SEND.size + size + -size % 8]
    topic, queue = _head(head)
    return Send(topic, queue, body[len(head) :])


@functools.lru_cache(maxsize=4096)
def _head(head: bytes) -> tuple[str, int | None]:
    """Return (topic, queue); cached, since a producer sends the same head with every batch."""
    queue, size = SEND.unpack_from(head)
    if size > MAX_NAME_BYTES:
        raise InvalidRequest("the topic's name is too long, or bytes 5 to 8 are not 0")
    at = SEND.size + size
    topic = name_of(head[SEND.size : at])
    padding(head, at)
    return topic, None if queue == NO_QUEUE else queue


def pack_receipt(receipt: Receipt) -> bytes:
    """Return the body of the answer to a SEND."""
    head = RECEIPT.pack(
        NO_OFFSET if receipt.first_offset is None else receipt.first_offset,
        receipt.topic,
        receipt.queue,
        receipt.stored,
        DUPLICATE * receipt.duplicate | WRITTEN * receipt.written | SCHEDULED * receipt.scheduled,
        len(receipt.others),
        0,
    )
    if not receipt.others:
        return head
    return head + b"".join(
        [
            RECEIPT_ROW.pack(
                NO_OFFSET if offset is None else offset,
                row,
                CONFLICT * conflict | CANCELLED * cancelled,
                0 if queue is None else queue + 1,
            )
            for row, offset, conflict, queue, cancelled in receipt.others
        ]
    )


def pack_stored(first_offset: int, topic: int, queue: int, stored: int) -> bytes:
    """Return the result of ``pack_receipt`` if all rows were stored by this SEND and are synced."""
    return RECEIPT.pack(first_offset, topic, queue, stored, 0, 0, 0)


def unpack_receipt(body: bytes) -> Receipt:
    """Return the decoded answer to a SEND.

    Raises:
        ProtocolError: The body has another layout.
    """
    size = len(body)
    if size < RECEIPT.size:
        answer_at_least(body, RECEIPT)
    first, topic, queue, count, flags, row_count, _ = RECEIPT.unpack_from(body)
    rows: tuple[ReceiptRow, ...] = ()
    if row_count or size != RECEIPT.size:
        answer_exactly(body, RECEIPT.size + row_count * RECEIPT_ROW.size)
        rows = tuple(
            [
                ReceiptRow(
                    row,
                    None if offset == NO_OFFSET else offset,
                    bool(flags_of_row & CONFLICT),
                    queue_plus_1 - 1 if queue_plus_1 else None,
                    bool(flags_of_row & CANCELLED),
                )
                for offset, row, flags_of_row, queue_plus_1 in RECEIPT_ROW.iter_unpack(
                    body[RECEIPT.size :]
                )
            ]
        )
    return Receipt(
        None if first == NO_OFFSET else first,
        topic,
        queue,
        count,
        bool(flags & DUPLICATE),
        bool(flags & WRITTEN),
        rows,
        bool(flags & SCHEDULED),
    )
