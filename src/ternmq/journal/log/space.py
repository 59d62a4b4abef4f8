"""The spare segments of a journal, and how much may still be written.

Spares, segment files made ahead, cover the reserve. Beyond them the free space of the disk counts,
as long as making a spare did not fail. The journal calls this when a segment ends; the server runs
the jobs. The free space is read when something changes, not at every send: in between, the answer
is a subtraction.

The *next* segment is filled with written zeros, so that syncs in it move data only. The spares
behind it are only allocated, which takes no time, and costs nearly nothing when a start searches
what lies behind the journal's end. When such a spare becomes the next one, a job writes zeros into
it; if the journal comes near before that is done, the job is stopped and the segment is used as it
is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.segment import DEFAULT_SEGMENT_BYTES, SEGMENT_RECORD_BYTES, segment_name
from ternmq.model.types import Position

SMALLEST_DEFAULT_BYTES: Final = 16 << 20
RESERVE_SEGMENTS: Final = 4
"""The default reserve is at most this many segments, whatever the volume's size."""


_ZEROS: Final = bytes(1 << 20)
_SYNC_EVERY_BYTES: Final = 4 << 20
"""Zeros are synced in steps of this: one sync of a whole segment would delay the journal's own
syncs, and a sync cannot be stopped."""
_NEAR: Final = 8
"""The journal is near a segment's end in the last 1/``_NEAR`` of the segment."""


@dataclass(slots=True, eq=False)
class AllocateJob:
    """Makes a segment file, or fills one with zeros; ``run`` blocks and may run in any thread.

    Attributes:
        disk: The data root.
        base: Base of the segment.
        size: Bytes of the file.
        written: Make the file with written zeros, as it is the next segment.
        made: The file exists; only write the zeros.
        stop: Set by the caller's thread: write no more zeros.
        started: Set by the job before it reads ``stop``: if this is unset after the caller set
            ``stop``, the job will write nothing.
    """

    disk: Disk
    base: Position
    size: int
    written: bool = True
    made: bool = False
    stop: bool = False
    started: bool = False

    def run(self) -> None:
        """Allocate the file, or fill it.

        Raises:
            NoSpace: The disk is full; pass it to ``Journal.spare_failed``.
            DiskError: Pass any other to it too; an existing file is still usable as it was.
        """
        if self.made:
            self._fill()
        else:
            self.disk.allocate(segment_name(self.base), self.size, written=self.written)

    def _fill(self) -> None:
        self.started = True
        file = self.disk.open(segment_name(self.base))
        try:
            for offset in range(0, self.size, len(_ZEROS)):
                if self.stop:
                    return
                end = min(offset + len(_ZEROS), self.size)
                file.pwrite(_ZEROS[: end - offset], offset)
                if end % _SYNC_EVERY_BYTES == 0 or end == self.size:
                    file.sync()
        finally:
            file.close()


