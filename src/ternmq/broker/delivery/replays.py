"""Decides replays and redrives: rows that a group has received are delivered to it again.

A replay names offsets, whatever their state; a redrive names dead letters. Both become one REPLAY
record per queue: from then on the rows are ready, as a new round, with attempt 1. Leases of these
rows end for them, so that receipts and settles of the round before are refused. Rows above the
cursor are unread anyway and stay as they are; rows removed by retention are reported as expired.
(After a power cut, rows above the cursor may be settled: they become unread again, or ready if they
are owed.)

In an ordered group the rows are put into their keys' lines by offset, before everything that was
not delivered yet; leased rows of the key after them are released first. This, and a filter,
requires that records are read: so a command examines a bounded piece and names the rest.

*Planning* changes nothing, so a plan may raise ``WouldBlock`` and be made again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.catalog.filter import NOT_JUDGED, Judge
from ternmq.broker.delivery.settles import Settling, released
from ternmq.broker.group.failedrows import SHARD_BITS, SHARD_ROWS
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import merge, missing, row_count, split_all, union
from ternmq.broker.group.shards import shards_of
from ternmq.broker.ledger.factkinds import REPLAY, SETTLED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.index.tail import Places
from ternmq.model.errors import CorruptJournal, ReplayTooLarge
from ternmq.record.batch.batch import Batch
from ternmq.record.fact import messages, moved
from ternmq.record.fact.facts import Cause as SettleCause
from ternmq.record.fact.facts import LeasedRun, Span
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.replay import Cause, Replayed

READ_ROWS: Final = 512
"""Rows that one command reads, or failed rows that it examines: some 10 ms."""
MOST_RUNS: Final = 512
"""Runs of one record, each of which changes the views: some 10 ms."""
MOST_ROWS: Final = 128 * SHARD_ROWS
"""Rows of one record: some 10 ms, however few the runs are."""


@dataclass(slots=True)
class ReplayPlan:
    """The effect of a replay of one queue."""

    progress: Progress
    runs: list[LeasedRun] = field(default_factory=list)
    """Rows that are delivered again: attempt 1, and the deliveries that are still known."""
    hashes: list[int] = field(default_factory=list)
    """In ordered groups, the ordering hash of each row."""
    ahead: list[Span] = field(default_factory=list)
    """Rows above the cursor that were settled: they become unread again."""
    unread: int = 0
    """Number of rows above the cursor that were not settled: they will be delivered anyway."""
    expired: int = 0
    """Number of rows that retention removed."""
    filtered: int = 0
    """Number of rows that the group's filter excludes."""
    rest: list[Span] = field(default_factory=list)
    """Spans that were not examined: request them again."""
    refused: list[int] = field(default_factory=list)
    """For a redrive: offsets that are no dead letters."""
    looked: int = 0
    """Work done: rows that were examined one by one, and runs."""

    @property
    def rows(self) -> int:
        """Number of rows that are delivered again."""
        return row_count(self.runs) + sum([stop - start for start, stop in self.ahead])


