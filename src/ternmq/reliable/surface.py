"""What ``ternmq.reliable`` exports and needs SQLAlchemy: imported when the first of it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.reliable.inbox.idempotent import idempotent
from ternmq.reliable.inbox.inbox import Inbox
from ternmq.reliable.inbox.stats import InboxStats
from ternmq.reliable.outbox.outbox import Outbox, ddl
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Step
from ternmq.reliable.steps.item import SequenceStep
from ternmq.reliable.steps.steps import Steps
from ternmq.reliable.tasks.task import Task, every

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = [
    "Inbox", "InboxStats", "Outbox", "OutboxStats", "SequenceStep", "Step", "Steps", "Task",
    "collector", "ddl", "every", "idempotent",
]  # fmt: skip


def collector(outbox: Outbox, *others: Outbox) -> Collector:
    """Return what reports outboxes to Prometheus: ``REGISTRY.register(collector(outbox))``.

    The names begin with ``ternmq_outbox_``; each value has a label ``database``. If a process has
    several outboxes, register one collector with all of them.

    Args:
        outbox: An outbox.
        others: More of them.
    """
    from ternmq.reliable.outbox.collector import OutboxCollector

    return OutboxCollector((outbox, *others))
