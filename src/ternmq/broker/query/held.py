"""What questions are answered from: the journal up to a mark, and the views computed from it.

A broker that leads answers from its ledger, a follower from its copy.
"""

from __future__ import annotations

from typing import Protocol

from ternmq.broker.ledger.views import Views
from ternmq.journal.index.index import Index
from ternmq.journal.store.store import RecordStore
from ternmq.model.specs import Limits
from ternmq.model.types import Position


class Marks(Protocol):
    """Where a journal begins, and how far it reaches."""

    @property
    def first(self) -> Position:
        """Base of the oldest segment."""
        ...

    @property
    def committed(self) -> Position:
        """Position below which everything is that may be shown."""
        ...

    @property
    def end(self) -> Position:
        """Position up to which the views contain the journal."""
        ...


class Held(Protocol):
    """A journal and its views, to be read. Not thread-safe: the broker's loop only."""

    @property
    def journal(self) -> Marks:
        """The marks of the journal."""
        ...

    @property
    def views(self) -> Views:
        """The views; they contain all records below ``journal.end``."""
        ...

    @property
    def store(self) -> RecordStore:
        """Reads records."""
        ...

    @property
    def index(self) -> Index:
        """Finds records."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of the broker."""
        ...
