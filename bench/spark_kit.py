"""What the measurements of Spark share: a session, a filled topic, and ceilings made of memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import ternmq.sync
from ternmq.pipeline.archive.columns import TAKEN
from ternmq.pipeline.archive.ranges import Range, write_range
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.tables.folder import Folder

BEST_OF: Final = 3
TOPIC: Final = "orders"
QUEUES: Final = 2
_TASKS: Final = 4
_INSTANT: Final = pa.timestamp("us", tz="UTC")


@contextmanager
def spark() -> Iterator[Any]:
    """Run a Spark of two cores; the first work of its workers is not measured."""
    import ternmq.spark

    # Workers load what is here by its name.
    here = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(one for one in here if one)
    session = ternmq.spark.session(
        "bench",
        master="local[2]",
        settings={"spark.driver.memory": "3g", "spark.driver.host": "127.0.0.1"},
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    try:
        yield session
    finally:
        session.stop()


def give_way(session: Any) -> None:
    """Give Spark's processes the priority that `ternmq pipeline run` gives itself.

    Linux has one for each thread; whatever they start from now on inherits it.
    """
    wanted = {session.sparkContext._gateway.proc.pid}
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        with suppress(OSError):  # it has ended
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in wanted:
                wanted.add(int(path.name))
    for process in wanted:
        for task in Path(f"/proc/{process}/task").glob("*"):
            with suppress(OSError):
                os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def body_of(size: int) -> bytes:
    """Return a body that is half random, half text."""
    return os.urandom(size // 2) + (b'{"number": 1, "text": "abc"}' * 60)[: size - size // 2]


def fill(url: str, rows: int, size: int, per_batch: int) -> None:
    """Send messages; those of a batch have bodies of their own."""
    bodies = [body_of(size) for _ in range(per_batch)]
    with ternmq.sync.connect(url) as client:
        client.admin.create_topic(TOPIC, queues=QUEUES)
        for first in range(0, rows, per_batch):
            queue = first // per_batch % QUEUES
            client.send_many(TOPIC, bodies[: min(per_batch, rows - first)], queue=queue)


def forget(path: Path) -> None:
    """Have the system forget what it holds of a journal's files."""
    os.sync()
    for file in path.rglob("*.seg"):
        fd = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def best(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Return the seconds of the quickest of some runs, the first of which warms up."""
    took: list[float] = []
    for _ in range(BEST_OF):
        before()
        at = time.perf_counter()
        work()
        took.append(time.perf_counter() - at)
    return min(took)


def drained(table: Any) -> Callable[[], object]:
    """Return what reads all of a table and keeps nothing."""
    return lambda: table.write.format("noop").mode("overwrite").save()


# -- ceilings


def register(session: Any) -> None:
    """Make ``format("synthetic")`` known: rows out of memory, and a sink that throws rows away."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        InputPartition,
        WriterCommitMessage,
    )

    class Reader(DataSourceReader):  # type: ignore[misc]
        def __init__(self, rows: int, size: int) -> None:
            self.rows, self.size = rows, size

        def partitions(self) -> Any:
            return [InputPartition(n) for n in range(_TASKS)]

        def read(self, partition: Any) -> Any:
            from ternmq.spark import schema

            count, left, at = 10_000, self.rows // _TASKS, 0
            names = schema.arrow(schema.kinds(schema.FIELDS[:6]))
            body = os.urandom(self.size // 2) + bytes(self.size - self.size // 2)
            values = pa.array([body] * count, pa.binary())
            fixed = [
                pa.nulls(count, pa.binary()), values, pa.repeat(TOPIC, count),
                pa.repeat(pa.scalar(partition.value, pa.int32()), count),
            ]  # fmt: skip
            times = pa.repeat(pa.scalar(1, _INSTANT), count)
            while at < left:
                most = min(count, left - at)
                offsets = pa.array(np.arange(at, at + count, dtype=np.int64))
                batch = pa.RecordBatch.from_arrays([*fixed, offsets, times], schema=names)
                yield batch.slice(0, most)
                at += most

    class Sink(DataSourceArrowWriter):  # type: ignore[misc]
        def write(self, iterator: Any) -> Any:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Synthetic(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "synthetic"

        def schema(self) -> str:
            from ternmq.spark import schema

            return schema.ddl(schema.kinds(schema.FIELDS[:6]))

        def reader(self, schema: Any) -> Any:  # noqa: ARG002 - Spark's
            return Reader(int(self.options["rows"]), int(self.options["size"]))

        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: ARG002 - Spark's
            return Sink()

    session.dataSource.register(Synthetic)


def synthetic(session: Any, rows: int, size: int) -> Any:
    """Return a table of the same shape as a topic's, out of memory."""
    return session.read.format("synthetic").option("rows", rows).option("size", size).load()


def archived_from_memory(session: Any, rows: int, size: int, folder: Path) -> None:
    """Write rows out of memory into files, as the archive writes a topic's; commits nothing."""
    tables = str(folder)

    def work(ranges: Any) -> Any:
        batch = _archive_batch(10_000, size)
        for told in ranges:
            for number in told.column("id").to_pylist():
                each = rows // _TASKS
                span = Range(TOPIC, 1, number, 0, each)
                write_range(Folder(tables).inside(ARCHIVE.name), span, _shifted(batch, each))
                yield told.slice(0, 1)

    Folder(tables).inside(ARCHIVE.name)
    session.range(_TASKS, numPartitions=_TASKS).mapInArrow(work, "id bigint").count()


def _archive_batch(count: int, size: int) -> pa.RecordBatch:
    numbers = np.arange(count, dtype=np.int64)
    times = pa.array(1_795_262_400_000_000 + numbers, _INSTANT)
    columns = {
        "queue": pa.array(np.zeros(count, np.int32)),
        "offset": pa.array(numbers), "stored_time": times, "born_time": times,
        "position": pa.array(numbers * 120), "producer_id": pa.array(np.full(count, 77)),
        "sequence": pa.array(numbers), "headers": pa.nulls(count, pa.binary()),
        "body": pa.array([body_of(size) for _ in range(500)] * (count // 500), pa.binary()),
    }  # fmt: skip
    absent = pa.nulls(count, pa.string())
    return pa.RecordBatch.from_arrays([columns.get(n, absent) for n in TAKEN], names=list(TAKEN))


def _shifted(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch again and again, with the offsets that follow each other."""
    at, place = 0, batch.schema.get_field_index("offset")
    while at < rows:
        offsets = pa.array(np.arange(at, at + batch.num_rows, dtype=np.int64))
        yield batch.set_column(place, "offset", offsets).slice(0, min(batch.num_rows, rows - at))
        at += batch.num_rows
