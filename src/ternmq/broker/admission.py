"""Which facts the chunks of a STATE set hold already, while the records behind it are replayed.

The chunks of one set are written at different moments. Each object is loaded as it was at its
*stamp*, so a fact that stands before the stamp is in it already, and must not be applied to it
again. A fact of many rows touches many objects: it is cut down to the rows whose shards do not have
it yet. Once the newest chunk is behind, every fact is admitted whole, which is what the first
comparison everywhere is for; live, nothing here is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ternmq.broker.failures import SHARD_BITS, SHARD_ROWS
from ternmq.record.facts import LeasedRun, Span


class Admission:
    """Of one group queue: the positions its cursor and its shards were loaded at."""

    __slots__ = ("main", "shards", "until")

    def __init__(self) -> None:
        self.main = 0
        """Of the object that holds the cursor."""
        self.shards: dict[int, int] = {}
        self.until = 0
        """The largest of all: from here on every fact is admitted whole."""

    @property
    def loaded(self) -> bool:
        """Whether any chunk told of the group queue."""
        return bool(self.main or self.shards)

    def load_main(self, stamp: int) -> None:
        """Take note of the position that the cursor was loaded at."""
        self.main = stamp
        self.until = max(self.until, stamp)

    def load_shard(self, key: int, stamp: int) -> None:
        """Take note of the position that a shard was loaded at."""
        self.shards[key] = stamp
        self.until = max(self.until, stamp)

    def finish(self) -> None:
        """Forget all of it, once everything is replayed."""
        self.main = self.until = 0
        self.shards.clear()

    def admits(self, position: int, offset: int) -> bool:
        """Return whether a fact is news to the row's shard."""
        return position >= self.until or position >= self.shards.get(offset >> SHARD_BITS, 0)

    def spans(self, position: int, start: int, stop: int) -> Iterable[Span]:
        """Return the rows of a span that a fact is news to."""
        if position >= self.until:
            return ((start, stop),)
        spans: list[Span] = []
        low = start
        stamps = self.shards
        first, last = start >> SHARD_BITS, stop - 1 >> SHARD_BITS
        # Mostly one or two of tens of thousands.
        for key in range(first, last + 1) if last - first < len(stamps) else sorted(stamps):
            base = key << SHARD_BITS
            if stamps.get(key, 0) <= position or base + SHARD_ROWS <= low or base >= stop:
                continue
            if low < base:
                spans.append((low, base))
            low = base + SHARD_ROWS
        if low < stop:
            spans.append((low, stop))
        return spans

    def runs(self, position: int, runs: Sequence[LeasedRun]) -> Sequence[LeasedRun]:
        """Return the runs, or what of them a fact is news to."""
        if position >= self.until:
            return runs
        return [
            (low, high, attempt, deliveries)
            for start, stop, attempt, deliveries in runs
            for low, high in self.spans(position, start, stop)
        ]
