"""Where the next segments come from, and how much may still be written.

Spares, segment files made ahead, cover the reserve; beyond them counts what the disk has free, as
long as making a spare did not fail. The journal asks here when a segment ends; the shell carries
the jobs. The free space is looked at when something changes, not at every send: in between, the
answer is a subtraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ternmq.journal.disk import Disk
from ternmq.journal.segment import SEGMENT_RECORD_BYTES, segment_name
from ternmq.model.types import Position

RESERVE_SEGMENTS: Final = 4
"""The reserve is never more than this many segments, whatever the volume's size."""


@dataclass(slots=True, eq=False)
class AllocateJob:
    """Makes the segment file after the last one; ``run`` blocks and may run in any thread."""

    disk: Disk
    base: Position
    size: int

    def run(self) -> None:
        """Allocate the file.

        Raises:
            NoSpace: The disk is full; hand it to ``Journal.spare_failed``.
        """
        self.disk.allocate(segment_name(self.base), self.size)


def default_reserve_bytes(disk: Disk, segment_size: int) -> int:
    """Return max(16 MiB, 4 % of the volume), at most four segments."""
    return min(max(16 << 20, disk.total_bytes() // 25), RESERVE_SEGMENTS * segment_size)


class Space:
    """The spares of a journal.

    Attributes:
        reserve_bytes: What sends must leave.
        spares: Segment files, ready for use, behind the active one.
        end: Position at which sends would meet the reserve; ``Journal.room`` counts from it.

    Args:
        disk: Where the journal lies.
        segment_size: As the journal was made.
        segment_end: End of the active segment.
        spares: How many there are.
        reserve_bytes: None is the default rule.
    """

    __slots__ = (
        "_allocating",
        "_disk",
        "_disk_full",
        "_segment_end",
        "_segment_size",
        "_wanted",
        "end",
        "reserve_bytes",
        "spares",
    )

    def __init__(
        self,
        disk: Disk,
        segment_size: int,
        segment_end: int,
        spares: int,
        reserve_bytes: int | None,
    ) -> None:
        self._disk = disk
        self._segment_size = segment_size
        self._segment_end = segment_end
        self.reserve_bytes = (
            default_reserve_bytes(disk, segment_size) if reserve_bytes is None else reserve_bytes
        )
        self.spares = spares
        self.end = 0
        self._wanted = max(1, -(-self.reserve_bytes // segment_size))
        self._allocating: AllocateJob | None = None
        self._disk_full = False
        self.count()

    def count(self) -> None:
        """Work out ``end`` anew."""
        ready = self.spares
        if not self._disk_full:
            ready += self._disk.free_bytes() // self._segment_size
        per_segment = self._segment_size - SEGMENT_RECORD_BYTES
        self.end = self._segment_end + ready * per_segment - self.reserve_bytes

    def take(self) -> None:
        """Take note that the first spare is the active segment now."""
        self.spares -= 1
        self._segment_end += self._segment_size
        self.count()

    def wants(self) -> AllocateJob | None:
        """Return the job that makes the next spare; None while enough are there or one is made."""
        if self.spares >= self._wanted or self._allocating is not None or self._disk_full:
            return None
        base = self._segment_end + self.spares * self._segment_size
        self._allocating = AllocateJob(self._disk, Position(base), self._segment_size)
        return self._allocating

    def done(self, job: AllocateJob, *, made: bool) -> None:
        """Take note of how the job ended."""
        if job is self._allocating:
            self._allocating = None
            if made:
                self.spares += 1
            else:
                self._disk_full = True
            self.count()

    def retry(self) -> None:
        """Look at the free space again; after a failure, try again once a segment would fit."""
        if self._disk_full and self._disk.free_bytes() >= self._segment_size:
            self._disk_full = False
        self.count()
