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

from ternmq.broker.broker import Broker
from ternmq.broker.catalog import Queue
from ternmq.broker.copied import Copied
from ternmq.journal.disk import File
from ternmq.journal.run_jobs import RemoveJob
from ternmq.journal.segment import segment_name
from ternmq.model.errors import DiskError

QUEUES_A_PIECE: Final = 64
NAMES_A_PIECE: Final = 64
PIECES_A_STEP: Final = 32


class Removal:
    """Loop only.

    Args:
        broker: The core.
        copied: What retention remembers of groups' queues.

    Attributes:
        goes_on: A segment went, and not all is cleaned up: no other may go yet.
        removed_segments: Since the start.
        expired_rows: Rows that went before a group was handed them, likewise.
    """

    def __init__(self, broker: Broker, copied: Copied) -> None:
        self._broker = broker
        self._copied = copied
        self._queues: Iterator[int] = iter(())
        """The queues that are still to be asked where they begin."""
        self._job: RemoveJob | None = None
        self.goes_on = False
        self.removed_segments = 0
        self.expired_rows = 0
        broker.views.catalog.firsts.on_removed = self._count_expired

    def remove(self) -> RemoveJob:
        """Let the oldest segment go; return the job that removes what else is kept of it.

        Raises:
            JournalFailed: It cannot be removed.
        """
        broker = self._broker
        journal, views, index = broker.journal, broker.views, broker.index
        base = journal.first
        file = self._opened(segment_name(base))
        journal.remove_first_segment()
        broker.store.drop_segment(base)
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
            return self._broker.index.disk.open(name)
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
        broker = self._broker
        views, index = broker.views, broker.index
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
        if views.gone.forget_below(broker.journal.first, NAMES_A_PIECE):
            return True
        return self._copied.forget_some(QUEUES_A_PIECE)

    def _count_expired(self, queue: Queue, before: int) -> None:
        """Count what the groups of a queue that began at ``before`` had not read of what went."""
        first, held = queue.known_first, self._broker.views.held
        if first <= before:
            return
        for group in queue.topic.subscriptions:
            cursor = held[group, queue.topic.number, queue.number].cursor
            if cursor < first:
                self.expired_rows += first - max(cursor, before)
