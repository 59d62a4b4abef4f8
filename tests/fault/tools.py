"""What the machine can do, found out once; tests skip, saying so, where it cannot."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

POINTS = int(os.environ.get("FAULT_POINTS", "12"))
CYCLES = int(os.environ.get("FAULT_CYCLES", "5"))
ALL_BYTES = os.environ.get("FAULT_ALL_BYTES") == "1"

TRACED = {
    "pwrite": "pwrite64,pwritev,pwritev2",
    "fdatasync": "fdatasync",
    "fsync": "fsync",
    "rename": "?rename,?renameat,renameat2",
    "unlink": "?unlink,unlinkat",
    "fallocate": "fallocate",
}
"""Calls that only the broker's disk makes in a worker -> what strace knows them by."""


def need_strace() -> None:
    """Skip unless strace can stop a process and tamper with its calls."""
    if not _strace_works():
        pytest.skip("needs strace that may trace and inject")


@functools.cache
def _strace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync",
         "-e", "inject=fdatasync:error=EIO", "true"],
        capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    return done.returncode == 0


def need_root(*programs: str) -> None:
    """Skip unless this is root and has the programs; loop devices must work."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for program in ("mount", "losetup", *programs):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    if not _loops():
        pytest.skip("needs loop devices")


@functools.cache
def _loops() -> bool:
    return subprocess.run(["losetup", "-f"], capture_output=True, check=False).returncode == 0


def strace(
    *,
    trace: Sequence[str],
    inject: str = "",
    only: str = "",
    output: Path | str = "/dev/null",
    text: int = 0,
) -> list[str]:
    """Return the words that go before a command.

    Args:
        trace: Names of ``TRACED``, or of system calls.
        inject: What happens to them: ``error=EIO:when=3``. Each thread counts its own calls.
        only: The one of them that it happens to; all if empty.
        output: File for what was seen.
        text: How many bytes of a buffer to show.
    """
    calls = ",".join(TRACED.get(one, one) for one in trace)
    # Not --seccomp-bpf: strace 6.1 then counts calls, but injects no signal from the second on.
    words = ["strace", "-f", "-qq", "-s", str(text), "-o", str(output)]
    words += ["-e", f"trace={calls}"]
    if inject:
        words += ["-e", f"inject={TRACED[only] if only else calls}:{inject}"]
    return words


def counted(output: Path) -> dict[str, int]:
    """Return how often the busiest thread made each call of ``TRACED``, from what strace saw."""
    names = {call.lstrip("?"): name for name, calls in TRACED.items() for call in calls.split(",")}
    seen: Counter[tuple[str, str]] = Counter()
    for line in output.read_text().splitlines():
        thread, _, rest = line.partition(" ")
        name = names.get(rest.strip().partition("(")[0])
        if name is not None:
            seen[name, thread] += 1
    return {
        name: max((count for (one, _), count in seen.items() if one == name), default=0)
        for name in TRACED
    }


def spread(count: int, points: int) -> list[int]:
    """Return at most so many numbers of 1..count: the first three, the last, and others evenly."""
    if count <= points:
        return list(range(1, count + 1))
    chosen = {1, 2, 3, count} | {1 + at * count // points for at in range(points)}
    return sorted(chosen)
