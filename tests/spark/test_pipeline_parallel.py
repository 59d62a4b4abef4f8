"""What Spark's status says of the pipeline's jobs: the work is where the cores are."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

import ternmq.sync
from ternmq.pipeline.archive import ranges
from ternmq.pipeline.archive.compaction_job import Compacting
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.audit.schema import RUNS
from ternmq.pipeline.deadletters.deadletters import DEAD_LETTERS
from ternmq.pipeline.deadletters.job import DeadLettersJob
from ternmq.pipeline.job import packets
from ternmq.pipeline.stats.job import StatsJob
from ternmq.pipeline.stats.schema import STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import KNOWN, TRACE
from tests.integration import living
from tests.integration.auditing import LATER_US, Audit, now_us
from tests.unit.pipeline.trace_reference import of_table

CORES = 2
COUNT = 150_000
ORDER = [(name, "ascending") for name in ("topic", "queue", "offset")]


def stages(spark: Any, job: str) -> list[int]:
    """Return the number of tasks of each stage that Spark ran for a job of the pipeline."""
    jobs = spark._jsparkSession.sparkContext().statusStore().jobsList(None)
    listed = [jobs.apply(number) for number in range(jobs.size())]
    mine = [
        one.jobId()
        for one in listed
        if one.description().isDefined() and one.description().get().startswith(job)
    ]
    tracker = spark.sparkContext.statusTracker()
    numbers = sorted({stage for one in mine for stage in tracker.getJobInfo(one).stageIds})
    told = [tracker.getStageInfo(one) for one in numbers]
    # A stage whose result was there already ran no task.
    return [one.numTasks for one in told if one is not None and one.numCompletedTasks]


def plain(tables, spec):
    found = Table.open(tables, spec, create=False).read()
    names = [one.name for one in spec.schema if not str(one.type).startswith("list")]
    return found.sort_by([(name, "ascending") for name in names])


@pytest.mark.row("R7", "R9")
def test_a_hot_queue_is_traced_by_many_tasks(spark, real, tmp_path, monkeypatch):
    monkeypatch.setattr(packets, "_LEAST_BYTES", 1 << 16)
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    with ternmq.sync.connect(real.url, app="shop") as client:
        client.admin.create_topic("hot")
        client.admin.create_group("hot", "billing", start="earliest")
        for first in range(0, COUNT, 1000):
            client.send_many("hot", [b"%d" % n for n in range(first, first + 1000)])
        for _ in range(50):
            client.pull("hot", group="billing", max_messages=1000).ack()
    before = len(stages(spark, "trace"))
    assert living.run(real, one, TraceJob(), spark=spark, spark_bytes=0).rows == COUNT
    scan, fold = stages(spark, "trace")[before:]
    assert scan >= CORES
    assert fold == 4 * CORES
    living.run(real, two, TraceJob())
    for spec in (TRACE, STATS_MINUTE, KNOWN):
        assert plain(one, spec).equals(plain(two, spec))


@pytest.mark.row("R8", "R9")
def test_the_audit_reads_and_joins_by_many_tasks(spark, real, tmp_path, monkeypatch):
    monkeypatch.setattr(packets, "_LEAST_BYTES", 1 << 14)
    monkeypatch.setattr(ranges, "SMALL_BYTES", 0)  # a file for each queue
    living.first_day(real)
    living.second_day(real)
    by_spark, here = Audit(real.port, tmp_path / "spark"), Audit(real.port, tmp_path / "here")
    now = now_us() + LATER_US
    by_spark.archive()
    here.archive()
    before = len(stages(spark, "audit"))
    by_spark.run(now, spark=spark, spark_from_mb="0", bodies="true")
    scan, join, read, joined = stages(spark, "audit")[before:]
    assert min(scan, read) >= CORES
    assert join == joined == 4 * CORES
    here.run(now, bodies="true")
    assert {row["tier"] for row in here.rows()} == {"stored", "group", "archive"}
    assert by_spark.rows() == here.rows() != []
    assert by_spark.findings() == here.findings()
    runs = [
        plain(Folder(str(tmp_path / name)), RUNS).drop_columns(["hour"]).to_pylist()
        for name in ("spark", "here")
    ]
    assert runs[0] == runs[1] != []


@pytest.mark.row("R7")
@pytest.mark.parametrize("table", ["stats_minute", "trace_known", "trace"])
def test_a_driver_that_ends_between_the_workers_files_and_a_commit(
    spark, real, tmp_path, monkeypatch, table
):
    tables = Folder(str(tmp_path / "tables"))
    living.first_day(real)
    living.run(real, tables, TraceJob(), spark=spark, spark_bytes=0)
    living.second_day(real)
    commit = Table.commit

    def broken(self, *given, **more):
        if self.spec.name == table:
            raise OSError("no space left on device")
        commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", broken)
        with pytest.raises(OSError, match="no space"):
            living.run(real, tables, TraceJob(), spark=spark, spark_bytes=0)
    with ternmq.sync.connect(real.url) as client:
        living.taken(client, "late")
    living.run(real, tables, TraceJob(), spark=spark, spark_bytes=0)
    assert of_table(Table.open(tables, TRACE, create=False).read()) == living.reference(real).told()


@pytest.mark.row("R9", "R13", "R16")
def test_sums_dead_letters_and_joined_files_are_made_by_many_tasks(
    spark, real, tmp_path, monkeypatch
):
    monkeypatch.setattr(ranges, "SMALL_BYTES", 0)  # a file for each queue
    here = Folder(str(tmp_path / "here"))
    audit = Audit(real.port, tmp_path / "here")
    for day in (living.first_day, living.second_day):
        day(real)
        with ternmq.sync.connect(real.url, app="shop") as client:
            client.send_many("orders", [ternmq.sync.Message(b"", key=f"k{n}") for n in range(50)])
        living.run(real, here, TraceJob())
        audit.archive()
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = Folder(str(tmp_path / "there"))
    now = now_us()
    for job, specs in ((StatsJob(), (STATS_HOUR, STATS_DAY)), (DeadLettersJob(), (DEAD_LETTERS,))):
        before = len(stages(spark, job.name))
        living.run(real, there, job, now=now, spark=spark, spark_from_mb=0)
        assert stages(spark, job.name)[before] >= CORES
        living.run(real, here, job, now=now)
        for spec in specs:
            found = Table.open(there, spec).read()
            assert found.equals(Table.open(here, spec).read())
            assert len(found) > 0

    care, tomorrow = Compacting([ARCHIVE]), now + 86_400_000_000
    rows = Table.open(there, ARCHIVE).read().sort_by(ORDER)
    files = len(Table.open(there, ARCHIVE).files())
    joined = living.run(real, there, care, now=tomorrow, spark=spark, spark_from_mb=0)
    assert stages(spark, "compaction")[-1] >= CORES
    assert living.run(real, here, care, now=tomorrow).rows == joined.rows > 0
    found = [len(Table.open(one, ARCHIVE).files()) for one in (here, there)]
    assert found[0] == found[1] < files
    assert Table.open(there, ARCHIVE).read().sort_by(ORDER).equals(rows)
    assert living.run(real, there, care, now=tomorrow, spark=spark, spark_from_mb=0).rows == 0
