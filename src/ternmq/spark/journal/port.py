"""The journal source's view of a journal: a broker's, or a folder with its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ternmq.record.page.frames import Frames
from ternmq.spark.journal.names import Names


@dataclass(slots=True, frozen=True)
class Bounds:
    """The positions that a journal keeps.

    Attributes:
        oldest: The oldest position.
        end: Everything below is durable; a record ends here.
        segment_bytes: A record begins at every multiple of this from ``oldest`` on; 0: not known.
        anywhere: Reading may begin at any byte; False: only where a record begins.
    """

    oldest: int
    end: int
    segment_bytes: int
    anywhere: bool = True


class JournalPort(Protocol):
    """Access to a journal. Calls block. Created where it is used, never sent to workers."""

    def bounds(self) -> Bounds:
        """Return the positions kept now."""

    def names(self, position: int) -> Names:
        """Return the names of the numbers in records from a position on."""

    def pages(self, start: int, stop: int) -> Iterator[Frames]:
        """Yield the records that begin in ``[start, stop)``, checked.

        Args:
            start: Any byte, if ``Bounds.anywhere``; else where a record begins.
            stop: Any byte; ``Bounds.end`` at most.

        Raises:
            JournalExpired: The journal begins after ``start``.
        """

    def close(self) -> None:
        """Close it; may be called again."""
