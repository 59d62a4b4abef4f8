"""A broker process, and client processes, as measurements start and end them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from core_kit import Figures, Settings, folder

CLIENTS: Final = Path(__file__).with_name("broker_clients.py")
CLIENT_S: Final = 120.0
"""Longest that a client of another broker may take."""
REST_S: Final = 0.5
REST_SHARE: Final = 0.1
"""A process rests that uses less than this share of a core for ``REST_S``."""
REST_WITHIN_S: Final = 60.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ServerProcess:
    """A server that was started, and what it uses: its own process, none of its children."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def cpu_s(self) -> float:
        """Return the CPU time that its threads have used, those that have ended too."""
        # The process's own clock (CPUCLOCK_SCHED), as clock_getcpuclockid(3) makes it of its id.
        return time.clock_gettime((~self.pid << 3) | 2)

    def rest(self) -> None:
        """Return when it has nothing to do: its threads have used little CPU time for a while.

        Raises:
            TimeoutError: It is still busy after ``REST_WITHIN_S``.
        """
        until = time.monotonic() + REST_WITHIN_S
        used, since = self.cpu_s(), time.monotonic()
        while time.monotonic() - since < REST_S:
            time.sleep(REST_S / 5)
            if self.cpu_s() - used > REST_S * REST_SHARE:
                used, since = self.cpu_s(), time.monotonic()
            if time.monotonic() > until:
                raise TimeoutError(f"process {self.pid} is busy after {REST_WITHIN_S} s")

    def resident_mib(self) -> float:
        """Return the memory that it holds."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)

    def peak_mib(self) -> float:
        """Return the most memory that it has held."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0

    def descriptors(self) -> int:
        """Return how many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class BrokerProcess(ServerProcess):
    """A broker that listens."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        super().__init__(process.pid)
        self.process = process
        self.url = url


@contextmanager
def broker(settings: Settings) -> Iterator[BrokerProcess]:
    """Run a broker on a folder of its own for the length of a ``with`` block."""
    with folder(settings) as path, broker_at(path / "data") as one:
        yield one


@contextmanager
def broker_at(
    data: Path,
    *,
    prefix: Sequence[str] = (),
    given: Mapping[str, str] | None = None,
    kill: bool = False,
) -> Iterator[BrokerProcess]:
    """Run a broker on a folder for the length of a ``with`` block.

    Args:
        data: Its folder; what is there is kept.
        prefix: What runs the command, if anything does.
        given: Settings by key, in capitals.
        kill: It is killed at the end, as if it had crashed.
    """
    command = [
        *prefix, sys.executable, "-m", "ternmq", "dev", "--data", str(data),
        "--listen", "127.0.0.1:0", "--http", "off",
    ]  # fmt: skip
    stated = {
        "SEGMENT": "256MiB", "LOG_LEVEL": "error",
        "RETENTION_WATERMARK": "0.98",  # the disk may be full of other things
        **(given or {}),
    }  # fmt: skip
    environment = {**os.environ, **{f"TERNMQ_{key}": value for key, value in stated.items()}}
    log = data.with_name(data.name + ".log")  # a line for each topic that is made: not to be shown
    with (
        log.open("a") as told,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=told, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise RuntimeError(f"the broker did not start: {log.read_text()[-2000:]}")
            yield BrokerProcess(process, "ternmq://" + line.removeprefix("listening on ").strip())
        finally:
            if kill:
                process.kill()
            else:
                process.terminate()
            process.wait(60)


def client(url: str, verb: str, script: Path = CLIENTS, **settings: float) -> Figures:
    """Run a client process to its end and return its figures."""
    with started(url, verb, script, **settings) as process:
        return figures_of(process)


def client_of(command: Sequence[str], url: str, verb: str, **settings: float) -> Figures:
    """Run a client process of any language to its end and return its figures."""
    with _started(command, url, verb, **settings) as process:
        try:
            return figures_of(process, CLIENT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def started(
    url: str, verb: str, script: Path = CLIENTS, **settings: float
) -> subprocess.Popen[str]:
    """Start a client process."""
    return _started([sys.executable, str(script)], url, verb, **settings)


def _started(
    command: Sequence[str], url: str, verb: str, **settings: float
) -> subprocess.Popen[str]:
    given = [f"{name}={value}" for name, value in settings.items()]
    return subprocess.Popen([*command, verb, url, *given], stdout=subprocess.PIPE, text=True)


def ready(process: subprocess.Popen[str]) -> None:
    """Wait until a client says that it is at it."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if line != "ready":
        raise RuntimeError(f"a client said {line!r} instead of 'ready'")


def figures_of(process: subprocess.Popen[str], timeout_s: float | None = None) -> Figures:
    """Return what a client found, when it has ended."""
    out, _ = process.communicate(timeout=timeout_s)
    if process.returncode:
        raise RuntimeError(f"a client ended with {process.returncode}")
    found: Figures = json.loads(out.splitlines()[-1])
    return found
