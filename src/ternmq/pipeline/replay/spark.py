"""A replay by Spark: queues of the archive spread over workers, each sent as ``replay`` does it.

Rows go from the files to the broker in one worker, and never enter the JVM. A task that runs twice
reads from the broker how far the first one was, and continues after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from ternmq.pipeline.job.described import described
from ternmq.pipeline.replay.plan import Source
from ternmq.pipeline.replay.replay import Replay, Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOLD: Final = pa.schema([("sent", pa.string())])


@dataclass(frozen=True)
class ReplayTask:
    """A worker's task; rows are numbers of queues.

    Attributes:
        replay: The replay.
        sources: The queues.
    """

    replay: Replay
    sources: tuple[Source, ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send queues; yield the results."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                sent = self.replay.send(self.sources[number])
                told = msgspec.json.encode(sent).decode()
                yield pa.RecordBatch.from_arrays([pa.array([told])], schema=_TOLD)


def send_all(spark: SparkSession, replay: Replay, sources: Sequence[Source]) -> list[Sent]:
    """Send queues, each in its own task."""
    numbers = spark.range(0, len(sources), 1, max(1, len(sources)))
    with described(spark, f"replay {replay.name}: {len(sources)} queues"):
        rows = numbers.mapInArrow(ReplayTask(replay, tuple(sources)), "sent string").collect()
    return [msgspec.json.decode(row["sent"], type=Sent) for row in rows]