class Replaying:
    """Plans and records replays and redrives.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_settling")

    def __init__(self, ledger: Ledger, settling: Settling) -> None:
        self._ledger = ledger
        self._settling = settling

    # -- plans ------------------------------------------------------------------------------------

    def plan(
        self, subscription: Subscription, queue: Queue, progress: Progress, spans: Sequence[Span]
    ) -> ReplayPlan:
        """Return the effect of a replay of these offsets.

        Raises:
            ReplayTooLarge: too many rows would wait.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        plan = ReplayPlan(progress)
        below: list[Span] = []
        above: list[Span] = []
        for start, end in union(spans):
            stop = min(end, queue.next)
            if start < min(stop, progress.cursor):
                below.append((start, min(stop, progress.cursor)))
            if max(start, progress.cursor) < stop:
                above.append((max(start, progress.cursor), stop))
        if subscription.filter is None:
            self._check_room(progress, [(max(start, queue.first), stop) for start, stop in below])
        reader = _Reader(self._ledger, subscription, queue, progress)
        rows = 0
        for start, stop in _pieces(below, queue.first, progress):
            rows += stop - start if stop > queue.first else 0
            done = self._piece(plan, reader, start, stop) if rows <= MOST_ROWS else start
            if done < stop:
                plan.rest = [(max(low, done), high) for low, high in below if high > done]
                plan.rest += above
                break
        else:
            for start, stop in above:
                self._above(plan, start, stop)
        plan.runs = merge(plan.runs)
        plan.looked = READ_ROWS - reader.rows + len(plan.runs) + len(below)
        self._check(plan)
        return plan

    def plan_redrive(
        self, subscription: Subscription, queue: Queue, progress: Progress, offsets: Iterable[int]
    ) -> ReplayPlan:
        """Return the effect of a redrive of dead letters.

        Raises:
            ReplayTooLarge: too many rows would wait.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        plan = ReplayPlan(progress)
        reader = _Reader(self._ledger, subscription, queue, progress)
        named = sorted(set(offsets))
        dead = progress.failures.dead_deliveries(named)
        most = self._most_runs()
        for offset in named:
            deliveries = dead.get(offset)
            if deliveries is None:
                plan.refused.append(offset)
            elif plan.rest or reader.full() or len(plan.runs) >= most:
                plan.rest.append((offset, offset + 1))
            else:
                reader.rows -= 1
                if reader.keyed:
                    plan.hashes.append(reader.hash_of(offset))
                # One that expired was never handed out; it is not judged again.
                plan.runs.append((offset, offset + 1, 1, max(deliveries, 1)))
        plan.runs = merge(plan.runs)
        self._check(plan)
        return plan

    def _above(self, plan: ReplayPlan, start: int, stop: int) -> None:
        """Plan rows above the cursor: some rows may be settled already, or owed."""
        progress = plan.progress
        plan.unread += stop - start
        ahead = progress.ahead
        for at in range(bisect_right(ahead.stops, start), bisect_left(ahead.starts, stop)):
            for low, high in _by_shard(max(ahead.starts[at], start), min(ahead.stops[at], stop)):
                owed = _owed_in(progress, low, high)
                plan.runs += owed
                plan.ahead += missing([(low, high)], owed)
                plan.unread -= high - low

    def _piece(self, plan: ReplayPlan, reader: _Reader, start: int, stop: int) -> int:
        """Plan rows of one shard below the cursor; return the offset up to which this is done."""
        if reader.full():
            return start
        owed = _owed_in(plan.progress, start, stop)
        if not owed and stop <= reader.first:
            plan.expired += stop - start
            return stop
        most = self._most_runs()
        if not reader.reads:
            reader.rows -= plan.progress.failures.shard_rows(start >> SHARD_BITS)
            done = [(low, high, 1, 0) for low, high in missing([(start, stop)], owed)]
            below = {low: min(max(low, reader.first), high) for low, high, _, _ in done}
            for low, high, attempt, deliveries in sorted([*owed, *done]):
                if len(plan.runs) >= most:
                    return low
                kept = below.get(low, low)
                plan.expired += kept - low
                if kept < high:
                    plan.runs.append((kept, high, attempt, deliveries))
            return stop
        known = {
            offset: deliveries for low, high, _, deliveries in owed for offset in range(low, high)
        }
        for offset in range(start, stop):
            owed_before = known.get(offset)
            if owed_before is None and offset < reader.first:
                plan.expired += 1
                continue
            if reader.full() or len(plan.runs) >= most:
                return offset
            reader.rows -= 1
            if owed_before is None and not reader.matches(offset):
                plan.filtered += 1
                continue
            if reader.keyed:
                plan.hashes.append(reader.hash_of(offset))
            deliveries = owed_before or 0
            if plan.runs:
                low, high, _, same = plan.runs[-1]
                if high == offset and same == deliveries:
                    plan.runs[-1] = (low, offset + 1, 1, deliveries)
                    continue
            plan.runs.append((offset, offset + 1, 1, deliveries))
        return stop

    def _most_runs(self) -> int:
        return min(MOST_RUNS, self._ledger.journal.max_body // 64)

    def _check(self, plan: ReplayPlan) -> None:
        progress = plan.progress
        self._check_room(progress, [run[:2] for run in plan.runs])
        most = self._ledger.limits.intervals
        if plan.runs and progress.open_runs() + len(plan.runs) > most:
            raise ReplayTooLarge(
                f"queue {progress.queue}: the group has {progress.open_runs():,} separate ranges "
                f"of messages, and the replay would add {len(plan.runs):,}; at most {most:,} are "
                "allowed"
            )

    def _check_room(self, progress: Progress, spans: Iterable[Span]) -> None:
        limits = self._ledger.limits
        most = limits.replay_keyed_rows if progress.mode.keyed else limits.replay_rows
        rows = 0
        for start, stop in spans:
            rows += max(0, stop - start - row_count(progress.ready.inside(start, stop)))
        if rows and progress.ready.rows + rows > most:
            raise ReplayTooLarge(
                f"queue {progress.queue}: {progress.ready.rows:,} messages wait for redelivery, "
                f"and the replay would add {rows:,}; at most {most:,} may wait"
            )

    # -- records ----------------------------------------------------------------------------------

    def record(self, now_us: int, session: int, plan: ReplayPlan, cause: Cause) -> int:
        """Record what was planned; return where the record ends (0: there was nothing to do)."""
        progress = plan.progress
        if not plan.runs and not plan.ahead:
            return 0
        self._release_behind(now_us, plan)
        ledger = self._ledger
        fact = Replayed(
            progress.group, progress.topic, progress.queue, session, progress.round + 1, cause,
            plan.runs, plan.ahead, plan.hashes, _given_before(plan),
        )  # fmt: skip
        ledger.record(now_us, REPLAY, fact)
        ledger.wakes.wake_for(progress)
        return ledger.end

    def _release_behind(self, now_us: int, plan: ReplayPlan) -> None:
        """Release leased rows that wait for replayed ones, so that none overtakes."""
        progress = plan.progress
        settled = [
            released(progress, lease, runs, SettleCause.KEY)
            for lease, runs in progress.order.behind_replayed(
                progress.leases.values(), plan.runs, plan.hashes
            )
        ]
        if settled:
            self._settling.record(now_us, SETTLED, progress, settled)


def _given_before(plan: ReplayPlan) -> list[Span]:
    """Return the rows of a plan that are done and that the group was given; sorted, disjoint."""
    progress = plan.progress
    done = [
        (start, stop, 0, 0)
        for low, high, _, deliveries in plan.runs
        if not deliveries  # else it is owed; parked rows are without deliveries, too
        for start, stop in missing([(low, high)], progress.ready.inside(low, high))
    ]
    _, given = split_all(done, progress.given.spans(progress.cursor))
    return [(start, stop) for start, stop, _, _ in given]


class _Reader:
    """Reads what must be known of rows: ordering hashes, and whether the filter passes them."""

    def __init__(
        self, ledger: Ledger, subscription: Subscription, queue: Queue, progress: Progress
    ) -> None:
        self._ledger = ledger
        self._filter = subscription.filter
        self._progress = progress
        self.first = queue.first
        self.keyed = subscription.mode.keyed
        self.reads = self.keyed or self._filter is not None
        self.rows = READ_ROWS
        """Rows that may still be examined."""
        self._bytes = ledger.limits.pull_bytes
        # The batch read last: offsets [start, stop), their rows in it, hashes and its judge.
        self._start = self._stop = 0
        self._row_of: list[int] = []
        self._hashes: Sequence[int] = ()
        self._judge: Judge | None = None
        self._judged = NOT_JUDGED

    def full(self) -> bool:
        """Whether the limit is reached, so that the rest is left to another command."""
        return self.rows <= 0 or self._bytes <= 0

    def hash_of(self, offset: int) -> int:
        """Return the ordering hash of a row."""
        known = self._progress.order.hash_of(offset)
        if known is not None:
            return known
        self._read(offset)
        return self._hashes[self._row_of[offset - self._start]]

    def matches(self, offset: int) -> bool:
        """Return whether the group's filter passes a row."""
        if self._filter is None:
            return True
        self._read(offset)
        row = self._row_of[offset - self._start]
        if not self._judged.start <= row < self._judged.stop:
            assert self._judge is not None
            last = self._row_of[min(self._stop, offset + READ_ROWS) - 1 - self._start]
            self._judged = self._judge.judge(row, last + 1)
        return self._judged.passed(row)

    def _read(self, offset: int) -> None:
        if self._start <= offset < self._stop:
            return
        ledger, progress = self._ledger, self._progress
        places = ledger.index.locate(progress.topic, progress.queue, offset, offset + 1, 1)
        if places.positions:
            batch = self._stored(places)
        else:
            batch = self._copied(offset)
        self._hashes = batch.ordering_hashes() if self.keyed else ()
        self._judge = None if self._filter is None else self._filter.judge(batch)
        self._judged = NOT_JUDGED

    def _stored(self, places: Places) -> Batch:
        record = self._ledger.store.at_place(places, 0)
        stored = messages.of_record(record)
        self._bytes -= len(record)
        self._start, self._stop = stored.first_offset, stored.first_offset + stored.count
        self._row_of = [stored.row_of(offset) for offset in range(self._start, self._stop)]
        return Batch(stored.batch)

    def _copied(self, offset: int) -> Batch:
        progress = self._progress
        place = self._ledger.index.moved(progress.topic, progress.queue, offset)
        if place is None:
            raise CorruptJournal(
                f"offset {offset} of queue {progress.queue} of topic {progress.topic} is needed "
                f"by group {progress.group}, and is not in the journal"
            )
        record = self._ledger.store.get(place.position)
        piece, row = moved.unpack(record[HEADER_BYTES:]).row(place.row)
        self._bytes -= len(record)
        self._start, self._stop, self._row_of = offset, offset + 1, [row]
        return Batch(piece.batch)


