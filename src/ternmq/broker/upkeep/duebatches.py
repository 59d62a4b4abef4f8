"""The batches of scheduled rows that are due, cut out of the records that they were stored with.

Rows that come due one after another are often in different records: a thousand reminders with
times of their own are one record. To read and check it takes several times as long as everything
else about the delivery of one row. So whoever reads a record also cuts out the rows of it that are
due next, and they are kept here until their turn comes, up to ``KEPT_BYTES``. Nothing depends on
them: what is not kept is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.schedule.rowpages import ScheduledRow
from ternmq.journal.store.store import RecordStore
from ternmq.model.types import Position
from ternmq.record.batch.batch import Batch, Cutter, slice_batch
from ternmq.record.fact.header import time_us_of
from ternmq.record.fact.messages import Messages
from ternmq.record.fact.schedule import due_times_us
from ternmq.record.fact.transactions import of_scheduled

KEPT_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of batches that are kept, and of the objects that hold them."""
MOST_AHEAD: Final = 64
"""Most rows that are cut out beforehand when a record is read."""
READ_SHIFT: Final = 13
"""A work unit for each 8 KiB of a record that is read, some 5 us."""
_LOOK_SHIFT: Final = 5
"""A work unit for so many rows that are looked at when the next ones are looked for."""
_WINDOW: Final = 1024
"""Rows before and behind the one that is due, among which the next ones are looked for."""
_ROWS_OF_ONE: Final = 32
"""Most rows of a batch that is cut out beforehand."""
_OBJECT_BYTES: Final = 200
"""What a batch takes beside its bytes."""
_ROW_BITS: Final = 20
"""Bits of a row's number in a batch; see ``MAX_COUNT``."""
_ROW_MASK: Final = (1 << _ROW_BITS) - 1


class DueBatch(NamedTuple):
    """A batch of rows that become one record."""

    batch: bytes
    rows: int
    home: int | None
    """On an ordered topic, the queue of all its rows."""
    work: int
    """Work units that getting it took."""


@dataclass(slots=True)
class _Kept:
    """The batches that are kept of one record: first row -> batch and its rows."""

    batches: dict[int, tuple[bytes, int]]
    bytes: int = 0


