"""EXTEND: prolong a lease.

Ruler::

    EXTEND          0  u32 epoch, u32 queue, u64 lease
                   16  u64 extension_us, u8 topic_bytes, u8 group_bytes, 6 x u8 0
                   32  names: topic, group
      answer        0  i64 lease_until_us, i64 now_us
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest
from ternmq.wire.bodies.checks import (
    answer_at_least,
    answer_exactly,
    at_least,
    bytes_of,
    exactly,
    names,
    padded,
    unfit,
)

EXTEND: Final = Struct("<IIQQQ")
"""The last number: topic_bytes, group_bytes and the zeros behind them."""
EXTENDED: Final = Struct("<qq")


class Extend(NamedTuple):
    """An EXTEND request: the lease is to last for ``extension_us`` from now on."""

    topic: str
    group: str
    queue: int
    epoch: int
    lease: int
    extension_us: int


def pack_extend(extend: Extend) -> bytes:
    """Return the body of an EXTEND.

    Raises:
        InvalidRequest: A name is not allowed, or a number does not fit.
    """
    topic, group = bytes_of(extend.topic), bytes_of(extend.group)
    try:
        return EXTEND.pack(
            extend.epoch,
            extend.queue,
            extend.lease,
            extend.extension_us,
            len(topic) | len(group) << 8,
        ) + padded(topic + group)
    except struct.error as error:
        raise unfit(error) from error


def unpack_extend(body: bytes) -> Extend:
    """Return the decoded body of an EXTEND.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, EXTEND)
    epoch, queue, lease, extension, sizes = EXTEND.unpack_from(body)
    if sizes >> 16:
        raise InvalidRequest("bytes 26 to 32 are not 0")
    (topic, group), end = names(body, EXTEND.size, sizes & 255, sizes >> 8)
    exactly(body, end)
    return Extend(topic, group, queue, epoch, lease, extension)


def pack_extended(lease_until_us: int, now_us: int) -> bytes:
    """Return the body of the answer to an EXTEND."""
    return EXTENDED.pack(lease_until_us, now_us)


def unpack_extended(body: bytes) -> tuple[int, int]:
    """Return (broker time at which the lease ends, broker time now).

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, EXTENDED)
    answer_exactly(body, EXTENDED.size)
    until, now = EXTENDED.unpack(body)
    return until, now
