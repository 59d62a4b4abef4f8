"""Batches as Arrow columns."""

from __future__ import annotations

import ctypes
import datetime as dt

import msgspec
import pytest

pa = pytest.importorskip("pyarrow")

from ternmq.record.arrow import schema, to_arrow  # noqa: E402
from ternmq.record.batch.batch import Batch, BatchError, Compression, Row  # noqa: E402
from tests.unit.record.batch.test_batch import (  # noqa: E402
    BORN_US,
    PRODUCER,
    SAMPLES,
    SEQUENCE,
    full_row,
    pack,
)


def instant(time_us: int) -> dt.datetime | None:
    if not time_us:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=time_us)


def expected(number: int, row: Row) -> dict[str, object]:
    return {
        "producer_id": PRODUCER - 2**64,
        "sequence": SEQUENCE + number,
        "born_time": instant(BORN_US),
        "key": row.key or None,
        "ordering_key": row.ordering_key or None,
        "tag": row.tag or None,
        "headers": msgspec.msgpack.encode(row.headers) if row.headers else None,
        "content_type": row.content_type or None,
        "due_time": instant(row.due_us),
        "expiry_time": instant(row.expiry_us),
        "priority": row.priority,
        "application_id": row.application_id or None,
        "body": row.body,
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_columns_hold_what_the_rows_hold(name):
    data = SAMPLES[name]
    table = to_arrow(data)
    table.validate(full=True)
    assert table.schema == schema()
    assert table.to_pylist() == [expected(n, row) for n, row in enumerate(Batch(data).rows())]


def test_a_topic_comes_first_when_it_is_named():
    table = to_arrow(SAMPLES["bodies"], topic="orders")
    assert table.schema == schema(topic=True)
    assert table.column_names[0] == "topic"
    assert table["topic"].to_pylist() == ["orders"] * 5


def address_of(data: bytes) -> int:
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert address is not None
    return address


def test_columns_are_views_of_the_batch():
    data = pack([full_row(n) for n in range(1, 40)])
    due = pack([Row(b"x", due_us=n) for n in range(40)])
    for batch, names in (
        (
            data,
            [
                "key",
                "ordering_key",
                "headers",
                "content_type",
                "expiry_time",
                "application_id",
                "body",
            ],
        ),
        (due, ["due_time", "body"]),
    ):
        first = address_of(batch)
        table = to_arrow(batch)
        for name in names:
            _validity, *buffers = table[name].buffers()
            assert buffers
            for buffer in buffers:
                assert first <= buffer.address
                assert buffer.address + buffer.size <= first + len(batch)
                assert buffer.address % 8 == 0 or buffer is buffers[-1]


def test_columns_keep_the_bytes_alive():
    table = to_arrow(pack([Row(b"%d" % n) for n in range(1000)]))
    assert table["body"].to_pylist() == [b"%d" % n for n in range(1000)]


def test_priorities_above_127_are_not_negative():
    table = to_arrow(pack([Row(b"", priority=n) for n in (0, 127, 128, 255)]))
    assert table["priority"].to_pylist() == [0, 127, 128, 255]


def test_sequences_keep_their_bits_beyond_2_to_the_63():
    table = to_arrow(pack([Row(b"")] * 2, first_sequence=2**63 - 1))
    assert table["sequence"].to_pylist() == [2**63 - 1, -(2**63)]


def test_the_cap_of_the_reader_holds_for_compressed_bodies():
    data = pack([Row(b"a" * 10_000)], compression=Compression.LZ4)
    assert to_arrow(data)["body"].to_pylist() == [b"a" * 10_000]
    with pytest.raises(BatchError):
        to_arrow(Batch(data, output_cap=9_999))
