"""What the views still have of segments that were removed, and how it is cleaned up in pieces.

The primary removes a segment itself, a follower after it: both clean up here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ternmq.broker.ledger.views import Views
from ternmq.journal.index.run_jobs import RemoveJob
from ternmq.model.types import Position

QUEUES_A_PIECE: Final = 64
NAMES_A_PIECE: Final = 64


class Removed:
    """Cleans up behind removed segments.

    Not thread-safe: call it from the broker's loop.

    Args:
        views: The views.
    """

    __slots__ = ("_first", "_queues", "_views")

    def __init__(self, views: Views) -> None:
        self._views = views
        self._first = Position(0)
        self._queues: Iterator[int] = iter(())
        """The queues whose first offset is still to be looked up."""

    def drop(self, base: Position, first: Position) -> RemoveJob:
        """Forget the oldest segment, which was removed; return the job that removes its run files.

        Args:
            base: Base of the segment.
            first: Where the journal begins now.
        """
        views = self._views
        self._first = first
        job = views.index.coverage.drop_segment(base)
        views.prepared_rows.drop_below(views.index, first)
        views.catalog.firsts.removed += 1
        self._queues = iter(list(views.index.coverage.queues))
        return job

    def clean_up(self) -> bool:
        """Clean up one piece; return whether there may be another."""
        views = self._views
        index = views.index
        queues = list(islice(self._queues, QUEUES_A_PIECE))
        if queues:
            topics = views.catalog.topics
            for key in queues:
                index.coverage.segments_of(key)
                topic = topics.get(key >> 32)
                if topic is not None:
                    _ = topic.queues[key & 0xFFFFFFFF].first
            return True
        if views.prepared_rows.forget_some(index):
            return True
        return views.gone.forget_below(self._first, NAMES_A_PIECE)
