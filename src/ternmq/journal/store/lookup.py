"""Finding messages by message id, application id, key and time, or offset.

Plain functions over an ``Index`` and a ``RecordStore``. Any of them may raise ``WouldBlock``: run
its job in a worker thread and call again; the first call had no effect. The index holds hashes;
every candidate is compared with the text in its batch, so two texts with one hash are not mixed up.

A message that is owed may be in several records: in the one that it was stored with, as long as
that segment is kept, and in MOVED records, as copies. The newest of them is found. A caller that
must not show what a crash could still lose passes the durable position as ``below``: records from
there on do not count, and a message whose newest copy is there is found in an older place.

A row of a transaction is stored in a PREPARED and becomes a message when a RESOLVED commits it. It
is found at the PREPARED's place and time; ``Found.stored_us`` is the RESOLVED's time.

A scheduled row is stored in a SCHEDULED, and again in a MESSAGES when it comes due: then it is
found there. Before, and if it was cancelled, it is found in the newest SCHEDULED that holds it,
with its `Found.state`. By key it is found only while it is pending.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ternmq.journal.index.index import Index, times
from ternmq.journal.index.tail import Place, newest
from ternmq.journal.store.store import RecordStore
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.batch.batch import Batch
from ternmq.record.batch.hashes import application_id_hash, key_hash
from ternmq.record.fact import messages, moved
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of, time_us_of
from ternmq.record.fact.schedule import NO_QUEUE, due_times_us
from ternmq.record.fact.transactions import as_messages, of_scheduled

DEFAULT_LIMIT: Final = 32
MAX_LIMIT: Final = 1000
PAGE_WORK: Final = 128
"""Most work of a page by key, about 1 ms: one unit for each row examined (about 5 us), and one for
each 16 KiB of records read. Listing the rows costs the caller about the same again."""
_UNIT_SHIFT: Final = 14
_ALWAYS_US: Final = 2**63 - 1
NOWHERE: Final = -1
"""Queue and offset of a row that is in no queue."""


class PendingRow(Protocol):
    """A scheduled row that is pending."""

    @property
    def position(self) -> int:
        """Position of the newest record that holds it."""
        ...


Pending = Callable[[int], PendingRow | None]
"""Returns the pending row with an entry; None if it is not pending."""


def none_pending(entry: int) -> PendingRow | None:
    """Return None: for a journal without scheduled rows."""
    del entry
    return None


class State(enum.Enum):
    """What became of a message."""

    STORED = "stored"
    """It is in its queue."""
    SCHEDULED = "scheduled"
    """It is not due yet."""
    CANCELLED = "cancelled"
    """It was scheduled, and will not be delivered."""


@dataclass(slots=True, frozen=True)
class Found:
    """A message that was looked up.

    Attributes:
        place: Its record, and its row in that record's batch, or in the MOVED.
        time_us: Broker time of the record; of a copy: when it was copied; of a row of a
            transaction: when it was prepared.
        stored_us: Broker time at which the message was first stored and visible; of a message that
            is not in a queue: when it was stored.
        topic: Topic number.
        queue: Number within the topic; of a message that is in no queue, the one that was asked
            for, or ``NOWHERE``.
        offset: Offset in the queue, or ``NOWHERE``.
        batch: The batch that holds it; of a copy a slice of that batch.
        row: Row in ``batch``.
        copied: The record is a MOVED, or a copy of a SCHEDULED.
        state: What became of it.
        due_us: Of a message that is in no queue: when it is, or was, due.
    """

    place: Place
    time_us: int
    stored_us: int
    topic: int
    queue: int
    offset: int
    batch: bytes
    row: int
    copied: bool = False
    state: State = State.STORED
    due_us: int = 0


@dataclass(slots=True, frozen=True)
class Cursor:
    """Where the next page begins.

    Attributes:
        place: Place of the last row examined for the page before.
        below: The ``below`` of the first page. Copies made between two pages do not count, else a
            message copied from a later page would seem to have been on an earlier one.
    """

    place: Place
    below: Position


@dataclass(slots=True, frozen=True)
class Page:
    """Messages that were looked up, newest first; ``next`` is None on the last page.

    A page may have fewer messages than the limit, or none, and not be the last: the work of a page
    is bounded.
    """

    found: list[Found]
    next: Cursor | None


def by_message_id(
    index: Index,
    store: RecordStore,
    producer: int,
    sequence: int,
    *,
    below: Position = NO_POSITION,
    pending: Pending = none_pending,
) -> Found | None:
    """Return the message with this id; None if it is not kept, or was left out as a duplicate.

    Raises:
        WouldBlock: The disk is needed.
    """
    for place in index.by_message_id(producer, sequence):
        if place.position < below:
            found = _found(index, _Records(store), place, below, pending)
            if found is not None:
                return found
    return None


def by_application_id(
    index: Index,
    store: RecordStore,
    topic: int,
    application_id: str,
    *,
    below: Position = NO_POSITION,
    pending: Pending = none_pending,
) -> Found | None:
    """Return the newest message of a topic with this application id.

    A message whose own record is kept is newer than one that exists only as copies; of those, the
    one with the latest birth time is the newest.

    Raises:
        WouldBlock: The disk is needed.
    """
    low, high = application_id_hash(application_id.encode())
    copies: list[Found] = []
    for place in index.by_application_id(topic, low, high):
        if place.position >= below:
            continue
        found = _found(index, _Records(store), place, below, pending)
        if found is None:
            continue
        if Batch(found.batch).application_id_texts()[found.row] != application_id:
            continue
        if not found.copied:
            return next((one for one in copies if _same(one, found)), found)
        copies.append(found)
    return max(copies, key=lambda one: (Batch(one.batch).born_us, one.place.position), default=None)


def by_key(
    index: Index,
    store: RecordStore,
    topic: int,
    key: str,
    *,
    since_us: int = 0,
    until_us: int = _ALWAYS_US,
    limit: int = DEFAULT_LIMIT,
    after: Cursor | None = None,
    below: Position = NO_POSITION,
    pending: Pending = none_pending,
) -> Page:
    """Return messages of a topic with this key whose broker time is in ``[since_us, until_us)``.

    Newest first, each message once. Time and order of a copied message are those of the copy. A
    message of which only a copy is left, made after the first page, is on none of the later pages.

    Args:
        index: The index.
        store: The records.
        topic: Topic number.
        key: The key as the producer gave it; not empty.
        since_us: Broker time.
        until_us: Broker time.
        limit: Most messages of a page; at most ``MAX_LIMIT``.
        after: ``Page.next`` of the page before.
        below: See the module.
        pending: Knows which scheduled rows are pending; the others are not listed as scheduled.

    Raises:
        WouldBlock: The disk is needed.
    """
    limit = max(1, min(limit, MAX_LIMIT))
    page: list[Found] = []
    copied: set[tuple[int, int]] = set()
    records = _Records(store)
    work = 0
    looked: Place | None = None
    last: Place | None = None
    before = below
    if after is not None:
        last, below = after.place, min(below, after.below)
        before = Position(min(below, last.position + 1))
    for place in index.by_key(topic, key_hash(key.encode()), since_us, until_us, before):
        if last is not None and place.position == last.position and place.row >= last.row:
            continue
        if looked is not None and work + (records.bytes_read >> _UNIT_SHIFT) >= PAGE_WORK:
            return Page(page, Cursor(looked, below))
        looked = place
        work += 1
        one = _found(index, records, place, below, pending)
        if one is None or one.time_us >= until_us or one.state is State.CANCELLED:
            continue
        if one.time_us < since_us:
            break
        if Batch(one.batch).key(one.row) != key:
            continue
        if (one.queue, one.offset) in copied:
            continue
        stored = one.state is State.STORED
        if last is not None and stored and _told(index, store, one, last, until_us, below):
            continue
        if len(page) == limit:
            return Page(page, Cursor(page[-1].place, below))
        page.append(one)
        if one.copied and stored:
            copied.add((one.queue, one.offset))
    return Page(page, None)


def by_offset(
    index: Index,
    store: RecordStore,
    topic: int,
    queue: int,
    offset: int,
    *,
    below: Position = NO_POSITION,
) -> Found | None:
    """Return the message at an offset; None if neither its own record nor a copy is kept.

    Raises:
        WouldBlock: The disk is needed.
    """
    for place in index.copies(topic, queue, offset):
        if place.position < below:
            return _found(index, _Records(store), place, below, none_pending)
    places = index.locate(topic, queue, offset, offset + 1, 0)
    if not places.positions or places.visible_from(0) >= below:
        return None
    stored = messages.of_record(store.at_place(places, 0))
    place = Place(Position(places.positions[0]), stored.row_of(offset))
    return _found(index, _Records(store), place, below, none_pending)


def offset_at_time(
    index: Index, store: RecordStore, topic: int, queue: int, time_us: int
) -> int | None:
    """Return the first kept offset whose record is not older than a broker time.

    One above the last offset when all are older; None when nothing is kept. Binary search: a few
    reads of records, O(log n).

    Raises:
        WouldBlock: The disk is needed.
    """
    key = topic << 32 | queue
    low = index.first_offset(topic, queue)
    high = index.visible(topic, queue, NO_POSITION)
    if low is None:
        return None
    # Whole sources are skipped by their times, which are in memory.
    for source in index.coverage.newest_first():
        first_us, last_us = times(source)
        if first_us >= time_us:
            high = min(high, source.first_offset(key) or high)
        elif last_us and last_us < time_us:
            end = source.next_offset(key)
            if end is not None:
                low = max(low, end)
                break
    while low < high:
        middle = (low + high) // 2
        places = index.locate(topic, queue, middle, middle + 1, 0)
        record = store.at_place(places, 0)
        if time_us_of(record) >= time_us:
            high = places.first_offsets[0]
        else:
            stored = messages.of_record(record)
            low = stored.first_offset + stored.count
    return low


class _Stored(NamedTuple):
    """The messages of a record; ``parts`` is None if its transaction was not committed."""

    parts: messages.Messages | None
    stored_us: int


class _Records:
    """Reads the records of one look-up; keeps the last one, as many of its rows may be needed."""

    __slots__ = ("_moved", "_position", "_record", "_store", "_stored", "bytes_read")

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._position = NO_POSITION
        self._record = b""
        self._moved: moved.Moved | None = None
        self._stored: _Stored | None = None
        self.bytes_read = 0

    def get(self, position: Position) -> bytes:
        """Return the record at a position, header included."""
        if position != self._position:
            self._record = self._store.get(position)
            self._position = position
            self._moved = self._stored = None
            self.bytes_read += len(self._record)
        return self._record

    def kind(self, position: Position) -> int:
        """Return the kind of another record."""
        return kind_of(self._store.get(position))

    def time_us(self, position: Position) -> int:
        """Return the broker time of another record."""
        return self._store.time_us(position)

    def copies(self) -> moved.Moved:
        """Return the last record's content; the record is a MOVED."""
        if self._moved is None:
            self._moved = moved.unpack(self._record[HEADER_BYTES:])
        return self._moved

    def stored(self, index: Index, kind: int, time_us: int, below: int) -> _Stored:
        """Return the last record's messages; the record is a MESSAGES or PREPARED."""
        if self._stored is None:
            self._stored = self._read(index, kind, time_us, below)
        return self._stored

    def _read(self, index: Index, kind: int, time_us: int, below: int) -> _Stored:
        record = self._record
        if kind == Kind.PREPARED:
            settlement = index.settlement(self._position)
            if (
                settlement is None
                or settlement.first_offset is None
                or settlement.position >= below
            ):
                return _Stored(None, 0)
            time_us = self._store.time_us(settlement.position)
            record = as_messages(record, settlement.first_offset, settlement.position, time_us)
        return _Stored(messages.of_record(record), time_us)


