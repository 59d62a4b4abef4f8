"""A topic that is deleted and made again, at a real broker, without Spark."""

from __future__ import annotations

import time

import pytest

import ternmq.sync
from ternmq.model.errors import DataLoss
from ternmq.spark.broker.offsets import Progress, TopicQueue
from ternmq.spark.topics.options import read_options
from ternmq.spark.topics.reading import BatchRead, Reading, StreamRead
from ternmq.spark.topics.table import Use

pytest.importorskip("pyarrow")

BOTH = r"topic 'orders' of number \d+ was deleted; the topic of this name has number \d+"


@pytest.fixture
def client(real):
    with ternmq.sync.connect(real.url) as one:
        one.admin.create_topic("orders")
        yield one


def options(real, use, **more):
    return read_options(
        {"bootstrap.servers": f"127.0.0.1:{real.port}", "subscribe": "orders", **more}, use
    )


def batch(real, **more):
    found = options(real, Use.BATCH_READ, **more)
    return BatchRead(found, found.offered)


def stream(real, **more):
    told = {"watermarkCacheMs": "0", "startingOffsets": "earliest", **more}
    found = options(real, Use.STREAM_READ, **told)
    return StreamRead(Reading(found, found.offered))


def send(client, first, count):
    client.send_many("orders", [b"%d" % n for n in range(first, first + count)])


def again(client, count):
    client.admin.delete_topic("orders")
    client.admin.create_topic("orders")
    if count:
        send(client, 1000, count)


def values(reading, spans):
    return [
        int(row["value"])
        for span in spans
        for part in reading.read(span)
        for row in part.to_pylist()
    ]


@pytest.mark.parametrize("rows", [0, 50, 200])
def test_a_batch_that_was_planned_before(real, client, rows):
    send(client, 0, 100)
    strict, lenient = batch(real), batch(real, failOnDataLoss="false")
    plan = strict.plan()
    again(client, rows)
    began = time.monotonic()
    with pytest.raises(DataLoss, match=BOTH):
        values(strict, plan)
    assert values(lenient, plan) == []
    assert time.monotonic() - began < 25  # it does not wait for rows that will never come
    assert values(strict, strict.plan()) == [*range(1000, 1000 + rows)]


@pytest.mark.parametrize("rows", [50, 200])
def test_a_stream_between_two_batches(real, client, rows):
    send(client, 0, 100)
    strict, lenient = stream(real), stream(real, failOnDataLoss="false")
    assert strict.latest(strict.initial()) == strict.initial()
    at = strict.latest(strict.initial())
    assert at.offsets == {TopicQueue("orders", 0): 100}
    assert at.numbers == {"orders": client.admin.topic("orders").number}
    again(client, rows)
    with pytest.raises(DataLoss, match=BOTH):
        strict.latest(at)
    after = lenient.latest(at)
    assert lenient.spans(at, after) == []
    last = lenient.latest(after)
    assert values(lenient.reading, lenient.spans(after, last)) == [*range(1000, 1000 + rows)]
    lenient.committed(last)
    (group,) = client.admin.groups(topic="orders", group="spark-ternmq.orders")
    assert group.queues[0].cursor == rows
    strict.stop()
    lenient.stop()


def test_queues_that_are_added_belong_to_the_same_topic(real, client):
    send(client, 0, 10)
    one = stream(real)
    at = one.initial()
    assert one.latest(at) == at
    client.admin.change_topic("orders", queues=2)
    client.send("orders", b"new", queue=1)
    after = at
    for start in (at, Progress(at.offsets)):  # the other one is as older versions stored it
        after = one.latest(start)
        assert after.numbers == at.numbers
        assert after.offsets == {TopicQueue("orders", 0): 10, TopicQueue("orders", 1): 0}
    last = one.latest(after)
    assert last.offsets[TopicQueue("orders", 1)] == 1
    one.stop()
