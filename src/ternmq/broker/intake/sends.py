"""Decides sends: what is refused, what is a duplicate, and which offsets the others get."""

from __future__ import annotations

from typing import Final

import msgspec

from ternmq.broker.catalog.catalog import Queue, Topic
from ternmq.broker.dedup.dedup import Entry
from ternmq.broker.gate.replies import RowOutcome, SendReply
from ternmq.broker.intake.given_ids import GivenIds, Known
from ternmq.broker.intake.levels import level_of, queue_of_level
from ternmq.broker.intake.scheduling import Scheduling
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import (
    Busy,
    IdConflict,
    InvalidBatch,
    InvalidRequest,
    MessageNotFound,
    MessageTooLarge,
    OrderingKeyRequired,
    TopicNotOrdered,
    UnknownQueue,
)
from ternmq.model.marks import Rests
from ternmq.model.specs import LONGEST_US, Durability, TopicSpec
from ternmq.model.types import MINUTE_US, SECOND_US
from ternmq.record.batch.batch import (
    HEADER,
    Batch,
    BatchError,
    BatchFlag,
    Column,
    flags_of,
    topic_seed,
    verify,
)
from ternmq.record.batch.layout import due_times_of, expiry_times_of, priorities_of
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of
from ternmq.record.fact.messages import Messages, RowRun

_KEYED: Final = int(BatchFlag.KEYED)
_SLICE: Final = int(BatchFlag.SLICE)
_WITH_IDS: Final = 1 << Column.APPLICATION_ID_HASH
_WITH_ORDERING_KEYS: Final = 1 << Column.ORDERING_KEY
_WITH_DUE: Final = 1 << Column.DUE_US
_WITH_EXPIRY: Final = 1 << Column.EXPIRY_US
_WITH_PRIORITY: Final = 1 << Column.PRIORITY
_TO_CHECK: Final = _KEYED | _SLICE | _WITH_PRIORITY
_AFTER_DEDUP: Final = _WITH_ORDERING_KEYS | _WITH_EXPIRY
_CLOCK_US: Final = MINUTE_US
"""How far a client's idea of broker time may be ahead of it."""
# Members as module names: to look one up in its class takes 0.2 us (Python 3.11).
_MESSAGES: Final = Kind.MESSAGES
_SCHEDULED: Final = Kind.SCHEDULED
_STRICT: Final = Durability.STRICT
_FAST: Final = Durability.FAST
_WRITTEN: Final = Rests.WRITTEN
_NOTHING_KNOWN: Final = Known()
_RECORD_OVERHEAD: Final = HEADER_BYTES + messages.PREFIX_BYTES + 8


