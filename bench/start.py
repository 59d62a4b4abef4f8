"""Measures how soon a broker listens, what it holds when idle, how soon a command answers.

    python bench/start.py                 five rounds
    python bench/start.py --quick         a smoke run, nothing is written

The broker is started again and again on the folder that it made, with a few messages in it and its
port of metrics, as ``ternmq dev --data`` does; each time it is ended with SIGTERM. Byte code is
there already, as after ``pip install``: in a folder of its own, so that a checkout is measured
likewise.
CPU time is told beside each wall time, for a busy neighbour changes it less.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker_kit import BrokerProcess, client
from core_kit import Figures, Measurement, Settings, Target, folder
from runner import Suite, run

_STARTS: Final = 5
_COMMANDS: Final = 7
_IDLE_S: Final = 1.5
"""After it listens: when its memory is looked at; its first spare segment is made by then."""


def start(settings: Settings) -> Figures:
    """Start, idle, commands: the medians of some of each."""
    starts, commands = (2, 2) if settings.quick else (_STARTS, _COMMANDS)
    with folder(settings) as path, tempfile.TemporaryDirectory() as byte_code:
        environment = _environment(byte_code)
        with _broker(path, environment) as first:
            client(first.url, "send_many", count=1000, of=100)
            _command(environment, "topic", "list", "--url", first.url)  # not counted
        listening: list[float] = []
        used: list[float] = []
        for _ in range(starts):
            began = time.perf_counter()
            with _broker(path, environment) as one:
                listening.append(time.perf_counter() - began)
                used.append(one.cpu_s())
        with _broker(path, environment) as one:
            time.sleep(_IDLE_S)  # a measurement's span, nothing is waited for
            idle_mib = one.resident_mib()
            help_s = [_command(environment, "--help") for _ in range(commands)]
            list_s = [
                _command(environment, "topic", "list", "--url", one.url) for _ in range(commands)
            ]
    return {
        "listening_ms": statistics.median(listening) * 1e3,
        "listening_cpu_ms": statistics.median(used) * 1e3,
        "idle_mib": idle_mib,
        "help_ms": statistics.median([wall for wall, _ in help_s]) * 1e3,
        "help_cpu_ms": statistics.median([cpu for _, cpu in help_s]) * 1e3,
        "topic_list_ms": statistics.median([wall for wall, _ in list_s]) * 1e3,
        "topic_list_cpu_ms": statistics.median([cpu for _, cpu in list_s]) * 1e3,
    }


def _environment(byte_code: str) -> dict[str, str]:
    given = {key: value for key, value in os.environ.items() if not key.startswith("TERNMQ_")}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**given, "PYTHONPYCACHEPREFIX": byte_code, "TERNMQ_LOG_LEVEL": "error"}


@contextmanager
def _broker(path: Path, environment: Mapping[str, str]) -> Iterator[BrokerProcess]:
    command = [
        sys.executable, "-m", "ternmq", "dev", "--data", str(path / "data"),
        "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
    ]  # fmt: skip
    with (
        (path / "log").open("a") as told,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=told, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise RuntimeError("the broker did not start")
            yield BrokerProcess(process, "ternmq://" + line.removeprefix("listening on ").strip())
        finally:
            process.terminate()
            process.wait(60)


def _command(environment: Mapping[str, str], *arguments: str) -> tuple[float, float]:
    """Return the wall time and the CPU time of a command, in seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ternmq", *arguments],
        stdout=subprocess.DEVNULL, check=True, env=environment,
    )  # fmt: skip
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


SUITE: Final = Suite(
    Path(__file__),
    "Measure the start of a broker, its memory when idle, and the command line.",
    (
        Measurement(
            "start",
            "listening on an existing small folder; memory when idle; `--help`, `topic list`",
            start,
            (
                Target("listening_ms", 350.0),
                Target("idle_mib", 45.0),
                Target("help_ms", 200.0),
                Target("topic_list_ms", 200.0),
            ),
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(run(SUITE))
