"""``format("ternmq")`` read by Spark as a stream."""

from __future__ import annotations

import json
import shutil
import time

import pytest

import ternmq.sync
from tests.spark.queries import WAIT_S, finish


def stream(spark, real, **options):
    told = spark.readStream.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
    options.setdefault("startingOffsets", "earliest")
    return (
        told.option("subscribe", options.pop("subscribe", "orders"))
        .options(**{name.replace("__", "."): value for name, value in options.items()})
        .load()
    )


def run(table, folder):
    """Read what is there into a table of files; return what Spark says of each batch."""
    return finish(
        table.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start
    )


def values(spark, folder):
    rows = spark.read.parquet(str(folder / "out")).select("partition", "offset", "value").collect()
    return sorted((row["partition"], row["offset"], int(row["value"])) for row in rows)


def send(client, first, count):
    client.send_many(
        "orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(first, first + count)]
    )


def truth(client):
    return sorted((one.queue, one.offset, int(one.body)) for one in client.read("orders"))


@pytest.mark.row("R2")
def test_what_is_there_is_read_in_batches_then_it_ends(spark, real, client, tmp_path):
    client.admin.create_topic("orders", queues=3)
    send(client, 0, 1000)
    table = stream(spark, real, maxOffsetsPerTrigger="300")
    batches = run(table, tmp_path)
    assert [one["numInputRows"] for one in batches] == [300, 300, 300, 100]
    # Where it begins was written down before anything was read.
    first = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(first) == {
        "$topics": {"orders": {"number": client.admin.topic("orders").number}}, "$version": 2,
        "orders": {"0": 0, "1": 0, "2": 0},
    }  # fmt: skip
    assert values(spark, tmp_path) == truth(client)
    # What Spark shows can be pasted as an option.
    end = batches[-1]["sources"][0]["endOffset"]
    end = end if isinstance(end, str) else json.dumps(end)
    send(client, 1000, 5)
    rest = (
        spark.read.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
        .option("subscribe", "orders").option("startingOffsets", end).load()
    )  # fmt: skip
    assert rest.count() == 5


@pytest.mark.row("R2")
def test_a_stream_goes_on_from_its_checkpoint(spark, real, client, tmp_path):
    client.admin.create_topic("orders", queues=2)
    for first in (0, 100, 200):
        send(client, first, 100)
        run(stream(spark, real), tmp_path)
        real.restart(clean=False)
    assert values(spark, tmp_path) == truth(client)
    assert run(stream(spark, real), tmp_path) == []


@pytest.mark.row("R2")
def test_a_batch_that_was_not_written_down_as_done_is_the_same_batch_again(
    spark, real, client, tmp_path
):
    client.admin.create_topic("orders", queues=2)
    send(client, 0, 100)
    run(stream(spark, real, maxOffsetsPerTrigger="40"), tmp_path)
    send(client, 100, 100)
    checkpoint = tmp_path / "checkpoint"
    last = max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    planned = (checkpoint / "offsets" / f"{last}").read_text().splitlines()[-1]
    run(stream(spark, real, maxOffsetsPerTrigger="7"), tmp_path)  # another limit than at first
    assert (checkpoint / "offsets" / f"{last}").read_text().splitlines()[-1] == planned
    assert values(spark, tmp_path) == truth(client)


def test_a_topic_that_comes_later_is_read_from_its_beginning(spark, real, client, tmp_path):
    client.admin.create_topic("orders")
    send(client, 0, 10)
    told = (
        spark.readStream.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
        .option("subscribePattern", "orders.*").option("startingOffsets", "earliest").load()
    )  # fmt: skip
    run(told, tmp_path)
    client.send("orders.late", b"77")
    run(told, tmp_path)
    run(told, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).where("topic = 'orders.late'").collect()
    assert [bytes(row["value"]) for row in found] == [b"77"]


def test_a_copied_checkpoint_is_another_query_over_the_same_rows(spark, real, client, tmp_path):
    client.admin.create_topic("orders")
    send(client, 0, 50)
    run(stream(spark, real), tmp_path)
    shutil.copytree(tmp_path, tmp_path / "copy")
    send(client, 50, 50)
    run(stream(spark, real), tmp_path)
    run(stream(spark, real), tmp_path / "copy")
    assert len(spark.read.parquet(str(tmp_path / "out")).collect()) == 100


def test_progress_is_seen_by_whoever_asks_the_broker(spark, real, client, tmp_path):
    client.admin.create_topic("orders")
    send(client, 0, 100)
    run(stream(spark, real, maxOffsetsPerTrigger="30", group__id="dw"), tmp_path)
    (info,) = client.admin.groups(topic="orders", group="dw")
    assert info.queues[0].cursor == 90  # Spark never tells a source of the last one


def _cursor(client):
    (info,) = client.admin.groups(topic="orders", group="spark.copy")
    return info.queues[0].cursor


@pytest.mark.row("R15")
def test_a_listener_tells_of_the_last_batch_too(spark, real, client, tmp_path):
    from ternmq.spark.topics.progress import ProgressListener

    client.admin.create_topic("orders")
    send(client, 0, 100)
    told = {
        "bootstrap.servers": f"127.0.0.1:{real.port}", "subscribe": "orders",
        "group.id": "spark.copy",
    }  # fmt: skip
    listener = ProgressListener(told, "copy")
    spark.streams.addListener(listener)
    try:
        table = stream(spark, real, group__id="spark.copy", maxOffsetsPerTrigger="30")
        finish(
            table.writeStream.format("noop").queryName("copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start
        )  # fmt: skip
        # Listeners are told a moment later.
        until = time.monotonic() + WAIT_S
        while (at := _cursor(client)) < 100:
            assert time.monotonic() < until, at
            time.sleep(0.05)
        assert at == 100
    finally:
        spark.streams.removeListener(listener)


def test_a_wrong_option_of_a_stream_is_one_clear_error(spark, real, client, tmp_path):
    client.admin.create_topic("orders")
    with pytest.raises(Exception, match="option endingOffsets: it has no meaning for a streaming"):
        run(stream(spark, real, endingOffsets="latest"), tmp_path)


@pytest.mark.row("R2")
def test_a_query_over_what_is_new_begins_where_it_was_started(spark, real, client, tmp_path):
    """Its first batch has no rows and says where; what Spark forgot of it does no harm."""
    client.admin.create_topic("orders", queues=2)
    send(client, 0, 10)
    table = stream(spark, real, startingOffsets="latest")
    assert run(table, tmp_path) == []
    checkpoint = tmp_path / "checkpoint"
    planned = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    assert sum(planned["orders"].values()) == 10
    for one in (checkpoint / "commits").iterdir():  # it died before that batch was over
        one.unlink()
    send(client, 10, 20)
    run(table, tmp_path)
    assert sorted(value for *_, value in values(spark, tmp_path)) == list(range(10, 30))


@pytest.mark.row("R2")
def test_the_only_batch_of_a_query_has_rows(spark, real, client, tmp_path):
    client.admin.create_topic("orders")
    send(client, 0, 10)
    writer = stream(spark, real).writeStream.format("parquet")
    writer = writer.option("path", str(tmp_path / "out")).trigger(once=True)
    finish(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start)
    assert values(spark, tmp_path) == truth(client)
