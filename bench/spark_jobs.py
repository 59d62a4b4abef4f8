"""Measures the jobs of the pipeline on Spark: beside the process alone, and with more executors.

    python bench/spark_jobs.py            five rounds of everything
    python bench/spark_jobs.py --quick    a smoke run, nothing is written

A broker process holds a topic whose messages a group has consumed. Every job reads it from the
beginning, into tables of its own. The first run of a session warms it up and is not counted: its
start is not part of any figure. The pairs of a round follow each other, so they meet with the same
machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import cpu_share
from broker_kit import broker
from core_kit import Figures, Measurement, Settings, Target, folder
from runner import Suite, run
from spark_kit import TOPIC, body_of, spark

import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.client.connection.address import parse
from ternmq.pipeline.job.job import Context, Job
from ternmq.pipeline.running.jobs import chosen
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.connecting import Broker

sys.path.append(str(Path(__file__).parents[1]))

from tests.spark import cluster

GROUP: Final = "billing"
RUNS: Final = 2
_ALWAYS: Final = {"spark_from_mb": 0, "spark_bytes": 0}


def fill(url: str, rows: int, size: int, per_batch: int = 500, queues: int = 4) -> None:
    """Send messages, and have a group pull and acknowledge all of them."""
    bodies = [body_of(size) for _ in range(per_batch)]
    with ternmq.sync.connect(url) as client:
        client.admin.create_topic(TOPIC, queues=queues)
        client.admin.create_group(TOPIC, GROUP, start="earliest")
        for first in range(0, rows, per_batch):
            client.send_many(TOPIC, bodies, queue=first // per_batch % queues)
        done = 0
        while done < rows:
            got = client.pull(TOPIC, group=GROUP, max_messages=1000, wait=5)
            got.ack()
            done += len(got)


class Tables:
    """Runs jobs from the beginning, each time into new tables.

    Args:
        url: Of the broker.
        path: A folder for all tables.
    """

    def __init__(self, url: str, path: Path) -> None:
        self._url = url
        self._path = path
        self._number = 0

    def seconds(self, name: str, session: Any = None, **settings: int) -> float:
        """Return how long a job takes; with a session, by Spark whatever the size is."""
        (job,) = chosen([name])
        return min(self._once(job, session, settings) for _ in range(RUNS))

    def _once(self, job: Job, session: Any, settings: dict[str, int]) -> float:
        self._number += 1
        told = {one.name: one.default for one in job.settings}
        if session is not None:
            told |= {name: value for name, value in _ALWAYS.items() if name in told}
        with Bulk(BulkOptions(url=self._url)) as bulk, ternmq.sync.connect(self._url) as client:
            for hold in client.admin.holds():
                client.admin.delete_hold(hold.name)
            for group in client.admin.groups(TOPIC):
                if group.group.startswith("spark."):
                    client.admin.delete_group(TOPIC, group.group)
            context = Context(
                job=job.name,
                tables=Folder(str(self._path / f"tables-{self._number}")),
                broker=Broker((parse(self._url),)),
                bulk=bulk,
                now_us=time.time_ns() // 1000,
                spark=session,
                settings={**told, **settings},
            )
            began = time.perf_counter()
            job.run(context)
            return time.perf_counter() - began


def engines(name: str, rows: int, size: int) -> Any:
    """Return the measurement of a job in the process alone, and by Spark on two cores."""

    def measure(settings: Settings) -> Figures:
        count = settings.scaled(rows, 20_000)
        with broker(settings) as one, folder(settings) as path, spark() as session:
            fill(one.url, count, size)
            tables = Tables(one.url, path)
            alone = tables.seconds(name)
            by_spark = tables.seconds(name, session)
        return {
            "rows_a_second": count / by_spark,
            "rows_a_second_alone": count / alone,
            "times_alone": alone / by_spark,
        }

    return measure


@contextmanager
def on_cluster(path: Path, cores: int, share: float = 1.0) -> Iterator[Any]:
    """Run a cluster of single-core workers and a session on it.

    Args:
        path: For the workers' files.
        cores: The number of workers.
        share: How much of a core each worker may use, with its executor and their processes.
    """
    import ternmq.spark

    with ExitStack() as stack:
        one = stack.enter_context(cluster.running(path, {}, workers=cores))
        if share < 1:
            pids = [worker.pid for worker in one.workers]
            stack.enter_context(cpu_share.limited(pids, share))
        session = ternmq.spark.session(
            "bench",
            master=one.url,
            settings={
                "spark.driver.memory": "2g",
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "1g",
                "spark.executor.cores": "1",
                "spark.cores.max": str(cores),
            },
        )
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()


def executors(name: str, rows: int, size: int, share: float = 1.0) -> Any:
    """Return the measurement of a job on one executor of one core, and on two.

    Args:
        name: The job.
        rows: Messages.
        size: Bytes of their bodies.
        share: How much of a core an executor may use. Two whole cores for executors leave a machine
            of two cores none for the driver and the broker, so nothing could be twice as fast.
    """

    def measure(settings: Settings) -> Figures:
        if share < 1 and not cpu_share.possible():
            print("processes cannot be limited to a share of a core here", file=sys.stderr)
            return {}
        count = settings.scaled(rows, 20_000)
        took = []
        with broker(settings) as one, folder(settings) as path:
            fill(one.url, count, size)
            tables = Tables(one.url, path)
            for cores in (1, 2):
                with on_cluster(path / f"cluster-{cores}", cores, share) as session:
                    took.append(tables.seconds(name, session))
        return {"seconds_of_one": took[0], "seconds_of_two": took[1], "times": took[0] / took[1]}

    return measure


def aggregate(settings: Settings) -> Figures:
    """Count a topic by key, with and without the option ``columns``; and the same of Parquet."""
    count = settings.scaled(2_000_000, 20_000)
    with broker(settings) as one, folder(settings) as path, spark() as session:
        with ternmq.sync.connect(one.url) as client:
            client.admin.create_topic(TOPIC, queues=4)
            for first in range(0, count, 500):
                some = [
                    ternmq.sync.Message(b"x" * 100, key=f"k{n % 1000}")
                    for n in range(first, first + 500)
                ]
                client.send_many(TOPIC, some, queue=first // 500 % 4)
        address = one.url.partition("://")[2]

        def topic(**options: str) -> Any:
            told = session.read.format("ternmq").option("bootstrap.servers", address)
            read = told.option("subscribe", TOPIC).options(**options).load()
            return read.select("key", "value")

        files = str(path / "parquet")
        topic().write.parquet(files)

        def seconds(table: Any) -> float:
            least = float("inf")
            for _ in range(RUNS + 1):
                began = time.perf_counter()
                table.groupBy("key").agg({"value": "count"}).collect()
                least = min(least, time.perf_counter() - began)
            return least

        every, two = seconds(topic()), seconds(topic(columns="key,value"))
        parquet = seconds(session.read.parquet(files))
    return {
        "rows_a_second": count / every,
        "rows_a_second_of_columns": count / two,
        "of_parquet": parquet / every,
        "of_parquet_with_columns": parquet / two,
    }


def versions() -> dict[str, str]:
    """Return the versions of what is measured besides."""
    return {name: version(name) for name in ("pyspark", "pyarrow", "deltalake")}


def _shape(rows: int, size: int) -> dict[str, Any]:
    return {"rows": rows, "body_bytes": size, "per_batch": 500, "queues": 4, "groups": 1}


SUITE: Final = Suite(
    Path(__file__),
    "Measure the jobs of the pipeline on Spark.",
    (
        Measurement(
            "archive-engines", "archive of a topic: Spark on two cores beside the process alone",
            engines("archive", 1_000_000, 100), (Target("times_alone", 0.8, at_least=True),),
            _shape(1_000_000, 100),
        ),
        Measurement(
            "trace-engines", "trace of a topic: Spark on two cores beside the process alone",
            engines("trace", 1_000_000, 100), (Target("times_alone", 0.8, at_least=True),),
            _shape(1_000_000, 100),
        ),
        Measurement(
            "trace-executors", "trace of a topic: two executors of one core beside one",
            executors("trace", 2_000_000, 100), (Target("times", 1.7, at_least=True),),
            _shape(2_000_000, 100),
        ),
        Measurement(
            "trace-executors-limited",
            "the same; an executor may use 0.4 of a core, so that two cores hold the rest, too",
            executors("trace", 2_000_000, 100, 0.4), (Target("times", 1.7, at_least=True),),
            {**_shape(2_000_000, 100), "cores_an_executor": 0.4},
        ),
        Measurement(
            "aggregate",
            "count by key: a topic, with and without the option columns, beside Parquet files with "
            "the same rows",
            aggregate, (Target("of_parquet", 0.4, at_least=True),),
            {"rows": 2_000_000, "body_bytes": 100, "keys": 1000, "queues": 4},
        ),
    ),
    versions,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
