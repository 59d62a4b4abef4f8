"""Which files of a table a query of Spark reads."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.model.errors import OptionError, TableError
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.source import choosing
from ternmq.pipeline.source.choosing import choose, tasks
from ternmq.pipeline.source.reading import batches
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import Column, TableSpec
from ternmq.pipeline.tables.table import Table

SPEC = TableSpec(
    "audit",
    1,
    (
        Column("bucket", pa.timestamp("us", "UTC"), "a time"),
        Column("topic", pa.string(), "a topic"),
        Column("count", pa.int64(), "a number"),
        Column("day", pa.date32(), "the day"),
    ),
    ("day",),
    ("bucket", "count"),
)
HOUR = 3_600_000_000


@pytest.fixture
def tables(tmp_path, monkeypatch) -> Folder:
    """Make a table of three days, a file each."""
    monkeypatch.setattr(choosing, "all_tables", lambda: [SPEC])
    folder = Folder(str(tmp_path))
    table = Table.open(folder, SPEC)
    for day in range(3):
        rows = pa.table(
            {
                "bucket": pa.array([day * 24 * HOUR, day * 24 * HOUR + HOUR], pa.int64()),
                "topic": ["a", "b"],
                "count": [day, 10 + day],
                "day": pa.array([date(1970, 1, 1 + day)] * 2),
            }
        )
        table.append(rows.cast(SPEC.schema))
    return folder


def days(tables: Folder, **selected: str) -> list[str]:
    choice = choose({"path": "audit", "tables": tables.uri, **selected}, {})
    return sorted(one.partition["day"] for some in tasks(choice) for one in some)


ALL = ["1970-01-01", "1970-01-02", "1970-01-03"]


@pytest.mark.parametrize(
    ("selected", "wanted"),
    [
        ({}, ALL),
        ({"day": "1970-01-02"}, ALL[1:2]),
        ({"DAY": "1970-01-01, 1970-01-03"}, [ALL[0], ALL[2]]),
        ({"day": "1970-01-04"}, []),
        ({"topic": "a"}, ALL),
    ],
)
def test_files_of_other_days_are_left_out(tables, selected, wanted):
    assert days(tables, **selected) == wanted


def test_rows_of_other_topics_are_left_out(tables):
    options = {"path": "audit", "tables": tables.uri, "columns": "count", "topic": "b"}
    choice = choose({**options, "day": "1970-01-02,1970-01-03"}, {})
    (files,) = tasks(choice)
    found = [one for batch in batches(choice, files) for one in batch.to_pylist()]
    assert sorted(one["count"] for one in found) == [11, 12]


def test_small_files_share_a_task_and_large_ones_do_not(tables, monkeypatch):
    choice = choose({"path": "audit", "tables": tables.uri}, {})
    assert [len(some) for some in tasks(choice)] == [3]
    monkeypatch.setattr(choosing, "_TASK_BYTES", 1)
    assert [len(some) for some in tasks(choice)] == [1, 1, 1]


def test_rows_with_the_columns_of_the_partition(tables):
    choice = choose({"path": "audit", "TABLES": tables.uri, "columns": "day, count,day"}, {})
    assert choice.columns == ("day", "count")
    (files,) = tasks(choice)
    found = pa.Table.from_batches(list(batches(choice, files)), choice.schema)
    assert found.schema == choice.schema
    assert sorted(found.to_pylist(), key=lambda row: row["count"]) == [
        {"day": date(1970, 1, 1 + day), "count": 10 * more + day}
        for more in range(2)
        for day in range(3)
    ]


def test_only_columns_of_the_partition(tables):
    choice = choose({"path": "audit", "tables": tables.uri, "columns": "day"}, {})
    (files,) = tasks(choice)
    found = list(batches(choice, files))
    assert sum(one.num_rows for one in found) == 6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option tables: the folder"),
        ({"tables": "x", "path": "trace"}, "'x' is not an absolute path"),
        ({"tables": "/x"}, "load.. needs the name of a table; there are: archive"),
        ({"tables": "/x", "path": "traces"}, "there is no table 'traces'; there are: "),
        ({"tables": "/x", "path": "trace", "columns": "topik"}, "no column 'topik'"),
        ({"tables": "/x", "path": "trace", "columns": ""}, "no column ''"),
        ({"tables": "/x", "path": "trace", "colums": "topic"}, "did you mean columns"),
        ({"tables": "/x", "path": "trace", "day": "2026-11-26"}, "the table trace has no column"),
        ({"tables": "/x", "path": "audit", "day": "today"}, "option day: 'today' is no list"),
    ],
)
def test_options_that_cannot_be(options, says):
    with pytest.raises(OptionError, match=says):
        choose(options, {})


def test_the_folder_of_the_environment():
    choice = choose({"path": "archive"}, {choosing.TABLES: "/data/tables"})
    assert (choice.tables.uri, choice.spec, choice.selected) == ("/data/tables", ARCHIVE, {})


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(TableError, match="there is no table trace"):
        tasks(choose({"path": "trace", "tables": str(tmp_path)}, {}))


def test_a_file_that_was_removed(tables):
    choice = choose({"path": "audit", "tables": tables.uri}, {})
    ((first, *_),) = tasks(choice)
    tables.inside("audit").remove([first.path])
    with pytest.raises(TableError, match="does not exist"):
        list(batches(choice, [first]))


def test_the_files_themselves_have_rows_that_left_the_table(tables):
    """Why the guide says not to read them: they are counted twice, or were erased."""
    table = Table.open(tables, SPEC, create=False)
    table.replace(table.read(day=ALL[0]), day=ALL[0])
    found = sum(len(pq.ParquetFile(one).read()) for one in Path(tables.uri).rglob("*.parquet"))
    assert found == 8
    choice = choose({"path": "audit", "tables": tables.uri}, {})
    assert sum(one.num_rows for some in tasks(choice) for one in batches(choice, some)) == 6