class Sending:
    """Decides sends.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        scheduling: Decides those with due times.
    """

    __slots__ = ("_copies", "_ids", "_ledger", "_room", "_store", "_views", "scheduling")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._store = ledger.store
        self._room = ledger.room
        self._copies = ledger.copies
        self._ids = GivenIds(ledger)
        self.scheduling = Scheduling(ledger, self._ids)

    def send(self, now_us: int, topic: Topic, batch: bytes, number: int | None = None) -> SendReply:
        """Store a batch, or find that it is stored already.

        Args:
            now_us: Broker time.
            topic: The topic.
            batch: As the producer made it; all of it is verified.
            number: The queue; None: in turn, or by ordering key on ordered topics. On a topic with
                levels, a queue of the batch's level.

        Returns:
            The receipt; it may be sent when ``position`` is committed.

        Raises:
            InvalidBatch, OrderingKeyRequired, TopicNotOrdered, UnknownQueue, MessageTooLarge,
                DueTooFar, StrictNeedsReplica, ReadOnly: nothing was stored.
            IdConflict, ResendTooOld: see `dedup`.
            DiskFull, Busy: nothing was stored; a later attempt may succeed.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        journal = self._ledger.journal
        views = self._views
        try:
            verify(batch, topic.seed)
        except BatchError as error:
            raise InvalidBatch(str(error)) from error
        _, crc, size, _, _, _, flags, count, producer_id, first, _ = HEADER.unpack_from(batch)
        spec = topic.spec
        if flags & _TO_CHECK or topic.special:
            self.check_flags(topic, flags, batch)
        takes = size + _RECORD_OVERHEAD
        if size > views.limits.batch_bytes or takes > journal.max_body:
            raise MessageTooLarge(f"a batch of {size} bytes")
        dedup = views.dedup
        producer = dedup.producers.get(producer_id)
        if producer is not None and first < producer.next:
            known = dedup.find(producer_id, first, count, crc, now_us)
            if known is not None:
                return self._duplicate(now_us, topic, batch, known, number)
        elif producer is None and len(dedup.producers) >= views.limits.producers:
            raise Busy(f"there are {views.limits.producers:,} producers, the limit producers")
        copies = self._copies
        if spec.durability is _STRICT or copies.read_only or copies.needed > 1:
            copies.check(spec)
        if flags & _AFTER_DEDUP:
            self.check_new(now_us, topic, batch, flags)
        if dedup.full(now_us):
            raise Busy("the deduplication window is full")
        room = self._room
        if room.blocked or journal.room() < takes:
            raise room.full(takes)
        if flags & _WITH_DUE:
            scheduled = self.scheduling.schedule(now_us, topic, number, batch, count)
            if scheduled is not None:
                return scheduled
        if flags & _WITH_IDS:
            return self._send_with_ids(now_us, topic, number, batch, count)
        return self._store_rows(
            now_us, topic, self.choose_queue(topic, batch, number), batch, count, ()
        )

    def check_flags(self, topic: Topic, flags: int, batch: bytes) -> None:
        """Refuse a batch that does not fit the topic."""
        if flags & _SLICE:
            raise InvalidBatch("a slice cannot be sent; only producers make batches")
        if bool(flags & _KEYED) != topic.spec.ordered:
            if topic.spec.ordered:
                raise OrderingKeyRequired(f"topic {topic.name!r} is ordered")
            raise TopicNotOrdered(
                f"topic {topic.name!r} is not ordered, and the messages have ordering keys"
            )
        if flags & _WITH_PRIORITY:
            level_of(topic, batch)

    def check_new(self, now_us: int, topic: Topic, batch: bytes, flags: int) -> None:
        """Refuse a new batch with ordering keys or expiries that the topic cannot take.

        Called after deduplication: the resend of a batch that is stored is never refused.

        Raises:
            TopicNotOrdered: See ``check_ordering_keys``.
            InvalidRequest: A row expires in more than a hundred years.
        """
        if flags & _WITH_ORDERING_KEYS:
            self.check_ordering_keys(topic)
        if flags & _WITH_EXPIRY:
            check_expiries(now_us, batch)

    def check_ordering_keys(self, topic: Topic) -> None:
        """Refuse a new batch with ordering keys if the topic does not keep their order.

        Called after deduplication: a batch that is stored stays stored when the setting is changed.
        """
        if not topic.spec.ordered and not topic.spec.ignore_ordering_keys:
            raise TopicNotOrdered(
                f"topic {topic.name!r} is not ordered, and the messages have ordering keys"
            )

    def made_by(self, spec: TopicSpec, batch: bytes) -> TopicSpec:
        """Return the spec of the topic that a first batch makes: ordered if the batch is keyed.

        Raises:
            InvalidBatch: The batch would be refused: no topic must be made for it.
            InvalidRequest: Its messages have a priority.
            TopicNotOrdered: It has ordering keys but is not keyed, as old clients make it.
        """
        try:
            verify(batch, topic_seed(spec.name))
        except BatchError as error:
            raise InvalidBatch(str(error)) from error
        flags = flags_of(batch)
        if flags & _WITH_PRIORITY and any(priorities_of(batch)):
            raise InvalidRequest(
                f"topic {spec.name!r} does not exist, and a topic that a send makes has no levels, "
                "so messages have no priority"
            )
        made = Topic(0, msgspec.structs.replace(spec, ordered=bool(flags & _KEYED)))
        self.check_flags(made, flags, batch)
        if flags & _WITH_ORDERING_KEYS:
            self.check_ordering_keys(made)
        return made.spec

    def choose_queue(self, topic: Topic, batch: bytes, number: int | None) -> Queue:
        """Return the queue for a batch: as requested, by its ordering keys, or the next in turn.

        On a topic with levels, it is a queue of the batch's level.
        """
        queues = topic.queues
        if number is not None and not 0 <= number < len(queues):
            raise UnknownQueue(f"topic {topic.name} has queues 0 to {len(queues) - 1}")
        if len(queues) == 1:
            return queues[0]
        if topic.level_turns:
            return queue_of_level(topic, batch, number)
        if topic.spec.ordered:
            homes = {hash_ % len(queues) for hash_ in Batch(batch).ordering_hashes()}
            if len(homes) > 1:
                raise InvalidBatch("the keys of this batch belong to several queues; split it")
            (home,) = homes
            if number is not None and number != home:
                raise InvalidBatch(f"the keys of this batch belong to queue {home}, not {number}")
            return queues[home]
        if number is not None:
            return queues[number]
        topic.round_robin = (topic.round_robin + 1) % len(queues)
        return queues[topic.round_robin]

    def _store_rows(
        self,
        now_us: int,
        topic: Topic,
        queue: Queue,
        batch: bytes,
        count: int,
        runs: tuple[RowRun, ...],
        known: Known = _NOTHING_KNOWN,
    ) -> SendReply:
        first = queue.next
        body = messages.pack(topic.number, queue.number, first, count, batch, runs)
        stored = Messages(topic.number, queue.number, first, count, runs, batch)
        end = self._ledger.admit_messages(now_us, body, stored)
        if queue.first == first:
            self._views.catalog.firsts.look_up(queue)
        fast = topic.spec.durability is _FAST
        rows = known.told(None if fast else stored) if runs else ()
        if fast:
            return SendReply(topic.number, queue.number, None, count, end, _WRITTEN, rows=rows)
        rests = self._copies.rests(topic.spec.durability)
        return SendReply(topic.number, queue.number, first, count, end, rests, rows=rows)

    def _send_with_ids(
        self, now_us: int, topic: Topic, number: int | None, batch: bytes, count: int
    ) -> SendReply:
        known = self._ids.known(now_us, topic, batch)
        stored = count - len(known.outcomes) - len(known.repeats)
        runs = self._ids.runs(known, batch, count) if 0 < stored < count else ()
        queue = self.choose_queue(topic, batch, number)
        if stored == count:
            return self._store_rows(now_us, topic, queue, batch, count, ())
        if not stored:  # a repeat follows a new row of the same batch, so there are no repeats here
            return SendReply(
                topic.number, queue.number, None, 0, known.depends,
                self._copies.rests(topic.spec.durability), duplicate=True, rows=known.outcomes,
            )  # fmt: skip
        return self._store_rows(now_us, topic, queue, batch, stored, runs, known)

    def _duplicate(
        self, now_us: int, topic: Topic, batch: bytes, known: Entry, number: int | None
    ) -> SendReply:
        """Return the first receipt of a stored batch; it depends on the batch's own record."""
        try:
            record = self._store.get(known.position)
        except MessageNotFound:
            return self._gone_duplicate(now_us, topic, batch, known, number)
        kind = kind_of(record)
        scheduled = kind == _SCHEDULED
        if kind != _MESSAGES and not scheduled:
            raise IdConflict(
                "the batch was prepared for a transaction before; a sent batch needs other ids"
            )
        stored = messages.of_record(record)
        if stored.topic != topic.number:
            raise InvalidBatch("the batch was stored in another topic of this name")
        fast = topic.spec.durability is _FAST
        untold = fast or scheduled
        rows: list[RowOutcome] = []
        if stored.runs:
            before = self._ids.known(now_us, topic, batch, known.position)
            told = {one.row: one for one in before.told(None if untold else stored)}
            rows = [
                told.get(row, RowOutcome(row, None, conflict=False))
                for row in range(known.rows)
                if stored.offset_of(row) is None
            ]
        end = known.position + len(record)
        return SendReply(
            topic.number,
            (number or 0) if scheduled else stored.queue,
            None if untold else stored.first_offset,
            stored.count,
            end,
            self._copies.rests(topic.spec.durability),
            duplicate=True,
            rows=rows,
            scheduled=scheduled,
        )

    def _gone_duplicate(
        self, now_us: int, topic: Topic, batch: bytes, known: Entry, number: int | None
    ) -> SendReply:
        """Return the rest of the first receipt of a batch that retention has removed.

        The batch was stored, so it must not be stored again, and this is no error. Its place was
        removed with its record, and so was the information whether it was sent or prepared: a batch
        that was prepared, and is now sent with the same sequences, looks like one that was sent
        twice. No producer does that.

        Of a batch with due times, it is known to the second when it was stored. It was scheduled if
        one of its rows was due after that second: else it is in its queue by now.
        """
        rows: list[RowOutcome] = []
        if flags_of(batch) & _WITH_IDS:
            before = self._ids.known(now_us, topic, batch, known.position)
            told = {one.row: one for one in before.told(None)}
            dedup = self._views.dedup
            for row, (low, high) in enumerate(Batch(batch).application_ids()):
                id_hash = low | high << 64
                one = dedup.find_id(topic.number, id_hash, now_us) if id_hash else None
                if id_hash and (one is None or one[:2] != (known.position, row)):
                    rows.append(told.get(row, RowOutcome(row, None, conflict=False)))
        count = known.rows - len(rows)
        if not count:  # a record holds at least one row: its ids are those of another topic
            raise InvalidBatch("the batch was stored in another topic of this name")
        queues = len(topic.queues)
        queue = number if number is not None and 0 <= number < queues else 0
        scheduled = False
        if flags_of(batch) & _WITH_DUE:
            second = self._views.dedup.second_of(known.position)
            scheduled = max(due_times_of(batch)) >= (second + 1) * SECOND_US
        return SendReply(
            topic.number, queue, None, count, known.position,
            self._copies.rests(topic.spec.durability), duplicate=True, rows=rows,
            scheduled=scheduled,
        )  # fmt: skip


def check_expiries(now_us: int, batch: bytes) -> None:
    """Check the times at which the rows of a batch expire; the batch has the column.

    A row that has expired already is stored as any other: the rows beside it may be good, and each
    group counts it. Clients refuse a lifetime that is too long by themselves, message by message.

    Raises:
        InvalidRequest: A row expires in more than a hundred years.
    """
    if max(expiry_times_of(batch)) > now_us + LONGEST_US + _CLOCK_US:
        raise InvalidRequest("a message expires in more than a hundred years")
