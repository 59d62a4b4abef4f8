from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import date

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa
from deltalake import DeltaTable

from ternmq.model.errors import TableConflict, TableError
from ternmq.pipeline.tables import deltalog
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import Column, TableSpec
from ternmq.pipeline.tables.table import Table, deciding_anew

WHEN = pa.timestamp("us", tz="UTC")
SPEC = TableSpec(
    "things",
    3,
    (
        Column("day", pa.date32(), "the `day`"),
        Column("number", pa.int64(), "a number"),
        Column("at", WHEN, "a time", null=True),
        Column("text", pa.string(), "a text", null=True),
    ),
    ("day",),
    ("number", "at"),
)
MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)


def rows(day, *numbers, text="x"):
    at = pa.array([1_795_290_000_000_007 + one for one in numbers], WHEN)
    columns = [[day] * len(numbers), list(numbers), at, [text] * len(numbers)]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SPEC.schema, strict=True)], schema=SPEC.schema
    )


@pytest.fixture
def table(tables):
    return Table.open(tables, SPEC)


def numbers(table, **partition):
    return sorted(table.read(["number"], **partition)["number"].to_pylist())


def test_rows_come_back_with_the_columns_of_the_partition(table, tables):
    both = pa.concat_tables([rows(MONDAY, 1, 2), rows(TUESDAY, 3)])
    table.append(both)
    again = Table.open(tables, SPEC, create=False)
    assert again.read().sort_by("number").to_pylist() == both.to_pylist()
    assert numbers(again, day="2026-11-24") == [3]
    assert again.version == 1


def test_any_reader_of_delta_reads_it(table):
    table.append(rows(MONDAY, 1, 2))
    theirs = DeltaTable(table.folder.uri)
    assert theirs.to_pyarrow_table().sort_by("number").to_pylist() == rows(MONDAY, 1, 2).to_pylist()
    assert sorted(theirs.file_uris()) == table.uris()


def test_a_value_that_no_path_takes_as_it_is(tables):
    columns = Column("name", pa.string(), "a name"), Column("n", pa.int64(), "a number")
    spec = TableSpec("odd", 1, columns, ("name",))
    table = Table.open(tables, spec)
    odd = ["a b", "50%", "a/b", "ä=ö", "$x", "a%20b"]
    table.append(pa.table({"name": odd, "n": range(len(odd))}))
    assert sorted(table.read(["name"])["name"].to_pylist()) == sorted(odd)
    assert sorted(one.partition["name"] for one in table.files()) == sorted(odd)
    assert [table.folder.size(one.path) for one in table.files()] == [
        one.size for one in table.files()
    ]
    assert sorted(DeltaTable(table.folder.uri).to_pyarrow_table()["name"].to_pylist()) == sorted(
        odd
    )
    table.replace(pa.table({"name": ["50%"], "n": [7]}), name="50%")
    assert table.read(["n"], name="50%")["n"].to_pylist() == [7]


def test_the_bounds_of_a_file_are_known_to_the_microsecond(table):
    table.append(rows(MONDAY, 4, 9))
    (file,) = table.files()
    assert (file.low, file.high) == (
        {"number": 4, "at": 1_795_290_000_000_011},
        {"number": 9, "at": 1_795_290_000_000_016},
    )
    assert (file.rows, file.partition) == (2, {"day": "2026-11-23"})


def test_what_users_wrote_stands_in_no_log(table):
    table.append(rows(MONDAY, 1, text="a secret"))
    first = table.folder.uri + "/_delta_log/00000000000000000001.json"
    with open(first, encoding="utf-8") as file:
        actions = [json.loads(line) for line in file]
    assert "a secret" not in str(actions)
    assert [one["add"]["stats"] for one in actions if "add" in one]


def test_a_number_is_remembered_with_the_rows(table, tables):
    assert table.remembered("app/1") is None
    table.append(rows(MONDAY, 1), {"app/1": 10, "app/2": 20})
    table.append(rows(MONDAY, 2), {"app/1": 11})
    again = Table.open(tables, SPEC)
    assert (again.remembered("app/1"), again.remembered("app/2")) == (11, 20)


