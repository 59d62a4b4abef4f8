"""Jobs on run files for a worker thread: write one, remove some.

A job uses only objects that no longer change: frozen tails and run files. The caller's thread reads
its results after ``run`` has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ternmq.journal.cache.cold import ColdCache
from ternmq.journal.disk.port import Disk, File
from ternmq.journal.index import idx_file
from ternmq.journal.index.idx_file import StateHint
from ternmq.journal.index.run import Rebuild, Run, Source
from ternmq.journal.index.run_file import open_run, read_head
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import DiskError, DiskReadError, FileMissing
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, MAGIC, header_of


def crc_before(disk: Disk, position: int, base: int) -> int | None:
    """Return the CRC of the record before ``position``, as stated by the record at ``position``.

    None if there is no record. Blocks. ``base`` is the base of the segment that holds ``position``.
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
    """Writes the run file that replaces ``sources``, part runs among them included.

    Attributes:
        sources: The sources that the file covers, in the order of the journal, without a gap.
        name: Name of the file.
        result: The run, once ``run`` has returned.
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
        # Each job has its own, so that two jobs for one file never write the same bytes.
        self._temporary = f"{name}.{serial}{idx_file.TEMPORARY_SUFFIX}"

    def run(self) -> None:
        """Write the file under another name, rename it, read its head back.

        Nothing is synced: after a crash the file is used only if its checksums fit.

        Raises:
            DiskError: Writing or reading failed.
            CorruptJournal: A part run and the stretch of the journal that it covers are damaged.
        """
        # Imported here: both need numpy, which a start on a small folder does without.
        from ternmq.journal.index.idx_encode import encode
        from ternmq.journal.index.run_content import content

        disk = self._cache.disk
        chain_crc = self._chain_crc
        if chain_crc is None:  # a sealed segment: the next one's first record states it
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
    """Writes a run file again from the journal, because a block of it was found damaged."""

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
        """Write the file and queue the new run for the index, which uses it from its next look-up.

        Raises:
            DiskError: Writing or reading failed.
            CorruptJournal: The journal is damaged there too.
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
        names: Names of the files.
        file: An unlinked file that is to be closed too. Closing frees its space, which takes some
            milliseconds if much of it is cached.
    """

    __slots__ = ("_disk", "file", "names")

    def __init__(self, disk: Disk, names: Sequence[str]) -> None:
        self._disk = disk
        self.names = names
        self.file: File | None = None

    def run(self) -> None:
        """Close ``file`` and remove the files that exist."""
        if self.file is not None:
            self.file.close()
            self.file = None
        remove(self._disk, self.names)


def remove(disk: Disk, names: Sequence[str]) -> None:
    """Remove the files that exist."""
    for name in names:
        try:
            disk.remove(name)
        except FileMissing:
            continue
