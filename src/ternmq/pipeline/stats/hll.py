"""Bytes of an HLL sketch of distinct values, as Apache DataSketches stores it.

HLL: P. Flajolet, E. Fusy, O. Gandouet, F. Meunier, "HyperLogLog: the analysis of a near-optimal
cardinality estimation algorithm", AofA 2007. The format is that of ``HllSketch`` of DataSketches,
of the type HLL_8 with 2^12 registers, which ``hll_sketch_agg`` of Spark SQL writes, too. Texts have
the same hash as there: MurmurHash3 of their bytes in UTF-8, 128 bits, seed 9001. So a union counts
a text once that is in sketches of both. The empty text is counted here; the library leaves it out.

A value becomes a *coupon* of 32 bits: its address (26 bits of the hash) below its number (6 bits:
one more than the leading zeros of the other half). The lowest 12 bits of the address are its
register. A sketch stores up to ``COUPONS`` coupons as they are, which is exact, and then the
largest number of each register.

The library's bytes depend on the order of the values: its coupons are in the order of a hash table,
and with registers it stores a running estimate ("HIP") that depends on the order. Here coupons are
ascending, and a flag says that there is no such estimate, as after a union. So equal sets of values
have equal bytes.

Bytes, little endian. Up to 7 coupons::

    0 u8 2   1 u8 1   2 u8 7 (HLL)   3 u8 12   4 u8 3   5 u8 8 (compact)   6 u8 coupons   7 u8 8
    8      coupons x u32

More coupons::

    0 u8 3   1 u8 1   2 u8 7   3 u8 12   4 u8 log2 of places   5 u8 8   6 u8 0   7 u8 9
    8 u32 coupons   12 coupons x u32; a table of that many places is filled to at most 3/4

Registers::

    0 u8 10   1 u8 1   2 u8 7   3 u8 12   4 u8 0   5 u8 24 (compact, no running estimate)   6 u8 0
    7 u8 10   8 f64 0   16 f64 sum of 2^-number, numbers below 32   24 f64 the same, from 32 on
    32 u32 registers that are 0   36 u32 0   40 4096 x u8
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ternmq.model.errors import TableError
from ternmq.pipeline.stats.murmur import hashes

Coupons = npt.NDArray[np.uint32]
Registers = npt.NDArray[np.uint8]

LOG_K: Final = 12
REGISTERS: Final = 1 << LOG_K
COUPONS: Final = 384
"""The most that are stored as coupons: 3/4 of a table of 1/8 of the registers."""
_ADDRESS_BITS: Final = 26
_ADDRESS: Final = (1 << _ADDRESS_BITS) - 1
_NUMBER_MOST: Final = 63
_LIST: Final = struct.Struct("<BBBBBBBB")
_SET: Final = struct.Struct("<BBBBBBBBI")
_HLL: Final = struct.Struct("<BBBBBBBBdddII")
_VERSION, _FAMILY, _COMPACT, _NO_ORDER = 1, 7, 8, 16
_AS_LIST, _AS_SET, _AS_HLL = 8, 9, 10
"""The last byte before the data: the mode, and the type HLL_8 (2) above two bits."""


def coupons_of(texts: pa.Array) -> Coupons:
    """Return the coupon of each text; none may be null."""
    first, second = hashes(texts)
    # Leading zeros, by the exponent of a float that is no larger than the number.
    high = (second >> np.uint64(11)).astype(float)
    zeros = np.where(high > 0, 53 - np.frexp(high)[1], 64 - np.frexp(second.astype(float))[1])
    number = np.minimum(zeros + 1, _NUMBER_MOST).astype(np.uint64)
    coupons = (number << np.uint64(_ADDRESS_BITS)) | (first & np.uint64(_ADDRESS))
    found: Coupons = coupons.astype(np.uint32)
    return found


@dataclass(slots=True, frozen=True)
class Sketch:
    """A sketch of a set of texts.

    Attributes:
        coupons: Its coupons, ascending; empty if there are registers.
        registers: Its registers; None if there are at most ``COUPONS`` coupons.
    """

    coupons: Coupons
    registers: Registers | None = None


EMPTY: Final = Sketch(np.zeros(0, np.uint32))


def sketched(coupons: Coupons) -> Sketch:
    """Return the sketch of coupons in any order, which may be there several times."""
    return union([Sketch(coupons)])


def union(sketches: Sequence[Sketch]) -> Sketch:
    """Return the sketch of what is in any of several."""
    coupons = np.unique(np.concatenate([one.coupons for one in sketches]))
    dense = [one.registers for one in sketches if one.registers is not None]
    if not dense and len(coupons) <= COUPONS:
        return Sketch(coupons)
    registers = np.zeros(REGISTERS, np.uint8)
    for one in dense:
        np.maximum(registers, one, out=registers)
    register = (coupons & np.uint32(REGISTERS - 1)).astype(np.int64)
    np.maximum.at(registers, register, (coupons >> np.uint32(_ADDRESS_BITS)).astype(np.uint8))
    return Sketch(EMPTY.coupons, registers)


def packed(sketch: Sketch) -> bytes | None:
    """Return the bytes of a sketch; None if it is empty."""
    if sketch.registers is not None:
        return _registers(sketch.registers)
    count = len(sketch.coupons)
    if not count:
        return None
    data = sketch.coupons.astype("<u4").tobytes()
    if count < 8:
        return _LIST.pack(2, _VERSION, _FAMILY, LOG_K, 3, _COMPACT, count, _AS_LIST) + data
    places = max(5, math.ceil(math.log2(count * 4 / 3)))  # at most 3/4 of a table is filled
    head = _SET.pack(3, _VERSION, _FAMILY, LOG_K, places, _COMPACT, 0, _AS_SET, count)
    return head + data


def _registers(registers: Registers) -> bytes:
    powers = np.exp2(-registers.astype(float))
    high = registers >= 32
    low_sum, high_sum = float(powers[~high].sum()), float(powers[high].sum())
    head = _HLL.pack(
        10, _VERSION, _FAMILY, LOG_K, 0, _COMPACT | _NO_ORDER, 0, _AS_HLL,
        0.0, low_sum, high_sum, int((registers == 0).sum()), 0,
    )  # fmt: skip
    return head + registers.tobytes()


def unpacked(data: bytes) -> Sketch:
    """Return the sketch with these bytes.

    Raises:
        TableError: They are not compact, or not of this size and type.
    """
    ours = data[1:4] == bytes([_VERSION, _FAMILY, LOG_K]) and data[5] & _COMPACT
    mode = data[7] if ours else None
    if mode == _AS_LIST:
        return Sketch(np.frombuffer(data, "<u4", data[6], _LIST.size).astype(np.uint32))
    if mode == _AS_SET:
        *_, count = _SET.unpack_from(data)
        return Sketch(np.frombuffer(data, "<u4", count, _SET.size).astype(np.uint32))
    if mode == _AS_HLL:
        registers = np.frombuffer(data, np.uint8, REGISTERS, _HLL.size)
        return Sketch(EMPTY.coupons, registers)
    raise TableError(
        "a sketch of distinct texts has a format that this TernMQ does not know: use the version "
        "that wrote the table"
    )


def estimated(sketch: Sketch) -> int:
    """Return the estimated number of distinct texts; its standard error is 1.6 %.

    O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6
    (without its term for registers that are full, which 6 bits never are). It needs no tables of
    corrections. What DataSketches estimates for the same registers differs by 0.3 % or less
    as a rule; the largest difference that was found is 1.4 %.
    """
    if sketch.registers is None:
        return len(sketch.coupons)
    counts = np.bincount(sketch.registers, minlength=_NUMBER_MOST + 1).tolist()
    z = 0.0
    for count in counts[:0:-1]:
        z = (z + count) / 2
    z += REGISTERS * _sigma(counts[0] / REGISTERS)
    return round(REGISTERS * REGISTERS / (2 * math.log(2) * z))


def _sigma(x: float) -> float:
    """Return the sum of ``x^(2^i) * 2^(i-1)``; ``x`` is below 1."""
    y, z, before = 1.0, x, -1.0
    while z != before:
        x *= x
        before, z = z, z + x * y
        y += y
    return z
