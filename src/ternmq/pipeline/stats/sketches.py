"""Sketches: small summaries of many numbers or texts that can be merged later.

Two kinds. Each object holds many sketches, so that a whole column of a table is created, merged and
read at once:

``Logs``, quantiles: counts by logarithmic bucket, as in C. Masson, J. E. Rim, H. K. Lee, "DDSketch:
a fast and fully-mergeable quantile sketch with relative-error guarantees", PVLDB 12 (2019). The
value returned for a bucket has a relative error of at most ``ACCURACY``, and is then rounded to a
whole number; merging adds counts, and does not increase the error. The smallest and the largest
value are stored exactly. A column holds each as a KLL sketch of Apache DataSketches (``kll``), with
one value for each bucket.

``Distinct``, number of distinct texts: HLL sketches of Apache DataSketches (``hll``). The standard
error is 1.6 %; up to 384 texts are counted exactly.

Both are functions of the values alone: neither the order of the values, nor how they are divided
among sketches that are merged, changes a byte. So all engines write equal tables, and a run that
is repeated changes nothing. Why this does not use the library of Apache DataSketches:
``docs/adr/0016-sketches-of-apache-datasketches.md``.

Up to version 2 of the tables of statistics, a sketch of quantiles was stored as::

    0 u8 version 1   1 u8 0   2 u16 buckets   4 u32 0   8 i64 largest   16 u64 values of 0 or less
    24     buckets x u16 index, ascending
     .     buckets x u64 count

``renewed_quantiles`` converts these. Sketches of distinct texts had another hash, and cannot be
converted: ``renewed_distinct`` leaves them out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.stats import hll, kll
from ternmq.pipeline.tables.numbers import Numbers

ACCURACY: Final = 0.01
_GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
_LOG: Final = float(np.log(_GAMMA))
_BUCKETS: Final = 4096
"""Enough for every i64: the last is 2185."""
_MOST: Final = 2.0**63 - 1024
_ONCE: Final = struct.Struct("<BBHIqQ")
_ONCE_VERSION: Final = 1
"""First byte of both kinds up to version 2 of the tables; those of DataSketches begin with 2, 3, 5
or 10."""


def _bucket(values: Numbers) -> Numbers:
    """Return the bucket of each value: 0 for 0, and 1 for 1."""
    found: Numbers = np.ceil(np.log(np.maximum(values, 1)) / _LOG).astype(np.int64) + (values > 0)
    return found


def _shown() -> Numbers:
    """Return the value of each bucket: the whole number in it that is next to its middle."""
    middle = 2 * np.power(_GAMMA, np.arange(2200.0)) / (_GAMMA + 1)
    found = np.maximum(np.rint(np.minimum(middle, _MOST)), 1).astype(np.int64)
    return np.concatenate([[0], found])


_SHOWN: Final = _shown()


@dataclass(slots=True)
class Logs:
    """Sketches of quantiles, numbered ``0 .. count - 1``. Values below 0 count as 0.

    Attributes:
        count: Number of sketches.
        key: ``sketch * 4096 + bucket``, ascending.
        values: Number of values for each key.
        least: The smallest value, by sketch; meaningless if there are no values.
        most: The largest value, by sketch; -1: no values.
    """

    count: int
    key: Numbers
    values: Numbers
    least: Numbers
    most: Numbers

    @staticmethod
    def of(which: Numbers, values: Numbers, count: int) -> Logs:
        """Return sketches of values; ``which`` gives the sketch of each value."""
        values = np.maximum(values, 0)
        least, most = _no_bounds(count)
        np.minimum.at(least, which, values)
        np.maximum.at(most, which, values)
        key, counts = np.unique(which * _BUCKETS + _bucket(values), return_counts=True)
        return Logs(count, key, counts.astype(np.int64), least, most)

    @staticmethod
    def merged(column: pa.Array | pa.ChunkedArray, which: Numbers, count: int) -> Logs:
        """Merge sketches of a column; ``which`` gives the merged sketch of each.

        Raises:
            TableError: One has another format.
        """
        least, most = _no_bounds(count)
        keys: list[Numbers] = [np.zeros(0, np.int64)]
        counts: list[Numbers] = [np.zeros(0, np.int64)]
        for to, data in zip(which.tolist(), column.to_pylist(), strict=True):
            if data is None:
                continue
            one = kll.unpacked(data)
            least[to] = min(least[to], one.least)
            most[to] = max(most[to], one.most)
            keys.append(to * _BUCKETS + _bucket(one.values))
            counts.append(one.counts)
        key, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        values = np.zeros(len(key), np.int64)
        np.add.at(values, inverse, np.concatenate(counts))
        return Logs(count, key, values, least, most)

    def column(self) -> pa.Array:
        """Return them as bytes; null for an empty sketch."""
        cuts = self._cuts()
        found: list[bytes | None] = []
        for one in range(self.count):
            some = slice(cuts[one], cuts[one + 1])
            least, most = int(self.least[one]), int(self.most[one])
            shown = np.clip(_SHOWN[self.key[some] % _BUCKETS], least, most)
            told = kll.Weighted(shown, self.values[some], least, most)
            found.append(kll.packed(told) if len(shown) else None)
        return pa.array(found, pa.binary())

    def _cuts(self) -> Numbers:
        return np.searchsorted(self.key, np.arange(self.count + 1) * _BUCKETS).astype(np.int64)

    def sizes(self) -> Numbers:
        """Return the number of values of each sketch."""
        found = np.zeros(self.count, np.int64)
        np.add.at(found, self.key // _BUCKETS, self.values)
        return found

    def quantile(self, share: float) -> pa.Array:
        """Return the quantile of each sketch at a share from 0 to 1; null if it is empty."""
        total = self.sizes()
        running = np.concatenate([[0], np.cumsum(self.values)])
        rank = np.floor(share * np.maximum(total - 1, 0)).astype(np.int64)
        at = np.searchsorted(running, running[self._cuts()[:-1]] + rank, side="right") - 1
        bucket = np.append(self.key, 0)[np.minimum(at, len(self.key))] % _BUCKETS
        value = np.minimum(np.maximum(_SHOWN[bucket], self.least), self.most)
        return pa.array(value, pa.int64(), mask=total == 0)

    def largest(self) -> pa.Array:
        """Return the largest value of each; null if it is empty."""
        return pa.array(self.most, pa.int64(), mask=self.most < 0)


def _no_bounds(count: int) -> tuple[Numbers, Numbers]:
    return np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)


@dataclass(slots=True)
class Distinct:
    """Sketches of the number of distinct texts."""

    sketches: list[hll.Sketch]

    @staticmethod
    def of(which: Numbers, texts: pa.Array, count: int) -> Distinct:
        """Return sketches of texts; nulls are not counted."""
        encoded = texts.dictionary_encode()
        coupons = hll.coupons_of(encoded.dictionary).astype(np.int64)
        there = encoded.is_valid().to_numpy(zero_copy_only=False)
        at = pc.drop_null(encoded.indices).to_numpy()
        every = pa.array((which[there] << 32) | coupons[at])
        pairs = np.sort(pc.unique(every).to_numpy())  # of many, few are different
        cuts = np.searchsorted(pairs, np.arange(1, count) << 32)
        parts = np.split(pairs.astype(np.uint32), cuts) if count else []
        return Distinct([hll.sketched(one) for one in parts])

    @staticmethod
    def merged(column: pa.Array | pa.ChunkedArray, which: Numbers, count: int) -> Distinct:
        """Merge sketches of a column; ``which`` gives the merged sketch of each.

        Raises:
            TableError: One has another format.
        """
        parts: list[list[hll.Sketch]] = [[hll.EMPTY] for _ in range(count)]
        for to, data in zip(which.tolist(), column.to_pylist(), strict=True):
            if data is not None:
                parts[to].append(hll.unpacked(data))
        return Distinct([hll.union(some) for some in parts])

    def column(self) -> pa.Array:
        """Return them as bytes; null for an empty sketch."""
        return pa.array([hll.packed(one) for one in self.sketches], pa.binary())

    def estimates(self) -> pa.Array:
        """Return the estimated number of distinct texts of each; null if it is empty."""
        found = [hll.estimated(one) or None for one in self.sketches]
        return pa.array(found, pa.int64())


def renewed_quantiles(column: pa.Array) -> pa.Array:
    """Return sketches of quantiles of earlier versions of a table in the format of this one.

    The smallest value of each was not stored then: it becomes that of the lowest bucket.
    """
    if not _any_once(column):
        return column
    found = [
        _converted(data) if data and data[0] == _ONCE_VERSION else data
        for data in column.to_pylist()
    ]
    return pa.array(found, pa.binary())


def _any_once(column: pa.Array) -> bool:
    """Return whether a sketch is of an earlier version."""
    first = pc.equal(pc.binary_slice(column, 0, 1), bytes([_ONCE_VERSION]))
    return bool(pc.any(first).as_py())


def _converted(data: bytes) -> bytes:
    _, _, buckets, _, most, low = _ONCE.unpack_from(data)
    bucket = np.frombuffer(data, "<u2", buckets, _ONCE.size).astype(np.int64) + 1
    counts = np.frombuffer(data, "<i8", buckets, _ONCE.size + 2 * buckets)
    if low:
        bucket, counts = np.insert(bucket, 0, 0), np.insert(counts, 0, low)
    shown = np.minimum(_SHOWN[bucket], most)
    return kll.packed(kll.Weighted(shown, counts.astype(np.int64), int(shown[0]), most))


def renewed_distinct(column: pa.Array) -> pa.Array:
    """Return sketches of distinct texts without those of earlier versions: they become null."""
    if not _any_once(column):
        return column
    found = [None if data and data[0] == _ONCE_VERSION else data for data in column.to_pylist()]
    return pa.array(found, pa.binary())
