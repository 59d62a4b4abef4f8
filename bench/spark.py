"""Measures topics as tables: what Spark reads of them, writes into them, what that costs others.

    python bench/spark.py            five rounds of everything
    python bench/spark.py --quick    a smoke run, nothing is written

Wants the extra `spark` and a Java. A broker process, one Spark with two cores, everything on one
machine. The ceiling stands beside each figure: the same Spark in the same round, fed by a source
that makes rows of the same shape out of memory, or drained by a sink that throws them away.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import broker_scale_clients
import pyarrow as pa
import pyarrow.compute as pc
from broker_kit import BrokerProcess, broker, broker_at, client
from core_kit import Figures, Measurement, Settings, Target, folder
from journal_mix import pages
from runner import Suite, run
from spark_kit import (
    BEST_OF,
    TOPIC,
    archived_from_memory,
    best,
    drained,
    fill,
    forget,
    give_way,
    spark,
    synthetic,
)

import ternmq.sync

LIVE: Final = Path(broker_scale_clients.__file__)
PAIRS: Final = 5
IDLE_S: Final = 20.0


def address(one: BrokerProcess) -> str:
    """Return where the broker is, as an option."""
    return one.url.partition("://")[2]


def source(session: Any, one: BrokerProcess) -> Any:
    """Return the topic as a table."""
    told = session.read.format("ternmq").option("bootstrap.servers", address(one))
    return told.option("subscribe", TOPIC).option("maxRecordsPerPartition", 500_000).load()


def reading(rows: int, size: int, per_batch: int) -> Callable[[Settings], Figures]:
    """Return the measurement of reading a topic."""

    def measure(settings: Settings) -> Figures:
        count = settings.scaled(rows, 20_000)
        with broker(settings) as one, spark() as session:
            fill(one.url, count, size, per_batch)
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


def archiving(rows: int, size: int, per_batch: int) -> Callable[[Settings], Figures]:
    """Return the measurement of archiving a topic: a broker that was started anew, cold files."""

    def measure(settings: Settings) -> Figures:
        from ternmq.client.bulk import Bulk, BulkOptions
        from ternmq.client.connection.address import parse
        from ternmq.pipeline.archive.archive import ArchiveJob
        from ternmq.pipeline.archive.commit import Archive
        from ternmq.pipeline.archive.spark import SparkWorkers
        from ternmq.pipeline.tables.folder import Folder
        from ternmq.spark.broker.connecting import Broker

        count = settings.scaled(rows, 20_000)
        with folder(settings) as path:
            with broker_at(path / "data") as one:
                fill(one.url, count, size, per_batch)
            number = 0

            def archive() -> None:
                nonlocal number
                number += 1
                tables = Folder(str(path / f"tables-{number}"))
                broker = Broker((parse(one.url),))
                workers = SparkWorkers(session, tables.uri, broker, 0)
                with Bulk(BulkOptions(url=one.url)) as bulk:
                    ArchiveJob(bulk, Archive(tables), workers=workers).once(time.time_ns() // 1000)

            def memory() -> None:
                nonlocal number
                number += 1
                archived_from_memory(session, count, size, path / f"memory-{number}")

            with broker_at(path / "data") as one, spark() as session:
                cpu = one.cpu_s()
                took = best(archive, lambda: forget(path / "data"))
                cpu = (one.cpu_s() - cpu) / BEST_OF
                ceiling = best(memory)
        return {
            "mb_a_second": count * size / took / 1e6,
            "rows_a_second": count / took,
            "ceiling_mb_a_second": count * size / ceiling / 1e6,
            "of_ceiling": ceiling / took,
            "broker_cpu_us_a_row": cpu / count * 1e6,
        }

    return measure


def writing(rows: int, size: int, **options: str) -> Callable[[Settings], Figures]:
    """Return the measurement of writing a table into a topic."""

    def measure(settings: Settings) -> Figures:
        count = settings.scaled(rows, 20_000)
        with broker(settings) as one, spark() as session:
            with ternmq.sync.connect(one.url) as asking:
                asking.admin.create_topic("out", queues=2)
            text = "a" * (size - 12)
            table = session.range(count, numPartitions=4).selectExpr(
                f"concat('{text}', lpad(cast(id as string), 12, '0')) as value",
                "concat('k', id) as key",
            )
            number = iter(range(BEST_OF))

            def write() -> None:
                told = table.write.format("ternmq").mode("append")
                told = told.option("bootstrap.servers", address(one)).option("topic", "out")
                which = next(number)
                for name, value in options.items():
                    told = told.option(name, value.format(number=which))
                told.save()

            cpu = one.cpu_s()
            took = best(write)
            cpu = (one.cpu_s() - cpu) / BEST_OF
            ceiling = best(lambda: table.write.format("synthetic").mode("append").save())
        return {
            "rows_a_second": count / took,
            "mb_a_second": count * size / took / 1e6,
            "ceiling_rows_a_second": count / ceiling,
            "of_ceiling": ceiling / took,
            "broker_cpu_us_a_row": cpu / count * 1e6,
        }

    return measure


@contextmanager
def streaming(session: Any, one: BrokerProcess, where: str) -> Iterator[Any]:
    """Run a streaming query over the topic, from what is there on; it is idle when this begins."""
    table = (
        session.readStream.format("ternmq").option("bootstrap.servers", address(one))
        .option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    )  # fmt: skip
    query = table.writeStream.format("noop").option("checkpointLocation", where).start()
    try:
        query.processAllAvailable()
        yield query
    finally:
        query.stop()


def idle(settings: Settings) -> Figures:
    """A query that has nothing to do, with the trigger that Spark has by default."""
    seconds = 3.0 if settings.quick else IDLE_S
    with broker(settings) as one, spark() as session, tempfile.TemporaryDirectory() as where:
        fill(one.url, 1000, 100, 500)
        shares = []
        at, cpu = time.perf_counter(), one.cpu_s()
        time.sleep(seconds)
        shares.append((one.cpu_s() - cpu) / (time.perf_counter() - at))
        with streaming(session, one, where):
            at, cpu = time.perf_counter(), one.cpu_s()
            time.sleep(seconds)
            shares.append((one.cpu_s() - cpu) / (time.perf_counter() - at))
    alone, beside = shares
    return {"core_percent": 100 * (beside - alone), "core_percent_without": 100 * alone}


def beside_live_sends(settings: Settings) -> Figures:
    """Live sends alone, beside a Spark that reads memory, and beside one that reads; in turn."""
    count = settings.scaled(2_000_000, 20_000)
    found: list[tuple[Figures, Figures, Figures]] = []
    with broker(settings) as one, spark() as session:
        give_way(session)
        fill(one.url, count, 100, 500)
        nothing, read = (
            drained(table) for table in (synthetic(session, 10 * count, 100), source(session, one))
        )
        nothing()
        read()
        for _ in range(settings.scaled(PAIRS, 1)):
            found.append(
                (live(settings, one), live(settings, one, nothing), live(settings, one, read))
            )
    alone, memory, beside = zip(*found, strict=True)
    ratios = [
        [b["p99_ms"] / a["p99_ms"] for a, b in zip(alone, o, strict=True)] for o in (memory, beside)
    ]
    return {
        "p99_times_without": statistics.median(ratios[1]),
        "p99_times_without_for_memory": statistics.median(ratios[0]),
        "rows_a_second": count / statistics.median([one["work_s"] for one in beside]),
        **{
            f"{figure}{suffix}": statistics.median([one[figure] for one in several])
            for figure in ("p99_ms", "p50_ms")
            for several, suffix in ((beside, ""), (memory, "_for_memory"), (alone, "_without"))
        },
    }


def live(
    settings: Settings, one: BrokerProcess, work: Callable[[], object] | None = None
) -> Figures:
    """Send for a while; meanwhile something is done again and again, if anything."""
    seconds = 2.0 if settings.quick else 4.0
    if work is None:
        return client(one.url, "live", LIVE, seconds=seconds)
    over = threading.Event()
    took: list[float] = []

    def again() -> None:
        while not over.is_set():
            at = time.perf_counter()
            work()
            took.append(time.perf_counter() - at)

    worker = threading.Thread(target=again)
    worker.start()
    try:
        found = client(one.url, "live", LIVE, seconds=seconds)
    finally:
        over.set()
        worker.join()
    return {**found, "work_s": statistics.median(took)}


def facts(settings: Settings) -> Figures:
    """Pages of a journal -> rows of the events table, all columns, in one process."""
    from ternmq.record.page.frames import Frames
    from ternmq.spark.journal.events import COLUMNS, Events
    from ternmq.spark.journal.names import Names

    given = pages(settings.scaled(300_000, 10_000))
    rows, most = 0, 0.0
    for _ in range(BEST_OF):
        began, rows = time.process_time(), 0
        events = Events(Names({1: TOPIC}, {0: "a", 1: "b"}))
        for page in given:
            frames = Frames(page)
            frames.check()
            events.add(frames)
            rows += events.table(list(COLUMNS)).num_rows
        most = max(most, rows / (time.process_time() - began))
    return {"events_a_cpu_second": most, "bytes_an_event": sum(map(len, given)) / rows}


def folding(settings: Settings) -> Figures:
    """Events -> the files of the trace and the statistics, in one process, one core."""
    from ternmq.pipeline.tables.folder import Folder
    from ternmq.pipeline.tables.table import Table
    from ternmq.pipeline.trace.commits import TracePass
    from ternmq.pipeline.trace.known import Subscription
    from ternmq.pipeline.trace.schema import EVENTS
    from ternmq.record.page.frames import Frames
    from ternmq.spark.journal.events import Events
    from ternmq.spark.journal.names import Names

    gathered = Events(Names({1: TOPIC}, {0: "a", 1: "b"}))
    for page in pages(settings.scaled(300_000, 10_000)):
        frames = Frames(page)
        frames.check()
        gathered.add(frames)
    events = pa.Table.from_batches([gathered.table(EVENTS)])
    stop = int(pc.max(events["position"]).as_py()) + 8
    told = int(pc.sum(events["rows"]).as_py())
    groups = [Subscription(1, 0, "a"), Subscription(1, 1, "b")]
    least, folded = float("inf"), 0
    for _ in range(BEST_OF):
        with tempfile.TemporaryDirectory() as where:
            began = time.process_time()
            passing = TracePass(partial(Table.open, Folder(where)), lambda _position: groups)
            folded = passing.fold(0, stop, events)
            least = min(least, time.process_time() - began)
    return {
        "row_events_a_cpu_second": told / least,
        "facts_a_cpu_second": len(events) / least,
        "rows_of_the_trace": float(folded),
    }


def versions() -> dict[str, str]:
    """Return the versions of what is measured besides."""
    return {name: version(name) for name in ("pyspark", "pyarrow", "deltalake")}


SUITE: Final = Suite(
    Path(__file__),
    "Measure topics as tables of Spark.",
    (
        Measurement(
            "read-100", "a topic of 100-byte messages, batches of 500 -> noop",
            reading(4_000_000, 100, 500),
            (Target("rows_a_second", 1_000_000, at_least=True),),
            {"rows": 4_000_000, "body_bytes": 100, "per_batch": 500, "queues": 2},
        ),
        Measurement(
            "read-1k", "a topic of 1 KiB messages, batches of 200 -> noop",
            reading(1_000_000, 1024, 200), (),
            {"rows": 1_000_000, "body_bytes": 1024, "per_batch": 200, "queues": 2},
        ),
        Measurement(
            "archive-100", "a topic of 100-byte messages, its journal cold -> archive",
            archiving(4_000_000, 100, 500),
            (Target("mb_a_second", 60, at_least=True),),
            {"rows": 4_000_000, "body_bytes": 100, "per_batch": 500, "queues": 2},
        ),
        Measurement(
            "archive-1k", "a topic of 1 KiB messages, its journal cold -> archive",
            archiving(1_000_000, 1024, 200),
            (Target("mb_a_second", 150, at_least=True),),
            {"rows": 1_000_000, "body_bytes": 1024, "per_batch": 200, "queues": 2},
        ),
        Measurement(
            "write-100", "a table -> a topic, 100 bytes, keyed, each row once",
            writing(1_000_000, 100, delivery="exactly_once", writerId="bench-{number}"),
            (Target("rows_a_second", 200_000, at_least=True),),
            {"rows": 1_000_000, "body_bytes": 100, "queues": 2, "delivery": "exactly_once"},
        ),
        Measurement(
            "write-100-plain", "the same, each row at least once",
            writing(1_000_000, 100, delivery="at_least_once"),
            (Target("rows_a_second", 200_000, at_least=True),),
            {"rows": 1_000_000, "body_bytes": 100, "queues": 2, "delivery": "at_least_once"},
        ),
        Measurement(
            "idle", "a streaming query that has nothing to do: what it costs the broker",
            idle, (Target("core_percent", 1.0),), {"seconds": IDLE_S, "trigger": "Spark's default"},
        ),
        Measurement(
            "beside-live-sends", "live sends beside a pipeline that reads at full speed",
            beside_live_sends, (Target("p99_times_without", 2.0),),
            {"rows": 2_000_000, "body_bytes": 100, "live_in_flight": 16, "pairs": PAIRS,
             "policy_of_spark": "SCHED_IDLE"},
        ),
        Measurement(
            "facts", "pages of a journal -> rows of the events table, one core",
            facts, (Target("events_a_cpu_second", 1_000_000, at_least=True),),
            {"send_rows": "1..500", "pull_rows": 32, "groups": 2, "columns": "all"},
        ),
        Measurement(
            "trace-fold", "events -> rows of the trace and statistics, files included, one core",
            folding, (Target("row_events_a_cpu_second", 1_000_000, at_least=True),),
            {"send_rows": "1..500", "pull_rows": 32, "groups": 2},
        ),
    ),
    versions,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
