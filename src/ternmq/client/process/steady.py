"""The machine's steady clock, which also counts the time in which the machine is suspended."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
"""None: this system has no such clock (Linux has)."""


def steady_ns() -> int:
    """Return its time, in ns; without such a clock, that of the monotonic one."""
    return time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)
