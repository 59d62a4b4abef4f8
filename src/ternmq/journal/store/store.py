"""Whole records by position: from the journal's tail in memory, else from the cold cache.

Segments are read in chunks of 64 KiB, so a backlog read in order costs one read for some hundred
small records; a worker thread that must wait for the disk anyway reads a megabyte. Only bytes
below ``written`` are read: those behind it may change. Every record that does not come from the
tail is checked each time: magic, own position, length, CRC32C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from google_crc32c import value as crc32c

from ternmq.journal.cache.cold import Block, ColdCache, ColdRead, Job, WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.index.tail import Places
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import (
    CorruptJournal,
    DiskReadError,
    FileMissing,
    JournalError,
    MessageNotFound,
)
from ternmq.model.types import Position
from ternmq.record.fact.header import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    length_of,
    position_of,
    time_us_of,
)
from ternmq.record.fact.transactions import as_messages

CHUNK_BYTES: Final = 64 * 1024
CHUNKS_AHEAD: Final = 16


class JournalTail(Protocol):
    """What the store needs of a ``Journal``."""

    segment_size: int
    first: Position
    written: Position

    def record(self, position: int) -> bytes | None:
        """Return the whole record at ``position`` if it is in memory, else None."""
        ...

    def gather(self, positions: Sequence[int]) -> list[bytes] | None:
        """Return the whole records at ascending positions if all are in memory, else None."""
        ...


class RecordStore:
    """Reads records of the journal without ever waiting; called from one thread.

    Args:
        journal: The newest records, and the position up to which the disk may be read.
        disk: The data root.
        cache: The cache that the index uses too; None makes a new one.
    """

    def __init__(self, journal: JournalTail, disk: Disk, cache: ColdCache | None = None) -> None:
        self.cache = ColdCache(disk) if cache is None else cache
        self.mends: Callable[[int], Job | None] = _nobody
        """Called with the position of a record that cannot be read, or is damaged. Returns a job to
        wait for, if somebody tries to mend it; None: nobody does, and the error is raised."""
        self._journal = journal
        self._in_tail = journal.record
        self._all_in_tail = journal.gather
        self._segment_size = journal.segment_size
        self._names: dict[int, str] = {}

    def get(self, position: int, length: int | None = None) -> bytes:
        """Return the whole record at ``position``, header and padding included.

        Args:
            position: Position of the record.
            length: Bytes of the record; None if not known, then its header is read first.

        Raises:
            WouldBlock: The record must be read from the disk, or is being mended.
            CorruptJournal: The bytes there are not that record.
            DiskReadError: The disk could not read them a moment ago.
            MessageNotFound: Retention has removed its segment.
        """
        record = self._in_tail(position)
        if record is not None:
            return record
        try:
            return self._stored(position, length)
        except (CorruptJournal, DiskReadError) as error:
            raise self._damaged(position, error) from error

    def _stored(self, position: int, length: int | None) -> bytes:
        offset = position % self._segment_size
        base = position - offset
        if length is None:
            length = length_of(self._read(base, offset, HEADER_BYTES))
            if not HEADER_BYTES <= length <= self._segment_size - offset:
                raise _corrupt(position, offset)
        record = self._read(base, offset, length)
        crc, magic, stated, _, _, _, own, _, _, _, _ = HEADER.unpack_from(record)
        if magic != MAGIC or own != position or stated != length or crc32c(record[4:]) != crc:
            raise _corrupt(position, offset)
        return record

    def gather(self, places: Places) -> list[bytes]:
        """Return the whole records of a pull's places, in order; raises as ``get`` does.

        About 1 us for 32 records in memory.
        """
        records = self._all_in_tail(places.positions)
        if records is None:
            records = [
                self.get(position, length or None)  # the length of a MOVED record is not known
                for position, length in zip(places.positions, places.lengths, strict=True)
            ]
        if places.resolved is not None:
            records = [self._as_messages(one, places, at) for at, one in enumerate(records)]
        return records

    def at_place(self, places: Places, at: int) -> bytes:
        """Return one of the records of a pull's places, as ``gather`` does."""
        record = self.get(places.positions[at], places.lengths[at] or None)
        return record if places.resolved is None else self._as_messages(record, places, at)

    def _as_messages(self, record: bytes, places: Places, at: int) -> bytes:
        assert places.resolved is not None
        resolved = places.resolved[at]
        if not resolved:
            return record
        return as_messages(record, places.first_offsets[at], resolved, self.time_us(resolved))

    def time_us(self, position: int) -> int:
        """Return the broker time of the record at ``position``, whose bytes are not checked.

        Raises as ``get`` does.
        """
        record = self._in_tail(position)
        if record is None:
            try:
                record = self._header(position)
            except (CorruptJournal, DiskReadError) as error:
                raise self._damaged(position, error) from error
        return time_us_of(record)

    def _header(self, position: int) -> bytes:
        offset = position % self._segment_size
        header = self._read(position - offset, offset, HEADER_BYTES)
        if position_of(header) != position:
            raise _corrupt(position, offset)
        return header

    def _damaged(self, position: int, error: JournalError) -> Exception:
        """Return what to raise for a record that cannot be read."""
        job = self.mends(position)
        return error if job is None else WouldBlock(job)

    def at(self, position: int) -> bytes:
        """Return the record at ``position``, whatever its length; raises as ``get`` does."""
        return self.get(position)

    def drop_segment(self, base: int) -> None:
        """Forget a segment that retention removed."""
        self._names.pop(base, None)
        self.cache.forget(segment_name(base))

    def _read(self, base: int, offset: int, length: int) -> bytes:
        """Return bytes of the segment at ``base``."""
        end = offset + length
        # A chunk reaches as far as the journal was written: a cached one may be shorter.
        limit = min(self._segment_size, self._journal.written - base)
        if end > limit:
            raise _corrupt(base + offset, offset)
        name = self._names.get(base)
        if name is None:
            name = self._names[base] = segment_name(base)
        at = offset - offset % CHUNK_BYTES
        if end <= at + CHUNK_BYTES:
            data = self._chunk(name, at, limit, end - at)
            return data[offset - at : end - at]
        parts: list[bytes] = []
        for start in range(at, end, CHUNK_BYTES):
            stop = min(end - start, CHUNK_BYTES)
            data = self._chunk(name, start, limit, stop)
            parts.append(data[max(offset - start, 0) : stop])
        return b"".join(parts)

    def _chunk(self, name: str, at: int, limit: int, need: int) -> bytes:
        cache = self.cache
        data = cache.kept(name, at, need)
        if data is not None:
            return data
        try:
            return cache.read(Block(name, at, min(CHUNK_BYTES, limit - at)), need)
        except WouldBlock as blocked:
            last = min(limit, at + CHUNKS_AHEAD * CHUNK_BYTES)
            ahead = [
                Block(name, start, min(CHUNK_BYTES, limit - start))
                for start in range(at, last, CHUNK_BYTES)
            ]
            raise WouldBlock(ColdRead(cache, ahead)) from blocked
        except FileMissing as error:
            base = int(name[-24:-4])
            if base < self._journal.first:
                raise MessageNotFound(f"the segment at position {base} was removed") from error
            raise CorruptJournal(f"{name} is missing", file=name) from error


def _nobody(position: int) -> Job | None:
    """Mend nothing."""
    del position
    return None


def _corrupt(position: int, offset: int) -> CorruptJournal:
    name = segment_name(position - offset)
    return CorruptJournal(f"{name}: no valid record at byte {offset}", file=name, byte=offset)
