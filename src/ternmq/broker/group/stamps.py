"""Which facts the chunks of a STATE set already contain, while the records behind it are replayed.

The chunks of one set are written at different moments. Each object is loaded as it was at its
*stamp*, so it already contains every fact before the stamp, and these must not be applied to it
again. A fact of many rows touches many objects: it is cut down to the rows whose shards do not have
it yet. From the largest stamp on, every fact is admitted whole: this is what the first comparison
in each method is for. Once the replay is over, that comparison always holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ternmq.broker.group.failedrows import SHARD_BITS, SHARD_ROWS
from ternmq.record.fact.facts import LeasedRun, Span


class Admission:
    """The positions at which the cursor and the shards of one group queue were loaded."""

    __slots__ = ("given", "hashes", "main", "shards", "until")

    def __init__(self) -> None:
        self.main = 0
        """Stamp of the object that holds the cursor."""
        self.given = 0
        """Position from which facts change what the group was given before.

        Never below ``main``: these facts are applied to the cursor of their moment.
        """
        self.shards: dict[int, int] = {}
        self.hashes: list[tuple[int, bytes, list[Span]]] = []
        """Stamp, packed hashes and leased rows of each shard that has hashes: a change of the mode
        after which the shard was written needs them."""
        self.until = 0
        """The largest stamp: from here on every fact is admitted whole."""

    @property
    def loaded(self) -> bool:
        """Whether any chunk contained the group queue."""
        return bool(self.main or self.shards)

    def load_main(self, stamp: int) -> None:
        """Note the position at which the cursor was loaded."""
        self.main = stamp
        self.given = max(self.given, stamp)
        self.until = max(self.until, stamp)

    def load_given(self, stamp: int) -> None:
        """Note the position at which it was loaded what the group was given before."""
        self.given = max(self.given, stamp)

    def load_shard(self, key: int, stamp: int) -> None:
        """Note the position at which a shard was loaded."""
        self.shards[key] = stamp
        self.until = max(self.until, stamp)

    def finish(self) -> None:
        """Forget all stamps, once everything is replayed."""
        self.main = self.given = self.until = 0
        self.shards.clear()
        self.hashes.clear()

    def admits(self, position: int, offset: int) -> bool:
        """Return whether the row's shard does not contain the fact yet."""
        return position >= self.until or position >= self.shards.get(offset >> SHARD_BITS, 0)

    def spans(self, position: int, start: int, stop: int) -> Iterable[Span]:
        """Return the parts of a span whose shards do not contain the fact yet."""
        if position >= self.until:
            return ((start, stop),)
        spans: list[Span] = []
        low = start
        stamps = self.shards
        first, last = start >> SHARD_BITS, stop - 1 >> SHARD_BITS
        # Usually one or two shards of tens of thousands.
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
        """Return the parts of the runs whose shards do not contain the fact yet."""
        if position >= self.until:
            return runs
        return [
            (low, high, attempt, deliveries)
            for start, stop, attempt, deliveries in runs
            for low, high in self.spans(position, start, stop)
        ]
