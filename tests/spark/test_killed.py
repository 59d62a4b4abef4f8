"""A Spark whose processes are killed at any time, and started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ternmq.sync
from tests.spark import killing

ROWS = 1000


def copier(real, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable, "-m", "tests.spark.copier", "--port", str(real.port),
            "--checkpoint", str(folder / "checkpoint"), *arguments,
        ],
        start_new_session=True,  # it is killed with its Java and its workers
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip


def begun(folder: Path) -> int:
    """Return how many batches were begun, of both queries."""
    return sum(one.name.isdigit() for one in folder.glob("checkpoint/*/offsets/*"))


def kill_now_and_then(real, folder, *arguments: str, times: int, seed: int) -> None:
    """Run the copier to its end, killing it on the way."""
    chance = random.Random(seed)
    for _ in range(times):
        process = copier(real, folder, *arguments)
        wanted = begun(folder) + chance.randint(1, 15)
        until = time.monotonic() + killing.START_S
        while begun(folder) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))  # somewhere in a batch
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert copier(real, folder, *arguments).wait(killing.START_S) == 0


@pytest.fixture
def filled(client):
    for name in ("orders", "out"):
        client.admin.create_topic(name, queues=2)
    client.send_many("orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(ROWS)])
    return client


# Each run starts Spark twice: everyday tests have the query that has more to lose.
@pytest.mark.parametrize("due", [True, False] if killing.often(1) > 1 else [True])
@pytest.mark.row("R2", "R3", "R4")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled_when_spark_is_killed(spark, real, filled, tmp_path, due):
    """Neither by the query that writes files, nor by the one that writes a topic.

    With ``due``, two rows of three are due an hour or two later: each is scheduled once.
    """
    base = datetime.fromtimestamp(time.time() // 3600 * 3600, UTC) + timedelta(days=300)
    arguments = ["--path", str(tmp_path / "out"), "--topic", "out"]
    if due:
        arguments += ["--due", f"{base:%Y-%m-%d %H:%M:%S}"]
    kill_now_and_then(real, tmp_path, *arguments, times=killing.often(1), seed=5)
    table = spark.read.parquet(str(tmp_path / "out"))
    found = sorted(
        (row["topic"], row["partition"], row["offset"], row["crc"])
        for row in table.select("topic", "partition", "offset", "crc").collect()
    )
    assert found == killing.sent(filled)
    hours = 3 if due else 1
    assert sorted(int(one.body) for one in filled.read("out")) == list(range(0, ROWS, hours))
    scheduled = sorted(
        ((one.due_at - base) // timedelta(hours=1), int(one.key.removeprefix("k")))
        for one in filled.admin.scheduled_messages("out", limit=2 * ROWS)
    )
    assert scheduled == [(at, n) for at in range(1, hours) for n in range(at, ROWS, hours)]
