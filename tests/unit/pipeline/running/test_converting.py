from __future__ import annotations

import itertools
import json
import tarfile
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import Transaction

from ternmq.model.errors import TableConflict, TableError
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.erase import Request, erase
from ternmq.pipeline.archive.lookup import Lookup
from ternmq.pipeline.archive.rewrite import converted
from ternmq.pipeline.archive.schema import ARCHIVE, ERASED
from ternmq.pipeline.replay.plan import plan
from ternmq.pipeline.replay.select import Selection
from ternmq.pipeline.report.data import gather
from ternmq.pipeline.running.converting import convert_tables
from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.source.choosing import choose, tasks
from ternmq.pipeline.source.reading import batches
from ternmq.pipeline.stats import kll, stats
from ternmq.pipeline.stats.schema import SHARES, STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.stats.sketches import Logs
from ternmq.pipeline.tables import deltalog, migration
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.migration import migrate
from ternmq.pipeline.tables.table import REMOVALS, Table, staged
from ternmq.pipeline.trace.lookup import TraceLookup
from ternmq.pipeline.trace.schema import SCHEDULED, TRACE

GOLDEN = Path(__file__).parents[3] / "golden" / "tables_v1.tar.xz"
"""Tables that the code of version 1 made, and their rows as it read them."""
GOLDEN_STATS = GOLDEN.with_name("stats_v2.tar.xz")
"""The same of the statistics, whose version 2 had sketches of another format."""
GOLDEN_STATS_3 = GOLDEN.with_name("stats_v3.tar.xz")
"""The same statistics in version 3, which had no lateness."""
LATENESS = ("lateness", *(f"lateness_{one}_us" for one in ("p50", "p90", "p99", "max")))
NEW = {
    "audit": ("scheduled", "cancelled", "pending", "gone", "expired_dead", "expired_dropped"),
    "audit_runs": ("entry",),
    "trace": ("transaction", "settled_by"),
    **dict.fromkeys(("stats_minute", "stats_hour", "stats_day"), LATENESS),
}
"""Columns that tables of these versions did not have: null in rows of before."""
REWRITES = {ARCHIVE.name: converted}


@pytest.fixture
def old(tmp_path) -> Folder:
    with tarfile.open(GOLDEN) as packed:
        packed.extractall(tmp_path, filter="data")
    return Folder(str(tmp_path / "tables"))


