"""Where a sync runs: in the loop when that is the shorter way on a quick disk, else in the thread.

To hand a sync to a thread and to hear of its end takes two changes of threads and a second turn of
the loop: most of what a lone send costs. A loop that has always something to do makes it worse: the
thread waits for the interpreter and for a core, and who sends waits for the rest of one such sync
and for a second one. While a sync runs in the loop nothing else is done. So it runs there only if

* either one answer waits for it, and nothing else was asked since the sync before: whoever sends
  meanwhile waits for this sync and a second one anyway, and whoever reads is not held up by them;
  or the loop is *pressed*: an app has more work than one turn does, and another asks for little.
  The flood pays for the sync with its time, and a send is answered in the turn that it came in;
* little was written, into one file, and no background job is at the disk;
* the disk has been quick: of the last ``WINDOW`` syncs of little at most one in ten took longer
  than ``QUICK_S``, and none longer than ``TURN_S``.

The risk: a disk that stops from one sync to the next holds the loop up as long as it stands still,
with heartbeats and ``/livez``; a write that the page cache does not take does the same. When it
goes on, the thread runs the next ``WINDOW`` syncs at least.
"""

from __future__ import annotations

from time import perf_counter as now_s
from typing import Final

from ternmq.journal.journal import SyncJob

WINDOW: Final = 64
_NEWEST: Final = (1 << WINDOW) - 1
QUICK_S: Final = 0.001
TURN_S: Final = 0.02
SMALL_BYTES: Final = 64 * 1024
"""More at once takes a disk longer, whatever it did lately; and nobody sends so much alone."""


class TimedSync:
    """A sync, and how long it took: without the way to its thread and back."""

    __slots__ = ("small", "sync", "took_s")

    def __init__(self, sync: SyncJob, written_bytes: int) -> None:
        self.sync = sync
        self.small = written_bytes <= SMALL_BYTES and len(sync.files) == 1 and sync.folder is None
        """It makes little durable, and no more than that."""
        self.took_s = 0.0

    def run(self) -> None:
        """Run it; raises what ``SyncJob.run`` does."""
        began = now_s()
        try:
            self.sync.run()
        finally:
            self.took_s = now_s() - began


class SyncPace:
    """How quick the disk has been lately. Loop only."""

    __slots__ = ("_slow", "_unknown", "quick")

    def __init__(self) -> None:
        self._slow = 0
        """A bit for each of the last ``WINDOW`` syncs: it was slow. The newest is the lowest."""
        self._unknown = WINDOW
        """How many of these have not been seen yet."""
        self.quick = False
        """Syncs of little are quick; not before ``WINDOW`` of them have been seen."""

    def took(self, seconds: float) -> None:
        """Take note of how long a sync of little took."""
        if seconds <= QUICK_S and not self._slow and not self._unknown:
            return  # all of them were quick, and are
        if seconds > TURN_S:
            self._slow, self._unknown = 0, WINDOW
        else:
            self._slow = (self._slow << 1 | (seconds > QUICK_S)) & _NEWEST
            if self._unknown:
                self._unknown -= 1
        self.quick = not self._unknown and self._slow.bit_count() * 10 <= WINDOW
