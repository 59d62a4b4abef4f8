"""What ``ternmq.reliable`` exports and needs SQLAlchemy: imported when the first of it is used."""

from __future__ import annotations

from ternmq.reliable.outbox.outbox import Outbox, ddl
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Step

__all__ = ["Outbox", "OutboxStats", "Step", "ddl"]
