"""Statistics and dead letters of a real broker, by their jobs."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.deadletters.deadletters import (
    DEAD_LETTERS,
    fingerprint,
    places,
    redrive,
    rows_since,
)
from ternmq.pipeline.deadletters.job import DeadLettersJob
from ternmq.pipeline.stats.job import StatsJob
from ternmq.pipeline.stats.schema import STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import TRACE
from tests.integration import living


@pytest.fixture
def tables(tmp_path):
    return Folder(str(tmp_path / "tables"))


def added(tables, spec, column, **chosen):
    rows = Table.open(tables, spec, create=False).read().to_pylist()
    return sum(
        row[column] or 0
        for row in rows
        if all(row[name] == value for name, value in chosen.items())
    )


def dead(real):
    rows = living.reference(real).told().values()
    return sum(one[3] == "dead" for row in rows for one in row["failures"])


@pytest.mark.row("R9")
def test_hours_and_days_say_the_same_as_minutes(real, tables):
    living.first_day(real)
    with Bulk(BulkOptions(url=real.url)) as bulk:
        ArchiveJob(bulk, Archive(tables)).once(time.time_ns() // 1000)
    living.run(real, tables, TraceJob())
    living.run(real, tables, StatsJob())
    living.second_day(real)
    living.run(real, tables, TraceJob())
    done = living.run(real, tables, StatsJob())
    assert done.rows
    assert living.run(real, tables, StatsJob()).rows == 0
    with ternmq.sync.connect(real.url) as client:
        behind = {
            one.group: sum(queue.end - queue.cursor for queue in one.queues)
            for one in client.admin.groups("orders")
        }
    for spec in (STATS_MINUTE, STATS_HOUR, STATS_DAY):
        assert added(tables, spec, "stored", topic="orders") == 273
        assert added(tables, spec, "stored", topic="quiet") == 1
        assert added(tables, spec, "dead", group="billing") == dead(real) > 0
        rows = Table.open(tables, spec).read().to_pylist()
        last = [row for row in rows if row["group"] == "billing" and row["lag"] is not None][-1]
        assert last["lag"] == behind["billing"]
    (day,) = [
        row
        for row in Table.open(tables, STATS_DAY).read().to_pylist()
        if row["topic"] == "orders" and row["group"] is None
    ]
    assert day["distinct_keys"] == 30


@pytest.mark.row("R13")
def test_dead_letters_by_cause_and_handed_out_again(real, tables):
    living.first_day(real)
    living.run(real, tables, TraceJob())
    now = time.time_ns() // 1000
    living.run(real, tables, DeadLettersJob(), now=now)
    (row,) = Table.open(tables, DEAD_LETTERS).read().to_pylist()
    assert (row["exception"], row["message"]) == ("TypeError", "row <number> is broken")
    assert (row["count"], len(row["sample_ids"]), row["day_before"]) == (dead(real), 5, 0)
    assert living.run(real, tables, DeadLettersJob(), now=now).rows == 0
    wanted = fingerprint(row["sample_reason"], row["cause"]).id
    trace = Table.open(tables, TRACE)
    lying = places(rows_since(trace, 0), "orders", "billing", wanted)
    with ternmq.sync.connect(real.url) as client:
        redriven = redrive(client.deadletters, "orders", "billing", lying)
        assert len(redriven) == len(lying) == row["count"]
    living.run(real, tables, TraceJob())
    trace.refresh()
    assert places(rows_since(trace, 0), "orders", "billing", wanted) == []
