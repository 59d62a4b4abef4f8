"""Transactions, for threads."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Self, cast

from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.handler.blocking import engine_of as delivery_of
from ternmq.client.process import pickling
from ternmq.client.transaction import transaction as engine
from ternmq.sync.deliveries import Deliveries
from ternmq.sync.deliveries import engine_of as deliveries_of
from ternmq.sync.facade import blocking
from ternmq.sync.loop_thread import LoopThread

Settled = BlockingDelivery | Deliveries
"""What a transaction settles."""


class Transaction(pickling.NotPickled):
    """``ternmq.Transaction`` with blocking methods, which are described there.

    It is used by one thread at a time.
    """

    _not_pickled = "a transaction cannot be pickled or copied: it belongs to its client"

    def __init__(self, transaction: engine.Transaction, portal: LoopThread) -> None:
        self._transaction = transaction
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._transaction)

    def reach(self) -> tuple[LoopThread, engine.Transaction]:
        """Return the loop's thread and the transaction in that loop. Callable from any thread."""
        return self._portal, self._transaction

    @property
    def id(self) -> str:
        """Its id at the broker, such as ``t-1f3``; empty until its first call was answered."""
        return self._transaction.id

    @property
    def group(self) -> str:
        """Its producer group."""
        return self._transaction.group

    @property
    def query_id(self) -> str:
        """The application's name for what it is about."""
        return self._transaction.query_id

    def __enter__(self) -> Self:
        self._portal.call(self._transaction.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._portal.forked:
            return  # the parent must decide it; the child's error is raised
        self._portal.call(self._transaction.__aexit__(kind, error, traceback))

    open = blocking(engine.Transaction.open)
    send = blocking(engine.Transaction.send)
    send_many = blocking(engine.Transaction.send_many)
    commit_offset = blocking(engine.Transaction.commit_offset)
    commit = blocking(engine.Transaction.commit)
    rollback = blocking(engine.Transaction.rollback)

    def ack(self, delivery: Settled) -> None:
        """Ack a delivery when the transaction commits."""
        self._portal.call(self._transaction.ack(_engine(delivery)))

    def retry(
        self,
        delivery: Settled,
        delay: float | timedelta | None = None,
        *,
        reason: object = "",
    ) -> None:
        """Retry a delivery after the commit."""
        self._portal.call(self._transaction.retry(_engine(delivery), delay, reason=reason))

    def reject(self, delivery: Settled, reason: object = "") -> None:
        """Make a delivery a dead letter when the transaction commits."""
        self._portal.call(self._transaction.reject(_engine(delivery), reason))


def _engine(delivery: object) -> engine.Settled:
    """Return the deliveries in the loop; what is none is refused there."""
    if isinstance(delivery, BlockingDelivery):
        return delivery_of(delivery)
    if isinstance(delivery, Deliveries):
        return deliveries_of(delivery)
    return cast("engine.Settled", delivery)
