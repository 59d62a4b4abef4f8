"""Checking batches: every batch that comes from outside goes through ``verify``."""

from __future__ import annotations

import functools
import itertools
import operator
import struct
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend as _crc32c_extend

from ternmq.record.batch import compress
from ternmq.record.batch.binary import decode_texts
from ternmq.record.batch.compress import CompressionError
from ternmq.record.batch.layout import (
    APPLICATION_ID,
    BLOCK_TABLE,
    BODIES,
    BODIES_ONLY,
    CONSTANT,
    CONSTANT_MASK,
    DUE_US,
    EXPIRY_US,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    I32_PAIR,
    KEYED,
    MAGIC,
    MAX_APPLICATION_ID_BYTES,
    MAX_COUNT,
    MIN_BYTES,
    NUMPY_FROM,
    ORDERING_KEY,
    SEQUENCE_END,
    SLICE,
    SOLE_COLUMN,
    TAG_CODES,
    TAG_DICTIONARY,
    U32_PAIR,
    VERSION,
    WIDTHS,
    ZEROS,
    BatchError,
    BatchFlag,
    refuse_header,
)

_KNOWN_FLAGS: Final = int(functools.reduce(operator.or_, BatchFlag))
_ONE_OF_TWO: Final = struct.Struct("<IIiii")  # a dictionary of "" and one tag, up to the tag
_SOLE_BODY: Final = struct.Struct(
    "<IIii"
)  # the table of one column (start, padding), and the two offsets of one body


def verify(data: bytes, topic_seed: int) -> None:
    """Check that bytes are one whole, sound batch of a topic; the broker calls it for each batch.

    An accepted batch can be read, sliced and stored without another check. Two things are not
    checked, but trusted from the producer: that hashes are those of their texts, and that headers
    are msgpack. Compressed bodies are not inflated; their table is checked.

    Takes no memory beyond a copy of ``data``, whatever lengths it states.

    Raises:
        BatchError: It is not a sound batch; ``reason`` is one word for why.
    """
    length = len(data)
    if length < MIN_BYTES:
        raise BatchError("short", f"{length} bytes, at least {MIN_BYTES} are needed")
    (magic, crc, stated, version, compression, column_count, flags, count, _, first, _) = (
        HEADER.unpack_from(data)
    )
    if magic != MAGIC or version != VERSION or stated != length or length & 7 or compression > 2:
        refuse_header(data)
    if _crc32c_extend(topic_seed, data[8:]) != crc:
        raise BatchError("checksum", "damaged, or made for another topic")
    if not 1 <= count <= MAX_COUNT:
        raise BatchError("count", f"{count} rows, 1 to {MAX_COUNT} are allowed")
    if first + count > SEQUENCE_END:
        raise BatchError("sequence", "the sequences of the rows pass 2**64")
    if flags == BODIES_ONLY and count == 1 and column_count == 1 and not compression:
        start, zero, offset, size = _SOLE_BODY.unpack_from(data, HEADER_BYTES)
        padding = length - MIN_BYTES - size
        if start == SOLE_COLUMN and not (zero or offset) and size >= 0 and 0 <= padding < 8:
            if padding and data[-padding:] != ZEROS[padding]:
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


@dataclass(slots=True, frozen=True)
class _Plan:
    """The columns that sound flags name, and how each is checked."""

    column_count: int
    starts: struct.Struct
    first: int
    columns: tuple[tuple[int, int, bool], ...]
    """(number, bytes of an entry or 0 for binary, constant) of each column."""
    compressed: bool
    keyed: bool
    simple: bool
    """Only keys, tag and body, which ``_is_sound_row`` can check."""


