"""The clocks that broker time is made of, and timers of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clocks(Protocol):
    """The two clocks that broker time is made of, and a timer."""

    def monotonic_us(self) -> int:
        """Return µs since an arbitrary moment; never goes back."""
        ...

    def wall_us(self) -> int:
        """Return µs since the Unix epoch by the machine's clock."""
        ...

    def call_at(self, monotonic_us: int, call: Callable[[], None]) -> Callable[[], None]:
        """Schedule a call in the loop; return a function that cancels it."""
        ...


class SystemClocks:
    """The machine's clocks and the running loop's timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic_us(self) -> int:
        """Return the monotonic clock."""
        return time.monotonic_ns() // 1000

    def wall_us(self) -> int:
        """Return the wall clock."""
        return time.time_ns() // 1000

    def call_at(self, monotonic_us: int, call: Callable[[], None]) -> Callable[[], None]:
        """Schedule a call in the loop; return a function that cancels it."""
        delay = max(0.0, (monotonic_us - self.monotonic_us()) / 1e6)
        return self._loop.call_later(delay, call).cancel
