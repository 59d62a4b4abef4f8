"""What is scheduled: the pending rows, and the horizon below which they are kept in order.

Rows that are due before the **horizon** are in the heap of their topic (`topics`); the others are
found by a scan of the pages (`rowpages`) when the horizon moves (``load``), in pieces.

Records may be applied twice in a replay, first as part of a loaded page: adding a row that is
known, and removing one that is not, change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ternmq.broker.schedule.page import NEVER, PAGE_BITS, SLOT_MASK, Page
from ternmq.broker.schedule.rowpages import RowPages, ScheduledRow
from ternmq.broker.schedule.topics import ENTRY_BITS, ENTRY_MASK, TopicSchedule
from ternmq.model.types import HOUR_US, MINUTE_US
from ternmq.record.fact.messages import Fulfilment, Messages
from ternmq.record.fact.schedule import CancelledRow, due_times_us
from ternmq.record.fact.state import SCHEDULE_ENTRY
from ternmq.record.fact.transactions import DuePart

TOPIC_BITS: Final = 6
"""Topics whose cursors are one object of STATE, as a power of two."""
HORIZON_US: Final = 60 * MINUTE_US
"""How far ahead of now the horizon is set."""


class Schedule:
    """All pending scheduled rows of the broker. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Args:
        segment_size: Segment size of the journal, in bytes.

    Attributes:
        next_entry: Entry of the next row that is scheduled.
        rows: Number of pending rows.
        pages: The pending rows by entry.
        topics: Topic number -> what is scheduled for it.
        topics_changed: Page of topics -> position of the newest record that changed a cursor.
        horizon_us: Rows that are due before this time are in the heaps of their topics.
    """

    __slots__ = (
        "_loaded",
        "_loading",
        "_loading_us",
        "_to_load",
        "horizon_us",
        "next_entry",
        "pages",
        "rows",
        "topics",
        "topics_changed",
    )

    def __init__(self, segment_size: int) -> None:
        self.next_entry = 1
        self.rows = 0
        self.pages = RowPages(segment_size)
        self.topics: dict[int, TopicSchedule] = {}
        self.topics_changed: dict[int, int] = {}
        self.horizon_us = 0
        self._loading_us = 0
        """The next horizon, while rows are loaded for it; else equal to ``horizon_us``."""
        self._to_load: Iterator[int] | None = None
        self._loading: set[int] = set()
        """Topics that got rows from the load that is going on."""
        self._loaded: list[int] = []
        """Topics that got rows from loads that are over, until ``take_loaded``."""

    # -- questions --------------------------------------------------------------------------------

    def pins(self, segment: int) -> bool:
        """Return whether a segment holds a pending row."""
        return segment in self.pages.by_segment

    @property
    def segments(self) -> int:
        """Number of segments that hold pending rows."""
        return len(self.pages.by_segment)

    def rows_of(self, topic: int) -> int:
        """Return the number of a topic's pending rows."""
        found = self.topics.get(topic)
        return 0 if found is None else found.rows

    def next_due_us(self, topic: TopicSchedule) -> int | None:
        """Return when the topic's next row comes due; None: not before the horizon."""
        while (key := topic.first()) is not None and key >> ENTRY_BITS < self.horizon_us:
            if self._at(key) is not None:
                return key >> ENTRY_BITS
            topic.pop()
        return None

    def due(self, topic: TopicSchedule, now_us: int, most: int) -> list[ScheduledRow]:
        """Take the next rows that are due out of the topic's heap, in order.

        They stay pending until a record says otherwise; ``give_back`` those that were not recorded.
        No row at or behind the horizon is taken: rows before it may not be in the heap yet.
        """
        rows: list[ScheduledRow] = []
        last = topic.cursor
        below = min(now_us + 1, self.horizon_us) << ENTRY_BITS
        while len(rows) < most and (key := topic.first()) is not None and key < below:
            topic.pop()
            row = self._at(key)
            if row is not None and key > last:
                rows.append(row)
                last = key
        return rows

    def give_back(self, topic: TopicSchedule, rows: list[ScheduledRow]) -> None:
        """Put rows back that ``due`` returned."""
        for row in rows:
            topic.push(row.due_us << ENTRY_BITS | row.entry)

    def _at(self, key: int) -> ScheduledRow | None:
        row = self.pages.find(key & ENTRY_MASK)
        return None if row is None or row.due_us != key >> ENTRY_BITS else row

    # -- facts ------------------------------------------------------------------------------------

    def topic(self, number: int) -> TopicSchedule:
        """Return what is scheduled for a topic; it is created if there is nothing."""
        found = self.topics.get(number)
        if found is None:
            found = self.topics[number] = TopicSchedule(number)
        return found

    def apply_scheduled(self, position: int, time_us: int, stored: Messages) -> None:
        """Add the rows of a SCHEDULED record; if they are copies, note where they are now."""
        first, count = stored.first_offset, stored.count
        if first + count > self.next_entry:
            self.next_entry = first + count
        pages = self.pages
        if stored.origin is not None:
            for entry in range(first, first + count):
                pages.move(entry, position, entry - first)
        topic = self.topics.get(stored.topic) or self.topic(stored.topic)
        due = due_times_us(stored, time_us)
        added = self._add(position, topic, due, stored)
        self._added(position, position, first, count, added)

    def apply_decided(self, position: int, part: DuePart) -> None:
        """Add the rows of a PREPARED, which the RESOLVED at ``position`` scheduled."""
        first, count = part.first_entry, len(part.due_us)
        if first + count > self.next_entry:
            self.next_entry = first + count
        stored = Messages(part.topic, part.queue, first, count, (), b"")
        added = self._add(part.position, self.topic(part.topic), part.due_us, stored)
        self._added(position, part.position, first, count, added)

    def _added(self, position: int, stored_at: int, first: int, count: int, added: int) -> None:
        """Note that the record at ``position`` added some of ``count`` entries from ``first`` on.

        ``stored_at``: Position of the record that holds the rows.
        """
        pages = self.pages
        pages.note(first, count, position)
        if added and pages.live:
            self.rows += added
            pages.count_stored(stored_at, added)

    def _add(
        self, position: int, topic: TopicSchedule, due: Sequence[int], stored: Messages
    ) -> int:
        """Add the rows of a record that are not known; return their number."""
        entry, number, queue = stored.first_offset, stored.topic, stored.queue
        pages = self.pages
        live = pages.live
        near_us = self._loading_us if live else 0
        added = 0
        for start, stop in stored.runs or ((0, len(due)),):
            for row in range(start, stop):
                due_us = due[row]
                key = due_us << ENTRY_BITS | entry
                if key > topic.cursor and pages.page(entry).put(
                    entry & SLOT_MASK, due_us, position, row, number, queue
                ):
                    added += 1
                    if live:
                        topic.count(due_us, 1)
                    if due_us < near_us:
                        topic.push(key)
                        if due_us >= self.horizon_us:  # its timer is set when the load is over
                            self._loading.add(number)
                entry += 1
        return added

    def apply_fulfilled(
        self, position: int, topic_number: int, count: int, fulfils: Fulfilment
    ) -> None:
        """Remove rows that became messages, and move the cursor of their topic."""
        _, entry, due_us = fulfils
        topic = self.topic(topic_number)
        for one in range(entry, entry + count):
            self._remove(one, topic)
        topic.cursor = max(topic.cursor, due_us << ENTRY_BITS | entry + count - 1)
        self.topics_changed[topic_number >> TOPIC_BITS] = position

    def apply_cancelled(self, position: int, row: CancelledRow) -> None:
        """Remove a row that was cancelled."""
        if self._remove(row.entry, self.topics.get(row.topic)):
            self.pages.note(row.entry, 1, position)

    def _remove(self, entry: int, topic: TopicSchedule | None) -> bool:
        """Remove a row of a topic; return whether it was there."""
        due_us = self.pages.remove(entry)
        if due_us and topic is not None and self.pages.live:
            topic.count(due_us, -1)
            self.rows -= 1
        return due_us != 0

    def drop_topic(self, number: int) -> None:
        """Drop the rows of a topic that was deleted; ``RowPages.sweep`` frees their memory."""
        topic = self.topics.pop(number, None)
        if topic is not None and self.pages.live:
            self.rows -= topic.rows
            if topic.rows:
                self.pages.drop_topic(number)

    # -- work in pieces ---------------------------------------------------------------------------

    def load(self, horizon_us: int, pages: int) -> bool:
        """Move the horizon to ``horizon_us``; return whether more calls are needed.

        Args:
            horizon_us: The new horizon. A call that goes on with an earlier one ignores it.
            pages: Most pages to scan, each about 40 us.
        """
        if self._to_load is None:
            self._loading_us = max(horizon_us, self.horizon_us)
            self._to_load = iter(list(self.pages.by_number))
        for number in self._to_load:
            page = self.pages.by_number.get(number)
            if page is None or page.earliest_us >= self._loading_us:
                continue
            self._load_page(number, page)
            pages -= 1
            if pages <= 0:
                return True
        self._to_load = None
        self.horizon_us = self._loading_us
        self._loaded += sorted(self._loading, reverse=True)
        self._loading.clear()
        return False

    @property
    def loaded(self) -> bool:
        """Whether there are topics for ``take_loaded``."""
        return bool(self._loaded)

    def take_loaded(self, most: int) -> list[TopicSchedule]:
        """Take topics for which a load that is over put rows in order; each once, at most ``most``.

        Topics that are gone are left out, so there may be fewer although more are left.
        """
        numbers = [self._loaded.pop() for _ in range(min(most, len(self._loaded)))]
        return [self.topics[number] for number in numbers if number in self.topics]

    def _load_page(self, number: int, page: Page) -> None:
        low, high = self.horizon_us, self._loading_us
        first = number << PAGE_BITS
        later = NEVER
        keys: dict[int, list[int]] = {}
        for slot, due_us in enumerate(page.due):
            if due_us >= high:
                later = min(later, due_us)
            elif due_us >= low and due_us:
                keys.setdefault(page.topic[slot], []).append(due_us << ENTRY_BITS | first | slot)
        page.earliest_us = later
        for topic, some in keys.items():
            known = self.topics.get(topic)
            if known is not None:
                known.push_all(some)
                self._loading.add(topic)

    # -- STATE ------------------------------------------------------------------------------------

    def topic_pages(self) -> list[int]:
        """Return the numbers of the pages of topics that have a cursor, sorted."""
        return sorted({one.topic >> TOPIC_BITS for one in self.topics.values() if one.cursor})

    def encode_topics(self, number: int) -> bytes:
        """Return the cursors of a page of topics for STATE."""
        first = number << TOPIC_BITS
        topics = [self.topics.get(first | one) for one in range(1 << TOPIC_BITS)]
        return b"".join(
            [
                SCHEDULE_ENTRY.pack(
                    one.topic, 0, one.cursor >> ENTRY_BITS, one.cursor & ENTRY_MASK, 0
                )
                for one in topics
                if one is not None and one.cursor
            ]
        )

    def load_topics(self, number: int, payload: bytes, stamp: int) -> None:
        """Load the cursors of a page of topics as they were at ``stamp``."""
        for topic, _, due_us, entry, _ in SCHEDULE_ENTRY.iter_unpack(payload):
            self.topic(topic).cursor = due_us << ENTRY_BITS | entry
        if payload:
            self.topics_changed[number] = stamp

    def finish(self, topics: Collection[int], now_us: int) -> None:
        """Drop what is not pending, and put the near rows in order, once everything is replayed.

        Args:
            topics: The numbers of the topics that exist.
            now_us: Broker time.
        """
        self.topics = {number: one for number, one in self.topics.items() if number in topics}
        cursors = {
            number: self.topics[number].cursor if number in self.topics else 0 for number in topics
        }
        for number, hour, rows in self.pages.count(cursors):
            self.topic(number).count(hour * HOUR_US, rows)
        self.rows = sum([one.rows for one in self.topics.values()])
        while self.load(now_us + HORIZON_US, len(self.pages.by_number) + 1):
            pass
        self._loaded.clear()  # a start looks at all topics
