"""The columns of a batch that is being made."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from google_crc32c import extend as _crc32c_extend

from ternmq.record.batch import compress
from ternmq.record.batch.binary import pack_binary, pack_dictionary, pack_offsets, pack_one
from ternmq.record.batch.compress import Compression
from ternmq.record.batch.hashes import (
    application_id_hash_column,
    body_hash_column,
    key_hash,
    key_hash_column,
)
from ternmq.record.batch.layout import (
    APPLICATION_ID,
    APPLICATION_ID_HASH,
    BLOCK_TABLE,
    BODIES,
    BODY_HASH,
    CONSTANT,
    DUE_US,
    HEADER_BYTES,
    HEADERS,
    KEYED,
    MAGIC,
    MAX_APPLICATION_ID_BYTES,
    MAX_COUNT,
    PREFIX,
    REST,
    SEQUENCE_END,
    TAG_CODES,
    TAG_DICTIONARY,
    U16,
    U64,
    VERSION,
    ZEROS,
    Column,
)

_pack_headers: Final = msgspec.msgpack.Encoder().encode


class Columns:
    """The columns of a batch being made; they must be added in the order of their numbers.

    Args:
        count: Number of rows.

    Attributes:
        count: Number of rows.
        flags: The header's flags of the columns added: present, constant.
        parts: The columns' bytes, not padded.

    Raises:
        ValueError: No rows or too many. Every method raises it for values that a batch cannot hold.
    """

    __slots__ = ("count", "flags", "parts")

    def __init__(self, count: int) -> None:
        if not 1 <= count <= MAX_COUNT:
            raise ValueError(f"a batch has 1 to {MAX_COUNT} rows, not {count}")
        self.count = count
        self.flags = 0
        self.parts: list[bytes] = []

    def add(self, column: int, content: bytes) -> None:
        """Add a column that has an entry for every row."""
        self.flags |= 1 << column
        self.parts.append(content)

    def constant(self, column: int, content: bytes) -> None:
        """Add a column with one entry for all rows."""
        # With one row it saves nothing: the bit stays 0, so that equal rows give equal bytes.
        self.flags |= (1 if self.count == 1 else 1 | 1 << CONSTANT) << column
        self.parts.append(content)

    def same(self, values: Sequence[object]) -> bool:
        """Return whether a column of these values should be constant."""
        return self.count > 1 and values.count(values[0]) == self.count

    def keys(self, hash_column: int, keys: Sequence[str]) -> None:
        """Add a column of hashes and a column of their keys; nothing if all keys are empty."""
        if not any(keys):
            return
        if self.same(keys):
            key = keys[0].encode()
            self.constant(hash_column, U64.pack(key_hash(key)))
            self.constant(hash_column + 1, pack_one(key))
        else:
            encoded = [key.encode() for key in keys]
            self.add(hash_column, key_hash_column(encoded))
            self.add(hash_column + 1, pack_binary(encoded))

    def tags(self, tags: Sequence[str]) -> None:
        """Add codes and dictionary of the tags; nothing if all are empty."""
        if not any(tags):
            return
        entries: dict[str, int] = {"": 0}
        if self.same(tags):
            entries[tags[0]] = 1
            self.constant(TAG_CODES, U16.pack(1))
        else:
            codes = [entries.setdefault(tag, len(entries)) for tag in tags]
            if len(entries) > 2**16:
                raise ValueError(f"{len(entries) - 1} different tags, at most 65535 fit a batch")
            self.add(TAG_CODES, struct.pack(f"<{self.count}H", *codes))
        self.add(TAG_DICTIONARY, pack_dictionary([tag.encode() for tag in entries]))

    def headers(self, headers: Sequence[Mapping[str, str]]) -> None:
        """Add the headers; nothing if all are empty."""
        if not any(headers):
            return
        # Compared as bytes: two maps in different order are equal, but not the same for a reader.
        self.binary(HEADERS, [_pack_headers(one) if one else b"" for one in headers])

    def texts(self, column: int, texts: Sequence[str]) -> None:
        """Add a column of texts; nothing if all are empty."""
        if any(texts):
            self.binary(column, [text.encode() for text in texts])

    def binary(self, column: int, values: Sequence[bytes]) -> None:
        """Add a column of bytes, constant if they are all the same."""
        if self.same(values):
            self.constant(column, pack_one(values[0]))
        else:
            self.add(column, pack_binary(values))

    def numbers(self, column: int, code: str, numbers: Sequence[int]) -> None:
        """Add a column of numbers with this ``struct`` code; nothing if all are 0."""
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
        """Add the ids, their hashes and the body hashes; nothing if all ids are empty."""
        if not any(texts):
            return
        ids = [text.encode() for text in texts]
        longest = max(map(len, ids))
        if longest > MAX_APPLICATION_ID_BYTES:
            raise ValueError(f"an application id has {longest} bytes, at most 128 are allowed")
        self.add(APPLICATION_ID_HASH, application_id_hash_column(ids))
        self.add(APPLICATION_ID, pack_binary(ids))
        self.add(BODY_HASH, body_hash_column(bodies))

    def bodies(self, bodies: Sequence[bytes], compression: Compression) -> Compression:
        """Add bodies and block table; return how they were stored."""
        if compression is not Compression.NONE:
            if self.flags >> DUE_US & 1:
                raise ValueError("a batch with due times may not be compressed")
            joined = b"".join(bodies)
            blocks, table = compress.compress_blocks(joined, compression)
            if len(blocks) + len(table) < len(joined):
                self.add(BODIES, pack_offsets(bodies) + blocks)
                self.add(BLOCK_TABLE, table)
                return compression
        self.add(BODIES, pack_binary(bodies))
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
        """Return the batch of the columns added."""
        column_count = len(self.parts)
        place = HEADER_BYTES + (4 * column_count + 7 & ~7)
        starts: list[int] = []
        pieces: list[bytes] = [b"", b""]
        for part in self.parts:
            starts.append(place)
            padding = -len(part) & 7
            pieces += (part, ZEROS[padding])
            place += len(part) + padding
        if first_sequence + self.count > SEQUENCE_END:
            raise ValueError("the sequences of the rows pass 2**64")
        if column_count & 1:
            starts.append(0)
        flags = self.flags | KEYED if keyed else self.flags
        try:
            pieces[0] = REST.pack(
                place, VERSION, compression, column_count, flags, self.count,
                producer_id, first_sequence, born_us,
            )  # fmt: skip
            pieces[1] = struct.pack(f"<{len(starts)}I", *starts)
        except struct.error as error:
            raise ValueError(f"a number is out of its range: {error}") from error
        rest = b"".join(pieces)
        return PREFIX.pack(MAGIC, _crc32c_extend(topic_seed, rest)) + rest
