"""The audit of scheduled messages of a real broker: neither late nor double; all accounted for."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from contextlib import closing

import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.audit.schema import RUNS
from ternmq.pipeline.tables.table import Table
from tests.integration.auditing import LATER_US, Audit
from tests.integration.scheduling import Scheduler

SECOND = 1_000_000
DAY = 86_400 * SECOND


@pytest.fixture
def audit(timed, tmp_path):
    return Audit(timed.port, tmp_path / "tables")


def archive(audit, now):
    with closing(Bulk(BulkOptions(url=f"ternmq://127.0.0.1:{audit.port}"))) as bulk:
        ArchiveJob(bulk, Archive(audit.tables)).once(now)


def judged(audit, timed):
    now = timed.clock.wall_us()
    archive(audit, now)
    return audit.run(now, clock=now)


@pytest.mark.row("R8")
def test_messages_that_are_due_after_weeks_are_neither_late_nor_double(timed, audit):
    start = timed.clock.wall_us()
    with ternmq.sync.connect(timed.url) as client:
        client.admin.create_topic("orders")
        producer = Scheduler(timed.port)
        producer.send("orders", [start + 40 * DAY] * 5 + [start + 50 * DAY], start)
        producer.send("orders", [start + 5 * SECOND], start)
        producer.send("orders", [0], start)
        timed.clock.advance(seconds=5)
        client.pull("orders", group="billing", max_messages=10).ack()
        timed.clock.advance(seconds=LATER_US / SECOND)
        outcome = judged(audit, timed)
        assert audit.verdicts() == {"ok"}
        assert audit.total("stored") == audit.total("sent") == 8
        due = {row["bucket"]: row for row in audit.rows(tier="due")}
        assert [(row["scheduled"], row["delivered"], row["pending"], row["verdict"], row["final"])
                for _, row in sorted(due.items())] == [
            (1, 1, 0, "ok", True), (5, 0, 5, "open", False), (1, 0, 1, "open", False),
        ]  # fmt: skip
        assert outcome.findings == audit.findings() == []
        timed.clock.advance(days=20)
        judged(audit, timed)
        assert audit.total("pending", "due") == 6, "what is pending is kept for longer than a week"
        timed.clock.advance(days=20, seconds=LATER_US / SECOND)
        client.pull("orders", group="billing", max_messages=10)
        outcome = judged(audit, timed)
    verdicts = [row["verdict"] for row in sorted(audit.rows(tier="due"), key=lambda r: r["bucket"])]
    assert verdicts == ["ok", "ok", "open"]
    assert outcome.findings == audit.findings() == []
    assert audit.verdicts("archive") == {"ok"}
    assert audit.total("archived", "archive") == audit.total("stored", "archive") == 7
    assert audit.total("stored", "group") == 7


@pytest.mark.row("R8")
def test_rows_that_are_due_when_the_broker_was_down_are_late_and_not_lost(timed, audit):
    start = timed.clock.wall_us()
    with ternmq.sync.connect(timed.url) as client:
        client.admin.create_topic("orders")
    ids = Scheduler(timed.port).send("orders", [start + 600 * SECOND], start)
    judged(audit, timed)
    timed.stop()
    timed.clock.advance(days=45)
    timed.start()
    timed.clock.advance(seconds=1)
    outcome = judged(audit, timed)
    (one,) = audit.rows(tier="due")
    assert (one["verdict"], one["delivered"], one["late"], one["lost"]) == ("late", 1, 1, 0)
    assert audit.named("late") == ids
    assert any("late" in line for line in outcome.findings)
    timed.clock.advance(seconds=1)
    judged(audit, timed)
    runs = Table.open(audit.tables, RUNS, create=False).read()
    assert "owed" not in runs["kind"].to_pylist(), "what is over is forgotten"


@pytest.mark.row("R8")
def test_what_a_deleted_topic_took_with_it_is_gone(timed, audit):
    start = timed.clock.wall_us()
    with ternmq.sync.connect(timed.url) as client:
        client.admin.create_topic("orders")
        Scheduler(timed.port).send("orders", [start + DAY, start + DAY], start)
        client.admin.delete_topic("orders")
    timed.clock.advance(days=1, seconds=LATER_US / SECOND)
    outcome = judged(audit, timed)
    (one,) = audit.rows(tier="due")
    assert (one["verdict"], one["gone"], one["lost"]) == ("ok", 2, 0)
    assert outcome.findings == audit.findings() == []
