from __future__ import annotations

import time

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")


from ternmq.model.errors import InvalidRequest, TableError
from ternmq.pipeline.archive import compaction, rewrite
from ternmq.pipeline.archive.commit import Archive, ArchivedQueue
from ternmq.pipeline.archive.compaction import Compacted, When, compact
from ternmq.pipeline.archive.expiring import expire_topic
from ternmq.pipeline.archive.file import Sizes, named_rows
from ternmq.pipeline.archive.schema import GAPS
from ternmq.pipeline.tables.cleaning import DAY_US, clean
from ternmq.pipeline.tables.retention import expire
from ternmq.pipeline.tables.table import Table
from tests.unit.pipeline import made
from tests.unit.pipeline.kept import NOW, files_known, files_there, fill, places, rows

LARGE = Sizes()


def real_now():
    return time.time_ns() // 1000


@pytest.fixture
def archive(tables):
    return Archive(tables)


def spans(archive, queue=0):
    files = [named_rows(one.path) for one in archive.table.files()]
    return sorted((one.start, one.stop) for one in files if one and one.queue == queue)


# -- compaction


def test_small_files_become_one_with_the_same_rows(archive):
    for at in range(0, 100, 10):
        fill(archive, at, at + 10)
        fill(archive, at, at + 10, 1)
    before = rows(archive)
    done = compact(archive.table, NOW)
    assert done == Compacted(before=20, after=2, rows=200)
    assert rows(archive) == before
    assert spans(archive) == spans(archive, 1) == [(0, 100)]
    assert archive.stands(ArchivedQueue("orders", 7, 0)) == 100
    assert compact(archive.table, NOW) == Compacted()


def test_days_topics_and_topics_of_the_same_name_stay_apart(archive):
    for at in range(0, 40, 10):
        fill(archive, at, at + 10, stored=made.NOON - made.DAY)
        fill(archive, at, at + 10, 0, "bills", 8, stored=made.NOON - made.DAY)
        fill(archive, at, at + 10, number=9, stored=made.NOON - made.DAY)
    before = places(archive)
    assert compact(archive.table, NOW).after == 3
    assert sorted(places(archive)) == sorted(before)
    assert len(archive.table.files()) == 3


def test_of_a_day_that_is_not_over_only_when_there_are_many(archive):
    for at in range(0, 50, 10):
        fill(archive, at, at + 10)
    assert compact(archive.table, made.NOON + 5, when=When(files=6)) == Compacted()
    assert compact(archive.table, made.NOON + 5, when=When(files=5)).before == 5


def test_large_files_stay_and_what_would_be_too_large_is_divided(archive):
    fill(archive, 0, 50)
    fill(archive, 50, 1000, sizes=LARGE)
    for at in range(1000, 1100, 25):
        fill(archive, at, at + 25)
    small = max(one.size for one in archive.table.files() if one.rows < 900) + 1
    done = compact(archive.table, NOW, when=When(small_bytes=small), sizes=Sizes(file_rows=60))
    assert (done.before, done.after) == (4, 2)
    assert spans(archive) == [(0, 50), (50, 1000), (1000, 1050), (1050, 1100)]


def test_one_topic_only(archive):
    for at in range(0, 30, 10):
        fill(archive, at, at + 10)
        fill(archive, at, at + 10, 0, "bills", 8)
    assert compact(archive.table, NOW, topic="payments") == Compacted()
    assert compact(archive.table, NOW, topic="bills").before == 3
    assert len(spans(archive)) == 3 + 1


def test_somebody_archives_meanwhile(archive, tables, monkeypatch):
    for at in range(0, 30, 10):
        fill(archive, at, at + 10)
    other = Archive(tables)
    real = rewrite.rewritten

    def slow(*args, **named):
        fill(other, 30, 40)
        return real(*args, **named)

    monkeypatch.setattr(compaction, "rewritten", slow)
    assert compact(archive.table, NOW).before == 3
    assert places(archive) == [("orders", 0, n) for n in range(40)]


