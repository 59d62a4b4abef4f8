"""When what waits has waited long enough, whose largest step is small however much waits.

A heap. What ended before its time leaves its deadline behind. When these are too many, the heap is
set aside, and with each new deadline some are taken from its end and those that still count are put
into a new one: a heap stays one when its end is cut off. To go through all of them at once took
8 ms with 50,000 pulls that wait.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, Protocol

STALE: Final = 1000
"""So many deadlines of what is over are kept, besides some for each that is not."""
_MOVED: Final = 8
"""Old deadlines that are looked at with each new one."""


class Living(Protocol):
    """Which tokens wait still."""

    def __contains__(self, token: int, /) -> bool: ...

    def __len__(self) -> int: ...


class Deadlines:
    """Deadlines of tokens. Loop only.

    Args:
        living: The tokens that wait still.
    """

    __slots__ = ("_living", "_new", "_old")

    def __init__(self, living: Living) -> None:
        self._living = living
        self._new: list[tuple[int, int]] = []
        self._old: list[tuple[int, int]] = []
        """Heaps of (time, token)."""

    def __len__(self) -> int:
        """Return how many are kept, with those that are over."""
        return len(self._new) + len(self._old)

    def add(self, us: int, token: int) -> None:
        """Take a deadline in."""
        heappush(self._new, (us, token))
        old = self._old
        if old:
            for one in (old.pop() for _ in range(min(_MOVED, len(old)))):
                if one[1] in self._living:
                    heappush(self._new, one)
        elif len(self._new) > STALE + 2 * len(self._living):
            self._new, self._old = old, self._new

    def first_us(self) -> int | None:
        """Return the time of the next one that waits still; None if there is none."""
        new = self._new
        if not self._old and new and new[0][1] in self._living:
            return new[0][0]
        first = self._first()
        return first[0][0] if first else None

    def due(self, now_us: int) -> bool:
        """Whether one may be due: no more than a look."""
        new, old = self._new, self._old
        return (bool(new) and new[0][0] <= now_us) or (bool(old) and old[0][0] <= now_us)

    def pop(self, now_us: int) -> int | None:
        """Take the next one out that is due and waits still; None if there is none."""
        first = self._first()
        if first and first[0][0] <= now_us:
            return heappop(first)[1]
        return None

    def _first(self) -> list[tuple[int, int]]:
        """Return the heap with the next one on top that waits still, or an empty one."""
        new, old, living = self._new, self._old, self._living
        while new and new[0][1] not in living:
            heappop(new)
        if not old:
            return new
        while old and old[0][1] not in living:
            heappop(old)
        return old if old and (not new or old[0] < new[0]) else new
