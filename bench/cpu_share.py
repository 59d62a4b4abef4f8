"""Limits how much of a core processes may use, so that a small machine can hold several of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CPU: Final = Path("/sys/fs/cgroup/cpu")
"""The CPU controller of version 1 of Linux's control groups."""
_PERIOD_US: Final = 10_000
_END_S: Final = 10.0


def possible() -> bool:
    """Say whether this machine lets us limit processes."""
    return os.access(_CPU / "cpu.cfs_quota_us", os.W_OK)


@contextmanager
def limited(pids: Sequence[int], share: float) -> Iterator[None]:
    """Limit each process, with all that it starts from now on, to a share of a core.

    Args:
        pids: The processes. Each one has a limit of its own.
        share: The share; 1.0 is a whole core.
    """
    groups = [_CPU / f"ternmq-bench-{os.getpid()}-{number}" for number in range(len(pids))]
    try:
        for group, pid in zip(groups, pids, strict=True):
            group.mkdir()
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(_PERIOD_US * share)))
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            if group.exists():
                _remove(group)


def _remove(group: Path) -> None:
    """Move the processes that still run to the root group, and remove the group."""
    until = time.monotonic() + _END_S
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            (_CPU / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return
