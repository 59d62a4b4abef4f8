"""Reading records of the journal again, to find those that are damaged.

A record is **damaged** if the disk cannot read it, or if it is not valid as the next record
(``log.scan``), although it was synced once. A read goes on behind the damage, with the next record
that is valid by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.readable import readable
from ternmq.journal.log.scan import RawRecord, Scanner, read_record
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.ending import MAGIC_BYTES
from ternmq.model.errors import DiskReadError, FileMissing, UnknownRecordKind
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, Kind, header_of

_WINDOW_BYTES: Final = 64 << 10
_BEFORE_BYTES: Final = 1 << 20
_SEGMENT: Final = int(Kind.SEGMENT)
_PAD: Final = int(Kind.PAD)


class Place(NamedTuple):
    """A place in the journal at which a record begins, and what is known of the one before.

    Attributes:
        position: Where the record begins.
        prev_crc: CRC of the record before; 0 at the beginning of the journal. None: not known.
        epoch: Epoch of the record before; 0: not known.
    """

    position: Position
    prev_crc: int | None
    epoch: int


@dataclass(slots=True, frozen=True)
class DamagedRange:
    """A range of the journal that has no valid records, although it was synced.

    Attributes:
        place: Where it begins: behind the last valid record.
        stop: Where the next record begins that is valid by itself; where the read ended, if there
            is none.
        reason: What is wrong at its beginning.
    """

    place: Place
    stop: Position
    reason: str

    @property
    def start(self) -> Position:
        """Where it begins."""
        return self.place.position


class Joint(NamedTuple):
    """What a record that is valid by itself says of the record before it."""

    prev_crc: int
    epoch: int


def beginning(first: Position) -> Place:
    """Return the place of the oldest record of a journal."""
    return Place(first, None if first else 0, 0)


class ScrubRead:
    """A job that reads the next records; ``run`` blocks, in any thread.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        place: Where to begin.
        stop: Position up to which is read; a record ends there. At most the commit mark.
        most: Number of bytes after which it ends, behind a whole record.

    Attributes:
        begin: Where it began.
        place: Behind the last record that is sound.
        damage: What is damaged right there; None: nothing.
    """

    def __init__(
        self, disk: Disk, segment_size: int, place: Place, stop: Position, most: int
    ) -> None:
        self.begin = place
        self.place = place
        self.damage: DamagedRange | None = None
        self._disk = disk
        self._size = segment_size
        self._stop = stop
        self._until = min(stop, place.position + most)

    @property
    def read_bytes(self) -> int:
        """How many bytes of records were sound."""
        return self.place.position - self.begin.position

    def run(self) -> None:
        """Read.

        Raises:
            DiskError: No file can be opened, for another reason than that it is missing.
        """
        try:
            reason = self._scan()
        except UnknownRecordKind as error:
            reason = str(error)
        except DiskReadError:
            reason = self._one_by_one()
        if reason:
            stop = next_valid(self._disk, self._size, self.place.position, self._stop)
            self.damage = DamagedRange(self.place, stop, reason)

    def _scan(self) -> str:
        """Read record after record; return what is wrong behind the last one, or nothing."""
        position, prev_crc, epoch = self.place
        scanner = Scanner(
            self._disk, position, segment_size=self._size, prev_crc=prev_crc, epoch=epoch
        )
        for record in scanner:
            self.place = Place(record.end, record.crc, record.epoch)
            if record.end >= self._until:
                return ""
        return scanner.fault or "the record is blank"

    def _one_by_one(self) -> str:
        """Go on with reads of single records: one that spans several cannot be read."""
        while self.place.position < self._until:
            try:
                record = _next(self._disk, self._size, self.place)
            except DiskReadError as error:
                return str(error)
            if record is None:
                return "the record is damaged"
            self.place = Place(record.end, record.crc, record.epoch)
        return ""


class FindBefore:
    """A job that finds the place of a record: the one before it ends there; ``run`` blocks.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        position: Where the record begins.

    Attributes:
        place: The place; None: no valid record ends there, so the damage begins before.
    """

    def __init__(self, disk: Disk, segment_size: int, position: Position) -> None:
        self.place: Place | None = None
        self._disk = disk
        self._size = segment_size
        self._position = position

    def run(self) -> None:
        """Look at the last bytes before the position, up to a mebibyte of the same segment.

        Of several records that end there, the longest one counts: a message may contain the bytes
        of a record.
        """
        position, size = self._position, self._size
        base = Position(position - position % size)
        try:
            file = self._disk.open(segment_name(base))
        except FileMissing:
            return
        try:
            stop = position
            while stop > max(base, position - _BEFORE_BYTES):
                start = Position(max(base, stop - _WINDOW_BYTES))
                self._look(file, base, start, stop)
                stop = start
        finally:
            file.close()

    def _look(self, file: File, base: Position, start: Position, stop: Position) -> None:
        window = readable(file, stop - start, start - base)
        found = window.rfind(MAGIC_BYTES)
        while found >= 0:
            at = Position(start + found - 4)
            if found >= 4 and at % 8 == 0:
                self._try(file, base, at)
            found = window.rfind(MAGIC_BYTES, 0, found)

    def _try(self, file: File, base: Position, at: Position) -> None:
        try:
            record = _alone(file, base, at, self._size)
        except DiskReadError:
            return  # it is damaged as well, so it is not the one
        if record is not None and record[0].end == self._position:
            self.place = Place(self._position, record[0].crc, record[0].epoch)


def joint(disk: Disk, segment_size: int, position: Position) -> Joint | None:
    """Return what the record at ``position`` says of the one before; None unless it is valid.

    It is valid by itself; the chain is not checked. Blocks.
    """
    base = Position(position - position % segment_size)
    try:
        file = disk.open(segment_name(base))
    except FileMissing:
        return None
    try:
        found = _alone(file, base, position, segment_size)
    except DiskReadError:
        return None
    finally:
        file.close()
    return None if found is None else found[1]


def next_valid(disk: Disk, segment_size: int, position: Position, stop: Position) -> Position:
    """Return where the first record behind ``position`` begins that is valid by itself.

    Returns ``stop`` if there is none below it. Blocks; reads up to there.
    """
    at = position + 8
    while at < stop:
        base = Position(at - at % segment_size)
        end = min(base + segment_size, stop)
        try:
            file = disk.open(segment_name(base))
        except FileMissing:
            at = end
            continue
        try:
            while at < end:
                length = min(_WINDOW_BYTES, end - at)
                found = _first_in(file, base, at, length, segment_size)
                if found is not None:
                    return found
                at += length
        finally:
            file.close()
    return stop


def _first_in(file: File, base: Position, at: int, length: int, size: int) -> Position | None:
    """Return where the first valid record begins in ``length`` bytes from ``at`` on."""
    window = readable(file, length, at - base)
    found = window.find(MAGIC_BYTES)
    while found >= 0:
        position = Position(at + found - 4)  # the magic follows the CRC
        if found >= 4 and position % 8 == 0:
            try:
                record = _alone(file, base, position, size)
            except DiskReadError:
                record = None  # it is part of the damage
            if record is not None and record[0].durable <= position:
                return position
        found = window.find(MAGIC_BYTES, found + 4)
    return None


def _next(disk: Disk, size: int, place: Place) -> RawRecord | None:
    """Return the record at a place if it is valid there.

    Raises:
        DiskReadError: The disk cannot read it.
    """
    base = Position(place.position - place.position % size)
    try:
        file = disk.open(segment_name(base))
    except FileMissing:
        return None
    try:
        found = _alone(file, base, place.position, size)
    finally:
        file.close()
    if found is None:
        return None
    record, before = found
    fits = place.prev_crc is None or before.prev_crc == place.prev_crc
    return record if fits and record.epoch >= place.epoch else None


def _alone(
    file: File, base: Position, position: Position, size: int
) -> tuple[RawRecord, Joint] | None:
    """Return the record at a position, and what it says of the one before, if it is valid alone.

    Raises:
        DiskReadError: The disk cannot read it.
    """
    record = read_record(file, base, position)
    if record is None:
        return None
    left = base + size - record.end
    if (record.kind == _SEGMENT) != (position == base) or (record.kind == _PAD and left):
        return None
    if left < 0 or 0 < left < HEADER_BYTES:
        return None
    header = header_of(file.pread(HEADER_BYTES, position - base))
    return record, Joint(header.prev_crc, header.epoch)
