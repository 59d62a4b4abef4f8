"""Sorted keys, for lists that continue after a key: names of topics and apps, numbers.

The keys are stored in blocks of some hundred. Adding a key, removing one and finding the next after
another take a few microseconds, however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from operator import itemgetter
from typing import Final, Generic, TypeVar

K = TypeVar("K", int, str)

BLOCK_KEYS: Final = 512
"""Most keys in a block; a block with more is divided."""
_last: Final = itemgetter(-1)


class SortedKeys(Generic[K]):
    """Distinct keys of one type, in ascending order.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_blocks", "_count")

    def __init__(self, keys: Iterable[K] = ()) -> None:
        self._count = 0
        self._blocks: list[list[K]] = []
        for key in keys:
            self.add(key)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        for block in self._blocks:
            yield from block

    def add(self, key: K) -> None:
        """Add a key; adding it again changes nothing."""
        blocks = self._blocks
        at = bisect_left(blocks, key, key=_last)
        if at == len(blocks):
            if not blocks:
                blocks.append([])
            at = len(blocks) - 1
        block = blocks[at]
        place = bisect_left(block, key)
        if place < len(block) and block[place] == key:
            return
        block.insert(place, key)
        self._count += 1
        if len(block) > BLOCK_KEYS:
            half = BLOCK_KEYS // 2
            blocks.insert(at + 1, block[half:])
            del block[half:]

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        blocks = self._blocks
        at = bisect_left(blocks, key, key=_last)
        if at == len(blocks):
            return
        block = blocks[at]
        place = bisect_left(block, key)
        if block[place] != key:
            return
        del block[place]
        self._count -= 1
        if not block:
            del blocks[at]

    def discard_all(self, keys: Collection[K]) -> None:
        """Remove keys, if they are there: faster than one by one if they are neighbours."""
        if not keys:
            return
        gone = set(keys)
        at = bisect_left(self._blocks, min(gone), key=_last)
        stop = bisect_right(self._blocks, max(gone), at, key=_last) + 1
        blocks = [[key for key in block if key not in gone] for block in self._blocks[at:stop]]
        self._count -= sum(map(len, self._blocks[at:stop])) - sum(map(len, blocks))
        self._blocks[at:stop] = [block for block in blocks if block]

    def behind(self, key: K) -> Iterator[K]:
        """Yield the keys above one, ascending. Not valid after a change."""
        at = bisect_right(self._blocks, key, key=_last)
        if at < len(self._blocks):
            block = self._blocks[at]
            yield from block[bisect_right(block, key) :]
            for block in self._blocks[at + 1 :]:
                yield from block

    def at_or_behind(self, key: K) -> Iterator[K]:
        """Yield the keys from one on, ascending. Not valid after a change."""
        at = bisect_left(self._blocks, key, key=_last)
        if at < len(self._blocks):
            block = self._blocks[at]
            yield from block[bisect_left(block, key) :]
            for block in self._blocks[at + 1 :]:
                yield from block