def test_a_number_is_remembered_without_rows(table):
    table.commit(remember={"app/1": 5})
    assert table.remembered("app/1") == 5


def test_nothing_is_no_commit(table):
    table.commit()
    assert table.version == 0


def test_two_at_once_with_the_same_app_do_not_both_succeed(table, tables):
    other = Table.open(tables, SPEC)
    table.append(rows(MONDAY, 1), {"app": 1})
    with pytest.raises(TableConflict):
        other.append(rows(MONDAY, 1), {"app": 1})
    assert numbers(table) == [1]
    assert other.remembered("app") == 1  # it sees what happened


def test_two_at_once_with_the_same_app_at_the_beginning_of_the_table(tables):
    one, two = Table.open(tables, SPEC), Table.open(tables, SPEC)
    one.commit(remember={"app": 1})
    with pytest.raises(TableConflict):
        two.commit(remember={"app": 1})


def test_two_at_once_that_have_nothing_in_common_both_succeed(table, tables):
    other = Table.open(tables, SPEC)
    table.append(rows(MONDAY, 1), {"app/1": 1})
    other.append(rows(MONDAY, 2), {"app/2": 1})
    table.refresh()
    assert numbers(table) == [1, 2]


def test_two_at_once_that_remove_the_same_file_do_not_both_succeed(table, tables):
    table.append(rows(MONDAY, 1))
    other = Table.open(tables, SPEC)
    table.replace(rows(MONDAY, 2), day="2026-11-23")
    with pytest.raises(TableConflict):
        other.replace(rows(MONDAY, 3), day="2026-11-23")
    assert numbers(table) == [2]


@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("theirs", [True, False])
def test_two_at_once_that_remove_files_do_not_both_succeed(table, tables, mine, theirs):
    table.append(rows(MONDAY, 1))
    other = Table.open(tables, SPEC)
    (old,) = table.files()
    table.commit(table.stage(rows(MONDAY, 1)), [old], changes=mine)
    with pytest.raises(TableConflict):
        other.commit(other.stage(rows(MONDAY, 1)), [old], changes=theirs)
    assert numbers(table) == [1]


def test_adding_beside_the_same_rows_in_other_files_both_succeed(table, tables):
    table.append(rows(MONDAY, 1))
    other = Table.open(tables, SPEC)
    table.commit(table.stage(rows(MONDAY, 1)), table.files(), changes=False)
    other.append(rows(MONDAY, 3), {"app": 1})
    table.refresh()
    assert numbers(table) == [1, 3]


def test_adding_beside_a_replacement_goes_in_at_the_second_attempt(table, tables):
    # The library takes every addition for one that has read the whole table.
    table.append(rows(MONDAY, 1))
    other = Table.open(tables, SPEC)
    table.replace(rows(MONDAY, 2), day="2026-11-23")
    deciding_anew(other, lambda: other.append(rows(MONDAY, 3), {"app": 1}))
    table.refresh()
    assert numbers(table) == [2, 3]


def test_a_conflict_is_decided_anew_once(table, tables):
    other = Table.open(tables, SPEC)
    table.append(rows(MONDAY, 1), {"app": 1})

    def attempt():
        tried.append(other.remembered("app"))
        if other.remembered("app") is None:
            other.append(rows(MONDAY, 1), {"app": 1})

    tried: list[int | None] = []
    deciding_anew(other, attempt)
    assert tried == [None, 1]
    assert numbers(other) == [1]


def test_a_partition_is_replaced_and_no_other(table):
    table.append(pa.concat_tables([rows(MONDAY, 1, 2), rows(TUESDAY, 3)]))
    table.replace(rows(MONDAY, 9), day="2026-11-23")
    assert numbers(table) == [3, 9]
    table.replace(rows(MONDAY), day="2026-11-23")
    assert numbers(table) == [3]


def test_rows_of_another_partition_replace_nothing(table):
    table.append(rows(MONDAY, 1))
    with pytest.raises(TableError, match="2026-11-24"):
        table.replace(rows(TUESDAY, 2), day="2026-11-23")
    assert numbers(table) == [1]


