from __future__ import annotations

import pickle
import random

import pytest

from ternmq.model.errors import (
    ConnectionLost,
    InvalidRequest,
    MessageTooLarge,
    OptionError,
    RowError,
    UnknownTopic,
)
from ternmq.record.batch.batch import Batch, Column
from ternmq.record.batch.hashes import key_hash
from ternmq.record.fact import messages
from ternmq.spark.broker.port import TopicFacts, Transaction
from ternmq.spark.topics.columns import written
from ternmq.spark.topics.options import write_options
from ternmq.spark.topics.stage import Stage
from ternmq.spark.topics.table import Use
from ternmq.spark.topics.writing import Task, Writing
from tests.unit.spark.fake_port import LOST, FakeBroker, TransactionConflict

pa = pytest.importorskip("pyarrow")


def options(use=Use.STREAM_WRITE, **told):
    return write_options({"bootstrap.servers": "h:1", "topic": "orders", **told}, use)


def table(rows):
    return pa.RecordBatch.from_pylist(rows)


def writing(broker, columns=("key", "value"), use=Use.STREAM_WRITE, **told):
    return Writing(options(use, **told), columns, broker.connect)


def values(*bodies, key=None):
    return table([{"key": key, "value": body} for body in bodies])


TASK = Task("query", 3, "0/0")


# -- columns


@pytest.mark.parametrize(
    ("columns", "told", "said"),
    [
        ({"key": "string"}, {}, "column value: it is missing"),
        ({"value": "int"}, {}, "column value: its type is int; string or binary is required"),
        ({"value": "binary", "price": "int"}, {}, "column price: it is no part of a message"),
        (
            {"value": "binary", "delay_until": "string"},
            {},
            "column delay_until: its type is string",
        ),
        ({"value": "binary", "priority": "string"}, {}, "column priority: its type is string"),
        ({"value": "binary", "headers": "string"}, {}, "column headers: its type is string"),
        ({"value": "binary"}, {"topic": ""}, "option topic: it is missing"),
        ({"value": "binary", "application_id": "string"}, {}, "column application_id: rows of a"),
    ],
)
def test_a_wrong_column_is_named(columns, told, said):
    given = write_options(
        {"bootstrap.servers": "h:1", **({} if "topic" in told else {"topic": "orders"})},
        Use.STREAM_WRITE,
    )
    with pytest.raises(OptionError) as raised:
        written(columns, given)
    assert said in str(raised.value)


def test_columns_that_are_no_part_may_be_left_out():
    found = written({"price": "int", "value": "string"}, options(ignoreUnknownColumns="true"))
    assert found == ("value",)


def test_a_column_that_is_given_by_two_names_is_refused():
    with pytest.raises(OptionError, match="column tag: it is the same as tags; drop one"):
        written({"value": "binary", "tags": "string", "tag": "string"}, options())
    with pytest.raises(OptionError, match="column queue: its type is string; int or"):
        written({"body": "binary", "queue": "string"}, options())


def test_rows_of_the_archive_are_written_as_they_are(broker):
    given = {"body": "binary", "key": "string", "tag": "string", "headers": "map<string,string>"}
    columns = written({**given, "queue": "int"}, options())
    assert columns == ("value", "key", "tags", "headers", "partition")
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"x"]), pa.array(["k"]), pa.array(["t"]),
            pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string())), pa.array([0], pa.int32()),
        ],
        names=[*given, "queue"],
    )  # fmt: skip
    one = writing(broker, columns)
    one.commit([one.write([batch], TASK)], TASK.batch_id)
    (stored,) = broker.queue("orders", 0).batches
    found = Batch(messages.of_record(stored.record).batch)
    assert (found.bodies(), found.keys(), found.headers()) == ([b"x"], ["k"], [{"a": "1"}])


# -- staging


def stage(columns, facts=None, **told):
    facts = facts or {"orders": TopicFacts("orders", 1, ordered=False)}
    given = options(**told)
    return Stage(given, columns, facts.__getitem__, lambda: 5, 9)


def staged(one, *tables):
    return [(o.topic, o.queue, Batch(o.batch)) for o in one.batches(tables)]