def _found(
    index: Index, records: _Records, place: Place, below: int, pending: Pending
) -> Found | None:
    """Return the message at a place.

    None if the row was left out of its batch, belongs to a transaction that was not committed by a
    record below ``below``, or was scheduled and has become a message since.
    """
    record = records.get(place.position)
    kind, time_us = kind_of(record), time_us_of(record)
    if kind == Kind.SCHEDULED:
        parts = messages.of_record(record)
        return _scheduled(index, records, place, parts, time_us, below, pending)
    if kind == Kind.PREPARED:
        settlement = index.settlement(place.position)
        entry = None if settlement is None else settlement.first_entry
        if settlement is not None and entry is not None and settlement.position < below:
            parts = of_scheduled(record, entry)
            time_us = records.time_us(settlement.position)
            return _scheduled(index, records, place, parts, time_us, below, pending)
    if kind == Kind.MOVED:
        copies = records.copies()
        piece, row = copies.row(place.row)
        return Found(
            place,
            time_us,
            piece.time_us,
            copies.topic,
            copies.queue,
            piece.first_offset + row - piece.row_start,
            piece.batch,
            row,
            copied=True,
        )
    stored, stored_us = records.stored(index, kind, time_us, below)
    if stored is None:
        return None
    kept = stored.offset_of(place.row)
    if kept is None:
        return None
    return Found(
        place, time_us, stored_us, stored.topic, stored.queue, kept, stored.batch, place.row
    )


