"""The archive by Spark: what is in it, whatever is lost or run twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

import ternmq.sync
from tests.spark import killing
from tests.spark.killing import kept, sent
from tests.spark.queries import finish

NOW = 1_795_262_400_000_000


@pytest.fixture
def tables(tmp_path):
    return str(tmp_path / "tables")


@pytest.fixture
def archive(spark, real, tables):
    """Return what runs the job once, with a memory of its own each time."""
    from ternmq.pipeline.archive.spark import ArchiveStream

    def run(**more):
        options = {
            "bootstrap.servers": f"127.0.0.1:{real.port}",
            "subscribe": "orders",
            **more.pop("options", {}),
        }
        stream = ArchiveStream(spark, tables, options, lambda: NOW, **more)
        try:
            return finish(lambda: stream.start(once=True))
        finally:
            stream.close()

    return run


def send(client, first, count):
    client.send_many(
        "orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(first, first + count)]
    )


@pytest.mark.row("R6")
def test_each_message_once_in_several_batches(archive, client, tables):
    client.admin.create_topic("orders", queues=3)
    send(client, 0, 1000)
    batches = archive(options={"maxOffsetsPerTrigger": "300"})
    assert len(batches) == 4
    assert kept(tables) == sent(client)
    send(client, 1000, 10)
    archive()
    assert kept(tables) == sent(client)
    (group,) = client.admin.groups("orders")
    assert (group.group, sum(one.cursor for one in group.queues)) == ("spark.archive", 1010)


@pytest.mark.row("R6")
def test_spark_reads_the_table(archive, spark, client, tables):
    from ternmq.pipeline.archive.commit import Archive
    from ternmq.pipeline.tables.folder import Folder

    client.admin.create_topic("orders", queues=1)
    send(client, 0, 100)
    archive()
    table = Archive(Folder(tables)).table
    rows = spark.read.option("basePath", table.folder.uri).parquet(*table.uris())
    assert rows.where("key = 'k42'").select("topic", "queue", "body").collect() == [
        ("orders", 0, b"42")
    ]
    assert {name for name, _ in rows.dtypes} == set(table.spec.schema.names)


@pytest.mark.row("R6")
@pytest.mark.parametrize("lost", ["commit", "offsets and commit", "all", "copied"])
def test_a_checkpoint_that_lost_something(archive, client, tables, lost):
    client.admin.create_topic("orders", queues=2)
    send(client, 0, 200)
    checkpoint = Path(tables) / "_checkpoints" / "archive"
    archive()
    copied = Path(tables).parent / "copied"
    shutil.copytree(checkpoint, copied)
    send(client, 200, 100)
    archive(options={"maxOffsetsPerTrigger": "70"})
    if lost == "all":
        shutil.rmtree(checkpoint)
    elif lost == "copied":  # an old one, with other batches to come
        shutil.rmtree(checkpoint)
        shutil.copytree(copied, checkpoint)
    else:
        newest = max(
            int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit()
        )
        for folder in ("commits", "offsets")[: 1 if lost == "commit" else 2]:
            (checkpoint / folder / str(newest)).unlink()
            (checkpoint / folder / f".{newest}.crc").unlink(missing_ok=True)
    send(client, 300, 50)
    archive()
    assert kept(tables) == sent(client)


@pytest.mark.row("R6")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kills_and_a_lost_checkpoint(spark, real, client, tables):
    client.admin.create_topic("orders", queues=2)
    send(client, 0, 1000)
    folder = Path(tables)
    killing.kill_now_and_then(real, folder, "--spark", times=killing.often(1), seed=1)
    shutil.rmtree(folder / "_checkpoints", ignore_errors=True)
    send(client, 1000, 500)
    killing.kill_now_and_then(real, folder, "--spark", times=killing.often(1) - 1, seed=2)
    assert killing.archiver(real, folder, "--spark").wait(killing.START_S) == 0
    assert killing.kept(folder) == killing.sent(client)
