"""What queues hold, for many queues at once: ends, the offset at a time, the end of a read.

Only durable messages count. May raise ``WouldBlock``: run the job and call again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.query.held import Held
from ternmq.broker.query.messages import Queries
from ternmq.journal.store import lookup

_UNBOUNDED: Final = 1 << 62


class Wanted(NamedTuple):
    """Where a read of a queue would begin, and how many bytes it would take at most; 0: all."""

    offset: int
    max_bytes: int


class Range(NamedTuple):
    """The range of a queue; see ``wire.control.QueueRange``."""

    first: int
    next: int
    at: int | None
    start: int | None
    stop: int | None
    stop_bytes: int
    bytes: int


class Ranges:
    """Computes the ranges of queues.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_held", "_queries")

    def __init__(self, held: Held, queries: Queries) -> None:
        self._held = held
        self._queries = queries

    def of_queue(
        self, topic: Topic, number: int, time_us: int | None, wanted: Wanted | None
    ) -> Range:
        """Return the range of a queue. Takes about 20 us.

        Args:
            topic: The topic; it may have been deleted a moment ago.
            number: Of the queue.
            time_us: None: no offset is looked up.
            wanted: None: no read is measured.

        Raises:
            WouldBlock: see the module.
        """
        queue = topic.queues[number]
        end = self._queries.visible(topic, queue)
        first = min(queue.first, end)
        at = None if time_us is None else self._offset_at(topic, number, time_us, end)
        if wanted is None:
            return Range(first, end, at, None, None, 0, 0)
        start = min(max(wanted.offset, first), end)
        found = self._held.index.measure(
            topic.number, number, start, end, wanted.max_bytes or _UNBOUNDED
        )
        return Range(first, end, at, start, found.stop, found.stop_bytes, found.bytes)

    def _offset_at(self, topic: Topic, number: int, time_us: int, end: int) -> int:
        held = self._held
        found = lookup.offset_at_time(held.index, held.store, topic.number, number, time_us)
        return end if found is None else min(found, end)
