"""Control groups of Linux: limits on the memory and the processor time that a broker may take."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 20_000
"""Of a limit on processor time: short, so that what is limited pauses for milliseconds."""


class ControlGroup:
    """A control group, version 1 or 2."""

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
    """Make a group with a limit of memory, page cache included.

    Yields:
        The group; None where that is not allowed (it wants root).
    """
    if (_ROOT / "memory").is_dir():
        made = _group(_ROOT / "memory", {"memory.limit_in_bytes": str(limit_bytes)})
    else:
        made = _group(_ROOT, {"memory.max": str(limit_bytes)})
    with made as group:
        yield group


@contextmanager
def processor_group(share: float) -> Iterator[ControlGroup | None]:
    """Make a group with a limit of processor time: so much of one processor.

    Yields:
        The group; None where that is not allowed (it wants root).
    """
    quota = str(round(share * _PERIOD_US))
    if (_ROOT / "cpu").is_dir():
        limits = {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota}
        made = _group(_ROOT / "cpu", limits)
    else:
        made = _group(_ROOT, {"cpu.max": f"{quota} {_PERIOD_US}"})
    with made as group:
        yield group


@contextmanager
def _group(parent: Path, limits: Mapping[str, str]) -> Iterator[ControlGroup | None]:
    path: Path | None = None
    try:
        try:
            path = Path(tempfile.mkdtemp(prefix="ternmq-bench-", dir=parent))
            for name, value in limits.items():
                (path / name).write_text(value)
        except OSError:
            yield None
        else:
            yield ControlGroup(path)
    finally:
        if path is not None:
            path.rmdir()