@functools.lru_cache(maxsize=1024)  # flags come from outside: so bounded; few occur in practice
def _plan(flags: int) -> _Plan:
    _check_flags(flags)
    constants = flags >> CONSTANT & CONSTANT_MASK
    columns = tuple(
        (column, WIDTHS.get(column, 0), bool(constants >> column & 1))
        for column in range(BLOCK_TABLE + 1)
        if flags >> column & 1
    )
    padded = len(columns) + 1 & ~1
    return _Plan(
        column_count=len(columns),
        starts=struct.Struct(f"<{padded}I"),
        first=HEADER_BYTES + 4 * padded,
        columns=columns,
        compressed=bool(flags >> BLOCK_TABLE & 1),
        keyed=bool(flags & KEYED),
        simple=not flags & ~(0x3F | BODIES_ONLY | KEYED),
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
    if not flags & BODIES_ONLY:
        raise BatchError("flags", "no bodies")
    for columns in _TOGETHER:
        if flags & columns not in (0, columns):
            raise BatchError(
                "flags", f"of the flags {columns:#x} only {flags & columns:#x} are set"
            )
    if flags >> CONSTANT & CONSTANT_MASK & ~flags:
        raise BatchError("flags", "a constant column is not present")
    if flags & KEYED and not flags >> ORDERING_KEY & 1:
        raise BatchError("keyed", "keyed, but there are no ordering keys")
    if flags >> BLOCK_TABLE & 1 and flags & (SLICE | 1 << DUE_US):
        raise BatchError("flags", "a slice, or a batch with due times, may not be compressed")


def _is_sound_row(data: bytes, plan: _Plan, column_count: int) -> bool:
    """Return whether a batch of one row with keys, tag and body is certainly sound.

    Faster than ``_check_columns``, which decides and gives the reason if this returns False.
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
            if column == TAG_CODES and data[start : start + 8] != _CODE_ONE:
                return False
            end = start + 8
            continue
        if column == TAG_DICTIONARY:
            if start + 20 > length:
                return False
            entries, zero, first, second, size = _ONE_OF_TWO.unpack_from(data, start)
            text = start + 20
            if entries != 2 or zero or first or second or size < 1:
                return False
        else:
            first, size = I32_PAIR.unpack_from(data, start)
            text = start + 8
            if first or size < (column != BODIES):
                return False
        stop = text + size
        end = stop + (-stop & 7)
        if end > length or data[stop:end] != ZEROS[end - stop]:
            return False
        if column != BODIES and not data[text:stop].isascii():
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
            if column == TAG_CODES:
                largest_code = _largest_u16(data, start, end)
            elif width == 8 and column in _TIMES and max(data[start + 7 : end : 8]) > 0x7F:
                raise BatchError("times", f"a time in column {column} is negative")
        elif column == BODIES:
            if plan.compressed:
                _check_compressed(data, count, start, starts[plan.column_count - 1])
                return
            end = _check_binary(data, start, count, text=False, filled=False)
        elif column == TAG_DICTIONARY:
            end = _check_dictionary(data, start, largest_code)
        else:
            filled = plan.keyed and column == ORDERING_KEY
            entries = 1 if constant else count
            end = _check_binary(data, start, entries, text=column != HEADERS, filled=filled)
            if column == APPLICATION_ID:
                _check_application_ids(data, start, count)
        end = _check_padding(data, end)
    if end != length:
        raise BatchError("columns", f"the columns end at {end}, the batch at {length}")


_TIMES: Final = (DUE_US, EXPIRY_US)


def _check_padding(data: bytes, end: int) -> int:
    """Check the padding of a column that ends at ``end``; return where the next one begins."""
    padding = -end & 7
    if padding and data[end : end + padding] != ZEROS[padding]:
        raise BatchError("padding", f"the column that ends at {end} is not padded with zeros")
    return end + padding


def _check_binary(data: bytes, start: int, entries: int, *, text: bool, filled: bool) -> int:
    """Check a binary column; return where its content ends. ``filled``: no entry may be empty."""
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
    """Check the offsets of a binary column; return the last one."""
    if start + 4 * (entries + 1) > len(data):
        raise BatchError("columns", f"the offsets at {start} are cut short")
    if entries == 1:
        first, last = I32_PAIR.unpack_from(data, start)
        ascending = first <= last
        empty = first == last
    elif entries < NUMPY_FROM:
        offsets = struct.unpack_from(f"<{entries + 1}i", data, start)
        first, last = offsets[0], offsets[-1]
        ascending = list(offsets) == sorted(offsets)
        empty = filled and len(set(offsets)) <= entries
    else:
        import numpy as np  # imported here: see NUMPY_FROM

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
        decode_texts(content, offsets)
    except UnicodeDecodeError as error:
        raise BatchError("text", f"a text is not UTF-8: {error}") from error


def _check_dictionary(data: bytes, start: int, largest_code: int) -> int:
    if start + 16 > len(data):
        raise BatchError("columns", "the tag dictionary is cut short")
    entries, zero = U32_PAIR.unpack_from(data, start)
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
        import numpy as np  # imported here: see NUMPY_FROM

        return int(np.frombuffer(data, "<u2", count, start).max())
    return int(max(struct.unpack_from(f"<{count}H", data, start)))
