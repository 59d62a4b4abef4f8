"""Killing the archiver, and looking at what is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from google_crc32c import value as crc32c

import ternmq.sync
from ternmq.testing import InProcessBroker

START_S = 500


def often(times: int) -> int:
    """Return how often something is killed: so often, and more by ``make spark-matrix``."""
    return times * int(os.environ.get("TERNMQ_SPARK_KILLS", "1"))


def archiver(real: InProcessBroker, tables: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable, "-m", "tests.spark.archiver", "--port", str(real.port),
            "--tables", str(tables), *arguments,
        ],
        start_new_session=True,  # it is killed with its Java and its workers
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip


def traces(tables: Path) -> int:
    """Return how much has happened: commits, and files that were begun."""
    return sum(1 for _ in (tables / "archive").rglob("*.*"))


def kill_now_and_then(
    real: InProcessBroker, tables: Path, *arguments: str, times: int, seed: int
) -> None:
    """Kill the archiver on its way, again and again."""
    chance = random.Random(seed)
    for _ in range(times):
        process = archiver(real, tables, *arguments)
        wanted = traces(tables) + chance.randint(1, 6)
        until = time.monotonic() + START_S
        while traces(tables) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        with suppress(ProcessLookupError):  # it was quicker
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kept(tables: Path) -> list[tuple[str, int, int, int]]:
    from ternmq.pipeline.archive.commit import Archive
    from ternmq.pipeline.tables.folder import Folder

    table = Archive(Folder(str(tables)), create=False).table
    rows = table.read(["topic", "queue", "offset", "body_crc"]).to_pylist()
    return sorted((row["topic"], row["queue"], row["offset"], row["body_crc"]) for row in rows)


def sent(client: ternmq.sync.Client, topic: str = "orders") -> list[tuple[str, int, int, int]]:
    return sorted((topic, one.queue, one.offset, crc32c(one.body)) for one in client.read(topic))
