"""Cutting rows out of a batch."""

from __future__ import annotations

import itertools

import pytest

from ternmq.record.batch.batch import (
    Batch,
    BatchFlag,
    Compression,
    Cutter,
    Row,
    slice_batch,
    uncompressed,
    verify,
)
from tests.unit.record.batch.test_batch import (
    BORN_US,
    PRODUCER,
    SAMPLES,
    SEED,
    SEQUENCE,
    full_row,
    pack,
)

UNCOMPRESSED = [name for name in SAMPLES if name not in {"lz4", "zstd"}]


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_every_slice_holds_the_rows_that_were_asked_for(name):
    data = SAMPLES[name]
    rows = Batch(data).rows()
    for start, stop in itertools.combinations(range(len(rows) + 1), 2):
        part = slice_batch(data, start, stop, SEED)
        verify(part, SEED)
        batch = Batch(part)
        assert batch.rows() == rows[start:stop]
        assert (batch.count, batch.first_sequence) == (stop - start, SEQUENCE + start)
        assert (batch.producer_id, batch.born_us) == (PRODUCER, BORN_US)
        assert batch.keyed == Batch(data).keyed
        assert batch.is_slice == (stop - start < len(rows))


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_a_cutter_cuts_as_a_slice_alone_would(name):
    data = SAMPLES[name]
    cutter = Cutter(data, SEED)
    rows = len(Batch(data).rows())
    for start, stop in itertools.combinations(range(rows + 1), 2):
        assert cutter.cut(start, stop) == slice_batch(data, start, stop, SEED)
    for start, stop in ((0, 0), (-1, 1), (0, rows + 1), (1, 0)):
        with pytest.raises(ValueError, match="rows"):
            cutter.cut(start, stop)


@pytest.mark.parametrize("name", ["full, many", "constant", "due"])
def test_hashes_are_cut_with_the_rows(name):
    data = SAMPLES[name]
    whole, part = Batch(data), Batch(slice_batch(data, 1, 3, SEED))
    assert part.key_hashes() == whole.key_hashes()[1:3]
    assert part.ordering_hashes() == whole.ordering_hashes()[1:3]
    assert part.application_ids() == whole.application_ids()[1:3]
    assert part.body_hashes() == whole.body_hashes()[1:3]


def test_all_rows_are_the_batch_itself():
    data = SAMPLES["bodies"]
    assert slice_batch(data, 0, 5, SEED) is data


def test_a_slice_of_a_slice_is_the_slice_of_the_whole():
    data = pack([full_row(n) for n in range(60)])
    part = slice_batch(slice_batch(data, 10, 50, SEED), 5, 25, SEED)
    assert part == slice_batch(data, 15, 35, SEED)
    assert Batch(part).flags & BatchFlag.SLICE


def test_rows_without_a_property_stay_without_it():
    data = pack([Row(b"x", "k", "o", "t"), Row(b"y"), Row(b"z")])
    part = slice_batch(data, 1, 3, SEED)
    verify(part, SEED)
    assert Batch(part).rows() == [Row(b"y"), Row(b"z")]


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (3, 2), (-1, 2), (2, 6), (5, 6)])
def test_rows_that_are_not_there_are_refused(start, stop):
    with pytest.raises(ValueError, match="rows"):
        slice_batch(SAMPLES["bodies"], start, stop, SEED)


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_a_compressed_batch_is_not_cut_before_it_is_inflated(name):
    with pytest.raises(ValueError, match="compressed"):
        slice_batch(SAMPLES[name], 0, 1, SEED)


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_an_inflated_batch_has_the_same_rows_and_can_be_cut(name):
    data = SAMPLES[name]
    plain = uncompressed(data, SEED)
    verify(plain, SEED)
    whole, before = Batch(plain), Batch(data)
    assert whole.compression is Compression.NONE
    assert whole.is_slice
    assert whole.rows() == before.rows()
    assert (whole.producer_id, whole.first_sequence, whole.born_us, whole.keyed) == (
        before.producer_id, before.first_sequence, before.born_us, before.keyed,
    )  # fmt: skip
    part = slice_batch(plain, 1, 2, SEED)
    verify(part, SEED)
    assert Batch(part).row(0) == before.row(1)
    assert Batch(part).first_sequence == before.first_sequence + 1


def test_an_uncompressed_batch_stays_as_it_is():
    assert uncompressed(SAMPLES["bodies"], SEED) is SAMPLES["bodies"]
