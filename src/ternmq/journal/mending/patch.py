"""Bytes that were checked take the place of damaged ones in the segment files.

Steps: the damaged bytes are kept under ``repair/``, durably; the new ones are written in place; the
files are synced. A crash on the way leaves, at each byte, the old one or the new one. The new ones
are right, so a record that is valid afterwards is the right one, and the others are found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery.kept import Stretch, keep_some
from ternmq.model.errors import FileMissing
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, Kind, header_of

_PAD: Final = int(Kind.PAD)
_ZEROS: Final = bytes(1 << 20)


class SoundRecord(NamedTuple):
    """A record as a donor has it, of a PAD only the header.

    Attributes:
        position: Where it belongs.
        end: Behind it.
        data: Its bytes.
    """

    position: Position
    end: Position
    data: bytes


class Patch:
    """A job that replaces a damaged range; ``run`` blocks, in any thread.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        records: The records of the range, in order and without a gap. They were checked: they lead
            from the last good record before the range to the first one behind.

    Attributes:
        records: The records.
        kept: Names of the files under ``repair/`` with the damaged bytes, once it has run.
    """

    def __init__(self, disk: Disk, segment_size: int, records: Sequence[SoundRecord]) -> None:
        self.kept: list[str] = []
        self._disk = disk
        self._size = segment_size
        self.records = records

    @property
    def start(self) -> Position:
        """Where the range begins."""
        return self.records[0].position

    @property
    def stop(self) -> Position:
        """Where it ends."""
        return self.records[-1].end

    def run(self) -> None:
        """Replace the range; durable at return.

        A segment file that is missing is not made: retention may have removed it meanwhile.

        Raises:
            FileMissing: A segment file of the range is missing; nothing was written, or what was
                written is gone with its file.
            DiskError: The disk failed: the range may be replaced in part.
        """
        present = set(segment_bases(self._disk))
        bases = range(self.start - self.start % self._size, self.stop, self._size)
        missing = [base for base in bases if base not in present]
        if missing:
            raise FileMissing(f"{segment_name(missing[0])} is missing")
        self._keep(bases)
        for base in bases:
            file = self._disk.open(segment_name(base))
            try:
                self._replace(file, base)
                file.sync()
            finally:
                file.close()

    def _keep(self, bases: Sequence[int]) -> None:
        stretches = [
            Stretch(
                Position(base),
                max(0, self.start - base),
                min(self._size, self.stop - base),
            )
            for base in bases
        ]
        self.kept = keep_some(self._disk, stretches, self.start)

    def _replace(self, file: File, base: int) -> None:
        """Write the records of one segment, those that follow each other at once."""
        begin = 0
        joined: list[bytes] = []
        for record in self.records:
            if not base <= record.position < base + self._size:
                continue
            if not joined:
                begin = record.position - base
            joined.append(record.data)
            if header_of(record.data).kind == _PAD:
                _fill(file, record.position - base + HEADER_BYTES, record.end - base)
        if joined:
            file.pwrite(b"".join(joined), begin)


def _fill(file: File, start: int, stop: int) -> None:
    """Write zeros behind a PAD's header, so that the disk can read them."""
    while start < stop:
        size = min(len(_ZEROS), stop - start)
        file.pwrite(_ZEROS[:size], start)
        start += size
