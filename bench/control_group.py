"""Memory control groups of Linux: a limit on what a broker and the cache of its files may take."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ControlGroup:
    """A memory control group, version 1 or 2."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def prefix(self) -> list[str]:
        """What runs a command in the group, from its first instruction on."""
        return ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(self.path / "cgroup.procs")]

    def oom_kills(self) -> int:
        """Return how often the kernel killed for want of memory in it."""
        for name in ("memory.oom_control", "memory.events"):
            if (self.path / name).exists():
                found = re.search(r"^oom_kill (\d+)$", (self.path / name).read_text(), re.MULTILINE)
                return int(found[1]) if found else 0
        return 0


@contextmanager
def control_group(limit_bytes: int) -> Iterator[ControlGroup | None]:
    """Make a control group with a limit; None where that is not allowed (it wants root)."""
    parent, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not parent.is_dir():
        parent, name = Path("/sys/fs/cgroup"), "memory.max"
    try:
        path = Path(tempfile.mkdtemp(prefix="ternmq-bench-", dir=parent))
        (path / name).write_text(str(limit_bytes))
    except OSError:
        yield None
        return
    try:
        yield ControlGroup(path)
    finally:
        path.rmdir()
