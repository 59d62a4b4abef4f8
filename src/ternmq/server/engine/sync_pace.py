"""Decides where a sync runs: in the loop if that is faster on a quick disk, else in the thread.

Passing a sync to a thread and its end back takes two thread switches and a second turn of the loop:
most of the cost of a lone send. In a busy loop it takes longer still: the thread waits for the
interpreter and for a core, and a new send waits for the rest of that sync and for a second one. But
while a sync runs in the loop, nothing else does. So it runs there only if all of this holds:

* Either a single answer waits for it, and no other request came since the sync before: a send that
  arrives meanwhile would have to wait for this sync and a second one anyway, and a client that
  reads is not delayed, since its reads count as requests. Or the loop is
  *pressed*: an app has more work than one turn does, and another has little. Then the busy app
  loses the time of the sync, and a send is answered in the turn in which it arrived.
* Little was written, into one file, and no background job uses the disk.
* The disk has been quick: of the last ``WINDOW`` small syncs at most one in ten took longer than
  ``QUICK_S``, and none longer than ``TURN_S``.

The risk: if the disk stops between two syncs, the loop is blocked until it goes on, with heartbeats
and ``/livez``; a write that the page cache does not take has the same effect. After that, the
thread runs at least the next ``WINDOW`` syncs.
"""

from __future__ import annotations

from time import perf_counter as now_s
from typing import Final

from ternmq.journal.log.journal import SyncJob

WINDOW: Final = 64
_NEWEST: Final = (1 << WINDOW) - 1
QUICK_S: Final = 0.001
TURN_S: Final = 0.02
SMALL_BYTES: Final = 64 * 1024
"""Largest small sync: more bytes take longer on any disk, and a lone send is smaller."""


class TimedSync:
    """A sync and its duration, without the time of the thread switches."""

    __slots__ = ("small", "sync", "took_s")

    def __init__(self, sync: SyncJob, written_bytes: int) -> None:
        self.sync = sync
        self.small = written_bytes <= SMALL_BYTES and len(sync.files) == 1 and sync.folder is None
        """It syncs at most ``SMALL_BYTES`` of one file, and no folder."""
        self.took_s = 0.0

    def run(self) -> None:
        """Run the sync; raises the errors of ``SyncJob.run``."""
        began = now_s()
        try:
            self.sync.run()
        finally:
            self.took_s = now_s() - began


class SyncPace:
    """How quick the disk's last small syncs were. Not thread-safe: call it from the loop."""

    __slots__ = ("_slow", "_unknown", "quick")

    def __init__(self) -> None:
        self._slow = 0
        """A bit for each of the last ``WINDOW`` small syncs, set if it was slow; newest lowest."""
        self._unknown = WINDOW
        """Number of small syncs until the window is full."""
        self.quick = False
        """Whether small syncs are quick; False until ``WINDOW`` of them were measured."""

    def took(self, seconds: float) -> None:
        """Record the duration of a small sync."""
        if seconds <= QUICK_S and not self._slow and not self._unknown:
            return  # all of the window are quick already
        if seconds > TURN_S:
            self._slow, self._unknown = 0, WINDOW
        else:
            self._slow = (self._slow << 1 | (seconds > QUICK_S)) & _NEWEST
            if self._unknown:
                self._unknown -= 1
        self.quick = not self._unknown and self._slow.bit_count() * 10 <= WINDOW
