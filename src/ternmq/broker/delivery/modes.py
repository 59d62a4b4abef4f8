"""The table of group modes: a new mode is a file with its row and its planner, and a line here."""

from __future__ import annotations

from typing import Final

from ternmq.broker.delivery.broadcast import BROADCAST
from ternmq.broker.delivery.locked import QUEUE_LOCK
from ternmq.broker.delivery.ordered import ORDERED
from ternmq.broker.delivery.owned import EXCLUSIVE, OWNED
from ternmq.broker.delivery.planner import PlannedMode
from ternmq.broker.delivery.shared import SHARED

MODES: Final[tuple[PlannedMode, ...]] = (
    SHARED,
    ORDERED,
    QUEUE_LOCK,
    OWNED,
    EXCLUSIVE,
    BROADCAST,
)
