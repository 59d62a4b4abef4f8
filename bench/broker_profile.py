"""Where the time of a broker process goes under a load; writes ``results/profiles/LOAD.txt``.

    python bench/broker_profile.py                    every load
    python bench/broker_profile.py sends-256 pull     some
    python bench/broker_profile.py --seconds 10

The broker runs under ``cProfile``, in its main thread only, which does all but syncs and background
jobs; times are the thread's CPU time, with the kernel's part, without waiting. What that distorts:
every call of a Python function costs about a microsecond more, of a function in C half of that, so
that small functions which are called often look two to four times dearer than they are, against C
code that runs long (checksums, writes, the disk). What the loop itself does (``select``, reading a
socket) is not in the list. Believe the order of the list, and which calls there are; believe no
microsecond of it. What a change is worth is measured without a profile: ``pairs.py``.
"""

from __future__ import annotations

import argparse
import os
import pstats
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker_kit import client, ready, started
from broker_scale import CLIENTS as SCALE_CLIENTS
from broker_scale import TOPICS
from core_kit import Figures, Settings, folder
from profile_report import report
from runner import RESULTS
from schedule import CLIENTS as SCHEDULE_CLIENTS
from schedule import fill

_READ_BYTES: Final = 350_000_000
"""A second, at most: what a group that reads a backlog wants to find."""
_REDRIVEN_PER_S: Final = 10_000
_HANDLED_PER_S: Final = 8_000
_DUE_PER_S: Final = 12_000
FAILURE_CLIENTS: Final = Path(__file__).with_name("failures_clients.py")
_RUN: Final = """
import cProfile, signal, sys, time
from ternmq.cli.main import main
profile, path = cProfile.Profile(time.thread_time_ns, 1e-9), sys.argv.pop(1)
signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
signal.signal(signal.SIGUSR2, lambda *_: (profile.disable(), profile.dump_stats(path)))
sys.argv[0] = "ternmq"
main()
"""


def sends(url: str, seconds: float) -> Figures:
    """Load: single sends of 1 KiB, 16 connections x 16."""
    return client(url, "sends", connections=16, in_flight=16, seconds=seconds)


def send_alone(url: str, seconds: float) -> Figures:
    """Load: single sends of 1 KiB, one at a time on one connection."""
    return client(url, "sends", connections=1, in_flight=1, seconds=seconds)


def send_many(url: str, seconds: float) -> Figures:
    """Load: 100-byte messages in batches of 10,000."""
    return client(url, "send_many", count=int(100_000 * seconds), of=10_000)


def send_soon(url: str, seconds: float) -> Figures:
    """Load: 100-byte messages by send_soon."""
    return client(url, "send_soon", count=int(50_000 * seconds), of=100)


def pull(url: str, seconds: float) -> Figures:
    """Load: 100-byte messages of a backlog, pulled by 1,000 and acknowledged."""
    return client(url, "pull", count=int(100_000 * seconds), of=1000)


def process(url: str, seconds: float) -> Figures:
    """Load: 100-byte messages of a backlog, each in process()."""
    return client(url, "process", count=int(30_000 * seconds), of=1000)


def hot_topic(url: str, seconds: float) -> Figures:
    """Load: single sends of 1 KiB, 16 connections x 16, to one topic beside 40,000 others."""
    return sends(url, seconds)


def backlog(url: str, seconds: float) -> Figures:
    """Load: live sends of 1 KiB, 16 at a time, beside a group that reads a backlog of 1 KiB."""
    with started(url, "read_backlog", SCALE_CLIENTS, group=0, seconds=seconds + 1.5) as reader:
        ready(reader)
        return client(url, "live", SCALE_CLIENTS, seconds=seconds)


def redrive(url: str, seconds: float) -> Figures:
    """Load: dead letters of 100-byte messages, redriven at full rate."""
    count = int(_REDRIVEN_PER_S * seconds)
    return client(url, "redrive", FAILURE_CLIENTS, count=count, begin_us=0)


def poison(url: str, seconds: float) -> Figures:
    """Load: a handler of 100-byte messages, of which one in a hundred always fails."""
    count = int(_HANDLED_PER_S * seconds)
    return client(url, "poisoned", FAILURE_CLIENTS, count=count, every=100)


def burst_mixed(url: str, seconds: float) -> Figures:
    """Load: 100-byte messages that are due within the same second, in any order."""
    del seconds  # their number is that of ``schedule.fill``
    return client(url, "drained", SCHEDULE_CLIENTS, begin_us=0)


LOADS: Final[dict[str, Callable[[str, float], Figures]]] = {
    "sends-256": sends, "sends-1": send_alone, "send-many": send_many, "send-soon": send_soon,
    "pull": pull, "process": process, "hot-topic": hot_topic,
    "backlog": backlog, "redrive": redrive, "poison": poison,
    "burst-mixed": burst_mixed,
}  # fmt: skip
BACKLOG: Final = {"pull": 110_000, "process": 35_000}
"""Messages a second that a load wants to find."""


def profile(name: str, seconds: float) -> str:
    """Return the report of a load."""
    with folder(Settings()) as path:
        environment = {**os.environ, "TERNMQ_SEGMENT": "256MiB", "TERNMQ_LOG_LEVEL": "error"}
        command = [
            sys.executable, "-c", _RUN, str(path / "stats"), "dev", "--data", str(path / "data"),
            "--listen", "127.0.0.1:0", "--http", "off",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as one:
            assert one.stdout is not None
            line = one.stdout.readline()
            url = "ternmq://" + line.removeprefix("listening on ").strip()
            if name in BACKLOG:
                count = int(BACKLOG[name] * seconds) + 10_000
                client(url, "send_many", count=count, of=1000)
            if name == "hot-topic":
                client(url, "make_topics", SCALE_CLIENTS, count=TOPICS)
            if name == "backlog":
                size = int(_READ_BYTES * (seconds + 3))
                client(url, "make_backlog", SCALE_CLIENTS, size=size, groups=1)
            if name == "redrive":
                count = int(_REDRIVEN_PER_S * seconds)
                client(url, "prepare", FAILURE_CLIENTS)
                client(url, "fill", FAILURE_CLIENTS, count=count)
                client(url, "fail", FAILURE_CLIENTS, count=count, dead=1000)
            if name == "burst-mixed":
                begin_us = int(time.time() * 1e6) + 5_000_000
                port = int(url.rpartition(":")[2])
                fill(url, port, int(_DUE_PER_S * seconds), begin_us, 1_000_000, mixed=True)
                time.sleep(begin_us / 1e6 - time.time())
            one.send_signal(signal.SIGUSR1)
            figures = LOADS[name](url, seconds)
            one.send_signal(signal.SIGUSR2)
            until = time.monotonic() + 30
            while not (path / "stats").exists() and time.monotonic() < until:
                time.sleep(0.1)
            one.terminate()
            one.wait(60)
        about = (LOADS[name].__doc__ or "").strip().removeprefix("Load: ").rstrip(".")
        found = pstats.Stats(str(path / "stats"))
        return report(name, about, figures, found, "broker_profile.py")


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Profile a broker process under load.")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long each (5)")
    parser.add_argument("--out", type=Path, default=RESULTS / "profiles", help="a folder")
    asked = parser.parse_args()
    unknown = [name for name in asked.loads if name not in LOADS]
    if unknown:
        parser.error(f"no load {', '.join(unknown)}; there are {', '.join(LOADS)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.loads or LOADS:
        report = profile(name, asked.seconds)
        (asked.out / f"{name}.txt").write_text(report)
        print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
