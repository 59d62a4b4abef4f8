"""Checks for prepare, commit and abort: the writer's owner, and whether the transaction is open."""

from __future__ import annotations

from typing import Final

from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.undecided import Transaction
from ternmq.broker.transaction.writers import Writer
from ternmq.model.errors import (
    InvalidRequest,
    TransactionDecided,
    TransactionTooOld,
    WriterTaken,
)
from ternmq.record.fact.transactions import MAX_PART_BYTES, MAX_WRITER_BYTES

MAX_U64: Final = 2**64 - 1


class Openings:
    """Base of ``Preparing`` and ``Transactions``.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_views")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._views = ledger.views

    def _writer(self, now_us: int, app: str, name: str) -> Writer | None:
        """Return the writer, None if it is new.

        Raises:
            WriterTaken: it belongs to another app.
        """
        writer = self._views.writers.find(name, now_us)
        if writer is not None and writer.app != app:
            raise WriterTaken(f"writer {name!r} belongs to app {writer.app!r}, not {app!r}")
        return writer

    def _opened(self, writer: Writer | None, batch_id: int) -> Transaction | None:
        if writer is None:
            return None
        return self._views.undecided.by_name.get((writer.number, batch_id))

    def _check_open(self, writer: Writer, batch_id: int) -> None:
        """Refuse a batch that is committed, or may have been."""
        decision = writer.decisions.get(batch_id)
        if decision is None:
            self._check_age(writer, batch_id)
        elif decision.committed:
            raise TransactionDecided(f"batch {batch_id} of writer {writer.name!r} is committed")

    def _check_age(self, writer: Writer, batch_id: int) -> None:
        if batch_id < writer.forgotten:
            raise TransactionTooOld(
                f"batch {batch_id} of writer {writer.name!r} is at or below the highest that was "
                f"committed and is forgotten, {writer.forgotten - 1}"
            )


def check_names(writer: str, batch_id: int, part: str) -> None:
    """Refuse names that no transaction can have.

    Raises:
        InvalidRequest: a name or the batch id is not allowed.
    """
    if not writer or len(writer.encode()) > MAX_WRITER_BYTES:
        raise InvalidRequest(f"a writer's name has 1 to {MAX_WRITER_BYTES} bytes")
    if len(part.encode()) > MAX_PART_BYTES:
        raise InvalidRequest(f"the name of a part has at most {MAX_PART_BYTES} bytes")
    if not 0 <= batch_id <= MAX_U64:
        raise InvalidRequest("a batch id is a number of 64 bits")
