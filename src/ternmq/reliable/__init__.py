"""Sending and receiving together with the changes of an application's database.

``database`` (ports, tables, leases), ``libraries`` (SQLAlchemy and bare connections), ``ids``
(numbers and text ids that are unique everywhere), ``tasks`` (functions that run once every so many
seconds), ``outbox`` (messages as rows, sent after the transaction), ``inbox`` (messages that come
twice have their effect once), ``surface`` (what needs SQLAlchemy).

Reading order: ``database``, ``libraries``, ``ids``, ``tasks``, ``outbox``, ``inbox``.
Invariant: the package uses the client as applications do; ``import ternmq`` imports none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ternmq.reliable.ids.text import text_id

if TYPE_CHECKING:
    from ternmq.reliable.surface import (
        Inbox,
        InboxStats,
        Outbox,
        OutboxStats,
        Step,
        Task,
        ddl,
        every,
        idempotent,
    )

__all__ = [
    "Inbox", "InboxStats", "Outbox", "OutboxStats", "Step", "Task", "ddl", "every", "idempotent",
    "text_id",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of several kinds
    """Import what needs SQLAlchemy when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ternmq.reliable import surface

    return getattr(surface, name)
