"""Names of topics, groups and sessions that are gone, while the journal still has records of them.

Records name objects by numbers that are never reused. A reader of the journal needs the names of
all numbers in it: those of existing objects are in the catalog, the others here. An entry is
forgotten when the segment with the record that ended its object is removed, since no later record
names the object. There are two exceptions, whose names are unknown then. A session: a failure that
was moved forward, or a record that ends its leases after it left, may contain its number later. A
topic: a producer may report its last counts later.

Theory of operation: entries are in the order of their positions, the oldest first, so that those to
be forgotten are at the front. In STATE they are pages of 64 numbers of one sort, written after the
pages of existing objects: an object that a set does not have in one of them is in the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.record.fact.state import GoneName, Sort

__all__ = ["Gone", "GoneKey", "GoneName", "PageKey", "Sort"]

PAGE_BITS: Final = 6


GoneKey = tuple[int, int]
"""Sort, number."""


class PageKey(NamedTuple):
    """The key of a page in STATE."""

    sort: int
    page: int


_decode: Final = msgspec.msgpack.Decoder(list[GoneName])


class Gone:
    """The names of all objects that are gone, up to a cap; beyond it the oldest are forgotten.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_cap", "_loading", "_numbers", "_on_page", "entries", "pages")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._loading = False
        """Loaded entries are in the order of their keys; ``finish`` sorts them by age."""
        self._numbers: dict[int, SortedKeys[int]] = {int(sort): SortedKeys() for sort in Sort}
        # Not a dict: it looks for its first entry among all that were deleted before.
        self.entries: OrderedDict[GoneKey, GoneName] = OrderedDict()
        self.pages: dict[PageKey, int] = {}
        """Page -> newest record that added an entry."""
        self._on_page: dict[PageKey, int] = {}
        """Page -> number of entries."""

    def add(self, sort: Sort, one: GoneName) -> None:
        """Add an object that is gone; no effect if it is known already."""
        key = (int(sort), one.number)
        if key in self.entries:
            return
        self._put(key, PageKey(key[0], one.number >> PAGE_BITS), one, one.position)
        if len(self.entries) > self._cap and not self._loading:
            self._forget(next(iter(self.entries)))

    def add_all(self, sort: Sort, ones: Sequence[GoneName]) -> None:
        """Add several objects that one record ended: the same as ``add`` for each, but faster.

        Args:
            sort: Kind of all objects.
            ones: The objects in the order of their numbers, all with the same position.
        """
        kind, entries, numbers = int(sort), self.entries, self._numbers[int(sort)]
        counts: dict[int, int] = {}
        for one in ones:
            key = (kind, one.number)
            if key not in entries:
                entries[key] = one
                numbers.add(one.number)
                page = one.number >> PAGE_BITS
                counts[page] = counts.get(page, 0) + 1
        for page, count in counts.items():
            place = PageKey(kind, page)
            self._on_page[place] = self._on_page.get(place, 0) + count
            self.pages[place] = ones[0].position
        while len(entries) > self._cap and not self._loading:
            self._forget(next(iter(entries)))

    def forget_below(self, first: int, most: int | None = None) -> bool:
        """Forget the entries that no record of a journal beginning at ``first`` names.

        Args:
            first: Where the journal begins.
            most: Number of entries to forget at most; None: all.

        Returns:
            Whether there are more to forget.
        """
        entries = self.entries
        while entries:
            key = next(iter(entries))
            if entries[key].position >= first:
                return False
            if most is not None:
                if not most:
                    return True
                most -= 1
            self._forget(key)
        return False

    def numbers(self, sort: Sort) -> SortedKeys[int]:
        """Return the numbers of a sort, in order; the caller must not change them."""
        return self._numbers[int(sort)]

    def _put(self, key: GoneKey, page: PageKey, one: GoneName, stamp: int) -> None:
        if key not in self.entries:
            self._on_page[page] = self._on_page.get(page, 0) + 1
        self.entries[key] = one
        self._numbers[key[0]].add(one.number)
        self.pages[page] = stamp

    def _forget(self, key: GoneKey) -> None:
        sort, number = key
        del self.entries[key]
        self._numbers[sort].discard(number)
        page = PageKey(sort, number >> PAGE_BITS)
        self._on_page[page] -= 1
        if not self._on_page[page]:
            del self.pages[page], self._on_page[page]

    # -- STATE ------------------------------------------------------------------------------------

    def _of_page(self, sort: int, page: int) -> list[GoneName]:
        first = page << PAGE_BITS
        found = [self.entries.get((sort, first + at)) for at in range(1 << PAGE_BITS)]
        return [one for one in found if one is not None]

    def encode(self, sort: int, page: int) -> bytes:
        """Return a page as it is stored in STATE."""
        return msgspec.msgpack.encode(self._of_page(sort, page))

    def load(self, sort: int, page: int, payload: bytes, stamp: int) -> None:
        """Load a page of STATE; ``finish`` must follow when everything is replayed."""
        self._loading = True
        for one in _decode.decode(payload):
            self._put((sort, one.number), PageKey(sort, page), one, stamp)

    def finish(self) -> None:
        """Sort the loaded and replayed entries by age; forget the oldest beyond the cap."""
        self._loading = False
        self.entries = OrderedDict(sorted(self.entries.items(), key=_position))
        while len(self.entries) > self._cap:
            self._forget(next(iter(self.entries)))


def _position(item: tuple[GoneKey, GoneName]) -> tuple[int, GoneKey]:
    return item[1].position, item[0]
