"""Scheduled messages in the tables: Spark's workers write the same as a process alone."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

import ternmq
import ternmq.sync
from ternmq.journal.disk.real import RealDisk
from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import SCHEDULED, TRACE
from ternmq.spark.journal.events import SCHEMA_VERSION
from ternmq.testing import broker
from tests.integration import living
from tests.integration.auditing import LATER_US, Audit
from tests.integration.scheduling import LATER_S, Scheduler, at_the_time_of_clients
from tests.unit.pipeline.due_streams import of_scheduled
from tests.unit.pipeline.trace_reference import of_table

SECOND = 1_000_000
DAY = 86_400 * SECOND


@pytest.fixture
def timed(tmp_path):
    """Run a broker whose time the test moves, on files that Spark can read."""
    (tmp_path / "data").mkdir()
    with broker(disk=RealDisk(str(tmp_path / "data"))) as one:
        yield one


def scheduled(timed):
    """Schedule messages for a moment later and for days later, and on a topic that goes."""
    start = timed.clock.wall_us()
    producer = Scheduler(timed.port)
    with ternmq.sync.connect(timed.url) as client:
        for name in ("orders", "gone"):
            client.admin.create_topic(name)
    producer.send("orders", [start + 5 * SECOND] * 3 + [start + 2 * DAY], start, name="id-")
    producer.send("orders", [start + 5 * SECOND, start + 2 * DAY], start)
    producer.send("orders", [0, 0], start)
    producer.send("gone", [start + DAY, start + 2 * DAY], start)
    return start


@contextmanager
def in_transactions(timed):
    """Schedule messages in a transaction; yield another one, which is undecided."""
    with ternmq.sync.connect(timed.url) as client:
        client.admin.create_topic("orders")
        client.checker("pay")(lambda tx: ternmq.Decision.UNKNOWN)
        with client.transaction("pay", query_id="one") as tx:
            tx.send_many("orders", [ternmq.Message(b"x", deliver_after=5 + n) for n in range(3)])
            tx.send("orders", b"at once")
        with client.transaction("pay", query_id="two") as tx:
            tx.send_many("orders", [ternmq.Message(b"y", deliver_after=5 + n) for n in range(2)])
            yield tx


@pytest.mark.row("R7", "R8", "R9")
def test_what_transactions_schedule_by_workers_is_as_in_process(spark, timed, tmp_path):
    """One is decided in a later round than that in which its rows were prepared."""
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    by_spark, here = Audit(timed.port, tmp_path / "spark"), Audit(timed.port, tmp_path / "here")
    at_the_time_of_clients(timed)
    with in_transactions(timed) as undecided:
        for seconds in (1, 20, LATER_S):
            now = timed.clock.wall_us()
            living.run(timed, one, TraceJob(), spark=spark, spark_bytes=0)
            living.run(timed, two, TraceJob())
            by_spark.run(now, spark=spark, clock=now, spark_from_mb="0")
            here.run(now, clock=now)
            if seconds == 1:
                undecided.commit()
            timed.clock.advance(seconds=seconds)
        now = timed.clock.wall_us()
        living.run(timed, one, TraceJob(), spark=spark, spark_bytes=0)
        living.run(timed, two, TraceJob())
        by_spark.run(now, spark=spark, clock=now, spark_from_mb="0")
        here.run(now, clock=now)
    found = rows(one, SCHEDULED, "entry")
    assert found == rows(two, SCHEDULED, "entry")
    assert [row["state"] for row in found] == ["delivered"] * 5
    assert len({row["message_id"] for row in found} - {None}) == 5
    assert len({row["transaction"] for row in found}) == 2
    assert rows(one, TRACE, "offset") == rows(two, TRACE, "offset")
    assert by_spark.rows() == here.rows()
    assert by_spark.findings() == here.findings() == []
    assert here.verdicts() == here.verdicts("due") == {"ok"}
    assert here.total("delivered", "due") == here.total("scheduled", "due") == 5


@pytest.mark.row("R5")
def test_the_sender_of_what_a_transaction_schedules_is_found_in_the_journal(spark, timed, tmp_path):
    with in_transactions(timed) as undecided:
        undecided.rollback()
    timed.stop()
    table = spark.read.format("ternmq.journal").load(str(tmp_path / "data"))
    table.createOrReplaceTempView("journal")
    found = spark.sql("""
        select p.query_id, concat('t-', lower(hex(s.transaction))) as id, s.rows as rows,
            cast(get_json_object(s.detail, '$.first_row') as int) as row
        from journal s join journal p on p.position = s.refers_to
        where s.kind = 'scheduled' and p.kind = 'prepared' order by s.entry
    """).collect()
    assert [(row["query_id"], row["rows"], row["row"]) for row in found] == [
        ("one", 1, 0), ("one", 1, 1), ("one", 1, 2),
    ]  # fmt: skip
    assert found[0]["id"].startswith("t-")
    (undone,) = spark.sql("select * from journal where decision = 'rolled_back'").collect()
    assert undone["producer_group"] == "pay"


def rows(tables, spec, *by):
    found = Table.open(tables, spec, create=False).read()
    return found.sort_by([(name, "ascending") for name in by]).to_pylist()


@pytest.mark.row("R7", "R9")
def test_the_trace_and_the_audit_by_workers_are_those_in_process(spark, timed, tmp_path):
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    by_spark, here = Audit(timed.port, tmp_path / "spark"), Audit(timed.port, tmp_path / "here")
    start = scheduled(timed)
    for seconds in (5, LATER_US // SECOND, 3 * 86_400):
        timed.clock.advance(seconds=seconds)
        if seconds == 5:
            with ternmq.sync.connect(timed.url) as client:
                client.pull("orders", group="g", max_messages=10).ack()
                client.admin.delete_topic("gone")
        now = timed.clock.wall_us()
        living.run(timed, one, TraceJob(), spark=spark, spark_bytes=0)
        living.run(timed, two, TraceJob())
        by_spark.run(now, spark=spark, clock=now, spark_from_mb="0")
        here.run(now, clock=now)
        found = rows(one, SCHEDULED, "entry")
        assert found == rows(two, SCHEDULED, "entry")
        by = ("begin", "topic", "group", "app")
        assert rows(one, STATS_MINUTE, *by) == rows(two, STATS_MINUTE, *by) != []
        assert by_spark.rows() == here.rows()
        assert by_spark.findings() == here.findings() == []
        if seconds == 5:
            states = [row["state"] for row in found]
            assert states == ["delivered"] * 3 + ["pending", "delivered", "pending"] + ["gone"] * 2
    for tables in (one, two):
        found = Table.open(tables, TRACE, create=False).read()
        assert of_table(found) == living.reference(timed).told()
        assert found["message_id"].null_count == 0
    told = of_scheduled(Table.open(one, SCHEDULED, create=False).read().sort_by("entry"))
    assert [row["state"] for row in told.values()] == ["delivered"] * 6 + ["gone"] * 2
    assert [row["application_id"] for row in told.values()][:5] == [
        "id-0", "id-1", "id-2", "id-3", None,
    ]  # fmt: skip
    assert {row["scheduled_time"] for row in told.values()} == {start}
    assert here.verdicts("due") == here.verdicts() == {"ok"}
    assert (here.total("delivered", "due"), here.total("gone", "due")) == (6, 2)


@pytest.mark.row("R5")
def test_events_of_scheduled_messages_are_a_table(spark, timed, tmp_path):
    scheduled(timed)
    timed.clock.advance(seconds=5)
    timed.stop()
    table = spark.read.format("ternmq.journal").load(str(tmp_path / "data"))
    table.createOrReplaceTempView("journal")
    found = spark.sql("""
        select s.position as came_from, d.rows as rows, d.due = s.due as same
        from journal s join journal d on d.refers_to = s.position and d.entry >= s.entry
            and d.entry < s.entry + s.rows
        where s.kind = 'scheduled' and d.kind = 'stored' order by d.entry
    """).collect()
    assert [(row["rows"], row["same"]) for row in found] == [(3, True), (1, True)]
    versions = table.select("schema_version").distinct().collect()
    assert [row["schema_version"] for row in versions] == [SCHEMA_VERSION]
