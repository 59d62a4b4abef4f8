"""What of the archive is sent again, in which transactions, and where to."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from ternmq.client.connection.address import Address
from ternmq.model.errors import InvalidRequest, OptionError, TableError, UnknownTopic
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.compaction import When, compact
from ternmq.pipeline.archive.ranges import write_range
from ternmq.pipeline.replay.plan import Source, places, plan
from ternmq.pipeline.replay.replay import Replay, placed_in, rows_of, windows
from ternmq.pipeline.replay.select import Reading, Selection
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.port import TopicFacts
from tests.unit.pipeline.made import DAY, NOON, body, in_batches, span


def archived(tables, *spans, **given):
    archive = Archive(tables)
    for one in spans:
        rows = in_batches(one.start, one.stop, one.queue, **given)
        archive.commit([write_range(archive.table.folder, one, rows)], NOON)
    return archive


def source(stop=100, window=10, queue=0, queues=1):
    return Source("orders", 7, queue, (), 0, stop, window, queues, 0, 0)


def batches(offsets, size=7):
    for at in range(0, len(offsets), size):
        yield pa.RecordBatch.from_pydict({"offset": pa.array(offsets[at : at + size], pa.int64())})


def cut(offsets, start=0, size=7, **more):
    return [
        (end, [one for batch in some for one in batch.column("offset").to_pylist()])
        for end, some in windows(batches(offsets, size), source(**more), start)
    ]


def test_a_transaction_is_named_by_the_offset_behind_it():
    found = cut([0, 1, 5, 9, 10, 31, 95], stop=97)
    assert found == [(10, [0, 1, 5, 9]), (20, [10]), (40, [31]), (97, [95])]


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_wherever_reading_begins_the_cuts_are_the_same(size):
    offsets = [one for one in range(97) if one % 3]
    whole = cut(offsets, size=7, stop=97)
    for end, _ in whole:
        rest = cut([one for one in offsets if one >= end], start=end, size=size, stop=97)
        assert rest == [one for one in whole if one[0] > end]


def test_going_on_in_the_middle_of_what_was_the_last_transaction():
    assert cut(list(range(15)), stop=15) == [(10, list(range(10))), (15, list(range(10, 15)))]
    assert cut(list(range(15, 25)), start=15, stop=25) == [
        (20, list(range(15, 20))),
        (25, list(range(20, 25))),
    ]


@pytest.mark.parametrize("offsets", [[3, 2], [3, 3], [9, 10, 4]])
def test_rows_out_of_order_are_found_out(offsets):
    with pytest.raises(OptionError, match="not in the order"):
        cut(offsets, size=2)
    with pytest.raises(OptionError, match="not in the order"):
        cut(offsets, size=1)


def test_the_plan_counts_and_says_when(tables):
    archived(tables, span(0, 40), span(40, 100), span(0, 20, queue=2))
    one, two = plan(tables, Selection("orders"))
    assert (one.queue, one.rows, one.stop, len(one.files), one.queues) == (0, 100, 100, 2, 3)
    assert (two.queue, two.rows, two.stop) == (2, 20, 20)
    assert (one.first_us, one.last_us) == (NOON, NOON + 99_000)
    with pytest.raises(UnknownTopic, match="no message of topic 'others'"):
        plan(tables, Selection("others"))
    (only,) = plan(tables, Selection("orders", since_us=NOON + 50_000, until_us=NOON + 60_000))
    assert (only.rows, len(only.files), only.stop) == (10, 1, 60)


def test_files_of_other_times_are_not_opened(tables):
    archive = archived(tables, span(0, 10))
    archived(tables, span(10, 20), stored=NOON + DAY)
    for one in archive.table.files():
        archive.table.folder.remove([one.path])
    (found,) = plan(tables, Selection("orders", since_us=NOON + DAY))
    assert found.rows == 10


def read(tables, selection, start=0):
    archive = Archive(tables)
    reading = Reading(archive.table.folder, selection)
    try:
        return [
            row
            for one in plan(tables, selection)
            for batch in rows_of(reading, one, start)
            for row in batch.to_pylist()
        ]
    finally:
        reading.close()


def test_rows_have_what_a_writer_takes(tables):
    archived(tables, span(0, 10))
    rows = read(tables, Selection("orders", mark="again"), start=4)
    assert [row["offset"] for row in rows] == list(range(4, 10))
    row = rows[1]
    assert (row["value"], row["key"], row["tags"]) == (body(5), "key-5", None)
    assert (row["order_key"], row["content_type"]) == (None, "text/plain")
    assert dict(row["headers"]) == {"n": "5", "x-replay": "again", "x-source": "orders/0/5"}
    assert dict(rows[0]["headers"]) == {"x-replay": "again", "x-source": "orders/0/4"}
    assert "application_id" not in row


def test_after_compaction_the_same_rows_are_read(tables):
    archive = archived(tables, *(span(at, at + 10) for at in range(0, 100, 10)))
    before = read(tables, Selection("orders"))
    compact(archive.table, NOON + 2 * DAY, when=When())
    (found,) = plan(tables, Selection("orders"))
    assert len(found.files) == 1
    assert read(tables, Selection("orders")) == before


def test_expressions(tables):
    archived(tables, span(0, 20))
    rows = read(
        tables,
        Selection(
            "orders",
            ids=("app-0-3", "app-0-4", "0000000000001234:6"),
            where="text like 'body 0/%' and \"offset\" > 3",
            sets={"body": "text || '!'", "key": "key || topic", "tag": "null"},
        ),
    )
    assert [row["offset"] for row in rows] == [4, 5]
    assert rows[0]["value"] == (body(4) + b"!").decode()
    assert (rows[0]["key"], rows[0]["tags"]) == ("key-4orders", None)


def test_a_body_that_is_no_text(tables):
    archived(tables, span(0, 1), body=[b"\xff\xfe"])
    assert read(tables, Selection("orders"))[0]["value"] == b"\xff\xfe"
    assert read(tables, Selection("orders", where="text is null"))[0]["offset"] == 0


@pytest.mark.parametrize(
    "where",
    [
        "nope", "(1", "key +", "key", "1=0) or (1=1", "true; select true", "true;", "true, true",
        "/* x", "true where true", "1=1 as x", "key = $topic", "key = ?", "count(*) > 0", "*",
    ],
)  # fmt: skip
def test_a_condition_that_is_none(tables, where):
    archived(tables, span(0, 1))
    with pytest.raises(OptionError, match="--where"):
        plan(tables, Selection("orders", where=where))


@pytest.mark.parametrize("text", ["key) or (true", "x', 'y", "upper(key), 1", "unnest(['a', 'b'])"])
def test_what_is_set_does_not_leave_its_brackets_either(tables, text):
    archived(tables, span(0, 1))
    with pytest.raises(OptionError, match="--set key"):
        plan(tables, Selection("orders", sets={"key": text}))


def test_a_text_that_reads_like_a_parameter_of_ours(tables):
    archived(tables, span(0, 1))
    for mark in ("", "again"):
        (row,) = read(tables, Selection("orders", sets={"body": "'$mark'"}, mark=mark))
        assert row["value"] == "$mark"


def test_what_the_user_wrote_is_looked_at_wherever_rows_are_read(tables):
    archive = archived(tables, span(0, 20))
    (found,) = plan(tables, Selection("orders"))
    for chosen in (
        Selection("orders", keys=("key-3",), where="1=0) or (1=1"),
        Selection("orders", sets={"body": "3"}),
    ):
        reading = Reading(archive.table.folder, chosen)
        with pytest.raises(OptionError):
            list(rows_of(reading, found, 0))
        reading.close()
    with pytest.raises(OptionError):
        places(tables, Selection("orders", where="1=0) or (1=1"), [found])


def test_a_condition_says_how_the_offset_is_written(tables):
    archived(tables, span(0, 5))
    for where in ("offset < 3", "key = 'a' and offset < 3"):
        with pytest.raises(OptionError, match='is written "offset"'):
            plan(tables, Selection("orders", where=where))
    assert [row["offset"] for row in read(tables, Selection("orders", where='"offset" < 2'))] == [
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("column", "text", "sent"),
    [
        ("body", "{'key': key, 'n': [1, 2]}", '{"key":"key-0","n":[1,2]}'),
        ("body", "[key, 'é']", '["key-0","é"]'),
        ("body", "map {'a': 1}", '{"a":1}'),
        ("body", "to_json({'a': 1})", '{"a":1}'),
        ("body", "encode('é')", "é".encode()),
        ("body", "''", ""),
        ("key", "7", "7"),
        ("key", "encode('é')", "é"),
        ("key", "true", "true"),
        ("key", "null", None),
        ("tag", "'a'::blob", "a"),
        ("headers", "map {'n': 5}", [("n", "5")]),
        ("headers", "null", []),
    ],
)
def test_values_are_of_the_type_that_is_meant(tables, column, text, sent):
    archived(tables, span(0, 1))
    (row,) = read(tables, Selection("orders", sets={column: text}))
    assert row[{"body": "value", "tag": "tags"}.get(column, column)] == sent


@pytest.mark.parametrize(
    ("column", "text", "said"),
    [
        ("body", "3", r"of type INTEGER: write \(3\)::varchar"),
        ("body", "1.5", "of type DECIMAL"),
        ("body", "true", "of type BOOLEAN"),
        ("body", "now()", "of type TIMESTAMP WITH TIME ZONE"),
        ("body", "null", "cannot be NULL"),
        ("key", "{'a': 1}", "the key is a text"),
        ("tag", "['a']", "the tag is a text"),
        ("headers", "'x'", "headers are a map"),
        ("headers", "{'a': 'b'}", "headers are a map"),
        ("headers", "map {'a': 'b'::blob}", "headers are a map"),
        ("key", "max(key)", "--set key"),
    ],
)
def test_a_value_of_a_type_that_no_column_has(tables, column, text, said):
    archived(tables, span(0, 1))
    with pytest.raises(OptionError, match=said) as raised:
        plan(tables, Selection("orders", sets={column: text}))
    assert "\n" not in str(raised.value)


def test_a_file_that_was_removed_meanwhile(tables):
    archive = archived(tables, span(0, 10))
    (found,) = plan(tables, Selection("orders"))
    archive.table.folder.remove([found.files[0][0]])
    reading = Reading(archive.table.folder, Selection("orders"))
    with pytest.raises(TableError, match="run the command again"):
        list(rows_of(reading, found, 0))
    reading.close()
    reading = Reading(archive.table.folder, Selection("orders", where="key is not null"))
    with pytest.raises(TableError, match="run the command again"):
        list(rows_of(reading, found, 0))
    reading.close()


def test_a_file_that_a_condition_names_is_not_there(tables):
    archived(tables, span(0, 10))
    where = "key in (select key from read_csv('/no/such.csv'))"
    with pytest.raises(OptionError, match=r"--where .*no/such"):
        plan(tables, Selection("orders", where=where))


def test_a_value_that_cannot_be_worked_out(tables):
    archived(tables, span(0, 10))
    chosen = Selection("orders", sets={"key": "cast(text as integer)::varchar"})
    with pytest.raises(
        OptionError, match=r"--where or --set fails .*Conversion Error.*try\(\.\.\.\)"
    ):
        read(tables, chosen)
    chosen = Selection("orders", sets={"key": "try(cast(text as integer))::varchar"})
    assert len(read(tables, chosen)) == 10


def test_an_aggregate_is_no_value_of_one_message(tables):
    archived(tables, span(0, 10))
    for chosen in (
        Selection("orders", where="sum(queue) > 1"),
        Selection("orders", sets={"key": "max(key)"}),
    ):
        with pytest.raises(OptionError, match="one value for each message is required"):
            read(tables, chosen)


def test_a_column_that_the_archive_does_not_have(tables):
    archived(tables, span(0, 10))
    with pytest.raises(OptionError, match='Referenced column "nope" not found') as caught:
        plan(tables, Selection("orders", where="nope = 1"))
    assert "topic_1" not in str(caught.value)
    rows = read(tables, Selection("orders", where="topic = 'orders' and day is not null"))
    assert len(rows) == 10


def test_a_condition_ends_where_it_ends(tables):
    archived(tables, span(0, 10))
    rows = read(tables, Selection("orders", keys=("key-3",), where='"offset" > 100 or true -- x'))
    assert [row["offset"] for row in rows] == [3]


def test_names_and_times_that_cannot_be():
    with pytest.raises(OptionError, match="--set offset"):
        Selection("orders", sets={"offset": "1"})
    with pytest.raises(OptionError, match="--set key"):
        Selection("orders", sets={"key": " "})
    with pytest.raises(InvalidRequest):
        Selection("orders", since_us=5, until_us=5)
    broker = Broker((Address("h", 1),))
    for name in ("", "x" * 81):
        with pytest.raises(InvalidRequest):
            Replay(name, "t", broker, "new", Selection("orders"))


def placed(facts, one, keys):
    texts = pa.array(keys, pa.string())
    names = ("offset", "key", "order_key", "tags", "content_type", "headers")
    columns = dict.fromkeys(names, texts)
    batch = pa.RecordBatch.from_pydict({"value": pa.array(["x"] * len(keys)), **columns})
    found = placed_in(batch, facts, one)
    assert found.column("value").type == pa.binary()
    if "partition" not in found.schema.names:
        return None
    return found.column("partition").to_pylist()


def test_rows_go_to_their_queue_or_where_their_key_says():
    keys = ["a", None, "", "b"]
    four = TopicFacts("new", 4, False)
    assert placed(four, source(queue=3, queues=4), keys) == [3, 3, 3, 3]
    assert placed(four, source(queue=5, queues=6), keys) == [None, 1, 1, None]
    assert placed(TopicFacts("new", 4, True), source(queue=3, queues=4), keys) is None


def test_rows_go_to_the_lowest_level():
    keys = ["a", None, "", "b"]
    six = TopicFacts("new", 6, False, levels=3)
    for queue in (3, 4, 5):
        assert placed(six, source(queue=queue, queues=6), keys) == [3, 3, 3, 3]
    assert placed(six, source(queue=7, queues=9), keys) == [None, 0, 0, None]


def test_places_of_rows_for_a_group(tables):
    archived(tables, span(0, 20), span(0, 20, queue=1))
    chosen = Selection("orders", keys=("key-3", "key-5"))
    assert places(tables, chosen, plan(tables, chosen)) == {0: [3, 5, 13, 15], 1: [3, 5, 13, 15]}
