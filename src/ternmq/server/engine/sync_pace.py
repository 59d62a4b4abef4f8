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

A pressed loop has another measure, because there the thread is far slower than the disk: it waits
for the interpreter before and after the sync, and the time that it measures includes these waits.
Syncs of 0.4 ms delayed a send by 13 ms, over 30 turns. So the loop runs the sync unless the last
one that it ran took longer than ``FAIR_S``. After such a one the thread runs the next ``FEW``; if
the one after them is as slow, twice as many, up to ``WINDOW``; and more, until one takes the thread
at most ``TURN_S``. What else the thread measures meanwhile does not count.

The risk: if the disk stops between two syncs, the loop is blocked until it goes on, with heartbeats
and ``/livez``; a write that the page cache does not take has the same effect. After that, the
thread runs at least the next ``WINDOW`` syncs, or ``FEW`` while the loop is pressed.
"""

from __future__ import annotations

from time import perf_counter as now_s
from typing import Final

from ternmq.journal.log.journal import SyncJob

WINDOW: Final = 64
_NEWEST: Final = (1 << WINDOW) - 1
QUICK_S: Final = 0.001
TURN_S: Final = 0.02
FAIR_S: Final = 0.004
"""Longest sync after which a pressed loop runs the next one too; the thread would take as long."""
FEW: Final = 8
"""Syncs that the thread runs after one that took a pressed loop too long."""
SMALL_BYTES: Final = 64 * 1024
"""Largest small sync: more bytes take longer on any disk, and a lone send is smaller."""


class TimedSync:
    """A sync and its duration, without the time of the thread switches."""

    __slots__ = ("pressed", "small", "sync", "took_s")

    def __init__(self, sync: SyncJob, written_bytes: int, *, pressed: bool = False) -> None:
        self.sync = sync
        self.pressed = pressed
        """The loop was pressed when it began."""
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

    __slots__ = ("_rest", "_rests", "_slow", "_unknown", "quick")

    def __init__(self) -> None:
        self._slow = 0
        """A bit for each of the last ``WINDOW`` small syncs, set if it was slow; newest lowest."""
        self._unknown = WINDOW
        """Number of small syncs until the window is full."""
        self.quick = False
        """Whether small syncs are quick; False until ``WINDOW`` of them were measured."""
        self._rest = 0
        """Number of syncs of a pressed loop that the thread still runs."""
        self._rests = FEW
        """What ``_rest`` becomes after the next slow one."""

    @property
    def fair(self) -> bool:
        """Whether a pressed loop runs the next small sync itself."""
        return not self._rest

    def took_pressed(self, seconds: float, *, here: bool) -> None:
        """Record the duration of a small sync of a pressed loop; ``here``: the loop ran it."""
        if not here:
            if self._rest > 1 or seconds <= TURN_S:  # else the disk is still slow
                self._rest = max(0, self._rest - 1)
            return
        if seconds > FAIR_S:
            self._rest, self._rests = self._rests, min(2 * self._rests, WINDOW)
        else:
            self._rests = FEW
        self.took(seconds)

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
