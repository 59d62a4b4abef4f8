"""The audit by Spark: workers read the journal and gather runs; the driver folds and judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.audit.runs import EVENTS, KEPT, gathered_here, merged
from ternmq.pipeline.job.described import described
from ternmq.spark.journal.reading import Stretch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST = "first_us"
_SENT = pa.schema([*KEPT, (_FIRST, pa.int64())])
_KINDS = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "bool": "boolean",
    "timestamp[us, tz=UTC]": "timestamp",
}
DDL = ", ".join(f"`{one.name}` {_KINDS[str(one.type)]}" for one in _SENT)


@dataclass(frozen=True)
class GatherTask:
    """A worker's task on facts: ``df.mapInArrow(GatherTask(grace_us), DDL)``.

    Attributes:
        grace_us: Messages stored later than this after the end of their window are late.
    """

    grace_us: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the runs of all facts of a task."""
        runs, first_us = gathered_here(batches, self.grace_us)
        if first_us is None:
            return
        # One more row, without a kind, carries the time even if there are no runs.
        told = pa.Table.from_pylist([{_FIRST: first_us}], schema=_SENT)
        whole = runs.append_column(_FIRST, pa.nulls(len(runs), pa.int64()))
        yield from pa.concat_tables([told, whole]).combine_chunks().to_batches()


def gathered(
    spark: SparkSession,
    options: Mapping[str, str],
    stretch: Stretch,
    grace_us: int,
    *,
    lenient: bool = False,
) -> tuple[pa.Table, int | None]:
    """Return the runs of a stretch of the journal, and the time of its first fact.

    Args:
        spark: The session.
        options: Options of ``format("ternmq.journal")``: the broker and the app.
        stretch: Where to read; both ends are beginnings of records.
        grace_us: As in ``GatherTask``.
        lenient: Skip the part that the journal no longer has.
    """
    facts = (
        spark.read.format("ternmq.journal")
        .options(**options)
        .option("startingPosition", str(stretch.start))
        .option("endingPosition", str(stretch.stop))
        .option("failOnDataLoss", str(not lenient).lower())
        .option("maxBytesPerPartition", str(max(1, (stretch.stop - stretch.start) // 8)))
        .option("columns", ",".join(EVENTS))
        .load()
    )
    with described(spark, f"audit: journal from {stretch.start} to {stretch.stop}"):
        found = facts.mapInArrow(GatherTask(grace_us), DDL).toArrow()
    first_us = pc.min(found[_FIRST]).as_py()
    runs = found.filter(pc.is_valid(found["kind"])).drop_columns([_FIRST]).cast(KEPT)
    return merged(runs), first_us
