"""The pipeline's tables in Spark: by ``format("ternmq.table")``, and by Delta's own jar."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

import ternmq.spark
import ternmq.sync
from ternmq.model.errors import OptionError
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.retention import expire
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE
from ternmq.spark.builder import DELTA, with_delta

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Folder:
    """Run all jobs once, for three topics with some dead letters and one erased message."""
    from ternmq.testing import broker

    folder = tmp_path_factory.mktemp("tables")
    with broker(manual=False) as real, ternmq.sync.connect(real.url) as client:
        for topic in ("orders", "payments", "parcels"):
            client.send_many(topic, [{"n": n, "price": n * 2} for n in range(500)])
            for number, one in enumerate(client.pull(topic, group="billing", max_messages=100)):
                one.reject("no money") if number < 3 else one.ack()
        command = [sys.executable, "-m", "ternmq", "pipeline", "run", "--once"]
        subprocess.run(
            [*command, "--engine", "local", "--tables", str(folder)],
            env={**os.environ, "TERNMQ_URL": real.url}, check=True, timeout=300,
        )  # fmt: skip
    return Folder(str(folder))


def load(spark: Any, tables: Folder, name: str, **options: str) -> Any:
    reader = spark.read.format("ternmq.table").option("tables", tables.uri)
    return reader.options(**options).load(name)


@pytest.mark.row("R7")
def test_every_table_has_the_rows_that_the_library_reads(spark, tables):
    for spec in all_tables():
        if not tables.inside(spec.name).exists():
            continue
        wanted = Table.open(tables, spec, create=False).read()
        found = load(spark, tables, spec.name).toArrow()
        assert found.column_names == wanted.column_names, spec.name
        order = [
            (name, "ascending")
            for name, kind in zip(wanted.column_names, wanted.schema.types, strict=True)
            if not str(kind).startswith(("list", "map"))
        ]
        assert found.sort_by(order).to_pylist() == wanted.sort_by(order).to_pylist(), spec.name


@pytest.mark.row("R7")
def test_sql_over_two_tables(spark, tables):
    for name in ("archive", "trace"):
        load(spark, tables, name).createOrReplaceTempView(name)
    asked = """
        select a.topic, t.state, count(*) as messages
        from archive a join trace t using (topic_number, queue, offset)
        where t.group = 'billing' and a.day >= date '2020-01-01'
        group by a.topic, t.state order by a.topic, t.state
    """
    found = {(row.topic, row.state): row.messages for row in spark.sql(asked).collect()}
    assert {key: count for key, count in found.items() if key[1] in {"dead", "done"}} == {
        (topic, state): count
        for topic in ("orders", "payments", "parcels")
        for state, count in (("dead", 3), ("done", 97))
    }


@pytest.mark.row("R7")
def test_queries_of_one_frame_do_not_depend_on_each_other(spark, tables):
    archive = load(spark, tables, "archive")
    assert archive.where("offset < 0").count() == 0
    assert archive.count() == 1500
    assert archive.where("topic = 'orders' and offset between 100 and 199").count() == 100
    assert archive.where("stored_time > timestamp '2120-01-01 00:00:00'").count() == 0
    assert archive.where("topic in ('orders', 'parcels') and key is null").count() == 1000
    assert archive.count() == 1500


@pytest.mark.row("R7")
def test_files_of_other_topics_are_not_opened(spark, tables, tmp_path):
    copy = Folder(str(tmp_path / "tables"))
    shutil.copytree(tables.uri, copy.uri)
    archive = Table.open(copy, ARCHIVE, create=False)
    rows, shared = archive.read(), archive.files()
    of = rows["topic"].to_pylist()
    gone = archive.stage(rows.filter([topic == "payments" for topic in of]))
    others = archive.stage(rows.filter([topic != "payments" for topic in of]))
    archive.commit([*gone, *others], shared)
    assert copy.inside(ARCHIVE.name).remove(one.path for one in gone) > 0
    chosen = load(spark, copy, "archive", topic="orders,parcels", columns="offset,topic")
    assert chosen.columns == ["offset", "topic"]
    assert chosen.where("topic = 'orders'").count() == 500
    assert chosen.count() == 1000
    assert load(spark, copy, "trace", topic="payments").where("group = 'billing'").count() == 500
    with pytest.raises(Exception, match="does not exist"):
        load(spark, copy, "archive").count()


@pytest.mark.row("R7")
def test_the_files_themselves_still_have_rows_that_left_the_table(spark, tables, tmp_path):
    copy = Folder(str(tmp_path / "tables"))
    shutil.copytree(tables.uri, copy.uri)
    trace = Table.open(copy, TRACE, create=False)
    rows = len(trace.read())
    assert load(spark, copy, "trace").count() == rows >= 1500
    day_us = 86_400_000_000
    assert sum(one.rows for one in expire(trace, time.time_ns() // 1000 + 3 * day_us, 1)) == rows
    assert load(spark, copy, "trace").count() == 0
    assert spark.read.parquet(copy.inside(TRACE.name).uri).count() == rows


def test_what_cannot_be_asked(spark, tables):
    for asked, says in (
        (lambda: load(spark, tables, "traces"), "there is no table 'traces'"),
        (lambda: load(spark, tables, "trace", colums="x"), "did you mean columns"),
        (lambda: load(spark, Folder("/nowhere"), "trace").count(), "there is no table trace"),
    ):
        with pytest.raises(Exception, match=says):
            asked()


def test_a_session_that_runs_without_delta(spark):
    with pytest.raises(OptionError, match="runs already"):
        ternmq.spark.session(delta=True)


def test_settings_of_delta():
    import pyspark

    own = with_delta({"spark.jars": "/jars/delta.jar"})
    assert "spark.jars.packages" not in own
    assert own["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    line = pyspark.__version__.rpartition(".")[0]
    if line in DELTA:
        assert with_delta({})["spark.jars.packages"] == DELTA[line]
    else:
        with pytest.raises(OptionError, match=r"there is no Delta for Spark .*ternmq\.table"):
            with_delta({})


@pytest.mark.row("R7")
def test_delta_reads_every_table(tables, delta):
    """A session of its own, since jars are loaded only at a start."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.spark.delta_counts", tables.uri, delta],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    counts = json.loads(found.stdout.splitlines()[-1])
    wanted = {
        spec.name: len(Table.open(tables, spec, create=False).read())
        for spec in all_tables()
        if tables.inside(spec.name).exists()
    }
    assert counts == wanted


@pytest.mark.row("R2", "R7")
def test_rows_of_the_archive_are_sent_again_as_they_are(spark, tables):
    from ternmq.testing import broker

    archive = load(spark, tables, "archive", topic="parcels")
    rows = archive.select("body", "key", "tag", "headers", "content_type")
    with broker(manual=False) as real, ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("again")
        servers = real.url.partition("://")[2]
        told = {"bootstrap.servers": servers, "topic": "again", "writerId": "w"}
        rows.write.format("ternmq").mode("append").options(**told).save()
        found = (
            spark.read.format("ternmq")
            .options(**{"bootstrap.servers": servers, "subscribe": "again"})
            .options(
                columns="body,key,tag,headers,content_type", headersType="map", keyType="string"
            )
            .load()
        )
        assert [one.dataType for one in found.schema] == [one.dataType for one in rows.schema]
        sent, again = (sorted(map(str, one.collect())) for one in (rows, found))
        assert sent == again
        assert len(sent) == 500
