"""A Spark whose processes are killed at any time, and started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from google_crc32c import value as crc32c

import ternmq.sync

ROWS = 2000
START_S = 200


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
    """Return how many batches were begun."""
    offsets = folder / "checkpoint" / "offsets"
    return sum(one.name.isdigit() for one in offsets.iterdir()) if offsets.is_dir() else 0


def kill_now_and_then(real, folder, *arguments: str, times: int, seed: int) -> None:
    """Run the copier to its end, killing it on the way."""
    chance = random.Random(seed)
    for _ in range(times):
        process = copier(real, folder, *arguments)
        wanted = begun(folder) + chance.randint(1, 3)
        until = time.monotonic() + START_S
        while begun(folder) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))  # somewhere in a batch
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert copier(real, folder, *arguments).wait(START_S) == 0


@pytest.fixture
def filled(client):
    for name in ("orders", "out"):
        client.admin.create_topic(name, queues=2)
    client.send_many("orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(ROWS)])
    return client


@pytest.mark.row("R2")
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_doubled_when_spark_is_killed(spark, real, filled, tmp_path):
    kill_now_and_then(real, tmp_path, "--path", str(tmp_path / "out"), times=3, seed=5)
    table = spark.read.parquet(str(tmp_path / "out"))
    found = sorted(
        (row["topic"], row["partition"], row["offset"], row["crc"])
        for row in table.select("topic", "partition", "offset", "crc").collect()
    )
    sent = sorted(
        ("orders", one.queue, one.offset, crc32c(one.body)) for one in filled.read("orders")
    )
    assert found == sent


@pytest.mark.row("R4")
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_row_is_written_once_when_spark_is_killed(spark, real, filled, tmp_path):
    kill_now_and_then(real, tmp_path, "--topic", "out", times=3, seed=7)
    assert sorted(int(one.body) for one in filled.read("out")) == list(range(ROWS))
