"""A topic that is deleted and made again, under queries of a real Spark."""

from __future__ import annotations

import json
import time

import pytest

import ternmq.sync
from tests.spark.queries import WAIT_S, finish

OLD = [*range(100)]
LENIENT = {"failOnDataLoss": "false"}


def reader(source, real, **options):
    told = source.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
    return told.option("subscribe", "orders").options(**options).load()


def stream(spark, real, **options):
    return reader(spark.readStream, real, startingOffsets="earliest", **options)


def writer(table, folder):
    made = table.writeStream.format("parquet").option("path", str(folder / "out"))
    return made.option("checkpointLocation", str(folder / "checkpoint"))


def run(table, folder):
    return finish(writer(table, folder).trigger(availableNow=True).start)


def values(spark, folder):
    rows = spark.read.schema("value binary").parquet(str(folder / "out")).collect()
    return sorted(int(row["value"]) for row in rows)


def send(client, first, count):
    client.send_many(
        "orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(first, first + count)]
    )


def again(client, count, queues=1):
    """Delete the topic and make it again with other rows; return what Spark says of it."""
    old = client.admin.topic("orders").number
    client.admin.delete_topic("orders")
    client.admin.create_topic("orders", queues=queues)
    send(client, 1000, count)
    new = client.admin.topic("orders").number
    assert new != old
    return f"topic 'orders' of number {old} was deleted; the topic of this name has number {new}"


def planned(folder):
    """Return the offsets of the newest batch in the checkpoint."""
    files = [one for one in (folder / "checkpoint" / "offsets").iterdir() if one.name.isdigit()]
    newest = max(files, key=lambda one: int(one.name))
    return json.loads(newest.read_text().splitlines()[-1])


@pytest.fixture
def orders(client):
    client.admin.create_topic("orders")
    send(client, 0, 100)
    return client


@pytest.mark.row("R2")
@pytest.mark.parametrize("count", [30, 250])
def test_between_two_runs(spark, real, orders, tmp_path, count):
    number = orders.admin.topic("orders").number
    run(stream(spark, real), tmp_path)
    assert planned(tmp_path) == {
        "$topics": {"orders": {"number": number}}, "$version": 2, "orders": {"0": 100},
    }  # fmt: skip
    said = again(orders, count, queues=2)
    with pytest.raises(Exception, match="DataLoss") as raised:
        run(stream(spark, real), tmp_path)
    assert said in str(raised.value)
    assert values(spark, tmp_path) == OLD
    run(stream(spark, real, **LENIENT), tmp_path)
    assert values(spark, tmp_path) == [*OLD, *range(1000, 1000 + count)]
    assert planned(tmp_path)["$topics"] == {"orders": {"number": number + 1}}
    run(stream(spark, real), tmp_path)  # strict again: nothing is lost from here on
    assert len(values(spark, tmp_path)) == 100 + count


def until(condition, query=None):
    end = time.monotonic() + WAIT_S
    while not condition():
        if query is not None and query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.row("R2")
def test_in_a_running_stream(spark, real, orders, tmp_path):
    queries = {
        name: writer(stream(spark, real, **options), tmp_path / name)
        .trigger(processingTime="200 milliseconds")
        .start()
        for name, options in (("strict", {}), ("lenient", LENIENT))
    }
    try:
        for name, query in queries.items():
            until(lambda name=name: _there(spark, tmp_path / name) == OLD, query)
        said = again(orders, 250)
        strict, lenient = queries["strict"], queries["lenient"]
        until(lambda: not strict.isActive)
        assert "DataLoss" in str(strict.exception())
        assert said in str(strict.exception())
        new = [*OLD, *range(1000, 1250)]
        until(lambda: _there(spark, tmp_path / "lenient") == new, lenient)
        # Queues that are added are of the same topic.
        orders.admin.change_topic("orders", queues=3)
        for queue in (1, 2):
            orders.send("orders", b"%d" % (2000 + queue), queue=queue)
        until(lambda: _there(spark, tmp_path / "lenient") == [*new, 2001, 2002], lenient)
    finally:
        for query in queries.values():
            query.stop()
    assert values(spark, tmp_path / "strict") == OLD


def _there(spark, folder):
    """Return the values in the files of finished batches."""
    return values(spark, folder) if (folder / "out" / "_spark_metadata").exists() else []


@pytest.mark.row("R2")
@pytest.mark.parametrize("done", [True, False])
def test_a_checkpoint_of_an_older_version(spark, real, orders, tmp_path, done):
    """It goes on, also with a batch that was planned, and takes the topic that it finds."""
    run(stream(spark, real, maxOffsetsPerTrigger="60"), tmp_path)
    checkpoint = tmp_path / "checkpoint"
    for one in (checkpoint / "offsets").iterdir():
        if not one.name.isdigit():
            one.unlink()  # checksums
            continue
        *head, told = one.read_text().splitlines()
        offsets = {"orders": json.loads(told)["orders"]}
        one.write_text("\n".join([*head, json.dumps(offsets)]))
    if not done:
        commits = checkpoint / "commits"
        last = max(int(one.name) for one in commits.iterdir() if one.name.isdigit())
        (commits / f"{last}").unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
    assert planned(tmp_path) == {"orders": {"0": 100}}
    send(orders, 100, 20)
    run(stream(spark, real), tmp_path)
    assert values(spark, tmp_path) == [*range(120)]
    number = orders.admin.topic("orders").number
    assert planned(tmp_path)["$topics"] == {"orders": {"number": number}}
    said = again(orders, 250)
    with pytest.raises(Exception, match="DataLoss") as raised:
        run(stream(spark, real), tmp_path)
    assert said in str(raised.value)


@pytest.mark.row("R1")
def test_a_batch_that_is_planned(spark, real, orders):
    tables = [reader(spark.read, real), reader(spark.read, real, **LENIENT)]
    for table in tables:
        assert table._jdf.queryExecution().toRdd().getNumPartitions() == 1  # plans it
    said = again(orders, 250)
    with pytest.raises(Exception, match="DataLoss") as raised:
        tables[0].collect()
    assert said in str(raised.value)
    assert tables[1].collect() == []
    assert reader(spark.read, real).count() == 250
