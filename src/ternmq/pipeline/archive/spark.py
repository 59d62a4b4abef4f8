"""The archive by Spark: the same ranges, files and rule, spread over workers.

    stream = ArchiveStream(spark, "/data/tables", {"bootstrap.servers": "localhost:7117",
                                                   "subscribePattern": "orders.*"}, now_us)
    stream.start(once=True).awaitTermination()

Spark moves ranges of offsets, one row for each, and rows that describe the files. Bodies go from
the broker to the file in one worker, and never enter the JVM. The table decides which files belong
to the archive (``commit``), not Spark's checkpoint: that may be lost.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ternmq.client.bulk import Bulk
from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive.archive import GROUP
from ternmq.pipeline.archive.commit import Archive, ArchivedQueue
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.ranges import Range, Written
from ternmq.pipeline.archive.workers import MANIFEST, RangeWriter, topic_number
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.bulk_port import reach
from ternmq.spark.broker.offsets import EARLIEST, Progress, TopicQueue, to_json
from ternmq.spark.topics.options import read_options
from ternmq.spark.topics.table import Use

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log: Final = logging.getLogger("ternmq.pipeline")


@dataclass(frozen=True)
class RangeTask:
    """A worker's task: ``df.mapInArrow(RangeTask(...), MANIFEST)`` on rows of ``emit=ranges``.

    Attributes:
        writer: Writes them.
    """

    writer: RangeWriter

    def __call__(self, ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write each range; yield descriptions of the files."""
        rows = (row for batch in ranges for row in batch.to_pylist())
        return self.writer.manifests(rows, self._written)

    def _written(self, bulk: Bulk, row: Mapping[str, object]) -> Written | None:
        topic, queue, start, stop = (row[name] for name in ("topic", "partition", "start", "end"))
        assert isinstance(topic, str)
        assert isinstance(queue, int)
        assert isinstance(start, int)
        assert isinstance(stop, int)
        number = topic_number(bulk, topic)
        if not number:
            what = f"rows {start} to {stop - 1} of queue {queue} of {topic!r}: the topic is gone"
            if not self.writer.lenient:
                raise DataLoss(what)
            log.warning("%s", what)
            return None
        return self.writer.write(bulk, Range(topic, number, queue, start, stop))


class ArchiveStream:
    """Runs the archive as a streaming query of Spark.

    Args:
        spark: The session.
        tables: The folder of all tables, as every worker reaches it.
        options: Options of ``format("ternmq")`` that select the broker and the topics, and
            optionally limit the size of a batch.
        now_us: Returns the time, µs since 1970; recorded with gaps.
        lenient: Rows may be missing; they are recorded in ``archive_gaps``.
        sizes: Size limits of files.
        checkpoint: Where Spark stores its progress; by default beside the tables.
        storage: Options of the Delta library for an object store.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: str,
        options: Mapping[str, str],
        now_us: Callable[[], int],
        *,
        lenient: bool = False,
        sizes: Sizes | None = None,
        checkpoint: str | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._folder = Folder(tables)
        self._now_us = now_us
        self._lenient = lenient
        self._checkpoint = checkpoint or self._folder.uri_of("_checkpoints/archive")
        self._options = {
            **options,
            "emit": "ranges",
            # Progress is committed after the table has the rows, and only from here.
            "reportProgress": "false",
            "failOnDataLoss": str(not lenient).lower(),
        }
        self._read = read_options(self._options, Use.STREAM_READ)
        self._writer = RangeWriter(self._folder.uri, self._read.broker, lenient, sizes or Sizes())
        self._archive = Archive(self._folder, storage)
        self._bulk: Bulk | None = None

    def start(self, *, once: bool = True, every: str = "60 seconds") -> StreamingQuery:
        """Start the query; ``once``: archive what is there now, and end.

        Without a checkpoint, the query begins where the table ends.
        """
        writer = (
            self.manifests()
            .writeStream.queryName("ternmq-archive")
            .option("checkpointLocation", self._checkpoint)
            .foreachBatch(self.commit)
        )
        trigger = (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
        )
        return trigger.start()

    def manifests(self) -> DataFrame:
        """Return the stream of descriptions that workers yield."""
        source = self._spark.readStream.format("ternmq").options(**self._options)
        ranges = source.option("startingOffsets", json.dumps(to_json(self._starts()))).load()
        return ranges.mapInArrow(RangeTask(self._writer), MANIFEST)

    def commit(self, manifests: DataFrame, batch_id: int) -> None:
        """Add the files of a batch to the archive; for ``foreachBatch``."""
        written = [Written.of_json(row["written"]) for row in manifests.collect()]
        done = self._archive.commit(written, self._now_us(), lenient=self._lenient)
        log.info("archive: batch %d: %s", batch_id, done)
        self._tell(done.stands)

    def _starts(self) -> Progress:
        """Return where a query without a checkpoint begins; the broker keeps rows from there on."""
        bulk = self._broker()
        topics = self._read.topics
        infos = bulk.topics(sorted(topics.names) or None)
        if topics.pattern:
            like = re.compile(topics.pattern)
            infos = [one for one in infos if like.fullmatch(one.spec.name)]
        ends = {
            ArchivedQueue(info.spec.name, info.number, queue): one.first
            for info in infos
            for queue, one in enumerate(info.queues)
        }
        stands = self._archive.all_stand(ends)
        self._tell(ends | stands)
        return Progress(
            {TopicQueue(one.topic, one.queue): stands.get(one, EARLIEST) for one in ends},
            {one.topic: one.topic_number for one in ends},
        )

    def _tell(self, stands: Mapping[ArchivedQueue, int]) -> None:
        by_topic: dict[str, dict[int, int]] = {}
        for place, stop in stands.items():
            by_topic.setdefault(place.topic, {})[place.queue] = stop
        for topic, places in sorted(by_topic.items()):
            self._broker().commit(topic, GROUP, places)

    def _broker(self) -> Bulk:
        if self._bulk is None:
            self._bulk = reach(self._read.broker)
        return self._bulk

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._bulk is not None:
            self._bulk.close()
            self._bulk = None
