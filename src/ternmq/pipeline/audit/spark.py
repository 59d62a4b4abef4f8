"""The audit by Spark: workers read the journal and gather runs; the driver folds and judges.

One job of two stages. Each task of the first scans a stretch of the journal and gathers its runs;
each task of the second joins the runs of a bucket of queues. What is counted by topic, not by queue
(reports of producers), is in the bucket of the topic's first queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.runs import KEPT, gathered_here, merged
from ternmq.pipeline.job.described import described
from ternmq.pipeline.job.packets import (
    PACKETS,
    buckets,
    packed,
    packet,
    received,
    task_bytes,
    unpacked,
)
from ternmq.pipeline.tables.numbers import numbers
from ternmq.spark.journal.reading import JournalReading, Stretch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS: Final = "first_us bigint, runs binary"
_RUNS: Final = pa.schema([("first_us", pa.int64()), ("runs", pa.binary())])
_FIRST: Final = "first_us"
_SENT: Final = pa.schema([*KEPT, (_FIRST, pa.int64())])


@dataclass(frozen=True)
class GatherTask:
    """A worker's task: ``df.mapInArrow(GatherTask(...), PACKETS)``; a row is a stretch's number.

    Attributes:
        stretches: The stretches of the journal.
        reading: Reads them.
        names: Names of the numbers in records, packed.
        buckets: Number of buckets.
        grace_us: Messages stored later than this after the end of their window are late.
    """

    stretches: tuple[Stretch, ...]
    reading: JournalReading
    names: bytes
    buckets: int
    grace_us: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the runs of stretches, packed by bucket."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                stretch = self.stretches[number]
                facts = self.reading.read(stretch, self.names)
                runs, first_us = gathered_here(facts, self.grace_us)
                if first_us is not None:
                    for bucket, some in self._cut(runs, first_us):
                        yield packet(bucket, stretch.start, 0, some)

    def _cut(self, runs: pa.Table, first_us: int) -> Iterator[tuple[int, pa.Table]]:
        # One more row, without a kind, carries the time even if there are no runs.
        told = pa.Table.from_pylist([{_FIRST: first_us}], schema=_SENT)
        runs = runs.append_column(_FIRST, pa.nulls(len(runs), pa.int64()))
        runs = pa.concat_tables([told, runs.cast(_SENT)])
        # A transaction that withdrew rows does not tell their topic; its number is 0 here.
        topic, queue = numbers(runs["topic_number"], 0), numbers(runs["queue"], 0)
        of = (topic * 31 + queue) % self.buckets
        for bucket in np.unique(of).tolist():
            yield bucket, runs.filter(pa.array(of == bucket))


def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join the runs of a bucket; a worker's task: ``packets.mapInArrow(join, RUNS)``."""
    for _, found in received(batches):
        first_us = pc.min(found[_FIRST]).as_py()
        runs = found.filter(pc.is_valid(found["kind"])).drop_columns([_FIRST])
        row = [pa.array([first_us], pa.int64()), pa.array([packed(merged(runs.cast(KEPT)))])]
        yield pa.RecordBatch.from_arrays(row, schema=_RUNS)


def gathered(
    spark: SparkSession, reading: JournalReading, stretch: Stretch, grace_us: int
) -> tuple[pa.Table, int | None]:
    """Return the runs of a stretch of the journal, and the time of its first fact.

    Args:
        spark: The session.
        reading: Reads the journal: ``runs.EVENTS``.
        stretch: Where to read.
        grace_us: As in ``GatherTask``.
    """
    start, stop = stretch
    cores = spark.sparkContext.defaultParallelism
    options = replace(reading.options, task_bytes=task_bytes(stop - start, cores))
    reading = replace(reading, options=options)
    with closing(reading.connect(options)) as port:
        names = reading.names(port, start)
        stretches = tuple(reading.tasks(start, stop, port.bounds()))
    count = buckets(cores)
    task = GatherTask(stretches, reading, names, count, grace_us)
    with described(spark, f"audit: journal from {start} to {stop}"):
        packets = spark.range(0, len(stretches), 1, len(stretches)).mapInArrow(task, PACKETS)
        rows = packets.repartitionById(count, "bucket").mapInArrow(join, RUNS).collect()
    times = [row["first_us"] for row in rows if row["first_us"] is not None]
    runs = pa.concat_tables([KEPT.empty_table(), *[unpacked(row["runs"]) for row in rows]])
    return runs.combine_chunks(), min(times, default=None)
