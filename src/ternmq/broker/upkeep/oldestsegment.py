"""The oldest segment of the journal: where it ends, and which messages of each queue are in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.log.retention import QueueShare


class OldestSegment:
    """Answers questions about the segment that retention removes next.

    Every answer is about the segment that is the oldest one at the time of the call. Not
    thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and what is computed from it.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def number(self) -> int:
        """Its number: its position divided by the size of a segment."""
        journal = self._ledger.journal
        return journal.first // journal.segment_size

    @property
    def end(self) -> int:
        """Where it ends."""
        journal = self._ledger.journal
        return journal.first + journal.segment_size

    def last_us(self) -> int:
        """Return when the newest message of it was stored."""
        ledger = self._ledger
        number = self.number
        return max(
            ledger.index.coverage.last_time_us(ledger.journal.first),
            ledger.views.prepared_rows.last_us(number),
        )

    def shares_of(self, keys: Iterable[int]) -> list[QueueShare]:
        """Return the shares of those of some queues that have messages in it."""
        index = self._ledger.index
        prepared = self._ledger.views.prepared_rows
        number = self.number
        with_prepared = prepared.holds(number)
        floor_of = index.floor_of
        found: list[QueueShare] = []
        for key in keys:
            segments = index.coverage.segments_of(key)
            stop = 0
            topic, queue = key >> 32, key & 0xFFFFFFFF
            if segments is not None and segments.numbers[0] == number:
                if len(segments.first_offsets) > 1:
                    stop = segments.first_offsets[1]
                    if floor_of is not None:
                        stop = max(stop, floor_of(key))
                else:
                    known = self._ledger.views.catalog.topics.get(topic)
                    stop = known.queues[queue].next if known is not None else 1 << 62
            if with_prepared:
                stop = max(stop, prepared.stop(number, topic, queue))
            if stop:
                found.append(QueueShare(topic, queue, stop))
        return found

    def boundary(self, progress: Progress) -> int:
        """Return the queue's first offset without the segment: below it, only copies are left."""
        topic = self._ledger.views.catalog.topics.get(progress.topic)
        if topic is None:
            return 0
        key = progress.topic << 32 | progress.queue
        number = self.number
        index = self._ledger.index
        segments = index.coverage.segments_of(key)
        if segments is not None:
            at = bisect_right(segments.numbers, number)
            if at < len(segments.numbers):
                above = self._ledger.views.prepared_rows.stop(
                    number, progress.topic, progress.queue
                )
                floor = 0 if index.floor_of is None else index.floor_of(key)
                return max(segments.first_offsets[at], above, floor)
        return topic.queues[progress.queue].next
