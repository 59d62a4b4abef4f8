"""``format("ternmq")``: passes Spark's calls to ``reading`` and ``writing``.

Nothing is decided here. Spark pickles these objects back and forth between processes, and creates
each of them more than once: constructors only store their arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ternmq.model.errors import OptionError
from ternmq.spark import schema
from ternmq.spark.broker.offsets import of_json, to_json
from ternmq.spark.topics import filters
from ternmq.spark.topics.columns import written
from ternmq.spark.topics.options import ReadOptions, read_columns, read_options, write_options
from ternmq.spark.topics.reading import BatchRead, Reading, StreamRead
from ternmq.spark.topics.table import Use
from ternmq.spark.topics.writing import BATCH, Staged, Task, Writing

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]


class TernMQSource(DataSource):  # type: ignore[misc]
    """``format("ternmq")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "ternmq"

    def schema(self) -> str:
        """Return the columns that the options select."""
        return schema.ddl(read_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a batch read."""
        options = read_options(self.options, Use.BATCH_READ)
        reading = BatchRead(options, _chosen(options, schema))
        # Only with the option: a class with pushFilters fails if Spark's own setting is off.
        return FilteredReader(reading) if options.pushdown else Reader(reading)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader for a streaming read."""
        options = read_options(self.options, Use.STREAM_READ)
        return StreamReader(StreamRead(Reading(options, _chosen(options, schema))))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer for a batch write."""
        if overwrite:
            raise OptionError(
                "mode overwrite: rows can only be added to a topic; use mode('append')"
            )
        return Writer(self._writing(schema, Use.BATCH_WRITE))

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - outputMode complete: each batch is added
    ) -> DataSourceStreamArrowWriter:
        """Return a writer for a streaming write."""
        return StreamWriter(self._writing(schema, Use.STREAM_WRITE))

    def _writing(self, columns: StructType, use: Use) -> Writing:
        options = write_options(self.options, use)
        writing = Writing(options, written(_kinds(columns), options))
        writing.check()
        return writing


def _kinds(columns: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in columns.fields}


def _chosen(options: ReadOptions, columns: StructType) -> Mapping[str, str]:
    """Return the columns of the user's schema, or else of the options."""
    return schema.projected(_kinds(columns), options.offered, others=options.emit != "ranges")


class Reader(DataSourceReader):  # type: ignore[misc]
    """A batch read."""

    def __init__(self, reading: BatchRead) -> None:
        self.reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        return [InputPartition(span) for span in self.reading.plan()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        # For a plan without tasks, Spark creates one without a value.
        if partition is None or partition.value is None:
            return iter(())
        return self.reading.read(partition.value)


class FilteredReader(Reader):
    """A batch read that accepts filters."""

    def pushFilters(self, filters_: list[Any]) -> Iterator[Any]:  # noqa: N802
        """Accept the filters that can be applied while reading; yield the others."""
        found, left = filters.taken(filters_, self.reading.columns)
        self.reading = self.reading.filtered(found)
        return iter(left)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming read."""

    def __init__(self, stream: StreamRead) -> None:
        self.stream = stream

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Declare a limit; it is applied in ``StreamRead``, with that of bytes."""
        return ReadMaxRows(self.stream.options.max_offsets)

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
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        assert limit is None or isinstance(limit, ReadMaxRows | ReadAllAvailable)
        if isinstance(limit, ReadAllAvailable):  # trigger(once=True)
            self.stream.only_batch()
        return to_json(self.stream.latest(of_json(start), most))

    def reportLatestOffset(self) -> Json:  # noqa: N802
        """Return the ends of the queues, for monitoring the query."""
        return to_json(self.stream.newest())

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        return [InputPartition(span) for span in self.stream.spans(of_json(start), of_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return self.stream.reading.read(partition.value)

    def commit(self, end: Json) -> None:
        """Report to the broker that everything below is processed."""
        self.stream.committed(of_json(end))

    def stop(self) -> None:
        """Close the connection."""
        self.stream.stop()


@dataclass
class StagedMessage(WriterCommitMessage):  # type: ignore[misc]
    """A task's result for the driver."""

    staged: Staged


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged | None]:
    return [None if one is None else one.staged for one in messages]


class Writer(DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of a task."""
        return StagedMessage(self.writing.write(iterator, _task(stream=False)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible."""
        self.writing.commit(_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the rows of all tasks."""
        self.writing.abort(_staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """A streaming write."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of a task."""
        return StagedMessage(self.writing.write(iterator, _task(stream=True)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the rows of all tasks visible."""
        self.writing.commit(_staged(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop the rows of all tasks."""
        self.writing.abort(_staged(messages), batchId)


def _task(*, stream: bool) -> Task:
    """Return the identity of the present task, from Spark's own properties; tests check them."""
    context = TaskContext.get()
    assert context is not None
    part = f"{context.partitionId()}/{context.taskAttemptId()}"
    if not stream:
        return Task("", BATCH, part)
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    batch = context.getLocalProperty("streaming.sql.batchId")
    if batch is None:
        raise OptionError(
            "option delivery=exactly_once: tasks of this Spark do not know the number of their "
            "batch; use delivery=at_least_once"
        )
    return Task(query, int(batch), part)
