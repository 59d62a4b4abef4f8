"""How much of what, and how to wait for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.fault.processes import DEADLINE

LONG: Final = os.environ.get("OUTBOX_LONG") == "1"
SEED: Final = int(os.environ.get("OUTBOX_SEED", "1"))


def much(short: int, long: int) -> int:
    """Return how much of something there is."""
    return long if LONG else short


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float = DEADLINE, *, pause: float = 0.01
) -> None:
    """Wait for something that is asked for every ``pause`` seconds, or fail."""
    until = time.monotonic() + seconds
    pausing = threading.Event()
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"after {seconds} s: not {what}")
        pausing.wait(pause)
