"""Retention that is quicker than a Spark job (W12): at a broker process that removes segments."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest
from google_crc32c import value as crc32c

from ternmq.model.errors import DataLoss
from ternmq.spark.topics.options import read_options
from ternmq.spark.topics.reading import BatchRead, Reading, StreamRead
from ternmq.spark.topics.table import Use
from tests.integration.expiring import expiring

pytest.importorskip("pyarrow")

FIRST, LATER = 2000, 600


@pytest.fixture
def topic(tmp_path):
    with expiring(tmp_path / "broker") as one:
        yield one.fill(FIRST, LATER)


def options(topic, use, **more):
    return read_options(
        {
            "bootstrap.servers": f"127.0.0.1:{topic.real.port}",
            "subscribe": "orders",
            "startingOffsets": "earliest",
            **more,
        },
        use,
    )


def planned_batch(topic, **more):
    """Return what reads as a batch job, and its plan."""
    found = options(topic, Use.BATCH_READ, **more)
    reader = BatchRead(found, found.offered)
    return reader, reader.plan()


def planned_stream(topic, **more):
    """Return what reads the batch of a query, and the plan that Spark wrote down."""
    found = options(topic, Use.STREAM_READ, **more)
    stream = StreamRead(Reading(found, found.offered))
    at = stream.initial()
    assert stream.latest(at) == at
    spans = stream.spans(at, stream.latest(at))
    stream.stop()
    return stream.reading, spans


def identified(batch):
    return [
        (row["topic"], row["partition"], row["offset"], crc32c(row["value"]))
        for row in batch.to_pylist()
    ]


def rows(reader, spans):
    return Counter(row for span in spans for part in reader.read(span) for row in identified(part))


@pytest.mark.row("R4")
@pytest.mark.parametrize("planned", [planned_batch, planned_stream])
def test_a_planned_range_is_gone_before_it_is_read(topic, planned, caplog):
    strict, spans = planned(topic)
    assert rows(strict, spans) == Counter(topic.sent)
    topic.expire()
    firsts = topic.firsts()
    for span in spans:
        missing = firsts[span.queue] - span.start
        assert 0 < missing < span.rows
        with pytest.raises(DataLoss) as caught:
            rows(strict, [span])
        assert str(caught.value).startswith(
            f"{missing} messages from offset {span.start} on, of offsets {span.start} to "
            f"{span.stop} of queue {span.queue} of 'orders', cannot be read: the queue keeps "
            f"nothing below {firsts[span.queue]}"
        )
        assert "failOnDataLoss=false" in caught.value.hint
    lenient, _ = planned(topic, failOnDataLoss="false")
    assert rows(lenient, spans) == topic.kept()
    said = [one.getMessage() for one in caplog.records if one.name == "ternmq.spark"]
    assert len(said) == len(spans)
    for span in spans:
        missing = firsts[span.queue] - span.start
        told = f"{missing} messages from offset {span.start} on, of {span}, cannot be read"
        assert any(one.startswith(told) for one in said)


@pytest.mark.row("R4")
@pytest.mark.parametrize("strict", [True, False])
def test_a_range_goes_while_it_is_read(topic, strict, caplog):
    """What came before stays as it is; what is missing begins behind it."""
    lenient = str(strict).lower()
    reader, spans = planned_batch(topic, failOnDataLoss=lenient, batchRows="10")
    (span,) = [one for one in spans if one.queue == 0]
    reading = reader.read(span)
    found = identified(next(reading))
    topic.expire()
    missing = pytest.raises(DataLoss, match="of queue 0 of 'orders', cannot be read")
    with missing if strict else nullcontext():
        found.extend(row for part in reading for row in identified(part))
    first = topic.firsts()[0]
    offsets = [row[2] for row in found]
    before = sum(one < first for one in offsets)
    assert offsets[:before] == list(range(before))
    assert before < first, "some of it is gone"
    assert offsets[before:] == ([] if strict else list(range(first, span.stop)))
    assert Counter(found) <= Counter(topic.sent)
    if not strict:
        (told,) = [one.getMessage() for one in caplog.records if one.name == "ternmq.spark"]
        assert told.startswith(f"{first - before} messages from offset {before} on, of {span}")
