from __future__ import annotations

import pickle

import pytest

from ternmq.model.errors import ConnectionLost, DataLoss, OptionError, ReadIncomplete
from ternmq.record.batch.batch import Compression, Row
from ternmq.spark import schema
from ternmq.spark.broker.offsets import OffsetRange, Progress, TopicQueue, of_json, to_json
from ternmq.spark.topics.fetch import read_span
from ternmq.spark.topics.filters import Filter, Filters
from ternmq.spark.topics.options import read_options
from ternmq.spark.topics.reading import BatchRead, Reading, StreamRead, group_name
from ternmq.spark.topics.table import Use
from tests.unit.spark.fake_port import FakeBroker, Queue

pa = pytest.importorskip("pyarrow")


def reading(broker, use=Use.BATCH_READ, **options):
    told = {"bootstrap.servers": "h:1", **{k.replace("__", "."): v for k, v in options.items()}}
    if not told.keys() & {"subscribe", "subscribePattern", "assign"}:
        told["subscribe"] = "orders"
    found = read_options(told, use)
    kind = BatchRead if use is Use.BATCH_READ else Reading
    return kind(found, found.offered, broker.connect)


def rows(reader, spans=None):
    found = []
    for span in reader.plan() if spans is None else spans:
        for batch in reader.read(span):
            assert batch.schema == schema.arrow(reader.columns)
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


# -- batch


def test_rows_are_what_was_sent(broker):
    broker.put("orders", Row(b"one", key="k1", tag="t", headers={"a": "1"}), Row(b""))
    broker.put("orders", *[b"%d" % n for n in range(40)])
    found = rows(reading(broker, includeHeaders="true", metadataFields="message_id,tags,crc"))
    assert [row["value"] for row in found] == [b"one", b"", *(b"%d" % n for n in range(40))]
    assert [row["offset"] for row in found] == list(range(42))
    assert found[0]["key"] == b"k1"
    assert found[1]["key"] is None
    assert found[0]["headers"] == [{"key": "a", "value": b"1"}]
    assert found[1]["headers"] is None
    assert [row["tags"] for row in found[:2]] == ["t", None]
    assert found[41]["message_id"] == "0000000000000007:29"
    assert {row["topic"] for row in found} == {"orders"}
    assert {row["partition"] for row in found} == {0}
    assert found[0]["timestamp"].timestamp() == 1.0
    assert found[41]["timestamp"].timestamp() == 2.0
    from google_crc32c import value

    assert [row["crc"] for row in found] == [value(row["value"]) for row in found]
    assert broker.open == 0


def test_columns_by_the_names_of_the_tables(broker):
    row = Row(b"one", key="k", tag="t", headers={"a": "ä"}, ordering_key="o")
    broker.put("orders", row, Row(b"two"))
    names = ",".join([*schema.ALIASES, *schema.ALIASES.values(), "headers"])
    found = rows(reading(broker, columns=names, headersType="map", valueType="string"))
    for one in found:
        for alias, name in schema.ALIASES.items():
            assert one[alias] == one[name]
    assert (found[0]["body"], found[0]["tag"], found[0]["ordering_key"]) == ("one", "t", "o")
    assert [one["headers"] for one in found] == [[("a", "ä")], None]


@pytest.mark.parametrize("few", [1, 3, 15, 16, 17, 100])
def test_every_column_of_every_size_of_batch(broker, few):
    for compression in (Compression.NONE, Compression.ZSTD):
        broker.put(
            "orders",
            *[
                Row(
                    b"%d" % n * 20, key=f"k{n % 3}" if n % 2 else "", ordering_key=f"o{n}",
                    tag="ab"[n % 2], headers={"n": str(n)}, content_type="text", expiry_us=n,
                    priority=n % 10, application_id=f"{compression}-{n}",
                )
                for n in range(few)
            ],
            compression=compression,
        )  # fmt: skip
    found = rows(reading(broker, columns=",".join(schema.FIELDS)))
    assert len(found) == 2 * few
    for at, row in enumerate(found):
        n = at % few
        assert row["value"] == b"%d" % n * 20
        assert row["key"] == (f"k{n % 3}".encode() if n % 2 else None)
        assert row["order_key"] == f"o{n}"
        assert row["tags"] == "ab"[n % 2]
        assert row["headers"] == [{"key": "n", "value": str(n).encode()}]
        assert row["content_type"] == "text"
        assert row["priority"] == n % 10
        assert row["application_id"].endswith(f"-{n}")
        assert row["producer"] == "0000000000000007"
        assert (row["expires_at"] is None) == (n == 0)
        assert row["delay_until"] is row["attempt"] is row["txn_id"] is None