class DueBatches:
    """Reads batches of due rows, and keeps those that are due next.

    Not thread-safe: call it from the broker's loop.

    Args:
        store: Reads records.

    Attributes:
        bytes: Bytes that are kept.
        ahead: Number of rows that are cut out beforehand when a record is read; fewer if batches
            were dropped before their turn came.
        reads: Number of records read since the start.
    """

    __slots__ = ("_kept", "_store", "ahead", "bytes", "reads")

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        """By position of the record; the one that was read last is the last."""
        self.bytes = 0
        self.ahead = MOST_AHEAD
        self.reads = 0

    def clear(self) -> None:
        """Drop what is kept: also rows that were cancelled, or whose topic was deleted."""
        self._kept.clear()
        self.bytes = 0
        self.ahead = MOST_AHEAD

    def get(self, now_us: int, topic: Topic, rows: Sequence[ScheduledRow], at: int) -> DueBatch:
        """Return a batch of ``rows[at]`` and of rows behind it that can be in one record with it.

        Args:
            now_us: Broker time.
            topic: The topic of the rows.
            rows: Rows that are due, in order.
            at: The first.

        Raises:
            CorruptJournal, DiskReadError, MessageNotFound: The rows cannot be read.
            WouldBlock: Bytes must be read first.
        """
        first = rows[at]
        kept = self._take(first)
        if kept is None:
            return self._read(now_us, topic, rows, at)
        batch, most = kept
        home = _homes(topic, batch)[0] if topic.spec.ordered else None  # its queues never change
        count = _neighbours(rows, at, most)
        if count < most:
            rest = slice_batch(batch, count, most, topic.seed)
            self._keep(first.position, first.row + count, rest, most - count)
            batch = slice_batch(batch, 0, count, topic.seed)
        return DueBatch(batch, count, home, 0)

    def _read(self, now_us: int, topic: Topic, rows: Sequence[ScheduledRow], at: int) -> DueBatch:
        first = rows[at]
        record = self._store.get(first.position)
        self.reads += 1
        stored = of_scheduled(record)
        count = _neighbours(rows, at, len(rows))
        homes: list[int] = []
        if topic.spec.ordered:
            homes = _homes(topic, stored.batch)
            some = homes[first.row : first.row + count]
            count = next((n for n, home in enumerate(some) if home != some[0]), count)
        work = len(record) >> READ_SHIFT
        if count == stored.count and not stored.runs:  # as of a message that was sent alone
            return DueBatch(stored.batch, count, homes[0] if homes else None, work)
        cutter = Cutter(stored.batch, topic.seed)
        batch = cutter.cut(first.row, first.row + count)
        if not stored.runs:
            work += self._cut_ahead(now_us, first, count, stored, time_us_of(record), cutter, homes)
        return DueBatch(batch, count, homes[first.row] if homes else None, work)

    def _cut_ahead(
        self,
        now_us: int,
        first: ScheduledRow,
        count: int,
        stored: Messages,
        time_us: int,
        cutter: Cutter,
        homes: Sequence[int],
    ) -> int:
        """Cut out the rows of a record that are due next; return the number of work units."""
        low = max(0, first.row - _WINDOW)
        high = min(stored.count, first.row + _WINDOW)
        after = first.due_us << _ROW_BITS | first.row + count - 1
        due = [
            key
            for row, due_us in enumerate(due_times_us(stored, time_us, low, high), low)
            if due_us <= now_us and (key := due_us << _ROW_BITS | row) > after
        ]
        due.sort()
        del due[self.ahead :]
        at = 0
        while at < len(due):
            row = due[at] & _ROW_MASK
            rows = 1
            while (
                at + rows < len(due)
                and due[at + rows] == due[at] + rows
                and rows < _ROWS_OF_ONE
                and (not homes or homes[row + rows] == homes[row])
            ):
                rows += 1
            self._keep(first.position, row, cutter.cut(row, row + rows), rows)
            at += rows
        self._shrink()
        return len(due) + (high - low >> _LOOK_SHIFT)

    # -- what is kept -----------------------------------------------------------------------------

    def _take(self, row: ScheduledRow) -> tuple[bytes, int] | None:
        kept = self._kept.get(row.position)
        if kept is None:
            return None
        found = kept.batches.pop(row.row, None)
        if found is not None:
            size = len(found[0]) + _OBJECT_BYTES
            kept.bytes -= size
            self.bytes -= size
            if not kept.batches:
                del self._kept[row.position]
        return found

    def _keep(self, position: Position | int, row: int, batch: bytes, rows: int) -> None:
        kept = self._kept.get(position)
        if kept is None:
            kept = self._kept[position] = _Kept({})
        old = kept.batches.get(row)
        size = len(batch) - (len(old[0]) if old else -_OBJECT_BYTES)
        kept.batches[row] = batch, rows
        kept.bytes += size
        self.bytes += size

    def _shrink(self) -> None:
        """Drop the batches of records that were read long ago, if there are too many bytes."""
        if self.bytes <= KEPT_BYTES:
            if self.ahead < MOST_AHEAD:
                self.ahead += 1
            return
        while self.bytes > KEPT_BYTES and self._kept:
            self.bytes -= self._kept.popitem(last=False)[1].bytes
        self.ahead = max(1, self.ahead // 2)


def _homes(topic: Topic, batch: bytes) -> list[int]:
    """Return the queue of each row of a batch, by its ordering key."""
    queues = len(topic.queues)
    return [hash_ % queues for hash_ in Batch(batch).ordering_hashes()]


def _neighbours(rows: Sequence[ScheduledRow], at: int, most: int) -> int:
    """Return how many rows from ``rows[at]`` on are neighbours in one record, due at one time."""
    first = rows[at]
    count = 1
    for row in rows[at + 1 : at + most]:
        if (
            row.position != first.position
            or row.due_us != first.due_us
            or row.row != first.row + count
            or row.entry != first.entry + count
        ):
            break
        count += 1
    return count
