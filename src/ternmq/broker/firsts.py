"""Where queues begin: looked up by whoever asks next, once a segment is gone.

A segment may hold messages of 40,000 queues. To tell all of them that it is gone would take a
hundred times as long as a turn may be. So a queue remembers how many segments were gone when it
looked up where it begins, and looks again if there are more by now. Retention asks every queue,
some in a turn, so that each has looked before the next segment goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ternmq.journal.index import Index

if TYPE_CHECKING:
    from ternmq.broker.catalog import Queue


class Firsts:
    """What the queues of a catalog share.

    Not thread-safe: call it from the broker's loop.

    Args:
        index: Says where a queue begins.
        on_removed: Takes a queue, and where it began before segments went.

    Attributes:
        removed: How many segments went since the start.
    """

    __slots__ = ("_index", "_on_removed", "removed")

    def __init__(self, index: Index, on_removed: Callable[[Queue, int], None]) -> None:
        self._index = index
        self._on_removed = on_removed
        self.removed = 0

    def look_up(self, queue: Queue) -> None:
        """Find out where a queue begins."""
        before = queue.known_first
        first = self._index.first_offset(queue.topic.number, queue.number)
        queue.known_first = queue.next if first is None else first
        if queue.first_as_of != self.removed:
            queue.first_as_of = self.removed
            self._on_removed(queue, before)
