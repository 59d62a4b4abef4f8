"""A limit of the memory that a broker may take."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fault.processes import wait_until
from tests.fault.server.broker import Broker


@contextlib.contextmanager
def memory_limit(limit: int) -> Iterator[Path | None]:
    """A control group that kills what takes more; None where there are none (RSS is measured)."""
    parent = Path("/sys/fs/cgroup/memory")
    name, value = "memory.limit_in_bytes", str(limit)
    if not parent.is_dir():
        parent, name = Path("/sys/fs/cgroup"), "memory.max"
    try:
        group = Path(tempfile.mkdtemp(prefix="ternmq-", dir=parent))
        (group / name).write_text(value)
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "its processes gone")
        group.rmdir()


def oom_kills(group: Path | None) -> int:
    """Return how often the kernel has killed for want of memory in the group."""
    for name in ("memory.oom_control", "memory.events"):
        if group is not None and (group / name).exists():
            found = re.search(r"^oom_kill (\d+)$", (group / name).read_text(), re.MULTILINE)
            return int(found[1]) if found else 0
    return 0


def put_into(group: Path | None, broker: Broker) -> None:
    """Limit a broker's memory; all its threads go."""
    if group is not None:
        (group / "cgroup.procs").write_text(str(broker.pid))
