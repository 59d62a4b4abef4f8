"""Decides prepares: batches that are stored for a transaction and that no consumer gets yet."""

from __future__ import annotations

from typing import Final

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.dedup.dedup import Entry
from ternmq.broker.gate.replies import PrepareReply
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.factkinds import PREPARED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.undecided import Transaction
from ternmq.broker.transaction.writers import Writer, check_names
from ternmq.model.errors import (
    Busy,
    IdConflict,
    InvalidBatch,
    InvalidRequest,
    MessageNotFound,
    MessageTooLarge,
    ResendTooOld,
    StrictNeedsReplica,
    TransactionTooLarge,
)
from ternmq.model.specs import Durability
from ternmq.record.batch.batch import HEADER, BatchError, Column, flags_of, verify
from ternmq.record.fact import transactions
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of
from ternmq.record.fact.transactions import MAX_NAMES_BYTES, Prepared, resolved_bytes

_WITH_IDS: Final = 1 << Column.APPLICATION_ID_HASH
_WITH_ORDERING_KEYS: Final = 1 << Column.ORDERING_KEY
_RECORD_OVERHEAD: Final = HEADER_BYTES + transactions.PREPARED.size + MAX_NAMES_BYTES + 8


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
            TransactionDecided: it is committed.
            TransactionTooOld: it may have been committed; that is no longer known.
            TransactionTooLarge: it has the maximum of batches already.
            IdConflict, ResendTooOld: see `dedup`.
            DiskFull, Busy: nothing was stored; a later attempt may succeed.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        check_names(writer, batch_id, part)
        count, crc, producer_id, first = self._check_batch(topic, batch)
        known = self._views.writers.of_app(writer, app, now_us)
        views, limits = self._views, self._views.limits
        dedup = views.dedup
        producer = dedup.producers.get(producer_id)
        if producer is not None and first < producer.next:
            entry = dedup.find(producer_id, first, count, crc, now_us)
            if entry is not None:
                return self._duplicate(topic, entry, writer, batch_id, part)
        elif producer is None and len(dedup.producers) >= limits.producers:
            raise Busy("too many producers")
        if flags_of(batch) & _WITH_ORDERING_KEYS:
            self._sending.check_ordering_keys(topic)
        if known is not None:
            known.check_open(batch_id)
        opened = self._views.undecided.of(known, batch_id)
        self._check_caps(known, opened, len(batch))
        if dedup.full(now_us):
            raise Busy("the deduplication window is full")
        ledger, size = self._ledger, len(batch) + _RECORD_OVERHEAD
        if ledger.room.lacks(size, frees=opened is not None):
            raise ledger.room.full(size)
        queue = self._sending.choose_queue(topic, batch, number)
        fact = Prepared(
            topic.number,
            queue.number,
            views.undecided.next_number if opened is None else opened.number,
            batch_id,
            views.writers.next_number if known is None else known.number,
            0 if opened is None else opened.count,
            count,
            writer,
            part,
            app,
            batch,
        )
        position = ledger.admit(now_us, PREPARED, fact)
        return PrepareReply(topic.number, queue.number, position, count, ledger.end)

    def _check_batch(self, topic: Topic, batch: bytes) -> tuple[int, int, int, int]:
        """Check a batch; return its number of rows, CRC, producer id and first sequence."""
        try:
            verify(batch, topic.seed)
        except BatchError as error:
            raise InvalidBatch(str(error)) from error
        _, crc, size, _, _, _, flags, count, producer_id, first, _ = HEADER.unpack_from(batch)
        self._sending.check_flags(topic, flags)
        if flags & _WITH_IDS:
            raise InvalidRequest(
                "rows of a transaction cannot have ids of the application: the transaction itself "
                "prevents duplicates"
            )
        if topic.spec.durability is Durability.STRICT:
            raise StrictNeedsReplica(f"topic {topic.name} is strict and this broker has no replica")
        if (
            size > self._views.limits.batch_bytes
            or size + _RECORD_OVERHEAD > self._ledger.journal.max_body
        ):
            raise MessageTooLarge(f"a batch of {size} bytes")
        return count, crc, producer_id, first

    def _check_caps(self, writer: Writer | None, opened: Transaction | None, size: int) -> None:
        views, limits = self._views, self._views.limits
        undecided = views.undecided
        if writer is None and len(views.writers.by_number) >= limits.writers:
            raise Busy(f"there are {limits.writers} writers")
        if opened is None:
            if len(undecided.by_number) >= limits.transactions:
                raise Busy(f"{limits.transactions} transactions are undecided")
        elif (
            opened.count >= limits.transaction_batches
            or resolved_bytes(opened.count + 1) > self._ledger.journal.max_body
        ):
            raise TransactionTooLarge(f"the transaction has {opened.count} prepared batches")
        if undecided.batches >= limits.prepared_batches:
            raise Busy(f"{limits.prepared_batches} prepared batches are undecided")
        if undecided.bytes + size + _RECORD_OVERHEAD > limits.prepared_bytes:
            raise Busy(f"{undecided.bytes} bytes of prepared batches are undecided")

    def _duplicate(
        self, topic: Topic, known: Entry, writer: str, batch_id: int, part: str
    ) -> PrepareReply:
        """Return the first answer to a batch that is stored."""
        try:
            record = self._ledger.store.get(known.position)
        except MessageNotFound as error:
            raise ResendTooOld("the batch was prepared before, and is no longer kept") from error
        if kind_of(record) != Kind.PREPARED:
            raise IdConflict("the batch was sent before; a prepared batch needs other ids")
        stored = transactions.unpack_prepared(record[HEADER_BYTES:])
        if (stored.writer_name, stored.batch_id, stored.part) != (writer, batch_id, part):
            raise IdConflict(
                f"the batch was prepared as part {stored.part!r} of batch {stored.batch_id} of "
                f"writer {stored.writer_name!r}"
            )
        if stored.topic != topic.number:
            raise InvalidBatch("the batch was prepared for another topic of this name")
        return PrepareReply(
            topic.number,
            stored.queue,
            known.position,
            stored.count,
            known.position + len(record),
            duplicate=True,
        )
