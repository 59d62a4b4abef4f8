"""The columnar batch: messages of one topic, as they travel, rest in the journal and meet Arrow.

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
    14  bodies               binary            when compressed: see ``record/compress.py``
    15  block_table                            only when compressed: see ``record/compress.py``

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

In reading order: numbers, ``Row``, ``encode`` and its fast forms, ``Batch`` (the reader),
``slice_batch``, ``verify``. ``Batch`` and ``slice_batch`` trust what ``verify`` accepted.
"""

from __future__ import annotations

import enum
import functools
import itertools
import operator
import struct
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import msgspec
import numpy as np
from google_crc32c import extend as _crc32c_extend
from google_crc32c import value as _crc32c

from ternmq.record import compress
from ternmq.record.compress import Compression, CompressionError
from ternmq.record.hashes import (
    application_id_hash_column,
    body_hash_column,
    key_hash,
    key_hash_column,
)

__all__ = [
    "HEADER", "HEADER_BYTES", "MAGIC", "MAX_APPLICATION_ID_BYTES", "MAX_COUNT", "VERSION",
    "Batch", "BatchError", "BatchFlag", "Column", "Compression", "Row",
    "encode", "encode_bodies", "encode_one", "slice_batch", "topic_seed", "verify",
]  # fmt: skip

# --------------------------------------------------------------------------------------- numbers

MAGIC: Final = 0x31424D54
VERSION: Final = 1
HEADER: Final = struct.Struct("<IIIBBHIIQQq")
HEADER_BYTES: Final = 48
MAX_COUNT: Final = 1_000_000
MAX_APPLICATION_ID_BYTES: Final = 128
NUMPY_FROM: Final = 16
"""Rows from which numpy beats a Python loop; one row costs it 2 us."""

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
    # Bit 21 would be the tag dictionary, which is no column of rows.
    CONSTANT_HEADERS = 1 << 22
    CONSTANT_CONTENT_TYPE = 1 << 23
    CONSTANT_DUE_US = 1 << 24
    CONSTANT_EXPIRY_US = 1 << 25
    CONSTANT_PRIORITY = 1 << 26
    KEYED = 1 << 28
    SLICE = 1 << 29


class BatchError(ValueError):
    """Bytes that are no batch of this topic.

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
    _KEY_HASH, _KEY, _ORDERING_HASH, _ORDERING_KEY, _TAG_CODES, _TAG_DICTIONARY, _HEADERS,
    _CONTENT_TYPE, _DUE_US, _EXPIRY_US, _PRIORITY, _APPLICATION_ID_HASH, _APPLICATION_ID,
    _BODY_HASH, _BODIES, _BLOCK_TABLE,
) = map(int, Column)  # fmt: skip
_CONSTANT: Final = 16
_CONSTANT_MASK: Final = 0x7FF  # columns 0..10; the bits behind them are KEYED and SLICE
_KEYED: Final = int(BatchFlag.KEYED)
_SLICE: Final = int(BatchFlag.SLICE)
_BODIES_ONLY: Final = int(BatchFlag.BODIES)
_KNOWN_FLAGS: Final = int(functools.reduce(operator.or_, BatchFlag))
_WIDTHS: Final = {
    _KEY_HASH: 8,
    _ORDERING_HASH: 8,
    _TAG_CODES: 2,
    _DUE_US: 8,
    _EXPIRY_US: 8,
    _PRIORITY: 1,
    _APPLICATION_ID_HASH: 16,
    _BODY_HASH: 8,
}
_ZEROS: Final = tuple(bytes(n) for n in range(8))
_PREFIX: Final = struct.Struct("<II")  # magic and CRC
_REST: Final = struct.Struct("<IBBHIIQQq")  # the header behind them
_U16: Final = struct.Struct("<H")
_I32_PAIR: Final = struct.Struct("<ii")
_U32_PAIR: Final = struct.Struct("<II")
_U64: Final = struct.Struct("<Q")
_ONE_KEY: Final = struct.Struct("<Qii")  # hash column and key column of one row, up to the key
_ONE_TAG: Final = struct.Struct("<H6xIIiii")  # code column and dictionary of one row, up to the tag
_ONE_OF_TWO: Final = struct.Struct("<IIiii")  # such a dictionary alone
_SOLE_COLUMN: Final = HEADER_BYTES + 8  # where the bodies begin when they are the only column
_ONE_BODY: Final = struct.Struct(
    "<IBBHIIQQqIIii"
)  # such a batch of one row, from byte 8 to its body
_SOLE_BODY: Final = struct.Struct(
    "<IIii"
)  # ... its start, padding, and the two offsets of one body
_MIN_BYTES: Final = _SOLE_COLUMN + 8
_U64_END: Final = 2**64
_I32_MAX: Final = 2**31 - 1


def topic_seed(name: str) -> int:
    """Return the CRC32C of a topic's name: where the checksum of each of its batches begins."""
    seed: int = _crc32c(name.encode())
    return seed


# ---------------------------------------------------------------------------------------- encode


@dataclass(slots=True, frozen=True)
class Row:
    """One message. Empty texts and zero times mean: none."""

    body: bytes
    key: str = ""
    ordering_key: str = ""
    tag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    due_us: int = 0
    expiry_us: int = 0
    priority: int = 0
    application_id: str = ""


