"""What the tests of mending share: a journal of several segments, damage, whole rounds."""

from __future__ import annotations

from ternmq.journal.disk.memory import MemoryDisk, MemoryFile
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.mending.scrub import DamagedRange, Place, ScrubRead, beginning
from ternmq.model.errors import DiskReadError
from ternmq.model.types import Position
from tests.unit.journal.kit import SEGMENT, filled

COUNT = 200
SIZE = 200


def journal() -> MemoryDisk:
    """A journal of some segments, all of it durable."""
    return filled(COUNT, size=SIZE)


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    return MemoryDisk(disk.image())


def records_of(disk: Disk) -> list[RawRecord]:
    return list(scan(disk, 0))


def flip(disk: Disk, position: int, count: int = 1) -> None:
    """Change every bit of some bytes."""
    base = position - position % SEGMENT
    file = disk.open(segment_name(base))
    found = file.pread(count, position - base)
    file.pwrite(bytes(one ^ 0xFF for one in found), position - base)


def contents(disk: Disk) -> dict[int, bytes]:
    """The bytes of all segment files."""
    found: dict[int, bytes] = {}
    for base in segment_bases(disk):
        file = disk.open(segment_name(base))
        found[base] = file.pread(file.size(), 0)
    return found


def damage_of(
    disk: Disk, stop: int, *, most: int = 1 << 20, place: Place | None = None
) -> list[DamagedRange]:
    """What reads from the beginning up to ``stop`` find, in order."""
    found = []
    place = place or beginning(Position(0))
    while place.position < stop:
        read = ScrubRead(disk, SEGMENT, place, Position(stop), most)
        read.run()
        place = read.place
        if read.damage is not None:
            found.append(read.damage)
            place = Place(read.damage.stop, None, 0)
    return found


class BadSectors(MemoryDisk):
    """A copy of a disk that cannot read some bytes of its segments, until they are written again.

    Attributes:
        sectors: Positions of the journal that cannot be read: begin and end.
    """

    def __init__(self, disk: MemoryDisk, sectors: list[tuple[int, int]]) -> None:
        super().__init__(disk.image())
        self.sectors = sectors

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = super().open(name, create=create)
        return _BadFile(self, file) if name.endswith(".seg") else file


class _BadFile(MemoryFile):
    def __init__(self, disk: BadSectors, file: MemoryFile) -> None:
        self.name = file.name
        self._bad = disk
        self._file = file
        self._base = int(file.name[-24:-4])

    def size(self) -> int:
        return self._file.size()

    def pread(self, length: int, offset: int) -> bytes:
        start, stop = self._base + offset, self._base + min(offset + length, self.size())
        for begin, end in self._bad.sectors:
            if begin < stop and start < end:
                raise DiskReadError(f"the disk cannot read {begin}")
        return self._file.pread(length, offset)

    def try_pread(self, length: int, offset: int) -> bytes | None:
        return self.pread(length, offset)

    def pwrite(self, data: bytes, offset: int) -> None:
        self._file.pwrite(data, offset)
        start, stop = self._base + offset, self._base + offset + len(data)
        self._bad.sectors = [
            one for one in self._bad.sectors if not (start <= one[0] and one[1] <= stop)
        ]
