"""Whether the process was frozen: then its leases may have ended, and answers have waited.

While a process is stopped (SIGSTOP, a suspended machine, a blocked event loop), answers of the
broker wait in the socket, and leases run. A timer notes that the loop runs; if the last note is
old, the process did not run since. What is read then may have arrived just after the note.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ternmq.client.consumer.lease import Lease

_TICK_S: Final = 0.5
LATE_S: Final = 1.0
"""A note of this age is old: the loop was not merely busy."""
_READING_S: Final = 1.0
"""After a freeze, what waited in the sockets is read within this time."""


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
        self.thawed = -math.inf
        self._last = 0.0  # the last note before the freeze
        loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self.look(time.monotonic())
        self.seen = time.monotonic()
        if not self._ended():
            self._loop.call_later(_TICK_S, self._tick)

    def look(self, now: float) -> float:
        """Return ``thawed`` as of now; callable from any thread."""
        seen = self.seen
        if now - seen >= LATE_S and self.thawed < seen:
            self._last, self.thawed = seen, now
        return self.thawed

    def doubts(self, lease: Lease) -> bool:
        """Return whether the process was frozen since the broker's last word about a lease.

        Then it may have ended. Callable from any thread.
        """
        return lease.confirmed < self.look(time.monotonic())

    def arrived(self) -> float:
        """Return the earliest monotonic time at which what is read now may have arrived.

        A loop may run its timers before it reads its sockets, so what is read shortly after the
        end of a freeze counts as having arrived in it.
        """
        now = time.monotonic()
        return self._last if now - self.look(now) < _READING_S else now
