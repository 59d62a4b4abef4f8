"""Encoding and reading batches; what callers may not do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import xxhash

from ternmq.record.batch.batch import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAX_COUNT,
    Batch,
    BatchError,
    BatchFlag,
    Column,
    Compression,
    Row,
    encode,
    encode_bodies,
    encode_one,
    topic_seed,
    verify,
)

TOPIC = "orders"
SEED = topic_seed(TOPIC)
PRODUCER = 0xFEDC_BA98_7654_3210
SEQUENCE = 41
BORN_US = 1_700_000_000_123_456


def pack(rows, **options):
    given: dict[str, Any] = {
        "topic_seed": SEED,
        "producer_id": PRODUCER,
        "first_sequence": SEQUENCE,
        "born_us": BORN_US,
    }
    return encode(rows, **(given | options))


def full_row(number: int) -> Row:
    """A row with every property, different from its neighbours."""
    return Row(
        body=f"body {number}".encode() * (number % 3),
        key=f"order-{number}" if number % 4 else "",
        ordering_key=f"kunde-ß-{number % 3}",
        tag=("", "paid", "refunded")[number % 3],
        headers={"n": str(number)} if number % 2 else {},
        content_type="application/json" if number % 5 else "",
        due_us=0,
        expiry_us=number * 10**9,
        priority=number % 256,
        application_id=f"app-{number}" if number % 3 else "",
    )


SAMPLES: dict[str, bytes] = {
    "one": pack([Row(b"hello")]),
    "one, empty": pack([Row(b"")]),
    "one, with keys and tag": pack([Row(b"x", "k", "o", "t")], keyed=True),
    "one, full": pack([full_row(7)]),
    "bodies": pack([Row(bytes([n]) * n) for n in range(5)]),
    "full, few": pack([full_row(n) for n in range(5)], keyed=True),
    "full, many": pack([full_row(n) for n in range(20)]),
    "constant": pack(
        [Row(bytes([n]), "k", "o", "t", {"a": "b"}, "c", 5, 6, 7, f"id-{n}") for n in range(3)]
    ),
    "due": pack([dataclasses.replace(full_row(n), due_us=n * 5) for n in range(17)]),
    "lz4": pack([Row(b"a" * 50_000 + bytes([n])) for n in range(3)], compression=Compression.LZ4),
    "zstd": pack([Row(b"a" * 50_000 + bytes([n])) for n in range(3)], compression=Compression.ZSTD),
}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 15, 16, 17, 100])
def test_rows_come_back_as_they_were(count):
    rows = [full_row(n) for n in range(count)]
    data = pack(rows)
    verify(data, SEED)
    batch = Batch(data)
    assert batch.rows() == rows
    assert [batch.row(n) for n in range(count)] == rows
    assert [batch.body(n) for n in range(count)] == batch.bodies() == [row.body for row in rows]
    assert batch.headers() == [row.headers for row in rows]
    assert batch.keys() == [row.key for row in rows]
    assert batch.ordering_keys() == [row.ordering_key for row in rows]
    assert batch.content_types() == [row.content_type for row in rows]
    assert batch.application_id_texts() == [row.application_id for row in rows]
    assert list(batch.due_times_us()) == [row.due_us for row in rows]
    assert list(batch.expiry_times_us()) == [row.expiry_us for row in rows]
    assert list(batch.priorities()) == [row.priority for row in rows]


def test_the_header_says_what_was_given():
    data = pack([Row(b"x"), Row(b"y")])
    batch = Batch(data)
    assert (batch.count, batch.length, batch.data) == (2, len(data), data)
    assert (batch.producer_id, batch.first_sequence) == (PRODUCER, SEQUENCE)
    assert (batch.born_us, batch.compression) == (BORN_US, Compression.NONE)
    assert batch.flags == BatchFlag.BODIES
    assert not batch.keyed
    assert not batch.is_slice
    assert HEADER.unpack_from(data)[0] == MAGIC
    assert data[:4] == b"TMB1"
    assert HEADER.size == HEADER_BYTES


def test_hashes_are_those_that_the_format_names():
    rows = [full_row(n) for n in range(20)]
    batch = Batch(pack(rows))
    keys = [xxhash.xxh3_64_intdigest(row.key.encode()) if row.key else 0 for row in rows]
    assert list(batch.key_hashes()) == keys
    assert batch.key_hash_bytes() == b"".join(key.to_bytes(8, "little") for key in keys)
    assert list(batch.ordering_hashes()) == [
        xxhash.xxh3_64_intdigest(row.ordering_key.encode()) for row in rows
    ]
    wide = [
        xxhash.xxh3_128_intdigest(row.application_id.encode()) if row.application_id else 0
        for row in rows
    ]
    assert batch.application_ids() == [(one % 2**64, one >> 64) for one in wide]
    assert list(batch.body_hashes()) == [xxhash.xxh3_64_intdigest(row.body) for row in rows]


def test_constant_columns_are_stored_once_and_read_for_every_row():
    rows = [Row(b"x", "k", "o", "t", {"a": "b"}, "c", 5, 6, 7, "")] * 40
    data = pack(rows, keyed=True)
    verify(data, SEED)
    batch = Batch(data)
    constant = [column for column in Column if batch.is_constant(column)]
    assert constant == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert batch.rows() == rows
    assert batch.row(39) == rows[39]
    assert list(batch.key_hashes()) == [xxhash.xxh3_64_intdigest(b"k")] * 40
    assert len(batch.key_hash_bytes()) == 8 * 40
    assert len(batch.ordering_hashes()) == 40
    codes, dictionary = batch.tags()
    assert list(codes) == [1] * 40
    assert dictionary == ["", "t"]


def test_application_ids_and_bodies_are_never_constant():
    batch = Batch(pack([Row(b"x", application_id="a")] * 3))
    assert not batch.flags >> 16
    assert len(set(batch.application_ids())) == 1
    assert len(batch.application_ids()) == len(batch.body_hashes()) == 3


def test_a_batch_without_a_column_reads_as_rows_without_the_property():
    batch = Batch(pack([Row(b"x")] * 3))
    assert batch.key_hash_bytes() == b""
    assert not batch.key_hashes()
    assert not batch.body_hashes()
    assert batch.application_ids() == []
    assert list(batch.ordering_hashes()) == [0, 0, 0]
    assert list(batch.tags()[0]) == [0, 0, 0]
    assert batch.tag_dictionary() == [""]
    assert batch.keys() == batch.content_types() == ["", "", ""]
    assert list(batch.priorities()) == [0, 0, 0]


def test_tags_are_numbered_in_the_order_they_appear():
    codes, dictionary = Batch(pack([Row(b"", tag=tag) for tag in ["b", "a", "", "c", "b"]])).tags()
    assert dictionary == ["", "b", "a", "c"]
    assert list(codes) == [1, 2, 0, 3, 1]


def test_the_fast_forms_make_the_same_bytes():
    given: dict[str, Any] = {
        "topic_seed": SEED,
        "producer_id": PRODUCER,
        "first_sequence": SEQUENCE,
        "born_us": BORN_US,
    }
    bodies = [b"a", b"", b"ccc"]
    assert encode_bodies(bodies, **given) == pack([Row(body) for body in bodies])
    for size in range(18):
        texts: list[Any] = ["k" * (size % 9), "ö" * (size % 5), "t" * (size % 7)]
        text: dict[str, Any] = {
            name: text.encode()
            for name, text in zip(("key", "ordering_key", "tag"), texts, strict=True)
        }
        body = b"b" * size
        keyed = bool(texts[1])
        assert encode_one(body, **given, **text, keyed=keyed) == pack(
            [Row(body, *texts)], keyed=keyed
        )
        assert encode_bodies([body], **given, **text) == pack([Row(body, *texts)])
        assert encode_bodies([body], **given, **text, content_type=b"c") == pack(
            [dataclasses.replace(Row(body, *texts), content_type="c")]
        )
        assert encode_bodies([body] * 2, **given, **text, content_type=b"c") == pack(
            [dataclasses.replace(Row(body, *texts), content_type="c")] * 2
        )
    big = [b"a" * 1000] * 100
    compressed = encode_bodies(big, **given, compression=Compression.ZSTD)
    assert Batch(compressed).compression is Compression.ZSTD
    assert Batch(compressed).bodies() == big


def test_another_topic_is_another_checksum():
    assert pack([Row(b"x")])[:4] == pack([Row(b"x")], topic_seed=topic_seed("stock"))[:4]
    with pytest.raises(BatchError) as caught:
        verify(pack([Row(b"x")]), topic_seed("stock"))
    assert caught.value.reason == "checksum"


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ([], {}, "rows"),
        ([Row(b"")] * (MAX_COUNT + 1), {}, "rows"),
        ([Row(b"", due_us=-1)], {}, "due_us"),
        ([Row(b"", expiry_us=2**63)], {}, "expiry_us"),
        ([Row(b"", priority=256)], {}, "priority"),
        ([Row(b"", priority=1), Row(b"", priority=-1)], {}, "priority"),
        ([Row(b"", application_id="é" * 65)], {}, "application id"),
        ([Row(b"", ordering_key="o"), Row(b"")], {"keyed": True}, "ordering key"),
        ([Row(b"")], {"keyed": True}, "ordering key"),
        ([Row(b"", due_us=1)], {"compression": Compression.LZ4}, "due"),
        ([Row(b"", tag=f"{n}") for n in range(2**16)], {}, "tags"),
        ([Row(b"", key="\ud800")], {}, "surrogates"),
        ([Row(b"")], {"producer_id": 2**64}, "range"),
        ([Row(b"")], {"producer_id": -1}, "range"),
        ([Row(b"")], {"born_us": 2**63}, "range"),
        ([Row(b""), Row(b"")], {"first_sequence": 2**64 - 1}, "2\\*\\*64"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_format_is_refused(rows, options, says):
    with pytest.raises(ValueError, match=says):
        pack(rows, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"producer_id": 2**64}, "range"),
        ({"first_sequence": 2**64}, r"range|2\*\*64"),
        ({"keyed": True}, "ordering key"),
        ({"producer_id": -1, "key": b"k"}, "range"),
        ({"keyed": True, "key": b"k"}, "ordering key"),
    ],
)
def test_the_fast_forms_refuse_the_same(options, says):
    given = {"topic_seed": SEED, "producer_id": 1, "first_sequence": 1, "born_us": 1}
    with pytest.raises(ValueError, match=says):
        encode_one(b"x", **(given | options))
    with pytest.raises(ValueError, match=says):
        encode_bodies([b"x", b"y"], **(given | options))


def test_the_last_sequence_there_is_can_be_used():
    data = pack([Row(b"x"), Row(b"y")], first_sequence=2**64 - 2)
    verify(data, SEED)
    assert Batch(data).first_sequence == 2**64 - 2


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_outside_the_batch_are_an_index_error(row):
    batch = Batch(SAMPLES["constant"])
    with pytest.raises(IndexError):
        batch.body(row)
    with pytest.raises(IndexError):
        batch.row(row)


def test_rows_do_not_share_their_headers():
    first, second = Batch(pack([Row(b"x"), Row(b"y")])).rows()
    assert first.headers is not second.headers
    assert first == Row(b"x")


def test_a_reader_of_garbage_raises_a_batch_error():
    for garbage in (b"", bytes(63), bytes(64), b"TMB1" + bytes(100)):
        with pytest.raises(BatchError):
            Batch(garbage)


def test_constant_headers_are_read_into_a_map_each():
    batch = Batch(pack([Row(b"x", headers={"a": "b"})] * 20))
    assert batch.is_constant(Column.HEADERS)
    first, second, *_ = batch.rows()
    assert first.headers == {"a": "b"}
    assert first.headers is not second.headers
