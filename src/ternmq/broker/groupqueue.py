"""What one consumer group holds of one queue, and how facts change it.

Rows below the ``cursor`` are done unless they are *owed*: leased, ready (released, or parked behind
a busy key), waiting for a retry, or dead. Rows at or above it were never handed out, but those in
``ahead`` were settled all the same (their hand-out was lost with a power cut) and will be passed
over. Progress is therefore the cursor and a few runs, however many messages went by.

The rows are cut into **shards** of ``SHARD_ROWS`` offsets, which are objects of their own in STATE.
While a journal is replayed, a fact changes only the shards (and the cursor) whose chunk was written
before it; ``_admitted`` sees to that, and is the identity once the newest chunk is behind.

Deterministic, no I/O. Facts are decided elsewhere (`delivery`); here they are only applied.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from ternmq.broker.failures import HELD_US, SHARD_BITS, SHARD_ROWS, Failure, FailureRows
from ternmq.broker.lease import LEASE_BITS, Lease, Owed
from ternmq.broker.lines import Lines
from ternmq.broker.runs import RunList, SpanSet, row_count, split, split_all, union
from ternmq.record.facts import (
    CursorMoved,
    Extended,
    LeasedRun,
    Move,
    Outcome,
    Pulled,
    Settled,
    Span,
)

_MAIN: Final = struct.Struct("<QII")  # cursor, round, 1 if ordered
_FOREVER: Final = 1 << 63
DUE_ROWS: Final = 4096
"""Rows that are looked at in one go when they come due: below a millisecond."""
# Members by name of the module: to look one up in its class takes 0.2 us (Python 3.11).
_DONE: Final = Outcome.DONE
_DEAD: Final = Outcome.DEAD
_RELEASED: Final = Outcome.RELEASED
_HELD: Final = Outcome.HELD


class GroupQueue:
    """The view of one (group, topic, queue)."""

    __slots__ = (
        "_by_shard",
        "_due",
        "_due_at",
        "_due_known",
        "ahead",
        "changed",
        "cursor",
        "dead",
        "dead_rows",
        "due_armed_us",
        "due_rows",
        "expired_rows",
        "group",
        "history",
        "lease_armed_us",
        "leased_rows",
        "leases",
        "lines",
        "load_until",
        "queue",
        "ready",
        "round",
        "scan",
        "scan_since_us",
        "shard_changed",
        "stamp",
        "stamps",
        "topic",
        "turn_to_fresh",
        "waiting",
        "waiting_rows",
    )

    def __init__(
        self, group: int, topic: int, queue: int, cursor: int, *, ordered: bool = False
    ) -> None:
        self.group = group
        self.topic = topic
        self.queue = queue
        self.cursor = cursor
        self.round = 0
        self.ahead = SpanSet()
        self.leases: dict[int, Lease] = {}
        self.ready = RunList()
        self.waiting: dict[int, FailureRows] = {}
        self.dead: dict[int, FailureRows] = {}
        self.history: dict[int, int] = {}
        """Offset -> newest failure record, of rows that failed before and are leased or ready."""
        self.lines = Lines() if ordered else None
        self.leased_rows = 0
        self.waiting_rows = 0
        self.dead_rows = 0
        self.expired_rows = 0
        # STATE and replay.
        self.changed = 0
        self.stamp = 0
        self.stamps: dict[int, int] = {}
        self.load_until = 0
        self.shard_changed: dict[int, int] = {}
        self._by_shard: dict[int, list[tuple[LeasedRun, Lease]]] | None = None
        # Volatile.
        self.scan = 0
        self.scan_since_us = 0
        self.due_rows: deque[int] = deque()
        self._due: list[tuple[int, int]] = []  # (time, shard): when to look at a shard again
        self._due_at: dict[int, int] = {}  # of each shard the earliest of them; others are stale
        self._due_known: set[int] = set()
        self.lease_armed_us = _FOREVER
        self.due_armed_us = _FOREVER
        self.turn_to_fresh = False

    # -- facts --------------------------------------------------------------------------------

    def apply_pulled(self, position: int, epoch: int, fact: Pulled) -> None:
        """Rows were handed out."""
        if position >= self.stamp:
            self.changed = position
            if fact.cursor > self.cursor:
                self.cursor = fact.cursor
                if self.ahead.starts:
                    self.ahead.remove(0, fact.cursor)
        lease_id = epoch << LEASE_BITS | fact.lease
        leased: Sequence[LeasedRun] = fact.leased
        if position < self.load_until:
            leased = self._admitted_runs(position, leased)
        if leased:
            lease = self.leases.get(lease_id)
            if lease is None:
                self.leases[lease_id] = Lease(lease_id, fact.session, fact.until_us, list(leased))
            else:
                lease.runs.extend(leased)
                if fact.until_us > lease.until_us:
                    lease.until_us = fact.until_us
            for start, stop, _, _ in leased:
                if self.ready.runs:
                    self.ready.take(start, stop)
                if self.waiting_rows or self.dead_rows:
                    self._unfail(start, stop, keep_history=True)
                self._touch(position, start, stop)
                self.leased_rows += stop - start
        if self.lines is not None:
            self._line_up(position, fact)

    def _line_up(self, position: int, fact: Pulled) -> None:
        assert self.lines is not None
        hashes = iter(fact.hashes)
        for start, stop, _, _ in fact.leased:
            for offset in range(start, stop):
                hash_ = next(hashes)
                if self._admits(position, offset):
                    self.lines.stand(offset, hash_)
                    self.lines.lease(offset)
        for start, stop in fact.parked:
            for offset in range(start, stop):
                hash_ = next(hashes)
                if self._admits(position, offset):
                    self.lines.stand(offset, hash_)
            for low, high in self._admitted(position, start, stop):
                self.ready.add(low, high, 1, 0)
                self._touch(position, low, high)

    def apply_settled(self, position: int, fact: Settled) -> None:
        """A consumer, an operator, the clock or a key said what became of rows."""
        lease = self.leases.get(fact.lease_epoch << LEASE_BITS | fact.lease)
        outcome = fact.outcome
        if (
            outcome is _DONE
            and lease is not None
            and lease.runs == fact.runs
            and position >= self.load_until
            and self.lines is None
            and not self.history
        ):  # the whole lease, nothing ever failed: the common case
            del self.leases[lease.id]
            for start, stop, _, _ in lease.runs:
                self.leased_rows -= stop - start
                self._touch(position, start, stop)
            return
        runs: Sequence[LeasedRun] = fact.runs
        if position < self.load_until:
            runs = self._admitted_runs(position, runs)
        if lease is not None:
            self._take_back(lease, runs)
            if not lease.runs and not self.stamps:
                del self.leases[lease.id]
        for run in runs:
            self._settle(position, fact, run)

    def _take_back(self, lease: Lease, runs: Sequence[LeasedRun]) -> None:
        """Take rows out of a lease that ends for them."""
        if len(runs) == 1:
            lease.runs, given_back = split(lease.runs, *runs[0][:2])
        else:
            lease.runs, given_back = split_all(lease.runs, union([run[:2] for run in runs]))
        self.leased_rows -= row_count(given_back)
        if self.lines is not None:
            for start, stop, _, _ in given_back:
                for offset in range(start, stop):
                    self.lines.give_back(offset)

    def _settle(self, position: int, fact: Settled, run: LeasedRun) -> None:
        start, stop, attempt, deliveries = run
        self._touch(position, start, stop)
        if self.ready.runs:
            self.ready.take(start, stop)
        if self.waiting_rows or self.dead_rows:
            self._unfail(start, stop, keep_history=fact.outcome is _RELEASED)
        if stop > self.cursor:
            self.ahead.add(max(start, self.cursor), stop)
        if fact.outcome is _RELEASED:
            self.ready.add(start, stop, attempt, deliveries)
        elif self.history:
            for offset in range(start, stop):
                self.history.pop(offset, None)
        if self.lines is not None:
            self._settle_lines(fact.outcome, start, stop)
        if fact.outcome is not _DONE and fact.outcome is not _RELEASED:
            when_us = HELD_US if fact.outcome is _HELD else fact.due_us
            self._fail(position, fact.outcome, run, when_us)

    def _settle_lines(self, outcome: Outcome, start: int, stop: int) -> None:
        lines = self.lines
        assert lines is not None
        if outcome in (_DONE, _DEAD):
            for offset in range(start, stop):
                lines.leave(offset)
        elif outcome is _RELEASED:
            for offset in range(start, stop):
                lines.offer(offset)

    def _fail(self, position: int, outcome: Outcome, run: LeasedRun, when_us: int) -> None:
        """Put rows among those that wait, or that are dead."""
        start, stop, attempt, deliveries = run
        shard = self.dead if outcome is _DEAD else self.waiting
        for offset in range(start, stop):
            key = offset >> SHARD_BITS
            rows = shard.get(key)
            if rows is None:
                rows = shard[key] = FailureRows(key << SHARD_BITS)
            rows.put(Failure(offset, when_us, attempt, deliveries, position))
        if outcome is _DEAD:
            self.dead_rows += stop - start
            return
        self.waiting_rows += stop - start
        for key in range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1):
            self._look_at(key, when_us)

    def _look_at(self, shard: int, when_us: int) -> None:
        """Let ``look_for_due`` look at a shard at that time, if it would not do so before."""
        if when_us < self._due_at.get(shard, _FOREVER):
            self._due_at[shard] = when_us
            heappush(self._due, (when_us, shard))

    def apply_extended(self, position: int, fact: Extended) -> None:
        """A lease lasts longer."""
        lease = self.leases.get(fact.lease_epoch << LEASE_BITS | fact.lease)
        if lease is not None and fact.until_us > lease.until_us:
            lease.until_us = fact.until_us
            for start, stop, _, _ in lease.runs:
                self._touch(position, start, stop)

    def apply_cursor(self, position: int, fact: CursorMoved) -> None:
        """The cursor was moved by other means than a pull.

        A reset makes every row from the new cursor on unread and forgets what was leased, ready or
        waiting anywhere; dead letters below it stay. The other moves only go forward.
        """
        if position >= self.stamp:
            self.changed = position
            if fact.move is Move.RESET:
                self.cursor = fact.cursor
                self.round = fact.round
            else:
                self.cursor = max(self.cursor, fact.cursor)
            self.scan = 0
        if fact.move is not Move.RESET:
            if self.ahead:
                self.ahead.remove(0, self.cursor)
            return
        for low, high in self._admitted(position, 0, _FOREVER):
            self._forget(position, low, high, fact.cursor)
        self.leases = {id_: lease for id_, lease in self.leases.items() if lease.runs}

    def _forget(self, position: int, low: int, high: int, cursor: int) -> None:
        gone: list[Span] = []
        for lease in self.leases.values():
            lease.runs, inside = split(lease.runs, low, high)
            gone += [run[:2] for run in inside]
            self.leased_rows -= sum([run[1] - run[0] for run in inside])
        if self.lines is not None:
            for start, stop in gone:
                for offset in range(start, stop):
                    self.lines.give_back(offset)
        gone += [run[:2] for run in self.ready.take(low, high)]
        for key in [key for key in self.waiting if low <= key << SHARD_BITS < high]:
            rows = self.waiting.pop(key)
            gone += [(row.offset, row.offset + 1) for row in rows]
            self.waiting_rows -= len(rows)
        for key in sorted(self.dead):
            start = max(low, cursor)
            if key << SHARD_BITS < high and start < (key + 1) << SHARD_BITS:
                self.dead_rows -= self.dead[key].remove(start, high)
                self._touch(position, key << SHARD_BITS, (key << SHARD_BITS) + 1)
                if not len(self.dead[key]):
                    del self.dead[key]
        for start, stop in self.ahead:
            if low < stop and start < high:
                gone.append((start, stop))
        self.ahead.remove(low, high)
        for start, stop in gone:
            self._touch(position, start, stop)
            for offset in range(start, stop):
                self.history.pop(offset, None)
                if self.lines is not None:
                    self.lines.leave(offset)

    def apply_moved(self, position: int, offset: int) -> None:
        """What is told of a row's failures stands in a MOVED record from now on."""
        if not self._admits(position, offset):
            return
        key = offset >> SHARD_BITS
        for shard in (self.waiting, self.dead):
            if key in shard:
                shard[key].refer(offset, position)
        if offset in self.history:
            self.history[offset] = position
        self._touch(position, offset, offset + 1)

    # -- what is there ------------------------------------------------------------------------

    def look_for_due(self, now_us: int, wanted: int = 0) -> int:
        """Find out which waiting rows have come due; return how many rows were found.

        Goes on until ``wanted`` rows (or ``DUE_ROWS``, if that is more) are known, so that a
        million that come due together neither make a long turn nor are held in memory twice. What
        is not found now is found by the next call: ``next_timer_us`` is not after ``now_us`` then.
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
            for offset in rows.until(now_us):
                looked += 1
                if self.lines is not None:
                    self.lines.offer(offset)
                elif offset not in self._due_known:
                    self._due_known.add(offset)
                    self.due_rows.append(offset)
            later = rows.later_us(now_us)
            if later is not None:
                self._look_at(key, later)
        return looked

    def due(self, now_us: int, limit: int) -> list[Failure]:
        """Return waiting rows whose time has come, at most ``limit``; they stay until pulled."""
        self.look_for_due(now_us, limit)
        found: list[Failure] = []
        while self.due_rows and len(found) < limit:
            offset = self.due_rows.popleft()
            row = self.failure(offset)
            if row is not None and row.when_us <= now_us:
                found.append(row)
            else:
                self._due_known.discard(offset)
        self.due_rows.extendleft([row.offset for row in reversed(found)])
        return found

    def next_due_us(self) -> int | None:
        """Return when the next waiting row may come due, or None."""
        if self.due_rows:
            return 0
        return self._due[0][0] if self._due else None

    def next_timer_us(self) -> int | None:
        """Return when a shard is to be looked at again for waiting rows, or None."""
        return self._due[0][0] if self._due else None

    def dead_before(self, when_us: int, limit: int) -> list[Failure]:
        """Return rows that died before a time, at most ``limit``."""
        found: list[Failure] = []
        for key in sorted(self.dead):
            rows = self.dead[key]
            if rows.first_us() < when_us:
                found += [row for row in rows if row.when_us < when_us]
                if len(found) >= limit:
                    return found[:limit]
        return found

    def failed(self, *, dead: bool, after: int) -> Iterator[Failure]:
        """Yield the dead rows, or those that wait, behind an offset; do not change it meanwhile."""
        shard = self.dead if dead else self.waiting
        for key in sorted(shard):
            if (key + 1) << SHARD_BITS > after + 1:
                yield from shard[key].span(after + 1, (key + 1) << SHARD_BITS)

    def owed_in(self, key: int, below: int, told_below: int) -> list[Owed]:
        """Return the owed rows of a shard that the going of a segment would touch.

        Those with an offset below ``below``, and those whose newest failure is told of in a record
        below ``told_below``.
        """
        base = key << SHARD_BITS
        end = base + SHARD_ROWS
        found: list[Owed] = []
        for rows in (self.waiting.get(key), self.dead.get(key)):
            if rows is not None and (base < below or rows.oldest_told() < told_below):
                found += [
                    Owed(row.offset, row.position, row.attempt, row.deliveries, row.when_us)
                    for row in rows
                    if row.offset < below or row.position < told_below
                ]
        if base < below or self.history:
            runs = [run for run, _ in self.leases_by_shard().get(key, ())]
            runs += [run for run in self.ready.runs if run[0] < end and run[1] > base]
            for start, stop, attempt, deliveries in sorted(runs):
                for offset in range(max(start, base), min(stop, end)):
                    position = self.history.get(offset, 0)
                    if offset < below or 0 < position < told_below:
                        found.append(Owed(offset, position, attempt, deliveries, 0))
        return found

    def owed_row(self, offset: int) -> Owed | None:
        """Return the row if it is owed."""
        row = self.failure(offset) or self.dead_letter(offset)
        if row is not None:
            return Owed(offset, row.position, row.attempt, row.deliveries, row.when_us)
        for lease in self.leases.values():
            for start, stop, attempt, deliveries in lease.runs:
                if start <= offset < stop:
                    return Owed(offset, self.history.get(offset, 0), attempt, deliveries, 0)
        run = self.ready.find(offset)
        if run is not None:
            return Owed(offset, self.history.get(offset, 0), run[2], run[3], 0)
        return None

    def failure(self, offset: int) -> Failure | None:
        """Return the row if it waits for a retry."""
        rows = self.waiting.get(offset >> SHARD_BITS)
        return rows.get(offset) if rows is not None else None

    def dead_letter(self, offset: int) -> Failure | None:
        """Return the row if it is dead."""
        rows = self.dead.get(offset >> SHARD_BITS)
        return rows.get(offset) if rows is not None else None

    def crowded(self, limit: int) -> bool:
        """Return whether so many runs are open that nothing more may be handed out."""
        return len(self.leases) + len(self.ready.runs) + len(self.ahead.starts) >= limit

    def open_runs(self) -> int:
        """Return how many leases, ready runs and runs ahead of the cursor there are."""
        return len(self.leases) + len(self.ready.runs) + len(self.ahead.starts)

    def floor(self) -> int:
        """Return the offset below which every row is done, dead, or in the failure store."""
        floor = self.cursor
        if self.ready:
            floor = min(floor, self.ready.runs[0][0])
        for lease in self.leases.values():
            for run in lease.runs:
                floor = min(floor, run[0])
        return floor

    def finished(self, offset: int) -> bool:
        """Return whether the floor is at or above an offset; cheap where nothing is in hand."""
        if self.cursor < offset:
            return False
        return (not self.leases and not self.ready) or self.floor() >= offset

    def intervals(self) -> int:
        """Return how many runs of settled rows there are: 1 when nothing is owed."""
        edges = len(self.ready) + len(self.ahead)
        edges += sum([len(lease.runs) for lease in self.leases.values()])
        return edges + self.waiting_rows + self.dead_rows + 1

    # -- bookkeeping --------------------------------------------------------------------------

    def _touch(self, position: int, start: int, stop: int) -> None:
        """Note that a record said something of these rows."""
        self._by_shard = None
        first = start >> SHARD_BITS
        last = stop - 1 >> SHARD_BITS
        self.shard_changed[first] = position
        while first < last:
            first += 1
            self.shard_changed[first] = position

    def _unfail(self, start: int, stop: int, *, keep_history: bool) -> None:
        first, last = start >> SHARD_BITS, stop - 1 >> SHARD_BITS
        for key in range(first, last + 1):
            rows = self.waiting.get(key)
            if rows is not None:
                if keep_history:
                    for row in rows.span(start, stop):
                        self.history[row.offset] = row.position
                self.waiting_rows -= rows.remove(start, stop)
                if not len(rows):
                    del self.waiting[key]
            rows = self.dead.get(key)
            if rows is not None:
                self.dead_rows -= rows.remove(start, stop)
                if not len(rows):
                    del self.dead[key]

    def _admits(self, position: int, offset: int) -> bool:
        return position >= self.load_until or position >= self.stamps.get(offset >> SHARD_BITS, 0)

    def _admitted(self, position: int, start: int, stop: int) -> Iterable[Span]:
        if position >= self.load_until:
            return ((start, stop),)
        spans: list[Span] = []
        low = start
        stamps = self.stamps
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

    def _admitted_runs(self, position: int, runs: Sequence[LeasedRun]) -> list[LeasedRun]:
        return [
            (low, high, attempt, deliveries)
            for start, stop, attempt, deliveries in runs
            for low, high in self._admitted(position, start, stop)
        ]

    # -- STATE --------------------------------------------------------------------------------

    def shards(self) -> list[int]:
        """Return the numbers of the shards that hold anything, sorted."""
        keys = set(self.waiting) | set(self.dead)
        for lease in self.leases.values():
            for start, stop, _, _ in lease.runs:
                keys.update(range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1))
        for start, stop, _, _ in self.ready.runs:
            keys.update(range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1))
        for start, stop in self.ahead:
            keys.update(range(start >> SHARD_BITS, (stop - 1 >> SHARD_BITS) + 1))
        return sorted(keys)

    def encode_main(self) -> bytes:
        """Return the object that holds the cursor: ``u64 cursor, u32 round, u32 ordered``."""
        return _MAIN.pack(self.cursor, self.round, self.lines is not None)

    def load_main(self, payload: bytes, stamp: int) -> None:
        """Take over the cursor as it was at ``stamp``."""
        self.cursor, self.round, ordered = _MAIN.unpack_from(payload)
        if ordered and self.lines is None:
            self.lines = Lines()
        self.stamp = stamp
        self.load_until = max(self.load_until, stamp)

    def leases_by_shard(self) -> dict[int, list[tuple[LeasedRun, Lease]]]:
        """Return the leased runs of each shard; kept until the next change."""
        if self._by_shard is None:
            self._by_shard = {}
            for lease in self.leases.values():
                for run in lease.runs:
                    for number in range(run[0] >> SHARD_BITS, (run[1] - 1 >> SHARD_BITS) + 1):
                        self._by_shard.setdefault(number, []).append((run, lease))
        return self._by_shard

    def finish_load(self) -> None:
        """Make what is derived, once everything is replayed."""
        self.leases = {id_: lease for id_, lease in self.leases.items() if lease.runs}
        for lease in self.leases.values():
            lease.runs = sorted(lease.runs)
        self.ahead.remove(0, self.cursor)
        self.stamps.clear()
        self.load_until = 0
        self.stamp = 0
        self._due_at = {key: rows.first_us() for key, rows in self.waiting.items()}
        self._due = sorted((when_us, key) for key, when_us in self._due_at.items())
        self.due_rows.clear()
        self._due_known.clear()
        if self.lines is not None:
            self.lines.offer_all()