def encode(
    rows: Sequence[Row],
    *,
    topic_seed: int,
    producer_id: int,
    first_sequence: int,
    born_us: int,
    compression: Compression = Compression.NONE,
    keyed: bool = False,
) -> bytes:
    """Return the batch of these rows.

    Bodies that do not shrink as a whole are stored uncompressed, whatever ``compression`` says: the
    broker can then cut the batch.

    Args:
        rows: 1 to ``MAX_COUNT`` of them.
        topic_seed: What ``topic_seed`` returned for the topic's name.
        producer_id: u64.
        first_sequence: Sequence of the first row; the others follow without gaps.
        born_us: Microseconds since the Unix epoch.
        compression: How to store the bodies.
        keyed: The topic is ordered; every row must have an ordering key.

    Raises:
        ValueError: No rows or too many, a value out of range, a row without ordering key in a keyed
            batch, due times together with compression.
    """
    columns = _Columns(len(rows))
    columns.keys(_KEY_HASH, [row.key for row in rows])
    ordering_keys = [row.ordering_key for row in rows]
    if keyed and not all(ordering_keys):
        raise ValueError("every row of a keyed batch needs an ordering key")
    columns.keys(_ORDERING_HASH, ordering_keys)
    columns.tags([row.tag for row in rows])
    columns.headers([row.headers for row in rows])
    columns.texts(_CONTENT_TYPE, [row.content_type for row in rows])
    columns.numbers(_DUE_US, "q", [row.due_us for row in rows])
    columns.numbers(_EXPIRY_US, "q", [row.expiry_us for row in rows])
    columns.numbers(_PRIORITY, "B", [row.priority for row in rows])
    bodies = [row.body for row in rows]
    columns.application_ids([row.application_id for row in rows], bodies)
    used = columns.bodies(bodies, compression)
    return columns.batch(topic_seed, producer_id, first_sequence, born_us, used, keyed=keyed)


def encode_bodies(
    bodies: Sequence[bytes],
    *,
    topic_seed: int,
    producer_id: int,
    first_sequence: int,
    born_us: int,
    key: bytes = b"",
    ordering_key: bytes = b"",
    tag: bytes = b"",
    content_type: bytes = b"",
    compression: Compression = Compression.NONE,
    keyed: bool = False,
) -> bytes:
    """Return the batch of bare bodies; key, ordering key, tag, content type (UTF-8) go for all.

    The fast form of ``encode``: 0.1 us a body. Raises as ``encode`` does.
    """
    if len(bodies) == 1 and not content_type and compression is Compression.NONE:
        return encode_one(
            bodies[0],
            topic_seed=topic_seed,
            producer_id=producer_id,
            first_sequence=first_sequence,
            born_us=born_us,
            key=key,
            ordering_key=ordering_key,
            tag=tag,
            keyed=keyed,
        )
    columns = _Columns(len(bodies))
    if keyed and not ordering_key:
        raise ValueError("every row of a keyed batch needs an ordering key")
    if key:
        columns.constant(_KEY_HASH, _U64.pack(key_hash(key)))
        columns.constant(_KEY, _one_binary(key))
    if ordering_key:
        columns.constant(_ORDERING_HASH, _U64.pack(key_hash(ordering_key)))
        columns.constant(_ORDERING_KEY, _one_binary(ordering_key))
    if tag:
        columns.constant(_TAG_CODES, _U16.pack(1))
        columns.add(_TAG_DICTIONARY, _dictionary([b"", tag]))
    if content_type:
        columns.constant(_CONTENT_TYPE, _one_binary(content_type))
    used = columns.bodies(bodies, compression)
    return columns.batch(topic_seed, producer_id, first_sequence, born_us, used, keyed=keyed)


def encode_one(
    body: bytes,
    *,
    topic_seed: int,
    producer_id: int,
    first_sequence: int,
    born_us: int,
    key: bytes = b"",
    ordering_key: bytes = b"",
    tag: bytes = b"",
    keyed: bool = False,
) -> bytes:
    """Return the batch of a single row (texts as UTF-8). The fast form for single sends: 1 us."""
    size = len(body)
    padding = -size & 7
    try:
        if key or ordering_key or tag or keyed:
            rest = _one_with_texts(
                body, producer_id, first_sequence, born_us, key, ordering_key, tag, keyed=keyed
            )
        else:
            rest = _ONE_BODY.pack(
                _MIN_BYTES + size + padding, VERSION, 0, 1, _BODIES_ONLY, 1,
                producer_id, first_sequence, born_us, _SOLE_COLUMN, 0, 0, size,
            ) + body + _ZEROS[padding]  # fmt: skip
    except struct.error as error:
        raise ValueError(f"a number is out of its range: {error}") from error
    return _PREFIX.pack(MAGIC, _crc32c_extend(topic_seed, rest)) + rest


def _one_with_texts(
    body: bytes,
    producer_id: int,
    first_sequence: int,
    born_us: int,
    key: bytes,
    ordering_key: bytes,
    tag: bytes,
    *,
    keyed: bool,
) -> bytes:
    """Return a row with key, ordering key or tag from byte 8 on; as ``_Columns`` would, in half."""
    if keyed and not ordering_key:
        raise ValueError("every row of a keyed batch needs an ordering key")
    flags = _BODIES_ONLY | _KEYED if keyed else _BODIES_ONLY
    starts: list[int] = []
    parts: list[bytes] = []
    column_count = 1 + 2 * (bool(key) + bool(ordering_key) + bool(tag))
    place = HEADER_BYTES + 4 * (column_count + 1)
    for column, text in ((_KEY_HASH, key), (_ORDERING_HASH, ordering_key), (_TAG_CODES, tag)):
        if text:
            flags |= 3 << column
            starts += (place, place + 8)
            size = len(text)
            if column == _TAG_CODES:
                part = _ONE_TAG.pack(1, 2, 0, 0, 0, size) + text + _ZEROS[-(size + 4) & 7]
            else:
                part = _ONE_KEY.pack(key_hash(text), 0, size) + text + _ZEROS[-size & 7]
            parts.append(part)
            place += len(part)
    size = len(body)
    padding = -size & 7
    starts += (place, 0)
    parts += (_I32_PAIR.pack(0, size), body, _ZEROS[padding])
    head = _REST.pack(
        place + 8 + size + padding, VERSION, 0, column_count, flags, 1,
        producer_id, first_sequence, born_us,
    )  # fmt: skip
    return head + struct.pack(f"<{len(starts)}I", *starts) + b"".join(parts)


