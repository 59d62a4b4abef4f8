"""Takes expired rows out of the plans of pulls, and sweeps groups that nobody pulls.

`expiry` judges rows and records what becomes of them; here is decided which rows are judged, and
how many at a time. Only pulls of queues with rows that may expire come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.cursors import move_cursor
from ternmq.broker.delivery.expiry import Expiry
from ternmq.broker.delivery.plan import Plan, SweepPlan
from ternmq.broker.delivery.planning import Planning
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import row_count, split_all, union
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.cache.cold import WouldBlock
from ternmq.record.fact.facts import LeasedRun, Move

EXPIRED_A_PULL: Final = 1024
"""Expired rows that one pull records, about, in all of its queues: the next turn goes on."""
_FIRST_LOOK: Final = 16
_RECORD_COST: Final = 16
"""Rows for which a record counts."""
_SCANNED_A_ROW: Final = 16
"""Rows looked at by a sweep that count as one that is recorded; more with a filter of headers."""


class Lifetimes:
    """Takes expired rows out of plans, and sweeps groups that nobody pulls.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        left: Expired rows that the present pull may still record; a pull begins with
            ``EXPIRED_A_PULL``.
    """

    __slots__ = ("_expiry", "_ledger", "_planning", "left")

    def __init__(self, ledger: Ledger, expiry: Expiry, planning: Planning) -> None:
        self._ledger = ledger
        self._expiry = expiry
        self._planning = planning
        self.left = 0

    def living(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
        plan: Plan,
    ) -> Plan:
        """Return a plan without expired rows: these are recorded, and the pull is planned again.

        Only rows that the pull passes are recorded, and those up to the next row that lives: else
        one that is redriven would overtake rows that were never handed out. If there are too many
        for one pull, it gets what is before the next one, and waiting pulls are tried again.
        """
        recorded = False
        try:
            while plan.runs:
                expired = self._expiry.expired(now_us, queue, progress, plan.runs)
                if not expired:
                    return plan
                if self.left <= 0:
                    self._ledger.wakes.go_on(subscription)
                    return self._before(
                        now_us, subscription, queue, progress, room, max_bytes, expired
                    )
                self._record_expired(now_us, subscription, progress, expired)
                recorded = True
                if row_count(expired) == row_count(plan.runs):
                    # Many may follow: a pull of one row must not take a record for each of them.
                    self._record_following(now_us, subscription, queue, progress, visible)
                plan = self._planning.plan(
                    now_us, subscription, queue, progress, visible, room, max_bytes
                )
            return plan
        except WouldBlock:
            if not recorded:
                raise  # else the next attempt raises it: nothing may be changed by a command before
        self._ledger.wakes.go_on(subscription)
        return Plan(progress.cursor)

    def _before(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        room: int,
        max_bytes: int,
        expired: Sequence[LeasedRun],
    ) -> Plan:
        """Return a plan of what comes before the first expired row; empty if an owed one has."""
        first = min([run[0] for run in expired])
        if first > progress.cursor:
            plan = self._planning.plan(
                now_us, subscription, queue, progress, first, room, max_bytes
            )
            if not self._expiry.expired(now_us, queue, progress, plan.runs):
                return plan
        return Plan(progress.cursor)

    def _record_expired(
        self,
        now_us: int,
        subscription: Subscription,
        progress: Progress,
        expired: list[LeasedRun],
    ) -> None:
        self._expiry.record(now_us, subscription, progress, expired)
        self.left -= _RECORD_COST + row_count(expired)

    def _record_following(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
    ) -> None:
        """Record expired rows that are owed, and those up to the next new row that lives."""
        max_bytes = self._ledger.limits.pull_bytes
        while (room := self.left) > 0:
            plan = self._planning.plan(
                now_us, subscription, queue, progress, visible, room, max_bytes
            )
            expired, reach, _ = self._judge(now_us, queue, progress, plan)
            first = [run for run in expired if run[1] <= reach]
            if not first:
                return
            self._record_expired(now_us, subscription, progress, first)

    def _judge(
        self, now_us: int, queue: Queue, progress: Progress, plan: Plan
    ) -> tuple[list[LeasedRun], int, bool]:
        """Return the expired rows of a plan, and where the first new row that lives is.

        Also whether there is one in the plan. One that waits behind its key counts as well; a sweep
        judges it.
        """
        runs, stops = plan.runs, [start for start, _ in plan.parked]
        if plan.sweeps and stops:
            runs, stops = sorted(runs + [(*span, 1, 1) for span in plan.parked]), []
        expired = self._expiry.expired(now_us, queue, progress, runs)
        living, _ = split_all(runs, union([run[:2] for run in expired]))
        stops += [run[0] for run in living if run[0] >= progress.cursor]
        return expired, min([plan.cursor, *stops]), bool(stops)

    def sweep(
        self, now_us: int, subscription: Subscription, queue: Queue, progress: Progress, most: int
    ) -> int:
        """Record the expired rows at the cursor of a group queue that nobody may ever pull.

        Rows that the filter does not pass, or that are settled, are passed over. Only up to the
        first row that has not expired: what is behind it does not keep the journal
        any longer than that row does. Whether a pull would get the rows now does not matter: not if
        the failure store is full, nor if the queue or the key of the row is closed.

        Args:
            now_us: Broker time.
            subscription: The group on the topic.
            queue: The queue.
            progress: The group's view of it.
            most: Most work, about: rows that are recorded, and part of those that are looked at.

        Returns:
            How much work it was.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
            JournalFull: no segment is ready.
        """
        visible, max_bytes = self._planning.visible(queue), self._ledger.limits.pull_bytes
        header_cost = 1 if subscription.filter is None else subscription.filter.header_cost
        work, room = 0, min(most, _FIRST_LOOK)  # usually the first row has not expired
        while work < most and progress.cursor < min(visible, queue.judged_below):
            begin = max(progress.cursor, progress.scan)
            plan = self._planning.plan(
                now_us, subscription, queue, progress, visible, room, max_bytes, SweepPlan
            )
            expired, reach, stopped = self._judge(now_us, queue, progress, plan)
            work += max(0, plan.cursor - begin) * header_cost // _SCANNED_A_ROW
            first = [run for run in expired if progress.cursor <= run[0] and run[1] <= reach]
            if first:
                self._expiry.record(now_us, subscription, progress, first)
                work += row_count(first)
            if reach > progress.cursor:
                move_cursor(self._ledger, now_us, progress, Move.FILTERED, reach)
            elif not first:
                break
            if stopped:
                break
            room = most
        return work
