"""What the Spark connector does at a real broker, without Spark."""

from __future__ import annotations

import json
import socket

import pytest

import ternmq.sync
from ternmq.client.bulk import Bulk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.reader.reader import JournalReader
from ternmq.model.errors import (
    CannotConnect,
    Forbidden,
    TransactionConflict,
    Unauthenticated,
)
from ternmq.spark.broker.bulk_port import connect
from ternmq.spark.broker.offsets import OffsetRange, TopicQueue
from ternmq.spark.journal.options import journal_options
from ternmq.spark.journal.reading import JournalReading, JournalStream
from ternmq.spark.topics.options import read_options, write_options
from ternmq.spark.topics.reading import BatchRead, Reading, StreamRead
from ternmq.spark.topics.table import Use
from ternmq.spark.topics.writing import Task, Writing
from ternmq.testing import broker
from ternmq.wire.control import GrantInfo

pa = pytest.importorskip("pyarrow")

Q0, Q1 = TopicQueue("orders", 0), TopicQueue("orders", 1)


def told(real, **options):
    return {
        "bootstrap.servers": f"127.0.0.1:{real.port}",
        **{name.replace("__", "."): value for name, value in options.items()},
    }


def batch(real, topic="orders", **options):
    found = read_options(told(real, subscribe=topic, **options), Use.BATCH_READ)
    return BatchRead(found, found.offered)


def stream(real, topic="orders", **options):
    found = read_options(
        told(real, subscribe=topic, watermarkCacheMs="0", **options), Use.STREAM_READ
    )
    return StreamRead(Reading(found, found.offered))


def rows(reader, spans=None):
    return [
        row
        for span in (reader.plan() if spans is None else spans)
        for part in reader.read(span)
        for row in part.to_pylist()
    ]


@pytest.fixture
def client(real):
    with ternmq.sync.connect(real.url) as one:
        one.admin.create_topic("orders", queues=2)
        yield one


def begun(one):
    """Return where a stream is behind its first batch, which is empty."""
    at = one.initial()
    assert one.latest(at) == at
    return at


def send(client, count, topic="orders", **message):
    client.send_many(
        topic,
        [ternmq.sync.Message(b"%d" % n, key=f"k{n}", **message) for n in range(count)],
    )


@pytest.mark.row("R1")
def test_a_batch_read_gives_what_a_reader_gets(real, client):
    send(client, 3000, tag="t", headers={"a": "1"})
    client.send("orders", b"alone", key="k")
    found = rows(batch(real, includeHeaders="true", metadataFields="message_id,tags"))
    read = {(one.queue, one.offset): one for one in client.read("orders")}
    assert len(found) == len(read) == 3001
    for row in found:
        one = read[row["partition"], row["offset"]]
        assert row["value"] == one.body
        assert row["key"].decode() == one.key
        assert row["tags"] == (one.tag or None)
        assert row["message_id"] == one.id
        assert row["timestamp"] == one.stored_at
        assert row["headers"] == ([{"key": "a", "value": b"1"}] if one.headers else None)


def test_batches_that_do_not_end_where_answers_do(real, client):
    for first in range(0, 33_000, 3000):
        client.send_many("orders", [b"%d" % n for n in range(first, first + 3000)], queue=0)
    found = rows(batch(real))
    assert [int(row["value"]) for row in found] == list(range(33_000))


def test_from_a_time_on(real, client):
    send(client, 10)
    middle = client.send("orders", b"middle", key="m")
    (stored,) = [one.stored_at for one in client.read("orders") if one.offset == middle.offset
                 and one.queue == middle.queue]  # fmt: skip
    found = rows(
        batch(
            real,
            startingTimestamp=stored.isoformat(),
            startingOffsetsByTimestampStrategy="latest",
        )
    )
    assert [row["value"] for row in found] == [b"middle"]


