"""Who waits behind whom: the rows of an ordered group, by ordering key.

A line is the owed rows of one key, in order of offset. While any row of a line is leased, or its
head waits for its due time, nothing else of that key is handed out; other keys flow. Lines are
derived from the rows of the group queue and rebuilt at start.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush

from ternmq.broker.discarded import Discarded


class Line:
    """The owed rows of one key that are not dead."""

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
        """Leave everything to be freed; the object is not used any more."""
        discarded.put(self.by_hash, self.hash_of, self._free)

    def stand(self, offset: int, hash_: int) -> None:
        """Put an owed row into its line (no effect if it stands there)."""
        if offset in self.hash_of:
            return
        self.hash_of[offset] = hash_
        line = self.by_hash.get(hash_)
        if line is None:
            line = self.by_hash[hash_] = Line()
        insort(line.offsets, offset)

    def leave(self, offset: int) -> None:
        """Take a row out of its line: it is done, dead, or forgotten. It must not be leased."""
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
        """Note that a row of a line is in a consumer's hands."""
        self.by_hash[self.hash_of[offset]].leased += 1

    def give_back(self, offset: int) -> None:
        """Note that a row is no longer in a consumer's hands."""
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
        """Begin anew with every line that has nothing leased (after a start)."""
        self._free = sorted(
            (line.offsets[0], hash_) for hash_, line in self.by_hash.items() if not line.leased
        )

    def pop_free(self) -> tuple[int, int, Line] | None:
        """Return (head offset, hash, line) of the free line with the smallest head, or None.

        The entry is gone afterwards: the caller leases rows of it, puts it back with `put_free`, or
        knows that its head waits for a due time, which will `offer` it.
        """
        while self._free:
            offset, hash_ = heappop(self._free)
            line = self.by_hash.get(hash_)
            if line is not None and not line.leased and line.offsets[0] == offset:
                return offset, hash_, line
        return None

    def put_free(self, offset: int, hash_: int) -> None:
        """Put back what `pop_free` gave."""
        heappush(self._free, (offset, hash_))

    def has_free(self) -> bool:
        """Return whether any line may be free (a stale entry says yes as well)."""
        return bool(self._free)
