"""Reading records in order, up to the first that is not valid.

A record is **valid** at its position if all of this holds: magic, length (a multiple of 8 that
leaves 0 or at least 48 bytes of its segment), CRC32C, its own position, ``prev_crc`` equal to the
CRC of the record before, an epoch not below that record's, SEGMENT at a segment's start and nowhere
else, PAD only up to a segment's end. A record is valid *by itself* if magic, version, length,
position and CRC are right (``parse``). A scan ends before the first record that is not valid;
recovery decides what that means (the end, a tail that was not synced, damage).

Unknown kinds are refused unless flagged skippable, and so are valid records of another format
version: cutting them off would lose what a newer version stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.segment import (
    PAGE_BYTES,
    SEGMENT_RECORD_BYTES,
    segment_bases,
    segment_name,
)
from ternmq.model.errors import CorruptJournal, FileMissing, UnknownRecordKind
from ternmq.model.types import Position
from ternmq.record.fact.control import SEGMENT
from ternmq.record.fact.header import (
    FLAG_SKIPPABLE,
    HEADER,
    HEADER_BYTES,
    KNOWN_KINDS,
    MAGIC,
    VERSION,
    Kind,
    crc_of,
    header_of,
)

FIRST_CHUNK_BYTES: Final = 64 << 10
CHUNK_BYTES: Final = 4 << 20
"""Reads grow from the first size to this: a short journal costs little, a long one few calls."""

_NOWHERE: Final = 1 << 64
_SEGMENT: Final = int(Kind.SEGMENT)
_PAD: Final = int(Kind.PAD)


class RawRecord(NamedTuple):
    """A record of the journal; ``body`` includes its zero padding (a PAD's body is empty)."""

    position: Position
    kind: int
    flags: int
    epoch: int
    time_us: int
    durable: Position
    crc: int
    body: bytes
    length: int

    @property
    def end(self) -> Position:
        """Position behind the record."""
        return Position(self.position + self.length)


class Scanner:
    """Iterates over the valid records from a position on.

    When the iteration is over, ``fault`` says why: empty where nothing but a blank header follows
    (the natural end), else what is wrong with the bytes there. A scanner is iterated once.

    Args:
        disk: The data root.
        position: Position at which a record begins.
        segment_size: Bytes of every segment file.
        prev_crc: CRC of the record before; None does not check the first record's ``prev_crc``.
        epoch: Epoch of the record before.
        stop: Position at which a record and the iteration end; None goes on to the natural end.
        only: Kinds of the records to yield; the others are checked all the same. None: all.

    Attributes:
        fault: See above; set when the iteration is over.
        position: End of the last valid record; set when the iteration is over.
    """

    def __init__(
        self,
        disk: Disk,
        position: int,
        *,
        segment_size: int,
        prev_crc: int | None = None,
        epoch: int = 0,
        stop: int | None = None,
        only: frozenset[int] | None = None,
    ) -> None:
        self.fault = ""
        self.position = position
        self._disk = disk
        self._size = segment_size
        self._prev_crc = prev_crc
        self._epoch = epoch
        self._stop = _NOWHERE if stop is None else stop
        self._only = only

    def __iter__(self) -> Iterator[RawRecord]:
        """Yield record after record.

        Raises:
            UnknownRecordKind: A valid record of a newer version.
        """
        size = self._size
        position, end = self.position, self._stop
        believed = self._prev_crc
        last_crc = 0 if believed is None else believed
        first = believed is None
        last_epoch = self._epoch
        want = FIRST_CHUNK_BYTES
        unpack, checksum, known = HEADER.unpack_from, crc32c, KNOWN_KINDS
        only = self._only
        new = tuple.__new__
        while position < end:
            base = position - position % size
            try:
                file = self._disk.open(segment_name(base))
            except FileMissing:
                self.fault = "the segment file is missing"
                return
            try:
                offset = position - base
                chunk, at, have = b"", 0, 0  # chunk[at] is the byte at `offset` of the file
                while offset < size and position < end:
                    if have - at < HEADER_BYTES:
                        chunk = file.pread(min(want, size - offset), offset)
                        at, have = 0, len(chunk)
                        want = min(want * 4, CHUNK_BYTES)
                        if have < HEADER_BYTES:
                            self.fault = "the file ends"
                            return
                    (
                        crc,
                        magic,
                        length,
                        version,
                        kind,
                        flags,
                        own,
                        durable,
                        time_us,
                        epoch,
                        prev,
                    ) = unpack(chunk, at)
                    left = size - offset - length
                    if (
                        magic != MAGIC
                        or own != position
                        or (prev != last_crc and not first)
                        or epoch < last_epoch
                        or version != VERSION
                        or length < HEADER_BYTES
                        or length & 7
                        or (left < HEADER_BYTES and left)
                    ):
                        self.fault = self._fault(
                            file, offset, position, last_crc, first, last_epoch
                        )
                        return
                    stop = at + length
                    if kind == _PAD:
                        if left or checksum(chunk[at + 4 : at + HEADER_BYTES]) != crc:
                            self.fault = "PAD damaged"
                            return
                        body = b""
                        stop = have
                    else:
                        if stop > have:
                            chunk = file.pread(max(min(want, size - offset), length), offset)
                            at, have, stop = 0, len(chunk), length
                        if checksum(chunk[at + 4 : stop]) != crc or stop > have:
                            self.fault = "CRC does not fit"
                            return
                        body = chunk[at + HEADER_BYTES : stop]
                        if (kind == _SEGMENT) != (not offset) or (
                            not offset and not _segment_fits(body, base, size)
                        ):
                            self.fault = "SEGMENT missing, misplaced or of another journal"
                            return
                        if kind not in known and not flags & FLAG_SKIPPABLE:
                            raise UnknownRecordKind(
                                f"record of kind {kind} at position {position}",
                                file=file.name,
                                byte=offset,
                            )
                    if only is None or kind in only:
                        yield new(
                            RawRecord,
                            (position, kind, flags, epoch, time_us, durable, crc, body, length),
                        )
                    last_crc, last_epoch, first = crc, epoch, False
                    at = stop
                    offset += length
                    position += length
            finally:
                self.position = position
                file.close()

    def _fault(
        self, file: File, offset: int, position: int, last_crc: int, first: bool, last_epoch: int
    ) -> str:
        """Describe what is wrong with the header at ``offset``; empty if it is blank."""
        header = file.pread(HEADER_BYTES, offset)
        if not header.strip(b"\0"):
            return ""
        _, magic, length, version, _, _, own, _, _, epoch, prev = HEADER.unpack(header)
        if magic != MAGIC:
            return "magic is wrong"
        if version != VERSION:
            whole = file.pread(length, offset) if length <= self._size - offset else b""
            if len(whole) >= HEADER_BYTES and crc32c(whole[4:]) == crc_of(whole):
                raise UnknownRecordKind(
                    f"record of format version {version} at position {position}",
                    file=file.name,
                    byte=offset,
                )
            return "version is unknown"
        if own != position:
            return f"the record belongs to position {own}"
        if prev != last_crc and not first:
            return "the chain is broken"
        if epoch < last_epoch:
            return f"epoch {epoch} follows {last_epoch}"
        return f"length {length} is impossible"


def _segment_fits(body: bytes, base: int, size: int) -> bool:
    """Return whether a SEGMENT body names this segment."""
    if len(body) != SEGMENT.size:
        return False
    stated_base, stated_size, _, _ = SEGMENT.unpack(body)
    return bool(stated_base == base and stated_size == size)


def scan(
    disk: Disk,
    from_position: int,
    *,
    segment_size: int | None = None,
    prev_crc: int | None = None,
    epoch: int = 0,
) -> Iterator[RawRecord]:
    """Iterate over the valid records from ``from_position`` on, to the first that is not valid.

    PAD and SEGMENT records are included, so that each ``crc`` is the next record's ``prev_crc``.
    To follow a live writer, call again with the end of the last record.

    Args:
        disk: The data root.
        from_position: Position at which a record begins.
        segment_size: Bytes of every segment file; None reads it from the first segment.
        prev_crc: CRC of the record before; None does not check the first record's ``prev_crc``.
        epoch: Epoch of the record before.

    Raises:
        CorruptJournal: The segment size had to be read and could not.
        UnknownRecordKind: A valid record of a newer version.
    """
    if segment_size is None:
        bases = segment_bases(disk)
        if not bases:
            return iter(())
        segment_size = segment_size_of(disk, bases)
    return iter(
        Scanner(disk, from_position, segment_size=segment_size, prev_crc=prev_crc, epoch=epoch)
    )


def parse(data: bytes, at: int, position: int) -> RawRecord | None:
    """Return the record at ``data[at:]`` if it is valid by itself (the chain is not checked).

    Args:
        data: Bytes that contain the whole record (of a PAD: its header).
        at: Index in ``data`` at which the record begins.
        position: Position of that byte in the journal.
    """
    if len(data) - at < HEADER_BYTES:
        return None
    crc, magic, length, version, kind, flags, own, durable, time_us, epoch, _ = HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC or version != VERSION or own != position or length < HEADER_BYTES:
        return None
    if length & 7:
        return None
    covered = HEADER_BYTES if kind == _PAD else length
    if at + covered > len(data) or crc32c(data[at + 4 : at + covered]) != crc:
        return None
    body = data[at + HEADER_BYTES : at + covered]
    return RawRecord(
        Position(position), kind, flags, epoch, time_us, Position(durable), crc, body, length
    )


def read_record(file: File, base: int, position: int) -> RawRecord | None:
    """Read the record at ``position`` of the segment at ``base``; None unless valid by itself."""
    offset = position - base
    header = file.pread(HEADER_BYTES, offset)
    if len(header) < HEADER_BYTES:
        return None
    stated = header_of(header)
    if stated.magic != MAGIC or offset + stated.length > file.size():
        return None
    whole = header if stated.kind == _PAD else file.pread(stated.length, offset)
    return parse(whole, 0, position)


def record_at(disk: Disk, position: int, segment_size: int) -> RawRecord | None:
    """Return the record at ``position`` if it is valid by itself, else None."""
    base = position - position % segment_size
    try:
        file = disk.open(segment_name(base))
    except FileMissing:
        return None
    try:
        return read_record(file, base, position)
    finally:
        file.close()


def segment_size_of(disk: Disk, bases: list[Position]) -> int:
    """Return the segment size of a journal, from the first readable SEGMENT record.

    Args:
        disk: The data root.
        bases: Result of ``segment_bases``; not empty.

    Raises:
        CorruptJournal: No segment begins with a readable SEGMENT record.
    """
    for base in bases:
        file = disk.open(segment_name(base))
        try:
            record = read_record(file, base, base)
        finally:
            file.close()
        if record is not None and record.kind == _SEGMENT and record.length == SEGMENT_RECORD_BYTES:
            stated_base, size, _, _ = SEGMENT.unpack(record.body)
            if stated_base == base and size >= PAGE_BYTES and not size % PAGE_BYTES:
                return int(size)
    raise CorruptJournal(
        "no segment begins with a readable SEGMENT record", file=segment_name(bases[0]), byte=0
    )
