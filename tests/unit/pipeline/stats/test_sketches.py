from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from ternmq.model.errors import TableError
from ternmq.pipeline.stats import kll
from ternmq.pipeline.stats.sketches import (
    ACCURACY,
    Distinct,
    Logs,
    renewed_distinct,
    renewed_quantiles,
)


def near(found, exact):
    return abs(found - exact) <= ACCURACY * exact + 0.5


def made(values, which, count):
    return Logs.of(np.array(which, np.int64), np.array(values, np.int64), count)


@pytest.mark.row("R9")
@pytest.mark.parametrize("seed", range(5))
def test_quantiles_are_within_one_percent_and_the_largest_exact(seed):
    chance = random.Random(seed)
    lots = [[int(chance.lognormvariate(8, 3)) for _ in range(chance.randrange(1, 2000))]
            for _ in range(4)]  # fmt: skip
    values = [one for lot in lots for one in lot]
    which = [n for n, lot in enumerate(lots) for _ in lot]
    sketches = made(values, which, 5)
    for share in (0.0, 0.5, 0.9, 0.99, 1.0):
        found = sketches.quantile(share).to_pylist()
        assert found[4] is None
        for lot, one in zip(lots, found, strict=False):
            assert near(one, sorted(lot)[int(share * (len(lot) - 1))])
    assert sketches.largest().to_pylist() == [*map(max, lots), None]


@pytest.mark.row("R9")
def test_small_numbers_are_within_one_percent_plus_a_half():
    count = 5000
    values = np.stack([np.zeros(count, np.int64), np.arange(count), np.full(count, 1 << 40)])
    sketches = Logs.of(np.tile(np.arange(count), 3), values.reshape(-1), count)
    for exact, found in enumerate(sketches.quantile(0.5).to_pylist()):
        assert near(found, exact), (found, exact)


@pytest.mark.row("R9")
def test_a_merged_sketch_is_that_of_all_values():
    chance = random.Random(1)
    values = [chance.randrange(-5, 10**9) for _ in range(3000)]
    parts = made(values, [n % 7 for n in range(3000)], 8)
    merged = Logs.merged(parts.column(), np.zeros(8, np.int64), 1)
    assert merged.column() == made(values, [0] * 3000, 1).column()
    assert merged.sizes().tolist() == [3000]


def test_values_of_zero_or_less_count_as_zero():
    sketches = made([-3, 0, 0, 10], [0] * 4, 1)
    assert sketches.quantile(0.5).to_pylist() == [0]
    assert sketches.quantile(1.0).to_pylist() == [10]
    assert Logs.merged(sketches.column(), np.zeros(1, np.int64), 1).column() == sketches.column()


def test_the_largest_number_that_there_is():
    assert made([2**63 - 1], [0], 1).largest().to_pylist() == [2**63 - 1]


def test_nothing_is_null():
    empty = made([], [], 2)
    assert empty.column().to_pylist() == empty.quantile(0.5).to_pylist() == [None, None]


@pytest.mark.row("R9")
@pytest.mark.parametrize("count", [1, 30, 2000, 50_000])
def test_different_ones_are_counted_within_a_few_percent(count):
    texts = pa.array([f"key-{n % count}" for n in range(2 * count)] + [None])
    found = Distinct.of(np.zeros(len(texts), np.int64), texts, 2).estimates().to_pylist()
    assert found[1] is None
    assert abs(found[0] - count) <= 0.05 * count


@pytest.mark.row("R9")
def test_a_union_counts_what_is_in_both_once():
    one, two = ([f"k{n}" for n in range(start, start + 1000)] for start in (0, 500))
    parts = Distinct.of(np.repeat([0, 1], 1000), pa.array(one + two), 2)
    union = Distinct.merged(parts.column(), np.zeros(2, np.int64), 1)
    whole = Distinct.of(np.zeros(2000, np.int64), pa.array(one + two), 1)
    assert union.column() == whole.column()


def test_a_sketch_has_one_value_for_each_bucket_and_the_bounds():
    (data,) = made([5, 5, 0, 1001, 1000], [0] * 5, 1).column().to_pylist()
    told = kll.unpacked(data)
    assert (told.least, told.most) == (0, 1001)
    pairs = sorted(zip(told.values.tolist(), told.counts.tolist(), strict=True))
    assert pairs == [(0, 1), (5, 2), (1001, 2)]


def test_the_value_of_a_bucket_is_in_the_bucket():
    """So a sketch that is read has the counts of the one that was written, and is as accurate."""
    values = [*range(20_000), *(int(1.003**n) for n in range(14_000) if 1.003**n < 2**63), 2**62]
    (data,) = made(values, [0] * len(values), 1).column().to_pylist()
    again = Logs.merged(pa.array([data]), np.zeros(1, np.int64), 1)
    assert again.column().to_pylist() == [data]
    assert again.values.tolist() == made(values, [0] * len(values), 1).values.tolist()
    shown = np.unique(kll.unpacked(data).values)
    above = np.minimum(np.searchsorted(shown, values), len(shown) - 1)
    off = np.minimum(abs(shown[above] - values), abs(shown[np.maximum(above - 1, 0)] - values))
    assert (off <= ACCURACY * np.array(values, float) + 0.5).all()


@pytest.mark.row("R9")
def test_sketches_that_tables_of_version_2_have():
    """Their bytes: version, buckets, the largest value, values of 0 or less; buckets, counts."""
    head = struct.pack("<BBHIqQ", 1, 0, 2, 0, 1000, 3)
    old = head + struct.pack("<HH", 81, 346) + struct.pack("<QQ", 2, 1)
    new = made([5, 5, 0, 0, -1, 1000], [0] * 6, 1).column()
    column = renewed_quantiles(pa.array([old, None, new[0].as_py()]))
    assert column.to_pylist() == [new[0].as_py(), None, new[0].as_py()]
    lone = struct.pack("<BBHIqQ", 1, 0, 1, 0, 1010, 0) + struct.pack("<HQ", 346, 1)
    told = kll.unpacked(renewed_quantiles(pa.array([lone]))[0].as_py())
    assert (told.least, told.most, told.values.tolist()) == (1002, 1010, [1002])
    keys = Distinct.of(np.zeros(2, np.int64), pa.array(["a", "b"]), 1).column()[0].as_py()
    found = renewed_distinct(pa.array([b"\x01\x0c\x01\x00\x00\x00\x01", None, keys]))
    assert found.to_pylist() == [None, None, keys]


def test_other_formats_are_refused():
    (data,) = made([1], [0], 1).column().to_pylist()
    for kind in (Logs, Distinct):
        with pytest.raises(TableError, match=r"a sketch of .* has a format that this TernMQ does"):
            kind.merged(pa.array([b"\x09" + data[1:]]), np.zeros(1, np.int64), 1)
