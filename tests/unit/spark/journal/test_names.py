"""Names of numbers: packed by the driver once, unpacked by tasks."""

from __future__ import annotations

import itertools
import pickle

import pytest

import ternmq.sync
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.reader.reader import JournalReader
from ternmq.spark.journal.files import FileJournal
from ternmq.spark.journal.names import Client, Names, named
from ternmq.spark.journal.options import journal_options
from ternmq.spark.journal.reading import JournalReading, JournalStream, Plan
from ternmq.spark.topics.table import Use
from ternmq.testing import broker

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a broker with some topics, groups and sessions."""
    path = tmp_path_factory.mktemp("lived")
    with broker(manual=False, disk=RealDisk(str(path))) as one:
        for app in ("shop", "billing"):
            with ternmq.sync.connect(one.url, app=app) as client:
                for topic in ("orders", "payments"):
                    client.send_many(topic, [b"x" * 2000] * 20)
                    pulled = client.pull(topic, group=f"of-{app}", max_messages=5)
                    pulled.ack()
    return str(path)


def reading(path, use=Use.BATCH_READ, **options):
    found = journal_options({"path": path, **options}, use)
    return JournalReading(found, found.offered)


def rows(one, plan):
    """Return the rows of all tasks, each read as a worker does: from a pickle."""
    return [
        row
        for stretch in plan.stretches
        for batch in pickle.loads(pickle.dumps(one)).read(stretch, plan.names)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def asked(monkeypatch):
    """Return a list that grows with each reading of names."""
    found = []
    for owner in (FileJournal, JournalReader):
        real = owner.names

        def count(self, *args, _real=real, _owner=owner, **given):
            found.append(_owner)
            return _real(self, *args, **given)

        monkeypatch.setattr(owner, "names", count)
    return found


def test_the_driver_reads_names_once_and_tasks_never(folder, asked):
    one = reading(folder, maxBytesPerPartition="5000")
    plan = one.plan()
    assert len(plan.stretches) > 10
    assert asked == [FileJournal, JournalReader]
    asked.clear()
    found = rows(one, plan)
    assert asked == []
    assert {row["topic"] for row in found if row["kind"] == "stored"} == {"orders", "payments"}
    assert {row["group"] for row in found if row["kind"] == "pulled"} == {"of-shop", "of-billing"}
    assert {row["app"] for row in found if row["kind"] == "pulled"} == {"shop", "billing"}
    whole = reading(folder)
    assert rows(whole, whole.plan()) == found


def test_names_are_read_once_for_each_batch_of_a_stream(folder, asked):
    stream = JournalStream(
        reading(
            folder,
            Use.STREAM_READ,
            startingPosition="earliest",
            maxBytesPerTrigger="50000",
            maxBytesPerPartition="5000",
        )
    )
    at = stream.initial()
    assert stream.latest(at) == at
    found = []
    while (after := stream.latest(at)) > at:
        asked.clear()
        plan = stream.plan(at, after)
        assert len(plan.stretches) > 1
        assert asked == [FileJournal, JournalReader]
        found += rows(stream.reading, plan)
        assert asked == [FileJournal, JournalReader]
        at = after
    assert stream.plan(at, at) == Plan([], b"")
    stream.stop()
    whole = reading(folder)
    assert found == rows(whole, whole.plan())


def test_columns_without_names_want_none(folder, asked):
    for columns, wants in (("kind,topic_number,rows", False), ("kind,client", True)):
        one = reading(folder, columns=columns)
        asked.clear()
        plan = one.plan()
        assert bool(asked) == wants
        assert bool(plan.names) == wants
        rows(one, plan)
    assert not named([])


def test_only_the_names_that_columns_need_travel():
    names = Names({1: "orders"}, {2: "billing"}, {3: Client("shop", "pod-1", "10.0.0.9:4000")})
    clients = {3: Client("shop", "pod-1")}
    assert Names.unpacked(names.packed(["topic", "rows"])) == Names({1: "orders"})
    assert Names.unpacked(names.packed(["group"])) == Names({}, {2: "billing"})
    for one in ("app", "client"):
        assert Names.unpacked(names.packed([one])) == Names({}, {}, clients)
    assert Names.unpacked(names.packed(["topic", "group", "app"])) == Names(
        names.topics, names.groups, clients
    )
    assert names.packed(["rows"]) == b""
    assert Names().packed(["topic"]) == b""
    assert Names.unpacked(b"") == Names()


def test_names_of_many_topics_stay_small():
    """A task of a stream brings them all; Spark warns of tasks above 1 MB."""
    words = itertools.cycle(("eu-west", "eu-north", "us-east", "ap-south"))
    names = Names(
        {n: f"{next(words)}.shop-{n * 7919 % 40_009:05}.orders" for n in range(1, 40_001)},
        {n: f"billing-{n % 17}" for n in range(1, 40_001)},
        {n: Client(f"app-{n % 300}", f"{n * 2654435761 % 2**32:08x}") for n in range(1, 40_001)},
    )
    assert len(names.packed(["topic", "group", "app"])) < 1_000_000
