from __future__ import annotations

import pytest

from ternmq.model.errors import ConnectionLost, DataLoss, OptionError
from ternmq.spark.broker.offsets import OffsetRange, TopicQueue
from ternmq.spark.schema import kinds
from ternmq.spark.topics.options import read_options
from ternmq.spark.topics.reading import BatchRead
from ternmq.spark.topics.table import Use
from tests.unit.spark.fake_port import FakeBroker


def read(broker, **options):
    told = {"bootstrap.servers": "h:1", **{k.replace("__", "."): v for k, v in options.items()}}
    if not told.keys() & {"subscribe", "subscribePattern", "assign"}:
        told["subscribe"] = "orders"
    told.setdefault("fetchOffset.retryIntervalMs", "0")
    found = read_options(told, Use.BATCH_READ)
    return BatchRead(found, kinds(found.columns), broker.connect)


@pytest.fixture
def filled(broker):
    for number in range(3):
        broker.put("orders", b"a%d" % number, b"b%d" % number)  # at 1, 2, 3 s: queue 0
    broker.put("orders", b"c", queue=1)  # at 4 s
    return broker


def test_everything_by_default(filled):
    assert read(filled).plan() == [
        OffsetRange("orders", 0, 0, 6, 1),
        OffsetRange("orders", 1, 0, 1, 1),
    ]
    assert filled.open == 0


def test_an_empty_topic_gives_no_tasks(broker):
    assert read(broker).plan() == []


def test_several_topics(filled):
    filled.create("other")
    filled.put("other", b"x")
    found = read(filled, subscribe="other,orders").plan()
    assert [span.topic for span in found] == ["orders", "orders", "other"]


def test_a_pattern_is_for_whole_names(filled):
    filled.create("orders.more")
    filled.put("orders.more", b"x")
    assert {s.topic for s in read(filled, subscribePattern="order.").plan()} == {"orders"}
    assert len(read(filled, subscribePattern="orders.*").plan()) == 3
    assert read(filled, subscribePattern="nothing").plan() == []


def test_single_queues(filled):
    assert read(filled, assign='{"orders":[1]}').plan() == [OffsetRange("orders", 1, 0, 1, 1)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "none"}, "option subscribe: there is no topic 'none' at ternmq://h:1"),
        ({"assign": '{"orders":[2]}'}, "option assign: there is no queue 2 of 'orders'"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "does not name queue 1 of 'orders'"),
        (
            {"startingOffsets": '{"orders":{"0":1,"1":0,"2":0}}'},
            "it names queue 2 of 'orders', which is not read",
        ),
        ({"startingOffsets": '{"orders":{"0":7,"1":0}}'}, "7 is above the end of queue 0"),
        ({"endingOffsets": '{"orders":{"0":7,"1":0}}'}, "option endingOffsets: 7 is above"),
        (
            {
                "startingOffsets": '{"orders":{"0":3,"1":0}}',
                "endingOffsets": '{"orders":{"0":2,"1":0}}',
            },
            "option endingOffsets: 2 is before the start",
        ),
        ({"startingTimestamp": "9000"}, "option startingTimestamp: queue 0 of 'orders' has no"),
    ],
)
def test_what_does_not_fit_is_named(filled, options, said):
    with pytest.raises(OptionError) as raised:
        read(filled, **options).plan()
    assert said in str(raised.value)
    assert filled.open == 0


def test_offsets(filled):
    found = read(
        filled,
        startingOffsets='{"orders":{"0":2,"1":-2}}',
        endingOffsets='{"orders":{"0":5,"1":-1}}',
    ).plan()
    assert found == [OffsetRange("orders", 0, 2, 5, 1), OffsetRange("orders", 1, 0, 1, 1)]


def test_times(filled):
    found = read(filled, startingTimestamp="2000", endingTimestamp="4000").plan()
    assert found == [OffsetRange("orders", 0, 2, 6, 1)]
    found = read(filled, startingTimestamp="3500", startingOffsetsByTimestampStrategy="latest")
    assert found.plan() == [OffsetRange("orders", 1, 0, 1, 1)]
    found = read(filled, startingOffsetsByTimestamp='{"orders":{"0":1000,"1":4000}}')
    assert [span.start for span in found.plan()] == [0, 0]


def test_where_a_group_is(filled):
    filled.groups["orders", "dw"] = {0: 4}
    found = read(filled, startingOffsets="group", group__id="dw").plan()
    assert found == [OffsetRange("orders", 0, 4, 6, 1), OffsetRange("orders", 1, 0, 1, 1)]


def test_offsets_that_are_gone(filled):
    filled.expire("orders", 0, 4)
    told = {"startingOffsets": '{"orders":{"0":1,"1":0}}'}
    with pytest.raises(DataLoss, match="the oldest offset that is kept is 4"):
        read(filled, **told).plan()
    lenient = read(filled, **told, failOnDataLoss="false")
    assert lenient.plan()[0] == OffsetRange("orders", 0, 4, 6, 1)


def test_long_queues_are_split(filled):
    found = read(filled, maxRecordsPerPartition="4").plan()
    assert [(s.start, s.stop) for s in found] == [(0, 3), (3, 6), (0, 1)]
    assert len(read(filled, minPartitions="7").plan()) == 7


def test_the_broker_is_asked_again(filled):
    filled.fail("ranges", ConnectionLost("x"), ConnectionLost("x"))
    assert len(read(filled).plan()) == 2
    filled.fail("ranges", *[ConnectionLost("x")] * 4)
    with pytest.raises(ConnectionLost):
        read(filled).plan()


def test_a_queue_that_came_meanwhile_is_not_read():
    broker = FakeBroker(orders=1)
    broker.put("orders", b"x")
    found = read(broker)
    plan = found.plan()
    broker.create("later")
    assert [span.place for span in plan] == [TopicQueue("orders", 0)]
