"""Groups of mode broadcast: each is one instance, and gets the rows in order of offset, as shared.

What differs is not which rows a pull gets, but what becomes of them: rows that fail are done, and
rows whose lease ends come again without a count (`settles`, `leases`). The journal does not keep
what such a group has not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ternmq.broker.delivery.planner import PlannedMode
from ternmq.broker.delivery.shared import SHARED
from ternmq.model.specs import Mode

BROADCAST: Final[PlannedMode] = replace(
    SHARED, name=Mode.BROADCAST, number=5, retries=False, keeps_journal=False
)