def test_small_batches_are_put_together_and_large_ones_cut(broker):
    for n in range(50):
        broker.put("orders", b"%d" % n)
    broker.put("orders", *[b"x"] * 50)
    reader = reading(broker, batchRows="25")
    sizes = [batch.num_rows for span in reader.plan() for batch in reader.read(span)]
    assert sizes == [25, 25, 25, 25]
    reader = reading(broker)
    assert [b.num_rows for span in reader.plan() for b in reader.read(span)] == [100]


def test_only_the_range_is_read(broker):
    for n in range(10):
        broker.put("orders", *[b"%d" % (10 * n + k) for k in range(10)])
    found = rows(reading(broker), [OffsetRange("orders", 0, 17, 42)])
    assert [int(row["value"]) for row in found] == list(range(17, 42))


@pytest.mark.parametrize("piece", [1, 7, 10, 11, 25])
def test_pieces_end_within_stored_batches(broker, piece):
    """A broker answers with so many rows, in records that are whole."""
    for n in range(5):
        broker.put("orders", *[b"%d" % (10 * n + k) for k in range(10)])
    broker.batch_rows = piece
    found = rows(reading(broker), [OffsetRange("orders", 0, 3, 48)])
    assert [int(row["value"]) for row in found] == list(range(3, 48))


def test_projection_and_types(broker):
    broker.put("orders", Row(b"caf\xc3\xa9", key="k"), Row(b"\xff"))
    reader = reading(broker, columns="offset,value,key", valueType="string", keyType="string")
    assert rows(reader) == [
        {"offset": 0, "value": "café", "key": "k"},
        {"offset": 1, "value": "�", "key": None},
    ]


def test_no_columns_at_all_still_counts(broker):
    broker.put("orders", *[b"x"] * 30)
    reader = reading(broker)
    bare = BatchRead(reader.options, {}, broker.connect)
    assert sum(batch.num_rows for span in bare.plan() for batch in bare.read(span)) == 30


def test_ranges_instead_of_messages(broker):
    broker.put("orders", *[b"x"] * 30)
    reader = reading(broker, emit="ranges", maxRecordsPerPartition="20")
    assert rows(reader) == [
        {"topic": "orders", "partition": 0, "start": 0, "end": 15},
        {"topic": "orders", "partition": 0, "start": 15, "end": 30},
    ]
    assert "fetch" not in broker.calls


def test_filters_narrow_and_keep_only_what_passes(broker):
    broker.put("orders", *[Row(b"%d" % n, key="ab"[n % 2]) for n in range(30)])
    broker.put("orders", b"q1", queue=1)
    only = Filters(
        (
            Filter("partition", "equal", 0),
            Filter("offset", "greater_equal", 10),
            Filter("offset", "less", 20),
            Filter("key", "equal", b"a"),
        )
    )
    reader = reading(broker, columns="offset").filtered(only)
    assert reader.plan() == [OffsetRange("orders", 0, 10, 20, 1)]
    assert [row["offset"] for row in rows(reader)] == [10, 12, 14, 16, 18]


def test_what_retention_took_fails_or_is_passed_over(broker, caplog):
    for n in range(10):
        broker.put("orders", b"%d" % n)
    reader = reading(broker)
    lenient = reading(broker, failOnDataLoss="false")
    plan = reader.plan()
    broker.expire("orders", 0, 6)
    with pytest.raises(DataLoss, match=r"6 messages from offset 0 on.*keeps nothing below 6"):
        rows(reader, plan)
    assert [row["offset"] for row in rows(lenient, plan)] == [6, 7, 8, 9]
    assert "6 messages from offset 0 on" in caplog.text
    # A range that lies below what is kept is empty: nothing outside of it is read instead.
    assert rows(lenient, [OffsetRange("orders", 0, 1, 4)]) == []
    assert broker.open == 0


def test_a_topic_that_is_gone_or_new(broker):
    broker.put("orders", *[b"x"] * 5)
    plan = [OffsetRange("orders", 0, 0, 5)]
    reader, lenient = reading(broker), reading(broker, failOnDataLoss="false")
    broker.create("orders", 1)
    broker.put("orders", b"other")
    with pytest.raises(DataLoss, match="it is another one of the same name"):
        rows(reader, [OffsetRange("orders", 0, 3, 5)])
    assert rows(lenient, [OffsetRange("orders", 0, 3, 5)]) == []
    del broker.topics["orders"]
    with pytest.raises(DataLoss, match="it is gone"):
        rows(reader, plan)
    assert rows(lenient, plan) == []


