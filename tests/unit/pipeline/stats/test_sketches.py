from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from ternmq.model.errors import TableError
from ternmq.pipeline.stats.sketches import ACCURACY, Distinct, Logs


def near(found, exact):
    return abs(found - exact) <= ACCURACY * exact + 1


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


def test_another_version_is_refused():
    (data,) = made([1], [0], 1).column().to_pylist()
    with pytest.raises(TableError, match="a sketch of version 9 was found"):
        Logs.merged(pa.array([b"\x09" + data[1:]]), np.zeros(1, np.int64), 1)


def test_the_bytes_are_as_the_module_says():
    (data,) = made([5, 5, 0], [0] * 3, 1).column().to_pylist()
    assert data[:24] == bytes([1, 0, 1, 0, 0, 0, 0, 0]) + (5).to_bytes(8, "little") + (1).to_bytes(
        8, "little"
    )
    assert data[24:] == (81).to_bytes(2, "little") + (2).to_bytes(8, "little")
