"""``format("ternmq")`` written by Spark."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from tests.spark.queries import finish


def writer(frame, real, **options):
    told = frame.write.format("ternmq").mode(options.pop("mode", "append"))
    return told.option("bootstrap.servers", f"127.0.0.1:{real.port}").options(**options)


@pytest.mark.row("R3")
def test_a_table_becomes_messages(spark, real, client):
    client.admin.create_topic("out", queues=3)
    frame = spark.range(5000).selectExpr(
        "concat('k', id % 11) as key",
        "cast(id as string) as value",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) as headers",
        "if(id % 2 = 0, 'even', 'odd') as tags",
    )
    writer(frame, real, topic="out").save()
    found = list(client.read("out"))
    assert sorted(int(one.body) for one in found) == list(range(5000))
    for one in found:
        n = int(one.body)
        assert one.key == f"k{n % 11}"
        assert one.headers == {"n": str(n)}
        assert one.tag == ("odd" if n % 2 else "even")


@pytest.mark.row("R3")
def test_the_topic_may_be_a_column(spark, real, client):
    for name in ("a", "b"):
        client.admin.create_topic(name)
    frame = spark.range(10).selectExpr("if(id < 4, 'a', 'b') as topic", "cast(id as string) value")
    writer(frame, real).save()
    assert len(list(client.read("a"))) == 4
    assert len(list(client.read("b"))) == 6


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id as value"], {"topic": "out"}, "column value: its type is bigint"),
        (["'x' as key"], {"topic": "out"}, "column value: it is missing"),
        (["'x' as value", "id"], {"topic": "out"}, "column id: it is no part of a message"),
        (["'x' as value"], {}, "option topic: it is missing"),
        (["'x' as value"], {"topic": "nowhere"}, "there is no topic 'nowhere'"),
        (
            ["'x' as value"],
            {"topic": "out", "mode": "overwrite"},
            "mode overwrite: rows can only be added",
        ),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(spark, real, client, columns, options, said):
    client.admin.create_topic("out")
    with pytest.raises(Exception, match=r"\w+") as raised:
        writer(spark.range(3).selectExpr(*columns), real, **options).save()
    assert said in str(raised.value)
    assert list(client.read("out")) == []


@pytest.mark.row("R3")
@pytest.mark.parametrize("told", [{"delivery": "at_least_once"}, {"writerId": "reminders"}])
def test_messages_are_scheduled_and_read_when_they_are_due(spark, real, client, told):
    client.admin.create_topic("out")
    frame = spark.range(20).selectExpr(
        "cast(id as string) value",
        "if(id < 10, null, timestampadd(SECOND, if(id < 15, 2, 3600), current_timestamp()))"
        " as delay_until",
    )
    writer(frame, real, topic="out", **told).save()
    first = {int(one.body) for one in client.read("out")}
    assert set(range(10)) <= first <= set(range(15))  # Spark may take longer than two seconds
    until = time.monotonic() + 60
    while len(list(client.read("out"))) < 15:
        assert time.monotonic() < until
        time.sleep(0.05)
    table = (
        spark.read.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
        .option("subscribe", "out").option("metadataFields", "delay_until").load()
    )  # fmt: skip
    found = {int(bytes(row["value"])): row for row in table.collect()}
    assert found.keys() == set(range(15))
    for number, row in found.items():
        assert (row["delay_until"] is None) == (number < 10)
        assert row["delay_until"] is None or row["timestamp"] >= row["delay_until"]


@pytest.mark.row("R3")
@pytest.mark.parametrize("told", [{"delivery": "at_least_once"}, {"writerId": "ranks"}])
def test_priorities_are_written_and_read(spark, real, client, told):
    client.admin.create_topic("out", levels=3)
    frame = spark.range(30).selectExpr(
        "cast(id as string) value", "if(id < 3, null, cast(id % 3 as int)) as priority"
    )
    writer(frame, real, topic="out", **told).save()
    wanted = {number: 0 if number < 3 else number % 3 for number in range(30)}
    assert {int(one.body): one.priority for one in client.read("out")} == wanted
    table = (
        spark.read.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
        .option("subscribe", "out").option("metadataFields", "priority").load()
    )  # fmt: skip
    rows = table.collect()
    assert {int(bytes(row["value"])): row["priority"] for row in rows} == wanted
    assert all(row["partition"] % 3 == row["priority"] for row in rows)


def test_a_priority_that_the_topic_does_not_have_is_not_written(spark, real, client):
    client.admin.create_topic("out")
    frame = spark.range(3).selectExpr("cast(id as string) value", "cast(id as int) as priority")
    with pytest.raises(Exception, match=r"\w+") as raised:
        writer(frame, real, topic="out", writerId="ranks").save()
    assert "column priority: topic 'out' has no levels" in str(raised.value)
    assert list(client.read("out")) == []


def test_messages_are_written_and_read_with_their_expiry(spark, real, client):
    client.admin.create_topic("out")
    frame = spark.range(3).selectExpr(
        "cast(id as string) value",
        "if(id = 0, null, timestampadd(HOUR, cast(id as int), current_timestamp())) as expires_at",
    )
    writer(frame, real, topic="out").save()
    table = (
        spark.read.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
        .option("subscribe", "out").option("metadataFields", "expires_at").load()
    )  # fmt: skip
    found = {int(bytes(row["value"])): row for row in table.collect()}
    assert found.keys() == {0, 1, 2}
    assert found[0]["expires_at"] is None
    assert found[2]["expires_at"] - found[1]["expires_at"] == timedelta(hours=1)


def test_a_stream_is_written_at_least_once(spark, real, client, tmp_path):
    for name in ("orders", "out"):
        client.admin.create_topic(name)
    client.send_many("orders", [b"%d" % n for n in range(100)])
    table = (
        spark.readStream.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
        .option("subscribe", "orders").option("startingOffsets", "earliest").load()
    )  # fmt: skip
    finish(
        table.select("key", "value").writeStream.format("ternmq")
        .option("bootstrap.servers", f"127.0.0.1:{real.port}").option("topic", "out")
        .option("delivery", "at_least_once").option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True).start
    )  # fmt: skip
    assert sorted(int(one.body) for one in client.read("out")) == list(range(100))
