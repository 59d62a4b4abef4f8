"""The layout of a batch: the numbers shared by all code that makes or reads batches.

Ruler (little-endian, everything 8-aligned; the same text is in ``docs/format/batch.md``)::

     0  u32 magic           0x31424D54, "TMB1"
     4  u32 crc32c          over the topic's name (UTF-8), then bytes 8..length
     8  u32 length          whole batch, a multiple of 8
    12  u8  version         1
    13  u8  compression     0 none, 1 lz4, 2 zstd: of the bodies
    14  u16 column_count    columns that are present
    16  u32 flags           see below
    20  u32 count           rows, 1 to 1,000,000
    24  u64 producer        row r has the id producer : first_sequence + r
    32  u64 first_sequence
    40  i64 born_us         microseconds since the Unix epoch, producer's clock
    48      column_count x u32: where each present column begins, from the start of the batch,
            in the order of their numbers; zero padded to 8
     .      the columns, in the same order, without gaps, each zero padded to 8

    no  column               entry             what
     0  key_hash             u64               xxh3_64 of the key, 0 without one
     1  key                  binary            UTF-8; empty: none
     2  ordering_hash        u64               xxh3_64 of the ordering key, 0 without one
     3  ordering_key         binary            UTF-8; empty: none
     4  tag_codes            u16               entry of the tag dictionary
     5  tag_dictionary       u32 entries, u32 0, binary: UTF-8; entry 0 empty: no tag; no two alike
     6  headers              binary            msgpack map of str to str; empty: none
     7  content_type         binary            UTF-8; empty: none
     8  due_us               i64               0: at once
     9  expiry_us            i64               0: never
    10  priority             u8
    11  application_id_hash  u64 low, u64 high xxh3_128 of the application id, 0 and 0 without one
    12  application_id       binary            UTF-8, at most 128 bytes; empty: none
    13  body_hash            u64               xxh3_64 of the body (uncompressed), of every row
    14  bodies               binary            when compressed: see ``compress.py``
    15  block_table                            only when compressed: see ``compress.py``

    flags  bit i, 0..15   column i is present
           bit 16 + i     column i is constant: stored once, for all rows (columns 0..4 and 6..10)
           bit 28 KEYED   every row has an ordering key: a batch for an ordered topic
           bit 29 SLICE   rows cut out of another batch, by a broker; the CRC is the broker's
           others         0

``binary`` is Arrow's: (n + 1) i32 offsets into the bytes that follow, the first 0, none below the
one before; n is ``count``, 1 for a constant column, or the number of dictionary entries.

Columns come together: 0 and 1 (constant together), 2 and 3 (constant together), 4 and 5, 11 and 12
and 13; 14 always; 15 exactly when compressed. A batch with due times or SLICE is never compressed.
There is one way to lay out given columns, so what a start offset says is checked, not followed.

Changing this layout: raise ``VERSION``, keep a reader for the older one, add golden files under
``tests/golden``, say in ``docs/format/batch.md`` what changed and since when.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NoReturn

from google_crc32c import value as _crc32c

from ternmq.record.batch.compress import Compression

MAGIC: Final = 0x31424D54
VERSION: Final = 1
HEADER: Final = struct.Struct("<IIIBBHIIQQq")
HEADER_BYTES: Final = 48
COMPRESSION_AT: Final = 13
"""Byte of the header that states how the bodies are compressed."""
FLAGS_AT: Final = 16
"""Byte of the header where the flags begin; the count follows them."""
MAX_COUNT: Final = 1_000_000
MAX_APPLICATION_ID_BYTES: Final = 128
NUMPY_FROM: Final = 16
"""Number of rows from which numpy is faster than a Python loop; for one row numpy takes 2 us.

