"""The rows to take from pages of records: pieces of neighbouring rows of one batch, as columns.

The starts of records are found one after the other; everything else is read for all records at
once, from numpy views of the pages. Records are multiples of 8 bytes, so views of u16, u32 and i64
fit. Only batches of which rows were left out (their records have runs) are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ternmq.model.errors import ProtocolError
from ternmq.record.fact import messages
from ternmq.record.fact.header import FLAG_MADE, HEADER_BYTES, MAGIC, Kind
from ternmq.record.fact.messages import PREFIX_BYTES

I64 = npt.NDArray[np.int64]

_MESSAGES: Final = int(Kind.MESSAGES)
_BATCH_AT: Final = HEADER_BYTES + PREFIX_BYTES


class Pieces(NamedTuple):
    """Columns with an entry per piece: rows ``[row, row + rows)`` of a batch, all to be taken."""

    at: I64
    """Byte of the pages at which the batch begins."""
    flags: I64
    batch_rows: I64
    row: I64
    rows: I64
    offset: I64
    """Offset of the piece's first row."""
    queue: I64
    stored_us: I64
    position: I64
    producer: I64
    """The bits of the u64."""
    sequence: I64
    """Sequence of the piece's first row: the bits of the u64."""
    born_us: I64
    compressed: I64
    """0: the bodies are not compressed."""
    made: I64
    """Not 0: the record was sent without bodies."""


def starts_of(records: bytes) -> list[int]:
    """Return where the records of a page begin.

    Raises:
        ProtocolError: The records do not fill the page.
    """
    end = len(records)
    if end & 7:
        raise ProtocolError(f"a page of {end} bytes: records are multiples of 8")
    lengths = memoryview(records).cast("I")
    starts: list[int] = []
    at = 0
    while at < end:
        if end - at < HEADER_BYTES:
            raise ProtocolError(f"a record is cut short at byte {at}")
        length = lengths[(at >> 2) + 2]
        if length < HEADER_BYTES or length & 7:
            raise ProtocolError(f"no record at byte {at}")
        starts.append(at)
        at += length
    if at != end:
        raise ProtocolError(f"a record is cut short at byte {starts[-1]}")
    return starts


def extent(records: bytes, starts: Sequence[int]) -> tuple[int, bool]:
    """Return the number of rows of a page, also of those that are not to be taken.

    Args:
        records: The page.
        starts: Where its records begin.

    Returns:
        The number, and whether bodies of the page are compressed.

    Raises:
        ProtocolError: A record of messages is cut short.
    """
    at = np.array(starts, np.int64)
    u1 = np.frombuffer(records, np.uint8)
    u4 = np.frombuffer(records, "<u4")
    at = at[u1[at + 13] == _MESSAGES]
    if (u4[(at >> 2) + 2] < _BATCH_AT + 48).any():
        raise ProtocolError("a record of messages is cut short")
    runs = np.frombuffer(records, "<u2")[(at + 68) >> 1].astype(np.int64)
    compression = at + _BATCH_AT + 8 * runs + 13
    if (compression >= len(records)).any():
        raise ProtocolError("a batch is cut short")
    return int(u4[(at + 64) >> 2].sum(dtype=np.int64)), bool(u1[compression].any())


def pieces(records: bytes, at: I64, start: I64, stop: I64) -> Pieces:
    """Return the rows to take; ignore kinds but MESSAGES.

    Args:
        records: Pages of records, back to back.
        at: Where each record begins.
        start: The first offset to take of each record.
        stop: The offset after the last one to take of each record.

    Raises:
        ProtocolError: The bytes are not records.
    """
    u1 = np.frombuffer(records, np.uint8)
    u2 = np.frombuffer(records, "<u2")
    u4 = np.frombuffer(records, "<u4")
    i8 = np.frombuffer(records, "<i8")
    if (u4[(at >> 2) + 1] != MAGIC).any():
        raise ProtocolError("these are no records")
    of_messages = u1[at + 13] == _MESSAGES
    if not of_messages.all():
        at, start, stop = at[of_messages], start[of_messages], stop[of_messages]
    length = u4[(at >> 2) + 2].astype(np.int64)
    if (length < _BATCH_AT + 48).any():
        raise ProtocolError("a record of messages is cut short")
    first = i8[(at + 56) >> 3]
    count = u4[(at + 64) >> 2].astype(np.int64)
    wanted = (first < stop) & (first + count > start)
    if not wanted.all():
        at, first, count, length = at[wanted], first[wanted], count[wanted], length[wanted]
        start, stop = start[wanted], stop[wanted]
    runs = u2[(at + 68) >> 1].astype(np.int64)
    batch = at + _BATCH_AT + 8 * runs
    if (batch + u4[(at + 72) >> 2] > at + length).any():
        raise ProtocolError("a batch is cut short")
    low = np.maximum(start - first, 0)
    rows = np.minimum(count, stop - first) - low
    made = Pieces(
        batch,
        u4[(batch + 16) >> 2].astype(np.int64),
        u4[(batch + 20) >> 2].astype(np.int64),
        low,
        rows,
        first + low,
        u4[(at + 52) >> 2].astype(np.int64),
        i8[(at + 32) >> 3],
        i8[(at + 16) >> 3],
        i8[(batch + 24) >> 3],
        i8[(batch + 32) >> 3] + low,
        i8[(batch + 40) >> 3],
        u1[batch + 13].astype(np.int64),
        u2[(at + 14) >> 1].astype(np.int64) & FLAG_MADE,
    )
    return _with_runs(records, at, runs, made) if runs.any() else made


def _with_runs(records: bytes, at: I64, runs: I64, made: Pieces) -> Pieces:
    """Return the pieces; in records with runs, they are cut at the rows that were left out."""
    index: list[int] = []
    row: list[int] = []
    rows: list[int] = []
    skipped: list[int] = []
    for number, (begin, count, low, left) in enumerate(
        zip(at.tolist(), runs.tolist(), made.row.tolist(), made.rows.tolist(), strict=True)
    ):
        if not count:
            found = [(low, left, 0)]
        else:
            found = _cut(records, begin + _BATCH_AT, count, low, left)
        for first, many, before in found:
            index.append(number)
            row.append(first)
            rows.append(many)
            skipped.append(before)
    order = np.array(index, np.int64)
    now = Pieces(*[column[order] for column in made])
    begins = np.array(row, np.int64)
    return now._replace(
        row=begins,
        rows=np.array(rows, np.int64),
        offset=now.offset + np.array(skipped, np.int64),
        sequence=now.sequence - now.row + begins,
    )


def _cut(records: bytes, place: int, count: int, low: int, left: int) -> list[tuple[int, int, int]]:
    """Return (row, rows, rows before it) for ``left`` messages from the ``low``-th on."""
    found: list[tuple[int, int, int]] = []
    behind = taken = 0
    for first, last in messages.RUN.iter_unpack(records[place : place + 8 * count]):
        skip = min(max(low - behind, 0), last - first)
        many = min(last - first - skip, left - taken)
        behind += last - first
        if many > 0:
            found.append((first + skip, many, taken))
            taken += many
    return found
