"""Plans pulls of shared groups: rows in order of offset, for any member.

Rows that are delivered again come first, but take at most half of a pull while there are new rows;
with a filter, rows that do not match are passed over without being delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.plan import (
    Budget,
    Plan,
    RowsUnreadable,
    end_of_batch,
    once_more,
    one_place,
    run_again,
)
from ternmq.broker.delivery.planner import PlannedMode
from ternmq.broker.delivery.scan import scan
from ternmq.broker.group.order import UNORDERED
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import merge, row_count
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.index.tail import Places
from ternmq.model.errors import CorruptJournal, DiskReadError
from ternmq.model.specs import Mode
from ternmq.record.fact import messages
from ternmq.record.fact.facts import LeasedRun


class SharedPlanner:
    """Plans the pulls of shared groups. Deterministic; changes at most volatile state.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

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
        """Put new rows and rows to be delivered again into the plan, in turns."""
        fresh = progress.cursor < visible
        if plan.sweeps:
            if fresh:
                self._plan_new(subscription, queue, progress, visible, room, max_bytes, plan)
            return
        again = 0
        if progress.ready.runs or progress.failures.waiting_rows:
            # While there are new rows, others take at most half of a pull; single pulls take turns.
            again = room if not fresh else (room + 1) // 2
            if not (fresh and room == 1 and progress.turn_to_fresh):
                room, max_bytes = self._plan_again(now_us, progress, again, room, max_bytes, plan)
        if fresh and room > 0 and max_bytes > 0 and not self.failures_full(progress):
            self._plan_new(subscription, queue, progress, visible, room, max_bytes, plan)
        if again and fresh and not plan.runs:
            # It was the turn of new rows, but no new row is for this group.
            self._plan_again(now_us, progress, again, room, max_bytes, plan)
            if plan.runs and not plan.skipped and plan.cursor > progress.cursor:
                plan.skip_between(progress.cursor, plan.cursor)
        progress.turn_to_fresh = not progress.turn_to_fresh  # not earlier: what is above may block

    def _plan_new(
        self,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
        plan: Plan,
    ) -> None:
        if subscription.filter is None:
            self.plan_fresh(queue, progress, visible, room, max_bytes, plan)
        else:
            self._plan_filtered(subscription, queue, progress, visible, room, max_bytes, plan)

    def plan_fresh(
        self,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
        plan: Plan,
    ) -> None:
        """Put the next new rows into the plan, in the order of their offsets."""
        index = self._ledger.index
        topic, number = queue.topic.number, queue.number
        cursor = progress.cursor
        if cursor < queue.first:
            plan.skipped.append((cursor, queue.first))
            cursor = queue.first
        ahead = progress.ahead
        while room > 0 and (max_bytes > 0 or ahead) and cursor < visible:
            stop = min(cursor + room, visible)
            if ahead:
                cursor = ahead.covering_end(cursor)
                stop = ahead.next_start(cursor, min(cursor + room, visible))
                if cursor >= visible:
                    break
            stop, deliveries = progress.given.part(cursor, stop)
            places = index.locate(topic, number, cursor, stop, max(max_bytes, 1))
            if places.stop <= cursor:
                break
            size = sum(places.lengths)
            if ahead and plan.places and places.positions[:1] == plan.places[-1].positions[-1:]:
                size -= places.lengths[0]  # a batch with settled rows in it counts once
            if size > max(max_bytes, 0) and plan.runs:
                break  # only the first batch of a pull may be larger than was requested
            stop = min(stop, places.stop)
            plan.runs.append((cursor, stop, 1, deliveries))
            plan.places.append(places)
            room -= stop - cursor
            max_bytes -= size
            cursor = stop
        plan.cursor = max(plan.cursor, cursor)

    def _plan_again(
        self, now_us: int, progress: Progress, again: int, room: int, max_bytes: int, plan: Plan
    ) -> tuple[int, int]:
        candidates = ready_runs(progress, again)
        left = again - row_count(candidates)
        if left > 0 and progress.failures.waiting_rows:
            candidates += [run_again(row) for row in progress.due(now_us, left)]
        return self.plan_runs(progress, merge(candidates), room, max_bytes, plan)

    def plan_runs(
        self,
        progress: Progress,
        runs: Sequence[LeasedRun],
        room: int,
        max_bytes: int,
        plan: Plan,
    ) -> tuple[int, int]:
        """Put rows that are delivered again into the plan, as far as the bytes suffice.

        Returns:
            The rows and the bytes that are left; no bytes, if not all of the runs are in the plan.
        """
        budget = Budget(max_bytes)  # a batch that holds several of the rows counts once
        for start, stop, attempt, deliveries in runs:
            at = start
            while at < stop:
                places = self.places(progress, at, stop, max(budget.left, 1))
                if not budget.takes_all(places):
                    return room, 0
                end = min(stop, places.stop)
                plan.runs.append((at, end, attempt, deliveries))
                plan.places.append(places)
                room -= end - at
                at = end
        return room, budget.left

    def places(self, progress: Progress, start: int, stop: int, max_bytes: int) -> Places:
        """Return where owed rows are stored: in their batches, or in a copy moved forward."""
        index = self._ledger.index
        places = index.locate(progress.topic, progress.queue, start, stop, max_bytes)
        if places.positions:
            return places
        copy = index.moved(progress.topic, progress.queue, start)
        if copy is None:
            raise CorruptJournal(
                f"offset {start} of queue {progress.queue} of topic {progress.topic} is owed to "
                f"group {progress.group} and kept nowhere"
            )
        return Places((start,), (copy.position,), (0,), start + 1)

    def failures_full(self, progress: Progress) -> bool:
        """Return whether new rows are withheld, because too many rows wait or are dead."""
        return (
            progress.failures.waiting_rows + progress.failures.dead_rows
            >= self._ledger.limits.failures
        )

    def _plan_filtered(
        self,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
        plan: Plan,
    ) -> None:
        ledger = self._ledger
        wanted = subscription.filter
        assert wanted is not None
        begin = cursor = max(progress.cursor, progress.scan, queue.first)
        budget = ledger.limits.filter_scan_rows
        given = progress.given
        last = -1  # the batch that was taken from last
        while room > 0 and (max_bytes > 0 or progress.ahead) and budget > 0 and cursor < visible:
            cursor = progress.ahead.covering_end(cursor)
            most = max(1, budget // wanted.header_cost)
            stop = progress.ahead.next_start(cursor, min(cursor + most, visible))
            if cursor >= stop:
                break
            places = ledger.index.locate(
                queue.topic.number, queue.number, cursor, stop, ledger.limits.pull_bytes
            )
            if places.stop <= cursor:
                break
            stop = min(stop, places.stop)
            budget -= stop - cursor
            for at, first in enumerate(places.first_offsets):
                end = min(stop, end_of_batch(places, at))
                if wanted.asks(0 if places.masks is None else places.masks[at]):
                    start = max(cursor, first)
                    try:
                        stored = messages.of_record(ledger.store.at_place(places, at))
                    except (CorruptJournal, DiskReadError) as error:
                        if not plan.runs and start == begin:
                            raise RowsUnreadable(start, end, error) from error
                        room, stop = 0, start  # first what comes before
                        break
                    position, took = places.positions[at], False
                    fits = position == last or not plan.runs or places.lengths[at] <= max_bytes
                    found = scan(wanted, stored, start, end, room, budget)
                    budget -= found.cost
                    if found.stop < end:
                        end = stop = found.stop
                    for offset in found.offsets:
                        if room <= 0 or not fits:
                            room = 0
                            end = stop = offset
                            break
                        room -= 1
                        plan.lease_row(offset, 1, given.deliveries(offset))
                        took = True
                    if took:
                        plan.places.append(one_place(places, at, end))
                        max_bytes -= 0 if position == last else places.lengths[at]
                        last = position
                if end >= stop:
                    break
            cursor = stop
        if plan.runs:
            plan.skip_between(progress.cursor, cursor)
        plan.cursor = max(plan.cursor, cursor)


def ready_runs(progress: Progress, limit: int) -> list[LeasedRun]:
    """Return the first ready rows, at most ``limit``, with the counts of their next delivery."""
    runs: list[LeasedRun] = []
    given = progress.given
    for start, stop, attempt, deliveries in progress.ready.runs:
        if limit <= 0:
            break
        rows = min(stop - start, limit)
        if deliveries or start >= given.stop:
            runs.append((start, start + rows, attempt, once_more(deliveries)))
        else:
            runs += given.runs(start, start + rows, attempt)
        limit -= rows
    return runs


SHARED: Final = PlannedMode(
    name=Mode.SHARED,
    number=0,
    planner=SharedPlanner,
    new_order=lambda: UNORDERED,
    straight=True,
    confirmed=False,
    blocks=False,
    keyed=False,
    parks=False,
    holds=False,
    filters=True,
    ordered_topics_only=False,
)