def _pieces(spans: Iterable[Span], first: int, progress: Progress) -> Iterator[Span]:
    """Cut spans at the edges of shards; below ``first``, only at shards that hold rows."""
    shards = shards_of(progress)
    for start, stop in spans:
        at = start
        gone = min(stop, first)
        for key in shards:
            base = key << SHARD_BITS
            if base >= gone:
                break
            if base + SHARD_ROWS <= at:
                continue
            if at < base:
                yield at, base
            at = max(at, base)
            yield at, min(base + SHARD_ROWS, stop)
            at = min(base + SHARD_ROWS, stop)
        if at < gone:
            yield at, gone
            at = gone
        yield from _by_shard(at, stop)


def _by_shard(start: int, stop: int) -> Iterator[Span]:
    """Cut a span (which may be empty) at the edges of shards."""
    while start < stop:
        end = min((start >> SHARD_BITS) + 1 << SHARD_BITS, stop)
        yield start, end
        start = end


def _owed_in(progress: Progress, start: int, stop: int) -> list[LeasedRun]:
    """Return the owed runs of a span within one shard: attempt 1, and the deliveries so far."""
    runs = [
        (max(low, start), min(high, stop), 1, deliveries)
        for (low, high, _, deliveries), _ in progress.leases_by_shard().get(start >> SHARD_BITS, ())
        if low < stop and start < high
    ]
    runs += [
        (low, high, 1, deliveries)
        for low, high, _, deliveries in progress.ready.inside(start, stop)
    ]
    failures = progress.failures
    if failures.waiting_rows or failures.dead_rows:
        runs += [
            # One that expired was never handed out; it is not judged again.
            (row.offset, row.offset + 1, 1, max(row.deliveries, 1))
            for row in failures.failed_in(start, stop)
        ]
    return merge(runs)
