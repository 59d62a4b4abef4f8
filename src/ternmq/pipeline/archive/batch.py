"""The archive by Spark, a pass at a time: many workers write the files of each commit.

As in ``archive``, the table decides where to continue, there is no checkpoint, and small passes are
written here, without Spark. Only ranges go to the workers; the files' descriptions come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from ternmq.client.bulk import Bulk
from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.ranges import Range, Written
from ternmq.pipeline.archive.workers import MANIFEST, RangeWriter, topic_number
from ternmq.spark.broker.connecting import Broker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def cut(spans: Sequence[Range], pieces: int) -> list[Range]:
    """Split the same rows into about ``pieces`` ranges of similar size, in order."""
    rows = sum(one.stop - one.start for one in spans)
    most = max(1, ceil(rows / max(1, pieces)))
    return [
        Range(one.topic, one.topic_number, one.queue, start, min(start + most, one.stop))
        for one in spans
        for start in range(one.start, one.stop, most)
    ]


@dataclass(frozen=True)
class PassTask:
    """A worker's task: ``df.mapInArrow(PassTask(...), MANIFEST)``, where a row is a range's number.

    Attributes:
        spans: The ranges.
        writer: Writes them.
    """

    spans: tuple[Range, ...]
    writer: RangeWriter

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write each range; yield descriptions of the files."""
        spans = (self.spans[one] for batch in numbers for one in batch.column(0).to_pylist())
        return self.writer.manifests(spans, self._written)

    def _written(self, bulk: Bulk, span: Range) -> Written:
        if topic_number(bulk, span.topic) != span.topic_number:
            raise DataLoss(f"{span}: the topic was deleted meanwhile")
        return self.writer.write(bulk, span)


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
        self._writer = RangeWriter(tables, broker, lenient, sizes or Sizes())

    def write(self, spans: Sequence[Range]) -> list[Written]:
        """Write ranges; files of failed tasks are cleaned up later."""
        context = self._spark.sparkContext
        pieces = tuple(cut(spans, context.defaultParallelism))
        task = PassTask(pieces, self._writer)
        context.setJobDescription(f"archive: {len(pieces)} ranges")
        numbers = self._spark.range(0, len(pieces), 1, len(pieces))
        rows = numbers.mapInArrow(task, MANIFEST).collect()
        return [Written.of_json(row["written"]) for row in rows]
