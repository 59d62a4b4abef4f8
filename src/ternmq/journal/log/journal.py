"""The append side of the journal: records in the order of decisions, made durable in groups.

Theory of operation. ``append`` assigns a record's position and chain CRC and adds its bytes to the
group that waits in memory; ``flush`` writes the group to the file system (``written`` moves). Both
are in ``appender``; the rest is here. ``next_sync`` returns one job at a time that makes everything
written so far durable, and while it runs the next group gathers; ``synced`` moves ``durable``. So::

    first <= durable <= written <= end

A segment ends with a PAD record, or its last record ends exactly at the segment's end. The next
segment file is made beforehand (the spare) and begins with a SEGMENT record. Making spares is a job
too. Any failed write or sync ends the journal: what the disk holds is then unknown, and only
recovery at the next start can decide what to believe.

Called from one thread, the caller's loop. No clock (times are arguments), no threads, no waiting:
work that may block is returned as a job, and ``SyncThread`` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.appender import DEFAULT_TAIL_BYTES, Appender
from ternmq.journal.log.segment import (
    DEFAULT_SEGMENT_BYTES,
    EPOCH_BODY,
    EPOCH_FIRST,
    FLAG_CLEAN,
    FOLDER,
    MARK_BODY,
    SEGMENT_BODY,
    check_segment_size,
    segment_name,
)
from ternmq.journal.log.space import AllocateJob
from ternmq.model.errors import DiskError, JournalFailed, JournalFull
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.fact.header import Kind

__all__ = ["DEFAULT_TAIL_BYTES", "AllocateJob", "Journal", "SyncJob"]


@dataclass(slots=True, eq=False)
class SyncJob:
    """A job that makes all records below ``upto`` durable; ``run`` blocks, in any thread."""

    files: tuple[File, ...]
    upto: Position
    folder: Disk | None = None

    def run(self) -> None:
        """Sync the files, and the journal's folder if a segment was removed.

        Raises:
            DiskSyncError: Fatal for the journal; never run the job again.
        """
        for file in self.files:
            file.sync()
        if self.folder is not None:
            self.folder.sync_folder(FOLDER)


class Journal(Appender):
    """An open journal.

    ``recovery.open_journal`` opens an existing journal; ``create`` makes a new one.

    Attributes:
        first: Base of the oldest segment.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file, as chosen when the journal was made.
        first: Base of the oldest segment.
        end: End of the valid records; all below is durable.
        last_crc: CRC of the last valid record.
        epoch: Epoch of the reign that begins.
        spares: Number of segment files, ready for use, that follow the one that ``end`` is in.
        reserve_bytes: Free space that sends must leave; None is the default rule.
        tail_bytes: Bytes of the newest records that ``record`` keeps in memory.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        segment_size: int,
        first: Position,
        end: Position,
        last_crc: int,
        epoch: Epoch,
        spares: int,
        reserve_bytes: int | None = None,
        tail_bytes: int = DEFAULT_TAIL_BYTES,
    ) -> None:
        super().__init__(
            disk,
            segment_size=segment_size,
            end=end,
            last_crc=last_crc,
            epoch=epoch,
            spares=spares,
            reserve_bytes=reserve_bytes,
            tail_bytes=tail_bytes,
        )
        self.first = first
        self._sync: SyncJob | None = None
        # One more than is durable: the previous broker process may have been killed between a
        # removal and the sync of the folder. So the first sync here also syncs the folder.
        self._removed = 1
        self._removed_durable = 0
        self._removed_in_sync = 0
        self._marked_end = -1

    @classmethod
    def create(
        cls,
        disk: Disk,
        *,
        segment_size: int = DEFAULT_SEGMENT_BYTES,
        time_us: int = 0,
        reserve_bytes: int | None = None,
        tail_bytes: int = DEFAULT_TAIL_BYTES,
        epoch: Epoch = Epoch(1),
    ) -> Journal:
        """Make the first segment and a spare; SEGMENT and EPOCH are durable at return. Blocks.

        Raises:
            InvalidRequest: The segment size is not a positive multiple of 4096.
            NoSpace: There is no room for the first segment.
        """
        check_segment_size(segment_size)
        start = Position(0)
        disk.allocate(segment_name(start), segment_size)
        journal = cls(
            disk,
            segment_size=segment_size,
            first=start,
            end=start,
            last_crc=0,
            epoch=epoch,
            spares=0,
            reserve_bytes=reserve_bytes,
            tail_bytes=tail_bytes,
        )
        journal.append(
            Kind.SEGMENT,
            SEGMENT_BODY.pack(start, segment_size, NO_POSITION, NO_POSITION),
            time_us,
        )
        journal.append(Kind.EPOCH, EPOCH_BODY.pack(epoch, EPOCH_FIRST, start, start), time_us)
        journal.flush()
        journal.sync_now()
        journal.prepare_spare()
        return journal

    # ----------------------------------------------------------------------------- sync, durable

    def next_sync(self) -> SyncJob | None:
        """Return the job that makes everything written durable.

        Returns:
            None while a job is at work or when nothing was written since the last one.

        Raises:
            JournalFailed: The journal has ended.
        """
        if self.failure is not None:
            raise JournalFailed("the journal has failed") from self.failure
        if self._sync is not None or not self._dirty:
            return None
        folder = self._disk if self._removed != self._removed_durable else None
        self._removed_in_sync = self._removed
        self._sync = job = SyncJob(tuple(self._dirty.values()), self.written, folder)
        self._dirty = {}
        return job

    def synced(self, job: SyncJob) -> None:
        """Move ``durable`` after the job's ``run`` returned."""
        if job is not self._sync:
            return
        self._sync = None
        if self.failure is not None:
            return  # nothing is believed after a failure, not even a sync that succeeded
        if job.upto > self.durable:
            self.durable = job.upto
        if job.folder is not None:
            self._removed_durable = self._removed_in_sync
        for file in job.files:
            if file is not self._file and not self._is_to_be_written(file):
                file.close()

    def _is_to_be_written(self, file: File) -> bool:
        """Return whether records wait for their write or sync in a file."""
        return file.name in self._dirty or any(group.file is file for group in self._groups)

    def sync_now(self) -> None:
        """Run the job of ``next_sync`` here; blocks. For start and stop, never while serving."""
        job = self.next_sync()
        if job is None:
            return
        try:
            job.run()
        except DiskError as error:
            self.failed(error)
            raise JournalFailed("a sync failed") from error
        self.synced(job)

    def mark(self, time_us: int) -> Position | None:
        """Append a MARK if the journal is idle and no record states yet that all is durable.

        Returns:
            The MARK's position; None when none is needed or there is no room for it.
        """
        if self.durable != self.end or self._marked_end == self.end or self.failure is not None:
            return None
        try:
            position = self.append(Kind.MARK, MARK_BODY.pack(self.durable), time_us)
        except JournalFull:
            return None
        self._marked_end = self.end
        return position

    # -------------------------------------------------------------------------------------- space

    @property
    def reserve_bytes(self) -> int:
        """Free space that sends must leave for settles, STATE, MOVED and EPOCH."""
        return self._space.reserve_bytes

    def room(self, *, reserve: bool = False) -> int:
        """Return how many bytes may still be appended; zero or less is "disk full".

        Args:
            reserve: Count the reserve too: for settles, STATE, MOVED, EPOCH, never for sends.
        """
        space = self._space
        room = space.end - self.end - self._kept_bytes
        return room + space.reserve_bytes if reserve else room

    @property
    def spare_is_coming(self) -> bool:
        """Whether the next segment is being made, so that a full journal soon has room again."""
        return self._space.coming

    @property
    def reserve_lacks_bytes(self) -> int:
        """Bytes that must become free on the disk before the reserve is complete."""
        return self._space.lacking_bytes

    def wants_spare(self) -> AllocateJob | None:
        """Return the job that makes or zero-fills a spare.

        None while enough spares are ready, while such a job is at work or the disk is full, and
        after the journal has failed.
        """
        return None if self.failure is not None else self._space.wants()

    def spare_ready(self, job: AllocateJob) -> None:
        """Use the spare that the job made or filled: its ``run`` has returned."""
        self._space.done(job, made=True)

    def spare_failed(self, job: AllocateJob, error: Exception) -> None:
        """Record that the job failed: until ``retry_spare`` sends use only the existing segments.

        Any error counts as a full disk: the file is not in use yet, so nothing is lost with it.
        """
        del error  # the server logs it
        self._space.done(job, made=False)

    def retry_spare(self) -> None:
        """Check the free space again; the server calls this from its tick (about every second)."""
        self._space.retry()

    def prepare_spare(self) -> None:
        """Make one spare here if there is none; blocks. A full disk raises no error."""
        job = None if self._space.spares else self.wants_spare()
        if job is None:
            return
        try:
            job.run()
        except DiskError as error:
            self.spare_failed(job, error)
        else:
            self.spare_ready(job)

    def remove_first_segment(self) -> str:
        """Unlink the oldest segment; durable with the next sync.

        The folder is synced here, blocking, only if the removal before is not durable yet:
        otherwise a crash could keep the second removal and undo the first.

        Returns:
            The name of the file.

        Raises:
            JournalFull: Only the active segment is left.
            JournalFailed: The journal has ended, or ends here.
        """
        if self.failure is not None:
            raise JournalFailed("the journal has failed") from self.failure
        if self.first + self.segment_size > self.durable or self.first == self._base:
            raise JournalFull("only segments below the durable position may go")
        name = segment_name(self.first)
        self.sync_removals()
        try:
            self._disk.remove(name)
        except DiskError as error:
            self.failed(error)
            raise JournalFailed(f"removing {name} failed") from error
        self._removed += 1
        self.first = Position(self.first + self.segment_size)
        self._space.count()
        return name

    def sync_removals(self) -> None:
        """Make removals durable before anything that depends on them; blocks if they are not yet.

        Raises:
            JournalFailed: The journal has ended, or ends here.
        """
        if self._removed == self._removed_durable:
            return
        try:
            self._disk.sync_folder(FOLDER)
        except DiskError as error:
            self.failed(error)
            raise JournalFailed("syncing the journal's folder failed") from error
        self._removed_durable = self._removed

    # -------------------------------------------------------------------------------------- close

    def close(self, time_us: int | None = None) -> None:
        """Close the files.

        Args:
            time_us: Broker time, for a clean stop: all is flushed and synced, then a MARK with
                ``FLAG_CLEAN`` is written; blocks. No sync job may be at work. None writes nothing.

        Raises:
            JournalFailed: The clean stop failed; the files are closed.
        """
        try:
            if time_us is not None:
                self.flush()
                self.sync_now()
                try:
                    position = self.append(
                        Kind.MARK, MARK_BODY.pack(self.durable), time_us, FLAG_CLEAN
                    )
                    if position != self.durable:  # a new segment: PAD and SEGMENT not durable yet
                        self.flush()
                        self.sync_now()
                        self.append(Kind.MARK, MARK_BODY.pack(self.durable), time_us, FLAG_CLEAN)
                except JournalFull:
                    return  # all is durable; only the next start will not see a clean stop
                self.flush()
                self.sync_now()
        finally:
            for file in (*self._dirty.values(), self._file):
                file.close()
