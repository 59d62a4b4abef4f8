"""Record batches out of many stored batches: equal to what the batches hold, row by row."""

from __future__ import annotations

import datetime as dt
import itertools
import struct
from typing import Any

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from ternmq.journal.reader.page import reframed, without_bodies  # noqa: E402
from ternmq.model.errors import InvalidRequest, ProtocolError  # noqa: E402
from ternmq.record.batch.batch import (  # noqa: E402
    Batch,
    BatchError,
    Compression,
    Row,
    slice_batch,
)
from ternmq.record.coalesce import COLUMNS, Coalescer, check, schema  # noqa: E402
from ternmq.record.fact import messages  # noqa: E402
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, Kind  # noqa: E402
from tests.unit.record.batch.test_batch import SAMPLES, full_row, pack  # noqa: E402
from tests.unit.record.test_batch_arrow import expected  # noqa: E402

STORED_US = 1_700_000_000_000_123
INSTANT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=STORED_US)
MIXED = [pack([Row(b"one")]), pack([full_row(1)]), *SAMPLES.values(), pack([Row(b"", "k")])]


def record(body: bytes, position: int, kind: Kind = Kind.MESSAGES) -> bytes:
    body += bytes(-len(body) & 7)
    rest = HEADER.pack(0, MAGIC, HEADER_BYTES + len(body), 1, kind, 0, position, 0, STORED_US, 1, 0)
    data = rest[4:] + body
    return struct.pack("<I", crc32c(data)) + data


def page(
    batches: list[bytes],
    first: int = 0,
    queue: int = 3,
    runs: dict[int, tuple[tuple[int, int], ...]] | None = None,
    *,
    fulfils: bool = False,
) -> tuple[bytes, list[dict[str, Any]]]:
    """Return (records, what they hold by row) of batches, stored one after the other."""
    records, rows = b"", []
    offset = first
    for index, batch in enumerate(batches):
        known = Batch(batch)
        cut = (runs or {}).get(index, ())
        left = [row for low, high in cut for row in range(low, high)] if cut else range(known.count)
        position = 4096 + len(records)
        if fulfils:
            origin = messages.Fulfilment(64, 5, 1_800_000_000_000_000)
            stored = messages.pack_fulfilled(7, queue, offset, len(left), batch, origin)
        else:
            stored = messages.pack(7, queue, offset, len(left), batch, cut)
        records += record(stored, position)
        decoded = known.rows()
        for at in left:
            told = expected(at, decoded[at])
            rows.append(
                {
                    "topic": "orders",
                    "queue": queue,
                    "offset": offset,
                    "stored_time": INSTANT,
                    "position": position,
                    **told,
                    "body_bytes": len(decoded[at].body),
                    "key_bytes": (decoded[at].key or None) and decoded[at].key.encode(),
                    "ordering_key_bytes": (decoded[at].ordering_key or None)
                    and decoded[at].ordering_key.encode(),
                }
            )
            offset += 1
    return records, rows


def taken(
    records: bytes, start: int = 0, stop: int = 1 << 62, **more: object
) -> list[dict[str, Any]]:
    made = Coalescer(COLUMNS, **more)  # type: ignore[arg-type]
    found: list[dict[str, Any]] = []
    for batch in [*made.add(records, start, stop, topic="orders"), *made.finish()]:
        batch.validate(full=True)
        assert batch.schema == made.schema
        found += batch.to_pylist()
    assert made.rows == len(found)
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_a_batch_alone(name):
    records, rows = page([SAMPLES[name]])
    assert taken(records) == rows


def test_batches_of_all_shapes_together():
    records, rows = page(MIXED * 3)
    assert taken(records) == rows


def test_singles():
    singles = [pack([Row(b"x" * (n % 9), f"k{n}" if n % 3 else "", "", "")]) for n in range(200)]
    singles += [pack([full_row(n)]) for n in range(50)]
    records, rows = page(singles, first=1000)
    assert taken(records) == rows


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (3, 4), (2, 17), (10, 10), (50, 60), (7, 900)])
def test_only_the_rows_asked_for(start, stop):
    records, rows = page(MIXED)
    assert taken(records, start, stop) == [row for row in rows if start <= row["offset"] < stop]


def test_rows_left_out_have_no_offset():
    batches = [pack([full_row(n) for n in range(10)]) for _ in range(3)]
    runs = {0: ((0, 2), (4, 9)), 2: ((1, 2), (3, 4), (9, 10))}
    records, rows = page(batches, first=100, runs=runs)
    assert len(rows) == 20
    assert taken(records) == rows
    for start in range(98, 122):
        for stop in (start + 1, start + 3, 200):
            wanted = [row for row in rows if start <= row["offset"] < stop]
            assert taken(records, start, stop) == wanted


def test_scheduled_rows_that_came_due_are_ordinary_rows():
    due = [Row(b"x" * n, f"k{n}", due_us=1_800_000_000_000_000) for n in range(9)]
    whole = pack(due)
    parts = [pack(due[:1]), slice_batch(whole, 0, 3, 1), whole]
    records, rows = page(parts, first=100, fulfils=True)
    others, more = page([pack([Row(b"plain")])], first=100 + len(rows))
    assert taken(records + others) == rows + more
    assert taken(records, 102, 106) == rows[2:6]
    assert {row["due_time"] for row in rows} != {None}
    size = struct.unpack_from("<I", records, 8)[0]
    light = reframed(records[:size], without_bodies(records[HEADER_BYTES:size]))
    assert taken(light + records[size:]) == [rows[0] | {"body": None}, *rows[1:]]


