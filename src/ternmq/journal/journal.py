"""The append side of the journal: records in the order of decisions, made durable in groups.

Theory of operation. ``append`` gives a record its place and its links and puts its bytes into the
group that waits in memory; ``flush`` hands the group to the file system (``written`` moves);
``next_sync`` gives out one job at a time that makes everything written so far durable, and while
it runs the next group gathers; ``synced`` moves ``durable``. So::

    first <= durable <= written <= end

A segment ends with a PAD record, or exactly at its end; the next one was made beforehand (the
spare) and begins with a SEGMENT record. Making spares is a job too. Any failed write or sync ends
the journal: what the disk holds is then unknown, only recovery at the next start may judge it.

Called from one thread, the caller's loop. No clock (times are arguments), no threads, no waiting:
jobs carry what may wait, ``SyncThread`` runs them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from ternmq.journal.disk import Disk, File
from ternmq.journal.recent import RecentRecords
from ternmq.journal.segment import (
    DEFAULT_SEGMENT_BYTES,
    EPOCH_BODY,
    EPOCH_FIRST,
    FLAG_CLEAN,
    FOLDER,
    MARK_BODY,
    SEGMENT_BODY,
    SEGMENT_RECORD_BYTES,
    check_segment_size,
    segment_name,
)
from ternmq.journal.space import AllocateJob, Space
from ternmq.model.errors import (
    DiskError,
    JournalFailed,
    JournalFull,
    RecordTooLarge,
)
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.header import HEADER_BYTES, MAGIC, VERSION, Kind

__all__ = ["DEFAULT_TAIL_BYTES", "AllocateJob", "Journal", "SyncJob"]

DEFAULT_TAIL_BYTES: Final = 32 << 20

_CRC: Final = struct.Struct("<I")
_REST: Final = struct.Struct("<IIBBHQQqII")  # the header behind its CRC
_ZEROS: Final = tuple(bytes(count) for count in range(8))
_LAST_KINDS: Final = frozenset((int(Kind.EPOCH), int(Kind.MARK)))
_KEPT_BYTES: Final = 4096
"""Kept of the last segment for ``_LAST_KINDS``; a sixteenth of a segment smaller than 64 KiB."""
_JOIN_ABOVE_BYTES: Final = 16 << 10  # from here a second CRC call costs less than a second copy


@dataclass(slots=True, eq=False)
class SyncJob:
    """Makes everything up to ``upto`` durable; ``run`` blocks and may run in any thread."""

    files: tuple[File, ...]
    upto: Position
    folder: Disk | None = None

    def run(self) -> None:
        """Sync the files, and the folder where a segment was removed.

        Raises:
            DiskSyncError: Fatal for the journal; never run the job again.
        """
        for file in self.files:
            file.sync()
        if self.folder is not None:
            self.folder.sync_folder(FOLDER)


@dataclass(slots=True, eq=False)
class _Group:
    """Records that stand one after another in one file and wait for ``flush``."""

    file: File
    offset: int
    records: list[bytes]


class Journal:
    """An open journal. ``recovery.open_journal`` makes one; ``create`` makes the first.

    Attributes:
        epoch: Of the reign; in the header of every record appended.
        end: Where the next record will stand, if it fits this segment.
        written: Position up to which bytes were handed to the file system.
        durable: Position up to which bytes are on the disk.
        segment_size: Bytes of every segment file.
        first: Base of the oldest segment.
        max_body: Largest body, in bytes, that a record may have.
        failure: Why the journal refuses everything, None while it works.

    Args:
        disk: Where the journal lies.
        segment_size: As the journal was made.
        first: Base of the oldest segment.
        end: End of the valid records; all below is durable.
        last_crc: CRC of the last valid record.
        epoch: Of the reign that begins.
        spares: Count of segment files, ready for use, that follow the one that ``end`` is in.
        reserve_bytes: What sends must leave; None is the default rule.
        tail_bytes: How much of the newest records ``record`` keeps in memory.
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
        self.end = end
        self.written = end
        self.durable = end
        self.segment_size = segment_size
        self.first = first
        self.failure: Exception | None = None
        # After a record of the largest body a segment must still have room for a PAD header.
        self.max_body = segment_size - SEGMENT_RECORD_BYTES - 2 * HEADER_BYTES
        self._disk = disk
        self._last_crc = last_crc
        # At a segment's very end the segment before is still the active one: the next has no
        # SEGMENT record yet.
        self._base = end - end % segment_size
        if self._base == end and end > 0:
            self._base -= segment_size
        self._segment_end = self._base + segment_size
        self._kept_bytes = max(HEADER_BYTES, min(_KEPT_BYTES, segment_size // 16))
        self._soft_end = self._segment_end - self._kept_bytes
        self._file = disk.open(segment_name(self._base))
        self._records: list[bytes] = []
        self._groups = [_Group(self._file, end - self._base, self._records)]
        self._flushed = 0
        self._dirty: dict[str, File] = {}
        self._sync: SyncJob | None = None
        self._removed = 0
        self._removed_durable = 0
        self._removed_in_sync = 0
        self._recent = RecentRecords(tail_bytes)
        self._young = self._recent.young
        self._marked_end = -1
        self._newest_state = self._durable_state = (NO_POSITION, NO_POSITION)
        self._space = Space(disk, segment_size, self._segment_end, spares, reserve_bytes)

    @classmethod
    def create(
        cls,
        disk: Disk,
        *,
        segment_size: int = DEFAULT_SEGMENT_BYTES,
        time_us: int = 0,
        reserve_bytes: int | None = None,
        tail_bytes: int = DEFAULT_TAIL_BYTES,
    ) -> Journal:
        """Make the first segment and a spare; SEGMENT and EPOCH 1 are durable at return. Blocks.

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
            epoch=Epoch(1),
            spares=0,
            reserve_bytes=reserve_bytes,
            tail_bytes=tail_bytes,
        )
        journal.append(
            Kind.SEGMENT,
            SEGMENT_BODY.pack(start, segment_size, NO_POSITION, NO_POSITION),
            time_us,
        )
        journal.append(Kind.EPOCH, EPOCH_BODY.pack(1, EPOCH_FIRST, start, start), time_us)
        journal.flush()
        journal.sync_now()
        journal.prepare_spare()
        return journal

    # ------------------------------------------------------------------------------------ append

    def append(self, kind: int, body: bytes, time_us: int, flags: int = 0) -> Position:
        """Give a record its place and queue its bytes for ``flush``; about 1 us at 1 KiB.

        Args:
            kind: See ``record.header.Kind``.
            body: Without padding.
            time_us: Broker time.
            flags: Of the header.

        Returns:
            The record's position. What depends on the record waits until ``durable`` has reached
            ``last_record_end``.

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
        rest = _REST.pack(
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
            record = _CRC.pack(crc) + rest
        else:
            pad = _ZEROS[-size & 7]
            crc = crc32c_extend(crc32c_extend(crc32c(rest), body), pad)
            record = b"".join((_CRC.pack(crc), rest, body, pad))
        self._last_crc = crc
        self._records.append(record)
        self._young[position] = record
        self.end = end  # type: ignore[assignment]  # to call Position takes 60 ns
        return position

    @property
    def last_record_end(self) -> Position:
        """The end of the record last appended: what a reply that rests on it waits for."""
        return self.end

    @property
    def appended(self) -> int:
        """How many records were appended in this reign, the journal's own included."""
        return self._flushed + sum(len(group.records) for group in self._groups)

    @property
    def last_crc(self) -> int:
        """The CRC of the record last appended: what the next one chains to."""
        return self._last_crc

    def mark(self, time_us: int) -> Position | None:
        """Append a MARK if the journal is idle and nothing in it says yet that all is durable.

        Returns:
            Its position; None when there is nothing to say (or no room to say it).
        """
        if self.durable != self.end or self._marked_end == self.end or self.failure is not None:
            return None
        try:
            position = self.append(Kind.MARK, MARK_BODY.pack(self.durable), time_us)
        except JournalFull:
            return None
        self._marked_end = self.end
        return position

    def set_newest_state(self, begin: Position, end: Position) -> None:
        """Name the newest complete STATE set for the next SEGMENT records.

        Args:
            begin: Position of its BEGIN record.
            end: Position of its END record. A SEGMENT record names the set only when this is
                durable, and the set before until then.
        """
        self._settle_state()
        self._newest_state = (begin, end)

    def _settle_state(self) -> tuple[Position, Position]:
        """Return the newest set whose END is durable."""
        if self._newest_state[1] < self.durable:
            self._durable_state = self._newest_state
        return self._durable_state

    def _place(self, length: int, time_us: int, kind: int) -> Position:
        """Find a place for a record near the segment's end: here if it fits, or in the next.

        While no segment follows, the last bytes are kept for EPOCH and MARK, so that a full disk
        never stands in the way of a start.
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
        self._groups.append(_Group(file, 0, self._records))
        self.end = Position(base)
        body = SEGMENT_BODY.pack(base, self.segment_size, *self._settle_state())
        self.append(Kind.SEGMENT, body, time_us)
        return self.end

    def _put_pad(self, position: int, length: int, time_us: int) -> None:
        """Fill the segment from ``position`` on; only the header is written and covered."""
        rest = _REST.pack(
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
        self._records.append(_CRC.pack(self._last_crc) + rest)

    # ------------------------------------------------------------------------ write, sync, durable

    def flush(self) -> None:
        """Hand everything appended to the file system: one write per segment touched.

        Raises:
            JournalFailed: The write failed; the journal has ended.
        """
        if self.written == self.end and self.failure is None:
            return
        if self.failure is not None:
            raise JournalFailed("the journal has failed") from self.failure
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
            self._flushed += len(records)
        self.written = self.end
        self._young = self._recent.young
        self._records = []
        self._groups = [_Group(self._file, self.end - self._base, self._records)]
        self._space.reached(self.end)

    def next_sync(self) -> SyncJob | None:
        """Return the job that makes everything written durable.

        Returns:
            None while a job is out or when nothing was written since the last one.

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
        """Take note that the job's ``run`` returned: ``durable`` moves."""
        if job is not self._sync:
            return
        self._sync = None
        if self.failure is not None:
            return  # nothing is believed after a failure, not even a sync that went well
        if job.upto > self.durable:
            self.durable = job.upto
        if job.folder is not None:
            self._removed_durable = self._removed_in_sync
        in_use = {group.file.name for group in self._groups} | self._dirty.keys()
        for file in job.files:
            if file.name not in in_use:
                file.close()

    def failed(self, error: Exception) -> None:
        """Take note of a failed write or sync: everything raises ``JournalFailed`` from now on."""
        if self.failure is None:
            self.failure = error
        self._soft_end = -1  # sends every append to the check in _place

    def sync_now(self) -> None:
        """Run ``next_sync`` here and now; blocks. For start and stop, never while serving."""
        job = self.next_sync()
        if job is None:
            return
        try:
            job.run()
        except DiskError as error:
            self.failed(error)
            raise JournalFailed("a sync failed") from error
        self.synced(job)

    # -------------------------------------------------------------------------------------- space

    @property
    def reserve_bytes(self) -> int:
        """What sends must leave for settles, STATE, MOVED and EPOCH."""
        return self._space.reserve_bytes

    def room(self, *, reserve: bool = False) -> int:
        """Return how many bytes may still be appended; zero or less is "disk full".

        Args:
            reserve: Count the reserve too: for settles, STATE, MOVED, EPOCH, never for sends.
        """
        space = self._space
        room = space.end - self.end - self._kept_bytes
        return room + space.reserve_bytes if reserve else room

    def wants_spare(self) -> AllocateJob | None:
        """Return the job that makes or fills a spare; None while all is ready or one is at work."""
        return None if self.failure is not None else self._space.wants()

    def spare_ready(self, job: AllocateJob) -> None:
        """Take note that the job's ``run`` returned."""
        self._space.done(job, made=True)

    def spare_failed(self, job: AllocateJob, error: Exception) -> None:
        """Take note that the job failed: sends live on what is there until ``retry_spare``.

        Any error counts as a full disk: the file is not in use yet, so nothing is lost with it.
        """
        del error  # the shell logs it
        self._space.done(job, made=False)

    def retry_spare(self) -> None:
        """Look at the free space again; the shell calls this from its tick (about every second)."""
        self._space.retry()

    def prepare_spare(self) -> None:
        """Make one spare here and now if there is none; blocks. A full disk is only noted."""
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

        The folder is synced here, blocking, only if the removal before is not durable yet: of two
        removals the second alone must never survive a crash.

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
        try:
            if self._removed != self._removed_durable:
                self._disk.sync_folder(FOLDER)
                self._removed_durable = self._removed
            self._disk.remove(name)
        except DiskError as error:
            self.failed(error)
            raise JournalFailed(f"removing {name} failed") from error
        self._removed += 1
        self.first = Position(self.first + self.segment_size)
        self._space.count()
        return name

    # --------------------------------------------------------------------------------------- tail

    def record(self, position: int) -> bytes | None:
        """Return the whole record at ``position``, header and padding too, if memory holds it."""
        return self._recent.get(position)

    def gather(self, positions: Sequence[int]) -> list[bytes] | None:
        """Return the whole records at ascending positions, None if memory lacks one of them."""
        return self._recent.gather(positions)

    # -------------------------------------------------------------------------------------- close

    def close(self, time_us: int | None = None) -> None:
        """Close the files.

        Args:
            time_us: Makes it a clean stop: all is flushed and synced, then a MARK that says so;
                blocks. No sync job may be out. None leaves the journal as it stands.

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
                    if position != self.durable:  # it opened a segment: PAD and SEGMENT are not yet
                        self.flush()
                        self.sync_now()
                        self.append(Kind.MARK, MARK_BODY.pack(self.durable), time_us, FLAG_CLEAN)
                except JournalFull:
                    return  # all is durable; the next start only cannot tell that it was clean
                self.flush()
                self.sync_now()
        finally:
            for file in (*self._dirty.values(), self._file):
                file.close()
