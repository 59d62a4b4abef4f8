"""Copies the pending scheduled rows of the oldest segment to new records, before it is removed.

A row may wait for two years, and must not keep the journal for so long. Neighbours of one record
are copied together; the copies have the same entries, so that nothing else changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ternmq.broker.ledger.factkinds import SCHEDULED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.schedule.rowpages import Stored
from ternmq.record.batch.batch import slice_batch
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact.header import time_us_of
from ternmq.record.fact.messages import Messages, Origin
from ternmq.record.fact.transactions import of_scheduled

ROWS_A_STEP: Final = 64
BYTES_A_STEP: Final = 256 * 1024
_PAGE_WORK: Final = 4
"""What looking through a page counts as, in rows: it takes some 0.1 ms."""


class ScheduleCopies:
    """Copies pending rows out of the oldest segment.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        copied_rows: Rows copied since the start.
        copied_bytes: Bytes of their records.
    """

    __slots__ = ("_ledger", "_pages", "_rows", "copied_bytes", "copied_rows")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pages: deque[int] | None = None
        """Pages that were not looked through yet; None: they are not listed. No page gets rows of
        this segment later: new records and copies are behind it."""
        self._rows: deque[Stored] = deque()
        self.copied_rows = 0
        self.copied_bytes = 0

    def begin(self) -> None:
        """Begin with another segment."""
        self._pages = None
        self._rows.clear()

    def step(self, now_us: int, end: int, may_go_on: Callable[[], bool]) -> bool:
        """Copy some rows that are stored below ``end``; return whether all are copied.

        Raises:
            JournalFull: There is no room; call again later.
            CorruptJournal, DiskReadError: A row cannot be read, so its segment must stay.
            WouldBlock: bytes must be read first; call again after that.
        """
        schedule = self._ledger.views.schedule
        if self._pages is None:
            self._pages = deque(schedule.pages.below(end))
        rows = size = 0
        while rows < ROWS_A_STEP and size < BYTES_A_STEP and (not rows or may_go_on()):
            if not self._rows:
                if not self._pages:
                    return True
                self._rows.extend(schedule.pages.stored_below(end, self._pages.popleft()))
                rows += _PAGE_WORK
                continue
            count, length = self._copy(now_us)
            rows += count
            size += length
        return False

    def _copy(self, now_us: int) -> tuple[int, int]:
        """Copy the first row that is left and its neighbours.

        Returns:
            Number of rows that are done, and bytes of the new record.
        """
        ledger = self._ledger
        first = self._rows[0]
        if not self._pending(first):
            self._rows.popleft()
            return 1, 0
        topic = ledger.views.catalog.topics[first.topic]
        record = ledger.store.get(first.position)
        stored = of_scheduled(record)
        count = 0
        for row in self._rows:
            if (
                row.position != first.position
                or row.row != first.row + count
                or row.entry != first.entry + count
                or not self._pending(row)
            ):
                break
            count += 1
        batch = slice_batch(stored.batch, first.row, first.row + count, topic.seed)
        origin = stored.origin or Origin(first.position, self._time_us(record, batch, first.entry))
        fact = Messages(first.topic, stored.queue, first.entry, count, (), batch, origin=origin)
        position = ledger.record(now_us, SCHEDULED, fact)
        for _ in range(count):
            self._rows.popleft()
        self.copied_rows += count
        self.copied_bytes += ledger.end - position
        return count, ledger.end - position

    def _time_us(self, record: bytes, batch: bytes, entry: int) -> int:
        """Return when rows were scheduled: no row of the copy is due before that time.

        Rows of a transaction were scheduled by its RESOLVED, which may be gone; those that were
        past then are due at its time.
        """
        time_us = time_us_of(record)
        for number, due_us in enumerate(due_times_of(batch), entry):
            row = self._ledger.views.schedule.pages.find(number)
            if row is not None and row.due_us > max(due_us, time_us):
                time_us = row.due_us
        return time_us

    def _pending(self, row: Stored) -> bool:
        found = self._ledger.views.schedule.pages.find(row.entry)
        return found is not None and found.position == row.position
