"""The pipeline on a cluster of two workers, with its tables in an object store; and their faults.

A driver runs rounds while the broker gets messages. Executors are killed and frozen meanwhile, then
drivers are killed. In the end the tables are what a process alone makes of the same journal.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")
pytest.importorskip("pyspark", reason="needs pyspark and a Java: pip install ternmq[spark]")

import ternmq.sync
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.stats.schema import STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE
from tests import object_store
from tests.integration import living
from tests.spark import cluster
from tests.spark.killing import often, sent
from tests.spark.sessions import JAVA_OPTIONS
from tests.unit.pipeline.trace_reference import of_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

DEADLINE = 600.0
SETTINGS = (
    "archive.spark_from_mb=0", "archive.pass_mb=1", "trace.spark_bytes=0", "audit.spark_from_mb=0",
    "stats.spark_from_mb=0", "deadletters.spark_from_mb=0", "compaction.spark_from_mb=0",
)  # fmt: skip
SPECULATION = (
    "spark.speculation=true", "spark.speculation.interval=50ms", "spark.speculation.quantile=0.1",
    "spark.speculation.multiplier=1", "spark.speculation.minTaskRuntime=0ms",
)  # fmt: skip


@pytest.fixture(scope="module")
def minio(tmp_path_factory):
    found = object_store.program()
    if found is None:
        pytest.skip("needs MinIO, or Go to build it")
    with object_store.running(found, tmp_path_factory.mktemp("minio")) as told:
        yield told


@pytest.fixture(scope="module")
def spark_cluster(minio, tmp_path_factory):
    with cluster.running(tmp_path_factory.mktemp("cluster"), minio) as one:
        yield one


@pytest.fixture
def tables(minio, monkeypatch):
    for name, value in minio.items():
        monkeypatch.setenv(name, value)
    return Folder(f"s3://{object_store.BUCKET}/{uuid.uuid4().hex}/tables")


@pytest.fixture
def driver(spark_cluster, real, tables, tmp_path):
    """Start drivers; those that still run are killed in the end.

    Their priority is the usual one: with that of the command, a busy machine gives them no time.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments, confs=()):
        told = [word for one in SETTINGS for word in ("--set", one)]
        told += [word for one in confs for word in ("--conf", one)]
        with log_of(tmp_path, len(started)).open("wb") as log:
            one = subprocess.Popen(
                [
                    sys.executable, "-X", "faulthandler", "-m", "ternmq", "--url", real.url,
                    "pipeline", "run", "--json", "--priority", "normal", "--engine", "spark",
                    "--master", spark_cluster.url, "--tables", tables.uri,
                    "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.memory=1g",
                    "--conf", "spark.executor.memory=512m",
                    "--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}",
                    "--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}",
                    *told, *arguments,
                ],
                env=spark_cluster.environment, start_new_session=True,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        started.append(one)
        return one

    yield start
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def log_of(folder, number):
    return folder / f"driver-{number}.log"


def end(process, log):
    """Wait for the end of a driver and its Java; one that hangs says where, in the failure."""
    try:
        rest, _ = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        ended = process.poll()  # Java has the pipe too
        for pid in sorted(int(one.name) for one in Path("/proc").glob("[0-9]*")):
            with suppress(ProcessLookupError):
                if os.getpgid(pid) == process.pid != pid:
                    os.kill(pid, signal.SIGQUIT)  # Java prints its stacks
        time.sleep(3)
        if ended is None:
            process.send_signal(signal.SIGABRT)  # Python prints its own
            process.wait(DEADLINE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        rest, _ = process.communicate()
        pytest.fail(f"a driver hangs (status {ended})\n{log.read_text()}\n{rest.decode()}")
    assert process.returncode == 0, log.read_text()


def orders(client, first, count):
    client.send_many(
        "orders",
        [ternmq.sync.Message(b"%d" % n, key=f"k{n % 50}") for n in range(first, first + count)],
    )
    for _ in range(3):
        client.pull("orders", group="billing", max_messages=count // 4).ack()


def kept(tables):
    rows = Table.open(tables, ARCHIVE).read(["topic", "queue", "offset", "body_crc"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def rounds(process, count):
    """Wait until a driver has ended some rounds in which every job went well."""
    ended = 0
    for line in process.stdout:
        told = json.loads(line)
        ended += not any(one.get("error") for one in told["jobs"])
        if ended == count:
            return
    raise AssertionError(f"the driver ended after {ended} rounds")


def check(real, client, tables):
    assert kept(tables) == sent(client)
    assert of_table(Table.open(tables, TRACE).read()) == living.reference(real).told()
    for spec in (STATS_MINUTE, STATS_HOUR):
        told = Table.open(tables, spec).read(["stored", "done"])
        assert sum(told["stored"].to_pylist()) == len(sent(client))


@pytest.mark.row("R6", "R7", "R8", "R9")
def test_executors_are_killed_and_frozen(spark_cluster, driver, real, client, tables, tmp_path):
    chance = random.Random(3)
    client.admin.create_topic("orders", queues=3)
    client.admin.create_group("orders", "billing", start="earliest")
    orders(client, 0, 400)
    process = driver("--every", "100ms", confs=SPECULATION)
    rounds(process, 1)
    for at in range(1, 1 + often(2)):
        orders(client, 400 * at, 400)
        running = spark_cluster.some_executors(2, time.monotonic() + DEADLINE)
        time.sleep(chance.random())  # a fault comes at any moment of a round
        victim = chance.choice(running)
        if at % 2:
            os.kill(victim, signal.SIGKILL)
        else:
            os.kill(victim, signal.SIGSTOP)
            time.sleep(3)
            os.kill(victim, signal.SIGCONT)
        rounds(process, 1)
    rounds(process, 2)
    process.send_signal(signal.SIGTERM)
    end(process, log_of(tmp_path, 0))
    check(real, client, tables)


@pytest.mark.row("R6", "R7", "R8", "R9")
def test_drivers_are_killed(spark_cluster, driver, real, client, tables, tmp_path):
    chance = random.Random(4)
    client.admin.create_topic("orders", queues=3)
    client.admin.create_group("orders", "billing", start="earliest")
    for at in range(often(1)):
        orders(client, 400 * at, 400)
        process = driver("--once")
        # Files come before the commits that name them: it ends anywhere among both.
        wanted = len(list(tables.list())) + chance.randint(1, 25)
        until = time.monotonic() + DEADLINE
        while process.poll() is None and len(list(tables.list())) < wanted:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    end(driver("--once"), log_of(tmp_path, often(1)))
    check(real, client, tables)
