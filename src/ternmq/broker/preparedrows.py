"""Which segments hold rows that a later RESOLVED made messages, and where the queues then begin.

The offsets of prepared rows are given out by their RESOLVED, often some segments later. So a
segment may hold higher offsets of a queue than the segments behind it. It is judged by the highest
(see `moving`), and when it goes, the queue begins above them: its **floor**, until nothing below is
told of any more.

Per segment and page (64 topics, 16 queues) an object of STATE: PREPARED ROWS.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, NamedTuple

from ternmq.broker.catalog import PAGE_BITS, QUEUE_BITS
from ternmq.journal.index import Index

_ENTRY: Final = struct.Struct("<IIQq")

Page = tuple[int, int, int]
"""Number of the segment, page of topics, page of queues."""


class Share(NamedTuple):
    """Prepared rows of one queue in one segment."""

    stop: int
    """One above the highest offset."""
    time_us: int
    """When the newest of them became messages."""


class PreparedRows:
    """All segments with prepared rows that are messages. Loop only; deterministic."""

    __slots__ = ("_gone", "_last_us", "_left", "_pages", "_segment_size", "changed")

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._pages: dict[int, dict[Page, dict[tuple[int, int], Share]]] = {}
        self.changed: dict[Page, int] = {}
        """Newest record that changed a page."""
        self._last_us: dict[int, int] = {}
        self._gone: list[int] = []
        """Segments that are gone, while some queue has to be told where it begins, ascending."""
        self._left: deque[Page] = deque()
        """Their pages that are still to be looked at."""

    def page_of(self, prepared: int, topic: int, queue: int) -> Page:
        """Return the page that a PREPARED record counts in."""
        return prepared // self._segment_size, topic >> PAGE_BITS, queue >> QUEUE_BITS

    def add(
        self, position: int, page: Page, topic: int, queue: int, stop: int, time_us: int
    ) -> None:
        """Rows of a PREPARED in the page's segment became messages, by what ``position`` says."""
        shares = self._pages.setdefault(page[0], {}).setdefault(page, {})
        known = shares.get((topic, queue))
        if known is None or known.stop < stop:
            shares[topic, queue] = Share(stop, time_us)
            self.changed[page] = position
            self._last_us[page[0]] = max(self._last_us.get(page[0], 0), time_us)

    def holds(self, segment: int) -> bool:
        """Return whether a segment holds any."""
        return segment in self._pages

    def last_us(self, segment: int) -> int:
        """Return when the newest of a segment's became messages; 0 if it holds none."""
        return self._last_us.get(segment, 0)

    def stop(self, segment: int, topic: int, queue: int) -> int:
        """Return one above the highest offset of a queue's prepared rows in a segment, 0: none."""
        page = segment, topic >> PAGE_BITS, queue >> QUEUE_BITS
        share = self._pages.get(segment, {}).get(page, {}).get((topic, queue))
        return 0 if share is None else share.stop

    # -- segments that are gone -------------------------------------------------------------------

    def drop_below(self, index: Index, first: int) -> None:
        """Tell the index where queues begin, now that the journal begins at ``first``.

        What the index would tell right without it is forgotten by ``forget_some``.
        """
        self._gone = sorted([one for one in self._pages if one * self._segment_size < first])
        self._left = deque([page for one in self._gone for page in self._pages[one]])
        index.floor_of = self._floor if self._gone else None

    def _floor(self, key: int) -> int:
        return max([self.stop(segment, key >> 32, key & 0xFFFFFFFF) for segment in self._gone])

    def forget_some(self, index: Index) -> bool:
        """Forget what is not needed any more of one page; return whether there is another."""
        if not self._left:
            return False
        page = self._left.popleft()
        shares = self._pages[page[0]][page]
        for (topic, queue), share in list(shares.items()):
            segments = index.segments_of(topic << 32 | queue)
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
        return b"".join([_ENTRY.pack(*place, *share) for place, share in sorted(shares.items())])

    def load(self, page: Page, payload: bytes, stamp: int) -> None:
        """Take over a page as it was at ``stamp``."""
        if payload:
            self._pages.setdefault(page[0], {})[page] = {
                (topic, queue): Share(stop, time_us)
                for topic, queue, stop, time_us in _ENTRY.iter_unpack(payload)
            }
            self.changed[page] = stamp
            newest_us = max([share.time_us for share in self._pages[page[0]][page].values()])
            self._last_us[page[0]] = max(self._last_us.get(page[0], 0), newest_us)
