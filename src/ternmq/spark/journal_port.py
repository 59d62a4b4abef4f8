"""What the journal source asks of whoever has a journal: a broker, or a folder with its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ternmq.record.frames import Frames
from ternmq.spark.journal_names import Names


@dataclass(slots=True, frozen=True)
class Bounds:
    """What a journal keeps.

    Attributes:
        oldest: The oldest position that is kept.
        end: Up to here everything is durable; a record ends here.
        segment_bytes: A record begins at every multiple of this from ``oldest`` on; 0: not known.
    """

    oldest: int
    end: int
    segment_bytes: int


class JournalPort(Protocol):
    """Calls block; made where it is used, it never travels."""

    def bounds(self) -> Bounds:
        """Return what is there now."""

    def names(self, position: int) -> Names:
        """Return what the numbers in records from a position on stand for."""

    def pages(self, start: int, stop: int) -> Iterator[Frames]:
        """Yield the records of ``[start, stop)``, checked; a record begins at either.

        Raises:
            JournalExpired: The journal begins behind ``start``.
        """

    def close(self) -> None:
        """End it; may be called again."""
