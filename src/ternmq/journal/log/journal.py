"""Appending to the journal: records in the order of decisions, made durable in groups.

Theory of operation. ``append`` assigns a record's position and chain CRC and adds its bytes to the
group that waits in memory; ``flush`` writes the group to the file system (``written`` moves).
``next_sync`` returns one job at a time that makes everything written so far durable, and while it
runs the next group gathers; ``synced`` moves ``durable``. So::

    first <= durable <= written <= end

A record that does not fit its segment goes to the next one, which begins with a SEGMENT record; a
PAD record fills the segment before it, unless the last record ends exactly at the segment's end.
The next segment file is made beforehand (the spare), which is a job too. Any failed write or sync
ends the journal: what the disk holds is then unknown, and only recovery at the next start can
decide what to believe.

Called from one thread, the caller's loop. No clock (times are arguments), no threads, no waiting:
work that may block is returned as a job, and ``SyncThread`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.recent import RecentRecords
from ternmq.journal.log.segment import (
    DEFAULT_SEGMENT_BYTES,
    FOLDER,
    SEGMENT_RECORD_BYTES,
    check_segment_size,
    segment_name,
)
from ternmq.journal.log.space import AllocateJob, Space
from ternmq.model.errors import DiskError, JournalFailed, JournalFull, RecordTooLarge
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.fact.control import EPOCH, EPOCH_FIRST, FLAG_CLEAN, MARK, SEGMENT
from ternmq.record.fact.header import CRC, HEADER_BYTES, MAGIC, REST, VERSION, Kind

__all__ = ["DEFAULT_TAIL_BYTES", "AllocateJob", "Journal", "SyncJob"]

DEFAULT_TAIL_BYTES: Final = 32 << 20

_ZEROS: Final = tuple(bytes(count) for count in range(8))
_LAST_KINDS: Final = frozenset((int(Kind.EPOCH), int(Kind.MARK)))
_KEPT_BYTES: Final = 4096
"""Bytes at the end of the last segment kept free for ``_LAST_KINDS``; in segments below 64 KiB a
sixteenth of the segment."""
_JOIN_ABOVE_BYTES: Final = 16 << 10  # from here a second CRC call costs less than a second copy


@dataclass(slots=True, eq=False)
class _Group:
    """Consecutive records of one file that wait for ``flush``; ``offset`` is the first one's.

    ``base`` is the position at which the file begins.
    """

    file: File
    base: int
    offset: int
    records: list[bytes]


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


class Journal:
    """An open journal.

    ``recovery.open_journal`` opens an existing journal; ``create`` makes a new one.

    Attributes:
        epoch: Epoch of this reign; in the header of every record appended.
        first: Base of the oldest segment.
        end: Position of the next record, if it fits this segment.
        written: Position up to which bytes were written to the file system.
        durable: Position up to which bytes are on the disk.
        committed: The commit mark. Everything that others see is below it: deliveries, reads,
            look-ups, answers. It is ``durable``, unless ``share_commits`` was called.
        segment_size: Bytes of every segment file.
        max_body: Largest body, in bytes, that a record may have.
        failure: Why the journal refuses everything, None while it works.
        sink: Called with the position and the bytes of each write, right after it and before the
            next sync: the records of one segment, whole, of a PAD only its header. For copies.

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
        self.epoch = epoch
        self.first = first
        self.end = end
        self.written = end
        self.durable = end
        self.committed = end
        self._alone = True
        self.segment_size = segment_size
        self.failure: Exception | None = None
        self.sink: Callable[[Position, bytes], None] | None = None
        # After a record of the largest body a segment must still have room for a PAD header.
        self.max_body = segment_size - SEGMENT_RECORD_BYTES - 2 * HEADER_BYTES
        self._disk = disk
        self._last_crc = last_crc
        # If ``end`` is exactly a segment's end, that segment is still the active one: the next has
        # no SEGMENT record yet.
        self._base = end - end % segment_size
        if self._base == end and end > 0:
            self._base -= segment_size
        self._segment_end = self._base + segment_size
        self._kept_bytes = max(HEADER_BYTES, min(_KEPT_BYTES, segment_size // 16))
        self._soft_end = self._segment_end - self._kept_bytes
        self._file = disk.open(segment_name(self._base))
        self._records: list[bytes] = []
        self._groups = [_Group(self._file, self._base, end - self._base, self._records)]
        self._flushed = 0
        self._dirty: dict[str, File] = {}
        self._recent = RecentRecords(tail_bytes)
        self._young = self._recent.young
        self._newest_state = self._durable_state = (NO_POSITION, NO_POSITION)
        self._space = Space(disk, segment_size, self._segment_end, spares, reserve_bytes)
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
            SEGMENT.pack(start, segment_size, NO_POSITION, NO_POSITION),
            time_us,
        )
        journal.append(Kind.EPOCH, EPOCH.pack(epoch, EPOCH_FIRST, start, start), time_us)
        journal.flush()
        journal.sync_now()
        journal.prepare_spare()
        return journal

    # ----------------------------------------------------------------------------- append, write

    def append(self, kind: int, body: bytes, time_us: int, flags: int = 0) -> Position:
        """Assign a record's position and queue its bytes for ``flush``; about 1 us at 1 KiB.

        Args:
            kind: A ``record.fact.header.Kind``.
            body: The body without padding.
            time_us: Broker time.
            flags: Flags of the header.

        Returns:
            The record's position. A reply that depends on the record is sent once ``durable`` has
            reached ``end`` as it is then.

        Raises:
            JournalFull: No segment is ready to take the record; nothing was appended.
            RecordTooLarge: The body is larger than ``max_body``.
            JournalFailed: The journal has ended.
        """
        size = len(body)
        length = (size + 55) & -8
        position = self.end
        end = position + length
        if end > self._soft_end:
            position = self._place(length, time_us, kind)
            end = position + length
        rest = REST.pack(
            MAGIC,
            length,
            VERSION,
            kind,
            flags,
            position,
            self.durable,
            time_us,
            self.epoch,
            self._last_crc,
        )
        if size <= _JOIN_ABOVE_BYTES:
            rest += body
            if size & 7:
                rest += _ZEROS[-size & 7]
            crc = crc32c(rest)
            record = CRC.pack(crc) + rest
        else:
            pad = _ZEROS[-size & 7]
            crc = crc32c_extend(crc32c_extend(crc32c(rest), body), pad)
            record = b"".join((CRC.pack(crc), rest, body, pad))
        self._last_crc = crc
        self._records.append(record)
        self._young[position] = record
        self.end = end  # type: ignore[assignment]  # to call Position takes 60 ns
        return position

    def _place(self, length: int, time_us: int, kind: int) -> Position:
        """Return the position of a record near the segment's end: here if it fits, or in the next.

        While no segment follows, the last bytes are kept for EPOCH and MARK, so that a full disk
        never prevents a start.
        """
        if self.failure is not None:
            raise JournalFailed("the journal has failed") from self.failure
        if length > self.max_body + HEADER_BYTES:
            raise RecordTooLarge(
                f"a record of {length} bytes in segments of {self.segment_size}; "
                f"bodies may have {self.max_body} bytes"
            )
        position = self.end
        left = self._segment_end - position - length
        if (left == 0 or left >= HEADER_BYTES) and (self._space.spares or kind in _LAST_KINDS):
            return position
        if not self._space.ready():
            raise JournalFull(f"no segment is ready to follow the one at {self._base}")
        base = self._segment_end
        try:
            file = self._disk.open(segment_name(base))
        except DiskError as error:
            self.failed(error)
            raise JournalFailed(f"the segment at {base} cannot be opened") from error
        left = base - position
        if left:
            self._put_pad(position, left, time_us)
        self._space.take()
        self._base = base
        self._segment_end = base + self.segment_size
        self._soft_end = self._segment_end - self._kept_bytes
        self._file = file
        self._records = []
        self._groups.append(_Group(file, base, 0, self._records))
        self.end = Position(base)
        body = SEGMENT.pack(base, self.segment_size, *self._settle_state())
        self.append(Kind.SEGMENT, body, time_us)
        return self.end

    def _put_pad(self, position: int, length: int, time_us: int) -> None:
        """Fill the segment from ``position`` with a PAD; only its header is written and checked."""
        rest = REST.pack(
            MAGIC,
            length,
            VERSION,
            Kind.PAD,
            0,
            position,
            self.durable,
            time_us,
            self.epoch,
            self._last_crc,
        )
        self._last_crc = crc32c(rest)
        self._records.append(CRC.pack(self._last_crc) + rest)

    def set_newest_state(self, begin: Position, end: Position) -> None:
        """Set the newest complete STATE set, which the next SEGMENT records name.

        Args:
            begin: Position of its BEGIN record.
            end: Position of its END record. Until that record is durable, SEGMENT records name the
                previous set.
        """
        self._settle_state()
        self._newest_state = (begin, end)

    def _settle_state(self) -> tuple[Position, Position]:
        """Return the newest set whose END is durable."""
        if self._newest_state[1] < self.durable:
            self._durable_state = self._newest_state
        return self._durable_state

    def flush(self) -> None:
        """Write everything appended to the file system: one write per segment touched.

        Raises:
            JournalFailed: The write failed; the journal has ended.
        """
        if self.failure is not None:
            raise JournalFailed("the journal has failed") from self.failure
        if self.written == self.end:
            return
        for group in self._groups:
            records = group.records
            if not records:
                continue
            data = b"".join(records)
            try:
                group.file.pwrite(data, group.offset)
            except DiskError as error:
                self.failed(error)
                raise JournalFailed(f"writing to {group.file.name} failed") from error
            self._dirty[group.file.name] = group.file
            self._recent.count(len(data))
            if self.sink is not None:
                self.sink(Position(group.base + group.offset), data)
            self._flushed += len(records)
        self.written = self.end
        self._young = self._recent.young
        self._records = []
        self._groups = [_Group(self._file, self._base, self.end - self._base, self._records)]
        self._space.reached(self.end)

    def failed(self, error: Exception) -> None:
        """End the journal after a failed write or sync: all calls now raise ``JournalFailed``."""
        if self.failure is None:
            self.failure = error
        self._soft_end = -1  # sends every append to the check in _place

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
            if self._alone:
                self.committed = job.upto
        if job.folder is not None:
            self._removed_durable = self._removed_in_sync
        for file in job.files:
            if file is not self._file and not self._is_to_be_written(file):
                file.close()

    def share_commits(self) -> None:
        """Let only ``commit`` move the commit mark, because other copies have a say in it.

        Nothing is committed until the first ``commit``, which must cover this reign's EPOCH: what
        the reign found in its file counts only when all copies hold that. Serve clients only then:
        messages that were delivered before, and are owed, are delivered without a look at the mark.
        """
        self._alone = False
        self.committed = Position(0)

    def commit(self, upto: Position) -> bool:
        """Move the commit mark, after ``share_commits``; it never falls.

        Args:
            upto: Position below which every copy that counts holds the bytes.

        Returns:
            Whether it moved.

        Raises:
            ValueError: The bytes are not on the disk here, or no other copy has a say.
        """
        if self._alone or upto > self.durable:
            raise ValueError(f"{upto} cannot be committed: {self.durable} is durable")
        if upto <= self.committed:
            return False
        self.committed = upto
        return True

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

    def mark(self, time_us: int, *, again: bool = False) -> Position | None:
        """Append a MARK if the journal is idle and no record states yet that all is durable.

        Args:
            time_us: Broker time.
            again: Also if a record states that already: the MARK is to state the time.

        Returns:
            The MARK's position; None when none is needed or there is no room for it.
        """
        if self.durable != self.end or self.failure is not None:
            return None
        if self._marked_end == self.end and not again:
            return None
        try:
            position = self.append(Kind.MARK, MARK.pack(self.durable), time_us)
        except JournalFull:
            return None
        self._marked_end = self.end
        return position

    # ------------------------------------------------------------------------------ what there is

    @property
    def base(self) -> Position:
        """Base of the active segment: the one that takes new records."""
        return Position(self._base)

    @property
    def appended(self) -> int:
        """Number of records appended in this reign, the journal's own included."""
        if len(self._groups) == 1:  # nearly always, and called in every turn
            return self._flushed + len(self._records)
        return self._flushed + sum([len(group.records) for group in self._groups])

    @property
    def last_crc(self) -> int:
        """CRC of the record last appended; the next record's header contains it."""
        return self._last_crc

    def record(self, position: int) -> bytes | None:
        """Return the whole record at ``position``, header and padding too, if memory holds it."""
        return self._recent.get(position)

    def gather(self, positions: Sequence[int]) -> list[bytes] | None:
        """Return the whole records at ascending positions, None if memory lacks one of them."""
        return self._recent.gather(positions)

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
        if self.first + self.segment_size > self.committed or self.first == self._base:
            raise JournalFull("only segments below the commit mark may go")
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
                    position = self.append(Kind.MARK, MARK.pack(self.durable), time_us, FLAG_CLEAN)
                    if position != self.durable:  # a new segment: PAD and SEGMENT not durable yet
                        self.flush()
                        self.sync_now()
                        self.append(Kind.MARK, MARK.pack(self.durable), time_us, FLAG_CLEAN)
                except JournalFull:
                    return  # all is durable; only the next start will not see a clean stop
                self.flush()
                self.sync_now()
        finally:
            for file in (*self._dirty.values(), self._file):
                file.close()
