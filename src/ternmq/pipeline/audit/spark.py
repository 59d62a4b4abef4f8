"""The audit by Spark: workers gather the runs of the journal and of the archive; the driver judges.

A job of two stages for each. A task of the first scans a stretch of the journal, or a part of a
file, and gathers its runs; a task of the second joins the runs of a bucket of queues. What is
counted by topic (reports of producers) is in the bucket of the topic's first queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.audit.archive import Wanted, gathered_from, runs_of
from ternmq.pipeline.audit.kept import KEPT
from ternmq.pipeline.audit.runs import gathered_here, merged
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
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.numbers import numbers
from ternmq.pipeline.tables.table import Table
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
                yield from _cut(runs, first_us, stretch.start, self.buckets)


def _cut(
    runs: pa.Table, first_us: int | None, number: int, buckets: int
) -> Iterator[pa.RecordBatch]:
    # One more row, without a kind, carries the time even if there are no runs.
    told = pa.Table.from_pylist([{_FIRST: first_us}], schema=_SENT)
    runs = runs.append_column(_FIRST, pa.nulls(len(runs), pa.int64()))
    runs = pa.concat_tables([told, runs.cast(_SENT)])
    # A transaction that withdrew rows does not tell their topic; its number is 0 here.
    topic, queue = numbers(runs["topic_number"], 0), numbers(runs["queue"], 0)
    of = (topic * 31 + queue) % buckets
    for bucket in np.unique(of).tolist():
        yield packet(bucket, number, 0, runs.filter(pa.array(of == bucket)))


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
        return _joined(spark, task, len(stretches), count)


@dataclass(frozen=True)
class ArchiveTask:
    """A worker's task: ``df.mapInArrow(ArchiveTask(...), PACKETS)``; a row is a part's number.

    Attributes:
        parts: Files of the archive, the part of each, and the number of its parts.
        tables: The folder of all tables, as every worker reaches it.
        storage: Options of the Delta library for an object store.
        wanted: Which rows are compared.
        buckets: Number of buckets.
    """

    parts: tuple[tuple[DataFile, int, int], ...]
    tables: str
    storage: Mapping[str, str] | None
    wanted: Wanted
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the runs of parts of files, packed by bucket."""
        archive = Table.open(Folder(self.tables), ARCHIVE, create=False, storage=self.storage)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                runs = runs_of(archive, self.parts[number][0], self.wanted, *self.parts[number][1:])
                yield from _cut(runs, None, number, self.buckets)


@dataclass(frozen=True)
class ArchiveReader:
    """Reads files of the archive by Spark; a ``Gather``.

    Attributes:
        spark: The session.
        from_bytes: Files of fewer bytes are read by this process.
        storage: Options of the Delta library for an object store.
    """

    spark: SparkSession
    from_bytes: int
    storage: Mapping[str, str] | None

    def __call__(self, archive: Table, files: Sequence[DataFile], wanted: Wanted) -> pa.Table:
        """Return the runs of files."""
        size = sum(one.size for one in files)
        if not files or size < self.from_bytes:
            return gathered_from(archive, files, wanted)
        cores = self.spark.sparkContext.defaultParallelism
        step = task_bytes(size, cores)
        parts = tuple(
            (one, part, count)
            for one in files
            for count in [-(-one.size // step)]
            for part in range(count)
        )
        count = buckets(cores)
        task = ArchiveTask(
            parts, archive.folder.uri.rpartition("/")[0], self.storage, wanted, count
        )
        with described(self.spark, f"audit: {len(files)} files of the archive"):
            return _joined(self.spark, task, len(parts), count)[0]


def _joined(
    spark: SparkSession, task: GatherTask | ArchiveTask, tasks: int, count: int
) -> tuple[pa.Table, int | None]:
    """Run tasks, join their runs by bucket; return the runs, and the first time."""
    packets = spark.range(0, tasks, 1, tasks).mapInArrow(task, PACKETS)
    rows = packets.repartitionById(count, "bucket").mapInArrow(join, RUNS).collect()
    times = [row["first_us"] for row in rows if row["first_us"] is not None]
    runs = pa.concat_tables([KEPT.empty_table(), *[unpacked(row["runs"]) for row in rows]])
    return runs.combine_chunks(), min(times, default=None)
