"""Whether the process was frozen: then its leases may have ended, and answers have waited.

While a process is stopped (SIGSTOP, a suspended machine, a blocked event loop), answers of the
broker wait in the socket, and leases run. A timer notes that the loop runs; if the last note is
old, the process did not run since. What is read then may have arrived just after the note.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_TICK_S: Final = 0.5
LATE_S: Final = 1.0
"""A note of this age is old: the loop was not merely busy."""


class Awake:
    """Notes that the client's loop runs. Not thread-safe: use it in this loop, except as noted.

    Args:
        loop: The loop.
        ended: Returns whether to stop.

    Attributes:
        seen: Monotonic time of the last note; for any thread.
        thawed: Monotonic time at which the last freeze was noticed; for any thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], bool]) -> None:
        self._loop = loop
        self._ended = ended
        self.seen = time.monotonic()
        self.thawed = 0.0
        loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self.look(time.monotonic())
        self.seen = time.monotonic()
        if not self._ended():
            self._loop.call_later(_TICK_S, self._tick)

    def look(self, now: float) -> float:
        """Return ``thawed`` as of now; callable from any thread."""
        if now - self.seen >= LATE_S and self.thawed < self.seen:
            self.thawed = now
        return self.thawed

    def arrived(self) -> float:
        """Return the earliest monotonic time at which what is read now may have arrived."""
        now = time.monotonic()
        return now if now - self.seen < LATE_S else self.seen
