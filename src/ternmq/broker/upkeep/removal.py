"""Removes the oldest segment, and updates what depends on it in steps.

The file is removed at once, and from then on nothing is found in it. The rest is cleaning up: a
segment may hold messages of 40,000 queues, and for each of them the segment is forgotten, the new
first offset is looked up, and the rows that its groups had not read are counted. If a queue is
used before its turn, this is done at that moment (see ``Firsts`` and ``Coverage.segments_of``), so
no answer contains removed data. A start derives all of it again, so a crash in the middle leaves
nothing undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.ledger.removed import QUEUES_A_PIECE, Removed
from ternmq.broker.upkeep.copied import Copied
from ternmq.journal.disk.port import File
from ternmq.journal.index.run_jobs import RemoveJob
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import DiskError

PIECES_A_STEP: Final = 32


class Removal:
    """Removes one segment after the other.

    Not thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and what is computed from it.
        copied: What retention remembers of group queues.

    Attributes:
        goes_on: A segment was removed and is not cleaned up yet: no other may be removed.
        removed_segments: Segments removed since the start.
    """

    def __init__(self, ledger: Ledger, copied: Copied) -> None:
        self._ledger = ledger
        self._copied = copied
        self._removed = Removed(ledger.views)
        self._job: RemoveJob | None = None
        self.goes_on = False
        self.removed_segments = 0

    def remove(self) -> RemoveJob:
        """Remove the oldest segment; return the job that removes the rest of what is kept of it.

        Raises:
            JournalFailed: It cannot be removed.
        """
        ledger = self._ledger
        journal = ledger.journal
        base = journal.first
        file = self._opened(segment_name(base))
        journal.remove_first_segment()
        ledger.store.drop_segment(base)
        self._job = job = self._removed.drop(base, journal.first)
        job.file = file
        self._copied.ended()
        self.goes_on = True
        self.removed_segments += 1
        return job

    @property
    def frees(self) -> bool:
        """Whether the disk space of the removed segment is not free yet: the next one must wait."""
        return self._job is not None

    def freed(self, job: RemoveJob) -> None:
        """Note that a job's ``run`` is over."""
        if job is self._job:
            self._job = None

    def _opened(self, name: str) -> File | None:
        """Return the file open, so that its space is freed when a worker thread closes it."""
        try:
            return self._ledger.index.coverage.disk.open(name)
        except DiskError:
            return None  # the removal frees the space, or reports what is wrong

    def step(self, may_go_on: Callable[[], bool]) -> None:
        """Clean up some of the rest, while ``may_go_on()``."""
        for piece in range(PIECES_A_STEP):
            if piece and not may_go_on():
                return
            if not self._clean_up():
                self.goes_on = False
                return

    def _clean_up(self) -> bool:
        """Clean up one piece; return whether there is another."""
        return self._removed.clean_up() or self._copied.forget_some(QUEUES_A_PIECE)
