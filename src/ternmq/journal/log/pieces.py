"""Pieces of the journal as a follower gets them: whole records, of a PAD only its header.

    segment file   | record | record | PAD header ....... |
    piece          | record | record | PAD header |          its end is the segment's

A piece ends within one segment. Its bytes lie in it as in the file, from its position on, so the
byte of a record is its position minus the piece's.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.checkpoint import Checkpoint, end_if_held
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import CorruptJournal, FileMissing
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, MAGIC, Kind

_BEGIN: Final = Struct("<IIIBB")
"""The begin of a record's header: CRC, magic, length, version, kind."""
_PAD: Final = int(Kind.PAD)


class Cut(NamedTuple):
    """Where the records that were found in some bytes end.

    Attributes:
        stop: Index behind the last one; behind a PAD's header, if it is one.
        pad: Length of that PAD in the journal; 0: the last record is none.
    """

    stop: int
    pad: int


def cut(data: bytes, at: int, most: int) -> Cut:
    """Return how many whole records from ``at`` on have at most ``most`` bytes together.

    It stops behind a PAD, which is the last record of a segment. 0.2 µs a record.

    Args:
        data: Bytes of one segment.
        at: Index at which a record begins.
        most: Most bytes. ``stop`` is ``at`` if not even the first record is so small, or whole.

    Raises:
        CorruptJournal: No record begins where one must.
    """
    until = min(len(data), at + most)
    unpack = _BEGIN.unpack_from
    last = until - HEADER_BYTES
    while at <= last:
        _, magic, length, _, kind = unpack(data, at)
        if magic != MAGIC or length < HEADER_BYTES:
            raise CorruptJournal(f"no record begins at byte {at} of a piece of the journal")
        if kind == _PAD:
            return Cut(at + HEADER_BYTES, length)
        if at + length > until:
            break
        at += length
    return Cut(at, 0)


class PieceRead:
    """A job that reads the next piece from a segment file; ``run`` blocks, in any thread.

    The segment may be sealed or active: only what was written before is read.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        position: Where a record begins.
        written: Position up to which the journal is written; more than ``position``.
        most: Most bytes, unless the first record is larger: then it alone is read.

    Attributes:
        data: The piece; empty before ``run``.
        end: Position behind it.
    """

    def __init__(
        self, disk: Disk, segment_size: int, position: Position, written: Position, most: int
    ) -> None:
        self.position = position
        self.data = b""
        self.end = position
        self._disk = disk
        self._size = segment_size
        self._base = position - position % segment_size
        self._limit = min(written, self._base + segment_size) - position
        self._most = max(most, HEADER_BYTES)

    def run(self) -> None:
        """Read it.

        Raises:
            FileMissing: The segment was removed meanwhile.
            DiskReadError: The disk could not read.
            CorruptJournal: The bytes are no records.
        """
        file = self._disk.open(segment_name(self._base))
        try:
            data = self._read(file, min(self._most, self._limit))
            found = cut(data, 0, len(data))
            if not found.stop and len(data) >= HEADER_BYTES:
                length = _BEGIN.unpack_from(data)[2]
                if length <= self._limit:
                    data = self._read(file, length)
                    found = cut(data, 0, length)
        finally:
            file.close()
        if not found.stop:
            raise CorruptJournal(f"no record begins at position {self.position}")
        self.data = data if found.stop == len(data) else data[: found.stop]
        end = self.position + found.stop
        self.end = Position(end + found.pad - HEADER_BYTES if found.pad else end)

    def _read(self, file: File, size: int) -> bytes:
        return file.pread(size, self.position - self._base)


class Match(NamedTuple):
    """A record that both journals have: where it begins and ends."""

    position: Position
    end: Position


class MatchRead:
    """A job that finds the first of some records that this journal has too; ``run`` blocks.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        first: Base of the journal's oldest segment.
        written: Position up to which the journal is written.
        checkpoints: The records, in the order in which they are looked for.

    Attributes:
        found: The record; None before ``run``, or if the journal has none of them.
    """

    def __init__(
        self,
        disk: Disk,
        segment_size: int,
        first: Position,
        written: Position,
        checkpoints: Sequence[Checkpoint],
    ) -> None:
        self.found: Match | None = None
        self._disk = disk
        self._size = segment_size
        self._first = first
        self._written = written
        self._checkpoints = checkpoints

    def run(self) -> None:
        """Look for them.

        Raises:
            UnknownRecordKind: A newer version wrote this journal.
            DiskReadError: The disk could not read.
        """
        for one in self._checkpoints:
            try:
                end = end_if_held(
                    self._disk,
                    one,
                    first=self._first,
                    end=self._written,
                    segment_size=self._size,
                )
            except FileMissing:
                continue  # retention removed it meanwhile
            if end is not None:
                self.found = Match(one.position, end)
                return
