from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive.file import Named, Sizes, file_name, named_rows
from ternmq.pipeline.archive.ranges import Bundle, Missing, Written, write_range
from ternmq.pipeline.archive.schema import ARCHIVE
from tests.unit.pipeline import made
from tests.unit.pipeline.made import span


@pytest.fixture
def folder(tables):
    return tables.inside("archive")


def offsets(folder, file):
    with folder.open(file.path) as source:
        return pq.ParquetFile(source).read(["offset"])["offset"].to_pylist()


def names(folder):
    return sorted(one.path for one in folder.list())


def test_a_range_becomes_a_file_with_its_rows(folder):
    written = write_range(folder, span(5, 1005), made.in_batches(0, 1100))
    (file,) = written.files
    assert offsets(folder, file) == list(range(5, 1005))
    assert (file.rows, written.missing) == (1000, ())
    assert file.partition == {"day": "2026-11-21"}
    assert file.low == {
        "topic": "orders", "topic_number": 7, "queue": 0, "offset": 5, "position": 4596,
        "stored_time": made.NOON + 5000, "born_time": made.NOON,
    }  # fmt: skip
    assert file.high["offset"] == 1004
    assert names(folder) == [file.path]
    assert file.path.startswith("day=2026-11-21/orders-7-0-")
    assert named_rows(file.path) == Named("orders", 7, 0, 5, 1005)


def test_a_file_holds_all_columns_but_those_of_its_folders(folder):
    (file,) = write_range(folder, span(0, 10), [made.rows(0, 10)]).files
    with folder.open(file.path) as source:
        assert pq.ParquetFile(source).schema_arrow.equals(ARCHIVE.stored)


def test_a_file_for_each_day(folder):
    rows = made.rows(0, 10, stored=made.NOON, step=made.DAY // 4)
    written = write_range(folder, span(0, 10), [rows])
    assert [(one.partition["day"], offsets(folder, one)) for one in written.files] == [
        ("2026-11-21", [0, 1]),
        ("2026-11-22", [2, 3, 4, 5]),
        ("2026-11-23", [6, 7, 8, 9]),
    ]
    assert [one.path[-30:-17] for one in written.files] == [
        "0000000000001",
        "0000000000005",
        "0000000000009",
    ]


def test_row_groups_and_files_end_where_they_are_large_enough(folder):
    sizes = Sizes(group_rows=30, file_rows=70)
    written = write_range(folder, span(0, 200), made.in_batches(0, 200, size=50), sizes)
    groups = []
    for one in written.files:
        with folder.open(one.path) as source:
            meta = pq.ParquetFile(source).metadata
            groups.append([meta.row_group(n).num_rows for n in range(meta.num_row_groups)])
    assert sum(sum(one) for one in groups) == 200
    assert all(one <= 30 for group in groups for one in group)
    assert [sum(one) for one in groups] == [90, 90, 20]  # a row group is not divided
    assert [row for one in written.files for row in offsets(folder, one)] == list(range(200))


def test_row_groups_end_by_bytes(folder):
    large = made.rows(0, 40, body=[b"x" * 10_000] * 40)
    (file,) = write_range(folder, span(0, 40), [large], Sizes(group_bytes=100_000)).files
    with folder.open(file.path) as source:
        assert pq.ParquetFile(source).metadata.num_row_groups >= 4


def test_a_point_can_be_found_by_bloom_filters_pages_and_bounds(folder):
    duckdb = pytest.importorskip("duckdb")
    (file,) = write_range(
        folder, span(0, 500), made.in_batches(0, 500), Sizes(group_rows=100)
    ).files
    path = folder.uri_of(file.path)
    for column, there in (
        ("message_id", "0000000000001234:ff"), ("key", "key-3"), ("application_id", "app-0-254"),
    ):  # fmt: skip
        probe = f"select bloom_filter_excludes from parquet_bloom_probe('{path}', '{column}', ?)"
        excluded = duckdb.execute(probe, [there]).fetchall()
        assert (False,) in excluded
        assert duckdb.execute(probe, ["not there"]).fetchall() == [(True,)] * 5
    with folder.open(file.path) as source:
        meta = pq.ParquetFile(source).metadata
        first = meta.row_group(0)
        by_name = {
            first.column(n).path_in_schema: first.column(n) for n in range(first.num_columns)
        }
        assert by_name["offset"].has_offset_index
        assert "DELTA_BINARY_PACKED" in by_name["offset"].encodings
        assert by_name["tag"].has_dictionary_page
        assert by_name["body"].compression == "ZSTD"


def test_what_is_missing_is_an_error(folder):
    batches = [made.rows(0, 10), made.rows(12, 20)]
    with pytest.raises(DataLoss, match=r"rows 10 to 11 of queue 0 of 'orders'"):
        write_range(folder, span(0, 20), batches)
    assert names(folder) == []


def test_what_is_missing_at_the_beginning_or_the_end_is_an_error_too(folder):
    with pytest.raises(DataLoss, match="rows 0 to 1 "):
        write_range(folder, span(0, 20), [made.rows(2, 20)])
    with pytest.raises(DataLoss, match="rows 10 to 19 "):
        write_range(folder, span(0, 20), [made.rows(0, 10)])
    assert names(folder) == []


def test_what_is_missing_is_noted_where_that_is_allowed(folder):
    batches = [made.rows(3, 10), made.rows(12, 15)]
    written = write_range(folder, span(0, 20), batches, lenient=True)
    assert written.missing == (Missing(0, 3), Missing(10, 12), Missing(15, 20))
    assert [offsets(folder, one) for one in written.files] == [[*range(3, 10), *range(12, 15)]]


def test_a_range_of_which_nothing_is_left(folder):
    written = write_range(folder, span(0, 20), [], lenient=True)
    assert written == Written(span(0, 20), (), (Missing(0, 20),))


def test_holes_inside_a_batch_are_seen(folder):
    rows = pa.concat_batches([made.rows(0, 3), made.rows(5, 9)])
    with pytest.raises(DataLoss, match="rows 3 to 4 "):
        write_range(folder, span(0, 9), [rows])


def test_a_failure_on_the_way_leaves_nothing(folder):
    def batches():
        yield from made.in_batches(0, 300)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        write_range(folder, span(0, 1000), batches(), Sizes(group_rows=50, file_rows=100))
    assert names(folder) == []


def test_two_attempts_at_a_range_do_not_replace_each_others_files(folder):
    one = write_range(folder, span(0, 10), [made.rows(0, 10)])
    two = write_range(folder, span(0, 10), [made.rows(0, 10)])
    assert len({one.files[0].path, two.files[0].path}) == 2


def test_what_was_written_travels_as_text(folder):
    written = write_range(folder, span(0, 20), [made.rows(2, 20)], lenient=True)
    bundle = Bundle((written,))
    assert Bundle.of_json(bundle.to_json()) == bundle


@pytest.mark.parametrize("topic", ["orders", "a-b.c", "1-2-3", "-"])
def test_names_of_files_say_which_rows(topic):
    name = file_name(Named(topic, 7, 3, 10, 20))
    assert named_rows(f"topic={topic}/day=2026-11-21/{name}") == Named(topic, 7, 3, 10, 20)
    assert named_rows(f"x/.tmp-{name}") == Named(topic, 7, 3, 10, 20)


def test_other_names_say_nothing():
    assert named_rows("_delta_log/00000000000000000000.json") is None
    assert named_rows("topic=a/x-1-y-2-z.parquet") is None
