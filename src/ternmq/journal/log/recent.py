"""The newest records by position, in memory: live consumers read them.

Records are kept in **generations**: a dict that grows until it holds ``GENERATION_RECORDS`` or an
eighth of the limit, then stays as it is and is later dropped as a whole. One dict for all was
rejected: emptied from the front and filled at the back it is rebuilt now and then, 13 to 36 ms in
one ``append`` at 130,000 records of 248 bytes. Once a generation has stopped growing it is also
kept as columns: a burst of small sends makes one record each, a pull wants a stretch of them
without gaps, and that is a slice of the columns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

GENERATION_RECORDS: Final = 8192
GENERATIONS: Final = 8
"""At least this many share the limit of bytes, so that each drop is at most that part of it."""


class _Generation:
    """Records that were appended one after another.

    Attributes:
        by_position: Position -> record.
        positions: Positions of the records, ascending; empty while the generation grows.
        records: The records in the same order; empty while the generation grows.
    """

    __slots__ = ("_next", "by_position", "positions", "records")

    def __init__(self) -> None:
        self.by_position: dict[int, bytes] = {}
        self.positions: array[int] = array("Q")
        self.records: list[bytes] = []
        self._next = 0

    def end(self) -> None:
        """Make the columns, as no more records are added; 0.2 ms for ``GENERATION_RECORDS``."""
        self.positions = array("Q", self.by_position)
        self.records = [*self.by_position.values()]

    def stretch(self, positions: Sequence[int]) -> list[bytes]:
        """Return the records at the positions if these are adjacent, else an empty list."""
        at = self._next
        stop = at + len(positions)
        if self.positions[at:stop] != positions:  # not where the last stretch ended
            at = bisect_left(self.positions, positions[0])
            stop = at + len(positions)
            if self.positions[at:stop] != positions:
                return []
        self._next = stop
        return self.records[at:stop]


class RecentRecords:
    """Records by position; the oldest are dropped beyond a limit of bytes. Not thread-safe.

    Attributes:
        young: Position -> record, ascending; new records are put here. ``count`` replaces it, so
            read the attribute again after each call of ``count``.

    Args:
        limit_bytes: Bytes to keep; ``count`` drops whole generations beyond it.
    """

    __slots__ = (
        "_bytes",
        "_firsts",
        "_last",
        "_limit",
        "_newest",
        "_older",
        "_share",
        "_sizes",
        "_young",
        "young",
    )

    def __init__(self, limit_bytes: int) -> None:
        self._newest = _Generation()
        self.young = self._newest.by_position
        self._limit = limit_bytes
        self._share = limit_bytes // GENERATIONS
        self._last = self._newest  # where the last gather found its records: probably the next too
        self._bytes = 0
        self._young = 0  # bytes of the young generation
        # The older generations, ascending: first position, generation, bytes. Some dozen at most.
        self._firsts: list[int] = []
        self._older: list[_Generation] = []
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return len(self.young) + sum([len(one.records) for one in self._older])

    def count(self, size: int) -> None:
        """Count ``size`` bytes put into ``young`` since the last call; drop the oldest records."""
        self._bytes += size
        self._young += size
        if self._young >= self._share or len(self.young) >= GENERATION_RECORDS:
            self._begin_generation()
        while self._bytes > self._limit and self._firsts:
            self._bytes -= self._sizes.pop(0)
            del self._firsts[0], self._older[0]
            self._last = self._newest

    def _begin_generation(self) -> None:
        first = next(iter(self.young), None)
        if first is not None:
            self._firsts.append(first)
            self._newest.end()
            self._older.append(self._newest)
            self._sizes.append(self._young)
            self._newest = _Generation()
            self.young = self._newest.by_position
            self._young = 0

    def get(self, position: int) -> bytes | None:
        """Return the record at ``position``, None if it is not (or no longer) kept."""
        record = self.young.get(position)
        if record is None:
            at = bisect_right(self._firsts, position)
            if at:
                return self._older[at - 1].by_position.get(position)
        return record

    def gather(self, positions: Sequence[int]) -> list[bytes] | None:
        """Return the records at ascending positions, None if one of them is not kept.

        Takes a fifth of the time of a ``get`` for each; a ninth if they are adjacent in an older
        generation.

        Args:
            positions: Ascending, as ``array('Q')``; any other sequence works, more slowly.
        """
        if not positions:
            return []
        generation = self._last
        first = positions[0]
        record = generation.by_position.get(first)
        if record is None:
            generation = self._generation_of(first)
            record = generation.by_position.get(first)
            if record is None:
                return None
            self._last = generation
        if len(positions) > 2 and positions[1] - first == len(record):
            found = generation.stretch(positions)
            if found:
                return found
        try:
            return list(map(generation.by_position.__getitem__, positions))
        except KeyError:
            pass  # they are in several generations
        found = []
        for position in positions:
            record = self.get(position)
            if record is None:
                return None
            found.append(record)
        return found

    def _generation_of(self, position: int) -> _Generation:
        """Return the only generation that may hold a position."""
        at = bisect_right(self._firsts, position)
        return self._older[at - 1] if at and position not in self.young else self._newest