def test_a_topic_that_is_not_ordered_takes_no_order_keys():
    rows = table([{"value": b"a", "order_key": None}, {"value": b"b", "order_key": "k"}])
    with pytest.raises(RowError, match=r"column order_key: topic 'orders' is not ordered"):
        staged(stage(("value", "order_key")), rows)
    rows = table([{"value": b"a", "order_key": None}, {"value": b"b", "order_key": ""}])
    ((_, _, batch),) = staged(stage(("value", "order_key")), rows)
    assert batch.count == 2


def test_rows_become_batches_with_all_they_have():
    columns = ("key", "value", "headers", "tags", "content_type", "application_id", "order_key")
    one = stage(columns, {"orders": TopicFacts("orders", 1, ordered=False, ignores_keys=True)})
    ((topic, queue, batch),) = staged(
        one,
        table([
            {"key": "k", "value": b"v", "headers": [{"key": "a", "value": b"1"}], "tags": "t",
             "content_type": "text/plain", "application_id": "id-1", "order_key": None},
            {"key": None, "value": b"", "headers": None, "tags": None,
             "content_type": None, "application_id": None, "order_key": "o"},
        ]),
    )  # fmt: skip
    assert (topic, queue) == ("orders", 0)
    assert batch.bodies() == [b"v", b""]
    assert batch.keys() == ["k", ""]
    assert batch.headers() == [{"a": "1"}, {}]
    assert batch.content_types() == ["text/plain", ""]
    assert batch.application_id_texts() == ["id-1", ""]
    assert batch.ordering_keys() == ["", "o"]
    assert batch.producer_id == 9
    assert (one.rows, one.bytes) == (2, 1)


def test_rows_with_due_times_are_in_batches_of_their_own():
    one = stage(("value", "delay_until"), delivery="at_least_once", compression="zstd")
    kind = pa.schema([("value", pa.binary()), ("delay_until", pa.timestamp("us", "UTC"))])
    due = [None, 1_800_000_000_000_000, 1_800_000_000_000_007, None, -5]
    bodies = [b"%d" % n * 50 for n in range(5)]
    rows = [{"value": body, "delay_until": time} for body, time in zip(bodies, due, strict=True)]
    found = staged(one, pa.RecordBatch.from_pylist(rows, schema=kind))
    assert [(batch.bodies(), [*batch.due_times_us()]) for _, _, batch in found] == [
        ([bodies[0], bodies[3], bodies[4]], [0, 0, 0]),
        (bodies[1:3], due[1:3]),
    ]
    assert [batch.first_sequence for _, _, batch in found] == [0, 3]
    assert (one.rows, one.bytes) == (5, sum(map(len, bodies)))


def test_times_are_part_of_what_was_written():
    def digest(*times, **told):
        one = stage(("value", "delay_until"), delivery="at_least_once")
        kind = pa.schema([("value", pa.binary()), ("delay_until", pa.timestamp("us", "UTC"))])
        rows = [{"value": b"x", "delay_until": time} for time in times]
        staged(one, pa.RecordBatch.from_pylist(rows, schema=kind))
        return one.digest

    assert digest(5, 6) == digest(6, 5) != digest(5, 7)


def test_rows_are_written_with_the_times_at_which_they_expire():
    one = stage(("value", "expires_at"), delivery="at_least_once")
    kind = pa.schema([("value", pa.binary()), ("expires_at", pa.timestamp("us", "UTC"))])
    times = [None, 1_800_000_000_000_000, -5, 0]
    rows = [{"value": b"%d" % n, "expires_at": time} for n, time in enumerate(times)]
    ((_, _, batch),) = staged(one, pa.RecordBatch.from_pylist(rows, schema=kind))
    assert [*batch.expiry_times_us()] == [0, 1_800_000_000_000_000, 1, 1]
    assert not batch.has(Column.DUE_US)
    other = stage(("value", "expires_at"), delivery="at_least_once")
    rows[1] = {"value": b"1", "expires_at": 1_800_000_000_000_001}
    staged(other, pa.RecordBatch.from_pylist(rows, schema=kind))
    assert one.digest != other.digest


