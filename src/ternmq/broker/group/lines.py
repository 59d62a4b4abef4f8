"""The lines of an ordered group: its rows by ordering key.

A line contains the owed rows of one key that are not dead, in order of offset. While any row of a
line is leased, or its head waits for its due time, no other row of that key is handed out; other
keys are not affected. Lines are derived from the rows of the group queue and rebuilt at start.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush

from ternmq.broker.containers.discarded import Discarded


class Line:
    """The line of one key; ``leased`` is the number of its leased rows."""

    __slots__ = ("leased", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.leased = 0


class Lines:
    """All lines of one ordered (group, queue)."""

    __slots__ = ("_free", "by_hash", "hash_of")

    def __init__(self) -> None:
        self.by_hash: dict[int, Line] = {}
        self.hash_of: dict[int, int] = {}
        self._free: list[tuple[int, int]] = []  # (head offset, hash); entries may be stale

    def __len__(self) -> int:
        return len(self.hash_of)

    def discard(self, discarded: Discarded) -> None:
        """Hand over all memory to be freed; the object must not be used any more."""
        discarded.put(self.by_hash, self.hash_of, self._free)

    def stand(self, offset: int, hash_: int) -> None:
        """Put an owed row into its line; no effect if it is there already."""
        if offset in self.hash_of:
            return
        self.hash_of[offset] = hash_
        line = self.by_hash.get(hash_)
        if line is None:
            line = self.by_hash[hash_] = Line()
        insort(line.offsets, offset)

    def leave(self, offset: int) -> None:
        """Remove a row that is done, dead or forgotten from its line. It must not be leased."""
        hash_ = self.hash_of.pop(offset, None)
        if hash_ is None:
            return
        line = self.by_hash[hash_]
        del line.offsets[bisect_left(line.offsets, offset)]
        if not line.offsets:
            del self.by_hash[hash_]
        elif not line.leased:
            heappush(self._free, (line.offsets[0], hash_))

    def lease(self, offset: int) -> None:
        """Note that a row of a line is leased."""
        self.by_hash[self.hash_of[offset]].leased += 1

    def give_back(self, offset: int) -> None:
        """Note that a row is no longer leased."""
        hash_ = self.hash_of.get(offset)
        if hash_ is None:
            return
        line = self.by_hash[hash_]
        line.leased -= 1
        if not line.leased:
            heappush(self._free, (line.offsets[0], hash_))

    def offer(self, offset: int) -> None:
        """Note that a row may have become available: its due time came."""
        hash_ = self.hash_of.get(offset)
        if hash_ is not None:
            line = self.by_hash[hash_]
            if not line.leased and line.offsets[0] == offset:
                heappush(self._free, (offset, hash_))

    def offer_all(self) -> None:
        """Make every line without leased rows free; for a start."""
        self._free = sorted(
            (line.offsets[0], hash_) for hash_, line in self.by_hash.items() if not line.leased
        )

    def pop_free(self) -> tuple[int, int, Line] | None:
        """Return (head offset, hash, line) of the free line with the smallest head, or None.

        This removes the line from the free ones. The caller leases rows of it, puts it back with
        ``put_free``, or leaves it if its head waits for its due time: ``offer`` adds it again then.
        """
        while self._free:
            offset, hash_ = heappop(self._free)
            line = self.by_hash.get(hash_)
            if line is not None and not line.leased and line.offsets[0] == offset:
                return offset, hash_, line
        return None

    def put_free(self, offset: int, hash_: int) -> None:
        """Put back a line that ``pop_free`` returned."""
        heappush(self._free, (offset, hash_))