def test_a_task_fails_rather_than_end_early(broker):
    broker.put("orders", b"x")
    reader = reading(broker, maxWaitMs="1000")
    port = broker.connect(reader.options.broker)
    ticks = iter(range(100))
    with pytest.raises(
        ReadIncomplete, match="no message from offset 1 on was received for 1000 ms"
    ):
        list(
            read_span(
                port, reader.options, OffsetRange("orders", 0, 0, 2), reader.columns,
                lambda: next(ticks) / 4,
            )
        )  # fmt: skip


def test_readers_travel(broker):
    reader = BatchRead(reading(broker).options, {"offset": "bigint"})
    assert pickle.loads(pickle.dumps(reader)) == reader


# -- offsets


def test_offsets_are_written_in_one_order():
    offsets = {TopicQueue("b", 10): 1, TopicQueue("b", 9): 2, TopicQueue("a", 0): 3}
    told = Progress(offsets, {"b": 2, "a": 7})
    shown = to_json(told)
    assert list(shown) == ["$topics", "$version", "a", "b"]
    assert list(shown["$topics"]) == ["a", "b"]
    assert list(shown["b"]) == ["9", "10"]
    assert of_json(shown) == told
    with pytest.raises(OptionError, match="its offsets belong to another source"):
        of_json({"sources": 3})


# -- streams


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def stream(broker, clock=None, **options):
    options.setdefault("startingOffsets", "earliest")
    options.setdefault("watermarkCacheMs", "0")
    options.setdefault("fetchOffset__retryIntervalMs", "0")
    return StreamRead(reading(broker, Use.STREAM_READ, **options), clock or Clock())


def begun(one):
    """Return where a stream is behind its first batch, which is empty."""
    at = one.initial()
    assert one.latest(at) == at
    assert one.spans(at, at) == []
    return at


def fill(broker, count, queue=0):
    for n in range(count):
        broker.put("orders", b"%d" % n, queue=queue)


Q0, Q1 = TopicQueue("orders", 0), TopicQueue("orders", 1)


def known(offsets, number=1):
    """Return progress in the topic of this number."""
    return Progress(offsets, {"orders": number})


def test_a_stream_begins_where_it_is_told(broker):
    fill(broker, 3)
    assert stream(broker).initial() == known({Q0: 0, Q1: 0})
    one = stream(broker, startingOffsets="latest")
    assert one.initial() == known({Q0: 3, Q1: 0})
    fill(broker, 1)
    assert one.initial() == known({Q0: 3, Q1: 0})  # asked twice, the same


@pytest.mark.row("R2")
def test_where_a_query_begins_is_written_down_before_anything_is_read(broker):
    fill(broker, 3)
    one = stream(broker, startingOffsets="latest")
    at = begun(one)
    fill(broker, 2)
    assert one.latest(at) == known({Q0: 5, Q1: 0})
    # One that died in its first batch is asked once more, and it is no matter what it says.
    again = stream(broker, startingOffsets="latest")
    assert again.initial() == known({Q0: 5, Q1: 0})
    assert again.spans(again.initial(), at) == []
    assert again.latest(at) == known({Q0: 5, Q1: 0})
    # The same place once more: what was planned is begun, and it goes on from there.
    same = stream(broker)
    assert same.spans(same.initial(), same.initial()) == []
    assert same.latest(same.initial()) == known({Q0: 5, Q1: 0})
    # Where there is but one batch, it has rows.
    once = stream(broker)
    once.only_batch()
    assert once.latest(once.initial()) == known({Q0: 5, Q1: 0})


def test_batches_are_limited_in_rows(broker):
    fill(broker, 30)
    fill(broker, 10, queue=1)
    one = stream(broker, maxOffsetsPerTrigger="8")
    at = begun(one)
    assert one.latest(at) == known({Q0: 6, Q1: 2})
    assert one.latest(known({Q0: 6, Q1: 2}), max_rows=4) == known({Q0: 9, Q1: 3})
    assert one.newest() == known({Q0: 30, Q1: 10})


def test_batches_are_limited_in_bytes(broker):
    for _ in range(10):
        broker.put("orders", b"x" * 1000)
    size = len(broker.topics["orders"][0].batches[0].record)
    one = stream(broker, maxBytesPerTrigger=str(3 * size + 10))
    assert one.latest(begun(one)) == known({Q0: 3, Q1: 0})
    tiny = stream(broker, maxBytesPerTrigger="1")
    assert tiny.latest(begun(tiny)) == known({Q0: 1, Q1: 0})  # one batch at least
    wide = stream(broker, maxBytesPerTrigger="1g")
    assert wide.latest(begun(wide)) == known({Q0: 10, Q1: 0})
    broker.sizes_told = False
    assert tiny.latest(tiny.initial()) == known({Q0: 10, Q1: 0})


