"""Which owed rows would lose their content or their history if the oldest segment were removed.

A group may be owed a million rows whose only content is copies in MOVED records, and all of them
must be checked before each removal of a segment. So the result for a shard is remembered: the
lowest journal position of the copies of its rows. As long as the segment ends below that position,
nothing has to be looked up again: rows below a group's cursor that are not owed do not become owed,
except through the events that ``Ledger.rewinds`` counts.
"""

from __future__ import annotations

from typing import NamedTuple

from ternmq.broker.group.failedrows import SHARD_BITS
from ternmq.broker.group.owed import owed_in
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.views import HeldKey
from ternmq.journal.index.index import Index


class OwedRow(NamedTuple):
    """A row that must not be lost with the segment."""

    offset: int
    content: bool
    """Whether its content has to be copied; if not, only the record of its failures."""


class Copied:
    """Finds such rows shard by shard, and remembers which shards have none.

    Not thread-safe: call it from the broker's loop.

    Args:
        index: Finds the copies.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._rewinds = 0
        self._known: dict[HeldKey, dict[int, tuple[int, int]]] = {}
        """Shard -> (offset, position). Every owed row below ``offset`` has a copy at or behind
        ``position``, or is copied before the segment under examination is removed."""
        self._before: dict[HeldKey, dict[int, tuple[int, int]]] = {}
        """Results from before this segment, of group queues not yet passed to ``keep``."""
        self._old: list[dict[HeldKey, dict[int, tuple[int, int]]]] = []
        """Results that ``forget_some`` deletes piece by piece."""

    def begin(self, rewinds: int) -> None:
        """Begin with another segment; the caller then calls ``keep`` for each group queue.

        Args:
            rewinds: ``Ledger.rewinds``.
        """
        self._discard()
        self._before, self._known = self._known, {}
        if rewinds != self._rewinds:
            self._rewinds = rewinds
            self._discard()

    def keep(self, key: HeldKey, shards: list[int]) -> None:
        """Forget all shards of a group queue except ``shards``."""
        known = self._before.pop(key, None) or self._known.pop(key, None)
        if known and shards:
            self._known[key] = {shard: known[shard] for shard in shards if shard in known}

    def ended(self) -> None:
        """Note that the segment was removed: the results not passed to ``keep`` are discarded.

        Their group queues no longer exist.
        """
        self._discard()

    def _discard(self) -> None:
        if self._before:
            self._old.append(self._before)
            self._before = {}

    def forget_some(self, most: int) -> bool:
        """Delete at most ``most`` discarded results; return whether there are more."""
        while self._old:
            old = self._old[-1]
            while old and most:
                old.popitem()
                most -= 1
            if old:
                return True
            self._old.pop()
        return False

    def owed(self, progress: Progress, shard: int, boundary: int, end: int) -> list[OwedRow]:
        """Return the rows of a shard that must be copied before the segment is removed.

        Args:
            progress: The group queue.
            shard: Number of the shard.
            boundary: First offset of the queue that will remain, apart from copies, once the
                segment is removed.
            end: End of the segment.

        Raises:
            WouldBlock: run the job, then call again.
        """
        return self._look(progress, shard, boundary, end)[0]

    def take(
        self, progress: Progress, shard: int, boundary: int, end: int, journal_end: int
    ) -> list[OwedRow]:
        """Return the same as ``owed``, and remember the shard: the caller will copy the rows.

        Args:
            progress: See ``owed``.
            shard: See ``owed``.
            boundary: See ``owed``.
            end: See ``owed``.
            journal_end: End of the journal; new records begin there or behind it.

        Raises:
            WouldBlock: run the job, then call again.
        """
        found, safe, stand = self._look(progress, shard, boundary, end)
        if progress.cursor >= boundary > safe:
            known = self._known.setdefault((progress.group, progress.topic, progress.queue), {})
            known[shard] = boundary, min(stand, default=journal_end)
        return found

    def _look(
        self, progress: Progress, shard: int, boundary: int, end: int
    ) -> tuple[list[OwedRow], int, list[int]]:
        """Return the rows, the offset below which none was looked up, and positions of copies."""
        known = self._known.get((progress.group, progress.topic, progress.queue), {})
        safe, lowest = known.get(shard, (0, 0))
        stand = [lowest]
        if lowest < end:
            safe, stand = 0, []
        whole = safe < (shard + 1) << SHARD_BITS
        rows = owed_in(progress, shard, boundary if whole else 0, end)
        copies = self._index.newest_copies(
            progress.topic,
            progress.queue,
            [row.offset for row in rows if safe <= row.offset < boundary],
        )
        found: list[OwedRow] = []
        for row in rows:
            content = safe <= row.offset < boundary and copies.get(row.offset, 0) < end
            # Also a row whose newest failure is recorded in the segment, or before its copy. In the
            # second case the record of the failure that was to follow the copy was lost in a crash,
            # and the older one may be removed at any time.
            if content or 0 < row.position < max(end, copies.get(row.offset, 0)):
                found.append(OwedRow(row.offset, content))
        stand += [position for position in copies.values() if position >= end]
        return found, safe, stand
