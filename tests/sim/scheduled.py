"""The second opinion on scheduled rows: which are pending, and what may become of them.

A row that a SCHEDULED record holds is exactly one of these: pending; a message, by one MESSAGES
record with FULFILS; cancelled, by one CANCELLED; gone with its topic. One object for each row says
which, and where the newest copy of a pending one is stored. A row becomes a message when it is due
and not before, and before every other row of its topic that is due later; of rows that are due at
one time, the one scheduled first goes first.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from ternmq.broker.schedule.pending import Schedule
from ternmq.broker.schedule.topics import ENTRY_BITS
from ternmq.journal.log.scan import RawRecord
from ternmq.model.types import Position
from ternmq.record.batch.batch import Batch
from ternmq.record.batch.hashes import key_hash
from ternmq.record.fact import messages, schedule
from ternmq.record.fact.messages import Fulfilment, Messages, Origin
from ternmq.record.fact.schedule import NO_QUEUE, CancelCause, due_times_us
from ternmq.record.fact.transactions import Prepared
from tests.sim.history import Stored, Tried
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.reference import Reference, RefTopic

PENDING: Final = "pending"
DELIVERED: Final = "delivered"
CANCELLED: Final = "cancelled"
GONE: Final = "gone"
"""With its topic."""
DAY_US: Final = 86_400_000_000
LONGEST_US: Final = 731 * DAY_US
_REPLAYING: Final = 1 << 62
"""``Reference.first`` while what retention took is not looked at."""
Key = tuple[int, int]
"""Due time and entry."""
Message = tuple[int, int, int]
"""Number of the topic, producer and sequence."""


class ScheduledRow:
    """A row that was scheduled, and its fate."""

    __slots__ = (
        "at", "born", "copies", "due_us", "entry", "epoch", "fate", "position", "queue", "row",
        "topic", "tried",
    )  # fmt: skip

    def __init__(
        self, record: RawRecord, topic: int, entry: int, tried: Tried, at: int, queue: int
    ) -> None:
        self.topic = topic
        self.entry = entry
        self.due_us = max(tried.rows[at].due_us, record.time_us)
        self.born: Origin | None = Origin(record.position, record.time_us)
        """None: by a transaction, and it was not copied yet."""
        self.position = record.position
        """Of the newest record that holds it."""
        self.copies = 0
        self.epoch = record.epoch
        self.tried = tried
        self.at = at
        self.row = at
        """Its row in that record's batch."""
        self.queue = queue
        self.fate = PENDING

    @property
    def key(self) -> Key:
        """Its place in the order of its topic."""
        return self.due_us, self.entry

    @property
    def message(self) -> Message:
        """Topic, producer and sequence."""
        return self.topic, self.tried.producer, self.tried.first_sequence + self.at


