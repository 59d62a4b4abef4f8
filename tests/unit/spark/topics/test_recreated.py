"""A topic that is deleted and made again is another one: its rows are not read for the old."""

from __future__ import annotations

import json

import pytest

from ternmq.model.errors import DataLoss, OptionError
from ternmq.spark.broker.offsets import OffsetRange, Progress, TopicQueue, to_json
from ternmq.spark.topics.options import read_options
from ternmq.spark.topics.reading import BatchRead, Reading, StreamRead
from ternmq.spark.topics.table import Use
from tests.unit.spark.fake_port import FakeBroker

pytest.importorskip("pyarrow")

from tests.unit.spark.engine import Checkpoint, Run

Q0, Q1 = TopicQueue("orders", 0), TopicQueue("orders", 1)
BOTH = r"topic 'orders' of number 1 was deleted; the topic of this name has number 2"
LENIENT = {"failOnDataLoss": "false"}


@pytest.fixture
def broker():
    return FakeBroker(orders=1)


def options(use, **more):
    told = {"bootstrap.servers": "h:1", "fetchOffset.retryIntervalMs": "0", **more}
    return read_options(told if "subscribe" in told else {**told, "subscribe": "orders"}, use)


def batch(broker, **more):
    found = options(Use.BATCH_READ, **more)
    return BatchRead(found, found.offered, broker.connect)


def stream(broker, **more):
    told = {"startingOffsets": "earliest", "watermarkCacheMs": "0", **more}
    found = options(Use.STREAM_READ, **told)
    return StreamRead(Reading(found, found.offered, broker.connect))


def fill(broker, count, first=0, queue=0):
    for n in range(first, first + count):
        broker.put("orders", b"%d" % n, queue=queue)


def again(broker, count, queues=1, first=1000):
    """Delete the topic and make it again, with other rows."""
    broker.create("orders", queues)
    fill(broker, count, first)


def values(reading, spans):
    return [
        int(row["value"])
        for span in spans
        for part in reading.read(span)
        for row in part.to_pylist()
    ]


def at(number, **queues):
    offsets = {TopicQueue("orders", int(name[1:])): offset for name, offset in queues.items()}
    return Progress(offsets, {"orders": number} if number else {})


# -- batch


@pytest.mark.parametrize("rows", [3, 5, 9])
def test_a_batch_reads_the_topic_that_was_planned(broker, rows, caplog):
    fill(broker, 5)
    strict, lenient = batch(broker), batch(broker, **LENIENT)
    plan = strict.plan()
    assert plan == [OffsetRange("orders", 0, 0, 5, 1)]
    again(broker, rows)
    with pytest.raises(DataLoss, match=rf"5 messages from offset 0 on.*{BOTH}"):
        values(strict, plan)
    assert values(lenient, plan) == []
    assert BOTH in caplog.text
    assert broker.open == 0


def test_a_topic_made_again_while_a_task_reads(broker):
    fill(broker, 6)
    broker.batch_rows = 2
    strict = batch(broker, batchRows="1")
    rows = strict.read(strict.plan()[0])
    assert next(rows).num_rows
    again(broker, 9)
    with pytest.raises(DataLoss, match=BOTH):
        list(rows)


def test_a_topic_made_again_whose_first_rows_have_expired(broker):
    fill(broker, 5)
    strict, lenient = batch(broker), batch(broker, **LENIENT)
    plan = strict.plan()
    again(broker, 9)
    broker.expire("orders", 0, 3)
    with pytest.raises(DataLoss, match=rf"5 messages from offset 0 on.*{BOTH}"):
        values(strict, plan)
    assert values(lenient, plan) == []


def test_offsets_of_a_query_as_an_option(broker):
    """Offsets that a user wrote mean the topic that is there; those of a query mean its topic."""
    fill(broker, 5)
    shown = json.dumps(to_json(at(1, q0=3)))
    assert values(batch(broker), batch(broker, startingOffsets=shown).plan()) == [3, 4]
    assert values(batch(broker), batch(broker, endingOffsets=shown).plan()) == [0, 1, 2]
    again(broker, 6)
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(DataLoss, match=rf"option {option}: {BOTH}"):
            batch(broker, **{option: shown}).plan()
        plan = batch(broker, **{option: shown}, **LENIENT).plan()
        assert plan == [OffsetRange("orders", 0, 0, 6, 2)]
    plain = batch(broker, startingOffsets='{"orders": {"0": 3}}').plan()
    assert plain == [OffsetRange("orders", 0, 3, 6, 2)]
    with pytest.raises(OptionError, match="no offsets of a query"):
        batch(broker, startingOffsets='{"$topics": {}, "orders": {"0": 3}}')


# -- streams


@pytest.mark.parametrize("rows", [0, 3, 5, 9])
def test_a_stream_does_not_go_on_in_another_topic(broker, rows):
    fill(broker, 5)
    one = stream(broker)
    again(broker, rows)
    with pytest.raises(DataLoss, match=BOTH):
        one.latest(at(1, q0=5))
    assert stream(broker).latest(at(2, q0=rows)) == at(2, q0=rows)


