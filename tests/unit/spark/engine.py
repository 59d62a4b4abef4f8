"""Spark's loop over small batches, as far as it matters to what is read and written once.

In the order in which Spark does it, and with its two logs: what a batch will read is written down
before anything is read, that it is done after everything was committed. It can die at each step,
and what the logs have by then is all that the next one knows. A failure is told to the sink
(``abort``), as Spark does; a death is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ternmq.model.errors import TernMQError
from ternmq.spark.broker.offsets import OffsetRange, Progress, of_json, to_json
from ternmq.spark.topics.options import read_options, write_options
from ternmq.spark.topics.reading import BatchRead, Reading, StreamRead
from ternmq.spark.topics.table import Use
from ternmq.spark.topics.writing import BATCH, Staged, Task, Writing
from tests.unit.spark.fake_port import FakeBroker

WINDOWS = {
    "W1": "before the batch is written down",
    "W2": "after that, before its tasks",
    "W3": "while a task reads",
    "W4": "while a task writes",
    "W5": "after all tasks, before the commit",
    "W6": "the broker applied the commit, the answer is lost",
    "W7": "after the commit, before that is written down",
    "W8": "after that, before the source is told",
}


class DiedError(Exception):
    """The driver, with all its workers."""


@dataclass
class Checkpoint:
    """What Spark keeps on the disk."""

    query: str = "query-1"
    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)


@dataclass
class Run:
    """One life of a driver, and how it ends.

    Attributes:
        broker: Reads ``orders`` of it, writes ``out``.
        die_at: A window; empty: it lives.
        die_in: The batch in which it dies.
        twins: Every task runs twice, as with speculation; the second is the one that counts.
        read: Options of the source.
        written: Options of the sink.
    """

    broker: FakeBroker
    die_at: str = ""
    die_in: int = 1
    twins: bool = False
    limit: int = 8
    lenient: bool = False
    read: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    batch_id: int = 0

    def _at(self, window: str) -> None:
        if window == self.die_at and self.batch_id == self.die_in:
            raise DiedError(window)

    def _options(self, **more: str) -> dict[str, str]:
        lenient = str(not self.lenient).lower()
        return {"bootstrap.servers": "h:1", "subscribe": "orders", "failOnDataLoss": lenient,
                "fetchOffset.retryIntervalMs": "0", **more}  # fmt: skip

    def _writing(self, use: Use) -> Writing:
        told = {"bootstrap.servers": "h:1", "topic": "out", **self.written}
        return Writing(write_options(told, use), ("key", "value"), self.broker.connect)

    # -- a stream

    def stream(self, checkpoint: Checkpoint) -> None:
        """Read and write what is there now, batch by batch."""
        told = self._options(watermarkCacheMs="0", maxOffsetsPerTrigger=str(self.limit))
        told = {"startingOffsets": "earliest", **told, **self.read}
        options = read_options(told, Use.STREAM_READ)
        source = StreamRead(Reading(options, options.offered, self.broker.connect))
        writing = self._writing(Use.STREAM_WRITE)
        try:
            source.freeze()
            done = max(checkpoint.commits, default=-1)
            self.batch_id = done + 1
            at = _known(checkpoint, done) if done >= 0 else source.initial()
            while True:
                end = self._planned(checkpoint, source, at)
                if end == at and self.batch_id:
                    return  # of a new query, Spark takes the very first offsets as something new
                self._at("W2")
                self._batch(writing, source.reading, source.spans(at, end), checkpoint.query)
                self._at("W7")
                checkpoint.commits.add(self.batch_id)
                self._at("W8")
                source.committed(end)
                at = end
                self.batch_id += 1
        finally:
            source.stop()

    def _planned(self, checkpoint: Checkpoint, source: StreamRead, at: Progress) -> Progress:
        if self.batch_id in checkpoint.offsets:
            return _known(checkpoint, self.batch_id)
        end = source.latest(at)
        self._at("W1")
        if end != at or not self.batch_id:
            checkpoint.offsets[self.batch_id] = json.dumps(to_json(end))
        return end

    # -- a batch job

    def batch(self) -> None:
        """Read what is there now and write it, under the name of the writer."""
        self.batch_id = self.die_in  # there is but one
        options = read_options(self._options(minPartitions="4"), Use.BATCH_READ)
        reading = BatchRead(options, options.offered, self.broker.connect)
        self._at("W1")
        spans = reading.plan()
        self.batch_id = BATCH
        self.die_in = BATCH
        self._at("W2")
        self._batch(self._writing(Use.BATCH_WRITE), reading, spans, "")
        self._at("W7")
        self._at("W8")

    # -- both

    def _batch(
        self, writing: Writing, reading: Reading, spans: list[OffsetRange], query: str
    ) -> None:
        staged: list[Staged | None] = [None] * len(spans)
        try:
            for number, span in enumerate(spans):
                for attempt in range(2 if self.twins else 1):
                    task = Task(query, self.batch_id, f"{number}/{attempt}")
                    staged[number] = writing.write(self._rows(reading, span, number), task)
            self._at("W5")
            writing.commit(staged, self.batch_id)
        except TernMQError:
            writing.abort(staged, self.batch_id)
            raise

    def _rows(self, reading: Reading, span: OffsetRange, number: int) -> Iterator[pa.RecordBatch]:
        for batch in reading.read(span):
            for at in range(batch.num_rows):
                if number == 0 and at == batch.num_rows // 2:
                    self._at("W3")
                yield batch.slice(at, 1).select(["key", "value"])
        if number == 0:
            self._at("W4")


def _known(checkpoint: Checkpoint, number: int) -> Progress:
    return of_json(json.loads(checkpoint.offsets[number]))