def test_due_rows_of_several_topics_and_queues_find_their_place():
    facts = {name: TopicFacts(name, 4, ordered=False) for name in ("a", "b")}
    one = Stage(
        write_options({"bootstrap.servers": "h:1", "delivery": "at_least_once"}, Use.STREAM_WRITE),
        ("value", "topic", "key", "delay_until"), facts.__getitem__, lambda: 5, 9,
    )  # fmt: skip
    rows = [
        {"value": b"%d" % n, "topic": "ab"[n % 2], "key": f"k{n % 3}",
         "delay_until": 1_800_000_000_000_000 + n if n % 4 else None}
        for n in range(40)
    ]  # fmt: skip
    kind = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("key", pa.string()),
                      ("delay_until", pa.timestamp("us", "UTC"))])  # fmt: skip
    seen = {}
    for topic, queue, batch in staged(one, pa.RecordBatch.from_pylist(rows, schema=kind)):
        for body, key, due in zip(batch.bodies(), batch.keys(), batch.due_times_us(), strict=True):
            assert queue == key_hash(key.encode()) % 4
            seen[int(body)] = topic, due
    assert seen == {n: ("ab"[n % 2], 1_800_000_000_000_000 + n if n % 4 else 0) for n in range(40)}


def prioritised(*rows, **more):
    """Return a table of rows (body, priority), and more columns."""
    kind = pa.schema([("value", pa.binary()), ("priority", pa.int32())]
                     + [(name, type_) for name, (type_, _) in more.items()])  # fmt: skip
    told = [
        {"value": body, "priority": priority, **{name: values[at] for name, (_, values) in
                                                 more.items()}}
        for at, (body, priority) in enumerate(rows)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(told, schema=kind)


LEVELS = {"orders": TopicFacts("orders", 6, ordered=False, levels=3)}


def test_rows_of_different_priorities_are_in_batches_of_their_own():
    one = stage(("value", "priority"), LEVELS)
    rows = prioritised((b"a", None), (b"b", 2), (b"c", 0), (b"d", 2), (b"e", 1))
    assert [(q, batch.bodies(), list(batch.priorities())) for _, q, batch in staged(one, rows)] == [
        (None, [b"a", b"c"], [0, 0]), (None, [b"b", b"d"], [2, 2]), (None, [b"e"], [1]),
    ]  # fmt: skip


def test_keys_choose_among_the_queues_of_the_level():
    one = stage(("value", "priority", "key"), LEVELS)
    keys = [f"k{n}" for n in range(12)]
    rows = prioritised(*[(b"%d" % n, n % 3) for n in range(12)], key=(pa.string(), keys))
    for _, queue, batch in staged(one, rows):
        for body, key, priority in zip(
            batch.bodies(), batch.keys(), batch.priorities(), strict=True
        ):
            assert int(body) % 3 == priority
            assert queue == key_hash(key.encode()) % 2 * 3 + priority


def test_a_priority_that_the_topic_does_not_have_is_named():
    rows = prioritised((b"a", 3))
    with pytest.raises(RowError, match=r"column priority: .* has 3 levels: priority is 0 to 2"):
        staged(stage(("value", "priority"), LEVELS), rows)
    with pytest.raises(RowError, match=r"column priority: .* has 3 levels"):
        staged(stage(("value", "priority"), LEVELS), prioritised((b"a", -1)))
    with pytest.raises(RowError, match=r"column priority: topic 'orders' has no levels"):
        staged(stage(("value", "priority")), rows)
    ((_, _, batch),) = staged(stage(("value", "priority")), prioritised((b"a", 0), (b"b", None)))
    assert batch.count == 2
    partitions = {"partition": (pa.int32(), [4])}
    columns = ("value", "priority", "partition")
    ((_, queue, _),) = staged(stage(columns, LEVELS), prioritised((b"a", 1), **partitions))
    assert queue == 4
    with pytest.raises(
        RowError, match=r"column partition: queue 4 .* is of level 1, .* priority 2"
    ):
        staged(stage(columns, LEVELS), prioritised((b"a", 2), **partitions))


def test_priorities_are_part_of_what_was_written():
    def digest(*priorities):
        one = stage(("value", "priority"), LEVELS)
        staged(one, prioritised(*[(b"x", priority) for priority in priorities]))
        return one.digest

    assert digest(1, 2) == digest(2, 1) != digest(1, 1)


def test_strings_are_bodies_too():
    one = stage(("value",))
    ((_, _, batch),) = staged(one, table([{"value": "café"}]))
    assert batch.bodies() == ["café".encode()]


def test_rows_are_put_together_over_tables_and_cut_when_full():
    one = stage(("value",), compression="none")
    found = staged(one, *[values(b"x" * 1000, b"y").select(["value"]) for _ in range(700)])
    assert len(found) == 2
    assert sum(batch.count for _, _, batch in found) == 1400
    sequences = [batch.first_sequence for _, _, batch in found]
    assert sequences == [0, found[0][2].count]


def test_a_row_larger_than_a_batch_goes_alone():
    one = stage(("value",), compression="none")
    big = b"x" * (600 << 10)
    found = staged(one, values(b"a", big, b"b").select(["value"]))
    assert [batch.bodies() for _, _, batch in found] == [[b"a"], [big], [b"b"]]


def test_keys_keep_their_queue():
    one = stage(("key", "value"), {"orders": TopicFacts("orders", 4, ordered=False)})
    found = staged(one, table([{"key": f"k{n % 9}", "value": b"%d" % n} for n in range(100)]))
    for _, queue, batch in found:
        keys = batch.keys()
        assert {key_hash(key.encode()) % 4 for key in keys} == {queue}
        for key in set(keys):
            bodies = [int(b) for k, b in zip(keys, batch.bodies(), strict=True) if k == key]
            assert bodies == sorted(bodies)


def test_rows_without_key_go_where_the_broker_puts_them():
    one = stage(("value",), {"orders": TopicFacts("orders", 4, ordered=False)})
    ((_, queue, _),) = staged(one, values(b"x", b"y").select(["value"]))
    assert queue is None


def test_queue_and_topic_columns():
    facts = {"a": TopicFacts("a", 2, ordered=False), "b": TopicFacts("b", 1, ordered=False)}
    one = Stage(
        write_options({"bootstrap.servers": "h:1"}, Use.STREAM_WRITE),
        ("topic", "partition", "value"), facts.__getitem__, lambda: 5, 9,
    )  # fmt: skip
    found = staged(one, table([
        {"topic": "a", "partition": 1, "value": b"1"},
        {"topic": "b", "partition": 0, "value": b"2"},
        {"topic": "a", "partition": 1, "value": b"3"},
    ]))  # fmt: skip
    assert [(t, q, b.bodies()) for t, q, b in found] == [("a", 1, [b"1", b"3"]), ("b", 0, [b"2"])]


def test_ordered_topics_want_order_keys():
    facts = {"orders": TopicFacts("orders", 2, ordered=True)}
    found = staged(stage(("value", "order_key"), facts), table([{"value": b"x", "order_key": "a"}]))
    assert found[0][2].keyed
    assert found[0][1] == key_hash(b"a") % 2
    with pytest.raises(RowError, match="a row has no ordering key"):
        staged(stage(("value",), facts), values(b"x").select(["value"]))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"value": None, "key": "a"}], "column value: a row has null"),
        ([{"value": b"", "key": b"\xff"}], "column key: a row is not UTF-8"),
        ([{"value": b"", "partition": 7}], "column partition: topic 'orders' has queues 0 to 0"),
        ([{"value": b"", "headers": [{"key": "a", "value": None}]}], "column headers: names and"),
        (
            [{"value": b"", "headers": [{"key": k, "value": v} for k, v in ("ab", "bc", "ad")]}],
            "column headers: header 'a' is named twice; a message has one value",
        ),
    ],
)
def test_a_row_that_is_no_message_is_refused(rows, said):
    one = stage(tuple(rows[0]))
    with pytest.raises(RowError) as raised:
        staged(one, table(rows))
    assert said in str(raised.value)


