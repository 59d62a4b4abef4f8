"""The order in which the pulls of a group try the levels of a topic, and the queues of a level.

A pull begins at the highest level. Each sixteenth pull begins at a lower one, so that none starves:
the lower levels take turns, and if the one whose turn it is has no rows, the lowest comes next,
then the one above it. Within a level, the queues take turns. Only pulls that get rows count. All of
this is volatile: after a restart of the broker, the pulls are counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

LOWER_EACH: Final = 16
"""Of so many pulls, one begins at a lower level."""


class LevelTurns:
    """The turns of a group's pulls on a topic with levels.

    Args:
        levels: Number of levels, 2 or more.

    Attributes:
        pulls: Number of pulls that got rows.
    """

    __slots__ = ("_from_top", "_lower", "_passed", "_turns", "pulls")

    def __init__(self, levels: int) -> None:
        self._from_top: Sequence[int] = range(levels - 1, -1, -1)
        self._lower = 0
        """The level at which the next pull begins that does not begin at the top."""
        self._turns = [0] * levels
        """For each level, the index of the queue that the next pull tries first."""
        self._passed = -1
        """The queue that the next pull tries last, since its rows could not be read; -1: none."""
        self.pulls = 0

    @property
    def from_top(self) -> bool:
        """Whether the next pull begins at the highest level."""
        return self.pulls % LOWER_EACH != LOWER_EACH - 1

    def queues(self, count: int) -> Iterator[int]:
        """Yield the numbers of the queues in the order in which the next pull tries them.

        Args:
            count: Number of queues of all levels.
        """
        levels = len(self._turns)
        indexes = count // levels
        passed = self._passed
        for level in self._order():
            turn = self._turns[level]
            for step in range(indexes):
                number = (turn + step) % indexes * levels + level
                if number != passed:
                    yield number
        if passed >= 0:
            yield passed

    def _order(self) -> Sequence[int]:
        if self.from_top:
            return self._from_top
        others = [level for level in reversed(self._from_top) if level != self._lower]
        return [self._lower, *others]

    def passed(self, number: int) -> None:
        """Note that rows of a queue cannot be read: until a pull gets rows, it is tried last."""
        self._passed = number

    def took(self, number: int) -> None:
        """Count a pull that got rows of a queue."""
        self._passed = -1
        levels = len(self._turns)
        if not self.from_top:
            self._lower = (self._lower + 1) % (levels - 1)
        self._turns[number % levels] = number // levels + 1
        self.pulls += 1
