"""Decides sends with due times, and their cancellation.

The rows of a batch with due times are stored in a SCHEDULED record and become messages when they
are due (`upkeep.fulfilling`). Deduplication knows them by that record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.gate.replies import DoneReply, SendReply
from ternmq.broker.intake.given_ids import GivenIds
from ternmq.broker.intake.levels import check_level
from ternmq.broker.ledger.factkinds import CANCELLED, SCHEDULED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.ledger.views import Views
from ternmq.journal.index.tail import Place
from ternmq.model.errors import (
    AlreadyDelivered,
    Busy,
    DueTooFar,
    InvalidBatch,
    MessageNotFound,
    UnknownQueue,
)
from ternmq.model.types import DAY_US, MINUTE_US, Position
from ternmq.record.batch.batch import HEADER, Batch, Column, flags_of
from ternmq.record.batch.hashes import application_id_hash
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact import messages
from ternmq.record.fact.header import Kind, kind_of
from ternmq.record.fact.messages import Messages, RowRun
from ternmq.record.fact.schedule import (
    NO_QUEUE,
    CancelCause,
    Cancelled,
    CancelledRow,
)
from ternmq.record.fact.transactions import of_scheduled

LONGEST_DELAY_US: Final = 731 * DAY_US + MINUTE_US
"""731 days, and a minute because a client's idea of broker time may be ahead."""
_WITH_IDS: Final = 1 << Column.APPLICATION_ID_HASH
# Members as module names: to look one up in its class takes 0.2 us (Python 3.11).


def check_scheduled(views: Views, rows: int) -> None:
    """Refuse rows with due times that are too many, with those that undecided transactions hold.

    Raises:
        Busy: A later attempt may succeed.
    """
    scheduled = views.schedule.rows
    prepared = views.checked.due_rows + views.undecided.times.all_rows
    if scheduled + prepared + rows > views.limits.scheduled_rows:
        beside = f" and {prepared:,} prepared" if prepared else ""
        raise Busy(f"{scheduled:,} messages are scheduled{beside}, the limit scheduled_rows")


