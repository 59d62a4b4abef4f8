"""Names of topics, groups and sessions that are gone, while the journal still has records of them.

Records name objects by numbers that are never reused. Who reads the journal from some position on
needs the names of all numbers in it: of those that are there from the catalog, of the others from
here. An entry is forgotten when the segment with the record that ended it goes, since no later
record names it (but for a session, which may stay unnamed in a failure that was moved forward, and
in what it gave back behind its end).

Theory of operation: entries stand in the order of their positions, the oldest first, so that what
is to be forgotten is found at the front. In STATE they are pages of 64 numbers of one sort, written
after the pages of what is there: so what a set does not have in one it has in the other.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ternmq.broker.sortedkeys import SortedKeys

PAGE_BITS: Final = 6


class Sort(enum.IntEnum):
    """What is gone. Numbers stand in STATE and are never reused."""

    TOPIC = 1
    GROUP = 2
    SESSION = 3


class GoneName(msgspec.Struct, frozen=True, array_like=True):
    """Something that is gone."""

    number: int
    name: str
    """Of a topic or group; the app of a session."""
    position: int
    """Of the record that ended it."""
    topic: int = 0
    """Of a group."""
    client: str = ""
    """The beginning of a session's client."""
    address: str = ""
    """Where a session began."""


GoneKey = tuple[int, int]
"""Sort, number."""


class PageKey(NamedTuple):
    """A page in STATE."""

    sort: int
    page: int


_decode: Final = msgspec.msgpack.Decoder(list[GoneName])


class Gone:
    """All of them, up to a cap: beyond, the oldest are forgotten. Loop only."""

    __slots__ = ("_cap", "_loading", "_numbers", "_on_page", "entries", "pages")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._loading = False
        """What was loaded is in the order of its keys: ``finish`` finds out which is the oldest."""
        self._numbers: dict[int, SortedKeys[int]] = {int(sort): SortedKeys() for sort in Sort}
        # A dict looks for its first entry among all that went before.
        self.entries: OrderedDict[GoneKey, GoneName] = OrderedDict()
        self.pages: dict[PageKey, int] = {}
        """Page -> newest record that put something in."""
        self._on_page: dict[PageKey, int] = {}
        """Page -> how many."""

    def add(self, sort: Sort, one: GoneName) -> None:
        """Something is gone from its position on; once more changes nothing."""
        key = (int(sort), one.number)
        if key in self.entries:
            return
        self._put(key, PageKey(key[0], one.number >> PAGE_BITS), one, one.position)
        if len(self.entries) > self._cap and not self._loading:
            self._forget(next(iter(self.entries)))

    def add_all(self, sort: Sort, ones: Sequence[GoneName]) -> None:
        """Several are gone from one position on: the same as ``add`` for each, and quicker.

        Args:
            sort: Of all of them.
            ones: In the order of their numbers, all with the same position.
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
        """Forget what no record of a journal that begins at ``first`` names.

        Args:
            first: Where it begins.
            most: Forget no more than so many; None: all.

        Returns:
            Whether there is more of it.
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
        """Return the numbers of a sort, in order; not to be changed."""
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
        """Return a page as it stands in STATE."""
        return msgspec.msgpack.encode(self._of_page(sort, page))

    def load(self, sort: int, page: int, payload: bytes, stamp: int) -> None:
        """Take over a page of STATE; ``finish`` follows when all is replayed."""
        self._loading = True
        for one in _decode.decode(payload):
            self._put((sort, one.number), PageKey(sort, page), one, stamp)

    def finish(self) -> None:
        """Put in order what was loaded and replayed; forget the oldest beyond the cap."""
        self._loading = False
        self.entries = OrderedDict(sorted(self.entries.items(), key=_position))
        while len(self.entries) > self._cap:
            self._forget(next(iter(self.entries)))


def _position(item: tuple[GoneKey, GoneName]) -> tuple[int, GoneKey]:
    return item[1].position, item[0]
