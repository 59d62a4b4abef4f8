"""What the delivery machine needs of the broker around it."""

from __future__ import annotations

from typing import Protocol

from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.retry import Chance
from ternmq.broker.timers import TimerStore
from ternmq.journal.index import Index
from ternmq.journal.journal import Journal
from ternmq.journal.store import RecordStore
from ternmq.model.specs import Limits


class DeliveryContext(Protocol):
    """What the machine needs of the broker."""

    journal: Journal
    index: Index
    store: RecordStore
    random: Chance
    limits: Limits
    timers: TimerStore
    suspect_below: int

    def woken(self, queue: GroupQueue) -> None:
        """Rows of it may be available: parked pulls are to be looked at."""
        ...
