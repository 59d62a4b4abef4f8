from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import msgspec
import pyarrow as pa
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from ternmq.client.content.message import message_id
from ternmq.pipeline.archive import columns
from ternmq.pipeline.archive.schema import ARCHIVE
from tests.unit.pipeline import made

U64 = st.integers(0, 2**64 - 1) | st.integers(0, 300)


def signed(number):
    return number - 2**64 if number >= 2**63 else number


@given(st.lists(st.tuples(U64, U64), max_size=20))
def test_ids_are_written_as_the_client_writes_them(pairs):
    producers = pa.array([signed(one) for one, _ in pairs], pa.int64())
    sequences = pa.array([signed(one) for _, one in pairs], pa.int64())
    found = columns.message_ids(producers, sequences)
    found.validate(full=True)
    assert found.to_pylist() == [message_id(*pair) for pair in pairs]


def test_ids_of_columns_that_begin_behind_the_beginning_of_their_memory():
    numbers = pa.array(range(5000), pa.int64()).slice(4090)
    found = columns.message_ids(numbers, numbers)
    assert found.to_pylist() == [message_id(one, one) for one in range(4090, 5000)]


@given(st.lists(st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3)), max_size=20))
def test_headers_become_maps_and_empty_ones_null(headers):
    packed = pa.array(
        [None if one is None else msgspec.msgpack.encode(one) for one in headers], pa.binary()
    )
    found = columns.header_maps(packed)
    found.validate(full=True)
    assert found.to_pylist() == [list(one.items()) if one else None for one in headers]


def test_rows_of_the_archive():
    taken = made.rows(10, 20)
    found = columns.archived(taken, "orders", 7)
    assert found.schema == ARCHIVE.stored
    found.validate(full=True)
    row = found.to_pylist()[1]
    assert row["message_id"] == message_id(0x1234, 12)
    assert row["headers"] == [("n", "11")]
    assert row["body"] == made.body(11)
    assert row["body_crc"] == crc32c(made.body(11))
    assert (row["topic_number"], row["schema_version"]) == (7, ARCHIVE.version)
    same = [name for name in columns.TAKEN if name != "headers"]
    assert found.select(same).to_pylist() == taken.select(same).to_pylist()


def test_days_are_those_of_utc_also_before_1970():
    times = pa.array([0, made.DAY - 1, made.DAY, -1, None][:4], made.INSTANT)
    assert columns.days(times).tolist() == [0, 0, 1, -1]
