"""Which owed rows would lose their content or their history if the oldest segment went.

A group may be owed a million rows whose only content is copies in MOVED records. Whenever a segment
goes, all of them are asked about. So what was found of a shard is remembered: from where on in the
journal the copies of its rows stand. As long as the segment ends below, nothing has to be looked up
again: rows below a group's cursor that are not owed do not become owed, save by what
``Ledger.rewinds`` counts.
"""

from __future__ import annotations

from typing import NamedTuple

from ternmq.broker.failures import SHARD_BITS
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.owed import owed_in
from ternmq.broker.views import HeldKey
from ternmq.journal.index import Index


class OwedRow(NamedTuple):
    """A row that must not go with the segment."""

    offset: int
    content: bool
    """Whether its content has to be copied, not only what is told of its failures."""


class Copied:
    """Finds such rows shard by shard, and remembers of which shards there are none. Loop only.

    Args:
        index: Where the copies stand.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._rewinds = 0
        self._known: dict[HeldKey, dict[int, tuple[int, int]]] = {}
        """By shard an offset and a position: every row below the one that is owed has a copy at or
        behind the other, or gets one before the segment goes that was looked at."""
        self._before: dict[HeldKey, dict[int, tuple[int, int]]] = {}
        """What was known when this segment's turn came, of queues that were not looked at since."""
        self._old: list[dict[HeldKey, dict[int, tuple[int, int]]]] = []
        """What is to be forgotten."""

    def begin(self, rewinds: int) -> None:
        """Begin to look for another segment: ``keep`` follows for each group's queue there is.

        Args:
            rewinds: ``Ledger.rewinds``.
        """
        self._discard()
        self._before, self._known = self._known, {}
        if rewinds != self._rewinds:
            self._rewinds = rewinds
            self._discard()

    def keep(self, key: HeldKey, shards: list[int]) -> None:
        """Forget all shards of a group's queue but these."""
        known = self._before.pop(key, None) or self._known.pop(key, None)
        if known and shards:
            self._known[key] = {shard: known[shard] for shard in shards if shard in known}

    def ended(self) -> None:
        """Take note that the segment went: what is known of other queues is of queues gone."""
        self._discard()

    def _discard(self) -> None:
        if self._before:
            self._old.append(self._before)
            self._before = {}

    def forget_some(self, most: int) -> bool:
        """Forget what is known of some queues that are gone; return whether there are more."""
        while self._old:
            old = self._old[-1]
            while old and most:
                old.popitem()
                most -= 1
            if old:
                return True
            self._old.pop()
        return False

    def owed(self, held: GroupQueue, shard: int, boundary: int, end: int) -> list[OwedRow]:
        """Return the rows of a shard that have to be written again before the segment goes.

        Args:
            held: What the group knows of the queue.
            shard: Number of the shard.
            boundary: The first offset of the queue that is kept in order once the segment is gone.
            end: Of the segment.

        Raises:
            WouldBlock: run the job, then ask again.
        """
        return self._look(held, shard, boundary, end)[0]

    def take(
        self, held: GroupQueue, shard: int, boundary: int, end: int, journal_end: int
    ) -> list[OwedRow]:
        """Return the same, and remember the shard: the caller will write the rows again.

        Args:
            held: See ``owed``.
            shard: See ``owed``.
            boundary: See ``owed``.
            end: See ``owed``.
            journal_end: What is written from now on stands there or behind.

        Raises:
            WouldBlock: run the job, then ask again.
        """
        found, safe, stand = self._look(held, shard, boundary, end)
        if held.cursor >= boundary > safe:
            known = self._known.setdefault((held.group, held.topic, held.queue), {})
            known[shard] = boundary, min(stand, default=journal_end)
        return found

    def _look(
        self, held: GroupQueue, shard: int, boundary: int, end: int
    ) -> tuple[list[OwedRow], int, list[int]]:
        """Return the rows, below which offset none was looked up, and where copies stand."""
        known = self._known.get((held.group, held.topic, held.queue), {})
        safe, lowest = known.get(shard, (0, 0))
        stand = [lowest]
        if lowest < end:
            safe, stand = 0, []
        whole = safe < (shard + 1) << SHARD_BITS
        rows = owed_in(held, shard, boundary if whole else 0, end)
        copies = self._index.newest_copies(
            held.topic, held.queue, [row.offset for row in rows if safe <= row.offset < boundary]
        )
        found: list[OwedRow] = []
        for row in rows:
            content = safe <= row.offset < boundary and copies.get(row.offset, 0) < end
            # Told of before the copy was written, and not again with it: the record that was to
            # follow the copy was lost in a crash. What was told still earlier may go any time.
            if content or 0 < row.position < max(end, copies.get(row.offset, 0)):
                found.append(OwedRow(row.offset, content))
        stand += [position for position in copies.values() if position >= end]
        return found, safe, stand
