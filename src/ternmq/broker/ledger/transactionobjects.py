"""The objects of STATE that store transactions: TRANSACTION, WRITER, PREPARED_ROWS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ternmq.broker.ledger.types import ALWAYS, PREPARED_ROWS, TRANSACTION, WRITER, ObjectType
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position

if TYPE_CHECKING:
    from ternmq.broker.ledger.views import Views


class TransactionObjects:
    """The part of ``StateObjects`` for transactions.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_views", "types")

    def __init__(self, views: Views) -> None:
        self._views = views
        self.types = {
            TRANSACTION: ObjectType(
                self._load_transaction, self._encode_transaction, self._changed_transaction
            ),
            WRITER: ObjectType(self._load_writer, self._encode_writer, self._changed_writer),
            PREPARED_ROWS: ObjectType(
                self._load_prepared, self._encode_prepared, self._changed_prepared
            ),
        }

    def keys(self) -> Iterator[StateKey]:
        """Yield the keys of the objects."""
        views = self._views
        for number, page in sorted(views.undecided.changed):
            yield StateKey(TRANSACTION, 0, 0, page, number)
        for number in sorted(views.writers.by_number):
            yield StateKey(WRITER, number)
        for segment, topics, queues in sorted(views.prepared_rows.changed):
            yield StateKey(PREPARED_ROWS, topics, queues, 0, segment)

    # -- undecided transactions -------------------------------------------------------------------

    def _load_transaction(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._views.undecided.load(key.d, key.c, payload, stamp)

    def _encode_transaction(self, key: StateKey) -> bytes:
        return self._views.undecided.encode(key.d, key.c)

    def _changed_transaction(self, key: StateKey) -> int:
        return self._views.undecided.changed.get((key.d, key.c), ALWAYS)

    # -- writers and their decisions --------------------------------------------------------------

    def _load_writer(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._views.writers.load(key.a, payload, stamp)

    def _encode_writer(self, key: StateKey) -> bytes:
        return self._views.writers.encode(key.a)

    def _changed_writer(self, key: StateKey) -> int:
        writer = self._views.writers.by_number.get(key.a)
        return ALWAYS if writer is None else writer.changed

    # -- prepared rows that are messages ----------------------------------------------------------

    def _load_prepared(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._views.prepared_rows.load((key.d, key.a, key.b), payload, stamp)

    def _encode_prepared(self, key: StateKey) -> bytes:
        return self._views.prepared_rows.encode((key.d, key.a, key.b))

    def _changed_prepared(self, key: StateKey) -> int:
        return self._views.prepared_rows.changed.get((key.d, key.a, key.b), ALWAYS)
