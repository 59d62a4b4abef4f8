"""Plans pulls of ordered groups: at most one run of each key at a time.

While rows of a key are leased, or its head waits for a retry, its later rows are parked in the
key's line (`lines`); rows of other keys are delivered.
"""

from __future__ import annotations

from typing import Final

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.plan import (
    Budget,
    Plan,
    RowsUnreadable,
    end_of_batch,
    once_more,
    run_again,
)
from ternmq.broker.delivery.planner import PlannedMode
from ternmq.broker.delivery.shared import SharedPlanner
from ternmq.broker.group.keyorder import KeyOrder
from ternmq.broker.group.lines import Line, Lines
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import merge
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import CorruptJournal, DiskReadError
from ternmq.model.specs import Mode
from ternmq.record.batch.batch import Batch
from ternmq.record.fact import messages

ROWS_PER_KEY: Final = 64
"""Most parked rows of one key in one pull."""


class OrderedPlanner:
    """Plans the pulls of ordered groups. Deterministic.

    Changes nothing but the list of free lines, which it restores. Not thread-safe: call it from the
    broker's loop.
    """

    __slots__ = ("_ledger", "_shared")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._shared = SharedPlanner(ledger)

    def plan(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
        plan: Plan,
    ) -> None:
        """Put the next rows of keys that are free into the plan."""
        del subscription
        lines = _lines(progress)
        progress.due(now_us, 0)
        rows: list[tuple[int, int, int, int]] = []  # offset, attempt, deliveries, hash
        taken: list[tuple[int, int]] = []
        parked: list[tuple[int, int]] = []
        counts: dict[int, int] = {}  # rows of each key in this pull
        budget = Budget(max_bytes)
        looked: set[int] = set()
        try:
            while room > 0 and not plan.sweeps and (free := lines.pop_free()) is not None:
                head, hash_, line = free
                if hash_ in looked:
                    continue  # a line may have been offered more than once
                looked.add(hash_)
                taken.append((head, hash_))
                found = self._available(now_us, progress, line, hash_, min(room, ROWS_PER_KEY))
                if not found:
                    taken.pop()  # its head waits for a due time, which offers the line again
                for row in found:
                    places = self._shared.places(progress, row[0], row[0] + 1, 1)
                    if not budget.takes(places.positions[0], places.lengths[0]):
                        room = 0
                        break
                    rows.append(row)
                    counts[hash_] = counts.get(hash_, 0) + 1
                    room -= 1
            cursor = progress.cursor
            if cursor < queue.first:
                plan.skipped.append((cursor, queue.first))
                cursor = queue.first
            if room > 0 and (plan.sweeps or not self._shared.failures_full(progress)):
                may_park = self._ledger.limits.parked - progress.ready.rows
                if plan.sweeps:
                    may_park = room
                cursor = self._scan_ordered(
                    queue, progress, cursor, visible, room, rows, parked, may_park, counts, budget
                )
            plan.cursor = max(plan.cursor, cursor)
            self._locate_rows(progress, rows, max_bytes, plan)
        finally:
            for head, hash_ in taken:
                lines.put_free(head, hash_)  # stale once its rows are leased, and dropped then
        plan.park(parked)

    def _available(
        self, now_us: int, progress: Progress, line: Line, hash_: int, limit: int
    ) -> list[tuple[int, int, int, int]]:
        found: list[tuple[int, int, int, int]] = []
        for offset in line.offsets[:limit]:
            failure = progress.failures.failure(offset)
            if failure is not None:
                if failure.when_us > now_us:
                    break
                _, _, attempt, deliveries = run_again(failure)
            else:
                ready = progress.ready.find(offset)
                if ready is None:
                    break
                _, _, attempt, deliveries = ready
                deliveries = (
                    once_more(deliveries) if deliveries else progress.given.deliveries(offset)
                )
            found.append((offset, attempt, deliveries, hash_))
        return found

    def _scan_ordered(
        self,
        queue: Queue,
        progress: Progress,
        cursor: int,
        visible: int,
        room: int,
        rows: list[tuple[int, int, int, int]],
        parked: list[tuple[int, int]],
        may_park: int,
        counts: dict[int, int],
        budget: Budget,
    ) -> int:
        """Scan new rows: lease those of idle keys (and of keys leased here), park the others."""
        ledger = self._ledger
        lines = _lines(progress)
        ahead = progress.ahead
        given = progress.given
        known = lines.by_hash
        # Keys of which some rows are left over by this pull, so that later rows must wait.
        stay = {hash_ for hash_, count in counts.items() if count < len(known[hash_].offsets)}
        while room > 0 and cursor < visible:
            cursor = ahead.covering_end(cursor)
            stop = ahead.next_start(cursor, visible)
            if cursor >= stop:
                break
            places = ledger.index.locate(
                queue.topic.number, queue.number, cursor, stop, ledger.limits.pull_bytes
            )
            if places.stop <= cursor:
                break
            stop = min(stop, places.stop)
            for at, first in enumerate(places.first_offsets):
                try:
                    stored = messages.of_record(ledger.store.at_place(places, at))
                except (CorruptJournal, DiskReadError) as error:
                    start = max(cursor, first)
                    if rows or parked:
                        return start
                    end = min(stop, end_of_batch(places, at))
                    raise RowsUnreadable(start, end, error) from error
                hashes = Batch(stored.batch).ordering_hashes()
                again = max(cursor, first) < given.stop
                for offset in range(max(cursor, first), min(stop, first + stored.count)):
                    hash_ = hashes[stored.row_of(offset)] if stored.runs else hashes[offset - first]
                    if hash_ in stay or (hash_ in known and hash_ not in counts):
                        if len(parked) >= may_park:
                            return offset
                        parked.append((offset, hash_))
                    else:
                        if room <= 0 or not budget.takes(places.positions[at], places.lengths[at]):
                            return offset
                        counts[hash_] = counts.get(hash_, 0) + 1
                        rows.append((offset, 1, given.deliveries(offset) if again else 1, hash_))
                        room -= 1
            cursor = stop
        return cursor

    def _locate_rows(
        self, progress: Progress, rows: list[tuple[int, int, int, int]], max_bytes: int, plan: Plan
    ) -> None:
        rows.sort()
        hashes = dict.fromkeys([row[0] for row in rows], 0)
        for offset, _, _, hash_ in rows:
            hashes[offset] = hash_
        for start, stop, attempt, deliveries in merge(
            [(offset, offset + 1, attempt, count) for offset, attempt, count, _ in rows]
        ):
            at = start
            while at < stop:
                places = self._shared.places(progress, at, stop, max_bytes)
                end = min(stop, places.stop)
                plan.runs.append((at, end, attempt, deliveries))
                plan.places.append(places)
                plan.hashes += [hashes[offset] for offset in range(at, end)]
                at = end


def _lines(progress: Progress) -> Lines:
    order = progress.order
    assert isinstance(order, KeyOrder)
    return order.lines


ORDERED: Final = PlannedMode(
    name=Mode.ORDERED,
    number=1,
    planner=OrderedPlanner,
    new_order=KeyOrder,
    straight=False,
    confirmed=True,
    blocks=True,
    keyed=True,
    parks=True,
    holds=True,
    filters=False,
    ordered_topics_only=True,
)
