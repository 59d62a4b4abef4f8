"""The index of a copy: the files of sealed segments are written while the copy grows.

A broker that is promoted needs the index. Without its files it would read the whole journal first,
which takes a second for some hundred megabytes. A file that describes records which were cut is not
believed at a start (``index.open``); it is removed here, so that it is written anew.
"""

from __future__ import annotations

from ternmq.journal.disk.port import Disk
from ternmq.journal.index.idx_file import FOLDER, run_name
from ternmq.journal.index.index import Index
from ternmq.journal.index.run_jobs import remove
from ternmq.model.types import Position


class IndexJob:
    """A job that writes the index file of a sealed segment; ``run`` blocks, in any thread.

    Args:
        disk: The data root.
        segment_size: Bytes of a segment.
        base: Of the segment; the next one has a record.
    """

    def __init__(self, disk: Disk, segment_size: int, base: Position) -> None:
        self.base = base
        self._disk = disk
        self._size = segment_size

    def run(self) -> None:
        """Read the segment, and write its file. Nothing is synced: the index is a cache.

        Raises:
            CorruptJournal: The segment does not read back.
            DiskError: The disk failed.
        """
        stop = Position(self.base + self._size)
        index = Index(self._disk, segment_size=self._size, start=self.base)
        index.coverage.put_tail(index.rebuild_tail(self.base, stop))
        for job in index.coverage.unsealed(Position(stop + 1)):
            job.run()


class CopyIndex:
    """Which segments of a copy have their index file. Not thread-safe; call it from the loop.

    Args:
        disk: The data root.
        segment_size: Bytes of a segment.
    """

    def __init__(self, disk: Disk, segment_size: int) -> None:
        self._disk = disk
        self._size = segment_size
        self._done = set(disk.names(FOLDER))
        self._next = Position(0)
        self._job: IndexJob | None = None

    @property
    def at_work(self) -> bool:
        """Whether a job is at work."""
        return self._job is not None

    def next_job(self, first: Position, end: Position) -> IndexJob | None:
        """Return the job for the oldest segment that lacks its file.

        Args:
            first: Base of the copy's oldest segment.
            end: End of the copy.

        Returns:
            None while a job is at work, and if no sealed segment lacks its file.
        """
        if self._job is not None:
            return None
        self._next = max(self._next, first)
        while self._next + self._size < end:
            base, self._next = self._next, Position(self._next + self._size)
            if _name(base) not in self._done:
                self._job = IndexJob(self._disk, self._size, base)
                return self._job
        return None

    def finished(self, job: IndexJob) -> None:
        """Note that a job has ended, also if it failed: a start then reads that segment itself."""
        self._done.add(_name(job.base))
        self._job = None

    def cut(self, end: Position) -> None:
        """Remove the files of segments that the copy does not have in full any more; blocks.

        No job may be at work.
        """
        base = end - end % self._size
        stale = [name for name in self._done if name[:20].isdecimal() and int(name[:20]) >= base]
        remove(self._disk, [f"{FOLDER}/{name}" for name in stale])
        self._done.difference_update(stale)
        self._next = Position(min(self._next, base))

    def removed(self, first: Position) -> None:
        """Remove the files of segments that were removed; blocks."""
        gone = [name for name in self._done if name[:20].isdecimal() and int(name[:20]) < first]
        remove(self._disk, [f"{FOLDER}/{name}" for name in gone])
        self._done.difference_update(gone)


def _name(base: int) -> str:
    return run_name(base).rpartition("/")[2]
