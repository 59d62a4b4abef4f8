from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from pathlib import Path

import pyarrow.parquet as pq

from ternmq.model.errors import InvalidRequest
from ternmq.pipeline.archive import erase as erasing
from ternmq.pipeline.archive import rewrite
from ternmq.pipeline.archive.commit import Archive, ArchivedQueue
from ternmq.pipeline.archive.compaction import compact
from ternmq.pipeline.archive.erase import Request, erase, find
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.lookup import Lookup
from ternmq.pipeline.archive.ranges import OpenFiles, RangeWriter, write_range
from ternmq.pipeline.archive.schema import ERASED
from ternmq.pipeline.tables.table import Table
from tests.unit.pipeline import made
from tests.unit.pipeline.kept import NOW, files_known, files_there, fill, places, rows

SECRET = b"SECRETBODY"
"""Short and without repetition, so that it is not compressed away."""


@pytest.fixture
def archive(tables):
    return Archive(tables)


@pytest.fixture
def erased(tables):
    return Table.open(tables, ERASED)


def with_secret(start, stop, where, key="secret-key"):
    """Return columns in which some rows are to be erased."""
    given = made.rows(start, stop).to_pydict()
    return {
        "body": [SECRET if n in where else b"plain" for n in range(start, stop)],
        "key": [
            key if n in where else k for n, k in zip(range(start, stop), given["key"], strict=True)
        ],
    }


def put(archive, start, stop, where, **given):
    span = made.span(start, stop)
    batch = made.rows(start, stop, **with_secret(start, stop, where), **given)
    written = write_range(archive.table.folder, span, [batch], durable=False)
    archive.commit([written], made.NOON)


def bytes_of(tables):
    """Return every byte of every file, and every value of every Parquet file."""
    found = b""
    for path in Path(tables.uri).rglob("*"):
        if path.is_file():
            found += path.read_bytes()
            if path.suffix == ".parquet":
                found += repr(pq.ParquetFile(path).read().to_pylist()).encode()
    return found


BY_KEY = Request("r-1", keys=("secret-key",), reason="asked for")


@pytest.mark.row("R11")
def test_no_byte_of_the_body_is_left(archive, erased, tables):
    put(archive, 0, 100, {7, 63})
    put(archive, 100, 150, {120})
    put(archive, 150, 170, set())
    assert SECRET in bytes_of(tables)
    done = erase(archive, erased, BY_KEY, NOW)
    assert (done.messages, done.noted, done.files) == (3, 3, 2)
    assert done.stands == {ArchivedQueue("orders", 7, 0): 170}
    assert SECRET not in bytes_of(tables)
    assert b"secret-key" not in bytes_of(tables)
    assert [row["offset"] for row in rows(archive)] == [
        n for n in range(170) if n not in {7, 63, 120}
    ]
    assert files_there(archive) == files_known(archive)


@pytest.mark.row("R11")
def test_what_was_erased_is_noted_without_what_it_said(archive, erased):
    put(archive, 0, 10, {4})
    erase(archive, erased, BY_KEY, NOW)
    (row,) = erased.read().to_pylist()
    assert (row["topic"], row["queue"], row["offset"]) == ("orders", 0, 4)
    assert row["message_id"] == "0000000000001234:5"
    assert (row["request"], row["reason"]) == ("r-1", "asked for")
    assert int(row["erased_time"].timestamp()) == NOW // 1_000_000
    assert "secret" not in str(row)


def test_all_ways_to_name_messages(archive, erased):
    fill(archive, 0, 100)
    request = Request(
        "r", keys=("key-3",), message_ids=("0000000000001234:6",), application_ids=("app-0-77",)
    )
    assert sorted(find(archive, request)["offset"].to_pylist()) == sorted(
        {*range(3, 100, 10), 5, 77}
    )
    assert len(places(archive)) == 100  # finding is a dry run
    assert erase(archive, erased, request, NOW).messages == 12
    assert len(places(archive)) == 88


def test_one_topic_only(archive, erased):
    fill(archive, 0, 10)
    fill(archive, 0, 10, 0, "bills", 8)
    erase(archive, erased, Request("r", keys=("key-3",), topic="bills"), NOW)
    assert ("orders", 0, 3) in places(archive)
    assert ("bills", 0, 3) not in places(archive)