def test_what_is_no_file_is_not_added(table):
    (staged,) = table.stage(rows(MONDAY, 1))
    table.folder.remove([staged.path])
    with pytest.raises(TableError, match=staged.path):
        table.commit([staged], remember={"app": 1})
    table.refresh()
    assert table.remembered("app") is None


def test_a_file_that_changed_since_is_not_added(table):
    (staged,) = table.stage(rows(MONDAY, 1))
    with pytest.raises(TableError, match="as it was written"):
        table.commit([replace(staged, size=staged.size - 1)])


def test_staged_rows_are_not_seen_before_they_are_committed(table, tables):
    table.stage(rows(MONDAY, 1))
    assert numbers(Table.open(tables, SPEC)) == []


def test_a_table_that_is_not_there(tables):
    with pytest.raises(TableError, match="no table things"):
        Table.open(tables, SPEC, create=False)


def test_a_folder_of_somebody_elses(tables, tmp_path):
    (tmp_path / "tables" / "things").mkdir(parents=True)
    (tmp_path / "tables" / "things" / "notes.txt").write_text("mine")
    with pytest.raises(TableError, match=r"tables/things contains files"):
        Table.open(tables, SPEC)
    assert [p.name for p in (tmp_path / "tables" / "things").iterdir()] == ["notes.txt"]


def test_a_table_of_somebody_elses(tables):
    Folder(tables.uri).inside("things").begin("x").close()
    shutil.rmtree(tables.inside("things").uri)
    DeltaTable.create(tables.inside("things").uri, SPEC.schema, partition_by=["day"])
    with pytest.raises(TableError, match=r"tables/things is a table that TernMQ did not create"):
        Table.open(tables, SPEC)


def test_a_table_of_another_version(tables, table):
    with pytest.raises(TableError, match="schema version 3, and this TernMQ writes 2"):
        Table.open(tables, replace(SPEC, version=2))
    later = Table.open(tables, replace(SPEC, version=4))
    assert (later.schema_version, later.outdated, table.outdated) == (3, True, False)
    with pytest.raises(TableError, match="schema version 3, and this TernMQ writes 4: run"):
        later.append(rows(MONDAY, 1))
    assert table.files() == []


def test_a_row_without_what_every_row_has_is_not_written(table):
    wrong = rows(MONDAY, 1, 2).set_column(1, "number", pa.array([1, None], pa.int64()))
    with pytest.raises(TableError, match="a row for the table things has no number"):
        table.append(wrong)
    assert table.folder.exists()
    assert [one.path for one in table.folder.list() if one.path.endswith(".parquet")] == []


def test_the_log_describes_the_columns(table):
    told = {one.name: one for one in DeltaTable(table.folder.uri).schema().fields}
    assert (told["day"].nullable, told["text"].nullable) == (False, True)
    assert told["day"].metadata == {"comment": "the day"}


def test_names_with_a_scheme(tmp_path, table, tables):
    table.append(rows(MONDAY, 1))
    assert numbers(Table.open(Folder(f"file://{tmp_path}/tables"), SPEC, create=False)) == [1]


def test_what_is_remembered_of_many_apps_at_once(table, tables):
    apps = [f"app/{n}" for n in range(7)]
    for version in range(230):  # more than one checkpoint of the log
        table.commit(remember={f"app/{version % 5}": version})
    known = table.all_remembered(apps)
    assert known == {app: table.remembered(app) for app in apps[:5]}
    assert known["app/4"] == 229
    names = os.listdir(tables.inside("things").uri + "/_delta_log")
    assert any(name.endswith("checkpoint.parquet") for name in names)


def test_what_is_remembered_where_the_log_is_not_understood(table, monkeypatch):
    table.commit(remember={"a": 1})
    monkeypatch.setattr("ternmq.pipeline.tables.deltalog.remembered", lambda _folder: None)
    assert table.all_remembered(["a", "b"]) == {"a": 1}


def test_a_log_with_a_hole_is_not_understood(table):
    for version in range(3):
        table.commit(remember={"a": version})
    assert deltalog.remembered(table.folder) == {"a": 2}
    table.folder.remove(["_delta_log/00000000000000000001.json"])
    assert deltalog.remembered(table.folder) is None