class _Columns:
    """The columns of a batch being made; they must be added in the order of their numbers."""

    __slots__ = ("count", "flags", "parts")

    def __init__(self, count: int) -> None:
        if not 1 <= count <= MAX_COUNT:
            raise ValueError(f"a batch has 1 to {MAX_COUNT} rows, not {count}")
        self.count = count
        self.flags = 0
        self.parts: list[bytes] = []

    def add(self, column: int, content: bytes) -> None:
        self.flags |= 1 << column
        self.parts.append(content)

    def constant(self, column: int, content: bytes) -> None:
        # With one row it saves nothing; then the bit stays 0, so that equal rows give equal bytes.
        self.flags |= (1 if self.count == 1 else 1 | 1 << _CONSTANT) << column
        self.parts.append(content)

    def same(self, values: Sequence[object]) -> bool:
        return self.count > 1 and values.count(values[0]) == self.count

    def keys(self, hash_column: int, keys: Sequence[str]) -> None:
        if not any(keys):
            return
        if self.same(keys):
            key = keys[0].encode()
            self.constant(hash_column, _U64.pack(key_hash(key)))
            self.constant(hash_column + 1, _one_binary(key))
        else:
            encoded = [key.encode() for key in keys]
            self.add(hash_column, key_hash_column(encoded))
            self.add(hash_column + 1, _binary(encoded))

    def tags(self, tags: Sequence[str]) -> None:
        if not any(tags):
            return
        entries: dict[str, int] = {"": 0}
        if self.same(tags):
            entries[tags[0]] = 1
            self.constant(_TAG_CODES, _U16.pack(1))
        else:
            codes = [entries.setdefault(tag, len(entries)) for tag in tags]
            if len(entries) > 2**16:
                raise ValueError(f"{len(entries) - 1} different tags, at most 65535 fit a batch")
            self.add(_TAG_CODES, struct.pack(f"<{self.count}H", *codes))
        self.add(_TAG_DICTIONARY, _dictionary([tag.encode() for tag in entries]))

    def headers(self, headers: Sequence[Mapping[str, str]]) -> None:
        if not any(headers):
            return
        # Compared as bytes: two maps of another order are equal, yet not the same to a reader.
        self.binary(_HEADERS, [_pack_headers(one) if one else b"" for one in headers])

    def texts(self, column: int, texts: Sequence[str]) -> None:
        if any(texts):
            self.binary(column, [text.encode() for text in texts])

    def binary(self, column: int, values: Sequence[bytes]) -> None:
        if self.same(values):
            self.constant(column, _one_binary(values[0]))
        else:
            self.add(column, _binary(values))

    def numbers(self, column: int, code: str, numbers: Sequence[int]) -> None:
        if not any(numbers):
            return
        if min(numbers) < 0:
            raise ValueError(f"{Column(column).name.lower()} may not be negative")
        try:
            if self.same(numbers):
                self.constant(column, struct.pack(f"<{code}", numbers[0]))
            else:
                self.add(column, struct.pack(f"<{self.count}{code}", *numbers))
        except struct.error as error:
            raise ValueError(f"{Column(column).name.lower()} is out of range: {error}") from error

    def application_ids(self, texts: Sequence[str], bodies: Sequence[bytes]) -> None:
        if not any(texts):
            return
        ids = [text.encode() for text in texts]
        longest = max(map(len, ids))
        if longest > MAX_APPLICATION_ID_BYTES:
            raise ValueError(f"an application id has {longest} bytes, at most 128 are allowed")
        self.add(_APPLICATION_ID_HASH, application_id_hash_column(ids))
        self.add(_APPLICATION_ID, _binary(ids))
        self.add(_BODY_HASH, body_hash_column(bodies))

    def bodies(self, bodies: Sequence[bytes], compression: Compression) -> Compression:
        """Add bodies and block table; return how they were stored."""
        if compression is not Compression.NONE:
            if self.flags >> _DUE_US & 1:
                raise ValueError("a batch with due times may not be compressed")
            joined = b"".join(bodies)
            blocks, table = compress.compress_blocks(joined, compression)
            if len(blocks) + len(table) < len(joined):
                self.add(_BODIES, _offsets(bodies) + blocks)
                self.add(_BLOCK_TABLE, table)
                return compression
        self.add(_BODIES, _binary(bodies))
        return Compression.NONE

    def batch(
        self,
        topic_seed: int,
        producer_id: int,
        first_sequence: int,
        born_us: int,
        compression: int = 0,
        *,
        keyed: bool = False,
    ) -> bytes:
        column_count = len(self.parts)
        place = HEADER_BYTES + (4 * column_count + 7 & ~7)
        starts: list[int] = []
        pieces: list[bytes] = [b"", b""]
        for part in self.parts:
            starts.append(place)
            padding = -len(part) & 7
            pieces += (part, _ZEROS[padding])
            place += len(part) + padding
        if first_sequence + self.count > _U64_END:
            raise ValueError("the sequences of the rows pass 2**64")
        if column_count & 1:
            starts.append(0)
        flags = self.flags | _KEYED if keyed else self.flags
        try:
            pieces[0] = _REST.pack(
                place, VERSION, compression, column_count, flags, self.count,
                producer_id, first_sequence, born_us,
            )  # fmt: skip
            pieces[1] = struct.pack(f"<{len(starts)}I", *starts)
        except struct.error as error:
            raise ValueError(f"a number is out of its range: {error}") from error
        rest = b"".join(pieces)
        return _PREFIX.pack(MAGIC, _crc32c_extend(topic_seed, rest)) + rest


