"""The pipeline in a real object store: each job, look-ups, erase, replay, kills, many runners."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.stats.schema import STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE
from tests.black_box.process import BrokerProcess
from tests.integration import living
from tests.object_store import BUCKET, program, running
from tests.spark.killing import sent
from tests.unit.pipeline.trace_reference import of_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2000)]

RUN = ("pipeline", "run", "--once", "--engine", "local", "--json")
DEADLINE = 300.0


@pytest.fixture(scope="module")
def minio(tmp_path_factory):
    found = program()
    if found is None:
        pytest.skip("needs MinIO, or Go to build it")
    with running(found, tmp_path_factory.mktemp("minio")) as told:
        yield told


@pytest.fixture
def tables(minio, monkeypatch):
    """Return the place of tables in the store; this process and its children can reach it."""
    for name, value in minio.items():
        monkeypatch.setenv(name, value)
    return Folder(f"s3://{BUCKET}/{uuid.uuid4().hex}/tables")


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess("dev", tmp_path / "broker", segment="4MiB") as one:
        yield one


@pytest.fixture
def client(broker):
    with ternmq.sync.connect(broker.url) as one:
        yield one


def start(broker, tables, *arguments):
    """Start a command of ``ternmq`` on the tables."""
    kept = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    return subprocess.Popen(
        [sys.executable, "-m", "ternmq", "--url", broker.url, *arguments],
        env={**kept, "TERNMQ_TABLES": tables.uri},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(broker, tables, *arguments):
    """Run a command to its end; return what it printed."""
    out, err = (process := start(broker, tables, *arguments)).communicate(timeout=DEADLINE)
    assert process.returncode == 0, err.decode()
    return out.decode()


def kept(tables):
    """Return what the archive has, as ``killing.sent`` does of the broker."""
    rows = Archive(tables, create=False).table.read(["topic", "queue", "offset", "body_crc"])
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def orders(client, first, count, size=10):
    body = b"x" * size
    client.send_many(
        "orders",
        [ternmq.sync.Message(b"%d " % n + body, key=f"k{n}") for n in range(first, first + count)],
    )


@pytest.mark.row("R1", "R7", "R9")
def test_every_job_writes_there_what_it_writes_on_a_disk(real, tables, tmp_path):
    """Equal to the bit, but for the names of files."""
    from ternmq.pipeline.running.jobs import chosen
    from ternmq.pipeline.running.runner import Runner

    here = Folder(str(tmp_path / "tables"))
    living.first_day(real)
    now = time.time_ns() // 1000
    for at, folder in enumerate((tables, here)):
        for job in ("archive", "trace", "stats", "deadletters", "compaction"):
            runner = Runner(chosen([job]), folder, living.address(real), lambda: now)
            runner.open()
            (ran,) = runner.round().ran
            assert ran.error == ""
        with ternmq.sync.connect(real.url) as client:
            if at == 0:  # the second folder reads the journal from its beginning
                for group in {one.group for one in client.admin.groups() if "spark" in one.group}:
                    for topic in ("orders", "quiet"):
                        client.admin.delete_group(topic, group)
                for hold in client.admin.holds():
                    client.admin.delete_hold(hold.name)
    for spec in (ARCHIVE, TRACE, STATS_MINUTE, STATS_HOUR, STATS_DAY):
        one, other = (Table.open(folder, spec, create=False).read() for folder in (tables, here))
        names = ("topic", "queue", "offset", "group", "begin", "app")
        order = [(name, "ascending") for name in names if name in one.column_names]
        assert one.sort_by(order).equals(other.sort_by(order)), spec.name
        assert len(one) > 0
    found = of_table(Table.open(tables, TRACE, create=False).read())
    assert found == living.reference(real).told()


@pytest.mark.row("R5", "R10", "R11", "R12")
def test_look_ups_a_report_a_replay_and_an_erase(broker, client, tables, tmp_path):
    client.admin.create_topic("orders", queues=2)
    client.admin.create_topic("again")
    orders(client, 0, 50)
    receipt = client.send("orders", b"secret of anna", key="anna")
    run(broker, tables, *RUN)
    assert "secret of anna" in run(broker, tables, "message", "find", "orders", "--key", "anna")
    traced = run(broker, tables, "message", "trace", str(receipt.id))
    assert "anna" in traced
    page = tmp_path / "report.html"
    run(broker, tables, "pipeline", "report", "--output", str(page))
    assert "orders" in page.read_text()
    replay = ("pipeline", "replay", "--topic", "orders", "--where", "text like '4%'",
              "--to-topic", "again", "--yes")  # fmt: skip
    for _ in range(2):  # the second time, nothing is sent again
        run(broker, tables, *replay)
        assert len(list(client.read("again"))) == 11
    run(broker, tables, "pipeline", "erase", "--key", "anna", "--name", "gdpr-1", "--yes")
    assert len(kept(tables)) == 50
    for one in tables.list("archive"):
        with tables.open(one.path) as file:
            assert b"anna" not in file.read()
    told = json.loads(run(broker, tables, "pipeline", "status", "--json"))
    assert {row["table"]: row["rows"] for row in told["tables"]}["archive"] == 50


@pytest.mark.row("R6")
def test_a_runner_that_is_killed_at_any_time(broker, client, tables):
    client.admin.create_topic("orders", queues=3)
    chance = random.Random(1)
    for at in range(8):
        orders(client, at * 50, 50, size=50_000)
        process = start(broker, tables, *RUN, "--set", "archive.pass_mb=1")
        wanted = len(list(tables.list())) + chance.randint(1, 15)
        until = time.monotonic() + DEADLINE
        while len(list(tables.list())) < wanted and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.02)  # without a pause, most of the processor lists files
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    run(broker, tables, *RUN)
    assert kept(tables) == sent(client)
    run(broker, tables, "pipeline", "compact")
    assert kept(tables) == sent(client)


@pytest.mark.row("R6", "R7", "R8")
@pytest.mark.parametrize("runners", [2, 3])
def test_several_runners_at_once(broker, client, tables, runners):
    """Nothing is stored twice; a runner that is behind another one decides again."""
    client.admin.create_topic("orders", queues=3)
    client.admin.create_group("orders", "billing", start="earliest")
    for at in range(3):
        orders(client, at * 300, 300, size=2000)
        client.pull("orders", group="billing", max_messages=100).ack()
        some = [start(broker, tables, *RUN) for _ in range(runners)]
        for process in some:
            out, err = process.communicate(timeout=DEADLINE)
            assert process.returncode == 0, (out.decode(), err.decode())
        assert kept(tables) == sent(client)
        rows = Table.open(tables, TRACE, create=False).read(["queue", "offset", "group", "state"])
        assert len(rows) == len({tuple(row.values()) for row in rows.to_pylist()}) == 300 * (at + 1)
        minutes = Table.open(tables, STATS_MINUTE, create=False).read(["stored", "done"])
        assert sum(minutes["stored"].to_pylist()) == 300 * (at + 1)
        assert sum(minutes["done"].to_pylist()) == 100 * (at + 1)
