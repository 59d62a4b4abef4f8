"""The trace by Spark: the same fold, spread over workers queue by queue.

Events are read with ``format("ternmq.journal")`` and grouped by queue; a worker folds those of a
queue, writes the files, and returns their description. Rows of the trace never enter the JVM. The
driver decides what belongs to the table, in one commit (``commits``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f

from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.commits import PIPELINE, TracePass
from ternmq.pipeline.trace.fold import TracedQueue
from ternmq.pipeline.trace.known import Queue
from ternmq.pipeline.trace.queue import KINDS, Done, Work, fold_queue
from ternmq.pipeline.trace.schema import EVENTS, TRACE
from ternmq.spark import schema
from ternmq.spark.journal.events import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANIFEST: Final = pa.schema([("told", pa.string()), ("stats", pa.binary()), ("lags", pa.binary())])
_LEARNT: Final = ("config", "prepared", "resolved")


def fold_by_spark(
    spark: SparkSession, options: Mapping[str, str], passing: TracePass, begin: int, stop: int
) -> int:
    """Fold the journal between two positions; return the number of rows written.

    Args:
        spark: The session.
        options: Options of ``format("ternmq.journal")``: the broker.
        passing: The tables.
        begin: Position of the trace.
        stop: A position where a record begins.

    Raises:
        TableConflict: As ``TracePass.fold``.
    """
    events = (
        spark.read.format("ternmq.journal")
        .options(**options)
        .option("startingPosition", str(begin))
        .option("endingPosition", str(stop))
        .option("columns", ",".join(EVENTS))
        .load()
    )
    known = passing.known(begin)
    was = known.position
    known.learn(
        events.where(f.col("kind").isin(*_LEARNT)).orderBy("position", "part").toArrow(), stop
    )
    of_users = events.where(
        f.col("kind").isin(*KINDS)
        & f.col("queue").isNotNull()
        & ~f.coalesce(f.col("group").startswith(PIPELINE), f.lit(False))
    )
    queues = {
        (row["topic_number"], row["queue"]): row["topic"]
        for row in of_users.select("topic_number", "queue", "topic").distinct().collect()
    }
    known.topics |= {key[0]: topic for key, topic in queues.items() if topic is not None}
    works = passing.works(known, was, begin, queues)
    dones = [*_spread(of_users, passing.trace.folder, works)]
    heard = {(one.place.topic_number, one.place.queue) for one in dones}
    nothing = schema.arrow({name: COLUMNS[name] for name in EVENTS}).empty_table()
    for work in works:  # a group began or ended, and nothing else happened in the queue
        if (work.place.topic_number, work.place.queue) not in heard:
            dones.append(fold_queue(passing.trace, work, nothing))
    return passing.commit(known, begin, stop, dones)


def _spread(events: DataFrame, table: Folder, works: Sequence[Work]) -> Iterable[Done]:
    by_queue = {(one.place.topic_number, one.place.queue): one for one in works}
    task = _task(table.uri, by_queue)
    manifests = events.groupBy("topic_number", "queue").applyInArrow(
        task, "told string, stats binary, lags binary"
    )
    for row in manifests.collect():
        yield _of_manifest(row["told"], row["stats"], row["lags"])


def _task(
    table: str, works: Mapping[Queue, Work]
) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    """Return a worker's function for the events of a queue."""

    def run(key: tuple[Any, ...], events: pa.Table) -> pa.Table:
        topic, queue = (one.as_py() for one in key)
        ordered = events.sort_by([("position", "ascending"), ("part", "ascending")])
        folder = Folder(table.rpartition("/")[0])
        done = fold_queue(Table.open(folder, TRACE, create=False), works[topic, queue], ordered)
        return pa.table([[one] for one in _manifest(done)], schema=_MANIFEST)

    return run


def _manifest(done: Done) -> tuple[str, bytes, bytes]:
    told = {
        "place": asdict(done.place),
        "add": [_plain(one) for one in done.add],
        "remove": [_plain(one) for one in done.remove],
        "rows": done.rows,
        "end": done.end,
        "cursors": sorted(done.cursors.items()),
    }
    return json.dumps(told), _packed(done.stats), _packed(done.lags)


def _plain(file: DataFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in DataFile.__slots__}


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _of_manifest(told: str, stats: bytes, lags: bytes) -> Done:
    found = json.loads(told)
    return Done(
        TracedQueue(**found["place"]),
        [DataFile(**one) for one in found["add"]],
        [DataFile(**one) for one in found["remove"]],
        found["rows"],
        pa.ipc.open_stream(stats).read_all(),
        pa.ipc.open_stream(lags).read_all(),
        found["end"],
        dict(found["cursors"]),
    )
