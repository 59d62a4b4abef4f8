"""All pending scheduled rows, by entry.

Entries are numbered densely, so the rows are stored in pages of 1,024 entries (`page`), with 32
bytes for each entry; a page is an object of STATE (SCHEDULED_ROWS). A row's place in its page
follows from its entry.

A row that became a message is removed from its page, but the page does not count as changed for
STATE: when the page is loaded again, rows at or below the cursor of their topic are dropped. So a
row that is scheduled and delivered between two STATE sets is never written into one, and a page of
which rows are delivered is not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ternmq.broker.schedule.page import NEVER, PAGE_BITS, SLOT_MASK, Page, columns_of
from ternmq.broker.schedule.topics import ENTRY_BITS
from ternmq.model.types import HOUR_US

SCANNED_PAGES: Final = 16
"""Most pages that one call of ``scan`` looks through: about 2 ms."""
MANY_PAGES: Final = 32
"""Number of pages from which a start uses numpy: as many take 15 ms as rows, and importing numpy
takes 80 ms and 12 MB."""
_PAGES_AT_ONCE: Final = 512


class ScheduledRow(NamedTuple):
    """A pending row."""

    due_us: int
    entry: int
    position: int
    """Position of the SCHEDULED or PREPARED record that holds it."""
    row: int
    """Its row in the record's batch."""
    queue: int
    """The queue that its producer asked for; 2^32-1: none."""


class Stored(NamedTuple):
    """Where a pending row is stored."""

    entry: int
    position: int
    row: int
    topic: int


class DueInHour(NamedTuple):
    """Pending rows of a topic that are due within an hour."""

    topic: int
    hour: int
    """Due time in µs // an hour."""
    rows: int