def test_a_stream_goes_on_where_it_was(real, client):
    one = stream(real, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    at = begun(one)
    send(client, 100)
    seen = []
    for _ in range(2):
        after = one.latest(at)
        seen += rows(one.reading, one.spans(at, after))
        at = after
    assert sorted(int(row["value"]) for row in seen) == list(range(100))
    assert one.latest(at) == at
    one.stop()


def test_progress_is_seen_as_a_group(real, client):
    send(client, 10)
    one = stream(real, startingOffsets="earliest")
    at = one.latest(begun(one))
    one.committed(at)
    (info,) = client.admin.groups(topic="orders", group="spark-ternmq.orders")
    assert [queue.cursor for queue in info.queues] == [at.offsets[Q0], at.offsets[Q1]]
    one.stop()


def test_a_broker_that_restarts_is_only_a_pause(real, client):
    send(client, 10)
    one = stream(real, startingOffsets="earliest")
    at = begun(one)
    real.restart(clean=False)
    after = one.latest(at)
    assert sum(after.offsets.values()) == 10
    one.stop()


def test_rows_are_written(real, client):
    options = write_options(told(real, topic="orders"), Use.BATCH_WRITE)
    writing = Writing(options, ("key", "value", "headers"))
    writing.check()
    table = pa.RecordBatch.from_pylist(
        [
            {"key": f"k{n % 5}", "value": b"%d" % n, "headers": [{"key": "n", "value": b"x"}]}
            for n in range(20_000)
        ]
    )
    staged = writing.write([table], Task("", 0, "0/0"))
    writing.commit([staged])
    found = list(client.read("orders"))
    assert sorted(int(one.body) for one in found) == list(range(20_000))
    assert {one.headers["n"] for one in found} == {"x"}
    # A client puts them where these are.
    receipt = client.send("orders", b"next", key="k3")
    assert {one.queue for one in found if one.key == "k3"} == {receipt.queue}


def test_a_broker_that_is_away_is_named(real, client):
    reader = batch(real, ternmq__timeoutMs="200", fetchOffset__numRetries="0")
    real.stop()
    with pytest.raises(CannotConnect, match=r"no broker at ternmq://127.0.0.1:"):
        reader.plan()


def test_rows_of_a_transaction_are_seen_together_and_once(real, client):
    options = write_options(told(real, topic="orders", writerId="w"), Use.BATCH_WRITE)
    writing = Writing(options, ("key", "value"))
    tables = [
        pa.RecordBatch.from_pylist([{"key": f"k{n}", "value": b"%d" % n} for n in part])
        for part in (range(10_000), range(10_000, 30_000))
    ]
    tasks = [writing.write([one], Task("", 0, f"{n}/0")) for n, one in enumerate(tables)]
    writing.write([tables[0]], Task("", 0, "0/1"))  # a twin that is not committed
    assert list(client.read("orders")) == []
    writing.commit(tasks)
    writing.abort(tasks)  # refused, and said in the log
    again = [writing.write([one], Task("", 0, f"{n}/2")) for n, one in enumerate(tables)]
    writing.commit(again)
    assert sorted(int(one.body) for one in client.read("orders")) == list(range(30_000))
    found = rows(batch(real, metadataFields="crc"))
    assert sorted(int(row["value"]) for row in found) == list(range(30_000))
    with pytest.raises(TransactionConflict):
        writing.commit([writing.write(tables[:1], Task("", 0, "0/3"))])


def test_a_range_beyond_the_end_is_waited_for(real, client):
    client.send("orders", b"x", queue=0)
    reader = batch(real, maxWaitMs="20000", pollTimeoutMs="50")
    port = connect(reader.options.broker)
    pieces = port.fetch(OffsetRange("orders", 0, 0, 2), 0, 50)
    assert next(pieces).stop == 1
    client.send("orders", b"y", queue=0)
    assert [one.stop for one in pieces][-1] == 2
    port.close()
    assert len(rows(reader, [OffsetRange("orders", 0, 0, 2)])) == 2


def test_an_app_reads_what_it_may(tmp_path):
    with broker(
        manual=False, settings={"auth": True, "admin_token": "root-token-of-the-test"}
    ) as guarded:
        with ternmq.sync.connect(guarded.url, app="admin", token="root-token-of-the-test") as admin:
            for name in ("orders", "secret"):
                admin.admin.create_topic(name)
                admin.send(name, b"x")
            token = admin.admin.put_app("dw", [GrantInfo(right="consume", topic="orders")])
        file = tmp_path / "token"
        file.write_text(token)
        who = {"ternmq__app": "dw", "ternmq__tokenFile": str(file)}
        assert len(rows(batch(guarded, **who))) == 1
        assert len(rows(batch(guarded, "orders", **who))) == 1
        with pytest.raises(Forbidden, match="app 'dw' has no grant to consume topic 'secret'"):
            batch(guarded, "secret", **who).plan()
        file.write_text("wrong")
        with pytest.raises(Unauthenticated):
            batch(guarded, **who).plan()


def test_batches_are_limited_in_bytes(real, client):
    for n in range(20):
        client.send("orders", b"x" * 10_000, queue=n % 2)
    one = stream(real, startingOffsets="earliest", maxBytesPerTrigger="50k")
    at = begun(one)
    steps = []
    while (after := one.latest(at)) != at:
        steps.append(sum(after.offsets.values()) - sum(at.offsets.values()))
        at = after
    assert sum(steps) == 20
    assert max(steps) <= 6
    one.stop()


def test_offsets_at_times_of_their_own(real, client):
    times = []
    for n in range(4):
        receipt = client.send("orders", b"%d" % n, queue=n % 2)
        (one,) = [
            one
            for one in client.read("orders", queue=receipt.queue)
            if one.offset == receipt.offset
        ]
        times.append(one.stored_at.isoformat())
    told = json.dumps({"orders": {"0": times[2], "1": times[1]}})
    found = rows(batch(real, startingOffsetsByTimestamp=told))
    assert sorted(row["value"] for row in found) == [b"1", b"2", b"3"]


def journal(real, use=Use.BATCH_READ, **options):
    found = journal_options(told(real, **options), use)
    return JournalReading(found, found.offered)


@pytest.mark.row("R5")
def test_the_journal_of_a_broker_is_that_of_its_files(tmp_path, monkeypatch):
    with broker(manual=False, disk=RealDisk(str(tmp_path))) as one:
        with ternmq.sync.connect(one.url, app="shop") as client:
            client.admin.create_topic("gone")
            client.send("gone", b"x")
            client.admin.delete_topic("gone")
            client.send_many("orders", [b"%d" % n * 5000 for n in range(2000)])
            pulled = client.pull("orders", group="billing", max_messages=100)
            pulled.reject(rows=range(10), reason="broken")
            pulled.ack()
        reading = journal(one)
        plan = journal(one, maxBytesPerPartition="1g").plan().stretches
        assert len(plan) == 1
        found = rows(reading, plan)
        stop = plan[0].stop
        for size in ("4m", "999999"):
            stretches = (
                journal(one, maxBytesPerPartition=size, endingPosition=str(stop)).plan().stretches
            )
            assert len(stretches) == -(-stop // (4 << 20 if size == "4m" else 999_999))
            assert rows(reading, stretches) == found
        monkeypatch.setattr(Bulk, "reads_journal_anywhere", False)  # an older broker
        older = journal(one, maxBytesPerPartition="4m", endingPosition=str(stop)).plan().stretches
        segment = JournalReader(str(tmp_path)).segment_size
        assert [part.start % segment for part in older] == [0] * len(older)
        assert rows(reading, older) == found
        monkeypatch.undo()
        stream = JournalStream(
            journal(one, Use.STREAM_READ, startingPosition="earliest", watermarkCacheMs="0")
        )
        at = begun(stream)
        assert stream.latest(at) >= stop
        stream.stop()
    files = journal_options({"path": str(tmp_path), "endingPosition": str(stop)}, Use.BATCH_READ)
    copied = JournalReading(files, files.offered)
    assert rows(copied, copied.plan().stretches) == found
    assert {row["topic"] for row in found if row["kind"] == "stored"} == {"gone", "orders"}


def test_the_journal_wants_the_right_to_audit(tmp_path):
    with broker(
        manual=False, settings={"auth": True, "admin_token": "root-token-of-the-test"}
    ) as guarded:
        with ternmq.sync.connect(guarded.url, app="admin", token="root-token-of-the-test") as admin:
            tokens = [
                admin.admin.put_app("reader", [GrantInfo(right="consume")]),
                admin.admin.put_app("auditor", [GrantInfo(right="audit")]),
            ]
        for name, token in zip(("reader", "auditor"), tokens, strict=True):
            (tmp_path / name).write_text(token)
        who = {"ternmq__app": "reader", "ternmq__tokenFile": str(tmp_path / "reader")}
        with pytest.raises(Forbidden):
            journal(guarded, **who).plan()
        who = {"ternmq__app": "auditor", "ternmq__tokenFile": str(tmp_path / "auditor")}
        found = rows(journal(guarded, **who), journal(guarded, **who).plan().stretches)
        assert {row["kind"] for row in found} >= {"config", "joined", "reign"}


def test_the_first_broker_that_answers_is_asked(real, client):
    send(client, 5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        away = taken.getsockname()[1]
    reader = batch(real, bootstrap__servers=f"127.0.0.1:{away},127.0.0.1:{real.port}")
    assert len(rows(reader)) == 5
