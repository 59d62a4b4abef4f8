"""A stream into a topic, each row once: the windows in which it can be cut."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime, timedelta

import pytest

import ternmq.sync
from ternmq.wire.commands import Command
from tests.spark.losing_proxy import LosingProxy
from tests.spark.queries import finish


def copying(spark, real, folder, port=None, **options):
    """Return what starts to copy a topic, in batches of 40 rows."""
    at = f"127.0.0.1:{real.port}"
    table = (
        spark.readStream.format("ternmq").option("bootstrap.servers", at)
        .option("subscribe", "orders").option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40).load()
    )  # fmt: skip
    return (
        table.select("key", "value").writeStream.format("ternmq")
        .option("bootstrap.servers", f"127.0.0.1:{port or real.port}").option("topic", "out")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options).trigger(availableNow=True).start
    )  # fmt: skip


def run(spark, real, folder, port=None, **options):
    finish(copying(spark, real, folder, port, **options))


def send(client, first, count):
    client.send_many(
        "orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(first, first + count)]
    )


def copied(client):
    return sorted(int(one.body) for one in client.read("out"))


@pytest.fixture(params=[1, 3])
def topics(request, client):
    for name in ("orders", "out"):
        client.admin.create_topic(name, queues=request.param)
    return request.param


def forget_done(folder):
    """Take the note away that a batch was done: the state of a crash before it was written."""
    commits = folder / "checkpoint" / "commits"
    last = max(int(one.name) for one in commits.iterdir() if one.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


@pytest.mark.row("R4")
def test_each_row_once_over_restarts(spark, real, client, topics, tmp_path):
    for first in (0, 100):
        send(client, first, 100)
        run(spark, real, tmp_path)
        real.restart(clean=False)
    assert copied(client) == list(range(200))


@pytest.mark.row("R4")
def test_a_batch_that_spark_forgot_is_not_written_twice(spark, real, client, topics, tmp_path):
    """W7."""
    send(client, 0, 100)
    run(spark, real, tmp_path)
    forget_done(tmp_path)
    send(client, 100, 50)
    run(spark, real, tmp_path)
    assert copied(client) == list(range(150))


@pytest.mark.row("R4")
def test_the_answer_to_a_commit_is_lost(spark, real, client, topics, tmp_path):
    """W6: the broker applied it, Spark aborts, then runs the batch again."""
    send(client, 0, 100)
    with LosingProxy(real.port) as proxy:
        proxy.lose.add(Command.TRANSACTION_COMMIT)
        with pytest.raises(Exception, match=r"ConnectionLost|CannotConnect"):
            run(spark, real, tmp_path, port=proxy.port)
        assert proxy.lost
    first = copied(client)
    assert len(first) == 40, "the first batch is visible: only its answer was lost"
    run(spark, real, tmp_path)
    assert copied(client) == list(range(100))


@pytest.mark.row("R4")
def test_tasks_that_fail_leave_nothing(spark, real, client, topics, tmp_path):
    """W4: answers to what is prepared are lost; the batch is run again."""
    send(client, 0, 100)
    with LosingProxy(real.port) as proxy:
        proxy.lose.add(Command.PREPARE)
        with pytest.raises(Exception, match=r"ConnectionLost|CannotConnect"):
            run(spark, real, tmp_path, port=proxy.port)
        assert proxy.lost
    assert copied(client) == []
    run(spark, real, tmp_path)
    assert copied(client) == list(range(100))


@pytest.mark.row("R4")
def test_a_lost_checkpoint_is_another_writer(spark, real, client, topics, tmp_path):
    """W9: with a writer's name of its own the same numbers are noticed."""
    send(client, 0, 100)
    run(spark, real, tmp_path, writerId="copy")
    shutil.rmtree(tmp_path / "checkpoint")
    send(client, 100, 1)
    # Batch 0 has the same rows as before: it has no effect. The last one has not.
    with pytest.raises(Exception, match="digest"):
        run(spark, real, tmp_path, writerId="copy")
    assert copied(client) == list(range(100))


