"""Sending and receiving together with the changes of an application's database.

``database`` (ports, tables, leases), ``libraries`` (SQLAlchemy and bare connections), ``ids``
(numbers and text ids that are unique everywhere), ``outbox`` (messages as rows, sent after the
transaction), ``modes`` (batch sessions, the messages of orderly sessions, a limit on the rate of
sends; without a database), ``steps`` (the consumer of orderly sessions), ``surface`` (what needs
SQLAlchemy), ``django`` (an app that makes the tables).

Reading order: ``database``, ``libraries``, ``ids``, ``outbox``, ``modes``, ``steps``.
Invariant: the package uses the client as applications do; ``import ternmq`` imports none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ternmq.client.content.items import Item, Items
from ternmq.reliable.ids.text import text_id
from ternmq.reliable.modes.batch import batch
from ternmq.reliable.modes.holders import BlockingHolder, Holder
from ternmq.reliable.modes.sequence import BlockingSequenceBlock, SequenceBlock, sequence
from ternmq.reliable.modes.throttle import Throttle

if TYPE_CHECKING:
    from ternmq.reliable.surface import Outbox, OutboxStats, SequenceStep, Step, Steps, ddl

__all__ = [
    "Outbox", "OutboxStats", "Step", "ddl", "text_id", "batch", "Holder", "BlockingHolder", "Items",
    "Item", "Throttle", "sequence", "SequenceBlock", "BlockingSequenceBlock", "Steps",
    "SequenceStep",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of several kinds
    """Import what needs SQLAlchemy when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ternmq.reliable import surface

    return getattr(surface, name)
