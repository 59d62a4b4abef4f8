"""The format of deduplication entries in STATE: runs of up to 1500, as compressed columns.

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

Entries are in the order of the journal. In columns, an entry of a busy producer takes some 5 bytes,
mostly its CRC. The CRCs are apart, because noise among the columns keeps the compressor from
noticing how similar the other values are. As a row, an entry took 40 bytes, a sixth of the journal
bytes of a small message.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import zstandard

from ternmq.model.errors import CorruptJournal
from ternmq.record.fact.state import DEDUP_HEAD, DEDUP_ID

ENTRY: Final = struct.Struct("<QQQIIQ")
"""An entry in memory: producer, first sequence, position, crc, rows, time."""
ENTRY_WORDS: Final = 5
RUN_ENTRIES: Final = 1500
RUN_BYTES: Final = RUN_ENTRIES * ENTRY.size
"""Size of a full run in memory; even if it cannot be compressed, it stays below 64 KiB."""
RUN_IDS: Final = 1300
PRODUCER, FIRST, POSITION, META, TIME = range(ENTRY_WORDS)
_TIMES: Final = 3
"""Number of the column of times in a frame; in memory, META comes before it."""
_DIFFERENCES: Final = (FIRST, POSITION, TIME)
_LEVEL: Final = 3  # of columns that hardly change, level 1 makes 2 bytes an entry, level 3 none
_COLUMNS_BYTES: Final = 36
"""Size of an entry in the columns, without its CRC."""

_U64: Final = 2**64 - 1


class Row(NamedTuple):
    """An entry."""

    producer: int
    first: int
    """First sequence."""
    position: int
    meta: int
    """``rows << 32 | crc``."""
    time_us: int


class Content(NamedTuple):
    """The content of a run; its entries are still columns, since there may be many."""

    entries: int
    columns: bytes
    crcs: bytes
    ids: list[tuple[int, ...]]
    """As ``DEDUP_ID`` unpacks them."""

    def words(self, column: int) -> memoryview:
        """Return a column of u64 by its number in the frame; differences are not summed up."""
        at = 8 * self.entries * column
        return memoryview(self.columns)[at : at + 8 * self.entries].cast("Q")

    def last(self) -> int:
        """Return the position of the newest entry."""
        return sum(self.words(POSITION)) & _U64 if self.entries else int(self.ids[-1][3])


def encode(entries: bytes, ids: Sequence[bytes]) -> bytes:
    """Return a run of ``entries`` packed with ``ENTRY`` and ``ids`` packed with ``DEDUP_ID``."""
    import numpy as np  # late; a broker that received batches to encode has imported it already

    table = np.frombuffer(entries, dtype="<u8").reshape(-1, ENTRY_WORDS)
    count = len(table)
    frame = crcs = b""
    if count:
        columns = [table[:, PRODUCER].tobytes()]
        for word in _DIFFERENCES:
            column = table[:, word].copy()
            column[1:] -= table[:-1, word]
            columns.append(column.tobytes())
        meta = np.ascontiguousarray(table[:, META])
        columns.append((meta >> np.uint64(32)).astype("<u4").tobytes())
        crcs = meta.astype("<u4").tobytes()
        frame = zstandard.ZstdCompressor(level=_LEVEL).compress(b"".join(columns))
    head = DEDUP_HEAD.pack(count, len(ids), len(frame), 0)
    return b"".join([head, crcs, bytes(-len(crcs) % 8), frame, bytes(-len(frame) % 8), *ids])


def decode(payload: bytes) -> Content:
    """Return the content of a run.

    Raises:
        CorruptJournal: The frame does not fit the head.
    """
    count, ids, length, _ = DEDUP_HEAD.unpack_from(payload)
    crcs = payload[DEDUP_HEAD.size : DEDUP_HEAD.size + 4 * count]
    at = DEDUP_HEAD.size + 4 * count + -4 * count % 8
    columns = b""
    if count:
        size = count * _COLUMNS_BYTES
        try:
            columns = zstandard.ZstdDecompressor().decompress(
                payload[at : at + length], max_output_size=size
            )
        except zstandard.ZstdError as error:
            raise CorruptJournal("a run of deduplication entries cannot be inflated") from error
        if len(columns) != size:
            raise CorruptJournal("a run of deduplication entries does not have its stated length")
    at += length + -length % 8
    packed = payload[at : at + DEDUP_ID.size * ids]
    return Content(count, columns, crcs, list(DEDUP_ID.iter_unpack(packed)))


def rows_of(runs: Iterable[Content], horizon: int) -> list[Row]:
    """Return the entries from the horizon on, in the order of the journal; some 1 us each.

    ``table.table_of`` does the same for many.
    """
    found: list[Row] = []
    for run in sorted([run for run in runs if run.entries], key=lambda run: run.words(POSITION)[0]):
        firsts, positions, times = [
            [number & _U64 for number in accumulate(run.words(column))]
            for column in (FIRST, POSITION, _TIMES)
        ]
        counts = memoryview(run.columns)[32 * run.entries :].cast("I")
        metas = [
            count << 32 | crc
            for count, crc in zip(counts, memoryview(run.crcs).cast("I"), strict=True)
        ]
        found += map(Row, run.words(PRODUCER), firsts, positions, metas, times)
    found.sort(key=lambda row: row.position)
    at = bisect_left(found, horizon, key=lambda row: row.position)
    return found[at:]
