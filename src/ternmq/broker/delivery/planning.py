"""Plans pulls by the mode of their group."""

from __future__ import annotations

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.modes import MODES
from ternmq.broker.delivery.plan import Plan
from ternmq.broker.delivery.planner import Planner
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import without
from ternmq.broker.ledger.ledger import Ledger


class Planning:
    """Makes plans with the planner of each group's mode (`modes`).

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_planners")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
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
    ) -> Plan:
        """Return the plan of a pull; see ``Planner.plan``. Rows that are settled are not skipped.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        plan = Plan(progress.cursor)
        planner = self._planners[subscription.mode]
        planner.plan(now_us, subscription, queue, progress, visible, room, max_bytes, plan)
        if plan.skipped and progress.ahead:
            plan.skipped = without(plan.skipped, progress.ahead)  # they are settled
        return plan

    def visible(self, queue: Queue) -> int:
        """Return the offset below which the rows of a queue are durable."""
        journal = self._ledger.journal
        if queue.end <= journal.durable:
            return queue.next
        return self._ledger.index.visible(queue.topic.number, queue.number, journal.durable)
