"""How far a copy is behind: by what the primary said, and by what is applied here. No I/O."""

from __future__ import annotations

from collections import deque
from typing import Final

from ternmq.model.types import Position

MOST: Final = 4096
"""Most words of the primary that are remembered, the newest. Until what they are about is applied,
only the times of records say how far the copy is behind."""
APART_US: Final = 1_000
"""Shortest time between two of them: a busy primary says more."""


class Lag:
    """Remembers how far the journal was committed when. Broker times are those of the primary.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_as_of_us", "_words")

    def __init__(self) -> None:
        self._as_of_us = 0
        """Everything that was committed at this time is applied."""
        self._words: deque[tuple[Position, int]] = deque(maxlen=MOST)
        """Commit mark of the primary, and when it was that; both grow."""

    def heard(self, commit: Position, time_us: int) -> None:
        """Note that the journal was committed up to a position at a time."""
        words = self._words
        if not words or time_us >= words[-1][1] + APART_US:
            words.append((commit, time_us))

    def cut(self) -> None:
        """Forget everything: the copy is not what it was."""
        self._words.clear()
        self._as_of_us = 0

    def behind_us(self, applied: Position, applied_us: int, now_us: int) -> int:
        """Return since when something committed may be missing: everything older is applied.

        Args:
            applied: Position up to which records are applied.
            applied_us: Time of the newest record that is applied.
            now_us: Broker time.
        """
        words = self._words
        while words and words[0][0] <= applied:
            self._as_of_us = words.popleft()[1]
        return max(0, now_us - max(self._as_of_us, applied_us))