Code below this number of rows does not import numpy: the import takes 0.1 s and 15 MB, and a
command of the command line, or a client of single sends, never needs it.
"""

assert HEADER.size == HEADER_BYTES


class Column(enum.IntEnum):
    """Numbers of the columns. Never reused."""

    KEY_HASH = 0
    KEY = 1
    ORDERING_HASH = 2
    ORDERING_KEY = 3
    TAG_CODES = 4
    TAG_DICTIONARY = 5
    HEADERS = 6
    CONTENT_TYPE = 7
    DUE_US = 8
    EXPIRY_US = 9
    PRIORITY = 10
    APPLICATION_ID_HASH = 11
    APPLICATION_ID = 12
    BODY_HASH = 13
    BODIES = 14
    BLOCK_TABLE = 15


class BatchFlag(enum.IntFlag):
    """Bits of the header's flags."""

    KEY_HASH = 1 << 0
    KEY = 1 << 1
    ORDERING_HASH = 1 << 2
    ORDERING_KEY = 1 << 3
    TAG_CODES = 1 << 4
    TAG_DICTIONARY = 1 << 5
    HEADERS = 1 << 6
    CONTENT_TYPE = 1 << 7
    DUE_US = 1 << 8
    EXPIRY_US = 1 << 9
    PRIORITY = 1 << 10
    APPLICATION_ID_HASH = 1 << 11
    APPLICATION_ID = 1 << 12
    BODY_HASH = 1 << 13
    BODIES = 1 << 14
    BLOCK_TABLE = 1 << 15
    CONSTANT_KEY_HASH = 1 << 16
    CONSTANT_KEY = 1 << 17
    CONSTANT_ORDERING_HASH = 1 << 18
    CONSTANT_ORDERING_KEY = 1 << 19
    CONSTANT_TAG_CODES = 1 << 20
    # Bit 21 would be the tag dictionary, which is not a column of rows.
    CONSTANT_HEADERS = 1 << 22
    CONSTANT_CONTENT_TYPE = 1 << 23
    CONSTANT_DUE_US = 1 << 24
    CONSTANT_EXPIRY_US = 1 << 25
    CONSTANT_PRIORITY = 1 << 26
    KEYED = 1 << 28
    SLICE = 1 << 29