@pytest.mark.parametrize("queues", [1, 3])
def test_a_lenient_stream_reads_the_new_topic_from_its_first_row(broker, queues, caplog):
    fill(broker, 5)
    one = stream(broker, **LENIENT)
    start = at(1, q0=5, q1=7)
    again(broker, 9, queues)
    broker.expire("orders", 0, 2)
    after = one.latest(start)
    first = {"q0": 2, **{f"q{n}": 0 for n in range(1, queues)}}
    assert after == at(2, **first)
    assert f"{BOTH}: it is read from its first row" in caplog.text
    # Its place is stored before any of its rows is read.
    assert one.spans(start, after) == []
    last = one.latest(after)
    assert one.spans(after, last) == [OffsetRange("orders", 0, 2, 9, 2)]
    assert values(one.reading, one.spans(after, last)) == [*range(1002, 1009)]
    assert one.latest(last) == last


def test_a_topic_that_is_gone_for_a_while_is_known_when_it_is_back(broker):
    fill(broker, 5)
    one = stream(broker, **LENIENT)
    del broker.topics["orders"]
    assert one.latest(at(1, q0=5)) == at(1, q0=5)
    again(broker, 9)
    assert one.latest(at(1, q0=5)) == at(2, q0=0)


def test_available_now_reads_what_the_new_topic_has(broker):
    fill(broker, 5)
    one = stream(broker, **LENIENT)
    one.freeze()
    again(broker, 9)
    after = one.latest(at(1, q0=2))
    fill(broker, 3)  # after the end of this run
    assert one.latest(after) == at(2, q0=9)
    assert one.latest(at(2, q0=9)) == at(2, q0=9)


def test_a_range_that_was_planned_in_the_old_topic(broker):
    """Its rows are gone: an error, or none; never the rows of the new topic."""
    fill(broker, 5)
    one, lenient = stream(broker), stream(broker, **LENIENT)
    start = one.initial()
    after = one.latest(start)
    again(broker, 9)
    spans = one.spans(start, at(1, q0=5))
    assert after == start
    assert spans == [OffsetRange("orders", 0, 0, 5, 1)]
    with pytest.raises(DataLoss, match=BOTH):
        values(one.reading, spans)
    assert values(lenient.reading, spans) == []


def test_other_topics_go_on(broker):
    broker.create("other")
    broker.put("other", b"1", b"2")
    one = stream(broker, subscribe="orders,other", **LENIENT)
    fill(broker, 5)
    start = one.initial()
    again(broker, 9)
    other = TopicQueue("other", 0)
    assert start == Progress({Q0: 0, other: 0}, {"orders": 1, "other": 2})
    after = stream(broker, subscribe="orders,other", **LENIENT).latest(start)
    assert after == Progress({Q0: 0, other: 2}, {"orders": 3, "other": 2})


def test_an_old_checkpoint_takes_the_topic_that_it_finds(broker):
    fill(broker, 5)
    one = stream(broker)
    old = at(0, q0=5)
    assert one.spans(at(0, q0=2), old) == [OffsetRange("orders", 0, 2, 5, 0)]
    after = one.latest(old)
    assert after == at(1, q0=5)
    assert to_json(after) != to_json(old)  # so Spark stores it, in a batch without rows
    assert one.spans(old, after) == []
    fill(broker, 2, 5)
    assert one.spans(old, one.latest(old)) == [OffsetRange("orders", 0, 5, 7, 1)]
    again(broker, 9)
    with pytest.raises(DataLoss, match=BOTH):
        one.latest(after)


def test_the_first_batch_of_an_old_checkpoint_has_its_rows(broker):
    """``trigger(once=True)``: the only batch has rows, and Spark asks again where it began."""
    fill(broker, 5)
    one = stream(broker)
    assert one.spans(one.initial(), at(0, q0=5)) == [OffsetRange("orders", 0, 0, 5, 1)]


def test_queues_that_are_added_are_read(broker):
    fill(broker, 5)
    one = stream(broker)
    broker.add_queue("orders")
    fill(broker, 3, 100, queue=1)
    start = at(1, q0=2)
    after = one.latest(start)
    assert after == at(1, q0=5, q1=0)
    assert one.spans(start, after) == [OffsetRange("orders", 0, 2, 5, 1)]
    last = one.latest(after)
    assert one.spans(after, last) == [OffsetRange("orders", 1, 0, 3, 1)]


def test_progress_in_a_topic_is_not_told_to_another(broker):
    fill(broker, 5)
    one = stream(broker)
    again(broker, 9)
    one.committed(at(1, q0=5))
    assert broker.groups == {}
    one.committed(at(2, q0=4))
    assert broker.groups["orders", "spark-ternmq.orders"] == {0: 4}
    broker.fail("ranges", *[OptionError("x")] * 9)
    one.committed(at(2, q0=5))  # never fails a query


# -- whole runs


@pytest.mark.parametrize("rows", [4, 20, 60])
@pytest.mark.parametrize("lenient", [False, True])
def test_a_topic_made_again_between_two_runs(rows, lenient):
    broker = FakeBroker(orders=1, out=1)
    fill(broker, 20)
    checkpoint = Checkpoint()
    Run(broker).stream(checkpoint)
    again(broker, rows)
    run = Run(broker, lenient=lenient)
    if not lenient:
        with pytest.raises(DataLoss, match=r"topic 'orders' of number 1 .* has number 3"):
            run.stream(checkpoint)
        assert sorted(map(int, broker.bodies("out"))) == [*range(20)]
        return
    run.stream(checkpoint)
    assert sorted(map(int, broker.bodies("out"))) == [*range(20), *range(1000, 1000 + rows)]