def test_nothing_new_leaves_the_offset_as_it_is(broker):
    fill(broker, 2)
    one = stream(broker)
    assert one.latest(known({Q0: 2, Q1: 0})) == known({Q0: 2, Q1: 0})


def test_the_watermark_is_kept_for_a_while(broker):
    clock = Clock()
    one = stream(broker, clock, watermarkCacheMs="200")
    at = one.initial()
    asked = broker.calls.count("ranges")
    for _ in range(50):
        one.latest(at)
        one.newest()
    assert broker.calls.count("ranges") == asked
    fill(broker, 1)
    assert one.latest(at) == at
    clock.now += 0.2
    assert one.latest(at) == known({Q0: 1, Q1: 0})


def test_a_batch_waits_for_enough_rows_or_long_enough(broker):
    clock = Clock()
    one = stream(broker, clock, minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    at = one.initial()
    fill(broker, 3)
    assert one.latest(at) == at
    clock.now = 9.0
    assert one.latest(at) == at
    clock.now = 10.0
    at = one.latest(at)
    assert at == known({Q0: 3, Q1: 0})
    fill(broker, 5)
    assert one.latest(at) == known({Q0: 8, Q1: 0})


def test_available_now_goes_no_further_than_what_was_there(broker):
    fill(broker, 5)
    one = stream(broker, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="3")
    at = begun(one)
    one.freeze()
    fill(broker, 5)
    at = one.latest(at)
    assert at == known({Q0: 3, Q1: 0})
    at = one.latest(at)
    assert at == known({Q0: 5, Q1: 0})  # although it is less than the least
    assert one.latest(at) == at


def test_a_topic_that_comes_is_taken_in_empty_then_read(broker):
    one = stream(broker, subscribePattern="orders.*")
    at = begun(one)
    broker.create("orders.late")
    broker.put("orders.late", b"x")
    late = TopicQueue("orders.late", 0)
    after = one.latest(at)
    assert after == Progress({**at.offsets, late: 0}, {"orders": 1, "orders.late": 2})
    assert one.spans(at, after) == []
    last = one.latest(after)
    assert last.offsets[late] == 1
    assert one.spans(after, last) == [OffsetRange("orders.late", 0, 0, 1, 2)]


def test_a_journaled_range_is_planned_without_the_broker(broker):
    fill(broker, 10)
    one = stream(broker)
    del broker.topics["orders"]
    broker.calls.clear()
    after = known({Q0: 7, Q1: 0})
    assert one.spans(known({Q0: 2, Q1: 0}), after) == [OffsetRange("orders", 0, 2, 7, 1)]
    assert broker.calls == []


def test_a_queue_that_is_gone_fails_or_stays(broker):
    fill(broker, 3)
    one, lenient = stream(broker), stream(broker, failOnDataLoss="false")
    at = begun(one)
    broker.topics["orders"] = [Queue()]  # an older state of the broker: the same topic
    with pytest.raises(
        DataLoss, match="the rest of queue 1 of 'orders' cannot be read: it is gone"
    ):
        one.latest(at)
    assert lenient.latest(at) == at
    with pytest.raises(DataLoss, match="it ends at 0, before 3"):
        one.latest(known({Q0: 3}))
    assert lenient.latest(known({Q0: 3})) == known({Q0: 3})


def test_offsets_never_go_back(broker):
    fill(broker, 3)
    one = stream(broker, failOnDataLoss="false")
    one.freeze()
    assert one.latest(known({Q0: 9, Q1: 4})) == known({Q0: 9, Q1: 4})


def test_progress_is_told_and_never_fails_a_query(broker):
    one = stream(broker)
    one.committed(known({Q0: 4, Q1: 2}))
    assert broker.groups["orders", "spark-ternmq.orders"] == {0: 4, 1: 2}
    broker.fail("commit_group", *[ConnectionLost("x")] * 9)
    one.committed(known({Q0: 5, Q1: 2}))
    silent = stream(broker, reportProgress="false")
    broker.calls.clear()
    silent.committed(known({Q0: 6}))
    assert broker.calls == []


def test_the_group_is_the_same_at_each_start(broker):
    told = stream(broker).options
    assert group_name(told) == "spark-ternmq.orders"
    many = stream(FakeBroker(a=1, b=1), subscribe="a,b").options
    assert group_name(many).startswith("spark-ternmq.")
    assert group_name(many) == group_name(many)
    assert stream(broker, group__id="dw").group == "dw"


def test_a_stream_leaves_its_connection_behind_when_it_travels(broker):
    one = stream(broker)
    one.initial()
    assert broker.open == 1
    assert one.__getstate__()["_port"] is None
    one.stop()
    one.stop()
    assert broker.open == 0
