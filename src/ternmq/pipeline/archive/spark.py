"""The archive by Spark: many workers write the files of each commit.

As in ``archive``, the table decides where to continue, there is no checkpoint, and small passes are
written here, without Spark. Only ranges go to the workers; the files' descriptions come back.
Bodies go from the broker to the file in one worker, and never enter the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ternmq.client.bulk import Bulk, RangesAsk
from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive.archive import PAGE_BYTES, rows_of
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.ranges import Bundle, Range, write_ranges
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.job.described import described
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.bulk_port import reach
from ternmq.spark.broker.connecting import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST: Final = "written string"
_MANIFEST: Final = pa.schema([("written", pa.string())])


def cut(groups: Sequence[Sequence[Range]], pieces: int) -> list[tuple[Range, ...]]:
    """Split the same rows into about ``pieces`` parts of similar size, in order.

    Ranges that are written together stay together.
    """
    rows = sum(one.stop - one.start for spans in groups for one in spans)
    most = max(1, ceil(rows / max(1, pieces)))
    found: list[tuple[Range, ...]] = []
    for spans in groups:
        if len(spans) > 1:
            found.append(tuple(spans))
            continue
        (one,) = spans
        found += [
            (Range(*one.place, start, min(start + most, one.stop)),)
            for start in range(one.start, one.stop, most)
        ]
    return found


@dataclass(frozen=True)
class PassTask:
    """A worker's task: ``df.mapInArrow(PassTask(...), MANIFEST)``; a row is a group's number.

    Attributes:
        groups: Groups of ranges.
        tables: The folder of all tables, as every worker reaches it.
        broker: The broker from which to read.
        lenient: Rows may be missing.
        sizes: Size limits of files.
    """

    groups: tuple[tuple[Range, ...], ...]
    tables: str
    broker: Broker
    lenient: bool
    sizes: Sizes

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write each group over one connection, opened for the first; yield the descriptions."""
        bulk: Bulk | None = None
        try:
            for number in (one for batch in numbers for one in batch.column(0).to_pylist()):
                bulk = bulk or reach(self.broker, PAGE_BYTES)
                written = self._write(bulk, self.groups[number]).to_json()
                yield pa.RecordBatch.from_arrays([pa.array([written])], schema=_MANIFEST)
        finally:
            if bulk is not None:
                bulk.close()

    def _write(self, bulk: Bulk, spans: Sequence[Range]) -> Bundle:
        numbers = {span.topic: span.topic_number for span in spans}
        for topic, number in numbers.items():
            (found,) = bulk.ranges([RangesAsk(topic=topic)])
            if found.number != number:
                raise DataLoss(f"the topic {topic!r} was deleted meanwhile")
        folder = Folder(self.tables).inside(ARCHIVE.name)
        read = partial(rows_of, bulk, lenient=self.lenient)
        return write_ranges(folder, spans, read, self.sizes, lenient=self.lenient)


class SparkWorkers:
    """Writes passes on Spark's workers; implements ``archive.Workers``.

    Args:
        spark: The session.
        tables: The folder of all tables, as every worker reaches it.
        broker: The broker from which workers read.
        from_bytes: Smallest pass worth starting workers for.
        lenient: Rows may be missing.
        sizes: Size limits of files.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: str,
        broker: Broker,
        from_bytes: int,
        *,
        lenient: bool = False,
        sizes: Sizes | None = None,
    ) -> None:
        self.from_bytes = from_bytes
        self._spark = spark
        self._tables = tables
        self._broker = broker
        self._lenient = lenient
        self._sizes = sizes or Sizes()

    @property
    def tasks(self) -> int:
        """Number of tasks that run at the same time; starts Spark."""
        return int(self._spark.sparkContext.defaultParallelism)

    def write(self, groups: Sequence[Sequence[Range]]) -> list[Bundle]:
        """Write groups of ranges; files of failed tasks are cleaned up later."""
        pieces = tuple(cut(groups, self.tasks))
        task = PassTask(pieces, self._tables, self._broker, self._lenient, self._sizes)
        numbers = self._spark.range(0, len(pieces), 1, len(pieces))
        with described(self._spark, f"archive: {sum(map(len, pieces))} ranges"):
            rows = numbers.mapInArrow(task, MANIFEST).collect()
        return [Bundle.of_json(row["written"]) for row in rows]
