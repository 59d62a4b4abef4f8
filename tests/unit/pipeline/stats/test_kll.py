from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra tables")

from ternmq.model.errors import TableError
from ternmq.pipeline.stats import kll


def weighted(values, counts):
    return kll.Weighted(
        np.array(values, np.int64), np.array(counts, np.int64), values[0], values[-1]
    )


def added(told):
    """Return how often each value occurs, and the bounds."""
    found: dict[int, int] = {}
    for value, count in zip(told.values.tolist(), told.counts.tolist(), strict=True):
        found[value] = found.get(value, 0) + count
    return found, told.least, told.most


WIDE = weighted([10 * n + 1 for n in range(2200)], [2**50 - 1] * 2200)
"""More than a sketch of the usual size has room for."""
CASES = [
    weighted([0], [1]),
    weighted([7, 9], [2, 4]),
    weighted([7, 9, 11], [1, 2**40 + 5, 2**33]),
    weighted([-5, 2**63 - 1], [1, 1]),
    WIDE,
]


@pytest.mark.parametrize("told", CASES)
def test_what_is_packed_is_unpacked(told):
    assert added(kll.unpacked(kll.packed(told))) == added(told)


@pytest.mark.parametrize("told", CASES)
def test_the_library_reads_them(told):
    library = pytest.importorskip("datasketches")
    data = kll.packed(told)
    found = library.kll_items_sketch.deserialize(data, library.PyLongsSerDe())
    assert found.n == told.counts.sum()
    assert (found.get_min_value(), found.get_max_value()) == (told.least, told.most)
    assert found.k == (65_535 if told is WIDE else kll.K)
    below = np.cumsum(told.counts) / told.counts.sum()
    near = 20 if told is WIDE else 0
    for value, share in list(zip(told.values.tolist(), below.tolist(), strict=True))[::97]:
        assert found.get_rank(value, True) == pytest.approx(share)
        assert found.get_quantile(share, True) == pytest.approx(value, abs=near)


def test_sketches_of_the_library_are_unpacked():
    library = pytest.importorskip("datasketches")
    made = library.kll_items_sketch(200)
    for value in range(50):
        made.update(value % 7)
    told = kll.unpacked(made.serialize(library.PyLongsSerDe()))
    assert added(told) == ({n: 8 if n == 0 else 7 for n in range(7)}, 0, 6)


def test_the_bytes_are_as_the_module_says():
    data = kll.packed(weighted([5, 8], [2, 3]))
    assert data[:20] == bytes([5, 1, 15, 2, 0, 16, 8, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 16, 2, 0])
    capacity = 4096 + 2731
    words = [int.from_bytes(data[at : at + 4], "little") for at in (20, 24)]
    assert words == [capacity - 3, capacity - 2]
    assert np.frombuffer(data, "<i8", offset=28).tolist() == [5, 8, 8, 5, 8]


@pytest.mark.parametrize("data", [b"", b"\x01" * 40, b"\x02\x02\x0f\x04" + bytes(20)])
def test_other_formats_are_refused(data):
    with pytest.raises(TableError, match="a sketch of quantiles has a format"):
        kll.unpacked(data)
