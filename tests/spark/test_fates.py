"""Messages that expire, fail in an instance, or belong to groups of any mode: by workers, too."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import TRACE
from ternmq.testing import broker
from tests.integration import fates, living
from tests.integration.auditing import Audit, now_us
from tests.integration.scheduling import LATER_S, at_the_time_of_clients


@pytest.mark.row("R7", "R8", "R9")
def test_the_tables_by_workers_are_those_in_process(spark, tmp_path):
    by_spark, here = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    with broker() as timed:
        at_the_time_of_clients(timed)
        fates.day(timed)
        living.run(timed, by_spark, TraceJob(), spark=spark, spark_bytes=0)
        living.run(timed, here, TraceJob())
        orders = ((TRACE, ("topic", "queue", "offset", "group")),
                  (STATS_MINUTE, ("begin", "topic", "group", "app")))  # fmt: skip
        for spec, by in orders:
            first, second = (
                Table.open(one, spec, create=False).read().sort_by([(n, "ascending") for n in by])
                for one in (by_spark, here)
            )
            assert first.num_rows
            assert first.to_pylist() == second.to_pylist()
        states = set(Table.open(by_spark, TRACE, create=False).read()["state"].to_pylist())
        assert states == {"done", "dead", "expired", "failed", "skipped"}
        one, two = (Audit(timed.port, tmp_path / name) for name in ("three", "four"))
        now = now_us() + LATER_S * 1_000_000
        one.run(now, spark=spark, spark_from_mb="0")
        two.run(now)
        assert one.rows() == two.rows()
        assert (one.total("expired_dead", "group"), one.total("expired_dropped", "group")) == (2, 2)
        assert one.findings() == two.findings() == []