LIMITED = {"orders": TopicFacts("orders", 1, ordered=False, body_bytes=100)}


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        ({"value": b"x" * 101}, MessageTooLarge, "the body has 101 bytes; the broker accepts 100"),
        ({"key": "é" * 2049}, InvalidRequest, "column key has 4098 bytes, at most 4096"),
        ({"key": b"k" * 4097}, InvalidRequest, "column key has 4097 bytes, at most 4096"),
        ({"tags": "a b"}, InvalidRequest, "column tags: not a tag: 'a b' has ' ' in it"),
        ({"tags": "a\u2003b"}, InvalidRequest, "column tags: not a tag"),
        ({"tags": "*"}, InvalidRequest, "column tags: not a tag: '*'"),
        ({"tags": "a||b"}, InvalidRequest, "column tags: not a tag: 'a||b'"),
        ({"tags": "t" * 4097}, InvalidRequest, "column tags has 4097 bytes"),
        ({"content_type": "c" * 4097}, InvalidRequest, "column content_type has 4097 bytes"),
        ({"application_id": "i" * 129}, InvalidRequest, "column application_id has 129 bytes"),
        (
            {"headers": [{"key": "h", "value": "x"}, {"key": "big", "value": "x" * 65_537}]},
            InvalidRequest,
            "column headers: header 'big' has 65537 bytes, at most 65536",
        ),
        (
            {"headers": [{"key": "h" * 4097, "value": b"x"}]},
            InvalidRequest,
            "column headers: a header's name has 4097 bytes",
        ),
        (
            {"headers": [{"key": f"h{n}", "value": b"x" * 65_536} for n in range(12)]},
            InvalidRequest,
            "headers, key and other properties have 786458 bytes, at most 786432",
        ),
    ],
)
@pytest.mark.parametrize("sliced", [False, True])
def test_what_prepare_refuses_no_column_says(row, error, said, sliced):
    given = {"value": b"", **row}
    empty = {name: [] if name == "headers" else given[name][:1] for name in given}
    good = {**empty, **({"tags": "a"} if "tags" in given else {})}
    rows = pa.RecordBatch.from_pylist([good, given, good])
    one = stage(tuple(given), LIMITED)
    with pytest.raises(error) as raised:
        staged(one, rows.slice(1) if sliced else rows)
    assert said in str(raised.value)
    with pytest.raises(error):
        stage(tuple(given), LIMITED).check([rows])
    stage(tuple(given), LIMITED).check([rows.slice(0, 1), rows.slice(2)])