@pytest.mark.parametrize("how", [Compression.LZ4, Compression.ZSTD])
def test_compressed_bodies(how):
    large = pack([Row(b"abc" * 1000 + b"%d" % n, f"k{n}") for n in range(100)], compression=how)
    assert Batch(large).compression is how
    records, rows = page([large, pack([Row(b"plain")]), large], runs={2: ((0, 5), (90, 100))})
    assert taken(records) == rows
    assert taken(records, 10, 105) == rows[10:105]


def test_damaged_compression_is_an_error():
    large = pack([Row(b"abc" * 1000)], compression=Compression.ZSTD)
    records, _ = page([large])
    broken = bytearray(records)
    broken[-40:-20] = bytes(20)
    with pytest.raises(BatchError):
        taken(bytes(broken))


def test_records_without_bodies():
    batch = pack([full_row(n) for n in range(20)])
    records, rows = page([batch])
    light = reframed(records, without_bodies(records[HEADER_BYTES:]))
    one, more = page([pack([Row(b"whole")])], first=20)
    found = taken(light + one)
    for row in rows:
        row["body"] = None
    assert found == rows + more
    assert found[0]["body_bytes"] == len(full_row(0).body)


def test_other_kinds_are_passed_over():
    records, rows = page(MIXED[:3])
    mark = record(struct.pack("<Q", 8), 64, Kind.MARK)
    assert taken(mark + records + mark) == rows
    assert taken(mark) == []
    assert taken(b"") == []


def test_batches_are_of_about_the_size_asked_for():
    records, _ = page([pack([Row(b"x" * 100) for _ in range(50)]) for _ in range(10)])
    made = Coalescer(("offset", "body"), target_bytes=3 * len(records))
    found = [batch for at in range(10) for batch in made.add(records, topic=f"t{at}")] + list(
        made.finish()
    )
    assert [batch.num_rows for batch in found] == [1500, 1500, 1500, 500]
    few = Coalescer(("offset",), target_rows=100)
    assert sum(len(list(few.add(records))) for _ in range(3)) == 3


@pytest.mark.parametrize("topics", [("a",), ("a", "b")])
def test_pages_are_gathered_each_with_its_own_range(topics):
    """Neighbouring pages repeat records: of each, other rows are taken."""
    large = pack([Row(b"abc" * 1000, "k") for _ in range(20)], compression=Compression.ZSTD)
    records, rows = page([*MIXED, large, *MIXED])
    mark = record(struct.pack("<Q", 8), 64, Kind.MARK)
    ends = sorted({0, len(rows), *range(3, len(rows), 7)})
    made, found, wanted = Coalescer(COLUMNS), [], []
    for number, (start, stop) in enumerate(itertools.pairwise(ends)):
        topic = topics[number % len(topics)]
        pages = records if number % 3 else mark + records + mark
        found += [*made.add(pages, start, stop, topic=topic)]
        wanted += [row | {"topic": topic} for row in rows if start <= row["offset"] < stop]
    found += [*made.finish()]
    assert [row for batch in found for row in batch.to_pylist()] == wanted
    assert made.rows == len(rows)


def test_columns_come_in_the_order_asked_for():
    records, rows = page(MIXED)
    made = Coalescer(("body", "offset", "key_bytes"))
    (batch,) = [*made.add(records), *made.finish()]
    assert batch.schema == schema(("body", "offset", "key_bytes"))
    assert batch.to_pylist() == [
        {name: row[name] for name in ("body", "offset", "key_bytes")} for row in rows
    ]
    with pytest.raises(InvalidRequest, match="no column 'colour'"):
        Coalescer(("colour",))


def test_pages_that_are_none():
    records, _ = page(MIXED[:4])
    check(records)
    for length in (8, 40, 80, len(records) - 8):
        with pytest.raises(ProtocolError):
            taken(records[:length])
        with pytest.raises(ProtocolError):
            check(records[:length])
    with pytest.raises(ProtocolError):
        taken(b"x" * 96)
    broken = bytearray(records)
    broken[200] ^= 1
    with pytest.raises(ProtocolError, match="damaged"):
        check(bytes(broken))


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(["", "k", "key-ü", "x" * 40])


@st.composite
def batches(draw: st.DrawFn) -> Any:
    rows = draw(st.lists(
        st.builds(
            Row, st.binary(max_size=9), texts(), texts(), texts(),
            st.sampled_from([{}, {"a": "b"}]), texts(), st.sampled_from([0, 5]),
            st.sampled_from([0, 9]), st.integers(0, 9), texts(),
        ), min_size=1, max_size=5))  # fmt: skip
    return pack(rows)


@settings(deadline=None)
@given(st.lists(batches(), min_size=1, max_size=6), st.integers(0, 20), st.integers(0, 20))
def test_whatever_the_rows_are(some: list[bytes], start: int, more: int) -> None:
    records, rows = page(some)
    stop = start + more
    assert taken(records, start, stop) == [row for row in rows if start <= row["offset"] < stop]
