"""Where a journal ends: a reader that changes nothing, used by recovery, repair and verification.

The question after a crash is which bytes to believe. Two numbers answer it:

* **X**, the end of the valid records: a walk along the chain from a trusted start to the first
  record that is not valid (``scan`` defines valid).
* **D**, the largest durable position that any valid record states, before X or after it. Records
  behind X are found by their magic on 8-byte boundaries; pages persist in any order, so whole
  records may well follow a hole.

On a copy of another broker's journal D is what the file COPY says (``log.copy_file``): the durable
positions in its records speak of the disk of the broker that wrote them. If COPY says that the copy
is being cut, X is at most where the cut is.

If ``D <= X``, the bytes behind X were never durable and no reply depended on them: they may be cut.
Else bytes that were durable are damaged: ``CorruptJournal`` names file and byte, nothing changes.

A trusted start is the BEGIN of a STATE set that the walk finds complete, with ``D`` at or above it:
all before it was durable, so no hole below it can be an unsynced tail that must be cut. If the
records do not prove a start in this way, an older one is tried, and at last the first segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.copy_file import CopyNote, read_note
from ternmq.journal.log.scan import (
    RawRecord,
    Scanner,
    parse,
    read_record,
    record_at,
    segment_size_of,
)
from ternmq.journal.log.segment import (
    FOLDER,
    SEGMENT_RECORD_BYTES,
    file_size,
    segment_bases,
    segment_name,
)
from ternmq.journal.state.sets import begin_of_end
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.fact.control import FLAG_CLEAN, SEGMENT
from ternmq.record.fact.header import ALIGNMENT, MAGIC, Kind

MAGIC_BYTES: Final = MAGIC.to_bytes(4, "little")
CHUNK_BYTES: Final = 256 << 10
"""Small enough that a chunk is still in the processor's cache when it is compared with zeros, which
are nearly always all that lies behind the end."""
_BLANK: Final = bytes(CHUNK_BYTES)


@dataclass(slots=True, frozen=True)
class Dirt:
    """A stretch of one segment file, behind the valid end, that is not all zeros."""

    base: Position
    start: int
    stop: int


@dataclass(slots=True, frozen=True)
class Ending:
    """What ``find_end`` found.

    Attributes:
        first: Base of the oldest segment.
        segment_size: Bytes of every segment.
        start: Position where the walk began: the BEGIN of a STATE set, or ``first``.
        valid_end: X.
        durable: D.
        epoch: Largest epoch of any valid record, also behind X, and that COPY says.
        last: The last record below X; None if there is none from ``start`` on.
        epochs: The first record of each epoch on the walk, oldest first.
        last_time_us: Latest broker time of the records walked.
        clean: The last record is the MARK of a clean stop.
        record_count: Number of records walked.
        sets: (BEGIN, END) of every complete STATE set on the walk, oldest first.
        fault: What is wrong at X; empty where the journal just ends.
        dirt: The stretches behind X that are not all zeros.
        copy: What COPY says; None if the journal is no copy.
    """

    first: Position
    segment_size: int
    start: Position
    valid_end: Position
    durable: Position
    epoch: Epoch
    last: Checkpoint | None
    epochs: tuple[Checkpoint, ...]
    last_time_us: int
    clean: bool
    record_count: int
    sets: tuple[tuple[Position, Position], ...]
    fault: str
    dirt: tuple[Dirt, ...]
    copy: CopyNote | None

    @property
    def last_crc(self) -> int:
        """CRC of the last record below X; 0 if there is none."""
        return 0 if self.last is None else self.last.crc

    @property
    def cut(self) -> tuple[Position, Position] | None:
        """The positions that recovery cuts off, from X to the last byte that is not zero."""
        if not self.dirt:
            return None
        last = self.dirt[-1]
        return self.valid_end, Position(last.base + last.stop)


@dataclass(slots=True)
class Remains:
    """What lies behind a position: the dirt, and the largest values that valid records state."""

    durable: int = 0
    epoch: int = 0
    dirt: tuple[Dirt, ...] = ()


def find_end(disk: Disk, hint: Position | None = None) -> Ending | None:
    """Find where the journal ends; changes nothing.

    Args:
        disk: The data root.
        hint: BEGIN of a STATE set that the index names; used only if the records prove it.

    Returns:
        None if there is no journal, or one that was never synced while it was made, or a copy that
        has nothing yet.

    Raises:
        CorruptJournal: Damage below D; a missing segment, a wrong size or base.
        UnknownRecordKind: A newer version wrote this journal.
    """
    bases = segment_bases(disk)
    copy = read_note(disk)
    empty = copy is not None and copy.synced == 0  # no sync has covered one of its records yet
    if not bases:
        if copy is None or empty:
            return None
        raise CorruptJournal(
            f"COPY says that the journal is here up to position {copy.synced}, and there is none",
            file=FOLDER,
        )
    first = bases[0]
    try:
        size = segment_size_of(disk, bases)
    except CorruptJournal:
        if copy is not None:
            if empty:
                return None
            raise
        # Half-made, or badly damaged? It is damaged if any record states a durable position.
        if first == 0 and search(disk, bases, first, NO_POSITION).durable == 0:
            return None
        raise
    for start in _starts(disk, bases, size, hint):
        if copy is not None and copy.cut_to is not None and start >= copy.cut_to:
            continue
        ending = _walk(disk, bases, size, start, copy)
        if start == first or (ending.durable >= start and ending.sets):
            break
    else:
        raise AssertionError("the first segment is always a start")
    if ending.valid_end == first and (empty or first == ending.durable == 0):
        return None
    _check(disk, bases, ending)
    return ending


def _starts(
    disk: Disk, bases: list[Position], size: int, hint: Position | None
) -> Iterator[Position]:
    """Yield the positions where a walk may begin, newest first, the first segment last."""
    first = bases[0]
    older = stated_sets(disk, bases)
    newest = next(older, None)
    begins = {begin for begin in (newest, hint) if begin is not None}
    for begin in sorted(begins, reverse=True):
        if _is_state(disk, begin, first, size):
            yield begin
    for begin in older:
        if begin not in begins and _is_state(disk, begin, first, size):
            yield begin
    yield first


def stated_sets(disk: Disk, bases: list[Position]) -> Iterator[Position]:
    """Yield the BEGINs of STATE sets that valid SEGMENT records name, newest first, each once."""
    seen: int = NO_POSITION
    for base in reversed(bases):
        file = disk.open(segment_name(base))
        try:
            record = read_record(file, base, base)
        finally:
            file.close()
        if (
            record is not None
            and record.kind == Kind.SEGMENT
            and record.length == SEGMENT_RECORD_BYTES
        ):
            begin = SEGMENT.unpack(record.body)[2]
            if begin not in (NO_POSITION, seen):
                seen = begin
                yield Position(begin)


def _is_state(disk: Disk, position: Position, first: Position, size: int) -> bool:
    """Return whether a valid STATE record is at ``position``."""
    if position <= first:
        return False
    record = record_at(disk, position, size)
    return record is not None and record.kind == Kind.STATE


def _walk(
    disk: Disk, bases: list[Position], size: int, start: Position, copy: CopyNote | None
) -> Ending:
    """Walk from ``start`` to X, then search what lies behind."""
    scanner = Scanner(
        disk,
        start,
        segment_size=size,
        prev_crc=None if start else 0,
        stop=None if copy is None else copy.cut_to,
    )
    record = None
    sets: list[tuple[Position, Position]] = []
    epochs: list[Checkpoint] = []
    count = durable = time_us = epoch = 0
    state = int(Kind.STATE)
    for record in scanner:
        count += 1
        if record.epoch != epoch:
            epoch = record.epoch
            epochs.append(Checkpoint(record.position, Epoch(epoch), record.crc))
        if record.durable > durable:
            durable = record.durable
        if record.time_us > time_us:
            time_us = record.time_us
        if record.kind == state:
            begin = begin_of_end(record)
            if begin is not None and begin >= start:
                sets.append((begin, record.position))
    end = start if record is None else record.end
    remains = search(disk, bases, end, size)
    durable = max(durable, remains.durable)
    epoch = max(epoch, remains.epoch)
    if copy is not None:
        durable = copy.synced
        epoch = max(epoch, copy.told)
    return Ending(
        first=bases[0],
        segment_size=size,
        start=start,
        valid_end=end,
        durable=Position(durable),
        epoch=Epoch(epoch),
        last=(
            None if record is None else Checkpoint(record.position, Epoch(record.epoch), record.crc)
        ),
        epochs=tuple(epochs),
        last_time_us=time_us,
        clean=(
            record is not None
            and record.kind == Kind.MARK
            and bool(record.flags & FLAG_CLEAN)
            and record.durable == record.position
        ),
        record_count=count,
        sets=tuple(sets),
        fault=scanner.fault,
        dirt=remains.dirt,
        copy=copy,
    )


def _check(disk: Disk, bases: list[Position], ending: Ending) -> None:
    """Raise ``CorruptJournal`` if durable bytes are damaged, or segment files are wrong."""
    size, end, first = ending.segment_size, ending.valid_end, ending.first
    if ending.durable > end or (end == ending.start and end > 0):
        base = end - end % size
        raise CorruptJournal(
            f"damage at position {end}, below the durable position {ending.durable}: "
            f"{ending.fault or 'the record is blank'}",
            file=segment_name(base),
            byte=end - base,
        )
    used = [base for base in bases if base < end]
    for expected, base in zip(range(first, end, size), used, strict=False):
        if base % size or base != expected:
            raise CorruptJournal(
                f"expected a segment at {expected}, the next one is at {base}",
                file=segment_name(expected if expected < base else base),
            )
        found = file_size(disk, base)
        last = base + size >= end
        # A file that ends behind X is as good as zeros; bytes beyond the segment size are ignored.
        if found < size and not last:
            raise CorruptJournal(
                f"the segment at {base} has {found} bytes, not {size}",
                file=segment_name(base),
                byte=found,
            )


def search(disk: Disk, bases: list[Position], position: int, segment_size: int) -> Remains:
    """Search all segment files behind ``position`` for dirt and for valid records in it.

    Bytes of a file beyond the segment size are ignored.

    Valid here: a record that is valid by itself (``scan.parse``) and states no durable position
    above its own. The inside of such a record is not searched: a message may hold a copy of a
    journal.
    """
    remains = Remains()
    dirt: list[Dirt] = []
    for base in bases:
        file = disk.open(segment_name(base))
        try:
            size = min(file.size(), segment_size)
            offset = max(0, position - base)
            offset -= offset % ALIGNMENT
            skip = offset  # records found reach up to here
            while offset < size:
                # A spare that was only allocated has no data and is not read.
                data = file.next_data(offset)
                offset = max(offset, data - data % ALIGNMENT)
                chunk = file.pread(min(CHUNK_BYTES, size - offset), offset)
                if not chunk:
                    break
                if chunk != (_BLANK if len(chunk) == CHUNK_BYTES else _BLANK[: len(chunk)]):
                    start = len(chunk) - len(chunk.lstrip(b"\0"))
                    dirt.append(Dirt(base, offset + start, offset + len(chunk.rstrip(b"\0"))))
                    for record in proven(file, base, chunk, offset, skip):
                        remains.durable = max(remains.durable, record.durable)
                        remains.epoch = max(remains.epoch, record.epoch)
                        skip = record.end - base
                offset += len(chunk)
        finally:
            file.close()
    remains.dirt = tuple(dirt)
    return remains


def proven(file: File, base: Position, chunk: bytes, offset: int, skip: int) -> Iterator[RawRecord]:
    """Yield the records that begin in a chunk of a segment file and are valid by themselves.

    Args:
        file: The file.
        base: Base of the segment.
        chunk: Bytes of the file, from ``offset`` on.
        offset: Byte of the file at which the chunk begins; a multiple of 8.
        skip: Byte of the file at which the record found last ends; nothing before it is searched.
    """
    at = chunk.find(MAGIC_BYTES, max(0, skip - offset))
    while at >= 0:
        head = at - 4  # the magic follows the CRC
        after = at + 4
        if head >= 0 and head % ALIGNMENT == 0:
            position = base + offset + head
            record = parse(chunk, head, position) or read_record(file, base, position)
            if record is not None and record.durable <= position:
                yield record
                after = head + record.length
        at = chunk.find(MAGIC_BYTES, after)
