"""Decides transactions that their writers name: commit, abort, and expiry.

A transaction is named by (writer, batch id). A request that is repeated, because an answer was lost
or a writer started again, has the effect of one: the same batch prepared again gets the first
answer, a commit with the recorded digest is answered as *repeated*, an abort of a transaction that
was rolled back succeeds. Requests that contradict a decision are refused. Prepares are decided in
`prepares`. See ``docs/adr/0012-rows-prepared-and-resolved.md``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from ternmq.broker.catalog.catalog import Queue
from ternmq.broker.gate.replies import ResolveReply
from ternmq.broker.intake.committing import places_of, record, rows_of
from ternmq.broker.intake.scheduling import Scheduling
from ternmq.broker.ledger.factkinds import RESOLVED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.checked import CheckedBatch
from ternmq.broker.transaction.undecided import Transaction
from ternmq.broker.transaction.writers import MAX_U64, Writer, check_names
from ternmq.model.errors import (
    Busy,
    InvalidRequest,
    TransactionConflict,
    TransactionDecided,
    UnknownTopic,
    UnknownTransaction,
)
from ternmq.record.fact.transactions import Resolution, Resolved, Why

_SWEEP_US: Final = 3_600_000_000
_NO_TIMES: Final = array("q")


class Transactions:
    """Decides commits and aborts, and rolls back what stays undecided for too long.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_scheduling", "_sweep_us", "_views", "expired", "touched")

    def __init__(self, ledger: Ledger, scheduling: Scheduling) -> None:
        self._ledger = ledger
        self._scheduling = scheduling
        self._views = ledger.views
        self._sweep_us = 0
        self.expired = 0
        """Transactions that were rolled back because they were undecided for too long."""
        self.touched: list[Queue] = []
        """Queues that got rows from the last commit."""

    # -- commit and abort -------------------------------------------------------------------------

    def commit(
        self, now_us: int, app: str, writer: str, batch_id: int, ids: Sequence[int], digest: int
    ) -> ResolveReply:
        """Make the prepared rows messages, or schedule those with due times, all at one position.

        Args:
            now_us: Broker time.
            app: The app that the writer belongs to.
            writer: See ``prepare``.
            batch_id: See ``prepare``.
            ids: The answers of ``prepare``, in the order in which the rows are to get offsets and
                entries.
                Prepared batches that are not listed are dropped.
            digest: Digest of what the writer commits, by any formula; a repeat must have the same.

        Raises:
            InvalidRequest, WriterTaken: nothing was changed.
            TransactionConflict: it was committed with another digest.
            TransactionDecided: it was rolled back.
            TransactionTooOld: it may have been committed; that is no longer known.
            UnknownTransaction: an id is not part of it.
            UnknownTopic: a topic of it was deleted.
            DiskFull, Busy: nothing was changed; a later attempt may succeed.
        """
        check_names(writer, batch_id, "")
        if not 0 <= digest <= MAX_U64:
            raise InvalidRequest("a digest is a number of 64 bits")
        known = self._views.writers.of_app(writer, app, now_us)
        opened = self._views.undecided.of(known, batch_id)
        if known is not None:
            decision = known.decisions.get(batch_id)
            if decision is not None and decision.committed:
                if decision.digest != digest:
                    raise TransactionConflict(
                        f"batch {batch_id} of writer {writer!r} was committed with digest "
                        f"{decision.digest:016x}, not {digest:016x}"
                    )
                return ResolveReply(decision.rows, decision.end, repeated=True)
            if decision is None:
                known.check_age(batch_id)
        elif len(self._views.writers.by_number) >= self._views.limits.writers:
            raise Busy(f"there are {self._views.limits.writers} writers")
        chosen = self._chosen(known, opened, writer, batch_id, ids)
        places = places_of(self._views, now_us, chosen)
        if places.gone:
            raise UnknownTopic("a topic of this transaction was deleted")
        kept = {batch.position for batch in chosen}
        rows = rows_of(places)
        dropped = (
            []
            if opened is None
            else [one.position for one in opened.batches() if one.position not in kept]
        )
        fact = Resolved(
            0 if opened is None else opened.number,
            batch_id,
            digest,
            rows,
            self._views.writers.next_number if known is None else known.number,
            Resolution.COMMITTED,
            Why.WRITER,
            writer,
            app,
            places.parts,
            dropped,
            due=places.due,
        )
        self.touched = record(self._ledger, self._scheduling, now_us, fact)
        return ResolveReply(rows, self._ledger.end)

    def abort(
        self, now_us: int, app: str, writer: str, batch_id: int, *, operator: bool = False
    ) -> ResolveReply:
        """Roll a transaction back: its prepared rows never become messages.

        Afterwards the name may be prepared again. If nothing is prepared, nothing is done.

        Args:
            now_us: Broker time.
            app: The app that requests it.
            writer: See ``prepare``.
            batch_id: See ``prepare``.
            operator: The app may abort transactions of other apps; this is recorded.

        Raises:
            InvalidRequest, WriterTaken: nothing was changed.
            TransactionDecided: it is committed.
            TransactionTooOld: it may have been committed; that is no longer known.
            DiskFull, Busy: nothing was changed; a later attempt may succeed.
        """
        check_names(writer, batch_id, "")
        if operator:
            known = self._views.writers.find(writer, now_us)
        else:
            known = self._views.writers.of_app(writer, app, now_us)
        if known is None:
            return ResolveReply(0, self._ledger.end, repeated=True)
        known.check_open(batch_id)
        opened = self._views.undecided.of(known, batch_id)
        if opened is None:
            decision = known.decisions.get(batch_id)
            end = self._ledger.end if decision is None else decision.end
            return ResolveReply(0, end, repeated=True)
        why = Why.WRITER if known.app == app else Why.OPERATOR
        self._ledger.admit(now_us, RESOLVED, _rolled_back(opened, known, why))
        return ResolveReply(0, self._ledger.end)

    def _chosen(
        self,
        writer: Writer | None,
        opened: Transaction | None,
        name: str,
        batch_id: int,
        ids: Sequence[int],
    ) -> list[CheckedBatch]:
        """Return the prepared batches that ``ids`` lists, with the due times of their rows."""
        if not ids:
            return []
        prepared = {} if opened is None else self._prepared(opened)
        if len(set(ids)) != len(ids):
            raise InvalidRequest("an id of a prepared batch is listed twice")
        missing = [one for one in ids if one not in prepared]
        if missing:
            if writer is not None and batch_id in writer.decisions:
                raise TransactionDecided(
                    f"batch {batch_id} of writer {name!r} was rolled back, and prepared batch "
                    f"{missing[0]} with it"
                )
            raise UnknownTransaction(
                f"prepared batch {missing[0]} is not part of batch {batch_id} of writer {name!r}"
            )
        return [prepared[one] for one in ids]

    def _prepared(self, opened: Transaction) -> dict[int, CheckedBatch]:
        """Return the prepared batches of a transaction by their ids."""
        times = self._views.undecided.times.of(opened.number)
        found: dict[int, CheckedBatch] = {}
        for ordinal, one in enumerate(opened.batches()):
            known = times.get(ordinal)
            due_us = _NO_TIMES if known is None else known.due_us
            found[one.position] = CheckedBatch(*one, due_us)
        return found

    def owner(self, now_us: int, writer: str) -> str | None:
        """Return the app that a writer belongs to, None if it is new."""
        known = self._views.writers.find(writer, now_us)
        return None if known is None else known.app

    def topics_of(self, writer: str, batch_id: int) -> list[str]:
        """Return the names of the topics for which an undecided transaction has rows, sorted."""
        known = self._views.writers.by_name.get(writer)
        opened = self._views.undecided.of(known, batch_id)
        if opened is None:
            return []
        return self._views.catalog.names_of(opened.topics)

    # -- expiry -----------------------------------------------------------------------------------

    def expire(self, now_us: int, most: int) -> int:
        """Roll back transactions undecided for too long, oldest first; return how many batches.

        Raises:
            JournalFull: there is no room now; a later call continues.
        """
        views = self._views
        before = now_us - views.limits.transaction_us
        batches = 0
        while batches < most:
            oldest = next(iter(views.undecided.by_number.values()), None)
            if oldest is None or oldest.opened_us > before:
                break
            writer = views.writers.by_number[oldest.writer]
            self._ledger.record(now_us, RESOLVED, _rolled_back(oldest, writer, Why.EXPIRED))
            self.expired += 1
            batches += oldest.count
        if now_us >= self._sweep_us:
            self._sweep_us = now_us + _SWEEP_US
            views.writers.sweep(now_us)
        return batches


def _rolled_back(opened: Transaction, writer: Writer, why: Why) -> Resolved:
    """Return the fact that a transaction is rolled back."""
    return Resolved(
        opened.number,
        opened.batch_id,
        0,
        0,
        writer.number,
        Resolution.ROLLED_BACK,
        why,
        writer.name,
        writer.app,
        (),
        [one.position for one in opened.batches()],
    )
