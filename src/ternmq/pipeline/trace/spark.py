"""The trace by Spark: workers scan the journal once, and fold its facts cell by cell.

One job of two stages. Each task of the first scans a stretch of the journal, and cuts its facts
into cells (``cells``): a row that is shuffled is a packet of facts of one bucket, not a fact. Each
task of the second folds the cells of a bucket (``folding``) and writes the files. The driver gets
their descriptions, and decides in one commit what belongs to the table (``commits``).

The shuffle names the partition of each row itself, and the number of partitions: adaptive execution
leaves such a shuffle as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyspark import TaskContext

from ternmq.pipeline.job.packets import PACKETS, buckets, packed, packet, received, task_bytes
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.cells import Cells, Scan
from ternmq.pipeline.trace.commits import TracePass
from ternmq.pipeline.trace.folding import (
    Manifest,
    Piece,
    fold_bucket,
    of_manifest,
)
from ternmq.pipeline.trace.schema import EVENTS, SCHEDULED, TRACE
from ternmq.spark import schema
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.journal.broker import BrokerJournal
from ternmq.spark.journal.events import COLUMNS, Events
from ternmq.spark.journal.names import Names
from ternmq.spark.journal.options import JournalOptions
from ternmq.spark.journal.reading import JournalReading, Stretch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE: Final = 200_000
"""Events that a task cuts at a time."""
MANIFESTS: Final = "told string, stats binary, lags binary, learnt binary, dropped binary"
_MANIFESTS: Final = pa.schema(
    [
        ("told", pa.string()), ("stats", pa.binary()), ("lags", pa.binary()),
        ("learnt", pa.binary()), ("dropped", pa.binary()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class ScanTask:
    """A worker's task: ``df.mapInArrow(ScanTask(...), PACKETS)``; a row is a stretch's number.

    Attributes:
        stretches: The stretches of the journal.
        broker: The broker to read from.
        names: Names of the numbers in records, packed.
        cells: The cells of the table.
        known_from: As in ``queue.Work``.
    """

    stretches: tuple[Stretch, ...]
    broker: Broker
    names: bytes
    cells: Cells
    known_from: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the facts of stretches, packed by bucket."""
        with closing(BrokerJournal(self.broker)) as port:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self._packets(port, self.stretches[number])

    def _packets(self, port: BrokerJournal, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        scan = Scan(self.cells, self.known_from)
        for number, (bucket, facts) in enumerate(self._cut(scan, port, stretch)):
            yield packet(bucket, stretch.start, number, facts)

    def _cut(
        self, scan: Scan, port: BrokerJournal, stretch: Stretch
    ) -> Iterator[tuple[int, pa.Table]]:
        events = Events(Names.unpacked(self.names))
        for page in port.pages(*stretch):
            events.add(page)
            if len(events) >= _AT_ONCE:
                yield from scan.add(_table(events))
        yield from scan.add(_table(events))
        yield from scan.end()


def _table(events: Events) -> pa.Table:
    return pa.Table.from_batches([cast("pa.RecordBatch", events.table(EVENTS))])


@dataclass(frozen=True)
class FoldTask:
    """A worker's task: ``packets.mapInArrow(FoldTask(...), MANIFESTS)``.

    Attributes:
        piece: The piece of the journal.
        tables: The folder of all tables, as every worker reaches it.
        storage: Options of the Delta library for an object store.
    """

    piece: Piece
    tables: str
    storage: Mapping[str, str] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold the buckets of a partition, in general one; yield their manifests."""
        table, scheduled = (
            Table.open(Folder(self.tables), spec, create=False, storage=self.storage)
            for spec in (TRACE, SCHEDULED)
        )
        nothing = schema.arrow({name: COLUMNS[name] for name in EVENTS}).empty_table()
        none = nothing.append_column("block", pa.array([], pa.int64()))
        number = cast("TaskContext", TaskContext.get()).partitionId()
        for bucket, facts in received(batches, or_else=(number, none)):
            manifest = fold_bucket(table, scheduled, self.piece, bucket, facts)
            arrays = [pa.array([part]) for part in manifest]
            yield pa.RecordBatch.from_arrays(arrays, schema=_MANIFESTS)


def fold_by_spark(
    spark: SparkSession,
    broker: Broker,
    passing: TracePass,
    begin: int,
    stop: int,
    storage: Mapping[str, str] | None = None,
) -> int:
    """Fold the journal between two positions; return the number of rows written.

    Args:
        spark: The session.
        broker: The broker that workers read from.
        passing: The tables.
        begin: Position of the trace.
        stop: Where to stop.
        storage: Options of the Delta library for an object store.

    Raises:
        TableConflict: As ``TracePass.fold``.
    """
    known = passing.known(begin)
    cores = spark.sparkContext.defaultParallelism
    cells = Cells.of(passing.trace.files(), buckets(cores))
    piece = Piece(
        cells,
        begin,
        stop,
        known.position,
        passing.counted(begin),
        packed(known.table()),
        passing.scheduled_from(begin),
        passing.since(begin),
    )
    with closing(BrokerJournal(broker)) as port:
        names = port.names(begin).packed(EVENTS)
        stretches = tuple(_stretches(port, broker, begin, stop, cores))
    scan = ScanTask(stretches, broker, names, cells, piece.known_from)
    fold = FoldTask(piece, passing.trace.folder.uri.rpartition("/")[0], storage)
    scanned = spark.range(0, len(stretches), 1, len(stretches)).mapInArrow(scan, PACKETS)
    manifests = scanned.repartitionById(cells.buckets, "bucket").mapInArrow(fold, MANIFESTS)
    dones, moved, entries = [], [], []
    for row in manifests.collect():
        some, steps, scheduled, learnt = of_manifest(Manifest(*row))
        entries.append(scheduled)
        dones += some
        moved += steps
        if learnt is not None:
            known.learn(learnt, stop)
    return passing.commit(known, begin, stop, dones, moved, entries)


def _stretches(
    port: BrokerJournal, broker: Broker, begin: int, stop: int, cores: int
) -> list[Stretch]:
    """Cut a piece into the stretches of tasks: small enough for every core to get some."""
    options = JournalOptions(
        broker=broker,
        path="",
        start=begin,
        task_bytes=task_bytes(stop - begin, cores),
        columns=EVENTS,
    )
    reading = JournalReading(options, {name: COLUMNS[name] for name in EVENTS})
    return reading.tasks(begin, stop, port.bounds())
