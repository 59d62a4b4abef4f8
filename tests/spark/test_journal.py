"""``format("ternmq.journal")`` read by Spark."""

from __future__ import annotations

import pytest

import ternmq.sync
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.reader.reader import JournalReader
from ternmq.server.commands.holds import BulkCommands
from ternmq.spark.journal.events import COLUMNS
from ternmq.testing import broker
from tests.spark.queries import finish


@pytest.fixture
def lived(tmp_path):
    """Return a broker's folder, with rows that were delivered and settled."""
    folder = tmp_path / "data"
    folder.mkdir()
    with (
        broker(manual=False, disk=RealDisk(str(folder))) as one,
        ternmq.sync.connect(one.url, app="shop") as client,
    ):
        client.send_many("orders", [b"%d" % n for n in range(100)])
        pulled = client.pull("orders", group="billing", max_messages=100)
        pulled.reject(rows=range(10), reason="broken")
        pulled.ack()
    return folder


@pytest.mark.row("R5")
def test_facts_are_a_table(spark, lived):
    table = spark.read.format("ternmq.journal").load(str(lived))
    assert dict(table.dtypes) == COLUMNS
    counts = {row["kind"]: row["n"] for row in table.groupBy("kind").agg({"rows": "sum"})
              .withColumnRenamed("sum(rows)", "n").collect()}  # fmt: skip
    assert (counts["stored"], counts["pulled"], counts["settled"]) == (100, 100, 100)
    dead = table.where("kind = 'settled' and outcome = 'dead'").select("group", "reason", "app")
    assert [tuple(row) for row in dead.distinct().collect()] == [("billing", "broken", "shop")]
    reader = JournalReader(str(lived))
    wanted = {one["position"] for one in reader.dump()
              if one["kind"] not in {"SEGMENT", "PAD", "STATE", "MARK"}}  # fmt: skip
    reader.close()
    assert {row["position"] for row in table.select("position").collect()} == wanted


@pytest.mark.row("R5")
def test_facts_are_a_stream(spark, lived, tmp_path):
    table = (
        spark.readStream.format("ternmq.journal").option("startingPosition", "earliest")
        .option("columns", "position,part,kind").load(str(lived))
    )  # fmt: skip

    def run():
        batches = finish(
            table.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start
        )  # fmt: skip
        return [one["numInputRows"] for one in batches]

    first = sum(run())
    with (
        broker(manual=False, disk=RealDisk(str(lived))) as one,
        ternmq.sync.connect(one.url) as client,
    ):
        client.send("orders", b"more")
    assert sum(run()) > 0
    found = spark.read.parquet(str(tmp_path / "out"))
    whole = spark.read.format("ternmq.journal").load(str(lived))
    assert found.count() == whole.count() > first
    assert found.distinct().count() == found.count()


def test_a_wrong_path_is_one_clear_error(spark, tmp_path):
    with pytest.raises(Exception, match="there is no journal in"):
        spark.read.format("ternmq.journal").load(str(tmp_path)).collect()


@pytest.mark.row("R5")
def test_tasks_get_the_names_from_the_driver(spark, tmp_path, monkeypatch):
    asked = []
    real = BulkCommands.catalog

    def catalog(*args):
        asked.append(args)
        return real(*args)

    monkeypatch.setattr(BulkCommands, "catalog", catalog)
    with (
        broker(manual=False) as one,
        ternmq.sync.connect(one.url, app="shop") as client,
    ):
        for topic in ("orders", "payments"):
            client.send_many(topic, [b"x" * 1000] * 100)
            client.pull(topic, group="billing", max_messages=100).ack()
        told = {"bootstrap.servers": f"127.0.0.1:{one.port}", "maxBytesPerPartition": "20000"}
        table = spark.read.format("ternmq.journal").options(**told).load()
        assert table.rdd.getNumPartitions() > 5
        asked.clear()
        found = table.where("kind = 'pulled'").select("topic", "group", "app").distinct().collect()
        assert {tuple(row) for row in found} == {
            ("orders", "billing", "shop"), ("payments", "billing", "shop"),
        }  # fmt: skip
        assert len(asked) == 1
        asked.clear()
        stream = (
            spark.readStream.format("ternmq.journal").options(**told)
            .option("startingPosition", "earliest").load()
        )  # fmt: skip
        batches = finish(
            stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start
        )  # fmt: skip
        assert len(asked) == sum(1 for one in batches if one["numInputRows"]) > 0
    rows = spark.read.parquet(str(tmp_path / "out")).where("kind = 'settled'")
    assert {row["app"] for row in rows.collect()} == {"shop"}