class RowPages:
    """The pages of pending rows. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Args:
        segment_size: Segment size of the journal, in bytes.

    Attributes:
        by_number: Number of a page (entry >> ``PAGE_BITS``) -> page; it has at least one row.
        by_segment: Number of a segment -> pending rows that are stored in it; not before ``count``.
        changed: Number of a page -> position of the newest record that changed it for STATE.
        gone: Deleted topics whose rows are still in pages.
        live: Whether everything is replayed, so that rows are counted.
    """

    __slots__ = (
        "_segment_size",
        "_sweep_left",
        "by_number",
        "by_segment",
        "changed",
        "gone",
        "live",
    )

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self.by_number: dict[int, Page] = {}
        self.by_segment: dict[int, int] = {}
        self.changed: dict[int, int] = {}
        self.gone: set[int] = set()
        self.live = False
        self._sweep_left: Iterator[int] | None = None

    # -- questions --------------------------------------------------------------------------------

    def find(self, entry: int) -> ScheduledRow | None:
        """Return a row by its entry; None if it is not pending."""
        page = self.by_number.get(entry >> PAGE_BITS)
        if page is None:
            return None
        slot = entry & SLOT_MASK
        due_us = page.due[slot]
        if not due_us or page.topic[slot] in self.gone:
            return None
        return ScheduledRow(due_us, entry, page.position[slot], page.row[slot], page.queue[slot])

    def scan(
        self, topic: int, since_us: int, until_us: int, first_entry: int, most: int
    ) -> tuple[list[ScheduledRow], int | None]:
        """Return pending rows of a topic that are due in ``[since_us, until_us)``, by entry.

        Args:
            topic: Number of the topic.
            since_us: Broker time.
            until_us: Broker time.
            first_entry: Where to begin: 0, or where the last call ended.
            most: Most rows. There may be fewer: a call scans at most ``SCANNED_PAGES`` pages.

        Returns:
            The rows, and where the next call begins; None: there are no more.
        """
        rows: list[ScheduledRow] = []
        scanned = 0
        for number in sorted([one for one in self.by_number if one >= first_entry >> PAGE_BITS]):
            if scanned == SCANNED_PAGES:
                return rows, number << PAGE_BITS
            scanned += 1
            page = self.by_number[number]
            for slot, due_us in enumerate(page.due):
                entry = number << PAGE_BITS | slot
                if entry < first_entry or not since_us <= due_us < until_us or not due_us:
                    continue
                if page.topic[slot] != topic:
                    continue
                if len(rows) == most:
                    return rows, entry
                rows.append(
                    ScheduledRow(
                        due_us, entry, page.position[slot], page.row[slot], page.queue[slot]
                    )
                )
        return rows, None

    def below(self, end: int) -> list[int]:
        """Return the numbers of the pages that may have rows whose record is below a position."""
        return sorted([number for number, page in self.by_number.items() if page.lowest < end])

    def stored_below(self, end: int, number: int) -> list[Stored]:
        """Return the pending rows of a page whose record is below a position, by entry.

        Args:
            end: The position.
            number: The page; it need not exist any more.
        """
        page = self.by_number.get(number)
        if page is None:
            return []
        rows: list[Stored] = []
        lowest = NEVER
        for slot, position in enumerate(page.position):
            if page.due[slot] and page.topic[slot] not in self.gone:
                if position < end:
                    entry = number << PAGE_BITS | slot
                    rows.append(Stored(entry, position, page.row[slot], page.topic[slot]))
                lowest = min(lowest, position)
        page.lowest = lowest
        return rows

    # -- changes ----------------------------------------------------------------------------------

    def page(self, entry: int) -> Page:
        """Return the page of an entry; it is created if there is none."""
        number = entry >> PAGE_BITS
        page = self.by_number.get(number)
        if page is None:
            page = self.by_number[number] = Page()
        return page

    def note(self, first: int, count: int, position: int) -> None:
        """Note for STATE that a record changed the rows of some entries."""
        page, last = first >> PAGE_BITS, first + count - 1 >> PAGE_BITS
        while page <= last:
            if page in self.by_number:
                self.changed[page] = position
            page += 1

    def count_stored(self, position: int, rows: int) -> None:
        """Count rows that are stored in a record."""
        segment = position // self._segment_size
        self.by_segment[segment] = self.by_segment.get(segment, 0) + rows

    def move(self, entry: int, position: int, row: int) -> None:
        """Note that a row is stored in another record now, if it is known."""
        page = self.by_number.get(entry >> PAGE_BITS)
        slot = entry & SLOT_MASK
        if page is None or not page.due[slot]:
            return
        if self.live:
            self._forget(page.position[slot])
            self.count_stored(position, 1)
        page.position[slot] = position
        page.row[slot] = row

    def remove(self, entry: int) -> int:
        """Remove a row; return when it was due, 0 if it was not there."""
        number = entry >> PAGE_BITS
        page = self.by_number.get(number)
        slot = entry & SLOT_MASK
        if page is None or not page.due[slot]:
            return 0
        due_us = page.due[slot]
        page.due[slot] = 0
        page.left -= 1
        if not page.left:
            del self.by_number[number]
            self.changed.pop(number, None)
        if self.live:
            self._forget(page.position[slot])
        return due_us

    def _forget(self, position: int) -> None:
        segment = position // self._segment_size
        left = self.by_segment[segment] - 1
        if left:
            self.by_segment[segment] = left
        else:
            del self.by_segment[segment]

    def drop_topic(self, number: int) -> None:
        """Drop the rows of a topic that was deleted; their memory is freed by ``sweep``."""
        self.gone.add(number)
        self._sweep_left = None

    def sweep(self, pages: int) -> None:
        """Free rows of deleted topics in some pages."""
        if not self.gone:
            return
        if self._sweep_left is None:
            self._sweep_left = iter(list(self.by_number))
        for number in self._sweep_left:
            page = self.by_number.get(number)
            if page is not None:
                first = number << PAGE_BITS
                for slot, topic in enumerate(page.topic):
                    if topic in self.gone and page.due[slot]:
                        self.remove(first | slot)
                pages -= 1
                if pages <= 0:
                    return
        self._sweep_left = None
        self.gone.clear()

    # -- STATE and start --------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Return the numbers of the pages that have rows, sorted."""
        return sorted(self.by_number)

    def encode(self, number: int) -> bytes:
        """Return a page for STATE; empty if it has no rows."""
        page = self.by_number.get(number)
        return b"" if page is None else page.encode(self.gone)

    def load(self, number: int, payload: bytes, stamp: int) -> None:
        """Load a page as it was at ``stamp``."""
        if not payload:
            return
        self.changed[number] = stamp
        page = self.by_number[number] = Page()
        if len(self.by_number) < MANY_PAGES:
            page.load(payload)
        else:
            from ternmq.broker.schedule import table  # late: it imports numpy

            table.load(page, columns_of(payload))

    def count(self, cursors: Mapping[int, int]) -> list[DueInHour]:
        """Drop what is not pending once everything is replayed, and count the other rows.

        Args:
            cursors: Topic number -> its cursor, of all topics that exist.
        """
        few = len(self.by_number) < MANY_PAGES
        found = self._count_few(cursors) if few else self._count_many(cursors)
        self.live = True
        return found

    def _count_few(self, cursors: Mapping[int, int]) -> list[DueInHour]:
        hours: dict[tuple[int, int], int] = {}
        for number, page in list(self.by_number.items()):
            first = number << PAGE_BITS
            for slot, due_us in enumerate(page.due):
                if due_us:
                    topic = page.topic[slot]
                    cursor = cursors.get(topic)
                    if cursor is None or due_us << ENTRY_BITS | first | slot <= cursor:
                        self.remove(first | slot)
                    else:
                        key = topic, due_us // HOUR_US
                        hours[key] = hours.get(key, 0) + 1
                        self.count_stored(page.position[slot], 1)
        return [DueInHour(topic, hour, rows) for (topic, hour), rows in hours.items()]

    def _count_many(self, cursors: Mapping[int, int]) -> list[DueInHour]:
        """Do the same as ``_count_few`` for many pages: whole columns at a time."""
        from ternmq.broker.schedule import table  # late: it imports numpy

        hours: list[DueInHour] = []
        pages = list(self.by_number.items())
        for at in range(0, len(pages), _PAGES_AT_ONCE):
            found = table.count(pages[at : at + _PAGES_AT_ONCE], cursors, self._segment_size)
            for entry in found.dead:
                self.remove(entry)
            hours += [DueInHour(*one) for one in found.hours]
            for segment, rows in found.segments:
                self.by_segment[segment] = self.by_segment.get(segment, 0) + rows
        return hours
