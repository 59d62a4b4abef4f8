from __future__ import annotations

import pickle

import pytest

from ternmq.model.errors import OptionError
from ternmq.spark.broker.offsets import TopicQueue
from ternmq.spark.topics.options import read_options, write_options
from ternmq.spark.topics.table import TABLE, Start, Use

READ = {"bootstrap.servers": "localhost:7117", "subscribe": "orders"}
WRITE = {"bootstrap.servers": "localhost:7117", "topic": "orders"}


def batch(**options):
    return read_options({**READ, **{k.replace("__", "."): v for k, v in options.items()}},
                        Use.BATCH_READ)  # fmt: skip


def stream(**options):
    return read_options({**READ, **{k.replace("__", "."): v for k, v in options.items()}},
                        Use.STREAM_READ)  # fmt: skip


def test_defaults_of_a_batch_read():
    found = batch()
    assert found.start.where is Start.EARLIEST
    assert found.end.where is Start.LATEST
    assert found.columns == ("key", "value", "topic", "partition", "offset", "timestamp")
    assert found.fail_on_data_loss
    assert not found.report


def test_defaults_of_a_streaming_read():
    found = stream()
    assert found.start.where is Start.LATEST
    assert found.max_offsets == 1_000_000
    assert found.max_bytes == 256 << 20
    assert found.report


def test_names_are_the_same_in_every_case():
    assert batch(FAILONDATALOSS="false", batchrows="5").batch_rows == 5


