"""Which files of a table a query of Spark reads."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from ternmq.model.errors import OptionError, TableError
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.source import choosing
from ternmq.pipeline.source.choosing import Condition, choose, plain, tasks
from ternmq.pipeline.source.reading import batches
from ternmq.pipeline.tables.datafile import TableSpec
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

SPEC = TableSpec(
    "audit",
    1,
    pa.schema(
        [
            ("bucket", pa.timestamp("us", "UTC")),
            ("topic", pa.string()),
            ("count", pa.int64()),
            ("day", pa.date32()),
        ]
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


def days(tables: Folder, *conditions: Condition) -> list[str]:
    choice = choose({"path": "audit", "tables": tables.uri}, {})
    return sorted(one.partition["day"] for some in tasks(choice, list(conditions)) for one in some)


ALL = ["1970-01-01", "1970-01-02", "1970-01-03"]


@pytest.mark.parametrize(
    ("column", "compare", "values", "wanted"),
    [
        ("day", "==", (date(1970, 1, 2),), ALL[1:2]),
        ("day", "in", (date(1970, 1, 1), date(1970, 1, 3)), [ALL[0], ALL[2]]),
        ("day", ">", (date(1970, 1, 1),), ALL[1:]),
        ("day", ">=", (date(1970, 1, 4),), []),
        ("day", "<", (date(1970, 1, 2),), ALL[:1]),
        ("count", "<=", (0,), ALL[:1]),
        ("count", "<", (0,), []),
        ("count", ">", (11,), ALL[2:]),
        ("count", "==", (12,), ALL[2:]),
        ("bucket", ">=", (plain(datetime(1970, 1, 2, 1, tzinfo=UTC)),), ALL[1:]),
        ("bucket", "==", (plain(datetime(1970, 1, 2, 2, tzinfo=UTC)),), []),
        ("bucket", "==", (plain(datetime(1970, 1, 2, 2)),), ALL),  # noqa: DTZ001 - of which zone?
        ("day", "==", ("1970-01-02",), ALL),
        ("count", "==", (None,), ALL),
        ("topic", "==", ("a",), ALL),
        ("nothing", "==", (1,), ALL),
        ("day", "in", (), []),
    ],
)
def test_files_that_have_no_row_that_passes_are_left_out(tables, column, compare, values, wanted):
    assert days(tables, Condition(column, compare, values)) == wanted


def test_all_conditions_have_to_pass(tables):
    first = Condition("count", ">", (10,))
    assert days(tables, first, Condition("day", "<", (date(1970, 1, 3),))) == ALL[1:2]


def test_small_files_share_a_task_and_large_ones_do_not(tables, monkeypatch):
    choice = choose({"path": "audit", "tables": tables.uri}, {})
    assert [len(some) for some in tasks(choice, [])] == [3]
    monkeypatch.setattr(choosing, "_TASK_BYTES", 1)
    assert [len(some) for some in tasks(choice, [])] == [1, 1, 1]


def test_rows_with_the_columns_of_the_partition(tables):
    choice = choose({"path": "audit", "TABLES": tables.uri, "columns": "day, count,day"}, {})
    assert choice.columns == ("day", "count")
    (files,) = tasks(choice, [])
    found = pa.Table.from_batches(
        list(batches(choice.tables, choice.spec, choice.columns, files)), choice.schema
    )
    assert found.schema == choice.schema
    assert sorted(found.to_pylist(), key=lambda row: row["count"]) == [
        {"day": date(1970, 1, 1 + day), "count": 10 * more + day}
        for more in range(2)
        for day in range(3)
    ]


def test_only_columns_of_the_partition(tables):
    choice = choose({"path": "audit", "tables": tables.uri, "columns": "day"}, {})
    (files,) = tasks(choice, [])
    found = list(batches(choice.tables, choice.spec, choice.columns, files))
    assert sum(one.num_rows for one in found) == 6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option tables: the folder"),
        ({"tables": "/x"}, "load.. needs the name of a table; there are: archive"),
        ({"tables": "/x", "path": "traces"}, "there is no table 'traces'; there are: "),
        ({"tables": "/x", "path": "trace", "columns": "topik"}, "no column 'topik'"),
        ({"tables": "/x", "path": "trace", "columns": ""}, "no column ''"),
        ({"tables": "/x", "path": "trace", "colums": "topic"}, "did you mean columns"),
        ({"tables": "/x", "path": "trace", "pushdownFilters": "yes"}, "neither true nor false"),
    ],
)
def test_options_that_cannot_be(options, says):
    with pytest.raises(OptionError, match=says):
        choose(options, {})


def test_the_folder_of_the_environment():
    choice = choose({"path": "archive"}, {choosing.TABLES: "/data/tables"})
    assert (choice.tables.uri, choice.spec, choice.pushdown) == ("/data/tables", ARCHIVE, True)


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(TableError, match="there is no table trace"):
        tasks(choose({"path": "trace", "tables": str(tmp_path)}, {}), [])


def test_a_file_that_was_removed(tables):
    choice = choose({"path": "audit", "tables": tables.uri}, {})
    ((first, *_),) = tasks(choice, [])
    tables.inside("audit").remove([first.path])
    with pytest.raises(TableError, match="does not exist"):
        list(batches(choice.tables, choice.spec, choice.columns, [first]))
