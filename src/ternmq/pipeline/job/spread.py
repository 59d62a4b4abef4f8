"""Calls a function for each of many items: in this process, or on Spark's workers if it pays.

For work whose items do not depend on each other, and whose results are small: descriptions of files
that were written, or partial sums. The rows themselves stay where the function reads and writes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import pyarrow as pa

from ternmq.pipeline.job.described import described
from ternmq.pipeline.job.job import Context, Setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

SPARK_FROM_MB: Final = Setting(
    "spark_from_mb", 64, "Use Spark if the files to read have at least this size, in megabytes."
)
"""The setting of a job that calls ``spread``."""
_MB: Final = 1 << 20
_RESULTS: Final = "number int, told binary"
_SCHEMA: Final = pa.schema([("number", pa.int32()), ("told", pa.binary())])


@dataclass(frozen=True)
class WorkerTask(Generic[T]):
    """A worker's task: ``df.mapInArrow(WorkerTask(...), _RESULTS)``; a row is an item's number.

    Attributes:
        work: Is called with an item; it and the items must be picklable.
        items: All items.
    """

    work: Callable[[T], bytes]
    items: tuple[T, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each item: its number and the result."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                told = self.work(self.items[number])
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([told], pa.binary())], schema=_SCHEMA
                )


def spread(
    context: Context, what: str, work: Callable[[T], bytes], items: Sequence[T], size: int
) -> Iterator[bytes]:
    """Yield the results of a function for items, in the order of the items.

    Without Spark, an item's function is called when its result is asked for. With Spark, there is a
    task for each item, and all results are there before the first is yielded. A worker that fails
    or is slow may call the function again for the same item.

    Args:
        context: The context of a job that has the setting ``SPARK_FROM_MB``.
        what: What Spark's user interface shows, such as ``compaction: 12 groups``.
        work: The function.
        items: The items.
        size: Bytes of the files that the function reads, of all items together.
    """
    few = len(items) < 2 or size < context.integer(SPARK_FROM_MB.name) * _MB
    if context.spark is None or few:
        yield from map(work, items)
        return
    yield from on_workers(context.spark, what, work, items)


def on_workers(
    spark: SparkSession, what: str, work: Callable[[T], bytes], items: Sequence[T]
) -> Iterator[bytes]:
    """Yield the results of a function for items, called by Spark's workers, as ``spread`` does."""
    numbers = spark.range(0, len(items), 1, len(items))
    with described(spark, what):
        rows = numbers.mapInArrow(WorkerTask(work, tuple(items)), _RESULTS).collect()
    yield from (bytes(row["told"]) for row in sorted(rows, key=lambda row: int(row["number"])))
