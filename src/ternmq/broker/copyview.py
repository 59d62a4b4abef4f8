"""A copy of another broker's journal, as commands that only read see it.

Everything that is applied is committed, so all of the views may be shown. Records are read from the
files: a copy keeps none in memory. Only bytes that are applied are read; those are never changed.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from ternmq.broker.catalog.catalog import Queue
from ternmq.broker.ledger.views import Views
from ternmq.journal.store.store import RecordStore
from ternmq.model.errors import RefusedError
from ternmq.model.types import Position


class CopyMarks:
    """Where a copy begins, and up to where it is applied.

    Attributes:
        segment_size: Bytes of every segment file.
        first: Base of the oldest segment.
        committed, end, written: Position up to which records are applied.
    """

    __slots__ = ("committed", "end", "first", "segment_size", "written")

    def __init__(self, segment_size: int, first: Position) -> None:
        self.segment_size = segment_size
        self.first = self.committed = self.end = self.written = first

    def move(self, applied: Position) -> None:
        """Note up to where records are applied."""
        self.committed = self.end = self.written = applied

    def record(self, position: int) -> bytes | None:
        """Return None: no record is in memory. See ``JournalTail``."""
        del position
        return None

    def gather(self, positions: Sequence[int]) -> list[bytes] | None:
        """Return None: no record is in memory."""
        del positions
        return None


class Followed:
    """The queues that reads wait for.

    Args:
        views: The views of the copy.

    Attributes:
        grown: Queues that were followed and have new rows, or are gone. Whoever takes them removes
            them.
    """

    def __init__(self, views: Views) -> None:
        self.grown: list[Queue] = []
        self._views = views
        self._followed: dict[Queue, int] = {}
        """Queue -> its next offset when it was followed first."""

    def follow(self, queue: Queue) -> None:
        """List a queue in ``grown`` when it has its next rows; once."""
        self._followed.setdefault(queue, queue.next)

    def look(self) -> None:
        """List the queues that have grown since the last look. O(followed queues)."""
        topics = self._views.catalog.topics
        grown = [
            queue
            for queue, next_ in self._followed.items()
            if queue.next > next_ or topics.get(queue.topic.number) is not queue.topic
        ]
        for queue in grown:
            del self._followed[queue]
        self.grown += grown


class CopyView:
    """What is read of a copy; see ``query.held``.

    Args:
        views: The views, which a ``Standby`` keeps up to date.
        marks: The marks, likewise.
        store: Reads the records of the copy.

    Attributes:
        journal: The marks.
        views, store: As given.
        index: Finds records.
        limits: The limits of the broker.
        parking: Reports queues with new rows.
    """

    def __init__(self, views: Views, marks: CopyMarks, store: RecordStore) -> None:
        self.views = views
        self.journal = marks
        self.store = store
        self.index = views.index
        self.limits = views.limits
        self.parking = Followed(views)

    def refusal_rests_on(self, error: RefusedError) -> int:
        """Return 0: everything that a refusal can depend on is committed."""
        del error
        return 0
