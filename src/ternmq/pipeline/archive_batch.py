"""The archive by Spark, a pass at a time: what each commit holds is written by many workers.

As ``archive``: where to go on is asked of the table, there is no checkpoint, and a small pass is
written here, at once. Only ranges go to the workers, and what they wrote comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ternmq.client.bulk import Bulk, RangesAsk
from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive import PAGE_BYTES, rows_of
from ternmq.pipeline.archive_file import Sizes
from ternmq.pipeline.archive_files import Range, Written, write_range
from ternmq.pipeline.archive_spark import MANIFEST
from ternmq.pipeline.folder import Folder
from ternmq.pipeline.schemas import ARCHIVE
from ternmq.spark.bulk_port import reach
from ternmq.spark.connecting import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MANIFEST: Final = pa.schema([("written", pa.string())])


def cut(spans: Sequence[Range], pieces: int) -> list[Range]:
    """Return the same rows in about so many ranges of about as many rows each, in order."""
    rows = sum(one.stop - one.start for one in spans)
    most = max(1, ceil(rows / max(1, pieces)))
    return [
        Range(one.topic, one.topic_number, one.queue, start, min(start + most, one.stop))
        for one in spans
        for start in range(one.start, one.stop, most)
    ]


@dataclass(frozen=True)
class PassTask:
    """What a worker does: ``df.mapInArrow(PassTask(...), MANIFEST)``, rows being numbers of ranges.

    Attributes:
        spans: The ranges.
        tables: The folder of all tables, as every worker reaches it.
        broker: Where the rows are.
        lenient: Rows may be missing.
        sizes: How large files become.
    """

    spans: tuple[Range, ...]
    tables: str
    broker: Broker
    lenient: bool = False
    sizes: Sizes = field(default_factory=Sizes)

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write each range; yield what was written."""
        bulk: Bulk | None = None
        try:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    bulk = bulk or reach(self.broker, PAGE_BYTES)
                    written = self._written(bulk, self.spans[number])
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([written.to_json()])], schema=_MANIFEST
                    )
        finally:
            if bulk is not None:
                bulk.close()

    def _written(self, bulk: Bulk, span: Range) -> Written:
        (found,) = bulk.ranges([RangesAsk(topic=span.topic)])
        if found.number != span.topic_number:
            raise DataLoss(f"{span}: the topic was deleted meanwhile")
        folder = Folder(self.tables).inside(ARCHIVE.name)
        with closing(rows_of(bulk, span, lenient=self.lenient)) as batches:  # type: ignore[type-var]
            return write_range(folder, span, batches, self.sizes, lenient=self.lenient)


class SparkWorkers:
    """See ``archive.Workers``.

    Args:
        spark: The session.
        tables: The folder of all tables, as every worker reaches it.
        broker: Where the rows are, for the workers.
        from_bytes: Less than that is not worth their start.
        lenient: Rows may be missing.
        sizes: How large files become.
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

    def write(self, spans: Sequence[Range]) -> list[Written]:
        """Write ranges; what tasks leave behind that fail is cleaned up later."""
        context = self._spark.sparkContext
        pieces = tuple(cut(spans, context.defaultParallelism))
        task = PassTask(pieces, self._tables, self._broker, self._lenient, self._sizes)
        context.setJobDescription(f"archive: {len(pieces)} ranges")
        numbers = self._spark.range(0, len(pieces), 1, len(pieces))
        rows = numbers.mapInArrow(task, MANIFEST).collect()
        return [Written.of_json(row["written"]) for row in rows]
