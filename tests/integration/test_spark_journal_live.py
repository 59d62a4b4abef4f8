"""A journal that changes while Spark's tasks read it: it grows, and retention removes segments.

Each at a broker process, by its connection and by its folder.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import nullcontext
from typing import Any

import pytest

import ternmq.sync
from ternmq.journal.reader.reader import JournalReader
from ternmq.model.errors import DataLoss
from ternmq.spark.journal.options import journal_options
from ternmq.spark.journal.reading import JournalReading, JournalStream, Plan, Stretch
from ternmq.spark.topics.table import Use
from tests.integration.expiring import SEGMENT, expiring

pytest.importorskip("pyarrow")

WHERE = pytest.mark.parametrize("where", ["broker", "folder"])


@pytest.fixture
def topic(tmp_path):
    with expiring(tmp_path / "broker") as one:
        yield one


def reading(topic, where, use=Use.BATCH_READ, **more):
    real = topic.real
    place = (
        {"bootstrap.servers": f"127.0.0.1:{real.port}"}
        if where == "broker"
        else {"path": str(real.data)}
    )
    found = journal_options({**place, **more}, use)
    return JournalReading(found, found.offered)


def rows(one, plan):
    return [
        row
        for stretch in plan.stretches
        for batch in one.read(stretch, plan.names)
        for row in batch.to_pylist()
    ]


def first(topic):
    return int(topic.real.metric("ternmq_journal_first"))


@pytest.mark.row("R5")
@WHERE
def test_a_planned_stretch_is_gone_before_it_is_read(topic, where, caplog):
    topic.fill(1000, 300)
    strict = reading(topic, where, maxBytesPerPartition="1000000")
    plan = strict.plan()
    whole = rows(strict, plan)
    topic.expire()
    oldest = first(topic)
    gone = [one for one in plan.stretches if one.stop <= oldest]
    partly = [one for one in plan.stretches if one.start < oldest < one.stop]
    assert len(gone) > 3
    assert len(partly) == 1
    for stretch in gone + partly:
        lost = min(oldest, stretch.stop) - stretch.start
        with pytest.raises(DataLoss) as caught:
            rows(strict, Plan([stretch], plan.names))
        assert str(caught.value).startswith(
            f"{lost} bytes of the journal from position {stretch.start} on are gone: it begins at "
            f"{oldest}"
        )
    kept = [row for row in whole if row["position"] >= oldest]
    later = [one for one in plan.stretches if one.start >= oldest]
    assert rows(strict, Plan(later, plan.names)) == [
        row for row in kept if row["position"] >= later[0].start
    ]
    lenient = reading(topic, where, failOnDataLoss="false")
    caplog.clear()
    assert rows(lenient, plan) == kept
    said = [one.getMessage() for one in caplog.records if one.name == "ternmq.spark"]
    assert len(said) == len(gone + partly)
    assert all("bytes of the journal from position" in one for one in said)


@pytest.mark.row("R5")
@WHERE
@pytest.mark.parametrize("strict", [True, False])
def test_a_stretch_goes_while_it_is_read(topic, where, strict):
    """What was read before stays as it is; what is missing begins behind it."""
    topic.fill(1000, 300)
    one = reading(
        topic, where, failOnDataLoss=str(strict).lower(), maxBytesPerPartition="1g", batchRows="5"
    )
    plan = one.plan()
    whole = rows(one, plan)
    (stretch,) = plan.stretches
    batches = one.read(stretch, plan.names)
    found = next(batches).to_pylist()
    topic.expire()
    missing = pytest.raises(DataLoss, match=r"from position \d+ on are gone: it begins at")
    with missing if strict else nullcontext():
        found += [row for batch in batches for row in batch.to_pylist()]
    oldest = first(topic)
    before = [row for row in whole if row["position"] < oldest]
    read_before = sum(row["position"] < oldest for row in found)
    assert found[:read_before] == before[:read_before]
    assert read_before < len(before), "some of it is gone"
    assert found[read_before:] == ([] if strict else whole[len(before) :])


@pytest.mark.row("R5")
@WHERE
def test_tasks_end_in_the_segment_that_is_written(topic, where):
    """Each plan ends where the journal was durable; together they read each record once."""
    stop = threading.Event()

    def write():
        with ternmq.sync.connect(topic.real.url) as client:
            for number in itertools.count():
                client.send_many("orders", [b"%d" % number + bytes(3000)] * 5, queue=number % 2)
                if stop.is_set():
                    return

    stream = JournalStream(
        reading(
            topic, where, Use.STREAM_READ, startingPosition="earliest", watermarkCacheMs="0",
            maxBytesPerPartition="50001",
        )
    )  # fmt: skip
    at = begin = stream.initial()
    assert stream.latest(at) == at
    writer = threading.Thread(target=write)
    writer.start()
    found: list[dict[str, Any]] = []
    ends: list[int] = []
    try:
        while at - begin < 2 * SEGMENT or len(ends) < 20:
            after = stream.latest(at)
            found += rows(stream.reading, stream.plan(at, after))
            ends.append(after)
            at = after
    finally:
        stop.set()
        writer.join()
        stream.stop()
    assert sum(1 for one in ends if one % SEGMENT) > 10, "they end inside of segments"
    again = reading(topic, where)
    stretch = Plan([Stretch(begin, at)], again.plan().names)
    assert [(row["position"], row["part"]) for row in found] == [
        (row["position"], row["part"]) for row in rows(again, stretch)
    ]
    reader = JournalReader(str(topic.real.data))
    wanted = {
        one["position"]
        for one in reader.dump()
        if one["kind"] == "MESSAGES" and begin <= int(str(one["position"])) < at
    }
    reader.close()
    assert {row["position"] for row in found if row["kind"] == "stored"} == wanted
