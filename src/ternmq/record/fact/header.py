"""The frame around every record of the journal.

Ruler (little-endian; the same text is in ``docs/format/journal.md``)::

     0  u32 crc32c     of bytes 4..length; in a PAD record of bytes 4..48 only
     4  u32 magic      0x31524D54, "TMR1"
     8  u32 length     header, body and zero padding; a multiple of 8, at least 48
    12  u8  version    1
    13  u8  kind       see ``Kind``
    14  u16 flags      bit 0: a reader that does not know the kind may skip it
    16  u64 position   the record's own byte address
    24  u64 durable    position known to be durable when the record was built
    32  i64 time_us    broker time
    40  u32 epoch
    44  u32 prev_crc   the crc32c field of the record before; 0 for the first record of a journal
    48      body

Changing this layout: raise ``VERSION``, keep a reader for the older one, add a golden file under
``tests/golden``, say in ``docs/format/journal.md`` what changed and since when.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

MAGIC: Final = 0x31524D54
VERSION: Final = 1
HEADER: Final = struct.Struct("<IIIBBHQQqII")
HEADER_BYTES: Final = 48
CRC: Final = struct.Struct("<I")
REST: Final = struct.Struct(HEADER.format.replace("<I", "<", 1))
"""The header behind its CRC, which is built first: the CRC covers it."""
FLAG_SKIPPABLE: Final = 1
FLAG_MADE: Final = 1 << 15
"""Never on the disk: a record that was made for a reply, in place of the stored one."""
ALIGNMENT: Final = 8

KIND_AT: Final = 13
"""Byte of the kind in a record: for loops over many records, instead of ``kind_of``."""

_LENGTH_AT: Final = 8
_U32: Final = struct.Struct("<I")

assert HEADER.size == HEADER_BYTES


class Kind(enum.IntEnum):
    """Kinds of records. Numbers are never reused."""

    SEGMENT = 1
    PAD = 2
    EPOCH = 3
    MARK = 4
    STATE = 5
    MESSAGES = 6
    PULLED = 7
    EXTENDED = 8
    ENDED = 9
    SETTLED = 10
    CURSOR = 11
    MOVED = 12
    CONFIG = 13
    JOINED = 14
    LEFT = 15
    COUNTS = 16
    ALARM = 17
    SCHEDULED = 18
    CANCELLED = 19
    PREPARED = 20
    RESOLVED = 21
    REPLAY = 22
    CHECKED = 24
    NUMBERS = 25


class Header(NamedTuple):
    """The fields of a record's header, as in the ruler above.

    Loops over many records unpack ``HEADER`` themselves, which is faster.
    """

    crc: int
    magic: int
    length: int
    version: int
    kind: int
    flags: int
    position: int
    durable: int
    time_us: int
    epoch: int
    prev_crc: int


def header_of(data: bytes, at: int = 0) -> Header:
    """Return the header of the record that begins at ``at``; nothing is checked."""
    return Header._make(HEADER.unpack_from(data, at))


def framed(header: Header, body: bytes) -> bytes:
    """Return the record with this header and body; its CRC, length and padding are made here."""
    body += bytes(-len(body) % ALIGNMENT)
    data = REST.pack(header.magic, HEADER_BYTES + len(body), *header[3:]) + body
    return CRC.pack(crc32c(data)) + data


def crc_of(record: bytes) -> int:
    """Return the CRC that a record states: of all bytes behind it; in a PAD, of its header's."""
    crc: int = _U32.unpack_from(record)[0]
    return crc


def length_of(data: bytes, at: int = 0) -> int:
    """Return the length that the record at ``at`` states; its first 12 bytes suffice."""
    length: int = _U32.unpack_from(data, at + _LENGTH_AT)[0]
    return length


def kind_of(record: bytes) -> int:
    """Return the kind of a record."""
    return record[KIND_AT]


def position_of(record: bytes) -> int:
    """Return the position of a record: its own byte address."""
    position: int = HEADER.unpack_from(record)[6]
    return position


def time_us_of(record: bytes) -> int:
    """Return the broker time of a record, in µs."""
    time_us: int = HEADER.unpack_from(record)[8]
    return time_us


KNOWN_KINDS: Final = frozenset(int(kind) for kind in Kind)
"""Kinds that version 1 writes and reads; others are refused unless flagged skippable."""