_pack_headers: Final = msgspec.msgpack.Encoder().encode
_unpack_headers: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


def _offsets(values: Sequence[bytes]) -> bytes:
    try:
        return struct.pack(
            f"<{len(values) + 1}i", *itertools.accumulate(map(len, values), initial=0)
        )
    except struct.error as error:
        raise ValueError("a column comes to 2 GiB or more") from error


def _binary(values: Sequence[bytes]) -> bytes:
    return b"".join((_offsets(values), *values))


def _one_binary(value: bytes) -> bytes:
    return _I32_PAIR.pack(0, len(value)) + value


def _dictionary(entries: Sequence[bytes]) -> bytes:
    return _U32_PAIR.pack(len(entries), 0) + _binary(entries)


# ------------------------------------------------------------------------------------------ read


class Batch:
    """Reads a batch in place: nothing is copied or decoded before it is asked for.

    Meant for bytes that ``verify`` accepted; of others it only promises to raise an exception or to
    return nonsense. Of a hash column that is absent the readers return nothing (an empty array or
    list); every other reader returns ``count`` values.

    Args:
        data: The batch, whole.
        output_cap: Most bytes that compressed bodies may come to in memory.

    Raises:
        BatchError: The header is not that of a batch of this length.
    """

    __slots__ = (
        "_constants", "_joined", "_output_cap", "born_us", "compression", "count", "crc", "data",
        "first_sequence", "flags", "length", "producer_id",
    )  # fmt: skip
    data: bytes
    crc: int
    length: int
    compression: Compression
    flags: int
    count: int
    producer_id: int
    first_sequence: int
    born_us: int

    def __init__(self, data: bytes, *, output_cap: int = compress.MAX_INFLATED_BYTES) -> None:
        if len(data) < _MIN_BYTES:
            raise BatchError("short", f"{len(data)} bytes, at least {_MIN_BYTES} are needed")
        (
            magic, self.crc, self.length, version, compression, _, self.flags, self.count,
            self.producer_id, self.first_sequence, self.born_us,
        ) = HEADER.unpack_from(data)  # fmt: skip
        if magic != MAGIC or version != VERSION or self.length != len(data) or compression > 2:
            _refuse_header(data)
        if not 0 < self.count <= MAX_COUNT:  # readers make columns of that many values
            raise BatchError("count", f"{self.count} rows, 1 to {MAX_COUNT} are allowed")
        self.data = data
        self._constants = self.flags >> _CONSTANT & _CONSTANT_MASK
        self.compression = _COMPRESSIONS[compression]
        self._output_cap = output_cap
        self._joined: bytes | None = None

    @property
    def keyed(self) -> bool:
        """True when every row has an ordering key: a batch for an ordered topic."""
        return bool(self.flags & _KEYED)

    @property
    def is_slice(self) -> bool:
        """True when a broker cut these rows out of another batch."""
        return bool(self.flags & _SLICE)

    def has(self, column: int) -> bool:
        """Return whether a column is present."""
        return bool(self.flags >> column & 1)

    def is_constant(self, column: int) -> bool:
        """Return whether a column is stored once, for all rows."""
        return bool(self._constants >> column & 1)

    def start(self, column: int) -> int:
        """Return where a column that is present begins, in bytes from the start of the batch."""
        before = (self.flags & (1 << column) - 1).bit_count()
        return int.from_bytes(self.data[48 + 4 * before : 52 + 4 * before], "little")

    # -- hashes

    def key_hash_bytes(self) -> bytes:
        """Return the key hashes as ``count`` u64, little-endian; empty when no row has a key."""
        return self._fixed(_KEY_HASH, 8)

    def key_hashes(self) -> array[int]:
        """Return the key hash of each row, 0 without a key; empty when no row has a key."""
        return _numbers("Q", self._fixed(_KEY_HASH, 8))

    def ordering_hashes(self) -> array[int]:
        """Return the hash of each row's ordering key, always ``count`` of them, 0 without one."""
        return _numbers("Q", self._fixed(_ORDERING_HASH, 8) or bytes(8 * self.count))

    def application_ids(self) -> list[tuple[int, int]]:
        """Return (low, high) of each row's application id hash, (0, 0) without one.

        Empty when no row has one.
        """
        halves = _numbers("Q", self._fixed(_APPLICATION_ID_HASH, 16))
        return list(zip(halves[::2], halves[1::2], strict=True))

    def application_id_hash_bytes(self) -> bytes:
        """Return the application id hashes as ``count`` u128 (u64 low, u64 high), little-endian.

        Empty when no row has one.
        """
        return self._fixed(_APPLICATION_ID_HASH, 16)

    def body_hashes(self) -> array[int]:
        """Return the hash of each body; empty when no row has an application id."""
        return _numbers("Q", self._fixed(_BODY_HASH, 8))

    # -- properties of rows

    def keys(self) -> list[str]:
        """Return each row's key, "" without one."""
        return self._texts(_KEY)

    def ordering_keys(self) -> list[str]:
        """Return each row's ordering key, "" without one."""
        return self._texts(_ORDERING_KEY)

    def tags(self) -> tuple[array[int], list[str]]:
        """Return (each row's place in the dictionary, the dictionary); place 0 is "no tag"."""
        codes = self._fixed(_TAG_CODES, 2) or bytes(2 * self.count)
        return _numbers("H", codes), self.tag_dictionary()

    def tag_dictionary(self) -> list[str]:
        """Return the tags of the batch, "" first. A slice keeps those of the whole batch."""
        if not self.has(_TAG_DICTIONARY):
            return [""]
        start = self.start(_TAG_DICTIONARY)
        (entries, _) = _U32_PAIR.unpack_from(self.data, start)
        return _decode(*self._split(start + 8, entries))

    def headers(self) -> list[dict[str, str]]:
        """Return each row's headers.

        Raises:
            BatchError: A row's headers are no msgpack map of strings (``verify`` does not look).
        """
        return list(map(_headers, self._values(_HEADERS)))

    def content_types(self) -> list[str]:
        """Return each row's content type, "" without one."""
        return self._texts(_CONTENT_TYPE)

    def due_times_us(self) -> array[int]:
        """Return when each row is due, 0 for at once."""
        return _numbers("q", self._fixed(_DUE_US, 8) or bytes(8 * self.count))

    def expiry_times_us(self) -> array[int]:
        """Return when each row expires, 0 for never."""
        return _numbers("q", self._fixed(_EXPIRY_US, 8) or bytes(8 * self.count))

    def priorities(self) -> bytes:
        """Return each row's priority, a byte each."""
        return self._fixed(_PRIORITY, 1) or bytes(self.count)

    def application_id_texts(self) -> list[str]:
        """Return each row's application id, "" without one."""
        return self._texts(_APPLICATION_ID)

    # -- bodies and rows

    def body(self, row: int) -> bytes:
        """Return one body.

        Raises:
            IndexError: There is no such row.
            BatchError: Compressed bodies are damaged or pass the cap.
        """
        if not 0 <= row < self.count:
            raise IndexError(row)
        start = self.start(_BODIES)
        first, stop = _I32_PAIR.unpack_from(self.data, start + 4 * row)
        base = 0 if self.compression else start + 4 * (self.count + 1)
        content = self._inflated() if self.compression else self.data
        body: bytes = content[base + first : base + stop]
        return body

    def bodies(self) -> list[bytes]:
        """Return all bodies.

        Raises:
            BatchError: Compressed bodies are damaged or pass the cap.
        """
        content, offsets = self._split(self.start(_BODIES), self.count)
        if self.compression:
            content = self._inflated()
        return [content[a:b] for a, b in itertools.pairwise(offsets)]

    def row(self, row: int) -> Row:
        """Return one row, decoded.

        Raises:
            IndexError: There is no such row.
            BatchError: Its headers, or the compressed bodies, are damaged.
        """
        tag = ""
        body = self.body(row)
        if self.has(_TAG_CODES):
            tag = self.tag_dictionary()[self._number(_TAG_CODES, 2, row)]
        return Row(
            body,
            self._value(_KEY, row).decode(),
            self._value(_ORDERING_KEY, row).decode(),
            tag,
            _headers(self._value(_HEADERS, row)),
            self._value(_CONTENT_TYPE, row).decode(),
            self._number(_DUE_US, 8, row),
            self._number(_EXPIRY_US, 8, row),
            self._number(_PRIORITY, 1, row),
            self._value(_APPLICATION_ID, row).decode(),
        )

    def rows(self) -> list[Row]:
        """Return all rows, decoded: 0.5 us a row without headers. Raises as ``row`` does."""
        if self.count < 4:
            return [self.row(row) for row in range(self.count)]
        codes, dictionary = self.tags()
        columns: tuple[Iterable[object], ...] = (
            self.bodies(),
            self._texts_or_repeat(_KEY),
            self._texts_or_repeat(_ORDERING_KEY),
            map(dictionary.__getitem__, codes) if len(dictionary) > 1 else itertools.repeat(""),
            self.headers(),
            self._texts_or_repeat(_CONTENT_TYPE),
            self.due_times_us() if self.has(_DUE_US) else itertools.repeat(0),
            self.expiry_times_us() if self.has(_EXPIRY_US) else itertools.repeat(0),
            self.priorities() if self.has(_PRIORITY) else itertools.repeat(0),
            self._texts_or_repeat(_APPLICATION_ID),
        )
        # A frozen dataclass sets its fields one by one through object.__setattr__, 0.9 us a row.
        # Filling the slots column by column, all in C, takes a third of that.
        rows = list(map(_new_row, itertools.repeat(Row, self.count)))
        for fill, values in zip(_ROW_SLOTS, columns, strict=True):
            deque(map(fill, rows, values), maxlen=0)
        return rows

    # -- pieces

    def _fixed(self, column: int, width: int) -> bytes:
        if not self.flags >> column & 1:
            return b""
        start = self.start(column)
        if self._constants >> column & 1:
            return self.data[start : start + width] * self.count
        return self.data[start : start + width * self.count]

    def _number(self, column: int, width: int, row: int) -> int:
        if not self.flags >> column & 1:
            return 0
        at = self.start(column) + (0 if self.is_constant(column) else width * row)
        return int.from_bytes(self.data[at : at + width], "little")

    def _split(self, start: int, entries: int) -> tuple[bytes, tuple[int, ...]]:
        """Return (the bytes, the offsets into them) of a binary column."""
        offsets = struct.unpack_from(f"<{entries + 1}i", self.data, start)
        base = start + 4 * (entries + 1)
        return self.data[base : base + offsets[-1]], offsets

    def _value(self, column: int, row: int) -> bytes:
        if not self.flags >> column & 1:
            return b""
        start = self.start(column)
        entries = self.count
        if self.is_constant(column):
            row, entries = 0, 1
        first, stop = _I32_PAIR.unpack_from(self.data, start + 4 * row)
        base = start + 4 * (entries + 1)
        value: bytes = self.data[base + first : base + stop]
        return value

    def _values(self, column: int) -> list[bytes]:
        if not self.flags >> column & 1 or self.is_constant(column):
            return [self._value(column, 0)] * self.count
        content, offsets = self._split(self.start(column), self.count)
        return [content[a:b] for a, b in itertools.pairwise(offsets)]

    def _texts(self, column: int) -> list[str]:
        if not self.flags >> column & 1 or self.is_constant(column):
            return [self._value(column, 0).decode()] * self.count
        return _decode(*self._split(self.start(column), self.count))

    def _texts_or_repeat(self, column: int) -> Iterable[str]:
        return self._texts(column) if self.flags >> column & 1 else itertools.repeat("")

    def _inflated(self) -> bytes:
        """Return the compressed bodies, joined and inflated; kept for the next call."""
        if self._joined is None:
            first = self.start(_BODIES) + 4 * (self.count + 1)
            (total,) = struct.unpack_from("<i", self.data, first - 4)
            try:
                table = compress.read_table(self.data, self.start(_BLOCK_TABLE), total)
                self._joined = compress.decompress_blocks(
                    self.data, first, table, self.compression, self._output_cap
                )
            except CompressionError as error:
                raise BatchError("blocks", str(error)) from error
        return self._joined


