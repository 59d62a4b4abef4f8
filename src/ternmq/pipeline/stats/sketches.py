"""Sketches: small summaries of many numbers that can be merged later.

Two kinds. Each object holds many sketches in flat arrays, so that numpy creates, merges and reads a
whole column of a table:

``Logs``, quantiles: counts by logarithmic bucket, as in C. Masson, J. E. Rim, H. K. Lee, "DDSketch:
a fast and fully-mergeable quantile sketch with relative-error guarantees", PVLDB 12 (2019). The
value returned for a bucket has a relative error of at most ``ACCURACY``; merging adds counts, and
does not increase the error. The largest value is stored exactly.

``Distinct``, number of distinct values: registers of P. Flajolet, E. Fusy, O. Gandouet, F. Meunier,
"HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", AofA (2007), with
its counting of empty registers where there are few values. The standard error is 1.6 %; merging
takes the larger register.

Bytes, little endian. A sketch of quantiles::

    0 u8 version 1   1 u8 0   2 u16 buckets   4 u32 0   8 i64 largest   16 u64 values of 0 or less
    24     buckets x u16 index, ascending
     .     buckets x u64 count

A sketch of distinct values::

    0 u8 version 1   1 u8 12 (registers are 2^12)   2 u16 filled
    4      filled x u16 register, ascending
     .     filled x u8 value
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from ternmq.model.errors import TableError

Numbers = npt.NDArray[np.int64]

VERSION: Final = 1
ACCURACY: Final = 0.01
_GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
_LOG: Final = float(np.log(_GAMMA))
_BUCKETS: Final = 4096
"""Enough for every i64: the last is 2199."""
_LOGS: Final = struct.Struct("<BBHIqQ")
_BITS: Final = 12
REGISTERS: Final = 1 << _BITS
_DISTINCT: Final = struct.Struct("<BBH")


@dataclass(slots=True)
class Logs:
    """Sketches ``0 .. count - 1``.

    Attributes:
        count: Number of sketches.
        key: ``sketch * 4096 + bucket``, ascending.
        values: Number of values for each key.
        low: Number of values of 0 or less, by sketch.
        most: The largest value, by sketch; -1: no values.
    """

    count: int
    key: Numbers
    values: Numbers
    low: Numbers
    most: Numbers

    @staticmethod
    def of(which: Numbers, values: Numbers, count: int) -> Logs:
        """Return sketches of values; ``which`` gives the sketch of each value."""
        low = np.bincount(which[values <= 0], minlength=count).astype(np.int64)
        most = np.full(count, -1, np.int64)
        np.maximum.at(most, which, np.maximum(values, 0))
        some = values > 0
        bucket = np.ceil(np.log(values[some]) / _LOG).astype(np.int64)
        key, counts = np.unique(which[some] * _BUCKETS + bucket, return_counts=True)
        return Logs(count, key, counts.astype(np.int64), low, most)

    @staticmethod
    def merged(column: pa.Array | pa.ChunkedArray, which: Numbers, count: int) -> Logs:
        """Merge sketches of a column; ``which`` gives the merged sketch of each.

        Raises:
            TableError: One has another version.
        """
        low, most = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        keys: list[Numbers] = []
        counts: list[Numbers] = []
        for to, data in zip(which.tolist(), column.to_pylist(), strict=True):
            if data is None:
                continue
            version, _, buckets, _, largest, zeros = _LOGS.unpack_from(data)
            _check(version)
            low[to] += zeros
            most[to] = max(most[to], largest)
            index = np.frombuffer(data, "<u2", buckets, _LOGS.size)
            keys.append(to * _BUCKETS + index.astype(np.int64))
            counts.append(np.frombuffer(data, "<i8", buckets, _LOGS.size + 2 * buckets))
        if not keys:
            nothing = np.zeros(0, np.int64)
            return Logs(count, nothing, nothing, low, most)
        key, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        values = np.zeros(len(key), np.int64)
        np.add.at(values, inverse, np.concatenate(counts))
        return Logs(count, key, values, low, most)

    def column(self) -> pa.Array:
        """Return them as bytes; null for an empty sketch."""
        cuts = np.searchsorted(self.key, np.arange(self.count + 1) * _BUCKETS)
        found: list[bytes | None] = []
        for one in range(self.count):
            start, stop = cuts[one], cuts[one + 1]
            if start == stop and not self.low[one]:
                found.append(None)
                continue
            head = _LOGS.pack(VERSION, 0, stop - start, 0, self.most[one], self.low[one])
            index = (self.key[start:stop] % _BUCKETS).astype("<u2")
            found.append(head + index.tobytes() + self.values[start:stop].astype("<i8").tobytes())
        return pa.array(found, pa.binary())

    def sizes(self) -> Numbers:
        """Return the number of values of each sketch."""
        found = self.low.copy()
        np.add.at(found, self.key // _BUCKETS, self.values)
        return found

    def quantile(self, share: float) -> pa.Array:
        """Return the quantile of each sketch at a share from 0 to 1; null if it is empty."""
        total = self.sizes()
        cuts = np.searchsorted(self.key, np.arange(self.count + 1) * _BUCKETS)
        running = np.concatenate([[0], np.cumsum(self.values)])
        rank = np.floor(share * np.maximum(total - 1, 0)).astype(np.int64) - self.low
        at = np.searchsorted(running, running[cuts[:-1]] + np.maximum(rank, 0), side="right") - 1
        bucket = np.append(self.key, 0)[np.minimum(at, len(self.key))] % _BUCKETS
        value = 2 * np.power(_GAMMA, bucket) / (_GAMMA + 1)
        value = np.where(rank < 0, 0, np.minimum(np.rint(value), self.most)).astype(np.int64)
        return pa.array(value, pa.int64(), mask=total == 0)

    def largest(self) -> pa.Array:
        """Return the largest value of each; null if it is empty."""
        return pa.array(self.most, pa.int64(), mask=self.most < 0)


@dataclass(slots=True)
class Distinct:
    """Sketches of the number of distinct values: a row of registers each."""

    registers: npt.NDArray[np.uint8]

    @staticmethod
    def of(which: Numbers, texts: pa.Array, count: int) -> Distinct:
        """Return sketches of texts; nulls are not counted."""
        made = Distinct(np.zeros((count, REGISTERS), np.uint8))
        encoded = texts.dictionary_encode()
        hashes = np.array(
            [xxh3_64_intdigest(str(one).encode()) for one in encoded.dictionary.to_pylist()],
            np.uint64,
        )
        there = encoded.is_valid().to_numpy(zero_copy_only=False)
        pairs = np.unique(
            np.stack(
                [which[there], pc.drop_null(encoded.indices).to_numpy().astype(np.int64)], axis=1
            ),
            axis=0,
        )
        if len(pairs):
            hash_ = hashes[pairs[:, 1]]
            register = (hash_ >> np.uint64(64 - _BITS)).astype(np.int64)
            rest = hash_ << np.uint64(_BITS)
            # Leading zeros, and one: by the exponent of a float that is no larger than the number.
            high = (rest >> np.uint64(11)).astype(np.float64)
            zeros = np.where(high > 0, 53 - np.frexp(high)[1], 64 - _BITS)
            np.maximum.at(made.registers, (pairs[:, 0], register), (zeros + 1).astype(np.uint8))
        return made

    @staticmethod
    def merged(column: pa.Array | pa.ChunkedArray, which: Numbers, count: int) -> Distinct:
        """Merge sketches of a column; ``which`` gives the merged sketch of each.

        Raises:
            TableError: One has another version.
        """
        made = Distinct(np.zeros((count, REGISTERS), np.uint8))
        for to, data in zip(which.tolist(), column.to_pylist(), strict=True):
            if data is None:
                continue
            version, bits, filled = _DISTINCT.unpack_from(data)
            _check(version if bits == _BITS else -1)
            index = np.frombuffer(data, "<u2", filled, _DISTINCT.size)
            value = np.frombuffer(data, np.uint8, filled, _DISTINCT.size + 2 * filled)
            np.maximum.at(made.registers[to], index, value)
        return made

    def column(self) -> pa.Array:
        """Return them as bytes; null for an empty sketch."""
        found: list[bytes | None] = []
        for row in self.registers:
            (index,) = np.nonzero(row)
            head = _DISTINCT.pack(VERSION, _BITS, len(index))
            body = head + index.astype("<u2").tobytes() + row[index].tobytes()
            found.append(body if len(index) else None)
        return pa.array(found, pa.binary())

    def estimates(self) -> pa.Array:
        """Return the estimated number of distinct values of each; null if it is empty."""
        if not len(self.registers):
            return pa.array([], pa.int64())
        m = REGISTERS
        raw = 0.7213 / (1 + 1.079 / m) * m * m / np.exp2(-self.registers.astype(float)).sum(axis=1)
        empty = (self.registers == 0).sum(axis=1)
        few = m * np.log(m / np.maximum(empty, 1))
        found = np.where((raw <= 2.5 * m) & (empty > 0), few, raw)
        return pa.array(np.rint(found).astype(np.int64), mask=empty == m)


def _check(version: int) -> None:
    if version != VERSION:
        raise TableError(
            f"a sketch of version {version} was found, and this TernMQ knows {VERSION}: use the "
            "version that wrote the table"
        )
