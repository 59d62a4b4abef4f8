from __future__ import annotations

import random

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra tables")

from ternmq.model.errors import TableError
from ternmq.pipeline.stats import hll


def texts(count, first=0):
    return [f"ключ-é-{n}" * (1 + n % 5) for n in range(first, first + count)]


def made(some):
    return hll.sketched(hll.coupons_of(pa.array(some, pa.string())))


def theirs(library, some):
    found = library.hll_sketch(hll.LOG_K, library.tgt_hll_type.HLL_8)
    for text in some:
        found.update(text)
    return found


COUPONS = ["043b822f", "096ae762", "082de530", "0ed5b18d"]
"""Those of the library for C++, 5.2."""
SIZES = [1, 7, 8, 100, 384, 385, 3000, 60_000]


def test_texts_have_the_coupons_of_datasketches():
    some = ["a", "key-0", "sixteen letters!", "ключ-é-" * 5]
    assert [f"{one:08x}" for one in hll.coupons_of(pa.array(some)).tolist()] == COUPONS


@pytest.mark.row("R9")
@pytest.mark.parametrize("count", SIZES)
def test_a_union_with_what_the_library_made_of_the_same_texts_counts_them_once(count):
    library = pytest.importorskip("datasketches")
    some = texts(count)
    ours = made(some)
    data = hll.packed(ours)
    assert data is not None
    read = library.hll_sketch.deserialize(data)
    union = library.hll_union(hll.LOG_K)
    union.update(read)
    union.update(theirs(library, some))
    assert union.get_estimate() == read.get_estimate()
    assert hll.estimated(ours) == pytest.approx(read.get_estimate(), rel=0.015)
    assert hll.estimated(ours) == pytest.approx(count, rel=0.05)


@pytest.mark.parametrize("count", SIZES)
def test_what_the_library_stores_is_read(count):
    library = pytest.importorskip("datasketches")
    found = hll.unpacked(theirs(library, texts(count)).serialize_compact())
    assert hll.packed(hll.union([found])) == hll.packed(made(texts(count)))


@pytest.mark.row("R9")
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_no_byte_depends_on_the_order_or_on_the_parts(count, seed):
    chance = random.Random(seed)
    some = texts(count)
    whole = hll.packed(made(some))
    chance.shuffle(some)
    cut = chance.randrange(count)
    parts = [made(one) for one in (some[: cut + 1], some[cut:], some[: cut // 2])]
    chance.shuffle(parts)
    assert hll.packed(hll.union([hll.union(parts[:2]), parts[2]])) == whole
    assert whole is not None
    assert hll.packed(hll.unpacked(whole)) == whole


def test_the_bytes_are_as_the_module_says():
    few, more, many = (hll.packed(made(texts(count))) for count in (3, 100, 1000))
    assert few is not None
    assert more is not None
    assert many is not None
    assert few[:8] == bytes([2, 1, 7, 12, 3, 8, 3, 8])
    assert more[:12] == bytes([3, 1, 7, 12, 8, 8, 0, 9, 100, 0, 0, 0])
    assert many[:16] == bytes([10, 1, 7, 12, 0, 24, 0, 10]) + bytes(8)
    assert [len(one) for one in (few, more, many)] == [8 + 12, 12 + 400, 40 + 4096]
    coupons = np.frombuffer(more, "<u4", offset=12)
    assert (np.diff(coupons.astype(np.int64)) > 0).all()
    registers = np.frombuffer(many, np.uint8, offset=40)
    assert int.from_bytes(many[32:36], "little") == (registers == 0).sum()
    assert np.frombuffer(many, "<f8", 2, 16).sum() == np.exp2(-registers.astype(float)).sum()


def test_nothing_has_no_bytes():
    assert hll.packed(hll.EMPTY) is None
    assert hll.estimated(made([])) == 0


def test_an_empty_text_and_the_longest_are_counted():
    assert hll.estimated(made(["", "x" * 70_000, "x" * 70_001, ""])) == 3


@pytest.mark.parametrize("data", [b"", b"\x01\x0c\x00\x00" * 3, bytes([2, 1, 7, 11, 3, 8, 1, 8])])
def test_other_formats_are_refused(data):
    with pytest.raises(TableError, match="a sketch of distinct texts has a format"):
        hll.unpacked(data)
