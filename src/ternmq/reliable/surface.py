"""What ``ternmq.reliable`` exports and needs SQLAlchemy: imported when the first of it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.model.errors import InvalidRequest
from ternmq.reliable.inbox.idempotent import idempotent
from ternmq.reliable.inbox.inbox import Inbox
from ternmq.reliable.inbox.stats import InboxStats
from ternmq.reliable.outbox.outbox import Outbox, ddl
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Step
from ternmq.reliable.steps.item import SequenceStep
from ternmq.reliable.steps.stats import StepsStats
from ternmq.reliable.steps.steps import Steps
from ternmq.reliable.tasks.task import Task, every

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = [
    "Inbox", "InboxStats", "Outbox", "OutboxStats", "SequenceStep", "Step", "Steps", "StepsStats",
    "Task", "collector", "ddl", "every", "idempotent",
]  # fmt: skip


def collector(one: Outbox | Steps, *others: Outbox | Steps) -> Collector:
    """Return what reports to Prometheus: ``REGISTRY.register(collector(outbox, steps))``.

    The names begin with ``ternmq_outbox_`` and ``ternmq_sequence_``; each value has a label
    ``database``. Register one collector with all that a process has.

    Args:
        one: An outbox, or the steps of orderly sessions.
        others: More of them.

    Raises:
        InvalidRequest: One is neither.
    """
    from ternmq.reliable.outbox.collector import OutboxCollector
    from ternmq.reliable.steps.collector import Collectors, StepsCollector

    for each in (one, *others):
        if not isinstance(each, Outbox | Steps):
            raise InvalidRequest(
                f"collector takes outboxes and steps of sessions, not {type(each).__name__}"
            )
    steps = [each for each in (one, *others) if isinstance(each, Steps)]
    outboxes = [each for each in (one, *others) if not isinstance(each, Steps)]
    if not steps:
        return OutboxCollector(outboxes)
    if not outboxes:
        return StepsCollector(steps)
    return Collectors((OutboxCollector(outboxes), StepsCollector(steps)))
