"""The job that looks after tables, and how they are said to stand."""

from __future__ import annotations

from typing import cast

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.client.bulk import Bulk
from ternmq.client.connection.address import Address
from ternmq.model.specs import TopicSpec
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.compaction_job import Compacting
from ternmq.pipeline.archive.ranges import write_range
from ternmq.pipeline.archive.schema import ARCHIVE, ERASED
from ternmq.pipeline.job.job import Context, told
from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.running.status import behind, statuses
from ternmq.spark.broker.connecting import Broker
from ternmq.wire.control import QueueInfo, TopicInfo
from tests.unit.pipeline.made import DAY, NOON, in_batches, span


def archived(tables, *spans, stored=NOON):
    archive = Archive(tables)
    for one in spans:
        rows = in_batches(one.start, one.stop, one.queue, stored=stored)
        archive.commit([write_range(archive.table.folder, one, rows)], NOON)
    return archive


class Away:
    """A broker that nothing is asked of."""


def run(tables, now_us=NOON, clock_us=None, **given):
    job = Compacting(all_tables())
    settings = told(job, {name: str(value) for name, value in given.items()})
    context = Context(
        "compaction",
        tables,
        Broker((Address("h", 1),)),
        cast("Bulk", Away()),
        now_us,
        settings=settings,
        clock_us=clock_us,
    )
    return job.run(context)


def test_days_that_are_over_are_joined(tables):
    archive = archived(tables, *(span(at, at + 10) for at in range(0, 50, 10)), stored=NOON - DAY)
    assert len(archive.table.files()) == 5
    assert run(tables).rows == 50
    archive.table.refresh()
    assert len(archive.table.files()) == 1
    assert run(tables).rows == 0


def test_files_that_no_table_has_go_once_in_a_while(tables):
    archive = archived(tables, span(0, 10))
    left = archive.table.folder

    def leave(name):
        left.begin(name).close()
        left.finish(name)

    leave("x-7-0-1-2-a.parquet")
    run(tables, NOON + 40_000 * DAY)
    assert left.size("x-7-0-1-2-a.parquet") is None
    leave("x-7-0-1-2-b.parquet")
    run(tables, NOON + 40_000 * DAY)
    assert left.size("x-7-0-1-2-b.parquet") == 0
    run(tables, NOON + 40_001 * DAY)
    assert left.size("x-7-0-1-2-b.parquet") is None


def test_what_is_too_old_leaves_only_if_that_was_said(tables):
    archive = archived(tables, span(0, 10), stored=NOON - 10 * DAY)
    run(tables)
    archive.table.refresh()
    assert len(archive.table.files()) == 1
    run(tables, keep_archive_days=9)
    archive.table.refresh()
    assert archive.table.files() == []


def test_a_run_for_a_later_time_removes_nothing_early(tables):
    archive = archived(tables, span(0, 10), stored=NOON - 5 * DAY)
    left = archive.table.folder
    left.begin("x-7-0-1-2-a.parquet").close()
    left.finish("x-7-0-1-2-a.parquet")
    later, written = NOON + 40_000 * DAY, next(iter(left.list())).changed_us
    run(tables, later, clock_us=min(NOON, written), keep_archive_days=9)
    archive.table.refresh()
    assert len(archive.table.files()) == 1
    assert left.size("x-7-0-1-2-a.parquet") == 0
    run(tables, later, clock_us=later, keep_archive_days=9)
    archive.table.refresh()
    assert archive.table.files() == []
    assert left.size("x-7-0-1-2-a.parquet") is None


def test_nothing_is_made_where_there_is_nothing(tables):
    assert run(tables).rows == 0
    assert not tables.exists()


def test_how_tables_stand(tables):
    archived(tables, span(0, 10), span(10, 30))
    (found,) = statuses([ARCHIVE, ERASED], tables)
    assert (found.name, found.rows, found.files, found.commits) == ("archive", 30, 2, 2)
    assert (found.first, found.last) == ("2026-11-21", "2026-11-21")
    assert (found.stored_us, found.position) == (NOON + 29_000, 4096 + 2900)


def test_how_far_behind_the_archive_is(tables):
    topics = [
        TopicInfo(
            number=7,
            spec=TopicSpec(name="orders"),
            queues=[QueueInfo(first=0, next=40), QueueInfo(first=5, next=9)],
            groups=[],
        ),
        TopicInfo(
            number=1, spec=TopicSpec(name="$own"), queues=[QueueInfo(first=0, next=1)], groups=[]
        ),
    ]
    assert behind(tables, topics) == {}
    archived(tables, span(0, 30))
    assert behind(tables, topics) == {"orders": 14}
