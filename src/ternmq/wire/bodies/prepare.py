"""PREPARE: a batch for a writer's transaction, and the number by which the commit lists it.

Ruler::

    PREPARE         0  u32 queue (2**32-1: the broker chooses), u8 topic_bytes, u8 writer_bytes,
                       u8 part_bytes, u8 0
                    8  u64 batch_id
                   16  names: topic, writer, part
                    .  the batch, to the end of the frame
      answer        0  u64 prepared, u32 topic, u32 queue
                   16  u32 rows, u32 flags (1 duplicate)

The writer is 1 to 128 bytes of UTF-8 without control characters, the part 0 to 128. The rows become
messages when a TRANSACTION_COMMIT lists ``prepared``; those of a batch with due times become
scheduled then.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest
from ternmq.wire.bodies.checks import (
    MAX_NAME_BYTES,
    NO_QUEUE,
    answer_exactly,
    at_least,
    bytes_of,
    name_of,
    padded,
    padding,
    text_of,
    unfit,
)

PREPARE: Final = Struct("<IBBBBQ")
PREPARED: Final = Struct("<QIIII")
_DUPLICATE: Final = 1


class Prepare(NamedTuple):
    """A PREPARE request; ``queue`` None lets the broker choose."""

    topic: str
    queue: int | None
    writer: str
    batch_id: int
    part: str
    batch: bytes


class Prepared(NamedTuple):
    """A PREPARE answer: ``rows`` rows were prepared for the topic and queue."""

    prepared: int
    topic: int
    queue: int
    rows: int
    duplicate: bool


def pack_prepare(asked: Prepare) -> bytes:
    """Return the body of a PREPARE.

    Raises:
        InvalidRequest: A name is not allowed, or a number does not fit.
    """
    topic = bytes_of(asked.topic)
    writer, part = asked.writer.encode(errors="replace"), asked.part.encode(errors="replace")
    text_of("name of a writer", writer, 1)
    text_of("name of a part", part, 0)
    try:
        head = PREPARE.pack(
            NO_QUEUE if asked.queue is None else asked.queue,
            len(topic),
            len(writer),
            len(part),
            0,
            asked.batch_id,
        )
    except struct.error as error:
        raise unfit(error) from error
    return head + padded(topic + writer + part) + asked.batch


def unpack_prepare(body: bytes) -> Prepare:
    """Return the decoded body of a PREPARE; the batch is not parsed.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, PREPARE)
    queue, topic_bytes, writer_bytes, part_bytes, zero, batch_id = PREPARE.unpack_from(body)
    if zero or topic_bytes > MAX_NAME_BYTES:
        raise InvalidRequest("the topic's name is too long, or byte 7 is not 0")
    at = PREPARE.size
    topic = name_of(body[at : at + topic_bytes])
    at += topic_bytes
    writer = text_of("name of a writer", body[at : at + writer_bytes], 1)
    at += writer_bytes
    part = text_of("name of a part", body[at : at + part_bytes], 0)
    at = padding(body, at + part_bytes)
    return Prepare(topic, None if queue == NO_QUEUE else queue, writer, batch_id, part, body[at:])


def pack_prepared(prepared: int, topic: int, queue: int, rows: int, *, duplicate: bool) -> bytes:
    """Return the body of the answer to a PREPARE."""
    return PREPARED.pack(prepared, topic, queue, rows, _DUPLICATE * duplicate)


def unpack_prepared(body: bytes) -> Prepared:
    """Return the decoded answer to a PREPARE.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_exactly(body, PREPARED.size)
    prepared, topic, queue, rows, flags = PREPARED.unpack_from(body)
    return Prepared(prepared, topic, queue, rows, bool(flags & _DUPLICATE))