class BatchError(ValueError):
    """Bytes are not a valid batch of this topic.

    Attributes:
        reason: What is wrong, as one stable word: ``short``, ``magic``, ``version``, ``length``,
            ``checksum``, ``count``, ``sequence``, ``flags``, ``columns``, ``offsets``, ``padding``,
            ``text``, ``keyed``, ``tags``, ``times``, ``headers``, ``application_id``, ``blocks``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"not a valid batch: {message}")
        self.reason = reason


# Plain integers: arithmetic on enum members costs half a microsecond each.
(
    KEY_HASH, KEY, ORDERING_HASH, ORDERING_KEY, TAG_CODES, TAG_DICTIONARY, HEADERS,
    CONTENT_TYPE, DUE_US, EXPIRY_US, PRIORITY, APPLICATION_ID_HASH, APPLICATION_ID,
    BODY_HASH, BODIES, BLOCK_TABLE,
) = map(int, Column)  # fmt: skip
CONSTANT: Final = 16
CONSTANT_MASK: Final = 0x7FF  # columns 0..10; the bits behind them are KEYED and SLICE
KEYED: Final = int(BatchFlag.KEYED)
SLICE: Final = int(BatchFlag.SLICE)
BODIES_ONLY: Final = int(BatchFlag.BODIES)
WIDTHS: Final = {
    KEY_HASH: 8,
    ORDERING_HASH: 8,
    TAG_CODES: 2,
    DUE_US: 8,
    EXPIRY_US: 8,
    PRIORITY: 1,
    APPLICATION_ID_HASH: 16,
    BODY_HASH: 8,
}
ZEROS: Final = tuple(bytes(n) for n in range(8))
PREFIX: Final = struct.Struct("<II")  # magic and CRC
REST: Final = struct.Struct("<IBBHIIQQq")  # the rest of the header
U16: Final = struct.Struct("<H")
I32_PAIR: Final = struct.Struct("<ii")
U32: Final = struct.Struct("<I")
U32_PAIR: Final = struct.Struct("<II")
U64: Final = struct.Struct("<Q")
I64: Final = struct.Struct("<q")
EXPIRY_AT: Final = FLAGS_AT + EXPIRY_US // 8
EXPIRY_BIT: Final = 1 << EXPIRY_US % 8
"""The byte of a batch, and the bit in it, that say that its rows may expire."""
SOLE_COLUMN: Final = HEADER_BYTES + 8  # where the bodies begin when they are the only column
MIN_BYTES: Final = SOLE_COLUMN + 8
SEQUENCE_END: Final = 2**64


def flags_of(batch: bytes) -> int:
    """Return the flags of a batch; nothing is checked."""
    flags: int = HEADER.unpack_from(batch)[6]
    return flags


def may_expire(batch: bytes) -> bool:
    """Return whether a batch states when its rows expire; faster than its flags."""
    return batch[EXPIRY_AT] & EXPIRY_BIT != 0


def bodies_start(data: bytes, at: int) -> int:
    """Return how many bytes of the batch at ``at`` come before the bytes of its bodies.

    Nothing is checked. The bodies are preceded by their offsets, which count as before.
    """
    flags, rows = U32_PAIR.unpack_from(data, at + FLAGS_AT)
    start: int = U32.unpack_from(data, at + start_at(flags, BODIES))[0]
    return start + 4 * int(rows + 1)


def start_at(flags: int, column: int) -> int:
    """Return where a batch with these flags states (u32) where a column that is present begins."""
    return HEADER_BYTES + 4 * (flags & (1 << column) - 1).bit_count()


def due_times_of(batch: bytes, first: int = 0, stop: int | None = None) -> Sequence[int]:
    """Return when rows ``[first, stop)`` are due, in µs; the batch has the column.

    Faster than a ``Batch``; without ``stop``, all rows from ``first`` on.
    """
    return _times_of(batch, DUE_US, first, stop)


def expiry_times_of(batch: bytes) -> Sequence[int]:
    """Return when each row expires, in µs, 0: never; the batch has the column."""
    return _times_of(batch, EXPIRY_US, 0, None)


def _times_of(batch: bytes, column: int, first: int, stop: int | None) -> Sequence[int]:
    flags, rows = U32_PAIR.unpack_from(batch, FLAGS_AT)
    start: int = U32.unpack_from(batch, start_at(flags, column))[0]
    rows = int(rows if stop is None else stop) - first
    if flags >> CONSTANT + column & 1:
        return I64.unpack_from(batch, start) * rows
    return struct.unpack_from(f"<{rows}q", batch, start + 8 * first)


def priorities_of(batch: bytes) -> bytes:
    """Return the priority of each row, a byte each; a single one if all have the same entry.

    Faster than a ``Batch``. A batch without the column has priority 0.
    """
    flags, rows = U32_PAIR.unpack_from(batch, FLAGS_AT)
    if not flags >> PRIORITY & 1:
        return ZEROS[1]
    start: int = U32.unpack_from(batch, start_at(flags, PRIORITY))[0]
    return batch[start : start + (1 if flags >> CONSTANT + PRIORITY & 1 else int(rows))]


def topic_seed(name: str) -> int:
    """Return the CRC32C of a topic's name: the start value of its batches' checksums."""
    seed: int = _crc32c(name.encode())
    return seed


def refuse_header(data: bytes) -> NoReturn:
    """Raise the error that describes a wrong header; ``data`` has at least ``HEADER_BYTES``.

    Raises:
        BatchError: Always.
    """
    magic, _, stated, version, compression, *_ = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BatchError("magic", f"magic {magic:#x}")
    if version != VERSION:
        raise BatchError("version", f"version {version}; this reader knows version {VERSION}")
    if compression > max(Compression):
        raise BatchError("flags", f"unknown compression {compression}")
    raise BatchError("length", f"{stated} bytes stated, {len(data)} are there")
