"""The modes owned and exclusive: queues are locked as with queue_lock, and belong to members.

Which member a queue belongs to is decided in `operation.membership`, and is volatile. The lock is
what keeps the order: a new owner gets no rows of a queue while a lease of it is open, whoever has
it, and open leases are recorded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ternmq.broker.delivery.locked import QUEUE_LOCK
from ternmq.broker.delivery.planner import PlannedMode
from ternmq.model.specs import Mode

OWNED: Final[PlannedMode] = replace(QUEUE_LOCK, name=Mode.OWNED, number=3, assigns=True)
EXCLUSIVE: Final[PlannedMode] = replace(QUEUE_LOCK, name=Mode.EXCLUSIVE, number=4, assigns=True)
