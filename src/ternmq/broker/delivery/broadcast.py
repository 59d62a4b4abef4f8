"""Groups of mode broadcast: each is one instance, and gets the rows in order of offset, as shared.

What differs is not which rows a pull gets, but what becomes of them: rows that fail are done, and
rows whose lease ends come again without a count (`settles`, `leases`). The journal does not keep
what such a group has not read.
"""

from __future__ import annotations

from typing import Final

from ternmq.broker.delivery.planner import PlannedMode
from ternmq.broker.delivery.shared import SharedPlanner
from ternmq.broker.group.order import UNORDERED
from ternmq.model.specs import Mode

BROADCAST: Final = PlannedMode(
    name=Mode.BROADCAST,
    number=5,
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
    retries=False,
    keeps_journal=False,
)
