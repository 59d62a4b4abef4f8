"""Finding messages by what people know of them: id, application id, key and time, offset.

Plain functions over an ``Index`` and a ``RecordStore``. Any of them may raise ``WouldBlock``: run
its job in a worker thread and call again; nothing has happened meanwhile. The index holds hashes;
every candidate is compared with the text in its batch, so two texts with one hash are not mixed up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ternmq.journal.index import Index, times
from ternmq.journal.store import RecordStore
from ternmq.journal.tail import Place
from ternmq.model.types import NO_POSITION, Position
from ternmq.record import messages
from ternmq.record.batch import Batch
from ternmq.record.hashes import application_id_hash, key_hash
from ternmq.record.header import HEADER
from ternmq.record.messages import Messages

DEFAULT_LIMIT: Final = 32
MAX_LIMIT: Final = 1000
_ALWAYS_US: Final = 2**63 - 1


@dataclass(slots=True, frozen=True)
class Found:
    """A message that was looked up.

    Attributes:
        place: Its record, and its row in the batch.
        time_us: Broker time of the record.
        offset: In its queue.
        messages: The record: topic, queue, batch.
    """

    place: Place
    time_us: int
    offset: int
    messages: Messages


@dataclass(slots=True, frozen=True)
class Page:
    """Messages that were looked up, newest first; ``next`` is None on the last page."""

    found: list[Found]
    next: Place | None


def by_message_id(index: Index, store: RecordStore, producer: int, sequence: int) -> Found | None:
    """Return the message with this id; None if it is not kept, or was left out as a duplicate.

    Raises:
        WouldBlock: the disk is needed.
    """
    place = index.by_message_id(producer, sequence)
    return None if place is None else _found(store, place)


def by_application_id(
    index: Index, store: RecordStore, topic: int, application_id: str
) -> Found | None:
    """Return the newest message of a topic with this application id.

    Raises:
        WouldBlock: the disk is needed.
    """
    low, high = application_id_hash(application_id.encode())
    for place in index.by_application_id(topic, low, high):
        found = _found(store, place)
        if found is not None:
            texts = Batch(found.messages.batch).application_id_texts()
            if texts[place.row] == application_id:
                return found
    return None


def by_key(
    index: Index,
    store: RecordStore,
    topic: int,
    key: str,
    *,
    since_us: int = 0,
    until_us: int = _ALWAYS_US,
    limit: int = DEFAULT_LIMIT,
    after: Place | None = None,
) -> Page:
    """Return messages of a topic with this key whose broker time is in ``[since_us, until_us)``.

    Newest first.

    Args:
        index: The index.
        store: The records.
        topic: Topic number.
        key: As the producer gave it; not empty.
        since_us: Broker time.
        until_us: Broker time.
        limit: Most messages of a page; at most ``MAX_LIMIT``.
        after: ``Page.next`` of the page before.

    Raises:
        WouldBlock: the disk is needed.
    """
    limit = max(1, min(limit, MAX_LIMIT))
    found: list[Found] = []
    last: Place | None = None
    before = NO_POSITION if after is None else Position(after.position + 1)
    for place in index.by_key(topic, key_hash(key.encode()), since_us, until_us, before):
        if after is not None and place.position == after.position and place.row >= after.row:
            continue
        one = _found(store, place)
        if one is None or one.time_us >= until_us:
            continue
        if one.time_us < since_us:
            break
        if Batch(one.messages.batch).keys()[place.row] != key:
            continue
        if len(found) == limit:
            return Page(found, last)
        found.append(one)
        last = place
    return Page(found, None)


def by_offset(
    index: Index, store: RecordStore, topic: int, queue: int, offset: int
) -> Found | None:
    """Return the message at an offset; None if its segment is gone (see ``Index.moved``).

    Raises:
        WouldBlock: the disk is needed.
    """
    places = index.locate(topic, queue, offset, offset + 1, 0)
    if not places.positions:
        return None
    position, length = places.positions[0], places.lengths[0]
    record = store.get(position, length)
    content = messages.of_record(record)
    row = content.row_of(offset)
    return Found(Place(Position(position), row), HEADER.unpack_from(record)[8], offset, content)


def offset_at_time(
    index: Index, store: RecordStore, topic: int, queue: int, time_us: int
) -> int | None:
    """Return the first kept offset whose record is not older than a broker time.

    One above the last offset when all are older; None when nothing is kept. Binary search: a few
    reads of records, O(log n).

    Raises:
        WouldBlock: the disk is needed.
    """
    key = topic << 32 | queue
    low = index.first_offset(topic, queue)
    high = index.visible(topic, queue, NO_POSITION)
    if low is None:
        return None
    # Whole sources are passed over by their times, which are in memory.
    for source in index.newest_first():
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
        if HEADER.unpack_from(store.get(places.positions[0], places.lengths[0]))[8] >= time_us:
            high = places.first_offsets[0]
        else:
            low = _end_of(index, store, topic, queue, middle)
    return low


def _end_of(index: Index, store: RecordStore, topic: int, queue: int, offset: int) -> int:
    """Return one above the last offset of the record that holds ``offset``."""
    found = by_offset(index, store, topic, queue, offset)
    assert found is not None
    return found.messages.first_offset + found.messages.count


def _found(store: RecordStore, place: Place) -> Found | None:
    """Return the message at a place, None if the row was left out of its batch."""
    record = store.get(place.position)
    content = messages.of_record(record)
    offset = content.offset_of(place.row)
    if offset is None:
        return None
    return Found(place, HEADER.unpack_from(record)[8], offset, content)