def as_told(value):
    """Return a value as the golden rows write it; days and truth values as version 1 had them."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, list | tuple):
        return [as_told(one) for one in value]
    if isinstance(value, dict):
        return {name: as_told(one) for name, one in value.items()}
    return str(value)


def in_order(rows):
    told = [{name: one for name, one in row.items() if name != "schema_version"} for row in rows]
    return sorted(told, key=lambda row: json.dumps(row, sort_keys=True))


def rows_of(table):
    return in_order(as_told(row) for row in table.read().to_pylist())


def rows_told(old, spec):
    told = json.loads((Path(old.uri).parent / "rows.json").read_text(encoding="utf-8"))
    rows = [{**dict.fromkeys(NEW.get(spec.name, ())), **row} for row in told[spec.name]["rows"]]
    if spec is TRACE:
        rows = [{**row, "open": bool(row["open"])} for row in rows]
    return in_order(rows)


def remembered_told(old, spec):
    told = json.loads((Path(old.uri).parent / "rows.json").read_text(encoding="utf-8"))
    told[spec.name]["remembered"].pop(REMOVALS, None)
    return told[spec.name]["remembered"]


SKETCHES = ("end_to_end", "handling", "keys")
"""Columns of the statistics that have another format from version 3 on."""


def without_sketches(rows):
    return in_order(
        {name: one for name, one in row.items() if name not in SKETCHES} for row in rows
    )


SPECS = [one for one in all_tables() if one is not SCHEDULED]
"""The tables that version 1 had."""
STATS = [STATS_MINUTE, STATS_HOUR, STATS_DAY]


@pytest.mark.parametrize("spec", SPECS, ids=lambda one: one.name)
def test_a_table_of_version_1_is_read_but_not_written(old, spec):
    table = Table.open(old, spec, create=False)
    assert (table.schema_version, table.outdated) == (1, True)
    if spec in STATS:  # their sketches are read as those of today
        assert without_sketches(rows_of(table)) == without_sketches(rows_told(old, spec))
        stats.merge(table.read(), STATS_DAY)
    else:
        assert rows_of(table) == rows_told(old, spec)
    for name in NEW.get(spec.name, ()):
        assert table.read([name])[name].null_count == len(table.read()), "alone, too"
    writes = f"schema version 1, and this TernMQ writes {spec.version}: run `ternmq"
    with pytest.raises(TableError, match=writes):
        table.commit(remember={"x": 1})


def test_tables_of_version_1_become_those_of_today(old):
    lines: list[str] = []
    names = convert_tables(old, progress=lambda _job, line: lines.append(line))
    assert names == [one.name for one in SPECS]
    assert lines[0] == "archive: schema version 1 becomes 2: 4 files are written again"
    for spec in SPECS:
        table = Table.open(old, spec, create=False)
        assert (table.schema_version, table.outdated) == (spec.version, False)
        if spec in STATS:
            assert without_sketches(rows_of(table)) == without_sketches(rows_told(old, spec))
        else:
            assert rows_of(table) == rows_told(old, spec)
        assert set(table.read(["schema_version"])["schema_version"].to_pylist()) <= {spec.version}
        known = deltalog.remembered(table.folder)
        assert known is not None
        assert remembered_told(old, spec).items() <= known.items()
        theirs = DeltaTable(table.folder.uri)
        assert theirs.schema() == Schema.from_arrow(spec.declared)
        assert theirs.metadata().partition_columns == list(spec.partition_by)
        assert theirs.to_pyarrow_table().num_rows == len(rows_told(old, spec))
        table.commit(remember={"x": 1})
    assert convert_tables(old) == []


@pytest.fixture
def old_stats(tmp_path) -> Folder:
    with tarfile.open(GOLDEN_STATS) as packed:
        packed.extractall(tmp_path, filter="data")
    return Folder(str(tmp_path / "tables"))


@pytest.mark.row("R9")
@pytest.mark.parametrize("spec", STATS, ids=lambda one: one.name)
def test_statistics_of_version_2_get_the_sketches_of_today(old_stats, spec):
    told = rows_told(old_stats, spec)
    before = rows_of(Table.open(old_stats, spec, create=False))
    assert convert_tables(old_stats) == [one.name for one in STATS]
    table = Table.open(old_stats, spec, create=False)
    assert (table.schema_version, table.outdated) == (spec.version, False)
    assert without_sketches(rows_of(table)) == without_sketches(told)
    assert rows_of(table) == before  # As they were read before they were converted.
    found = 0
    for row in table.read().to_pylist():
        assert row["keys"] is None
        for name in ("end_to_end", "handling"):
            if row[name] is None:
                assert row[f"{name}_max_us"] is None
                continue
            sketch = kll.unpacked(row[name])
            assert (sketch.counts.sum(), sketch.most) == (row["done"], row[f"{name}_max_us"])
            again = Logs.merged(pa.array([row[name]]), np.zeros(1, np.int64), 1)
            for shown, share in SHARES.items():
                (value,) = again.quantile(share).to_pylist()
                assert value == pytest.approx(row[f"{name}_{shown}_us"], abs=1)
            found += 1
    assert found == 6
    # The minutes add up to the hours, as before.
    minutes = Table.open(old_stats, STATS_MINUTE, create=False).read()
    hours = Table.open(old_stats, STATS_HOUR, create=False).read()
    for name in ("end_to_end", "handling"):
        assert stats.merge(minutes, STATS_HOUR)[name].to_pylist() == hours[name].to_pylist()


@pytest.mark.row("R9")
def test_the_report_reads_statistics_of_version_2_before_and_after_they_are_converted(old_stats):
    before = gather(old_stats, "2026-11-26")
    assert before.whole.counts["done"] == 843
    assert before.whole.latency.keys() == {"p50", "p90", "p99", "max"}
    assert before.keys == {"orders": 504, "quiet": 20}
    assert convert_tables(old_stats) == [one.name for one in STATS]
    assert gather(old_stats, "2026-11-26") == before


@pytest.mark.row("R9")
def test_spark_reads_the_sketches_of_version_2_in_the_format_of_today(old_stats):
    def read():
        choice = choose({"path": STATS_HOUR.name, "tables": old_stats.uri, "columns": "handling"})
        found = [
            row
            for files in tasks(choice)
            for batch in batches(choice, files)
            for row in batch.column(0).to_pylist()
        ]
        return sorted(found, key=str)

    before = read()
    assert any(one is not None and one[0] == 5 for one in before)
    convert_tables(old_stats)
    assert read() == before


@pytest.mark.row("R9")
def test_statistics_of_version_3_stay_as_they_were(tmp_path):
    with tarfile.open(GOLDEN_STATS_3) as packed:
        packed.extractall(tmp_path, filter="data")
    old = Folder(str(tmp_path / "tables"))
    told = {spec.name: rows_told(old, spec) for spec in STATS}
    for spec in STATS:
        table = Table.open(old, spec, create=False)
        assert (table.schema_version, table.outdated) == (3, True)
        assert rows_of(table) == told[spec.name]
    assert convert_tables(old) == [one.name for one in STATS]
    for spec in STATS:
        table = Table.open(old, spec, create=False)
        assert rows_of(table) == told[spec.name] != []
        assert table.read(["end_to_end"])["end_to_end"].null_count < len(table.read())


def test_files_of_the_archive_are_divided_by_day_and_have_the_topic(old):
    convert_tables(old)
    archive = Archive(old, create=False)
    assert {tuple(one.partition) for one in archive.table.files()} == {("day",)}
    assert {one.low["topic"] for one in archive.table.files()} == {"007", "bills.v1", "orders"}
    (one,) = [one for one in archive.table.files() if one.low["topic"] == "007"]
    assert (one.low["offset"], one.high["offset"], one.rows) == (0, 9, 10)


@pytest.mark.parametrize("new", [False, True])
def test_tools_that_read_take_both(old, new):
    if new:
        convert_tables(old)
    lookup = Lookup(old)
    found = lookup.by_key("seven", topic="007")
    assert {(one.topic, one.queue, one.offset) for one in found} == {
        ("007", 0, n) for n in range(10)
    }
    assert isinstance(found[0].day, date)
    assert lookup.by_key("seven", topic="orders") == []
    at = lookup.at("bills.v1", 0, 3)
    assert at is not None
    assert (at.topic, at.body) == ("bills.v1", b"b3")
    assert lookup.at("007", 0, 10) is None
    lookup.close()
    assert [(one.queue, one.rows) for one in plan(old, Selection("007"))] == [(0, 10)]
    rows = TraceLookup(old).at("orders", 0, 0)
    assert {row["group"] for row in rows} == {"billing", "mail"}
    assert all(isinstance(row["open"], bool) for row in rows)


def test_an_erasure_needs_the_new_version(old):
    request = Request("e2", keys=("seven",))
    with pytest.raises(TableError, match="run `ternmq pipeline run` once"):
        erase(Archive(old, create=False), Table.open(old, ERASED), request, 1)
    convert_tables(old)
    done = erase(Archive(old, create=False), Table.open(old, ERASED), request, 1)
    assert done.messages == 10
    # The files of version 1, which were replaced, are searched too.
    assert not list(Path(old.uri).glob("archive/topic=007/**/*.parquet"))


class Killed(BaseException):
    """Ends the process, as far as these tests are concerned."""


def cut_after(steps):
    """Return a ``Spreading`` that is killed after a number of files."""

    def spreading(convert, files):
        for number, file in enumerate(files):
            if number == steps:
                raise Killed
            yield convert(file)

    return spreading


@pytest.mark.parametrize("steps", range(4))
def test_killed_while_it_writes_files(old, steps):
    table = Table.open(old, ARCHIVE, create=False)
    with pytest.raises(Killed):
        migrate(table, REWRITES, cut_after(steps))
    again = Table.open(old, ARCHIVE, create=False)
    assert again.outdated
    assert rows_of(again) == rows_told(old, ARCHIVE)
    assert {one.path for one in again.files()} <= {one.path for one in again.folder.list()}
    assert migrate(again, REWRITES)
    assert rows_of(again) == rows_told(old, ARCHIVE)


@pytest.mark.parametrize("spec", [ARCHIVE, TRACE], ids=lambda one: one.name)
@pytest.mark.parametrize("step", range(4))
def test_killed_between_commits(old, spec, step, monkeypatch):
    """After the fence, the new schema, the new files, the new version: nothing is lost."""
    table = Table.open(old, spec, create=False)
    real, calls = Folder.sync_log, itertools.count()

    def sync_log(self):
        real(self)
        if next(calls) == step:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "sync_log", sync_log)
        with pytest.raises(Killed):
            migrate(table, REWRITES)
    again = Table.open(old, spec, create=False)
    assert again.outdated == (step < 3)
    assert rows_of(again) == rows_told(old, spec)
    assert migrate(again, REWRITES) == (step < 3)
    assert (again.outdated, rows_of(again)) == (False, rows_told(old, spec))
    known = deltalog.remembered(again.folder)
    assert known is not None
    assert remembered_told(old, spec).items() <= known.items()
    assert rows_of(Table.open(old, spec, create=False)) == rows_told(old, spec)


def test_a_program_of_version_1_that_was_about_to_commit_does_not(old):
    theirs = DeltaTable(old.inside(ARCHIVE.name).uri)
    table = Table.open(old, ARCHIVE, create=False)
    migration.fence(table)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        theirs.create_write_transaction(
            [], "append", theirs.schema(), ["topic", "day"],
            commit_properties=migration_numbers(),
        )  # fmt: skip
    assert theirs.metadata().configuration["ternmq.schema_version"] == "1"
    assert DeltaTable(table.folder.uri).metadata().configuration["ternmq.schema_version"] == "2"


def migration_numbers():
    from deltalake.transaction import CommitProperties

    return CommitProperties(app_transactions=[Transaction("archive/1-0", 99)])


def test_two_convert_at_once(old):
    ours, theirs = (Table.open(old, ARCHIVE, create=False) for _ in range(2))

    def spreading(convert, files):
        if theirs.outdated:
            migrate(theirs, REWRITES)
        return map(convert, files)

    assert migrate(ours, REWRITES, spreading)
    assert rows_of(ours) == rows_told(old, ARCHIVE)
    on_disk = {one.path for one in ours.folder.list() if one.path.startswith("day=")}
    assert on_disk == {one.path for one in ours.files()}


def test_others_that_always_change_it_end_the_attempt(old, monkeypatch):
    table = Table.open(old, ARCHIVE, create=False)

    def conflict(table, files, fenced):
        raise TableConflict("somebody was first")

    monkeypatch.setattr(migration, "_supersede", conflict)
    with pytest.raises(TableConflict):
        migrate(table, REWRITES)
    monkeypatch.undo()
    assert migrate(table, REWRITES)


def test_files_with_other_rows_than_the_table_says_replace_nothing(old, monkeypatch):
    table = Table.open(old, TRACE, create=False)
    monkeypatch.setattr(migration, "staged", lambda *given: staged(*given)[:0])
    with pytest.raises(TableError, match=r"do not have the \d+ rows"):
        migrate(table, REWRITES)
    assert rows_of(Table.open(old, TRACE, create=False)) == rows_told(old, TRACE)


def test_a_stop_ends_it_between_files(old):
    class Stop(Exception):
        pass

    def check():
        raise Stop

    with pytest.raises(Stop):
        convert_tables(old, check=check)
    table = Table.open(old, ARCHIVE, create=False)
    assert table.outdated
    assert rows_of(table) == rows_told(old, ARCHIVE)


def test_a_table_that_another_has_converted_is_not_fenced_again(old):
    ours, theirs = (Table.open(old, TRACE, create=False) for _ in range(2))
    assert migrate(theirs, REWRITES)
    with pytest.raises(TableConflict, match="it was converted just now"):
        migration.fence(ours)
    assert not ours.outdated
    assert not Table.open(old, TRACE, create=False).outdated