def test_bootstrap_servers_may_have_the_prefix():
    found = read_options(
        {"ternmq.bootstrap.servers": "a:1,b", "subscribe": "orders"}, Use.BATCH_READ
    )
    assert [str(one) for one in found.broker.addresses] == ["ternmq://a:1", "ternmq://b:7117"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bogus": "1"}, "option bogus: there is no such option"),
        ({"startingOffset": "1"}, "did you mean startingOffsets?"),
        ({"path": "x"}, "option path='x': topics have no path; say subscribe"),
        ({"subscribePattern": "a.*"}, "option subscribePattern: only one of"),
        ({"maxOffsetsPerTrigger": "5"}, "only for a streaming read"),
        ({"topic": "x"}, "option topic: it has no meaning for a batch read, only for writing"),
        ({"writerId": "x"}, "option writerId: it has no meaning"),
        ({"startingOffsets": "latest"}, "option startingOffsets='latest': a batch"),
        ({"startingOffsets": "soon"}, "option startingOffsets='soon'"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "option startingOffsets: -1"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "is -2, -1, or 0 and more"),
        ({"startingOffsets": '{"orders":{"x":1}}'}, "the number of a queue"),
        ({"startingOffsets": '{"orders":{"0":true}}'}, "is a number"),
        ({"startingOffsets": '{"orders":{}}'}, "queues are required"),
        ({"startingOffsets": "{"}, "no JSON"),
        ({"startingOffsets": '{"orders":{"0":1,"0":2}}'}, "is given twice"),
        ({"startingOffsets": '{"other":{"0":1}}'}, "queue 0 of 'other' is not among"),
        ({"startingOffsets": "group"}, "option group.id must name"),
        ({"endingOffsets": "earliest"}, "option endingOffsets='earliest'"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "cannot end at -2"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp='yesterday'"),
        ({"startingTimestamp": "2026-11-21T10:00:00"}, "a time needs its zone"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":"x"}}'}, "option startingOffsetsByT"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "it has no effect without"),
        ({"startingOffsetsByTimestampStrategy": "soon"}, "one of error, latest is required"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss='maybe': true or false"),
        ({"batchRows": "0"}, "option batchRows='0': a whole number from 1 on"),
        ({"batchBytes": "many"}, "option batchBytes='many': a size"),
        ({"minPartitions": "-1"}, "option minPartitions='-1'"),
        ({"columns": "key,bodies"}, "option columns='key,bodies': 'bodies' is none of"),
        ({"columns": "key,key"}, "twice"),
        ({"metadataFields": "value"}, "option metadataFields='value'"),
        ({"emit": "ranges", "columns": "key"}, "option columns: it has no effect with emit=ranges"),
        ({"emit": "index", "columns": "value"}, "emit=index has no column value"),
        ({"keyType": "int"}, "one of binary, string is required"),
        ({"isolationLevel": "read_uncommitted"}, "option isolationLevel"),
        ({"ternmq.token": "s", "ternmq.tokenFile": "/x"}, "option ternmq.tokenFile"),
        ({"ternmq.colour": "red"}, "option ternmq.colour: there is no such option"),
        ({"bootstrap.servers": "here and there"}, "option bootstrap.servers="),
        ({"bootstrap.servers": "ternmq://app:secret@h:1"}, "use ternmq.tokenFile"),
        ({"subscribe": "no such"}, "is no valid topic name"),
        ({"subscribe": "a,a"}, "a topic is named twice"),
        ({"reportProgress": "true"}, "option reportProgress: it has no meaning for a batch read"),
        ({"group.id": "a b"}, "is no valid group name"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(options, said):
    with pytest.raises(OptionError) as raised:
        read_options({**READ, **options}, Use.BATCH_READ)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"endingOffsets": "latest"},
            "option endingOffsets: it has no meaning for a streaming read",
        ),
        ({"pushdownFilters": "true"}, "option pushdownFilters: it has no meaning"),
        ({"maxTriggerDelay": "1m"}, "option maxTriggerDelay: it has no effect without"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "a time such as"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "option minOffsetsPerTrigg"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(options, said):
    with pytest.raises(OptionError) as raised:
        read_options({**READ, **options}, Use.STREAM_READ)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("use", "options", "said"),
    [
        (
            Use.BATCH_WRITE,
            {"subscribe": "x"},
            "option subscribe: it has no meaning for a batch write",
        ),
        (Use.BATCH_WRITE, {"path": "x"}, "option path='x': topics have no path; say topic='x'"),
        (Use.BATCH_WRITE, {"delivery": "exactly_once"}, "a batch write needs writerId"),
        (Use.STREAM_WRITE, {"writerId": "w", "delivery": "at_least_once"}, "option writerId"),
        (Use.STREAM_WRITE, {"ackMode": "one"}, "option ackMode='one'"),
        (Use.STREAM_WRITE, {"compression": "gzip"}, "one of zstd, lz4, none"),
        (Use.STREAM_WRITE, {"writerId": "x" * 129}, "1 to 128 bytes"),
    ],
)
def test_a_wrong_option_of_a_writer_is_named(use, options, said):
    with pytest.raises(OptionError) as raised:
        write_options({**WRITE, **options}, use)
    assert said in str(raised.value)


def test_one_of_three_must_say_what_to_read():
    with pytest.raises(OptionError, match="option subscribe: one of"):
        read_options({"bootstrap.servers": "h:1"}, Use.BATCH_READ)


def test_the_broker_must_be_said():
    with pytest.raises(
        OptionError, match=r"option bootstrap.servers: the address of the broker is required"
    ):
        read_options({"subscribe": "x"}, Use.BATCH_READ)


def test_what_spark_adds_is_passed_over():
    found = write_options({**WRITE, "checkpointlocation": "/x", "queryName": "q"}, Use.STREAM_WRITE)
    assert found.exactly_once


def test_delivery_follows_from_the_writer():
    assert not write_options(WRITE, Use.BATCH_WRITE).exactly_once
    assert write_options({**WRITE, "writerId": "w"}, Use.BATCH_WRITE).exactly_once


def test_times_are_milliseconds_or_iso():
    assert batch(startingTimestamp="1500").start.time_us == 1_500_000
    assert batch(startingTimestamp="1970-01-01T01:00:02+01:00").start.time_us == 2_000_000
    found = batch(startingOffsetsByTimestamp='{"orders":{"0":3,"1":"1970-01-01T00:00:01Z"}}')
    assert found.start.times_us == {
        TopicQueue("orders", 0): 3000,
        TopicQueue("orders", 1): 1_000_000,
    }


def test_the_first_of_the_starts_wins():
    found = batch(startingTimestamp="1", startingOffsets='{"orders":{"0":7}}')
    assert found.start.option == "startingTimestamp"


def test_assign_names_queues():
    found = read_options(
        {"bootstrap.servers": "h:1", "assign": '{"b":[1,0],"a":[2]}'}, Use.BATCH_READ
    )
    assert found.topics.places == (TopicQueue("a", 2), TopicQueue("b", 0), TopicQueue("b", 1))


def test_columns_are_chosen_and_added():
    assert batch(columns="offset,key", includeHeaders="true").columns == (
        "offset", "key", "headers",
    )  # fmt: skip
    assert batch(metadataFields="message_id,crc").columns[6:] == ("message_id", "crc")
    assert "value" not in batch(emit="index").columns


def test_a_token_is_not_shown(tmp_path):
    found = stream(ternmq__token="s3cret")
    assert "s3cret" not in repr(found)
    assert found.broker.secret() == "s3cret"
    file = tmp_path / "token"
    file.write_text("inside\n")
    told = stream(ternmq__tokenFile=str(file))
    assert told.broker.secret() == "inside"
    assert b"inside" not in pickle.dumps(told)
    file.unlink()
    with pytest.raises(OptionError, match=r"option ternmq.tokenFile="):
        told.broker.secret()


def test_the_table_has_no_name_twice():
    names = [option.name.lower() for option in TABLE]
    assert len(set(names)) == len(names)
