"""Some rows of a column of a batch: their cost does not depend on the other rows."""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import pairwise

from ternmq.record.batch.reader import Batch


def values_of(batch: Batch, column: int, start: int, stop: int) -> list[bytes]:
    """Return the values of rows ``[start, stop)`` of a column of texts or headers.

    Without the column, they are empty.
    """
    if not batch.has(column):
        return [b""] * (stop - start)
    if batch.is_constant(column):
        value = _cut(batch, column, 1, _offsets(batch, column, 0, 1))
        return value * (stop - start)
    return _cut(batch, column, batch.count, _offsets(batch, column, start, stop))


def texts_of(batch: Batch, column: int, start: int, stop: int) -> list[str]:
    """Return the values of rows ``[start, stop)`` of a column of texts."""
    return [value.decode() for value in values_of(batch, column, start, stop)]


def rows_within(batch: Batch, column: int, start: int, stop: int, most_bytes: int) -> int:
    """Return the end of the rows from ``start`` whose values have at most so many bytes.

    It is at most ``stop``, and at least one row is taken.
    """
    if not batch.has(column) or batch.is_constant(column):
        return stop
    offsets = _offsets(batch, column, start, stop)
    if offsets[-1] - offsets[0] <= most_bytes:
        return stop
    return start + max(1, bisect_right(offsets, offsets[0] + most_bytes) - 1)


def _offsets(batch: Batch, column: int, start: int, stop: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{stop - start + 1}i", batch.data, batch.start(column) + 4 * start)


def _cut(batch: Batch, column: int, entries: int, offsets: tuple[int, ...]) -> list[bytes]:
    """Return the values between offsets of a column with so many entries."""
    base = batch.start(column) + 4 * (entries + 1)
    data = batch.data[base + offsets[0] : base + offsets[-1]]
    first = offsets[0]
    return [data[low - first : high - first] for low, high in pairwise(offsets)]
