"""NUMBERS: a block of a topic's numbers was given to a client, perhaps with a reserve.

Ruler of the body::

     0  u32 topic
     4  u32 count    numbers in the block, 1 to 1,000,000
     8  u64 first    the first of them; 2^62 is above the last
    16  u32 reserve  ordinal of the reserve that was given with it, plus 1; 0: none
    20  u8  version  1
    21  u8[3] 0

The numbers of a topic are given in blocks, each above the one before. The reserve with ordinal r is
the range of 2^40 numbers from 2^62 + r * 2^40 on. Ordinals are of the whole broker and never used
again, also not after a topic was deleted.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from ternmq.model.errors import UnknownRecordKind

BODY: Final = struct.Struct("<IIQIB3x")
VERSION: Final = 1
MOST: Final = 1_000_000
"""Most numbers of a block."""
END: Final = 1 << 62
"""One above the highest number of a block, and the first number of a reserve."""
RESERVE: Final = 1 << 40
"""Numbers of a reserve."""
RESERVES: Final = END // RESERVE
"""Number of reserves: with them, numbers have 63 bits."""

assert BODY.size == 24


class Numbers(msgspec.Struct, frozen=True):
    """A decoded NUMBERS body."""

    topic: int
    first: int
    count: int
    reserve: int | None = None
    """Ordinal of the reserve that was given with the block."""

    @property
    def stop(self) -> int:
        """One above the last number of the block."""
        return self.first + self.count


def first_of_reserve(ordinal: int) -> int:
    """Return the first number of a reserve."""
    return END + ordinal * RESERVE


def pack(given: Numbers) -> bytes:
    """Return the body of a NUMBERS record."""
    reserve = 0 if given.reserve is None else given.reserve + 1
    return BODY.pack(given.topic, given.count, given.first, reserve, VERSION)


def unpack(body: bytes) -> Numbers:
    """Return the parts of a NUMBERS body (zero padding behind it is allowed).

    Raises:
        UnknownRecordKind: A newer version wrote it.
        struct.error, ValueError: The body is cut short, or there are no such numbers.
    """
    topic, count, first, reserve, version = BODY.unpack_from(body)
    if version != VERSION or any(body[BODY.size - 3 : BODY.size]):
        raise UnknownRecordKind(f"a NUMBERS of version {version}")
    if not (1 <= count <= MOST and first and first + count <= END and reserve <= RESERVES):
        raise ValueError(f"NUMBERS of {count} numbers from {first} on, reserve {reserve}")
    return Numbers(topic, first, count, reserve - 1 if reserve else None)
