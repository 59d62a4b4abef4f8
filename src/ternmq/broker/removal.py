"""Removes the oldest segment, and brings what rests on it up to date, some of it in a turn.

The file goes at once, and from then on nothing is found there. All else is cleaning up: a segment
may hold messages of 40,000 queues, and each forgets it, finds out where it begins now, and counts
what its groups had not read. Whoever asks for one of them before its turn has it done there and
then (see ``Firsts`` and ``Index.segments_of``), so no answer tells of what is gone. A start derives
all of it anew, so a crash in the middle leaves nothing undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from ternmq.broker.copied import Copied
from ternmq.broker.ledger import Ledger
from ternmq.journal.disk import File
from ternmq.journal.run_jobs import RemoveJob
from ternmq.journal.segment import segment_name
from ternmq.model.errors import DiskError

QUEUES_A_PIECE: Final = 64
NAMES_A_PIECE: Final = 64
PIECES_A_STEP: Final = 32


class Removal:
    """Removes one segment after the other.

    Not thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and what is computed from it.
        copied: What retention remembers of groups' queues.

    Attributes:
        goes_on: A segment went, and not all is cleaned up: no other may go yet.
        removed_segments: Since the start.
    """

    def __init__(self, ledger: Ledger, copied: Copied) -> None:
        self._ledger = ledger
        self._copied = copied
        self._queues: Iterator[int] = iter(())
        """The queues that are still to be asked where they begin."""
        self._job: RemoveJob | None = None
        self.goes_on = False
        self.removed_segments = 0

    def remove(self) -> RemoveJob:
        """Let the oldest segment go; return the job that removes what else is kept of it.

        Raises:
            JournalFailed: It cannot be removed.
        """
        ledger = self._ledger
        journal, views, index = ledger.journal, ledger.views, ledger.index
        base = journal.first
        file = self._opened(segment_name(base))
        journal.remove_first_segment()
        ledger.store.drop_segment(base)
        self._job = job = index.drop_segment(base)
        job.file = file
        views.prepared_rows.drop_below(index, journal.first)
        views.catalog.firsts.removed += 1
        self._queues = iter(list(index.queues))
        self._copied.ended()
        self.goes_on = True
        self.removed_segments += 1
        return job

    @property
    def frees(self) -> bool:
        """Whether the space of the segment that went is not free yet: none is to go for it."""
        return self._job is not None

    def freed(self, job: RemoveJob) -> None:
        """Take note that a job's ``run`` is over."""
        if job is self._job:
            self._job = None

    def _opened(self, name: str) -> File | None:
        """Return the file open, so that its space is given back when a worker thread closes it."""
        try:
            return self._ledger.index.disk.open(name)
        except DiskError:
            return None  # the removal gives it back, or tells what is wrong

    def step(self, may_go_on: Callable[[], bool]) -> None:
        """Clean up some of what is left, while ``may_go_on()``."""
        for piece in range(PIECES_A_STEP):
            if piece and not may_go_on():
                return
            if not self._clean_up():
                self.goes_on = False
                return

    def _clean_up(self) -> bool:
        """Do a piece; return whether there is another."""
        ledger = self._ledger
        views, index = ledger.views, ledger.index
        queues = list(islice(self._queues, QUEUES_A_PIECE))
        if queues:
            topics = views.catalog.topics
            for key in queues:
                index.segments_of(key)
                topic = topics.get(key >> 32)
                if topic is not None:
                    _ = topic.queues[key & 0xFFFFFFFF].first
            return True
        if views.prepared_rows.forget_some(index):
            return True
        if views.gone.forget_below(ledger.journal.first, NAMES_A_PIECE):
            return True
        return self._copied.forget_some(QUEUES_A_PIECE)
