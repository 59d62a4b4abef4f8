"""``format("ternmq.journal")``: passes Spark's calls to ``reading``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ternmq.spark import schema
from ternmq.spark.journal.options import JournalOptions, journal_columns, journal_options
from ternmq.spark.journal.reading import (
    JournalReading,
    JournalStream,
    Json,
    of_json,
    to_json,
)
from ternmq.spark.topics.table import Use

if TYPE_CHECKING:
    import pyarrow as pa


_MOST_ROWS: Final = 1 << 62


class JournalSource(DataSource):  # type: ignore[misc]
    """``format("ternmq.journal")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "ternmq.journal"

    def schema(self) -> str:
        """Return the columns that the options select."""
        return schema.ddl(journal_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a batch read."""
        options = journal_options(self.options, Use.BATCH_READ)
        return JournalReader(JournalReading(options, _chosen(options, schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader for a streaming read."""
        options = journal_options(self.options, Use.STREAM_READ)
        return JournalStreamReader(JournalStream(JournalReading(options, _chosen(options, schema))))


def _chosen(options: JournalOptions, columns: StructType) -> Mapping[str, str]:
    kinds = {field.name: field.dataType.simpleString() for field in columns.fields}
    return schema.projected(kinds, options.offered, others=False)


class JournalReader(DataSourceReader):  # type: ignore[misc]
    """A batch read.

    Spark pickles a reader before it asks for its partitions, once for all tasks: the names travel
    with it.
    """

    def __init__(self, reading: JournalReading) -> None:
        self.reading = reading
        self._stretches, self._names = reading.plan()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the tasks: each gets its own."""
        return {**self.__dict__, "_stretches": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        return [InputPartition(stretch) for stretch in self._stretches]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        if partition is None or partition.value is None:
            return iter(())
        return self.reading.read(partition.value, self._names)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming read."""

    def __init__(self, stream: JournalStream) -> None:
        self.stream = stream

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Declare a limit; the actual one is in bytes, and applied in ``JournalStream``."""
        return ReadMaxRows(_MOST_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no further than the present end."""
        self.stream.freeze()

    def initialOffset(self) -> Json:  # noqa: N802
        """Return where a new query begins."""
        return to_json(self.stream.initial())

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:  # noqa: N802
        """Return the end of the next batch."""
        if start is None:
            return to_json(self.stream.newest())
        if isinstance(limit, ReadAllAvailable):  # trigger(once=True)
            self.stream.only_batch()
        return to_json(self.stream.latest(of_json(start)))

    def reportLatestOffset(self) -> Json:  # noqa: N802
        """Return the end of the journal, for monitoring the query."""
        return to_json(self.stream.newest())

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of a batch, each with the names: the reader is pickled before."""
        plan = self.stream.plan(of_json(start), of_json(end))
        return [InputPartition((stretch, plan.names)) for stretch in plan.stretches]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return self.stream.reading.read(*partition.value)

    def commit(self, end: Json) -> None:
        """Do nothing: a hold keeps the journal, not the query's progress."""

    def stop(self) -> None:
        """Close the connection."""
        self.stream.stop()
