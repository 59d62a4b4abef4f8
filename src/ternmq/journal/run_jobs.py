"""Work on run files for a worker thread: write one, remove some.

A job holds what it needs and nobody changes that meanwhile: frozen tails, run files. Its results
are read by the caller's thread after ``run`` has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ternmq.journal import idx_file
from ternmq.journal.cold import ColdCache
from ternmq.journal.disk import Disk, File
from ternmq.journal.idx_file import StateHint
from ternmq.journal.run import Run
from ternmq.journal.run_file import open_run, read_head
from ternmq.journal.segment import segment_name
from ternmq.journal.tail import Tail
from ternmq.model.errors import DiskError, DiskReadError, FileMissing
from ternmq.model.types import Position
from ternmq.record.header import HEADER_BYTES, MAGIC, header_of

Source = Run | Tail
"""What covers a stretch of the journal in the index."""


Rebuild = Callable[[Position, Position], Tail]
"""Reads positions ``[start, stop)`` of the journal and returns what the index holds of them."""


def crc_before(disk: Disk, position: int, base: int) -> int | None:
    """Return the CRC of the record before ``position``, as the record there says, or None.

    None if no record stands there. Blocks. ``base`` is of the segment that ``position`` lies in.
    """
    try:
        file = disk.open(segment_name(base))
    except FileMissing:
        return None
    try:
        data = file.pread(HEADER_BYTES, position - base)
    finally:
        file.close()
    if len(data) < HEADER_BYTES:
        return None
    header = header_of(data)
    return header.prev_crc if header.magic == MAGIC and header.position == position else None


class RunJob:
    """Writes the run file that takes the place of ``sources``, the part runs among them included.

    Attributes:
        sources: What the file covers, in the order of the journal, without a gap.
        name: Of the file.
        result: The run, when ``run`` has returned.
    """

    __slots__ = (
        "_cache",
        "_chain_crc",
        "_hint",
        "_rebuild",
        "_temporary",
        "base",
        "name",
        "result",
        "sources",
    )

    def __init__(
        self,
        cache: ColdCache,
        name: str,
        *,
        base: Position,
        sources: Sequence[Source],
        chain_crc: int | None,
        hint: StateHint,
        rebuild: Rebuild,
        serial: int,
    ) -> None:
        self.base = base
        self.name = name
        self.sources = sources
        self.result: Run | None = None
        self._cache = cache
        self._chain_crc = chain_crc
        self._hint = hint
        self._rebuild = rebuild
        # Of its own, so that two jobs for one file never write into each other's.
        self._temporary = f"{name}.{serial}{idx_file.TEMPORARY_SUFFIX}"

    def run(self) -> None:
        """Write the file under another name, rename it, read its head back.

        Nothing is synced: after a crash the file proves itself by its checksums or is not believed.

        Raises:
            DiskError: writing or reading failed.
            CorruptJournal: a part run and the stretch of the journal that it covers are damaged.
        """
        # Not before: both need numpy, which a start on a small folder does without.
        from ternmq.journal.idx_encode import encode
        from ternmq.journal.run_content import content

        disk = self._cache.disk
        chain_crc = self._chain_crc
        if chain_crc is None:  # of a sealed segment: the next one's first record knows it
            stop = self.sources[-1].stop
            chain_crc = crc_before(disk, stop, stop)
            if chain_crc is None:
                raise DiskReadError(f"no record begins at position {stop} yet")
        pieces = encode(
            content(disk, self.sources, self._rebuild),
            base=self.base,
            start=self.sources[0].start,
            stop=self.sources[-1].stop,
            chain_crc=chain_crc,
            hint=self._hint,
        )
        try:
            self._write(disk, pieces)
            disk.rename(self._temporary, self.name)
        except DiskError:
            remove(disk, [self._temporary])  # on a full disk every byte counts
            raise
        file = disk.open(self.name)
        try:
            self.result, _ = open_run(self._cache, file, read_head(file))
        finally:
            file.close()

    def _write(self, disk: Disk, pieces: Iterable[bytes]) -> None:
        remove(disk, [self._temporary])
        file = disk.open(self._temporary, create=True)
        try:
            at = 0
            for piece in pieces:
                file.pwrite(piece, at)
                at += len(piece)
        finally:
            file.close()


class MendJob:
    """Writes a run file anew from the journal, because a block of it was found damaged."""

    __slots__ = ("_cache", "_mended", "_rebuild", "_run", "_serial")

    def __init__(
        self,
        cache: ColdCache,
        run: Run,
        rebuild: Rebuild,
        mended: deque[tuple[Run, Run]],
        serial: int,
    ) -> None:
        self._serial = serial
        self._cache = cache
        self._run = run
        self._rebuild = rebuild
        self._mended = mended

    def run(self) -> None:
        """Write the file and hand the new run to the index, which takes it before its next answer.

        Raises:
            DiskError: writing or reading failed.
            CorruptJournal: the journal is damaged there too.
        """
        old = self._run
        job = RunJob(
            self._cache,
            old.name,
            base=old.head.base,
            sources=[self._rebuild(old.start, old.stop)],
            chain_crc=old.head.chain_crc,
            hint=old.head.hint,
            rebuild=self._rebuild,
            serial=self._serial,
        )
        job.run()
        assert job.result is not None
        self._mended.append((old, job.result))


class RemoveJob:
    """Removes files of the index that nothing refers to any more.

    Attributes:
        names: Of the files.
        file: An unlinked file that is to be closed as well. The kernel gives its space back then,
            which takes some milliseconds where much of it is cached.
    """

    __slots__ = ("_disk", "file", "names")

    def __init__(self, disk: Disk, names: Sequence[str]) -> None:
        self._disk = disk
        self.names = names
        self.file: File | None = None

    def run(self) -> None:
        """Remove the files that are there."""
        if self.file is not None:
            self.file.close()
            self.file = None
        remove(self._disk, self.names)


def remove(disk: Disk, names: Sequence[str]) -> None:
    """Remove files, those that are there."""
    for name in names:
        try:
            disk.remove(name)
        except FileMissing:
            continue
