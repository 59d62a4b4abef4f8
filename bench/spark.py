"""Measures topics as tables: what Spark reads of them, and writes into them.

    python bench/spark.py            five rounds of everything
    python bench/spark.py --quick    a smoke run, nothing is written

Wants the extra `spark` and a Java. A broker process, one Spark with two cores, everything on one
machine. The ceiling stands beside each figure: the same Spark in the same round, fed by a source
that makes rows of the same shape out of memory, or drained by a sink that throws them away.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from broker_kit import BrokerProcess, broker
from core_kit import Figures, Measurement, Settings, Target
from runner import Suite, run

import ternmq.sync

BEST_OF: Final = 3


@contextmanager
def spark() -> Iterator[Any]:
    """Run a Spark of two cores."""
    import ternmq.spark

    session = ternmq.spark.session(
        "bench",
        master="local[2]",
        settings={"spark.driver.memory": "3g", "spark.driver.host": "127.0.0.1"},
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def fill(one: BrokerProcess, rows: int, size: int, per_batch: int) -> None:
    """Send messages whose bodies are half random, half text."""
    body = os.urandom(size // 2) + (b'{"number": 1, "text": "abc"}' * 60)[: size - size // 2]
    with ternmq.sync.connect(one.url) as client:
        client.admin.create_topic("orders", queues=2)
        for first in range(0, rows, per_batch):
            queue = first // per_batch % 2
            client.send_many("orders", [body] * min(per_batch, rows - first), queue=queue)


def address(one: BrokerProcess) -> str:
    """Return where the broker is, as an option."""
    return one.url.partition("://")[2]


def source(session: Any, one: BrokerProcess) -> Any:
    """Return the topic as a table."""
    told = session.read.format("ternmq").option("bootstrap.servers", address(one))
    return told.option("subscribe", "orders").option("maxRecordsPerPartition", 500_000).load()


def synthetic(session: Any, rows: int, size: int) -> Any:
    """Return a table of the same shape, out of memory."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):  # type: ignore[misc]
        def partitions(self) -> Any:
            return [InputPartition(n) for n in range(4)]

        def read(self, partition: Any) -> Any:
            import numpy as np
            import pyarrow as pa

            from ternmq.spark import schema

            count, left, at = 10_000, rows // 4, 0
            names = schema.arrow(schema.kinds(schema.FIELDS[:6]))
            body = os.urandom(size // 2) + bytes(size - size // 2)
            values = pa.array([body] * count, pa.binary())
            fixed = [
                pa.nulls(count, pa.binary()), values, pa.repeat("orders", count),
                pa.repeat(pa.scalar(partition.value, pa.int32()), count),
            ]  # fmt: skip
            times = pa.repeat(pa.scalar(1, pa.timestamp("us", tz="UTC")), count)
            while at < left:
                most = min(count, left - at)
                offsets = pa.array(np.arange(at, at + count, dtype=np.int64))
                batch = pa.RecordBatch.from_arrays([*fixed, offsets, times], schema=names)
                yield batch.slice(0, most)
                at += most

    class Synthetic(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "synthetic"

        def schema(self) -> str:
            from ternmq.spark import schema

            return schema.ddl(schema.kinds(schema.FIELDS[:6]))

        def reader(self, schema: Any) -> Any:  # noqa: ARG002 - Spark's
            return Reader()

    session.dataSource.register(Synthetic)
    return session.read.format("synthetic").load()


def best(work: Callable[[], object]) -> float:
    """Return the seconds of the quickest of some runs, the first of which warms up."""
    took: list[float] = []
    for _ in range(BEST_OF):
        at = time.perf_counter()
        work()
        took.append(time.perf_counter() - at)
    return min(took)


def drained(table: Any) -> Callable[[], object]:
    """Return what reads all of a table and keeps nothing."""
    return lambda: table.write.format("noop").mode("overwrite").save()


def reading(rows: int, size: int, per_batch: int) -> Callable[[Settings], Figures]:
    """Return the measurement of reading a topic."""

    def measure(settings: Settings) -> Figures:
        count = settings.scaled(rows, 20_000)
        with broker(settings) as one, spark() as session:
            fill(one, count, size, per_batch)
            cpu = one.cpu_s()
            took = best(drained(source(session, one)))
            cpu = (one.cpu_s() - cpu) / BEST_OF
            ceiling = best(drained(synthetic(session, count, size)))
        return {
            "rows_a_second": count / took,
            "mb_a_second": count * size / took / 1e6,
            "ceiling_rows_a_second": count / ceiling,
            "of_ceiling": ceiling / took,
            "broker_cpu_us_a_row": cpu / count * 1e6,
        }

    return measure


def writing(rows: int, size: int, **options: str) -> Callable[[Settings], Figures]:
    """Return the measurement of writing a table into a topic."""

    def measure(settings: Settings) -> Figures:
        count = settings.scaled(rows, 20_000)
        with broker(settings) as one, spark() as session:
            with ternmq.sync.connect(one.url) as client:
                client.admin.create_topic("out", queues=2)
            text = "a" * (size - 12)
            table = session.range(count, numPartitions=4).selectExpr(
                f"concat('{text}', lpad(cast(id as string), 12, '0')) as value",
                "concat('k', id) as key",
            )
            number = iter(range(BEST_OF))

            def write() -> None:
                told = table.write.format("ternmq").mode("append")
                told = told.option("bootstrap.servers", address(one)).option("topic", "out")
                for name, value in options.items():
                    told = told.option(name, value.format(number=next(number)))
                told.save()

            took = best(write)
            ceiling = best(drained(table))
        return {
            "rows_a_second": count / took,
            "mb_a_second": count * size / took / 1e6,
            "ceiling_rows_a_second": count / ceiling,
        }

    return measure


def versions() -> dict[str, str]:
    """Return the versions of what is measured besides."""
    return {name: version(name) for name in ("pyspark", "pyarrow")}


SUITE: Final = Suite(
    Path(__file__),
    "Measure topics as tables of Spark.",
    (
        Measurement(
            "read-100", "a topic of 100-byte messages, batches of 500 -> noop",
            reading(2_000_000, 100, 500),
            (Target("rows_a_second", 1_000_000, at_least=True),),
            {"rows": 2_000_000, "body_bytes": 100, "per_batch": 500, "queues": 2},
        ),
        Measurement(
            "read-1k", "a topic of 1 KiB messages, batches of 200 -> noop",
            reading(400_000, 1024, 200), (),
            {"rows": 400_000, "body_bytes": 1024, "per_batch": 200, "queues": 2},
        ),
        Measurement(
            "write-100", "a table -> a topic, 100 bytes, keyed, at least once",
            writing(1_000_000, 100),
            (Target("rows_a_second", 200_000, at_least=True),),
            {"rows": 1_000_000, "body_bytes": 100, "queues": 2, "delivery": "at_least_once"},
        ),
    ),
    versions,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