def test_a_file_of_which_nothing_is_left(archive, erased):
    put(archive, 0, 3, {0, 1, 2})
    assert erase(archive, erased, BY_KEY, NOW).messages == 3
    assert (places(archive), files_there(archive)) == ([], set())
    assert archive.stands(ArchivedQueue("orders", 7, 0)) == 3


def test_a_key_that_nothing_has(archive, erased):
    fill(archive, 0, 10)
    before = archive.table.version
    done = erase(archive, erased, BY_KEY, NOW)
    assert (done.messages, done.files, done.removed) == (0, 0, 0)
    assert archive.table.version == before


def test_again_is_no_more(archive, erased):
    put(archive, 0, 10, {4})
    erase(archive, erased, BY_KEY, NOW)
    done = erase(archive, erased, BY_KEY, NOW + 1)
    assert (done.messages, done.noted) == (0, 0)
    assert len(erased.read()) == 1


@pytest.mark.row("R11")
@pytest.mark.parametrize("step", ["_without", "_remove", "rewritten", "commit"])
def test_a_crash_at_any_step_and_again(archive, erased, tables, monkeypatch, step):
    put(archive, 0, 10, {4})

    def crash(*_args, **_named):
        raise OSError("power")

    with monkeypatch.context() as patch:
        if step == "commit":
            patch.setattr(archive.table, "commit", crash)
        else:
            patch.setattr(erasing, step, crash)
        with pytest.raises(OSError, match="power"):
            erase(archive, erased, BY_KEY, NOW)
    erase(Archive(tables), erased, BY_KEY, NOW)
    assert SECRET not in bytes_of(tables)
    assert len(erased.read()) == 1
    assert len(places(archive)) == 9


@pytest.mark.row("R11")
def test_files_that_compaction_replaced_and_tasks_gave_up_are_searched_too(archive, erased, tables):
    put(archive, 0, 10, {4})
    put(archive, 10, 20, {15})
    compact(archive.table, NOW)
    # A second attempt at a range that was committed, one of an overlap, and one that was killed.
    batch = made.rows(0, 30, **with_secret(0, 30, {4, 15}))
    write_range(archive.table.folder, made.span(0, 10), [batch.slice(0, 10)])
    write_range(archive.table.folder, made.span(0, 30), [batch])
    span = made.span(0, 30)
    killed = OpenFiles(archive.table.folder, span.place, Sizes(), durable=False)
    RangeWriter(killed, span).write(batch)
    erase(archive, erased, BY_KEY, NOW)
    assert SECRET not in bytes_of(tables)
    assert files_there(archive) == files_known(archive)
    killed.abandon()


def test_a_file_that_may_still_be_committed_stays(archive, erased):
    put(archive, 0, 10, {4})
    ahead = write_range(archive.table.folder, made.span(10, 20), [made.rows(10, 20)])
    other = write_range(archive.table.folder, made.span(0, 5, 1), [made.rows(0, 5, 1)])
    erase(archive, erased, BY_KEY, NOW)
    archive.commit([ahead, other], NOW)
    assert len(places(archive)) == 24


def test_somebody_compacts_meanwhile(archive, erased, tables, monkeypatch):
    put(archive, 0, 10, {4})
    put(archive, 10, 20, {15})
    other = Archive(tables)
    real = rewrite.rewritten

    def slow(*args, **named):
        monkeypatch.setattr(erasing, "rewritten", real)
        compact(other.table, NOW)
        return real(*args, **named)

    monkeypatch.setattr(erasing, "rewritten", slow)
    assert erase(archive, erased, BY_KEY, NOW).messages == 2
    assert SECRET not in bytes_of(tables)
    assert len(places(archive)) == 18
    assert len(erased.read()) == 2


def test_it_is_not_found_any_more(archive, erased, tables):
    put(archive, 0, 10, {4})
    lookup = Lookup(tables)
    assert lookup.by_key("secret-key")
    erase(archive, erased, BY_KEY, NOW)
    lookup.refresh()
    assert lookup.by_key("secret-key") == []
    assert lookup.by_id("0000000000001234:5") is None
    assert lookup.by_id("0000000000001234:6") is not None


@pytest.mark.parametrize("keys", [(), ("k",) * 10_001])
def test_a_request_that_names_nothing_or_too_much(keys):
    with pytest.raises(InvalidRequest, match="1 to 10000"):
        Request("r", keys=keys)
