"""What both kinds of transactions check of a batch that is prepared in them."""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.dedup.dedup import Entry
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.ledger.views import Views
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
from ternmq.model.specs import Durability, Limits
from ternmq.record.batch.batch import HEADER, BatchError, Column, verify
from ternmq.record.fact import transactions
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of
from ternmq.record.fact.schedule import NO_QUEUE
from ternmq.record.fact.transactions import Prepared

_WITH_IDS: Final = 1 << Column.APPLICATION_ID_HASH


class Checked(NamedTuple):
    """A batch that may be prepared."""

    rows: int
    flags: int
    entry: Entry | None
    """Where it is stored already; None: it is new."""


def check_batch(
    ledger: Ledger, sending: Sending, now_us: int, topic: Topic, batch: bytes, overhead: int
) -> Checked:
    """Verify a batch, and look whether it is stored already.

    ``Sending.check_new`` of a new one is left to the caller: a batch of a transaction that is
    decided is told so, whatever the topic takes by now.

    Args:
        ledger: The broker's.
        sending: Decides sends.
        now_us: Broker time.
        topic: The topic.
        batch: As the producer made it.
        overhead: Bytes that its record has besides it.

    Raises:
        InvalidRequest, InvalidBatch, OrderingKeyRequired, TopicNotOrdered, MessageTooLarge,
            StrictNeedsReplica: it cannot be prepared.
        IdConflict, ResendTooOld: see `dedup`.
        Busy: there are too many producers.
    """
    views = ledger.views
    dedup, limits = views.dedup, views.limits
    try:
        verify(batch, topic.seed)
    except BatchError as error:
        raise InvalidBatch(str(error)) from error
    _, crc, size, _, _, _, flags, count, producer_id, first, _ = HEADER.unpack_from(batch)
    sending.check_flags(topic, flags, batch)
    if flags & _WITH_IDS:
        raise InvalidRequest(
            "messages of a transaction cannot have ids of their own: the transaction itself "
            "prevents duplicates"
        )
    if topic.spec.durability is Durability.STRICT:
        raise StrictNeedsReplica(
            f"topic {topic.name} is strict, and transactions take no messages for strict topics"
        )
    if size > limits.batch_bytes or size + overhead > ledger.journal.max_body:
        raise MessageTooLarge(f"a batch of {size} bytes")
    entry: Entry | None = None
    producer = dedup.producers.get(producer_id)
    if producer is not None and first < producer.next:
        entry = dedup.find(producer_id, first, count, crc, now_us)
    elif producer is None and len(dedup.producers) >= limits.producers:
        raise Busy(f"there are {limits.producers:,} producers, the limit producers")
    return Checked(count, flags, entry)


def check_due_rows(limits: Limits, rows: int, name: str = "the transaction") -> None:
    """Refuse more rows with due times than a transaction may have.

    Raises:
        TransactionTooLarge.
    """
    if rows > limits.transaction_due_rows:
        raise TransactionTooLarge(
            f"{name} would have {rows:,} messages with due times; the limit "
            f"transaction_due_rows is {limits.transaction_due_rows:,}"
        )


def check_room(views: Views, size: int) -> None:
    """Refuse a batch that is one too many of those in undecided transactions of both kinds.

    Args:
        views: The broker's.
        size: Bytes of its record.

    Raises:
        Busy: a later attempt may succeed.
    """
    limits, kinds = views.limits, (views.undecided, views.checked)
    if sum([kind.batches for kind in kinds]) >= limits.prepared_batches:
        raise Busy(f"{limits.prepared_batches:,} prepared batches are undecided")
    held = sum([kind.bytes for kind in kinds])
    if held + size > limits.prepared_bytes:
        raise Busy(f"{held:,} bytes of prepared batches are undecided")


def queue_of(sending: Sending, topic: Topic, batch: bytes, number: int | None, *, due: bool) -> int:
    """Return the number of the queue; of rows with due times, the one that is asked for.

    Raises:
        UnknownQueue, InvalidBatch: The rows cannot be in that queue.
    """
    if not due:
        return sending.choose_queue(topic, batch, number).number
    if number is None:
        return NO_QUEUE
    sending.scheduling.check_queue(topic, number, batch)
    return number


def shown(queue: int) -> int:
    """Return a queue as answers show it: 0 if it is chosen when the rows come due."""
    return 0 if queue == NO_QUEUE else queue


def stored(ledger: Ledger, known: Entry) -> tuple[Prepared, int]:
    """Return the PREPARED of a batch that is stored already, and its end.

    Raises:
        ResendTooOld: it is no longer kept.
        IdConflict: the batch was sent, not prepared.
    """
    try:
        record = ledger.store.get(known.position)
    except MessageNotFound as error:
        raise ResendTooOld("the batch was prepared before, and is no longer kept") from error
    if kind_of(record) != Kind.PREPARED:
        raise IdConflict("the batch was sent before; a prepared batch needs other ids")
    return transactions.unpack_prepared(record[HEADER_BYTES:]), known.position + len(record)