DUE = datetime.fromtimestamp(time.time() // 3600 * 3600, UTC) + timedelta(days=300)


def scheduling(spark, real, folder, port=None):
    """Copy a topic, in batches of 40 rows; two thirds of them are due an hour or two after DUE."""
    at = f"127.0.0.1:{real.port}"
    table = (
        spark.readStream.format("ternmq").option("bootstrap.servers", at)
        .option("subscribe", "orders").option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40).load()
    )  # fmt: skip
    number = "cast(cast(value as string) as int)"
    due = f"timestampadd(HOUR, {number} % 3, timestamp'{DUE:%Y-%m-%d %H:%M:%S}Z')"
    rows = table.selectExpr("value", f"if({number} % 3 = 0, null, {due}) as delay_until")
    started = (
        rows.writeStream.format("ternmq")
        .option("bootstrap.servers", f"127.0.0.1:{port or real.port}").option("topic", "out")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start
    )  # fmt: skip
    finish(started)


def scheduled(client):
    """Return the numbers of the scheduled messages, those of each due time sorted."""
    found: dict[int, list[int]] = {}
    for one in client.admin.scheduled_messages("out", limit=1000):
        hours = (one.due_at - DUE) // timedelta(hours=1)
        found.setdefault(hours, []).append(int(client.get("out", id=one.id).value))
    return {hours: sorted(numbers) for hours, numbers in found.items()}


@pytest.mark.row("R3")
@pytest.mark.row("R4")
def test_each_due_row_is_scheduled_once(spark, real, client, topics, tmp_path):
    """W4, W6, W7: answers to what is prepared and to a commit are lost, Spark forgets a batch."""
    send(client, 0, 60)
    for lost in (Command.PREPARE, Command.TRANSACTION_COMMIT):
        with LosingProxy(real.port) as proxy:
            proxy.lose.add(lost)
            with pytest.raises(Exception, match=r"ConnectionLost|CannotConnect"):
                scheduling(spark, real, tmp_path, port=proxy.port)
            assert proxy.lost
        shown = 0 if lost is Command.PREPARE else 40
        waiting = sum(len(some) for some in scheduled(client).values())
        assert len(copied(client)) + waiting == shown
        real.restart(clean=False)
    scheduling(spark, real, tmp_path)
    forget_done(tmp_path)
    send(client, 60, 30)
    scheduling(spark, real, tmp_path)
    assert copied(client) == list(range(0, 90, 3))
    assert scheduled(client) == {1: list(range(1, 90, 3)), 2: list(range(2, 90, 3))}


def writing(spark, port, rows=100, **options):
    """Return what writes rows as a batch job, under a name."""
    frame = spark.range(rows, numPartitions=3).selectExpr("cast(id as string) as value")
    told = frame.write.format("ternmq").mode("append").option("topic", "out")
    told = told.option("bootstrap.servers", f"127.0.0.1:{port}").options(**options)
    return told.option("delivery", "exactly_once").option("writerId", "job").save


@pytest.mark.row("R4")
def test_a_batch_job_that_is_run_again(spark, real, client, topics):
    """W4, W6, W7: under the same name it has one effect, whatever became of it."""
    seen = {Command.PREPARE: [], Command.TRANSACTION_COMMIT: list(range(100))}
    for lost, visible in seen.items():
        with LosingProxy(real.port) as proxy:
            proxy.lose.add(lost)
            with pytest.raises(Exception, match=r"ConnectionLost|CannotConnect"):
                writing(spark, proxy.port)()
            assert proxy.lost
        assert copied(client) == visible
    writing(spark, real.port)()
    assert copied(client) == list(range(100))
    with pytest.raises(Exception, match="digest"):
        writing(spark, real.port, rows=99)()
    assert copied(client) == list(range(100))
