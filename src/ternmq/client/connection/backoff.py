"""Pauses between tries of something that failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_DOUBLINGS: Final = 60
"""More than any pause needs; a number of tries has no bound."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failed try.

    Attributes:
        first: Seconds before the second try.
        longest: Upper bound of a pause in seconds.
    """

    first: float
    longest: float

    def pause(self, failed: int) -> float:
        """Return the seconds to wait after so many failed tries, 1 or more."""
        return min(self.first * 2.0 ** min(failed - 1, _DOUBLINGS), self.longest)

    def pauses(self) -> Iterator[float]:
        """Yield the pauses after the first failed try, the second, and so on without end."""
        failed = 0
        while True:
            failed += 1
            yield self.pause(failed)
