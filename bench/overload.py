"""Measures a broker with little memory, much to do, and consumers that do not keep up (OVL-1).

    python bench/overload.py            five rounds of it
    python bench/overload.py --quick    a smoke run, nothing is written

In a memory control group of 256 MB, where this machine lets one be made (``limited`` says so): a
backlog of a million messages, a restart with it, then 20 MB/s come in beside a group that is
frozen, comes back whenever it is cut off and freezes again, and one that takes a message a second.
What healthy consumers of the same topic feel is judged beside what they felt in the same round on
the same broker before: with the same 20 MB/s, without the rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker import BrokerProcess, figures_of
from core_kit import Figures, Measurement, Settings, Target, folder
from core_machine import raw_disk
from runner import Suite, run

CLIENTS: Final = Path(__file__).with_name("overload_clients.py")
LIMIT: Final = 256 << 20
STALL_S: Final = 2
OPTIONS: Final[dict[str, object]] = {
    "limit_mib": LIMIT >> 20, "backlog": 1_000_000, "body_bytes": 400,
    "inflow_bytes_per_s": 20_000_000, "inflow_body_bytes": 4096, "stall_timeout_s": STALL_S,
    "healthy_consumers": 2,
}  # fmt: skip


class ControlGroup:
    """A memory control group, version 1 or 2."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def oom_kills(self) -> int:
        """Return how often the kernel killed for want of memory in it."""
        for name in ("memory.oom_control", "memory.events"):
            if (self.path / name).exists():
                found = re.search(r"^oom_kill (\d+)$", (self.path / name).read_text(), re.MULTILINE)
                return int(found[1]) if found else 0
        return 0


@contextmanager
def control_group() -> Iterator[ControlGroup | None]:
    """Make a control group with the limit; None where that is not allowed."""
    parent, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not parent.is_dir():
        parent, name = Path("/sys/fs/cgroup"), "memory.max"
    try:
        path = Path(tempfile.mkdtemp(prefix="ternmq-bench-", dir=parent))
        (path / name).write_text(str(LIMIT))
    except OSError:
        yield None
        return
    try:
        yield ControlGroup(path)
    finally:
        path.rmdir()


@contextmanager
def broker(path: Path, group: ControlGroup | None) -> Iterator[BrokerProcess]:
    """Run a broker on a folder, in the group from its first instruction on."""
    command = [
        sys.executable, "-m", "ternmq", "dev", "--data", str(path),
        "--listen", "127.0.0.1:0", "--http", "off",
    ]  # fmt: skip
    if group is not None:
        into = 'echo $$ > "$0"; exec "$@"'
        command = ["sh", "-c", into, str(group.path / "cgroup.procs"), *command]
    settings = {"STALL_TIMEOUT": f"{STALL_S}s", "SEGMENT": "16MiB", "LOG_LEVEL": "error"}
    environment = {**os.environ, **{f"TERNMQ_{key}": value for key, value in settings.items()}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield BrokerProcess(process, "ternmq://" + line.removeprefix("listening on ").strip())
        finally:
            process.terminate()
            process.wait(60)


def started(one: BrokerProcess, verb: str, **settings: float) -> subprocess.Popen[str]:
    """Start a client process."""
    command = [sys.executable, str(CLIENTS), verb, one.url]
    command += [f"{name}={value}" for name, value in settings.items()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def done(one: BrokerProcess, verb: str, **settings: float) -> Figures:
    """Run a client process to its end and return its figures."""
    with started(one, verb, **settings) as process:
        return figures_of(process)


def traffic(one: BrokerProcess, seconds: float, number: int, *verbs: str) -> Figures:
    """Let 20 MB/s in, two healthy consumers beside it, and whoever else is named."""
    others = [started(one, verb, seconds=seconds + 3) for verb in verbs]
    time.sleep(1.0 if verbs else 0.0)  # they are at it
    with started(one, "healthy", seconds=seconds, consumers=2, number=number) as consumers:
        assert consumers.stdout is not None
        assert consumers.stdout.readline().strip() == "ready"
        found = done(one, "inflow", bytes_per_s=20_000_000, seconds=seconds)
        found |= figures_of(consumers)
    for other in others:
        with other:
            found |= figures_of(other)
    return found


def peak_mib(one: BrokerProcess) -> float:
    """Return the most memory that the broker has held."""
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def overload(settings: Settings) -> Figures:
    """One round."""
    seconds = 2.0 if settings.quick else 12.0
    raw = raw_disk(settings)
    with folder(settings) as path, control_group() as group:
        with broker(path / "data", group) as one:
            done(one, "prepare")
            before = traffic(one, seconds, 1)
            filled = done(one, "fill", count=settings.scaled(1_000_000, 20_000), size=400)
            peak = peak_mib(one)
        began = time.perf_counter()
        with broker(path / "data", group) as one:
            restart_s = time.perf_counter() - began
            cpu, at = one.cpu_s(), time.perf_counter()
            found = traffic(one, seconds, 2, "slow", "frozen")
            share = (one.cpu_s() - cpu) / (time.perf_counter() - at)
            again = peak_mib(one)
            ended = one.process.poll() is not None
        kills = group.oom_kills() if group is not None else int(ended)
    return {
        "p99_times_baseline": found["p99_ms"] / before["p99_ms"],
        "peak_mib": max(peak, again),
        "peak_filled_mib": peak,
        "peak_restarted_mib": again,
        "oom_kills": float(kills),
        **found,
        **{f"baseline_{name}": value for name, value in before.items()},
        **filled,
        "restart_s": restart_s,
        "broker_core_share": share,
        "limited": float(group is not None),
        "raw_p99_ms": raw["synced_1_kib_p99_us"] / 1e3,
    }


SUITE: Final = Suite(
    Path(__file__),
    "Measure a broker that is overloaded.",
    (
        Measurement(
            "overload", "256 MB, 1 M backlog, a frozen and a slow group, 20 MB/s in", overload,
            (
                Target("p99_times_baseline", 2.0), Target("peak_mib", 200.0),
                Target("oom_kills", 0.0), Target("inflow_mb_s", 19.0, at_least=True),
            ),
            OPTIONS,
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run(SUITE))
