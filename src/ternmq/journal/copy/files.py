"""The segment files of a copy: writing at positions, the next files, removal of the oldest.

A write that goes on in the next segment uses a spare, made ahead by a job as for a journal. If
there is none, the file is allocated at once: the bytes are there, and who sent them waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.segment import FOLDER, segment_bases, segment_name
from ternmq.journal.log.space import Space
from ternmq.model.errors import JournalFull, NoSpace
from ternmq.model.types import Position

Pieces = Sequence[tuple[Position, bytes]]
"""Positions and bytes, in order. Each lies in one segment, and holds whole records; a PAD is the
last one, as its header."""


class CopyFiles:
    """The files that a copy writes to. Called from one thread.

    Attributes:
        space: The spares. Their jobs are those of the caller's.
        base: Base of the segment that is written to.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        base: Base of the segment that is written to; its file exists.
        spares: Number of segment files, ready for use, behind it.
        reserve_bytes: Bytes of the spares; None is the default rule of ``Space``.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        segment_size: int,
        base: Position,
        spares: int,
        reserve_bytes: int | None,
    ) -> None:
        self.base = base
        self.space = Space(
            disk, segment_size, base + segment_size, spares, reserve_bytes, fills=False
        )
        self._disk = disk
        self._size = segment_size
        self._file = disk.open(segment_name(base))
        self._dirty: dict[str, File] = {}
        self._syncing: tuple[File, ...] = ()
        # One more than is durable: the broker process before may have been killed between a removal
        # and the sync of the folder. So the first sync here also syncs the folder.
        self._removed = 1
        self._removed_durable = 0
        self._removed_in_sync = 0

    # -------------------------------------------------------------------------------------- write

    def turns(self, pieces: Pieces, start: Position, end: Position) -> int:
        """Return how many new segments are begun by pieces that go from ``start`` to ``end``.

        Raises:
            ValueError: They do not.
        """
        size = self._size
        expected = start
        base = self.base
        turns = 0
        for position, data in pieces:
            own = Position(position - position % size)
            stop = position + len(data)
            if position != expected or not data or stop > min(own + size, end):
                raise ValueError(f"bytes from {position} to {stop}, from {expected} to {end}")
            if own != base:
                base = own
                turns += 1
            expected = Position(own + size)  # where the next piece is to begin
        if not pieces or not expected - size < end <= expected:
            raise ValueError(f"{len(pieces)} pieces do not end at {end}")
        return turns

    def make_room(self, turns: int) -> None:
        """Have as many spares as the next write uses.

        Raises:
            JournalFull: There is no room, or a spare is being made.
            DiskError: The disk failed.
        """
        space = self.space
        if turns and space.busy and space.spares < turns:
            raise JournalFull(f"the segments behind {self.base} are being made")
        while space.spares < turns:
            base = self.base + (space.spares + 1) * self._size
            try:
                self._disk.allocate(segment_name(base), self._size, written=False)
            except NoSpace as error:
                raise JournalFull(f"no room for the segment at {base}") from error
            space.made()

    def write(self, pieces: Pieces) -> None:
        """Write the pieces, for which there is room; volatile until the next sync.

        Raises:
            DiskError: Fatal: what the files hold is unknown.
        """
        for position, data in pieces:
            base = Position(position - position % self._size)
            if base != self.base:
                self._turn(base)
            self._dirty[self._file.name] = self._file
            self._file.pwrite(data, position - base)

    def _turn(self, base: Position) -> None:
        """Go on in the next segment."""
        old = self._file
        self._file = self._disk.open(segment_name(base))
        self.space.take()
        self.base = base
        if old.name not in self._dirty and old not in self._syncing:
            old.close()

    # --------------------------------------------------------------------------------------- sync

    @property
    def is_dirty(self) -> bool:
        """Whether bytes were written since the last sync began."""
        return bool(self._dirty)

    def begin_sync(self) -> tuple[tuple[File, ...], Disk | None]:
        """Return the files to sync, and the data root if the journal's folder is to be synced."""
        self._syncing = tuple(self._dirty.values())
        self._dirty = {}
        self._removed_in_sync = self._removed
        return self._syncing, self._disk if self._removed != self._removed_durable else None

    def end_sync(self) -> None:
        """Close the files that were synced and are written no more."""
        for file in self._syncing:
            if file is not self._file and file.name not in self._dirty:
                file.close()
        self._syncing = ()
        self._removed_durable = max(self._removed_durable, self._removed_in_sync)

    # ------------------------------------------------------------------------------------ removal

    def remove(self, base: Position) -> str:
        """Unlink the oldest segment; durable with the next sync. Return the file's name.

        The folder is synced here, blocking, if the removal before is not durable yet: otherwise a
        crash could keep this one and undo that.

        Raises:
            DiskError: Fatal: which files there are is unknown.
        """
        if self._removed != self._removed_durable:
            self._disk.sync_folder(FOLDER)
            self._removed_durable = self._removed
        name = segment_name(base)
        self._disk.remove(name)
        self._removed += 1
        self.space.count()
        return name

    def close(self) -> None:
        """Close the files."""
        for file in (*self._dirty.values(), *self._syncing, self._file):
            file.close()


def remove_segments(disk: Disk) -> None:
    """Remove all segments, durably. Blocks.

    The oldest one is removed last: a crash on the way must not leave a copy that begins later and
    looks whole.
    """
    bases = segment_bases(disk)
    for chosen in (bases[1:], bases[:1]):
        for base in chosen:
            disk.remove(segment_name(base))
        if chosen:
            disk.sync_folder(FOLDER)
