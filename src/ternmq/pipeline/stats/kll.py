"""Bytes of a KLL sketch of quantiles, as Apache DataSketches stores it.

KLL: Z. Karnin, K. Lang, E. Liberty, "Optimal quantile approximation in streams", FOCS 2016. The
format is that of ``KllLongsSketch`` of DataSketches for Java 6, which ``kll_sketch_agg_bigint`` of
Spark SQL writes, and which its functions ``kll_..._bigint`` read. The library for Python reads it
as ``kll_items_sketch`` with ``PyLongsSerDe``.

A sketch has levels of values. A value of level ``i`` counts ``2^i`` times. The library moves values
to a higher level when there are more than ``CAPACITY`` of them: it keeps every second one, and
throws a coin for which. No coin is thrown here. Where a value occurs ``c`` times, it is in those
levels whose bits are set in ``c``, so the bytes say exactly how often each value occurs, and equal
values have equal bytes. This needs that there are few different values: see ``sketches.Logs``.

Bytes, little endian::

    0 u8 5 (words of 4 bytes before the levels)   1 u8 1 (full format)   2 u8 15 (KLL)
    3 u8 2 (each level is ascending)   4 u16 k   6 u8 8 (smallest capacity of a level)   7 u8 0
    8 u64 number of values   16 u16 k, again   18 u8 levels   19 u8 0
    20     levels x u32 first place of the level; the last level ends at the capacity
     .     i64 smallest value   i64 largest value
     .     i64 values, level by level
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from ternmq.model.errors import TableError
from ternmq.pipeline.tables.numbers import Numbers

K: Final = 4096
"""Accuracy of what others merge: they keep all values up to a capacity of some three times as many,
and above that, ranks have an error of about 0.1 % (with the usual 200: 1.3 %)."""
_K_MOST: Final = 65_535
"""For a sketch with more values than ``K`` allows; it has room for every bit of every bucket."""
_LEAST: Final = 8
_HEAD: Final = struct.Struct("<BBBBHBBQHBB")
_ENDS: Final = struct.Struct("<qq")
_WORDS, _FULL, _FAMILY, _SORTED = 5, 1, 15, 2


@dataclass(slots=True, frozen=True)
class Weighted:
    """Values, and how often each occurs.

    Attributes:
        values: Not necessarily ascending; a value may be there several times.
        counts: How often each occurs.
        least: The smallest.
        most: The largest.
    """

    values: Numbers
    counts: Numbers
    least: int
    most: int


def packed(told: Weighted) -> bytes:
    """Return a sketch of ascending, distinct values; there is at least one."""
    levels = int(told.counts.max()).bit_length()
    bits = (told.counts[None, :] >> np.arange(levels)[:, None] & 1).astype(bool)
    values = np.broadcast_to(told.values, bits.shape)[bits]  # level by level
    k = K if len(values) <= _capacity(K, levels) else _K_MOST
    sizes = bits.sum(axis=1)
    starts = _capacity(k, levels) - len(values) + np.cumsum(sizes) - sizes
    count = int(told.counts.sum())
    head = _HEAD.pack(_WORDS, _FULL, _FAMILY, _SORTED, k, _LEAST, 0, count, k, levels, 0)
    ends = _ENDS.pack(told.least, told.most)
    return b"".join([head, starts.astype("<u4").tobytes(), ends, values.astype("<i8").tobytes()])


def unpacked(data: bytes) -> Weighted:
    """Return what is in a sketch.

    Raises:
        TableError: It is not in the full format of KLL.
    """
    if len(data) < _HEAD.size or data[:3] != bytes([_WORDS, _FULL, _FAMILY]):
        raise TableError(
            "a sketch of quantiles has a format that this TernMQ does not know: use the version "
            "that wrote the table"
        )
    *_, k, least, _, _, _, levels, _ = _HEAD.unpack_from(data)
    starts = np.frombuffer(data, "<u4", levels, _HEAD.size).astype(np.int64)
    sizes = np.diff(starts, append=_capacity(k, levels, least))
    smallest, largest = _ENDS.unpack_from(data, _HEAD.size + 4 * levels)
    values = np.frombuffer(data, "<i8", int(sizes.sum()), _HEAD.size + 4 * levels + _ENDS.size)
    counts = np.left_shift(1, np.repeat(np.arange(levels), sizes))
    return Weighted(values.astype(np.int64), counts, smallest, largest)


@cache
def _capacity(k: int, levels: int, least: int = _LEAST) -> int:
    """Return how many values a sketch has room for; ``KllHelper`` of the library rounds so, too."""
    return sum(max(least, _of_depth(k, depth)) for depth in range(levels))


def _of_depth(k: int, depth: int) -> int:
    """Return the capacity of a level so far below the highest: ``k * (2/3)^depth``."""
    if depth > 30:
        return _of_depth(_of_depth(k, depth // 2), depth - depth // 2)
    parts: int = 3**depth
    return ((k << 1 << depth) // parts + 1) >> 1
