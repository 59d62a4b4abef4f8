"""Sums of record lengths: the bytes of all records before a batch of a run file.

The section SUMS has the sum for every block of BATCHES; the lengths in one block give the rest. So
the bytes of any stretch of batches are the difference of two sums, however long it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from ternmq.journal.index.idx_file import BATCHES_PER_BLOCK


class Sums:
    """The section SUMS of a run file.

    Args:
        starts: Bytes before each block of batches, then the bytes of all batches.
        block: Returns a block of BATCHES; may raise ``WouldBlock``.
    """

    __slots__ = ("_block", "_starts")

    def __init__(self, starts: memoryview, block: Callable[[int], bytes]) -> None:
        self._starts = starts
        self._block = block

    def before(self, index: int) -> int:
        """Return the bytes of the records of all batches before the one at ``index``."""
        block, rest = divmod(index, BATCHES_PER_BLOCK)
        before: int = self._starts[block]
        return before + sum(self._lengths(block)[:rest]) if rest else before

    def fitting(self, most: int) -> int:
        """Return how many batches, from the first of the file on, have at most ``most`` bytes."""
        block = bisect_right(self._starts, most) - 1
        lengths = accumulate(self._lengths(block), initial=self._starts[block])
        return block * BATCHES_PER_BLOCK + bisect_right(list(lengths), most) - 1

    def _lengths(self, block: int) -> list[int]:
        lengths: list[int] = memoryview(self._block(block)).cast("I")[3::4].tolist()
        return lengths
