"""Plans pulls by the mode of their group, and sets apart rows of which no plan can be made.

A planner reads new rows if the group is ordered, for their keys, or has a filter. Rows that cannot
be read must not stop such a group for ever. If their bytes are damaged, they become dead letters
at once; in a broadcast instance, which has none, they are done. If the disk fails, which may pass,
it is tried again for ``PATIENCE_US`` first. They become dead letters without having been handed
out: nobody knows who may get them. A group whose keys wait
for an operator after a failure gets no row behind one that it did not get: it stops.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.modes import MODES
from ternmq.broker.delivery.plan import Plan, RowsUnreadable
from ternmq.broker.delivery.planner import Planner
from ternmq.broker.delivery.settles import Settling, holds, stored_reason
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import without
from ternmq.broker.ledger.factkinds import SETTLED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import DiskReadError
from ternmq.model.types import SECOND_US
from ternmq.record.fact.facts import Cause, Outcome, Settled

PATIENCE_US: Final = 600 * SECOND_US
"""How long rows are tried that the disk cannot read."""

_MOST_FAILING: Final = 1024
"""Group queues of which it is remembered; more: all are tried for longer."""


class _Failing(NamedTuple):
    """Rows that the disk cannot read."""

    start: int
    since_us: int


class Planning:
    """Makes plans with the planner of each group's mode (`modes`).

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_failing", "_ledger", "_planners", "_settling")

    def __init__(self, ledger: Ledger, settling: Settling) -> None:
        self._ledger = ledger
        self._settling = settling
        self._failing: dict[Progress, _Failing] = {}
        self._planners: dict[GroupMode, Planner] = {mode: mode.planner(ledger) for mode in MODES}

    def plan(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
        kind: type[Plan] = Plan,
    ) -> Plan:
        """Return the plan of a pull; see ``Planner.plan``. Rows that are settled are not skipped.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
            CorruptJournal, DiskReadError: the next rows cannot be read. If they were recorded as
                dead letters, the next plan goes on behind them.
        """
        plan = kind(progress.cursor)
        planner = self._planners[subscription.mode]
        try:
            planner.plan(now_us, subscription, queue, progress, visible, room, max_bytes, plan)
        except RowsUnreadable as rows:
            self._set_apart(now_us, subscription, progress, rows)
            raise rows.error from None
        if plan.skipped and progress.ahead:
            plan.skipped = without(plan.skipped, progress.ahead)  # they are settled
        return plan

    def _set_apart(
        self, now_us: int, subscription: Subscription, progress: Progress, rows: RowsUnreadable
    ) -> None:
        """Record rows that cannot be read as dead letters, if the group may go on without them."""
        if holds(subscription):
            return
        progress.turn_to_fresh = False  # rows that come again do not wait for these
        if isinstance(rows.error, DiskReadError):
            failing = self._failing.get(progress)
            if failing is None or failing.start != rows.start:
                if len(self._failing) >= _MOST_FAILING:
                    self._failing.clear()
                failing = self._failing[progress] = _Failing(rows.start, now_us)
            if now_us - failing.since_us < PATIENCE_US:
                return
        self._failing.pop(progress, None)
        outcome, cause, previous = Outcome.DEAD, Cause.EXHAUSTED, [0]
        if not subscription.mode.retries:
            outcome, cause, previous = Outcome.DONE, Cause.FAILED, []
        fact = Settled(
            progress.group, progress.topic, progress.queue, 0, 0, 0, progress.round, outcome,
            cause, now_us, [(rows.start, rows.stop, 0, 0)], previous,
            stored_reason(str(rows.error.args[0])),
        )  # fmt: skip
        self._settling.record(now_us, SETTLED, progress, [fact])
        self._ledger.wakes.wake_for(progress)

    def visible(self, queue: Queue) -> int:
        """Return the offset below which the rows of a queue are committed."""
        journal = self._ledger.journal
        if queue.end <= journal.committed:
            return queue.next
        return self._ledger.index.visible(queue.topic.number, queue.number, journal.committed)
