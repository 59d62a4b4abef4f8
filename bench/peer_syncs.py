"""Counts the syncs of a process, by the kernel's own counters of system calls."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CALLS: Final = ("fsync", "fdatasync", "msync", "sync_file_range")
_ATTACH_S: Final = 10.0


@dataclass
class Syncs:
    """How many there were; None where they cannot be counted."""

    count: int | None = None


@contextmanager
def counted(pid: int) -> Iterator[Syncs]:
    """Count the syncs of a process and its threads, new ones too, in a ``with`` block.

    ``perf`` counts them without stopping the process, as a tracer would. It wants root, or a system
    that lets everyone use it.
    """
    found = Syncs()
    perf = shutil.which("perf")
    if perf is None:
        yield found
        return
    events = ",".join([f"syscalls:sys_enter_{name}" for name in CALLS])
    process = subprocess.Popen(
        [perf, "stat", "-x", ",", "-e", events, "-p", str(pid)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    attached = _attached(process)
    try:
        yield found
    finally:
        if attached:
            process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    if attached:
        found.count = read(told)


def _attached(process: subprocess.Popen[str]) -> bool:
    """Wait until the counters are there; return whether they ever were."""
    until = time.monotonic() + _ATTACH_S
    seen = 0
    while time.monotonic() < until and process.poll() is None:
        now = _counters(process.pid)
        if now and now == seen:
            return True
        seen = now
        time.sleep(0.05)
    if process.poll() is None:
        process.terminate()
    return False


def _counters(pid: int) -> int:
    count = 0
    try:
        held = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it has ended
        return 0
    for one in held:
        try:
            count += "perf_event" in os.readlink(one)
        except OSError:  # it was closed between the two
            continue
    return count


def read(told: str) -> int | None:
    """Return the sum of what ``perf stat -x ,`` counted; None if it counted none of them."""
    counts = [line.split(",") for line in told.splitlines() if "syscalls:" in line]
    numbers = [int(fields[0]) for fields in counts if fields[0].isdigit()]
    return sum(numbers) if numbers else None
