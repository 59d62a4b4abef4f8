"""Finds transactions with check-back: undecided ones, and decisions that the journal holds."""

from __future__ import annotations

from typing import NamedTuple

from ternmq.broker.checkback.questions import Name
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.checked import CheckedTransaction
from ternmq.model.errors import ProducerGroupTaken, TransactionDecided, UnknownTransaction
from ternmq.model.transaction_ids import transaction_id
from ternmq.record.fact.header import HEADER_BYTES, time_us_of
from ternmq.record.fact.transactions import Resolution, Resolved, unpack_resolved


class Decided(NamedTuple):
    """A decision that the journal holds."""

    fact: Resolved
    time_us: int
    end: int
    """End of its record: what an answer depends on."""

    @property
    def committed(self) -> bool:
        """Whether it was committed; else it was rolled back."""
        return self.fact.outcome is Resolution.COMMITTED


class Found:
    """Looks transactions up for the app that asks.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def any(
        self, app: str, which: int | Name, *, operator: bool = False
    ) -> CheckedTransaction | Decided:
        """Return a transaction, or the decision on it.

        Args:
            app: The app that asks.
            which: Its number, or its name; by its name it is found only while it is undecided, and
                only for the app that gave the name.
            operator: The app may see transactions of other apps.

        Raises:
            UnknownTransaction: It was never opened, or the journal no longer holds its decision.
            ProducerGroupTaken: It belongs to another app.
            WouldBlock: bytes must be read first.
        """
        checked = self._ledger.views.checked
        if isinstance(which, Name):
            opened = checked.by_name.get((app, *which))
            if opened is None:
                raise UnknownTransaction("no transaction of this name is undecided")
        else:
            opened = checked.by_number.get(which)
        if opened is not None:
            _check_app(opened.app, app, opened.number, operator=operator)
            return opened
        assert not isinstance(which, Name)
        return self._decided(app, which, operator=operator)

    def undecided(self, app: str, number: int, *, operator: bool = False) -> CheckedTransaction:
        """Return an undecided transaction.

        Raises:
            TransactionDecided: It is decided.
            UnknownTransaction, ProducerGroupTaken, WouldBlock: As from ``any``.
        """
        found = self.any(app, number, operator=operator)
        if isinstance(found, CheckedTransaction):
            return found
        raise was_decided(number, committed=found.committed)

    def _decided(self, app: str, number: int, *, operator: bool) -> Decided:
        ledger = self._ledger
        decision = None
        if 0 < number < ledger.views.undecided.next_number:
            decision = ledger.index.decision(number)
        if decision is None or decision.position < ledger.journal.first:
            raise UnknownTransaction(
                f"no transaction {transaction_id(number)} is known; old decisions are not kept"
            )
        record = ledger.store.get(decision.position)
        fact = unpack_resolved(record[HEADER_BYTES:])
        _check_app(fact.app, app, number, operator=operator)
        return Decided(fact, time_us_of(record), decision.position + len(record))


def was_decided(number: int, *, committed: bool) -> TransactionDecided:
    """Return the error for what needs an undecided transaction, or the other decision."""
    done = "committed" if committed else "rolled back"
    return TransactionDecided(f"transaction {transaction_id(number)} was {done}")


def _check_app(owner: str, app: str, number: int, *, operator: bool) -> None:
    if owner != app and not operator:
        raise ProducerGroupTaken(f"transaction {transaction_id(number)} belongs to another app")