class Scheduled:
    """What the journal says of scheduled rows.

    Args:
        reference: Of which this is a part.

    Attributes:
        rows: Every row that was ever scheduled, by entry.
        asked: Messages that somebody asked to cancel, by topic's name, producer and sequence.
        by_record: Rows by each record that holds or held them.
        touched: Entries that the last record was about.
        dropped: Topics that were deleted while they had pending rows -> broker time.
        deliveries: Positions of the records by which rows became messages, or that hold copies.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self.next_entry = 1
        self.rows: dict[int, ScheduledRow] = {}
        self.by_message: dict[Message, ScheduledRow] = {}
        self.by_record: dict[int, list[ScheduledRow]] = {}
        self.by_id: dict[tuple[int, str], list[ScheduledRow]] = {}
        self.asked: set[tuple[str, int, int]] = set()
        self.cursors: dict[int, Key] = {}
        self.left: dict[int, int] = {}
        self.touched: list[int] = []
        self.dropped: dict[int, int] = {}
        self.deliveries: set[int] = set()
        self._order: dict[int, list[Key]] = {}

    @property
    def pending(self) -> int:
        """Number of rows that are pending."""
        return sum(self.left.values())

    def first_due(self, topic: int) -> ScheduledRow | None:
        """Return the row of a topic that is to become a message next."""
        order = self._order.get(topic, [])
        while order:
            row = self.rows[order[0][1]]
            if row.fate is PENDING:
                return row
            heappop(order)
        return None

    def with_id(self, topic: int, application_id: str) -> list[ScheduledRow]:
        """Return the scheduled rows of a topic that have an application id."""
        return self.by_id.get((topic, application_id), [])

    def plain_with_id(self, topic: int, application_id: str) -> bool:
        """Return whether a message that was not scheduled has an application id."""
        found = self._reference.topics.get(topic)
        return found is not None and any(
            stored.row().application_id == application_id
            for queue in found.queues
            for stored in queue
            if stored.position not in self.deliveries
        )

    # -- records ----------------------------------------------------------------------------------

    def stored(self, record: RawRecord) -> None:
        """Rows were scheduled.

        Raises:
            Violation: they may not have been.
        """
        where = f"SCHEDULED at {record.position}"
        fact = messages.unpack(record.body)
        reference = self._reference
        if fact.origin is not None:
            self._copied(where, record, fact, fact.origin)
            return
        tried = reference.taken(record, fact)
        if fact.fulfils is not None:
            raise Violation(f"{where}: it says that its rows have come due")
        if fact.first_offset != self.next_entry:
            raise Violation(f"{where}: entries from {fact.first_offset}, not {self.next_entry}")
        due = [row.due_us for row in tried.rows]
        if not min(due) or max(due) <= record.time_us:
            raise Violation(f"{where}: due at {min(due)} to {max(due)}, it is {record.time_us}")
        if max(due) > record.time_us + LONGEST_US:
            raise Violation(f"{where}: due in {max(due) - record.time_us} us")
        if fact.queue != (NO_QUEUE if tried.queue is None else tried.queue):
            raise Violation(f"{where}: queue {fact.queue}, asked for was {tried.queue}")
        order = self._order.setdefault(fact.topic, [])
        of_record = self.by_record[record.position] = []
        for at in reference.kept(record, fact, tried):
            row = ScheduledRow(record, fact.topic, self.next_entry, tried, at, fact.queue)
            self.next_entry += 1
            self.rows[row.entry] = self.by_message[row.message] = row
            of_record.append(row)
            if given := tried.rows[at].application_id:
                self.by_id.setdefault((fact.topic, given), []).append(row)
            self.touched.append(row.entry)
            if row.key <= self.cursors.get(fact.topic, (0, 0)):
                raise Violation(f"{where}: {row.key} is not behind the cursor of its topic")
            heappush(order, row.key)
            if row.due_us > tried.rows[at].due_us:
                reference.count("scheduled with a row that was due already")
        self.left[fact.topic] = self.left.get(fact.topic, 0) + len(of_record)
        reference.count("scheduled")
        if len(of_record) < len(tried.rows):
            reference.count("scheduled without rows whose ids are known")
        if max(due) - record.time_us > 60 * DAY_US:
            reference.count("scheduled for a day months away")

    def decided(
        self, record: RawRecord, first_entry: int, position: int, fact: Prepared, tried: Tried
    ) -> None:
        """The rows of a PREPARED at ``position`` were scheduled, by a RESOLVED.

        Raises:
            Violation: not as the next entries.
        """
        where = f"RESOLVED at {record.position}"
        if first_entry != self.next_entry:
            raise Violation(f"{where}: entries from {first_entry}, not {self.next_entry}")
        order = self._order.setdefault(fact.topic, [])
        of_record = self.by_record[position] = []
        for at in range(fact.count):
            row = ScheduledRow(record, fact.topic, self.next_entry, tried, at, fact.queue)
            row.position, row.born = Position(position), None
            self.next_entry += 1
            self.rows[row.entry] = self.by_message[row.message] = row
            of_record.append(row)
            self.touched.append(row.entry)
            if row.key <= self.cursors.get(fact.topic, (0, 0)):
                raise Violation(f"{where}: {row.key} is not behind the cursor of its topic")
            heappush(order, row.key)
        self.left[fact.topic] = self.left.get(fact.topic, 0) + len(of_record)
        self._reference.count("scheduled by a transaction")

    def _copied(self, where: str, record: RawRecord, fact: Messages, origin: Origin) -> None:
        """Pending rows were copied: only where they are stored changes."""
        batch = Batch(fact.batch)
        if not fact.count or fact.count != batch.count or fact.runs:
            raise Violation(f"{where}: {fact.count} rows of {batch.count} are copied")
        of_record = self.by_record[record.position] = []
        # Who knows only the copy, as a replay after its segment is gone, must learn the same times.
        told = due_times_us(fact, record.time_us)
        for at in range(fact.count):
            row = self.rows.get(fact.first_offset + at)
            if row is None or row.fate is not PENDING:
                found = "unknown" if row is None else row.fate
                raise Violation(f"{where}: entry {fact.first_offset + at} is copied, it is {found}")
            if row.born is None:  # of a transaction; the copy's time must leave its due time
                due_us = max(row.tried.rows[row.at].due_us, origin.time_us)
                if origin.position != row.position or due_us != row.due_us:
                    raise Violation(f"{where}: entry {row.entry} is due at {due_us} in its copy")
                row.born = origin
                self._reference.count("copied a row that a transaction scheduled")
            if (row.topic, row.queue, row.born) != (fact.topic, fact.queue, origin):
                raise Violation(f"{where}: entry {row.entry} is copied with other facts")
            if told[at] != row.due_us:
                raise Violation(
                    f"{where}: entry {row.entry} is due at {row.due_us}, its copy says {told[at]}"
                )
            self._check_content(where, row, batch, at)
            row.position, row.row = record.position, at
            of_record.append(row)
            self.touched.append(row.entry)
            if row.due_us <= record.time_us:
                self._reference.count("copied a row that has come due")
            if row.due_us > row.tried.rows[row.at].due_us:
                self._reference.count("copied a row that was due before it was scheduled")
            again = row.copies > 0
            row.copies += 1
            self._reference.count(f"scheduled row copied{' again' if again else ''}")
        self.deliveries.add(record.position)
        if fact.count < len(self.by_record[origin.position]):
            self._reference.count("a part of what was scheduled is copied")

    def fulfilled(self, record: RawRecord, fact: Messages, told: Fulfilment) -> None:
        """Scheduled rows became messages.

        Raises:
            Violation: they may not have.
        """
        where = f"MESSAGES at {record.position}"
        reference = self._reference
        topic = reference.topics.get(fact.topic)
        if topic is None:
            raise Violation(f"{where}: rows came due in topic {fact.topic}, which is not there")
        queued = topic.queues[fact.queue]
        if fact.first_offset != len(queued):
            raise Violation(f"{where}: offsets from {fact.first_offset}, {len(queued)} are next")
        batch = Batch(fact.batch)
        if not fact.count or fact.count != batch.count or fact.runs:
            raise Violation(f"{where}: {fact.count} rows of {batch.count} came due")
        if record.time_us < told.due_us:
            raise Violation(f"{where}: delivered {told.due_us - record.time_us} us early")
        size = reference.segment_size
        for at in range(fact.count):
            row = self.rows.get(told.first_entry + at)
            if row is None:
                raise Violation(f"{where}: entry {told.first_entry + at} was never scheduled")
            self._check_fulfilled(where, row, fact, told, batch, at)
            self._check_queue(where, topic, row, fact.queue)
            row.fate = DELIVERED
            self.cursors[fact.topic] = row.key
            self.touched.append(row.entry)
            reference.count("delivered when due")
            if row.epoch != record.epoch:
                reference.count("delivered behind a start")
            if record.time_us - row.due_us > DAY_US:
                reference.count("delivered more than a day late")
            if size and row.position // size != record.position // size:
                reference.count("delivered out of an older segment")
            if topic.spec.ordered:
                reference.count("delivered by its key when due")
            queued.append(Stored(row.tried, row.at, record.position, record.end, record.time_us))
        self.left[fact.topic] -= fact.count
        self.deliveries.add(record.position)
        if fact.count > 1:
            reference.count("delivered together with its neighbours")
        if fact.count < len(self.by_record[told.source]):
            reference.count("delivered a part of what was scheduled")

    def _check_fulfilled(
        self,
        where: str,
        row: ScheduledRow,
        fact: Messages,
        told: Fulfilment,
        batch: Batch,
        at: int,
    ) -> None:
        if row.fate is not PENDING:
            raise Violation(f"{where}: entry {row.entry} is {row.fate} and comes due")
        if (row.topic, row.position, row.due_us) != (fact.topic, told.source, told.due_us):
            raise Violation(
                f"{where}: entry {row.entry} is told of as {(fact.topic, *told)}; it is of topic "
                f"{row.topic}, stored at {row.position}, due at {row.due_us}"
            )
        if row.key <= self.cursors.get(row.topic, (0, 0)):
            raise Violation(f"{where}: entry {row.entry} is not behind the cursor of its topic")
        first = self.first_due(row.topic)
        if first is not row:
            assert first is not None
            raise Violation(f"{where}: {row.key} overtakes {first.key}, which is pending")
        heappop(self._order[row.topic])
        self._check_content(where, row, batch, at)
        if row.copies:
            self._reference.count("delivered from a copy")

    @staticmethod
    def _check_content(where: str, row: ScheduledRow, batch: Batch, at: int) -> None:
        sequence = batch.first_sequence + at
        if (row.topic, batch.producer_id, sequence) != row.message:
            raise Violation(f"{where}: entry {row.entry} has another message id")
        if batch.row(at) != row.tried.rows[row.at]:
            raise Violation(f"{where}: entry {row.entry} holds other content than was sent")

    def _check_queue(self, where: str, topic: RefTopic, row: ScheduledRow, queue: int) -> None:
        """It goes where its key does, or where its producer wished."""
        queues = len(topic.queues)
        self._reference.levels.check_stored(where, topic, queue, row.tried.rows, (row.at,))
        if topic.spec.levels > 1:
            self._reference.count("delivered in its level when due")
        if topic.spec.ordered:
            home = key_hash(row.tried.rows[row.at].ordering_key.encode()) % queues
            if queue != home:
                raise Violation(f"{where}: queue {queue}, its key goes to {home}")
        elif row.queue < queues:
            self._reference.count("delivered to the queue that was asked for")
            if queue != row.queue:
                raise Violation(f"{where}: queue {queue}, asked for was {row.queue}")

    def cancelled(self, record: RawRecord) -> None:
        """Scheduled rows will not be delivered.

        Raises:
            Violation: they should be.
        """
        where = f"CANCELLED at {record.position}"
        fact = schedule.unpack_cancelled(record.body)
        if fact.cause not in (CancelCause.CLIENT, CancelCause.OPERATOR) or not fact.rows:
            raise Violation(f"{where}: {len(fact.rows)} rows, cause {fact.cause.name}")
        for told in fact.rows:
            row = self.rows.get(told.entry)
            if row is None or (row.topic, row.due_us) != (told.topic, told.due_us):
                raise Violation(f"{where}: {told} was never scheduled")
            if row.fate is not PENDING:
                raise Violation(f"{where}: {told} is {row.fate}")
            name = self._reference.topics[row.topic].spec.name
            if (name, *row.message[1:]) not in self.asked:
                raise Violation(f"{where}: nobody asked to cancel {told}")
            row.fate = CANCELLED
            self.left[row.topic] -= 1
            self.touched.append(row.entry)
            self._reference.count(f"cancelled by {fact.cause.name.lower()}")

    def drop_topic(self, number: int, time_us: int) -> None:
        """A topic was deleted: its pending rows are gone."""
        if self.left.pop(number, 0):
            self._reference.count("pending rows go with their topic")
            self.dropped[number] = time_us
            for _, entry in self._order.pop(number):
                if self.rows[entry].fate is PENDING:
                    self.rows[entry].fate = GONE
                    self.touched.append(entry)
        self._order.pop(number, None)
        self.cursors.pop(number, None)

    def removed(self, first: int) -> None:
        """Retention took everything below ``first`` away: no pending row may be lost with it.

        Raises:
            Violation: one is.
        """
        for row in self.rows.values():
            if row.fate is PENDING and row.position < first < _REPLAYING:
                raise Violation(f"entry {row.entry} is pending, the segment it is in is gone")

    # -- comparison -------------------------------------------------------------------------------

    def compare(self, view: Schedule, entries: list[int] | None = None) -> None:
        """Compare with the broker's view: some entries and their topics, or everything.

        Raises:
            Violation: they differ.
        """
        if (view.next_entry, view.rows) != (self.next_entry, self.pending):
            raise Violation(
                f"{view.rows} rows are pending, {view.next_entry} is the next entry; should be "
                f"{self.pending}, {self.next_entry}"
            )
        topics = self._reference.topics if entries is None else {
            number
            for entry in entries
            if (number := self.rows[entry].topic) in self._reference.topics
        }  # fmt: skip
        for number in topics:
            found = view.topics.get(number)
            ours = self.left.get(number, 0), self.cursors.get(number, (0, 0))
            theirs = view.rows_of(number), (0, 0) if found is None else split(found.cursor)
            if ours != theirs:
                raise Violation(f"topic {number}: {theirs} of scheduled rows, should be {ours}")
        for entry in self.rows if entries is None else entries:
            row, known = self.rows[entry], view.pages.find(entry)
            if row.fate is not PENDING:
                if known is not None:
                    raise Violation(f"entry {entry} is {row.fate}, and pending in the views")
            elif known is None or known[:] != (
                row.due_us, entry, row.position, row.row, row.queue,
            ):  # fmt: skip
                raise Violation(f"entry {entry} is pending, the view has {known}")

    def check_told(self, fates: dict[Message, tuple[str, int]]) -> None:
        """What an answer said of a row is so.

        Raises:
            Violation: it is not.
        """
        for message, (fate, _) in fates.items():
            row = self.by_message.get(message)
            found = "unknown" if row is None else row.fate
            if found not in (fate, GONE):
                raise Violation(f"{message} was told to be {fate}, it is {found}")


def split(key: int) -> Key:
    """Return due time and entry of a cursor of the broker's."""
    return key >> ENTRY_BITS, key & (1 << ENTRY_BITS) - 1
