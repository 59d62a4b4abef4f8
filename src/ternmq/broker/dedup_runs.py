"""How deduplication entries lie in STATE: runs of some hundred, as compressed columns.

Ruler of a run (the same text is in ``docs/format/state.md``)::

     0  u32 entries
     4  u32 ids
     8  u32 length    of the frame that follows
    12  u32 0
    16      entries x u32 crc32c of the batch, zero padded to 8
     .      one zstd frame, zero padded to 8, of columns that are each ``entries`` long:
              u64 producer
              u64 first sequence   from the second on: the difference to the entry before
              u64 position         likewise
              u64 time_us          likewise
              u32 rows
     .      ids x (u64 low, u64 high, u64 body hash, u64 position, u64 time_us, u32 topic, u32 row)

Entries stand in the order of the journal. In columns a busy producer's come to some 5 bytes each,
mostly its CRCs (which stand apart: noise among the columns keeps the compressor from seeing how
much alike the rest is); as rows they were 40, a sixth of the journal bytes of a small message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import zstandard

from ternmq.model.errors import CorruptJournal

ENTRY: Final = struct.Struct("<QQQIIQ")
"""In memory: producer, first sequence, position, crc, rows, time."""
ENTRY_WORDS: Final = 5
RUN_ENTRIES: Final = 1500
RUN_BYTES: Final = RUN_ENTRIES * ENTRY.size
"""Even if nothing shrinks, a run stays below 64 KiB."""
ID_ENTRY: Final = struct.Struct("<QQQQQII")
"""low, high, body hash, position, time; topic, row."""
RUN_IDS: Final = 1300
_HEAD: Final = struct.Struct("<IIII")
_PRODUCER, FIRST, POSITION, META, TIME = range(ENTRY_WORDS)
_DIFFERENCES: Final = (FIRST, POSITION, TIME)
_LEVEL: Final = 3  # level 1 makes 2 bytes an entry of columns that hardly change, level 3 none
_COLUMNS_BYTES: Final = 36
"""Of an entry, without its CRC."""

Table: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.uint64]]"
"""Entries as rows of u64: producer, first sequence, position, rows << 32 | crc, time."""


def table_of(entries: bytes) -> Table:
    """Return packed entries as a table."""
    return np.frombuffer(entries, dtype="<u8").reshape(-1, ENTRY_WORDS)


def encode(entries: bytes, ids: Sequence[bytes]) -> bytes:
    """Return a run; ``entries`` as packed by ``ENTRY``, ``ids`` each by ``ID_ENTRY``."""
    table = table_of(entries)
    count = len(table)
    frame = crcs = b""
    if count:
        columns = [table[:, _PRODUCER].tobytes()]
        for word in _DIFFERENCES:
            column = table[:, word].copy()
            column[1:] -= table[:-1, word]
            columns.append(column.tobytes())
        meta = np.ascontiguousarray(table[:, META])
        columns.append((meta >> np.uint64(32)).astype("<u4").tobytes())
        crcs = meta.astype("<u4").tobytes()
        frame = zstandard.ZstdCompressor(level=_LEVEL).compress(b"".join(columns))
    head = _HEAD.pack(count, len(ids), len(frame), 0)
    return b"".join([head, crcs, bytes(-len(crcs) % 8), frame, bytes(-len(frame) % 8), *ids])


def decode(payload: bytes) -> tuple[Table, list[tuple[int, ...]]]:
    """Return (entries as a table, application ids as ``ID_ENTRY`` unpacks them) of a run.

    Raises:
        CorruptJournal: The frame does not hold what the head says.
    """
    count, ids, length, _ = _HEAD.unpack_from(payload)
    at = _HEAD.size + 4 * count + -4 * count % 8
    table = np.zeros((count, ENTRY_WORDS), dtype=np.uint64)
    if count:
        size = count * _COLUMNS_BYTES
        try:
            columns = zstandard.ZstdDecompressor().decompress(
                payload[at : at + length], max_output_size=size
            )
        except zstandard.ZstdError as error:
            raise CorruptJournal("a run of deduplication entries cannot be inflated") from error
        if len(columns) != size:
            raise CorruptJournal("a run of deduplication entries is not as long as it says")
        long = np.frombuffer(columns, dtype="<u8", count=4 * count).reshape(4, count)
        table[:, _PRODUCER] = long[0]
        for row, word in enumerate(_DIFFERENCES, 1):
            table[:, word] = np.cumsum(long[row], dtype=np.uint64)
        rows = np.frombuffer(columns, dtype="<u4", offset=32 * count).astype(np.uint64)
        crcs = np.frombuffer(payload, dtype="<u4", count=count, offset=_HEAD.size)
        table[:, META] = rows << np.uint64(32) | crcs
    at += length + -length % 8
    return table, list(ID_ENTRY.iter_unpack(payload[at : at + ID_ENTRY.size * ids]))
