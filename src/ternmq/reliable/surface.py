"""What ``ternmq.reliable`` exports and needs SQLAlchemy: imported when the first of it is used."""

from __future__ import annotations

from ternmq.reliable.inbox.idempotent import idempotent
from ternmq.reliable.inbox.inbox import Inbox
from ternmq.reliable.inbox.stats import InboxStats
from ternmq.reliable.outbox.outbox import Outbox, ddl
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Step
from ternmq.reliable.steps.item import SequenceStep
from ternmq.reliable.steps.steps import Steps
from ternmq.reliable.tasks.task import Task, every

__all__ = [
    "Inbox", "InboxStats", "Outbox", "OutboxStats", "SequenceStep", "Step", "Steps", "Task", "ddl",
    "every", "idempotent",
]  # fmt: skip
