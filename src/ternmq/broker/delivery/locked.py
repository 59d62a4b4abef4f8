"""Plans pulls of groups of mode queue_lock: one lease of a queue at a time, rows in their order.

While a lease of the queue is open, nobody gets rows of it. A lease is open until all of its rows
are settled, it ends, or the transactions that settle its rows are decided. The queue is also closed
while a row that failed is not due yet, or is held. Otherwise a pull gets the owed rows from the
first one on, and behind them new rows.
"""

from __future__ import annotations

from typing import Final

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.plan import Plan, run_again
from ternmq.broker.delivery.planner import PlannedMode
from ternmq.broker.delivery.shared import SharedPlanner, ready_runs
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.queueorder import QUEUE_ORDER
from ternmq.broker.group.runs import first_rows, merge
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.specs import Mode
from ternmq.record.fact.facts import LeasedRun


class LockedPlanner:
    """Plans the pulls of groups that lock a queue. Deterministic.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_shared",)

    def __init__(self, ledger: Ledger) -> None:
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
        """Put the first rows that are owed into the plan, then new ones."""
        del subscription
        shared, failures = self._shared, progress.failures
        if plan.sweeps:
            shared.plan_fresh(queue, progress, visible, room, max_bytes, plan)
            return
        if progress.leases:
            return
        if failures.waiting_rows or progress.ready.runs:
            if failures.waiting_rows:
                progress.look_for_due(now_us, failures.waiting_rows)
                if failures.due_found < failures.waiting_rows:
                    return
            again = first_rows(_owed(progress, room), room)
            # Either all rows that are owed fit, or there is no room left for new ones.
            room, max_bytes = shared.plan_runs(progress, again, room, max_bytes, plan)
        if room > 0 and max_bytes > 0 and not shared.failures_full(progress):
            shared.plan_fresh(queue, progress, visible, room, max_bytes, plan)


def _owed(progress: Progress, limit: int) -> list[LeasedRun]:
    """Return the first ready and the first waiting rows, with the counts of their next delivery."""
    runs = ready_runs(progress, limit)
    if progress.failures.waiting_rows:
        waiting = progress.failures.failed(dead=False, after=-1)
        runs += [run_again(row) for row, _ in zip(waiting, range(limit), strict=False)]
    return merge(runs)


QUEUE_LOCK: Final = PlannedMode(
    name=Mode.QUEUE_LOCK,
    number=2,
    planner=LockedPlanner,
    new_order=lambda: QUEUE_ORDER,
    straight=True,
    confirmed=True,
    blocks=True,
    keyed=False,
    parks=False,
    holds=True,
    filters=False,
    ordered_topics_only=False,
    locks=True,
)
