"""Writing a run file: columns to the bytes that ``idx_file`` describes. Worker threads only."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google_crc32c import value as crc32c

from ternmq.journal.index import bloom, bloom_build
from ternmq.journal.index.columns import Columns
from ternmq.journal.index.idx_file import (
    BATCHES,
    BATCHES_PER_BLOCK,
    BLOOM,
    BLOOMS,
    BODIES,
    DECISIONS,
    FENCES,
    HEAD,
    IDS,
    KEYS,
    LINES,
    MAGIC,
    MASKS,
    MOVED,
    MOVED_IDS,
    NO_HINT,
    PRODUCERS,
    QUEUES,
    RESOLVED,
    ROW_BYTES,
    SECTION,
    SUMS,
    VERSION,
    StateHint,
)
from ternmq.model.types import Position

_BLOCK_BYTES: Final = 16 * BATCHES_PER_BLOCK
_PIECE_BYTES: Final = 1 << 20


def _filters(columns: Columns) -> tuple[bytes, bytes]:
    """Return the contents of BLOOM and BLOOMS."""
    producers = np.unique(
        np.concatenate([columns.producers["producer"], columns.moved_ids["producer"]])
    )
    filters = [
        bloom_build.build(bloom_build.entries(np.zeros(len(producers), np.uint32), producers)),
        bloom_build.build(bloom_build.entries(columns.keys["topic"], columns.keys["hash"])),
        bloom_build.build(bloom_build.entries(columns.ids["topic"], columns.ids["low"])),
    ]
    return b"".join(filters), LINES.pack(*[len(one) // bloom.LINE_BYTES for one in filters])


def encode(
    columns: Columns,
    *,
    base: Position,
    start: Position,
    stop: Position,
    chain_crc: int,
    hint: StateHint = NO_HINT,
) -> Iterator[bytes]:
    """Yield the bytes of a run file in pieces of at most a megabyte. For worker threads.

    A section is never copied at once: tens of megabytes would delay the other threads.
    """
    lines, line_counts = _filters(columns)
    contents = {
        QUEUES: _bytes_of(columns.queues),
        BATCHES: _bytes_of(columns.batches),
        MASKS: _bytes_of(columns.masks),
        FENCES: _bytes_of(columns.batches["first_offset"][::BATCHES_PER_BLOCK]),
        PRODUCERS: _bytes_of(columns.producers),
        KEYS: _bytes_of(columns.keys),
        IDS: _bytes_of(columns.ids),
        MOVED: _bytes_of(columns.moved),
        MOVED_IDS: _bytes_of(columns.moved_ids),
        BLOOM: np.frombuffer(lines, np.uint8),
        BLOOMS: np.frombuffer(line_counts, np.uint8),
        BODIES: _bytes_of(columns.bodies),
        RESOLVED: _bytes_of(columns.resolved),
        SUMS: _bytes_of(_sums(columns.batches["length"])),
        DECISIONS: _bytes_of(columns.decisions),
    }
    crcs: list[int] = []
    table: list[tuple[int, int, int, int, int]] = []  # id, row bytes, length, block bytes, block
    for number, data in contents.items():
        row_bytes = ROW_BYTES[number]
        # MASKS and BODIES are cut into blocks like BATCHES, so that one block number fits all.
        beside = number in {MASKS, BODIES}
        rows = BATCHES_PER_BLOCK if beside else _BLOCK_BYTES // row_bytes
        step = rows * row_bytes
        table.append((number, row_bytes, len(data), step, len(crcs)))
        crcs += [crc32c(data[at : at + step].tobytes()) for at in range(0, len(data), step)]
    unpadded = HEAD.size + len(table) * SECTION.size + 4 * len(crcs)
    length = unpadded + -unpadded % 8
    at = length
    entries: list[bytes] = []
    for number, row_bytes, size, step, block in table:
        entries.append(SECTION.pack(number, row_bytes, at, size, step, block))
        at += size + -size % 8
    decided = columns.decisions["transaction"]
    head = b"".join(
        [
            HEAD.pack(
                0,
                MAGIC,
                VERSION,
                len(table),
                length,
                base,
                start,
                stop,
                chain_crc,
                len(crcs),
                hint.begin,
                hint.end,
                columns.first_time_us,
                columns.last_time_us,
                at,
                int(decided[0]) if len(decided) else 0,
                int(decided[-1]) if len(decided) else 0,
            ),
            *entries,
            struct.pack(f"<{len(crcs)}I", *crcs),
            bytes(length - unpadded),
        ]
    )[4:]
    yield struct.pack("<I", crc32c(head)) + head
    for data in contents.values():
        for at in range(0, len(data), _PIECE_BYTES):
            piece = data[at : at + _PIECE_BYTES].tobytes()
            yield piece + bytes(-len(piece) % 8)


def _sums(lengths: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return the bytes before each block of batches, and of all batches."""
    starts = np.arange(0, len(lengths), BATCHES_PER_BLOCK)
    blocks = np.add.reduceat(lengths.astype(np.uint64), starts) if len(starts) else starts
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(blocks, dtype=np.uint64)])


def _bytes_of(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(rows).view(np.uint8)
