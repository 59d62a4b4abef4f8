"""The trace by Spark is the same as in process."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import TRACE
from tests.integration import living
from tests.unit.pipeline.trace_reference import of_table


@pytest.mark.row("R7", "R9")
def test_the_same_rows_and_counts_as_in_process(spark, real, tmp_path):
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    for day in (living.first_day, living.second_day):
        day(real)
        living.run(real, one, TraceJob(), spark=spark, spark_bytes=0)
        living.run(real, two, TraceJob())
    wanted = living.reference(real).told()
    for tables in (one, two):
        assert of_table(Table.open(tables, TRACE, create=False).read()) == wanted
    counts = [
        Table.open(tables, STATS_MINUTE, create=False).read().sort_by(
            [(name, "ascending") for name in ("begin", "topic", "group", "app")]
        )
        for tables in (one, two)
    ]  # fmt: skip
    assert counts[0].num_rows
    assert counts[0].to_pylist() == counts[1].to_pylist()


@pytest.mark.row("R7", "R9")
def test_many_small_topics_share_files_as_in_process(spark, real, client, tmp_path):
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    topics = [f"small-{n:03}" for n in range(60)]
    for topic in topics:
        client.admin.create_topic(topic)
        client.admin.create_group(topic, "g")
    for _ in range(2):
        for n, topic in enumerate(topics):
            client.send_many(topic, [b"m"] * 3)
            if n % 3:
                client.pull(topic, group="g", max_messages=2, wait=1).ack()
        if client.admin.groups(topics[1])[0].group == "g":
            client.replay(topics[1], "g", offsets=range(1), queue=0)
        living.run(real, one, TraceJob(), spark=spark, spark_bytes=0)
        living.run(real, two, TraceJob())
        wanted = living.reference(real).told()
        for tables in (one, two):
            assert of_table(Table.open(tables, TRACE, create=False).read()) == wanted
    # Both engines go on in files of the other one.
    client.pull(topics[2], group="g", max_messages=9, wait=1).ack()
    client.replay(topics[5], "g", offsets=range(2), queue=0)
    living.run(real, two, TraceJob(), spark=spark, spark_bytes=0)
    living.run(real, one, TraceJob())
    wanted = living.reference(real).told()
    for tables in (one, two):
        table = Table.open(tables, TRACE, create=False)
        assert of_table(table.read()) == wanted
        assert len(table.files()) < len(topics)
