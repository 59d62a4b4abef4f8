"""The first offsets of queues, looked up lazily after a segment was removed.

A segment may contain messages of 40,000 queues. Updating all of them at its removal would take a
hundred times as long as a turn may take. So a queue remembers how many segments had been removed
when it last looked up its first offset, and looks it up again if there are more now. Retention
reads the first offset of every queue, some in each turn, so that all are up to date before the next
segment is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ternmq.journal.index.index import Index


class Numbered(Protocol):
    """A topic."""

    number: int


class Counted(Protocol):
    """A queue, as far as its first offset goes."""

    number: int
    next: int
    known_first: int
    first_as_of: int

    @property
    def topic(self) -> Numbered:
        """The queue's topic."""
        ...


Q = TypeVar("Q", bound=Counted)


class Firsts(Generic[Q]):
    """Looks up first offsets; all queues of a catalog share one.

    Not thread-safe: call it from the broker's loop.

    Args:
        index: Finds the first offset of a queue.
        on_removed: Called with a queue that is looked up after a removal, and its former first
            offset.

    Attributes:
        removed: Number of segments removed since the start.
    """

    __slots__ = ("_index", "_on_removed", "removed")

    def __init__(self, index: Index, on_removed: Callable[[Q, int], None]) -> None:
        self._index = index
        self._on_removed = on_removed
        self.removed = 0

    def look_up(self, queue: Q) -> None:
        """Look up the first offset of a queue."""
        before = queue.known_first
        first = self._index.first_offset(queue.topic.number, queue.number)
        queue.known_first = queue.next if first is None else first
        if queue.first_as_of != self.removed:
            queue.first_as_of = self.removed
            self._on_removed(queue, before)