def test_headers_may_be_a_map():
    kind = pa.map_(pa.string(), pa.string())
    maps = pa.array([[("a", "1")], None, [("b", "x" * 65_537)]], kind)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b""] * 3), "headers": maps})
    stage(("value", "headers"), LIMITED).check([rows.slice(0, 2)])
    for bad in (rows, rows.slice(1), rows.slice(2)):
        with pytest.raises(InvalidRequest, match="column headers: header 'b' has 65537 bytes"):
            staged(stage(("value", "headers"), LIMITED), bad)


def test_at_the_limits_all_is_well():
    row = {
        "value": b"x" * 100, "key": "k" * 4096, "tags": "t" * 4096, "content_type": "c" * 4096,
        "application_id": "i" * 128, "headers": [{"key": "h" * 4096, "value": "v" * 65_536}],
    }  # fmt: skip
    ((_, _, batch),) = staged(stage(tuple(row), LIMITED), table([row]))
    assert batch.count == 1


def test_the_digest_is_of_the_rows_whatever_their_order_and_cut():
    rows = [{"key": f"k{n}", "value": b"%d" % n, "headers": [("a", str(n))]} for n in range(200)]
    kind = pa.schema([("key", pa.string()), ("value", pa.binary()),
                      ("headers", pa.map_(pa.string(), pa.string()))])  # fmt: skip

    def digest(some):
        one = stage(("key", "value", "headers"))
        list(one.batches([pa.RecordBatch.from_pylist(part, kind) for part in some]))
        return one.digest

    whole = digest([rows])
    shuffled = random.Random(1).sample(rows, len(rows))
    assert digest([shuffled[:50], shuffled[50:]]) == whole
    assert (digest([shuffled[:50]]) + digest([shuffled[50:]])) % 2**64 == whole
    assert digest([rows[:-1]]) != whole
    assert digest([[*rows[:-1], {**rows[-1], "value": b"other"}]]) != whole
    swapped = [{**rows[0], "key": "k1"}, {**rows[1], "key": "k0"}, *rows[2:]]
    assert digest([swapped]) != whole


# -- commit


def test_nothing_is_seen_before_the_commit_and_all_after(broker):
    one = writing(broker)
    told = [one.write([values(b"a", b"b")], TASK), one.write([values(b"c")], TASK)]
    assert broker.bodies("orders") == []
    one.commit(pickle.loads(pickle.dumps(told)), 3)
    assert sorted(broker.bodies("orders")) == [b"a", b"b", b"c"]
    assert broker.open == 0
    assert broker.committed.keys() == {Transaction("query", 3)}


def test_other_attempts_are_dropped(broker):
    one = writing(broker)
    one.write([values(b"a")], TASK)  # a twin that nobody commits
    one.commit([one.write([values(b"a")], Task("query", 3, "0/1"))], 3)
    assert broker.bodies("orders") == [b"a"]
    assert broker.prepared == {}


