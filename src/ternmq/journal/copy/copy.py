"""A copy of another broker's journal that is open and grows.

Theory of operation. ``write`` puts the bytes of the other journal where they belong (``end``
moves). ``next_sync`` returns one job at a time, which syncs what was written and then says so in
COPY; ``synced`` moves ``durable``. So::

    first <= durable <= end

The caller has checked the records: that each is valid, and follows the one before it. What the two
journals have in common is found with ``checkpoints`` and ``record``; what the other journal does
not have is removed by ``cut``.

Called from one thread. No clock, no threads: work that may block is returned as a job, except where
a method says that it blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from ternmq.journal.copy.files import CopyFiles, Pieces, remove_segments
from ternmq.journal.copy.known import KnownRecords
from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.copy_file import CopyFile, CopyNote, read_note
from ternmq.journal.log.scan import RawRecord, Scanner, record_at
from ternmq.journal.log.segment import (
    FOLDER,
    check_segment_size,
    segment_name,
)
from ternmq.journal.log.space import AllocateJob
from ternmq.journal.recovery.cutting import cut_note
from ternmq.journal.recovery.ending import Ending, find_end
from ternmq.journal.recovery.recovery import mend
from ternmq.model.errors import CorruptJournal, DiskError, JournalFailed
from ternmq.model.types import NO_POSITION, Epoch, Position


class CommittedCut(ValueError):
    """A cut would remove what this copy was told to be committed: an answer would be taken back."""


@dataclass(slots=True, eq=False)
class CopySyncJob:
    """A job that makes the copy durable up to ``note.synced``; ``run`` blocks, in any thread.

    Attributes:
        files: Segment files that were written to.
        folder: The data root, if a segment was removed.
        copy_file: The file COPY.
        note: What COPY says when all of that is synced.
    """

    files: tuple[File, ...]
    folder: Disk | None
    copy_file: CopyFile
    note: CopyNote

    def run(self) -> None:
        """Sync the files, and the journal's folder if a segment was removed; then write COPY.

        Raises:
            DiskError: Fatal for the copy; never run the job again.
        """
        for file in self.files:
            file.sync()
        if self.folder is not None:
            self.folder.sync_folder(FOLDER)
        self.copy_file.write(self.note)  # never before the bytes: it says that they are durable


class Copy:
    """An open copy of a journal. ``open`` opens the one in a folder, ``make`` begins one.

    Attributes:
        segment_size: Bytes of every segment file.
        first: Base of the oldest segment.
        end: Position up to which bytes were written to the file system.
        durable: Position up to which bytes are on the disk, and COPY says so.
        last: The last record; None while there is none.
        committed: The largest commit mark that this broker was told.
        told: The largest epoch that this broker followed, or was told of.
        promise_ms: The longest promise not to stand for primary that the next sync is to state.
        stated: What COPY says, as far as that is known to be durable.
        failure: Why the copy refuses everything, None while it works.
    """

    _files: CopyFiles

    def __init__(
        self, disk: Disk, copy_file: CopyFile, segment_size: int, reserve_bytes: int | None
    ) -> None:
        """Use ``open`` or ``make``."""
        self.segment_size = segment_size
        self.first = self.end = Position(0)
        self.last: Checkpoint | None = None
        self.stated = copy_file.note
        self.committed = self.stated.committed
        self.told = self.stated.told
        self.promise_ms = self.stated.promise_ms
        self.failure: Exception | None = None
        self._disk = disk
        self._copy_file = copy_file
        self._reserve_bytes = reserve_bytes
        self._known = KnownRecords(disk, segment_size, ())
        self._sync: CopySyncJob | None = None

    @classmethod
    def open(
        cls, disk: Disk, *, hint: Position | None = None, reserve_bytes: int | None = None
    ) -> Copy | None:
        """Open the copy in a folder, or turn the folder's journal into a copy. Blocks.

        A cut that was interrupted is finished, and an unsynced tail removed. All that is left is
        durable at return, and COPY says so.

        Args:
            disk: The data root; the caller holds its lock.
            hint: BEGIN of a STATE set that an index file names.
            reserve_bytes: Bytes of the spare segments; None is the default rule of ``Space``.

        Returns:
            None if the folder has no records: ``make`` begins a copy there.

        Raises:
            CorruptJournal: Bytes that were durable are damaged; nothing was changed.
            UnknownRecordKind: A newer version wrote the folder; nothing was changed.
            DiskError: The disk failed; open the copy again.
        """
        ending = find_end(disk, hint)
        if ending is None:
            return None
        spares = mend(disk, ending)
        copy_file = CopyFile.open(disk)
        end = ending.valid_end
        if copy_file is None:
            note = CopyNote(synced=end, committed=Position(0), told=ending.epoch)
            copy_file = CopyFile.make(disk, note)
        else:
            copy_file.write(replace(copy_file.note, synced=end, cut_to=None))
        copy = cls(disk, copy_file, ending.segment_size, reserve_bytes)
        copy._begin(ending, spares)
        return copy

    @classmethod
    def make(
        cls,
        disk: Disk,
        *,
        first: Position,
        segment_size: int,
        told: Epoch,
        reserve_bytes: int | None = None,
    ) -> Copy:
        """Begin a copy in a folder for which ``open`` returned None. Blocks.

        Args:
            disk: The data root; the caller holds its lock.
            first: Base of the segment that the first bytes are for.
            segment_size: Bytes of every segment file of the other journal.
            told: The epoch that the broker follows.
            reserve_bytes: See ``open``.

        Raises:
            ValueError: The folder has records, or no segment begins at ``first``.
            InvalidRequest: The segment size is not a positive multiple of 4096.
            NoSpace: There is no room for the first segment.
            DiskError: The disk failed; begin again.
        """
        check_segment_size(segment_size)
        if first % segment_size:
            raise ValueError(f"no segment begins at {first}")
        if find_end(disk) is not None:
            raise ValueError("the folder has a journal already")
        old = read_note(disk)
        note = CopyNote(
            synced=Position(0),
            committed=Position(0) if old is None else old.committed,
            told=told if old is None else Epoch(max(old.told, told)),
            promise_ms=0 if old is None else old.promise_ms,
        )
        copy_file = CopyFile.make(disk, note)
        remove_segments(disk)
        disk.allocate(segment_name(first), segment_size, written=False)
        copy = cls(disk, copy_file, segment_size, reserve_bytes)
        copy.first = copy.end = first
        copy._use(first, spares=0)
        return copy

    def _begin(self, ending: Ending, spares: int) -> None:
        """Go on from what the walk to the end found."""
        self.first, self.end, self.last = ending.first, ending.valid_end, ending.last
        self._known = KnownRecords(self._disk, self.segment_size, ending.epochs)
        self.stated = self._copy_file.note
        self.committed = self.stated.committed
        self.promise_ms = self.stated.promise_ms
        # If the end is exactly a segment's end, that segment is still the one in use.
        self._use(Position((self.end - 1) // self.segment_size * self.segment_size), spares)

    def _use(self, base: Position, spares: int) -> None:
        """Make a segment the one that is written to."""
        self._files = CopyFiles(
            self._disk,
            segment_size=self.segment_size,
            base=base,
            spares=spares,
            reserve_bytes=self._reserve_bytes,
        )

    # ------------------------------------------------------------------------------ what there is

    @property
    def durable(self) -> Position:
        """Position up to which bytes are on the disk, and COPY says so."""
        return max(self.first, self.stated.synced)

    @property
    def last_crc(self) -> int | None:
        """CRC of the last record; if there is none, 0 at the journal's beginning, else None."""
        if self.last is not None:
            return self.last.crc
        return None if self.first else 0

    @property
    def last_epoch(self) -> Epoch:
        """Epoch of the last record; 0 if there is none."""
        return Epoch(0) if self.last is None else self.last.epoch

    def record(self, position: Position) -> RawRecord | None:
        """Return the record of the copy at a position, None if none that is valid begins there.

        Reads all of the record, and may wait for the disk.

        Raises:
            DiskError: The disk could not read.
        """
        if not self.first <= position < self.end:
            return None
        return record_at(self._disk, position, self.segment_size)

    def checkpoints(self, most: int = 100, *, promised: Position | None = None) -> list[Checkpoint]:
        """Return records that show what the copy has, newest first.

        The last record; the first record of each epoch, as far as the start or ``write`` met it;
        the first record of each segment. If there are too many, the older ones are left out, but
        not the oldest, and not the newest one below the commit mark: that one, every primary has.
        Reads a record of each segment, and may wait for the disk.

        Args:
            most: Number of checkpoints, at least 3.
            promised: What counts as the commit mark here; None: the one that was told.

        Raises:
            DiskError: The disk could not read.
        """
        if self.last is None:
            return []
        shared = self.committed if promised is None else promised
        return self._known.newest(self.first, self.last, most, shared)

    # -------------------------------------------------------------------------------------- write

    def write(self, pieces: Pieces, *, end: Position, last: Checkpoint) -> None:
        """Write records that follow the end of the copy; volatile until the next sync.

        If the next segment has no file yet, one is allocated here, which may block for a moment.

        Args:
            pieces: See ``files.Pieces``.
            end: Position behind the last record.
            last: The last record.

        Raises:
            JournalFull: The disk has no room for another segment, or the next one is not ready yet
                (``spare_is_coming``). Nothing was written: the same call may pass later.
            JournalFailed: The write failed; the copy has ended.
            ValueError: The bytes do not follow the end of the copy.
        """
        self._check()
        turns = self._files.turns(pieces, self.end, end)
        try:
            self._files.make_room(turns)
            self._files.write(pieces)
        except DiskError as error:
            self._fail(error, "writing to the copy failed")
        if last.epoch != self.last_epoch:
            self._known.written(pieces, self.last_epoch)
        self.end, self.last = end, last
        self._files.space.reached(end)

    def _check(self) -> None:
        if self.failure is not None:
            raise JournalFailed("the copy of the journal has failed") from self.failure

    def _fail(self, error: Exception, text: str) -> NoReturn:
        self.failed(error)
        raise JournalFailed(text) from error

    def failed(self, error: Exception) -> None:
        """End the copy after a failed write or sync: all calls now raise ``JournalFailed``."""
        if self.failure is None:
            self.failure = error

    # -------------------------------------------------------------------------------- sync, COPY

    def tell(
        self,
        *,
        committed: Position = Position(0),
        told: Epoch = Epoch(0),
        promise_ms: int | None = None,
    ) -> None:
        """Note what the primary says, for COPY: the next sync writes it; the first two never fall.

        Args:
            committed: A commit mark. Call only when the copy is known to be the beginning of the
                journal that it belongs to: never again is anything below it cut.
            told: An epoch. Where it must be durable before something is answered, wait until
                ``stated`` has it.
            promise_ms: The longest promise that this broker may have given. Before a longer one is
                given, wait until ``stored_promise_ms`` has it. None: as before.
        """
        self.committed = max(self.committed, committed)
        self.told = max(self.told, told)
        if promise_ms is not None:
            self.promise_ms = promise_ms

    @property
    def stored_promise_ms(self) -> int:
        """The longest promise that COPY states for sure, also if a sync of it is at work."""
        stated = self.stated.promise_ms
        return stated if self._sync is None else min(stated, self._sync.note.promise_ms)

    def next_sync(self) -> CopySyncJob | None:
        """Return the job that makes everything written and noted durable.

        Returns:
            None while a job is at work, or when COPY says all that there is to say.

        Raises:
            JournalFailed: The copy has ended.
        """
        self._check()
        if self._sync is not None:
            return None
        synced = self.stated.synced if self.last is None else self.end
        note = CopyNote(synced, self.committed, self.told, promise_ms=self.promise_ms)
        if note == self.stated and not self._files.is_dirty:
            return None
        self._sync = job = CopySyncJob(*self._files.begin_sync(), self._copy_file, note)
        return job

    def synced(self, job: CopySyncJob) -> None:
        """Move ``durable`` and ``stated`` after the job's ``run`` returned."""
        if job is not self._sync:
            return
        self._sync = None
        if self.failure is not None:
            return  # nothing is believed after a failure, not even a sync that succeeded
        self.stated = job.note
        self._files.end_sync()

    def sync_all(self) -> None:
        """Make everything written durable, and have COPY say so; blocks.

        Raises:
            JournalFailed: The copy has ended, or ends here.
            ValueError: A sync job is at work.
        """
        self._check()
        if self._sync is not None:
            raise ValueError("a sync job is at work")
        job = self.next_sync()
        if job is None:
            return
        try:
            job.run()
        except DiskError as error:
            self._fail(error, "a sync failed")
        self.synced(job)

    # ---------------------------------------------------------------------------- cut and removal

    def cut(self, at: Position, *, accept_loss: bool = False) -> None:
        """Remove all records from a position on; blocks. Durable at return.

        What is cut is kept under ``repair/``, as far as there is room. A crash on the way leaves a
        copy that ends at ``at``. Caches of the journal's bytes that the caller has are stale.

        Args:
            at: Position of a record above the first segment's beginning, or the end.
            accept_loss: Cut below the commit mark, too: an operator accepted that messages are
                lost.

        Raises:
            CommittedCut: It is below the commit mark; nothing was changed.
            ValueError: No record begins there, or a job is at work; nothing was changed.
            JournalFailed: The copy has ended, or ends here.
        """
        self._check()
        if self._sync is not None or self._files.space.busy:
            raise ValueError("a job is at work")
        if not self.first < at <= self.end:
            raise ValueError(f"the copy has records from {self.first} to {self.end}, not {at}")
        if at < self.committed and not accept_loss:
            raise CommittedCut(f"a cut at {at}, and {self.committed} is committed")
        if not self._ends_at(at):
            raise ValueError(f"no record ends at {at}")
        self.sync_all()  # so that all below the cut is on the disk when COPY says that it is
        if at == self.end:
            return
        try:
            self._copy_file.write(cut_note(self.stated, at))
            self._files.close()
            ending = _ending_at(self._disk, at)
            spares = mend(self._disk, ending)
            self._copy_file.write(replace(self._copy_file.note, cut_to=None))
            self._begin(ending, spares)
        except (DiskError, CorruptJournal) as error:
            self._fail(error, f"cutting the copy at {at} failed")

    def _ends_at(self, position: Position) -> bool:
        """Return whether a record ends at a position; reads the segment up to there."""
        base = (position - 1) // self.segment_size * self.segment_size
        scanner = Scanner(
            self._disk, base, segment_size=self.segment_size, stop=position, only=frozenset()
        )
        list(scanner)  # empty: no kind is asked for
        return scanner.position == position

    def leads_to(self, first: Position, matched: Position) -> bool:
        """Return whether a stream of the other journal can go on from this copy.

        If it cannot, nothing of the copy is known to be a part of that journal: ``discard`` it, and
        begin anew. A stream that begins at a segment which both have, but differently, must never
        be written behind what is here: its first record would follow a record of another history.

        Args:
            first: Where the other journal begins.
            matched: Position of a record that both have; ``NO_POSITION``: none was found.
        """
        if self.last is None:
            return self.first == first
        return matched != NO_POSITION

    def discard(self, first: Position, *, promised: Position | None = None) -> None:
        """Remove all records and close the copy; ``make`` begins a new one then. Blocks.

        A crash on the way leaves a copy of which nothing counts as durable, or a folder for
        ``make``.

        Args:
            first: Where the other journal begins, which has nothing of this one.
            promised: What an operator has left of the commit mark: the loss of what follows was
                accepted, and it is kept under ``repair/`` as at a cut. None: the mark that was
                told.

        Raises:
            ValueError: More than that is known to be committed here, so the other journal must
                have it; or a job is at work. Nothing was changed.
            JournalFailed: The copy has ended, or ends here.
        """
        self._check()
        if self._sync is not None or self._files.space.busy:
            raise ValueError("a job is at work")
        committed = self.committed if promised is None else min(promised, self.committed)
        # What is promised may have been removed here, before everything that was given up.
        given_up = committed < self.committed and committed <= self.first
        # A copy that was damaged ends below its mark: the other journal need not have that from it.
        if min(committed, self.end) > first and not given_up:
            raise ValueError(
                f"the other journal begins at {first} and has nothing of this copy, of which "
                f"{committed} is committed"
            )
        if committed < self.committed and (begun := self.record(self.first)) is not None:
            # It was answered, and no other journal has it: all but what every journal has is kept.
            self.cut(min(max(committed, begun.end), self.end), accept_loss=True)
        try:
            promise_ms = max(self.promise_ms, self.stated.promise_ms)
            self._copy_file.write(
                CopyNote(Position(0), committed, self.told, promise_ms=promise_ms)
            )
            self.close()
            remove_segments(self._disk)
        except DiskError as error:
            self._fail(error, "removing the copy failed")

    def remove_below(self, first: Position, *, needs: Position) -> list[str]:
        """Unlink the segments below one, the oldest first; durable with the next sync.

        The folder is synced here, blocking, between two removals: otherwise a crash could keep the
        second and undo the first.

        Args:
            first: Base of a segment.
            needs: Position up to which the primary's journal was durable when it had removed these
                segments: the state that takes their place is below it.

        Returns:
            The names of the files.

        Raises:
            ValueError: The copy is not durable up to ``needs``, or would have no records left.
            JournalFailed: The copy has ended, or ends here.
        """
        self._check()
        if first % self.segment_size or not first < needs <= self.durable:
            raise ValueError(f"segments below {first} cannot go: {self.durable} is durable")
        if first > self._files.base:
            raise ValueError(f"segments below {first} cannot go: the copy ends at {self.end}")
        names: list[str] = []
        try:
            while self.first < first:
                names.append(self._files.remove(self.first))
                self.first = Position(self.first + self.segment_size)
        except DiskError as error:
            self._fail(error, f"removing the segment at {self.first} failed")
        self._known.removed_below(first)
        return names

    # -------------------------------------------------------------------------------------- space

    @property
    def spare_is_coming(self) -> bool:
        """Whether a segment is being made or filled, so that a full copy soon has room again."""
        return self._files.space.coming

    def wants_spare(self) -> AllocateJob | None:
        """Return the job that makes or fills a spare segment; as ``Journal.wants_spare``."""
        return None if self.failure is not None else self._files.space.wants()

    def spare_ready(self, job: AllocateJob) -> None:
        """Use the spare that the job made or filled: its ``run`` has returned."""
        self._files.space.done(job, made=True)

    def spare_failed(self, job: AllocateJob, error: Exception) -> None:
        """Record that the job failed. Any error counts as a full disk; the caller logs it."""
        del error
        self._files.space.done(job, made=False)

    def retry_spare(self) -> None:
        """Check the free space again; called about every second."""
        self._files.space.retry()

    # -------------------------------------------------------------------------------------- close

    def ending(self) -> Ending:
        """Return where the copy ends, for a reign that begins with it: it need not be searched for.

        What only a reader of the records knows (times, STATE sets) is left empty.

        Raises:
            ValueError: Not all of the copy is durable, or a job is at work.
            JournalFailed: The copy has ended.
        """
        self._check()
        if self._sync is not None or self._files.space.busy or self.durable < self.end:
            raise ValueError(f"{self.durable} of {self.end} is durable, or a job is at work")
        return Ending(
            first=self.first,
            segment_size=self.segment_size,
            start=self.first,
            valid_end=self.end,
            durable=self.end,
            epoch=max(self.last_epoch, self.told),
            last=self.last,
            epochs=(),
            last_time_us=0,
            clean=False,
            record_count=0,
            sets=(),
            fault="",
            dirt=(),
            copy=self.stated,
        )

    def close(self) -> None:
        """Close the files; nothing is written or synced. No sync job may be at work."""
        self._files.close()
        self._copy_file.close()


def _ending_at(disk: Disk, cut: Position) -> Ending:
    """Return where a copy ends that COPY says to be cut at a position."""
    ending = find_end(disk)
    if ending is None or ending.valid_end != cut:
        raise CorruptJournal(f"the copy does not read back up to {cut}", file=FOLDER)
    return ending
