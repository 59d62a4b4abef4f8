"""``format("ternmq")`` read by Spark."""

from __future__ import annotations

import pytest

import ternmq.sync


def reader(spark, real, **options):
    told = spark.read.format("ternmq").option("bootstrap.servers", f"127.0.0.1:{real.port}")
    return told.option("subscribe", options.pop("subscribe", "orders")).options(
        **{name.replace("__", "."): value for name, value in options.items()}
    )


def send(client, count, topic="orders", first=0):
    client.send_many(
        topic,
        [
            ternmq.sync.Message(b"%d" % n, key=f"k{n % 7}", tag="ab"[n % 2], headers={"n": str(n)})
            for n in range(first, first + count)
        ],
    )


@pytest.mark.row("R1")
def test_a_topic_is_a_table(spark, real, client):
    client.admin.create_topic("orders", queues=2)
    send(client, 1000)
    table = reader(spark, real).load()
    assert dict(table.dtypes) == {
        "key": "binary", "value": "binary", "topic": "string", "partition": "int",
        "offset": "bigint", "timestamp": "timestamp",
    }  # fmt: skip
    rows = table.collect()
    read = {(one.queue, one.offset): one for one in client.read("orders")}
    assert len(rows) == len(read) == 1000
    for row in rows:
        one = read[row["partition"], row["offset"]]
        assert (bytes(row["value"]), bytes(row["key"])) == (one.body, one.key.encode())
    assert table.count() == 1000
    assert table.groupBy("key").count().count() == 7


@pytest.mark.row("R1")
def test_types_headers_metadata_and_projection(spark, real, client):
    send(client, 20)
    table = reader(
        spark, real, includeHeaders="true", metadataFields="message_id,tags,born_timestamp,crc",
        keyType="string", valueType="string", subscribe="orders",
    ).load()  # fmt: skip
    row = table.where("value = '3'").select("headers", "tags", "key").first()
    assert [(one["key"], bytes(one["value"])) for one in row["headers"]] == [("n", b"3")]
    assert (row["tags"], row["key"]) == ("b", "k3")
    assert reader(spark, real, columns="offset,tags").load().columns == ["offset", "tags"]
    own = reader(spark, real).schema("offset bigint, value string").load()
    assert {(one["offset"], one["value"]) for one in own.collect()} == {
        (n, str(n)) for n in range(20)
    }


def test_ranges_and_offsets(spark, real, client):
    send(client, 50)
    table = reader(
        spark, real, emit="ranges", startingOffsets='{"orders":{"0":5}}',
        endingOffsets='{"orders":{"0":45}}', maxRecordsPerPartition="25",
    ).load()  # fmt: skip
    assert [tuple(row) for row in table.orderBy("start").collect()] == [
        ("orders", 0, 5, 25), ("orders", 0, 25, 45),
    ]  # fmt: skip


def test_an_empty_topic_is_an_empty_table(spark, real, client):
    client.admin.create_topic("orders")
    assert reader(spark, real).load().count() == 0


def test_filters_are_applied_while_reading(spark, real, client):
    client.admin.create_topic("orders", queues=2)
    send(client, 200)
    table = reader(spark, real, pushdownFilters="true").load()
    plain = reader(spark, real).load()
    for condition in (
        "offset >= 10 and offset < 20",
        "partition = 1 and offset in (3, 5, 500)",
        "topic = 'other'",
        "key = cast('k3' as binary)",
        "timestamp > timestamp'2020-01-01' and key is not null and length(value) = 2",
    ):
        found = table.where(condition).select("partition", "offset").collect()
        wanted = plain.where(condition).select("partition", "offset").collect()
        assert sorted(found) == sorted(wanted), condition
    planned = table.where("offset < 10")._jdf.queryExecution().executedPlan().toString()
    assert ") Filter " not in planned


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"startingOffset": "1"},
            "option startingoffset: there is no such option; did you mean",
        ),
        ({"subscribe": "nowhere"}, "option subscribe: there is no topic 'nowhere'"),
        (
            {"maxOffsetsPerTrigger": "5"},
            "option maxOffsetsPerTrigger: it has no meaning for a batch",
        ),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss='maybe'"),
    ],
)
def test_a_wrong_option_is_one_clear_error(spark, real, client, options, said):
    client.admin.create_topic("orders")
    with pytest.raises(Exception, match="OptionError") as raised:
        reader(spark, real, **options).load().collect()
    assert said in str(raised.value)


def test_tokens_are_not_shown(spark, real, client, capfd):
    client.admin.create_topic("orders")
    table = reader(spark, real, ternmq__token="s3cret-t0ken").load()
    table.explain(extended=True)
    assert "s3cret" not in capfd.readouterr().out
    assert "s3cret" not in repr(table)


def test_a_broker_that_is_away_is_one_clear_error(spark, real, client):
    client.admin.create_topic("orders")
    table = reader(spark, real, fetchOffset__numRetries="0").load()
    real.stop()
    with pytest.raises(Exception, match="no broker at ternmq:"):
        table.collect()
