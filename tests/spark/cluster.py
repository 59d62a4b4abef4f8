"""A standalone cluster of Spark on loopback: a master, workers, and their executors to kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.black_box.process import free_port
from tests.spark.sessions import JAVA_OPTIONS

START_S: Final = 120
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class Cluster:
    """A running cluster.

    Attributes:
        url: For ``--master``.
        environment: What driver and workers need.
    """

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self.url = url
        self.environment = dict(environment)
        self.workers: list[subprocess.Popen[bytes]] = []

    def executors(self) -> list[int]:
        """Return the processes of the executors that run now."""
        mine = {one.pid for one in self.workers}
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError, IndexError):
                pid = int(entry.name)
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in mine and _EXECUTOR in (entry / "cmdline").read_bytes():
                    found.append(pid)
        return sorted(found)

    def some_executors(self, count: int, until: float) -> list[int]:
        """Wait until so many executors run; return them."""
        while len(found := self.executors()) < count:
            assert time.monotonic() < until, f"no {count} executors: {found}"
            time.sleep(0.05)
        return found


@contextmanager
def running(folder: Path, environment: Mapping[str, str], workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster of workers with a core each.

    Args:
        folder: For the workers' files.
        environment: Variables that executors inherit.
        workers: Their number.
    """
    import pyspark

    from ternmq.spark import java

    home = Path(pyspark.__file__).parent
    told = {
        **os.environ, **environment,
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "JAVA_HOME": str(java.find(os.environ).home), "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(one for one in sys.path if one),
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        one = subprocess.Popen(
            [home / "bin" / "spark-class", *map(str, arguments)],
            env=told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        started.append(one)
        return one

    port, page = free_port(), free_port()
    cluster = Cluster(f"spark://127.0.0.1:{port}", told)
    try:
        start(_MASTER, "--host", "127.0.0.1", "--port", port, "--webui-port", page)
        for number in range(workers):
            cluster.workers.append(
                start(
                    _WORKER,
                    "--host",
                    "127.0.0.1",
                    "--cores",
                    1,
                    "--memory",
                    "2g",
                    "--webui-port",
                    free_port(),
                    "--work-dir",
                    folder / f"worker-{number}",
                    cluster.url,
                )
            )
        _wait_for_workers(page, workers)
        yield cluster
    finally:
        for one in reversed(started):
            _end(one)


def _wait_for_workers(page: int, workers: int) -> None:
    until = time.monotonic() + START_S
    alive = 0
    while alive < workers:
        assert time.monotonic() < until, f"{alive} of {workers} workers came"
        time.sleep(0.1)
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{page}/json/") as told:
            alive = told.read().count(b'"ALIVE"') - 1  # the master is one of them


def _end(one: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started: executors are in its session."""
    with suppress(ProcessLookupError):
        os.killpg(one.pid, signal.SIGKILL)
    one.wait()
