"""READ: rows of a queue from an offset on, without a group and without a lease.

Ruler::

    READ            0  u32 queue, u32 max_messages, u32 max_bytes, u32 wait_ms
                   16  u64 offset, u8 topic_bytes, 7 x u8 0
                   32  names: topic
      answer        0  u32 topic, u32 queue, u64 start, u64 stop
                   24  u64 first, u64 next
                   40  records of kind MESSAGES, one after the other, to the end of the frame

The rows are those of offsets ``[start, stop)``; the queue keeps ``[first, next)``. ``max_messages``
is 1 or more, ``max_bytes`` 0 means as many as the broker allows.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest
from ternmq.wire.bodies.checks import (
    answer_at_least,
    at_least,
    bytes_of,
    exactly,
    names,
    padded,
    unfit,
)

READ: Final = Struct("<IIIIQQ")
"""The last number: topic_bytes and the zeros behind it."""
ROWS: Final = Struct("<IIQQQQ")


class Read(NamedTuple):
    """A READ request: rows of a queue from an offset on, without a group."""

    topic: str
    queue: int
    offset: int
    max_messages: int
    max_bytes: int
    wait_ms: int


class Rows(NamedTuple):
    """A READ answer: rows ``[start, stop)``; the queue keeps ``[first, next)``."""

    topic: int
    queue: int
    start: int
    stop: int
    first: int
    next: int
    records: bytes


def pack_read(read: Read) -> bytes:
    """Return the body of a READ.

    Raises:
        InvalidRequest: The name is not allowed, or a number does not fit.
    """
    topic = bytes_of(read.topic)
    try:
        return READ.pack(
            read.queue, read.max_messages, read.max_bytes, read.wait_ms, read.offset, len(topic)
        ) + padded(topic)
    except struct.error as error:
        raise unfit(error) from error


def unpack_read(body: bytes) -> Read:
    """Return the decoded body of a READ.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, READ)
    queue, most, size, wait, offset, topic_size = READ.unpack_from(body)
    if topic_size > 255:
        raise InvalidRequest("bytes 25 to 32 are not 0")
    if not most:
        raise InvalidRequest("a read of no messages")
    (topic,), end = names(body, READ.size, topic_size)
    exactly(body, end)
    return Read(topic, queue, offset, most, size, wait)


def rows_head(topic: int, queue: int, start: int, stop: int, first: int, next_: int) -> bytes:
    """Return the part of an answer to a READ before its records."""
    return ROWS.pack(topic, queue, start, stop, first, next_)


def unpack_rows(body: bytes) -> Rows:
    """Return the decoded answer to a READ; its records are not parsed.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, ROWS)
    topic, queue, start, stop, first, next_ = ROWS.unpack_from(body)
    return Rows(topic, queue, start, stop, first, next_, body[ROWS.size :])
