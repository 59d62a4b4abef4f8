"""How much of what."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from tests.fault.server.desk import Plan

_CYCLES: Final = os.environ.get("GROUP_CYCLES")
LONG: Final = _CYCLES is not None

PLAN: Final = Plan(producers=3, window=8, pause_s=0.01, handle_s=0.01)
"""Enough that something is under way at each moment, and little enough for two brokers and their
clients on two cores."""
PATIENT_S: Final = 20.0
"""Clients whose brokers should never be silent wait so long before they leave one."""


def cycles(short: int) -> int:
    """Return how many faults in a row there are: so many, or as the environment says."""
    return int(_CYCLES) if _CYCLES is not None else short


def seconds(short: float, long: float) -> float:
    """Return how long something lasts."""
    return long if LONG else short


def passed(after: float) -> Callable[[], bool]:
    """Return what tells whether so many seconds have passed since now."""
    until = time.monotonic() + after
    return lambda: time.monotonic() > until