class Scheduling:
    """Decides which rows are scheduled and which are cancelled.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ids", "_ledger", "_views")

    def __init__(self, ledger: Ledger, ids: GivenIds) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._ids = ids

    # -- scheduling -------------------------------------------------------------------------------

    def schedule(
        self, now_us: int, topic: Topic, number: int | None, batch: bytes, count: int
    ) -> SendReply | None:
        """Store a batch with due times; None if all of its rows are due: then it is a plain send.

        Args:
            now_us: Broker time.
            topic: The topic.
            number: The queue that the producer asks for; None: in turn, or by ordering key, when
                the rows come due.
            batch: A verified batch that deduplication does not know.
            count: Number of its rows.

        Raises:
            InvalidBatch: Only some of its rows have a due time, or one is negative.
            DueTooFar: A row is due in more than 731 days.
            MessageTooLarge: See ``GivenIds.runs``.
            UnknownQueue, Busy, DiskFull: Nothing was stored.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        due = due_times_of(batch)
        earliest, latest = check_due_times(now_us, due)
        if latest <= now_us:
            return None
        if number is not None:
            self.check_queue(topic, number, batch)
        check_scheduled(self._views, count)
        wish = NO_QUEUE if number is None else number
        known = self._ids.known(now_us, topic, batch) if flags_of(batch) & _WITH_IDS else None
        stored = count
        runs: tuple[RowRun, ...] = ()
        if known is not None and (known.outcomes or known.repeats):
            stored -= len(known.outcomes) + len(known.repeats)
            if not stored:
                return SendReply(
                    topic.number, number or 0, None, 0, known.depends,
                    self._ledger.copies.rests(topic.spec.durability),
                    duplicate=True, rows=known.outcomes, scheduled=True,
                )  # fmt: skip
            runs = self._ids.runs(known, batch, count)
        entry = self._views.schedule.next_entry
        fact = Messages(topic.number, wish, entry, stored, runs, batch)
        self._ledger.admit(now_us, SCHEDULED, fact)
        self.arm(topic.number, max(now_us, earliest))
        return SendReply(
            topic.number, number or 0, None, stored, self._ledger.end,
            self._ledger.copies.rests(topic.spec.durability),
            rows=known.told(None) if known is not None and runs else (), scheduled=True,
        )  # fmt: skip

    def check_queue(self, topic: Topic, number: int, batch: bytes) -> None:
        """Refuse a queue for rows with due times; raises UnknownQueue or InvalidBatch."""
        queues = len(topic.queues)
        if not 0 <= number < queues:
            raise UnknownQueue(f"topic {topic.name} has queues 0 to {queues - 1}")
        if topic.level_turns:
            check_level(topic, batch, number)
        if topic.spec.ordered:
            homes = {hash_ % queues for hash_ in Batch(batch).ordering_hashes()}
            if homes != {number}:
                raise InvalidBatch(f"the keys of this batch do not belong to queue {number}")

    def arm(self, number: int, due_us: int) -> None:
        """Set the timer of a topic that has a new row due at a time, unless it is set earlier."""
        schedule = self._views.schedule
        topic = schedule.topics[number]
        if due_us < topic.armed_us and due_us < schedule.horizon_us:
            self._ledger.timers.arm_scheduled(topic, due_us)

    # -- cancelling -------------------------------------------------------------------------------

    def cancel(
        self, now_us: int, topic: Topic, producer: int, sequence: int, *, operator: bool = False
    ) -> DoneReply:
        """Cancel a scheduled message by its message id; it is never delivered.

        If it is cancelled already, nothing is changed.

        Args:
            now_us: Broker time.
            topic: Its topic.
            producer: Producer id of its message id.
            sequence: Sequence of its message id.
            operator: Whether an operator cancels it, not an app that sends to the topic.

        Raises:
            AlreadyDelivered: It has become a message of its queue.
            MessageNotFound: The topic has no such message, or none any more.
            Busy, DiskFull: Nothing was changed; a later attempt may succeed.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        found = self._cancel_recent(now_us, topic, producer, sequence, operator=operator)
        if found is None:
            places = self._ledger.index.by_message_id(producer, sequence)
            found = self._cancel(now_us, topic, places, None, operator=operator)
        if found is None:
            raise MessageNotFound(f"topic {topic.name} has no message {producer:016x}:{sequence:x}")
        return found

    def _cancel_recent(
        self, now_us: int, topic: Topic, producer: int, sequence: int, *, operator: bool
    ) -> DoneReply | None:
        """Cancel a pending message that deduplication remembers; None: look for it in the index.

        The index would be searched for its delivery first: this is ten times as fast.
        """
        position = self._views.dedup.position_of(producer, sequence)
        if position is None or position < self._ledger.journal.first:
            return None
        stored = self._stored(position, self._ledger.store.get(position))
        if stored is None or stored.topic != topic.number:
            return None
        first: int = HEADER.unpack_from(stored.batch)[9]
        entry = stored.offset_of(sequence - first)
        row = None if entry is None else self._views.schedule.pages.find(entry)
        if row is None:
            return None
        return self._cancel_entry(now_us, topic, row.due_us, row.entry, operator=operator)

    def _stored(self, position: int, record: bytes) -> messages.Messages | None:
        """Return the rows of a record if they were scheduled, else None.

        Raises:
            WouldBlock: bytes must be read first.
        """
        kind = kind_of(record)
        if kind == Kind.SCHEDULED:
            return messages.of_record(record)
        if kind == Kind.PREPARED:
            settlement = self._ledger.index.settlement(Position(position))
            if settlement is not None and settlement.first_entry is not None:
                return of_scheduled(record, settlement.first_entry)
        return None

    def cancel_id(
        self, now_us: int, topic: Topic, application_id: str, *, operator: bool = False
    ) -> DoneReply:
        """Cancel the newest message with an application id; see ``cancel``."""
        low, high = application_id_hash(application_id.encode())
        places = self._ledger.index.by_application_id(topic.number, low, high)
        found = self._cancel(now_us, topic, places, application_id, operator=operator)
        if found is None:
            raise MessageNotFound(f"topic {topic.name} has no message with id {application_id!r}")
        return found

    def _cancel(
        self,
        now_us: int,
        topic: Topic,
        places: Iterable[Place],
        application_id: str | None,
        *,
        operator: bool,
    ) -> DoneReply | None:
        """Cancel the newest message at some places; None if none of them holds it.

        The place of a delivery is newer than those of the same row in SCHEDULED records. The cursor
        of the topic would not say whether a row was delivered: rows that were cancelled are below
        it, too.
        """
        moved = False
        for place in places:
            record = self._ledger.store.get(place.position)
            kind = kind_of(record)
            if kind == Kind.MOVED:
                # Or an older message with this application id was copied after this one was stored.
                moved = True
                continue
            delivered = kind == Kind.MESSAGES
            stored = (
                messages.of_record(record) if delivered else self._stored(place.position, record)
            )
            number = None if stored is None else stored.offset_of(place.row)
            if stored is None or number is None or stored.topic != topic.number:
                continue
            batch = Batch(stored.batch)
            if application_id is not None and (
                batch.application_id_texts()[place.row] != application_id
            ):
                continue
            if delivered:
                raise AlreadyDelivered(
                    f"the message is in queue {stored.queue} at offset {number:,}"
                )
            row = self._views.schedule.pages.find(number)
            if row is not None:
                return self._cancel_entry(now_us, topic, row.due_us, number, operator=operator)
            if not moved:
                return DoneReply(self._ledger.end)  # it is cancelled already
        if moved:
            raise AlreadyDelivered("the message has been delivered")
        return None

    def _cancel_entry(
        self, now_us: int, topic: Topic, due_us: int, entry: int, *, operator: bool
    ) -> DoneReply:
        """Cancel a pending row."""
        cause = CancelCause.OPERATOR if operator else CancelCause.CLIENT
        row = CancelledRow(topic.number, due_us, entry)
        self._ledger.admit(now_us, CANCELLED, Cancelled(cause, [row]))
        return DoneReply(self._ledger.end)


def check_due_times(now_us: int, due: Sequence[int]) -> tuple[int, int]:
    """Return the earliest and the latest due time of a batch.

    Raises:
        InvalidBatch: Only some of its rows have a due time, or one is negative.
        DueTooFar: A row is due in more than 731 days.
    """
    earliest, latest = (due[0], due[0]) if len(due) == 1 else (min(due), max(due))
    if earliest <= 0:
        raise InvalidBatch(
            "every message of a batch with due times needs one, in microseconds since 1970"
        )
    if latest > now_us + LONGEST_DELAY_US:
        tenths = -(-(latest - now_us) * 10 // DAY_US)  # rounded up: 731.0 is allowed
        raise DueTooFar(f"a message would be due in {tenths / 10:,.1f} days")
    return earliest, latest
