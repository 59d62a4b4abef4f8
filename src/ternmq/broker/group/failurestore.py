"""The failed rows of one (group, queue): those that wait for a retry, and dead letters.

They are stored in shards (`failedrows`), so that a million take 20 MB. Due times are kept per
shard, not per row: a heap has the time at which each shard is to be examined again for rows whose
time has come. These rows stay in their shard and are listed as *due* until a pull takes them; in
ordered groups, the lines keep track of them instead.

Also here: the *history* of rows that failed before and are leased or ready again: the position of
the record of their newest failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.group.failedrows import HELD_US, SHARD_BITS, Failure, FailureRows
from ternmq.broker.group.order import Order
from ternmq.record.fact.facts import LeasedRun, Outcome, Span

_NEVER: Final = 1 << 63
DUE_ROWS: Final = 4096
"""Due rows after which one search stops, unless more are wanted: less than a millisecond."""
# Members as globals of the module: looking one up in its class takes 0.2 us (Python 3.11).
_DEAD: Final = Outcome.DEAD
_HELD: Final = Outcome.HELD


class FailureStore:
    """Failed rows by shard.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = (
        "_due",
        "_due_at",
        "_due_known",
        "dead",
        "dead_rows",
        "due_found",
        "due_rows",
        "held_rows",
        "history",
        "waiting",
        "waiting_rows",
    )

    def __init__(self) -> None:
        self.waiting: dict[int, FailureRows] = {}
        """Shard -> the rows that wait for a retry."""
        self.dead: dict[int, FailureRows] = {}
        """Shard -> the dead letters."""
        self.history: dict[int, int] = {}
        """Offset -> newest failure record, of rows that failed before and are leased or ready."""
        self.waiting_rows = 0
        self.dead_rows = 0
        self.held_rows = 0
        """Of the waiting rows, those that wait for an operator."""
        self.due_found = 0
        """Number of waiting rows found to be due. Rows that nobody found yet (``look_for_due``
        stops at ``DUE_ROWS``) do not count."""
        # Empty in most of 100,000 stores: a list takes 56 bytes, a deque 760; a dict 64, a set 216.
        self.due_rows: list[int] = []
        self._due: list[tuple[int, int]] = []  # (time, shard): when to examine a shard again
        self._due_at: dict[int, int] = {}  # the earliest time of each shard; others are stale
        self._due_known: dict[int, None] = {}

    # -- changes ----------------------------------------------------------------------------------

    def put(self, position: int, outcome: Outcome, run: LeasedRun, due_us: int) -> None:
        """Store rows as waiting (held ones wait for an operator) or as dead."""
        start, stop, attempt, deliveries = run
        when_us = HELD_US if outcome is _HELD else due_us
        shards = self.dead if outcome is _DEAD else self.waiting
        for offset in range(start, stop):
            key = offset >> SHARD_BITS
            rows = shards.get(key)
            if rows is None:
                rows = shards[key] = FailureRows(key << SHARD_BITS)
            rows.put(Failure(offset, when_us, attempt, deliveries, position))
            if when_us <= rows.due_us and outcome is not _DEAD:
                rows.due += 1
                self.due_found += 1
        if outcome is _DEAD:
            self.dead_rows += stop - start
            return
        self.waiting_rows += stop - start
        if outcome is _HELD:
            self.held_rows += stop - start
        for key in range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1):
            self._look_at(key, when_us)

    def take(self, start: int, stop: int, *, keep_history: bool) -> None:
        """Remove the rows of a run that wait or are dead, if any."""
        for key in range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1):
            rows = self.waiting.get(key)
            if rows is not None:
                if keep_history:
                    self.history.update(rows.positions_in(start, stop))
                if rows.due:
                    fetched = rows.due_in(start, stop)
                    rows.due -= fetched
                    self.due_found -= fetched
                if self.held_rows:
                    self.held_rows -= rows.held_in(start, stop)
                self.waiting_rows -= rows.remove(start, stop)
                if not len(rows):
                    del self.waiting[key]
            rows = self.dead.get(key)
            if rows is not None:
                if keep_history:
                    self.history.update(rows.positions_in(start, stop))
                self.dead_rows -= rows.remove(start, stop)
                if not len(rows):
                    del self.dead[key]

    def forget_history(self, start: int, stop: int) -> None:
        """Forget that rows failed before."""
        for offset in range(start, stop):
            self.history.pop(offset, None)

    def forget_all(self, cursor: int, discarded: Discarded) -> None:
        """Remove all waiting rows, all history, and the dead rows from an offset on."""
        discarded.put(self.waiting, self.history)
        discarded.put(self._due, self._due_at, self.due_rows, self._due_known)
        self.waiting, self.waiting_rows, self.due_found, self.history = {}, 0, 0, {}
        self.held_rows = 0
        self._due, self._due_at, self.due_rows, self._due_known = [], {}, [], {}
        if self.dead and cursor <= min(self.dead) << SHARD_BITS:
            discarded.put(self.dead)
            self.dead, self.dead_rows = {}, 0
        else:
            self.forget_dead(cursor, _NEVER)

    def forget_waiting(self, low: int, high: int) -> list[Span]:
        """Remove the waiting rows of whole shards; return the rows."""
        gone: list[Span] = []
        for key in [key for key in self.waiting if low <= key << SHARD_BITS < high]:
            rows = self.waiting.pop(key)
            gone += [(row.offset, row.offset + 1) for row in rows]
            self.waiting_rows -= len(rows)
            self.due_found -= rows.due
            self.held_rows -= rows.held()
        return gone

    def forget_dead(self, start: int, stop: int) -> list[int]:
        """Remove the dead rows of a span; return the shards that overlap it."""
        keys = [
            key
            for key in sorted(self.dead)
            if key << SHARD_BITS < stop and start < (key + 1) << SHARD_BITS
        ]
        for key in keys:
            self.dead_rows -= self.dead[key].remove(start, stop)
            if not len(self.dead[key]):
                del self.dead[key]
        return keys

    def refer(self, offset: int, position: int) -> None:
        """Set the position of the record of a row's failures."""
        key = offset >> SHARD_BITS
        for shards in (self.waiting, self.dead):
            if key in shards:
                shards[key].refer(offset, position)
        if offset in self.history:
            self.history[offset] = position

    def look_anew(self) -> None:
        """Have ``look_for_due`` find all waiting rows again, also those that it has found before.

        Once everything is replayed, and when the order changes. O(shards).
        """
        self._due_at = {key: rows.first_us() for key, rows in self.waiting.items()}
        self._due = sorted((when_us, key) for key, when_us in self._due_at.items())
        self.due_rows.clear()
        self._due_known.clear()

    # -- coming due -------------------------------------------------------------------------------

    def _look_at(self, shard: int, when_us: int) -> None:
        """Have ``look_for_due`` examine a shard at a time, unless it will do so earlier."""
        if when_us < self._due_at.get(shard, _NEVER):
            self._due_at[shard] = when_us
            heappush(self._due, (when_us, shard))

    def look_for_due(self, now_us: int, wanted: int, order: Order) -> int:
        """Find the waiting rows that have come due; return how many were found.

        Stops at ``wanted`` rows (or ``DUE_ROWS``, if that is more), so that a million rows that
        come due together neither make a long turn nor are in memory twice. The next call finds the
        others: until then, ``next_timer_us`` is not after ``now_us``.
        """
        most = max(wanted, DUE_ROWS)
        looked = 0
        while self._due and self._due[0][0] <= now_us:
            if looked >= most or len(self.due_rows) >= most:
                break
            when_us, key = heappop(self._due)
            if self._due_at.get(key) != when_us:
                continue
            del self._due_at[key]
            rows = self.waiting.get(key)
            if rows is None or not len(rows):
                continue
            found = rows.until(now_us)
            self.due_found += len(found) - rows.due
            rows.due, rows.due_us = len(found), now_us
            looked += len(found)
            for offset in order.come_due(found):
                if offset not in self._due_known:
                    self._due_known[offset] = None
                    self.due_rows.append(offset)
            later = rows.later_us(now_us)
            if later is not None:
                self._look_at(key, later)
        return looked

    def due(self, now_us: int, limit: int, order: Order) -> list[Failure]:
        """Return waiting rows whose time has come, at most ``limit``; they stay until pulled."""
        self.look_for_due(now_us, limit, order)
        found: list[Failure] = []
        looked = 0
        for offset in self.due_rows:
            if len(found) >= limit:
                break
            looked += 1
            row = self.failure(offset)
            if row is not None and row.when_us <= now_us:
                found.append(row)
            else:
                self._due_known.pop(offset, None)
        self.due_rows[:looked] = [row.offset for row in found]
        return found

    def next_due_us(self) -> int | None:
        """Return when the next waiting row may come due, or None; 0 if one is due."""
        return 0 if self.due_rows else self.next_timer_us()

    def next_timer_us(self) -> int | None:
        """Return when a shard is to be examined again for waiting rows, or None."""
        return self._due[0][0] if self._due else None

    # -- what is there ----------------------------------------------------------------------------

    def failure(self, offset: int) -> Failure | None:
        """Return the row if it waits for a retry."""
        rows = self.waiting.get(offset >> SHARD_BITS)
        return rows.get(offset) if rows is not None else None

    def dead_letter(self, offset: int) -> Failure | None:
        """Return the row if it is dead."""
        rows = self.dead.get(offset >> SHARD_BITS)
        return rows.get(offset) if rows is not None else None

    def dead_deliveries(self, offsets: Sequence[int]) -> dict[int, int]:
        """Return how often dead rows were delivered, by offset.

        Args:
            offsets: Ascending. Rows that are not dead are left out; dead rows of the same shards
                that are not among them may be in the result.
        """
        found: dict[int, int] = {}
        for key in sorted({offset >> SHARD_BITS for offset in offsets}):
            rows = self.dead.get(key)
            if rows is not None:
                found.update(rows.deliveries_in(offsets[0], offsets[-1] + 1))
        return found

    def dead_offsets(self, *, after: int, limit: int) -> list[int]:
        """Return the offsets of dead rows behind an offset, at most ``limit``."""
        found: list[int] = []
        for key in sorted(self.dead):
            if len(found) >= limit:
                break
            if (key + 1) << SHARD_BITS > after + 1:
                found += self.dead[key].offsets_from(after + 1, limit - len(found))
        return found

    def failed(self, *, dead: bool, after: int) -> Iterator[Failure]:
        """Yield the dead or the waiting rows behind an offset; do not change them meanwhile."""
        shards = self.dead if dead else self.waiting
        for key in sorted(shards):
            if (key + 1) << SHARD_BITS > after + 1:
                yield from shards[key].span(after + 1, (key + 1) << SHARD_BITS)

    def failed_in(self, start: int, stop: int) -> list[Failure]:
        """Return the rows of a span within one shard that wait or are dead, by offset."""
        key = start >> SHARD_BITS
        found: list[Failure] = []
        for rows in (self.waiting.get(key), self.dead.get(key)):
            if rows is not None:
                found += rows.span(start, stop)
        return sorted(found)

    def shard_rows(self, key: int) -> int:
        """Return the number of rows of a shard that wait or are dead."""
        shards = (self.waiting.get(key), self.dead.get(key))
        return sum([len(rows) for rows in shards if rows is not None])

    def dead_before(self, when_us: int, limit: int) -> list[Failure]:
        """Return rows that became dead before a time, at most ``limit``."""
        found: list[Failure] = []
        for key in sorted(self.dead):
            rows = self.dead[key]
            if rows.first_us() < when_us:
                found += [row for row in rows if row.when_us < when_us]
                if len(found) >= limit:
                    return found[:limit]
        return found