def default_reserve_bytes(disk: Disk, segment_size: int) -> int:
    """Return max(16 MiB, 4 % of the volume), at most four segments."""
    return min(max(16 << 20, disk.total_bytes() // 25), RESERVE_SEGMENTS * segment_size)


def default_segment_bytes(disk: Disk, least: int = 0) -> int:
    """Return the size of a new journal's segments, from the size of its volume.

    1 % of the volume, but at most a twentieth of its free space, so that a new journal with its
    reserve takes 5 % of the volume and at most a quarter of the free space. Rounded down to a power
    of two from 16 to 256 MiB; at least ``least``.
    """
    wanted = min(disk.total_bytes() // 100, disk.free_bytes() // 20, DEFAULT_SEGMENT_BYTES)
    size = SMALLEST_DEFAULT_BYTES
    while 2 * size <= wanted or size < least:
        size *= 2
    return size


class Space:
    """The spares of a journal.

    Attributes:
        reserve_bytes: Free space that sends must leave.
        spares: Number of segment files, ready for use, behind the active one.
        end: Position at which sends would use the reserve; ``Journal.room`` counts from it.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        segment_end: End of the active segment.
        spares: Number of existing spares.
        reserve_bytes: None is the default rule.
        fills: The next segment is filled with zeros. Not for a copy: nobody waits for its syncs,
            and a promotion would wait until the zeros are written.
    """

    __slots__ = (
        "_allocating",
        "_disk",
        "_disk_full",
        "_fills",
        "_segment_end",
        "_near",
        "_scarce",
        "_segment_size",
        "_wanted",
        "_written",
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
        *,
        fills: bool = True,
    ) -> None:
        self._disk = disk
        self._fills = fills
        self._segment_size = segment_size
        self._segment_end = segment_end
        self.reserve_bytes = (
            default_reserve_bytes(disk, segment_size) if reserve_bytes is None else reserve_bytes
        )
        self.spares = spares
        self.end = 0
        self._wanted = max(1, -(-self.reserve_bytes // segment_size))
        self._allocating: AllocateJob | None = None
        # The next of the spares that exist at startup was usually filled before the last stop.
        self._written = spares > 0 or not fills
        self._disk_full = False
        self._scarce = False
        """The rest of a large reserve does not fit on the disk: no more of it is made."""
        self._near = segment_end - segment_size // _NEAR
        self.count()

    def count(self) -> None:
        """Recompute ``end``."""
        ready = self.spares
        if not self._disk_full:
            ready += self._disk.free_bytes() // self._segment_size
        per_segment = self._segment_size - SEGMENT_RECORD_BYTES
        self.end = self._segment_end + ready * per_segment - self.reserve_bytes

    def reached(self, end: int) -> None:
        """Called with the end of what was written, after each flush.

        Near the segment's end it stops writing zeros into the next one, so that that is ready in
        time.
        """
        if end > self._near and self._allocating is not None:
            self._allocating.stop = True

    @property
    def coming(self) -> bool:
        """Whether a spare is being made or filled, and the disk is not known to be full."""
        return self._allocating is not None and not self._disk_full

    @property
    def lacking_bytes(self) -> int:
        """Bytes that must become free on the disk before the reserve is complete."""
        missing = max(0, self._wanted - self.spares) * self._segment_size
        return max(0, missing - self._disk.free_bytes()) if missing else 0

    def ready(self) -> bool:
        """Return whether the next segment may be used now: not while zeros are written into it."""
        job = self._allocating
        if job is not None and job.base == self._segment_end:
            job.stop = True
            if job.started:
                return False
        return self.spares > 0

    @property
    def busy(self) -> bool:
        """Whether a job is at work, or was returned by ``wants`` and not yet ``done``."""
        return self._allocating is not None

    def made(self) -> None:
        """Count a spare that was allocated without a job, at ``spares`` segments behind the end."""
        if not self.spares:
            self._written = not self._fills
        self.spares += 1
        self.count()

    def take(self) -> None:
        """Make the first spare the active segment."""
        self.spares -= 1
        self._written = not self._fills
        self._scarce = False
        self._segment_end += self._segment_size
        self._near += self._segment_size
        self.count()

    def wants(self) -> AllocateJob | None:
        """Return the job that makes a spare or fills the next one; None while one is at work.

        None also when there are enough spares, and while the disk is full. Spares beyond
        ``RESERVE_SEGMENTS``, the most that a default reserve needs, are made only if the disk has
        room for all of them: else an incomplete reserve would fill the disk and be of no use to
        sends.
        """
        if self._allocating is not None:
            return None
        size = self._segment_size
        base = Position(self._segment_end + self.spares * size)
        if self.spares and not self._written:
            base = Position(self._segment_end)
            self._allocating = AllocateJob(self._disk, base, size, made=True)
        elif self.spares < self._wanted and not self._disk_full and not self._scarce:
            if self.spares >= RESERVE_SEGMENTS and self.lacking_bytes:
                self._scarce = True
                return None
            written = self._fills and not self.spares
            self._allocating = AllocateJob(self._disk, base, size, written=written)
        return self._allocating

    def done(self, job: AllocateJob, *, made: bool) -> None:
        """Record how the job ended."""
        if job is not self._allocating:
            return
        self._allocating = None
        if job.made:
            # Also after a failure: a second try is not worth it, syncs there are only slower.
            self._written = job.base == self._segment_end
            return
        if made:
            self.spares += 1
            if job.base == self._segment_end:
                self._written = job.written or not self._fills
        else:
            self._disk_full = True
        self.count()

    def retry(self) -> None:
        """Read the free space again; after a failure, try again once a segment would fit."""
        self._scarce = False
        if self._disk_full and self._disk.free_bytes() >= self._segment_size:
            self._disk_full = False
        self.count()