def test_the_answer_to_a_commit_is_lost_then_spark_aborts_and_runs_it_again(broker):
    one = writing(broker)
    told = [one.write([values(b"a", b"b")], TASK)]
    broker.fail("commit_prepared.after", LOST)
    with pytest.raises(ConnectionLost):
        one.commit(told, 3)
    one.abort(told, 3)  # refused, and said in the log
    again = [one.write([values(b"b")], TASK), one.write([values(b"a")], Task("query", 3, "1/0"))]
    one.commit(again, 3)
    assert sorted(broker.bodies("orders")) == [b"a", b"b"]


def test_a_batch_that_is_visible_is_known_by_its_rows(broker):
    """Spark lost the note that it was done: all of it is run again, cut in another way."""
    one = writing(broker)
    rows = [b"%d" % n for n in range(100)]
    one.commit([one.write([values(*rows)], TASK)], 3)
    again = [
        one.write([values(*rows[50:])], TASK),
        one.write([values(*rows[:20]), values(*rows[20:50])], Task("query", 3, "1/5")),
    ]
    assert [staged.ids for staged in again] == [(), ()]
    one.commit(again, 3)
    other = [one.write([values(*rows[:99])], TASK)]
    with pytest.raises(TransactionConflict):
        one.commit(other, 3)
    assert sorted(broker.bodies("orders")) == sorted(rows)


def test_a_batch_that_failed_before_its_commit_is_run_again(broker):
    one = writing(broker)
    told = [one.write([values(b"a")], TASK), None]
    one.abort(told, 3)
    assert broker.prepared == {}
    one.commit([one.write([values(b"a")], TASK)], 3)
    assert broker.bodies("orders") == [b"a"]


def test_another_content_under_the_same_name_is_refused(broker):
    one = writing(broker)
    one.commit([one.write([values(b"a")], TASK)], 3)
    with pytest.raises(TransactionConflict):
        one.commit([one.write([values(b"other")], TASK)], 3)
    assert broker.bodies("orders") == [b"a"]


def test_a_writer_id_wins_over_the_query(broker):
    one = writing(broker, writerId="me")
    one.commit([one.write([values(b"a")], TASK)], 3)
    assert broker.committed.keys() == {Transaction("me", 3)}


def test_batches_that_spark_numbers_otherwise_are_refused(broker):
    one = writing(broker)
    told = [one.write([values(b"a")], TASK)]
    with pytest.raises(OptionError, match="tasks say batch 3, Spark commits 4"):
        one.commit(told, 4)


def test_a_query_without_id_needs_a_writer(broker):
    with pytest.raises(OptionError, match="option writerId: tasks of this Spark do not know"):
        writing(broker).write([values(b"a")], Task("", 3, "0/0"))


def test_at_least_once_is_seen_at_once(broker):
    one = writing(broker, use=Use.BATCH_WRITE)
    told = one.write([values(b"a")], TASK)
    assert broker.bodies("orders") == [b"a"]
    one.commit([told], 0)
    one.abort([told], 0)
    assert "commit_prepared" not in broker.calls


def test_an_empty_batch_is_no_transaction(broker):
    one = writing(broker)
    one.commit([one.write([], TASK), None], 3)
    assert "commit_prepared" not in broker.calls


def test_a_missing_topic_is_found_out_first(broker):
    writing(broker).check()
    with pytest.raises(UnknownTopic):
        Writing(options(topic="none"), ("value",), broker.connect).check()


def test_a_failed_task_leaves_no_connection(broker):
    broker.fail("prepare", LOST)
    with pytest.raises(ConnectionLost):
        writing(broker).write([values(b"a")], TASK)
    assert broker.open == 0


def test_many_topics_of_one_transaction(broker):
    several = FakeBroker(a=1, b=1)
    one = Writing(
        write_options({"bootstrap.servers": "h:1"}, Use.STREAM_WRITE), ("topic", "value"),
        several.connect,
    )  # fmt: skip
    told = one.write([table([{"topic": t, "value": t.encode()} for t in "abab"])], TASK)
    one.commit([told], 3)
    assert several.bodies("a") == [b"a", b"a"]
    assert several.bodies("b") == [b"b", b"b"]
