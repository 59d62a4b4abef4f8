"""The archive by Spark: what is in it, after kills too, and when it is run twice at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

import ternmq.sync
from tests.spark import killing
from tests.spark.killing import kept, sent

NOW = 1_795_262_400_000_000


@pytest.fixture
def tables(tmp_path):
    return str(tmp_path / "tables")


@pytest.fixture
def archive(spark, real, tables):
    """Return what runs the job once, with a memory of its own each time; it counts the commits."""
    from ternmq.client.bulk import Bulk, BulkOptions
    from ternmq.client.connection.address import Address
    from ternmq.pipeline.archive.archive import ArchiveJob
    from ternmq.pipeline.archive.commit import Archive
    from ternmq.pipeline.archive.spark import SparkWorkers
    from ternmq.pipeline.tables.folder import Folder
    from ternmq.spark.broker.connecting import Broker

    def run(*, pass_bytes=256 << 20, lenient=False, meanwhile=lambda: None):
        broker = Broker((Address("127.0.0.1", real.port),))
        workers = SparkWorkers(spark, tables, broker, 0, lenient=lenient)
        commits = []

        def between(_done):
            commits.append(1)
            meanwhile()

        with Bulk(BulkOptions(url=real.url)) as bulk:
            ArchiveJob(
                bulk,
                Archive(Folder(tables)),
                lenient=lenient,
                pass_bytes=pass_bytes,
                workers=workers,
                between=between,
            ).once(NOW)
        return len(commits)

    return run


def send(client, first, count, more=0):
    """Send numbered messages; ``more``: that many random bytes behind each number."""
    chance = random.Random(first)
    client.send_many(
        "orders",
        [
            ternmq.sync.Message(b"%d" % n + chance.randbytes(more), key=f"k{n}")
            for n in range(first, first + count)
        ],
    )


@pytest.mark.row("R6")
def test_each_message_once_in_several_commits(archive, client, tables):
    client.admin.create_topic("orders", queues=3)
    send(client, 0, 1000, 5000)
    assert archive(pass_bytes=1) > 1
    assert kept(tables) == sent(client)
    send(client, 1000, 10)
    assert archive() == 1
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
def test_two_at_once(archive, client, tables):
    """The one that commits second finds the rows in the table, and adds no row twice."""
    client.admin.create_topic("orders", queues=2)
    send(client, 0, 1000, 5000)
    seconds: list[int] = []

    def second():
        if not seconds:
            seconds.append(1)
            assert archive(pass_bytes=1) > 0

    archive(pass_bytes=1, meanwhile=second)
    assert seconds
    assert kept(tables) == sent(client)


@pytest.mark.row("R6")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kills(spark, real, client, tables):
    client.admin.create_topic("orders", queues=2)
    send(client, 0, 1000, 8000)
    folder = Path(tables)
    killing.kill_now_and_then(real, folder, "--spark", times=killing.often(1), seed=1)
    send(client, 1000, 500, 8000)
    killing.kill_now_and_then(real, folder, "--spark", times=killing.often(1) - 1, seed=2)
    assert killing.archiver(real, folder, "--spark").wait(killing.START_S) == 0
    assert killing.kept(folder) == killing.sent(client)
