"""Which segments hold rows that a later RESOLVED made messages, and where the queues then begin.

The offsets of prepared rows are given out by their RESOLVED, often some segments later. So a
segment may hold higher offsets of a queue than the segments behind it. It is judged by the highest
(see `moving`), and when it goes, the queue begins above them: its **floor**, until nothing below is
told of any more.

Per segment and page (64 topics, 16 queues) an object of STATE: PREPARED ROWS.
"""

from __future__ import annotations

import struct
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

    __slots__ = ("_pages", "_segment_size", "changed")

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._pages: dict[int, dict[Page, dict[tuple[int, int], Share]]] = {}
        self.changed: dict[Page, int] = {}
        """Newest record that changed a page."""

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

    def holds(self, segment: int) -> bool:
        """Return whether a segment holds any."""
        return segment in self._pages

    def of_segment(self, segment: int) -> dict[tuple[int, int], Share]:
        """Return what a segment holds, by topic and queue."""
        found: dict[tuple[int, int], Share] = {}
        for shares in self._pages.get(segment, {}).values():
            found.update(shares)
        return found

    def stop(self, segment: int, topic: int, queue: int) -> int:
        """Return one above the highest offset of a queue's prepared rows in a segment, 0: none."""
        page = segment, topic >> PAGE_BITS, queue >> QUEUE_BITS
        share = self._pages.get(segment, {}).get(page, {}).get((topic, queue))
        return 0 if share is None else share.stop

    def raise_floors(self, index: Index, first: int) -> None:
        """Tell the index where queues begin, now that the journal begins at ``first``.

        What the index would tell right without it is forgotten.
        """
        floors: dict[int, int] = {}
        for segment in [one for one in self._pages if one * self._segment_size < first]:
            pages = self._pages[segment]
            for page, shares in list(pages.items()):
                for (topic, queue), share in list(shares.items()):
                    key = topic << 32 | queue
                    segments = index.queues.get(key)
                    if segments is None or segments.first_offsets[0] >= share.stop:
                        del shares[topic, queue]
                    else:
                        floors[key] = max(floors.get(key, 0), share.stop)
                if not shares:
                    del pages[page], self.changed[page]
            if not pages:
                del self._pages[segment]
        index.floors = floors

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