def _scheduled(
    index: Index,
    records: _Records,
    place: Place,
    stored: messages.Messages,
    time_us: int,
    below: int,
    pending: Pending,
) -> Found | None:
    """Return the row at a place in a record of scheduled rows; None if a later one has it.

    Later records below ``below`` are copies, and the MESSAGES that it became. They are kept at
    least as long as this one, so a row that is not pending was cancelled if no later record
    delivers it.

    Args:
        index: Finds the later ones.
        records: Reads them.
        place: Where the row is.
        stored: The rows of its record.
        time_us: When they were scheduled.
        below: See above.
        pending: Finds pending rows.
    """
    entry = stored.offset_of(place.row)
    if entry is None:
        return None
    state = State.SCHEDULED
    row = pending(entry)
    if row is not None:
        if place.position < row.position < below:
            return None
    else:
        batch = Batch(stored.batch)
        state = State.CANCELLED
        for later in index.by_message_id(batch.producer_id, batch.first_sequence + place.row):
            if later.position <= place.position:
                break
            if later.position < below:
                return None
            if records.kind(later.position) not in {Kind.SCHEDULED, Kind.PREPARED}:
                state = State.SCHEDULED  # a crash could still lose the delivery
    origin = stored.origin
    return Found(
        place,
        time_us,
        time_us if origin is None else origin.time_us,
        stored.topic,
        NOWHERE if stored.queue == NO_QUEUE else stored.queue,
        NOWHERE,
        stored.batch,
        place.row,
        copied=origin is not None,
        state=state,
        due_us=due_times_us(stored, time_us, place.row, place.row + 1)[0],
    )


def _same(one: Found, other: Found) -> bool:
    """Return whether two results of one topic are the same message."""
    return one.queue == other.queue and one.offset == other.offset


def _told(
    index: Index, store: RecordStore, found: Found, last: Place, until_us: int, below: Position
) -> bool:
    """Return whether a newer copy was on the page that ended with ``last``, or on one before."""
    for place in index.copies(found.topic, found.queue, found.offset, above=last.position):
        if newest(place) < newest(last):
            return False
        if place.position < below and time_us_of(store.get(place.position)) < until_us:
            return True
    return False