_COMPRESSIONS: Final = tuple(Compression)
_new_row: Final[Callable[[type[Row]], Row]] = object.__new__
_ROW_SLOTS: Final = tuple(getattr(Row, name).__set__ for name in Row.__slots__)


def _numbers(code: str, data: bytes) -> array[int]:
    numbers: array[int] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _decode(content: bytes, offsets: tuple[int, ...]) -> list[str]:
    if content.isascii():
        text = content.decode()
        return [text[a:b] for a, b in itertools.pairwise(offsets)]
    return [content[a:b].decode() for a, b in itertools.pairwise(offsets)]


def _headers(packed: bytes) -> dict[str, str]:
    if not packed:
        return {}
    try:
        return _unpack_headers(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchError("headers", f"headers are no map of strings: {error}") from error


# ----------------------------------------------------------------------------------------- slice


def slice_batch(batch: bytes, start: int, stop: int, topic_seed: int) -> bytes:
    """Return rows ``[start, stop)`` as a batch with the SLICE flag and a CRC of its own.

    Ids and born time stay; constant columns and the tag dictionary are taken over whole. All rows
    asked for: the batch itself, unchanged.

    Args:
        batch: A batch that ``verify`` accepted.
        start: First row.
        stop: Row after the last.
        topic_seed: What ``topic_seed`` returned for the topic's name.

    Raises:
        ValueError: The batch is compressed, or the rows are not a non-empty part of it.
    """
    whole = Batch(batch)
    if whole.compression:
        raise ValueError("a compressed batch can only be passed on whole")
    if not 0 <= start < stop <= whole.count:
        raise ValueError(f"rows {start} to {stop} of {whole.count}")
    if stop - start == whole.count:
        return batch
    part = _Columns(stop - start)
    flags = whole.flags
    constants = flags >> _CONSTANT & _CONSTANT_MASK
    for column in range(_BODIES + 1):
        if not flags >> column & 1:
            continue
        place = whole.start(column)
        width = _WIDTHS.get(column)
        if column == _TAG_DICTIONARY:
            (entries, _) = _U32_PAIR.unpack_from(batch, place)
            part.add(column, batch[place : _binary_end(batch, place + 8, entries)])
        elif constants >> column & 1:
            end = place + width if width else _binary_end(batch, place, 1)
            part.constant(column, batch[place:end])
        elif width:
            part.add(column, batch[place + width * start : place + width * stop])
        else:
            part.add(column, _slice_binary(batch, place, whole.count, start, stop))
    part.flags |= flags & _KEYED | _SLICE
    return part.batch(topic_seed, whole.producer_id, whole.first_sequence + start, whole.born_us)


def _binary_end(data: bytes, start: int, entries: int) -> int:
    (last,) = struct.unpack_from("<i", data, start + 4 * entries)
    end: int = start + 4 * (entries + 1) + last
    return end


def _slice_binary(data: bytes, place: int, count: int, start: int, stop: int) -> bytes:
    rows = stop - start
    base = place + 4 * (count + 1)
    offsets: bytes
    if rows >= NUMPY_FROM:
        old = np.frombuffer(data, "<i4", rows + 1, place + 4 * start)
        first, last = int(old[0]), int(old[-1])
        offsets = (old - old[0]).astype("<i4").tobytes()
    else:
        olds = struct.unpack_from(f"<{rows + 1}i", data, place + 4 * start)
        first, last = int(olds[0]), int(olds[-1])
        offsets = struct.pack(f"<{rows + 1}i", *[old - first for old in olds])
    return offsets + data[base + first : base + last]


# ---------------------------------------------------------------------------------------- verify


def verify(data: bytes, topic_seed: int) -> None:
    """Check that bytes are one whole, sound batch of a topic: the broker's front door.

    What passes can be read, sliced and stored without a further look, save two things that are the
    producer's word: that hashes are those of their texts, and that headers are msgpack. Compressed
    bodies are not inflated; their table is checked.

    Takes no memory beyond a copy of ``data``, whatever the lengths in it say.

    Raises:
        BatchError: It is not; ``reason`` says in one word why.
    """
    length = len(data)
    if length < _MIN_BYTES:
        raise BatchError("short", f"{length} bytes, at least {_MIN_BYTES} are needed")
    (magic, crc, stated, version, compression, column_count, flags, count, _, first, _) = (
        HEADER.unpack_from(data)
    )
    if magic != MAGIC or version != VERSION or stated != length or length & 7 or compression > 2:
        _refuse_header(data)
    if _crc32c_extend(topic_seed, data[8:]) != crc:
        raise BatchError("checksum", "damaged, or made for another topic")
    if not 1 <= count <= MAX_COUNT:
        raise BatchError("count", f"{count} rows, 1 to {MAX_COUNT} are allowed")
    if first + count > _U64_END:
        raise BatchError("sequence", "the sequences of the rows pass 2**64")
    if flags == _BODIES_ONLY and count == 1 and column_count == 1 and not compression:
        start, zero, offset, size = _SOLE_BODY.unpack_from(data, HEADER_BYTES)
        padding = length - _MIN_BYTES - size
        if start == _SOLE_COLUMN and not (zero or offset) and size >= 0 and 0 <= padding < 8:
            if padding and data[-padding:] != _ZEROS[padding]:
                raise BatchError("padding", "a column is not padded with zeros")
            return
    plan = _plan(flags)
    if count == 1 and plan.simple and not compression and _is_sound_row(data, plan, column_count):
        return
    if plan.column_count != column_count:
        raise BatchError("columns", f"{column_count} columns counted, flags name others")
    if plan.compressed != (compression != 0):
        raise BatchError("flags", "a block table goes with compressed bodies, and only with them")
    _check_columns(data, count, plan)


def _refuse_header(data: bytes) -> NoReturn:
    magic, _, stated, version, compression, *_ = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BatchError("magic", f"magic {magic:#x}")
    if version != VERSION:
        raise BatchError("version", f"version {version}; this reader knows version {VERSION}")
    if compression > max(Compression):
        raise BatchError("flags", f"unknown compression {compression}")
    raise BatchError("length", f"{stated} bytes stated, {len(data)} are there")


@dataclass(slots=True, frozen=True)
class _Plan:
    """What follows from sound flags: which columns there are, and how each is checked."""

    column_count: int
    starts: struct.Struct
    first: int
    columns: tuple[tuple[int, int, bool], ...]
    """(number, bytes an entry or 0 for binary, constant) of each column."""
    compressed: bool
    keyed: bool
    simple: bool
    """Keys, tag and body only: what ``_is_sound_row`` knows."""


@functools.lru_cache(maxsize=1024)  # flags come from outside: bounded, and few in practice
def _plan(flags: int) -> _Plan:
    _check_flags(flags)
    constants = flags >> _CONSTANT & _CONSTANT_MASK
    columns = tuple(
        (column, _WIDTHS.get(column, 0), bool(constants >> column & 1))
        for column in range(_BLOCK_TABLE + 1)
        if flags >> column & 1
    )
    padded = len(columns) + 1 & ~1
    return _Plan(
        column_count=len(columns),
        starts=struct.Struct(f"<{padded}I"),
        first=HEADER_BYTES + 4 * padded,
        columns=columns,
        compressed=bool(flags >> _BLOCK_TABLE & 1),
        keyed=bool(flags & _KEYED),
        simple=not flags & ~(0x3F | _BODIES_ONLY | _KEYED),
    )


_TOGETHER: Final = tuple(
    int(flags)
    for flags in (
        BatchFlag.KEY_HASH | BatchFlag.KEY,
        BatchFlag.ORDERING_HASH | BatchFlag.ORDERING_KEY,
        BatchFlag.TAG_CODES | BatchFlag.TAG_DICTIONARY,
        BatchFlag.APPLICATION_ID_HASH | BatchFlag.APPLICATION_ID | BatchFlag.BODY_HASH,
        BatchFlag.CONSTANT_KEY_HASH | BatchFlag.CONSTANT_KEY,
        BatchFlag.CONSTANT_ORDERING_HASH | BatchFlag.CONSTANT_ORDERING_KEY,
    )
)


def _check_flags(flags: int) -> None:
    if flags & ~_KNOWN_FLAGS:
        raise BatchError("flags", f"unknown flags {flags & ~_KNOWN_FLAGS:#x}")
    if not flags & _BODIES_ONLY:
        raise BatchError("flags", "no bodies")
    for columns in _TOGETHER:
        if flags & columns not in (0, columns):
            raise BatchError(
                "flags", f"of the flags {columns:#x} only {flags & columns:#x} are set"
            )
    if flags >> _CONSTANT & _CONSTANT_MASK & ~flags:
        raise BatchError("flags", "a constant column is not present")
    if flags & _KEYED and not flags >> _ORDERING_KEY & 1:
        raise BatchError("keyed", "keyed, but there are no ordering keys")
    if flags >> _BLOCK_TABLE & 1 and flags & (_SLICE | 1 << _DUE_US):
        raise BatchError("flags", "a slice, or a batch with due times, may not be compressed")


def _is_sound_row(data: bytes, plan: _Plan, column_count: int) -> bool:
    """Return whether a batch of one row with keys, tag and body is surely sound.

    Quicker than ``_check_columns``, which decides, and says why, where this returns False.
    """
    length = len(data)
    end = plan.first
    if plan.column_count != column_count or length < end:
        return False
    starts = plan.starts.unpack_from(data, HEADER_BYTES)
    if len(starts) > column_count and starts[-1]:
        return False
    for (column, width, _), start in zip(plan.columns, starts, strict=False):
        if start != end or start + 8 > length:
            return False
        if width:
            if column == _TAG_CODES and data[start : start + 8] != _CODE_ONE:
                return False
            end = start + 8
            continue
        if column == _TAG_DICTIONARY:
            if start + 20 > length:
                return False
            entries, zero, first, second, size = _ONE_OF_TWO.unpack_from(data, start)
            text = start + 20
            if entries != 2 or zero or first or second or size < 1:
                return False
        else:
            first, size = _I32_PAIR.unpack_from(data, start)
            text = start + 8
            if first or size < (column != _BODIES):
                return False
        stop = text + size
        end = stop + (-stop & 7)
        if end > length or data[stop:end] != _ZEROS[end - stop]:
            return False
        if column != _BODIES and not data[text:stop].isascii():
            return False
    return end == length


_CODE_ONE: Final = bytes([1, 0, 0, 0, 0, 0, 0, 0])


def _check_columns(data: bytes, count: int, plan: _Plan) -> None:
    length = len(data)
    end = plan.first
    if length < end:
        raise BatchError("columns", "the table of columns is cut short")
    starts = plan.starts.unpack_from(data, HEADER_BYTES)
    if len(starts) > plan.column_count and starts[-1]:
        raise BatchError("padding", "the table of columns is not padded with zeros")
    largest_code = 0
    for (column, width, constant), start in zip(plan.columns, starts, strict=False):
        if start != end:
            raise BatchError("columns", f"column {column} begins at {start}, not at {end}")
        if width:
            end = start + (width if constant else width * count)
            if end > length:
                raise BatchError("columns", f"column {column} passes the end of the batch")
            if column == _TAG_CODES:
                largest_code = _largest_u16(data, start, end)
            elif width == 8 and column in _TIMES and max(data[start + 7 : end : 8]) > 0x7F:
                raise BatchError("times", f"a time in column {column} is negative")
        elif column == _BODIES:
            if plan.compressed:
                _check_compressed(data, count, start, starts[plan.column_count - 1])
                return
            end = _check_binary(data, start, count, text=False, filled=False)
        elif column == _TAG_DICTIONARY:
            end = _check_dictionary(data, start, largest_code)
        else:
            filled = plan.keyed and column == _ORDERING_KEY
            entries = 1 if constant else count
            end = _check_binary(data, start, entries, text=column != _HEADERS, filled=filled)
            if column == _APPLICATION_ID:
                _check_application_ids(data, start, count)
        end = _check_padding(data, end)
    if end != length:
        raise BatchError("columns", f"the columns end at {end}, the batch at {length}")


_TIMES: Final = (_DUE_US, _EXPIRY_US)


def _check_padding(data: bytes, end: int) -> int:
    """Return where the next column begins."""
    padding = -end & 7
    if padding and data[end : end + padding] != _ZEROS[padding]:
        raise BatchError("padding", f"the column that ends at {end} is not padded with zeros")
    return end + padding


def _check_binary(data: bytes, start: int, entries: int, *, text: bool, filled: bool) -> int:
    """Return where the content ends. ``filled``: no entry may be empty."""
    base = start + 4 * (entries + 1)
    end = base + _check_offsets(data, start, entries, filled=filled)
    if end > len(data):
        raise BatchError("offsets", f"the offsets at {start} pass the end of the batch")
    if text:
        content = data[base:end]
        if not content.isascii():
            _check_text(content, struct.unpack_from(f"<{entries + 1}i", data, start))
    return end


def _check_offsets(data: bytes, start: int, entries: int, *, filled: bool) -> int:
    """Return the last offset."""
    if start + 4 * (entries + 1) > len(data):
        raise BatchError("columns", f"the offsets at {start} are cut short")
    if entries == 1:
        first, last = _I32_PAIR.unpack_from(data, start)
        ascending = first <= last
        empty = first == last
    elif entries < NUMPY_FROM:
        offsets = struct.unpack_from(f"<{entries + 1}i", data, start)
        first, last = offsets[0], offsets[-1]
        ascending = list(offsets) == sorted(offsets)
        empty = filled and len(set(offsets)) <= entries
    else:
        numbers = np.frombuffer(data, "<i4", entries + 1, start)
        first, last = int(numbers[0]), int(numbers[-1])
        ascending = not (numbers[1:] < numbers[:-1]).any()
        empty = filled and bool((numbers[1:] == numbers[:-1]).any())
    if first or not ascending:
        raise BatchError("offsets", f"the offsets at {start} do not ascend from 0")
    if filled and empty:
        raise BatchError("keyed", "keyed, but a row has no ordering key")
    return int(last)


def _check_text(content: bytes, offsets: tuple[int, ...]) -> None:
    try:
        _decode(content, offsets)
    except UnicodeDecodeError as error:
        raise BatchError("text", f"a text is not UTF-8: {error}") from error


def _check_dictionary(data: bytes, start: int, largest_code: int) -> int:
    if start + 16 > len(data):
        raise BatchError("columns", "the tag dictionary is cut short")
    entries, zero = _U32_PAIR.unpack_from(data, start)
    if zero or not largest_code < entries <= 2**16:
        raise BatchError("tags", f"{entries} tags, and a row has tag {largest_code}")
    end = _check_binary(data, start + 8, entries, text=True, filled=False)
    offsets = struct.unpack_from(f"<{entries + 1}i", data, start + 8)
    if offsets[1]:
        raise BatchError("tags", "the first entry of the tag dictionary is not empty")
    base = start + 8 + 4 * (entries + 1)
    tags = {data[base + a : base + b] for a, b in itertools.pairwise(offsets)}
    if len(tags) != entries:
        raise BatchError("tags", "two entries of the tag dictionary are alike")
    return end


def _check_application_ids(data: bytes, start: int, count: int) -> None:
    offsets = struct.unpack_from(f"<{count + 1}i", data, start)
    longest = max(b - a for a, b in itertools.pairwise(offsets))
    if longest > MAX_APPLICATION_ID_BYTES:
        raise BatchError("application_id", f"{longest} bytes, at most {MAX_APPLICATION_ID_BYTES}")


def _check_compressed(data: bytes, count: int, start: int, table_start: int) -> None:
    """Check bodies, blocks and block table: the last two columns."""
    last = _check_offsets(data, start, count, filled=False)
    blocks_start = start + 4 * (count + 1)
    try:
        table = compress.read_table(data, table_start, last)
    except CompressionError as error:
        raise BatchError("blocks", str(error)) from error
    end = _check_padding(data, blocks_start + sum(stored for stored, _ in table))
    if end != table_start:
        raise BatchError("columns", f"the blocks end at {end}, their table is at {table_start}")
    if table_start + compress.table_bytes(last) != len(data):
        raise BatchError("columns", "the block table does not end with the batch")


def _largest_u16(data: bytes, start: int, end: int) -> int:
    count = (end - start) // 2
    if count >= NUMPY_FROM:
        return int(np.frombuffer(data, "<u2", count, start).max())
    return int(max(struct.unpack_from(f"<{count}H", data, start)))
