"""When rows that fail were stored: for policies that end retries by age."""

from __future__ import annotations

from typing import Final

from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import CorruptJournal, DiskReadError, MessageNotFound
from ternmq.record.fact import moved
from ternmq.record.fact.header import HEADER_BYTES

UNKNOWN_US: Final = 1 << 63


class Ages:
    """When rows of a queue were stored, for one look at many spans.

    Of a batch only the header is read, and once, if the spans ascend.

    Args:
        ledger: Where the rows are found.
        progress: The group's view of the queue.
        stop: The end of the last span.
    """

    __slots__ = ("_copies", "_end", "_ledger", "_progress", "_start", "_stop", "_stored_us")

    def __init__(self, ledger: Ledger, progress: Progress, stop: int) -> None:
        self._ledger = ledger
        self._progress = progress
        self._stop = stop
        self._start = self._end = 0
        self._stored_us = UNKNOWN_US
        self._copies: tuple[int, moved.Moved] | None = None

    def stored(self, start: int, stop: int) -> tuple[int, int]:
        """Return the end of the rows of a span that were stored with the first, and when.

        The time is ``UNKNOWN_US`` if it must be read from the disk first, or cannot be read.
        """
        if not self._start <= start < self._end:
            try:
                self._find(start)
            except (WouldBlock, CorruptJournal, DiskReadError, MessageNotFound):
                return stop, UNKNOWN_US
        return min(stop, self._end), self._stored_us

    def _find(self, start: int) -> None:
        ledger, topic, queue = self._ledger, self._progress.topic, self._progress.queue
        places = ledger.index.locate(topic, queue, start, self._stop, 1)  # one batch
        if places.positions:
            self._stored_us = ledger.store.time_us(places.visible_from(0))
            self._start, self._end = start, places.stop
            return
        place = ledger.index.moved(topic, queue, start)
        if place is None:
            self._start, self._end, self._stored_us = start, start + 1, UNKNOWN_US
            return
        if self._copies is None or self._copies[0] != place.position:
            copies = moved.unpack(ledger.store.get(place.position)[HEADER_BYTES:])
            self._copies = place.position, copies
        piece, _ = self._copies[1].row(place.row)
        self._stored_us = piece.time_us
        self._start, self._end = start, piece.first_offset + piece.row_count
