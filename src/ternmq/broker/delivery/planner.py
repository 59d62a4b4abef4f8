"""What a planner of pulls is, and the row of the table of group modes that names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.plan import Plan
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger


class Planner(Protocol):
    """Plans which rows of a queue a pull may hand out.

    Not thread-safe: call it from the broker's loop.
    """

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
        """Fill the plan of a pull; change at most volatile state.

        Args:
            now_us: Broker time.
            subscription: The group on the topic.
            queue: The queue.
            progress: The group's view of it.
            visible: Offset below which new rows may be handed out.
            room: Maximum number of rows.
            max_bytes: Approximate maximum of bytes; the first row fits whatever its size.
            plan: An empty plan.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        ...


@dataclass(slots=True, frozen=True, eq=False, kw_only=True)
class PlannedMode(GroupMode):
    """A row of the table of group modes."""

    planner: Callable[[Ledger], Planner]
    """Returns the planner of a broker's pulls."""
