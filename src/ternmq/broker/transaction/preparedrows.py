"""Which segments hold rows that a later RESOLVED made messages, and where the queues then begin.

Prepared rows get their offsets from their RESOLVED, often some segments later. So a segment may
hold higher offsets of a queue than the segments after it. It is judged by the highest of them (see
`upkeep.retention`). When it is removed, the queue begins above them, at its **floor**, until no
index entry below the floor is left.

Stored in STATE as one object per segment and page (64 topics, 16 queues): PREPARED ROWS.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ternmq.broker.catalog.catalog import PAGE_BITS, QUEUE_BITS
from ternmq.journal.index.index import Index
from ternmq.record.fact.state import PREPARED_ROWS_ENTRY

Page = tuple[int, int, int]
"""Number of the segment, page of topics, page of queues."""


class Share(NamedTuple):
    """Prepared rows of one queue in one segment."""

    stop: int
    """One above the highest offset."""
    time_us: int
    """When the newest of them became messages."""


class PreparedRows:
    """All segments with prepared rows that have become messages. Deterministic.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_gone", "_last_us", "_left", "_pages", "_segment_size", "changed")

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._pages: dict[int, dict[Page, dict[tuple[int, int], Share]]] = {}
        self.changed: dict[Page, int] = {}
        """Page -> position of the newest record that changed it."""
        self._last_us: dict[int, int] = {}
        self._gone: list[int] = []
        """Removed segments that still determine the floor of a queue, ascending."""
        self._left: deque[Page] = deque()
        """Pages of these segments that are still to be examined."""

    def page_of(self, prepared: int, topic: int, queue: int) -> Page:
        """Return the page to which the rows of a PREPARED record belong."""
        return prepared // self._segment_size, topic >> PAGE_BITS, queue >> QUEUE_BITS

    def add(
        self, position: int, page: Page, topic: int, queue: int, stop: int, time_us: int
    ) -> None:
        """Add rows of a PREPARED in the page's segment: ``position`` made them messages."""
        shares = self._pages.setdefault(page[0], {}).setdefault(page, {})
        known = shares.get((topic, queue))
        if known is None or known.stop < stop:
            shares[topic, queue] = Share(stop, time_us)
            self.changed[page] = position
            self._last_us[page[0]] = max(self._last_us.get(page[0], 0), time_us)

    def holds(self, segment: int) -> bool:
        """Return whether a segment holds prepared rows that are messages."""
        return segment in self._pages

    def last_us(self, segment: int) -> int:
        """Return when the newest of a segment's rows became messages; 0 if it holds none."""
        return self._last_us.get(segment, 0)

    def stop(self, segment: int, topic: int, queue: int) -> int:
        """Return one above the highest offset of a queue's prepared rows in a segment; 0: none."""
        page = segment, topic >> PAGE_BITS, queue >> QUEUE_BITS
        share = self._pages.get(segment, {}).get(page, {}).get((topic, queue))
        return 0 if share is None else share.stop

    # -- removed segments -------------------------------------------------------------------------

    def drop_below(self, index: Index, first: int) -> None:
        """Give the index the queues' floors, now that the journal begins at ``first``.

        Floors that the index does not need to answer correctly are dropped by ``forget_some``.
        """
        self._gone = sorted([one for one in self._pages if one * self._segment_size < first])
        self._left = deque([page for one in self._gone for page in self._pages[one]])
        index.floor_of = self._floor if self._gone else None

    def _floor(self, key: int) -> int:
        return max([self.stop(segment, key >> 32, key & 0xFFFFFFFF) for segment in self._gone])

    def forget_some(self, index: Index) -> bool:
        """Drop the entries of one page that are not needed; return whether there is another."""
        if not self._left:
            return False
        page = self._left.popleft()
        shares = self._pages[page[0]][page]
        for (topic, queue), share in list(shares.items()):
            segments = index.coverage.segments_of(topic << 32 | queue)
            if segments is None or segments.first_offsets[0] >= share.stop:
                del shares[topic, queue]
        if not shares:
            del self._pages[page[0]][page], self.changed[page]
            if not self._pages[page[0]]:
                del self._pages[page[0]], self._last_us[page[0]]
                self._gone.remove(page[0])
                if not self._gone:
                    index.floor_of = None
        return bool(self._left)

    # -- STATE ------------------------------------------------------------------------------------

    def encode(self, page: Page) -> bytes:
        """Return a page for STATE; empty if it is gone."""
        shares = self._pages.get(page[0], {}).get(page, {})
        return b"".join(
            [PREPARED_ROWS_ENTRY.pack(*place, *share) for place, share in sorted(shares.items())]
        )

    def load(self, page: Page, payload: bytes, stamp: int) -> None:
        """Load a page as it was at ``stamp``."""
        if payload:
            self._pages.setdefault(page[0], {})[page] = {
                (topic, queue): Share(stop, time_us)
                for topic, queue, stop, time_us in PREPARED_ROWS_ENTRY.iter_unpack(payload)
            }
            self.changed[page] = stamp
            newest_us = max([share.time_us for share in self._pages[page[0]][page].values()])
            self._last_us[page[0]] = max(self._last_us.get(page[0], 0), newest_us)
