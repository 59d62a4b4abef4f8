"""What ``ternmq.reliable`` exports and needs SQLAlchemy: imported when the first of it is used."""

from __future__ import annotations

from ternmq.reliable.outbox.outbox import Outbox, ddl
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Step
from ternmq.reliable.steps.item import SequenceStep
from ternmq.reliable.steps.steps import Steps

__all__ = ["Outbox", "OutboxStats", "SequenceStep", "Step", "Steps", "ddl"]