def test_somebody_compacts_the_same_meanwhile(archive, tables, monkeypatch):
    for at in range(0, 30, 10):
        fill(archive, at, at + 10)
    other = Archive(tables)
    real = rewrite.rewritten

    def slow(*args, **named):
        monkeypatch.setattr(compaction, "rewritten", real)
        compact(other.table, NOW)
        return real(*args, **named)

    monkeypatch.setattr(compaction, "rewritten", slow)
    done = compact(archive.table, NOW)
    assert (done.before, done.left) == (0, 1)
    assert places(archive) == [("orders", 0, n) for n in range(30)]
    assert len(files_there(archive) - files_known(archive)) == 3  # the old ones; none of the loser


def test_a_failure_on_the_way_leaves_the_table_as_it_is(archive, monkeypatch):
    for at in range(0, 30, 10):
        fill(archive, at, at + 10)
    there = files_there(archive)

    def failing(*_args, **_named):
        raise OSError("full")

    monkeypatch.setattr(archive.table, "commit", failing)
    with pytest.raises(OSError, match="full"):
        compact(archive.table, NOW)
    assert files_there(archive) == files_known(archive) == there


def test_a_file_that_holds_other_rows_than_the_log_says_is_not_compacted(archive, monkeypatch):
    for at in range(0, 30, 10):
        fill(archive, at, at + 10)
    real = rewrite.rewritten

    def short(folder, files, **named):
        return real(folder, files[:-1], **named)

    monkeypatch.setattr(compaction, "rewritten", short)
    with pytest.raises(TableError, match="another number of rows"):
        compact(archive.table, NOW)
    assert places(archive) == [("orders", 0, n) for n in range(30)]


# -- cleaning


def test_files_that_were_replaced_go_after_a_while(archive):
    for at in range(0, 30, 10):
        fill(archive, at, at + 10)
    compact(archive.table, NOW)
    assert len(files_there(archive)) == 4
    assert clean(archive.table, real_now()).files == 0
    done = clean(archive.table, real_now() + DAY_US + 1)
    assert (done.files, done.bytes > 0) == (3, True)
    assert files_there(archive) == files_known(archive)
    assert places(archive) == [("orders", 0, n) for n in range(30)]


def test_an_old_file_that_was_replaced_just_now_stays_for_its_readers(archive, monkeypatch):
    for at in range(0, 30, 10):
        fill(archive, at, at + 10)
    compact(archive.table, NOW)
    listed = archive.table.folder.list

    def aged(under=""):
        for one in listed(under):
            yield one if one.path.startswith("_delta_log") else made.older(one, 10 * DAY_US)

    monkeypatch.setattr(archive.table.folder, "list", aged)
    assert clean(archive.table, real_now()).files == 0


def test_what_a_killed_task_left_goes_after_a_while(archive):
    fill(archive, 0, 10)
    archive.table.folder.begin("topic=orders/day=2026-11-21/orders-7-0-1-1-00.parquet").close()
    archive.table.folder.begin("topic=x/other.parquet").close()
    assert clean(archive.table, real_now()).files == 0
    assert clean(archive.table, real_now() + DAY_US + 1).files == 2
    assert places(archive) == [("orders", 0, n) for n in range(10)]


# -- retention


def test_old_days_leave_and_do_not_come_again(archive):
    fill(archive, 0, 8, stored=made.NOON, step=made.DAY // 2)  # 21st, 22nd, 22nd, ... 25th
    now = made.NOON + 4 * made.DAY  # the 25th
    gone = expire(archive.table, now, 2)
    assert sorted({one.partition["day"] for one in gone}) == ["2026-11-21", "2026-11-22"]
    assert sorted({str(row["day"]) for row in rows(archive)}) == [
        "2026-11-23", "2026-11-24", "2026-11-25",
    ]  # fmt: skip
    assert archive.stands(ArchivedQueue("orders", 7, 0)) == 8
    assert fill(archive, 0, 8, stored=made.NOON, step=made.DAY // 2).skipped == 1
    assert expire(archive.table, now, 2) == []


def test_days_of_one_topic_only(archive):
    fill(archive, 0, 5)
    fill(archive, 0, 5, 0, "bills", 8)
    expire_topic(archive.table, NOW + made.DAY, 0, "bills")
    assert {row["topic"] for row in rows(archive)} == {"orders"}


def test_a_table_without_days(tables, archive):
    with pytest.raises(InvalidRequest, match="archive_gaps"):
        expire(Table.open(tables, GAPS), NOW, 1)
    with pytest.raises(InvalidRequest, match="0 or more"):
        expire(archive.table, NOW, -1)
