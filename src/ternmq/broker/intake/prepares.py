"""Decides prepares: batches that are stored for a transaction and that no consumer gets yet."""

from __future__ import annotations

from typing import Final

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.dedup.dedup import Entry
from ternmq.broker.gate.replies import PrepareReply
from ternmq.broker.intake.prepared import (
    check_batch,
    check_due_rows,
    check_room,
    queue_of,
    shown,
    stored,
)
from ternmq.broker.intake.scheduling import check_due_times, check_scheduled
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.factkinds import PREPARED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.undecided import Transaction
from ternmq.broker.transaction.writers import Writer, check_names
from ternmq.model.errors import (
    Busy,
    IdConflict,
    InvalidBatch,
    TransactionTooLarge,
)
from ternmq.record.batch.batch import Column
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact import transactions
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.transactions import MAX_NAMES_BYTES, Prepared, resolved_bytes

_WITH_DUE: Final = 1 << Column.DUE_US
_RECORD_OVERHEAD: Final = (
    HEADER_BYTES
    + transactions.PREPARED.size
    + transactions.CHECKED_PREPARED.size
    + MAX_NAMES_BYTES
    + 8
)


class Preparing:
    """Decides prepares.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_sending", "_views")

    def __init__(self, ledger: Ledger, sending: Sending) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._sending = sending

    def prepare(
        self,
        now_us: int,
        app: str,
        topic: Topic,
        batch: bytes,
        writer: str,
        batch_id: int,
        part: str = "",
        number: int | None = None,
    ) -> PrepareReply:
        """Store a batch for a transaction, invisible, or find that it is stored already.

        Args:
            now_us: Broker time.
            app: The app that the writer belongs to.
            topic: The topic.
            batch: As the producer made it; all of it is verified.
            writer: Name of the writer; with ``batch_id`` it identifies the transaction.
            batch_id: The writer's number of the transaction.
            part: The writer's name for the source of the rows.
            number: The queue; as for a send.

        Raises:
            InvalidRequest, InvalidBatch, OrderingKeyRequired, TopicNotOrdered, UnknownQueue,
            MessageTooLarge, StrictNeedsReplica, WriterTaken: nothing was stored.
            DueTooFar: a row is due in more than 731 days.
            TransactionDecided: it is committed.
            TransactionTooOld: it may have been committed; that is no longer known.
            TransactionTooLarge: it has the maximum of batches, or rows with due times, already.
            IdConflict, ResendTooOld: see `dedup`.
            DiskFull, Busy: nothing was stored; a later attempt may succeed.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        check_names(writer, batch_id, part)
        views = self._views
        known = views.writers.of_app(writer, app, now_us)
        checked = check_batch(self._ledger, self._sending, now_us, topic, batch, _RECORD_OVERHEAD)
        if checked.entry is not None:
            return self._duplicate(topic, checked.entry, writer, batch_id, part)
        if known is not None:
            known.check_open(batch_id)
        self._ledger.copies.check(topic.spec)
        self._sending.check_new(now_us, topic, batch, checked.flags)
        opened = self._views.undecided.of(known, batch_id)
        scheduled = bool(checked.flags & _WITH_DUE)
        if scheduled:
            check_due_times(now_us, due_times_of(batch))
        self._check_caps(known, opened, len(batch), checked.rows if scheduled else 0)
        if views.dedup.full(now_us):
            raise Busy("the deduplication window is full")
        ledger, size = self._ledger, len(batch) + _RECORD_OVERHEAD
        if ledger.room.lacks(size, frees=opened is not None):
            raise ledger.room.full(size)
        queue = queue_of(self._sending, topic, batch, number, due=scheduled)
        fact = Prepared(
            topic.number,
            queue,
            views.undecided.next_number if opened is None else opened.number,
            batch_id,
            views.writers.next_number if known is None else known.number,
            0 if opened is None else opened.count,
            checked.rows,
            writer,
            part,
            app,
            batch,
            scheduled=scheduled,
        )
        position = ledger.admit(now_us, PREPARED, fact)
        return PrepareReply(topic.number, shown(queue), position, checked.rows, ledger.end)

    def _check_caps(
        self, writer: Writer | None, opened: Transaction | None, size: int, due: int
    ) -> None:
        """Refuse a batch that is too much; ``due`` of its rows have due times."""
        views, limits = self._views, self._views.limits
        undecided = views.undecided
        if writer is None and len(views.writers.by_number) >= limits.writers:
            raise Busy(
                f"there are {len(views.writers.by_number):,} writers; the limit writers is "
                f"{limits.writers:,}"
            )
        due_rows = due + (0 if opened is None else undecided.times.rows[opened.number])
        if due:
            check_due_rows(limits, due_rows)
            check_scheduled(views, due)
        if opened is None:
            if len(undecided.by_number) >= limits.transactions:
                raise Busy(
                    f"{len(undecided.by_number):,} transactions are undecided; the limit "
                    f"transactions is {limits.transactions:,}"
                )
        elif opened.count >= limits.transaction_batches:
            raise TransactionTooLarge(
                f"the transaction has {opened.count:,} prepared batches; the limit "
                f"transaction_batches is {limits.transaction_batches:,}: send more messages in each"
            )
        elif resolved_bytes(opened.count + 1, due_rows) > self._ledger.journal.max_body:
            raise TransactionTooLarge("the record of its commit would be too large")
        check_room(views, size + _RECORD_OVERHEAD)

    def _duplicate(
        self, topic: Topic, known: Entry, writer: str, batch_id: int, part: str
    ) -> PrepareReply:
        """Return the first answer to a batch that is stored."""
        fact, end = stored(self._ledger, known)
        if (fact.writer_name, fact.batch_id, fact.part) != (writer, batch_id, part):
            raise IdConflict(
                f"the batch was prepared as part {fact.part!r} of batch {fact.batch_id} of "
                f"writer {fact.writer_name!r}"
            )
        if fact.topic != topic.number:
            raise InvalidBatch("the batch was prepared for another topic of this name")
        return PrepareReply(
            topic.number,
            shown(fact.queue),
            known.position,
            fact.count,
            end,
            duplicate=True,
        )
