"""What the tests of a copy share: two histories that part, and their bytes as a stream brings them.

``OLD`` and ``NEW`` have the same records up to ``PARTED``. From there on ``OLD`` was written by the
broker of epoch 2, and ``NEW`` by that of epoch 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ternmq.journal.copy.copy import Copy
from ternmq.journal.copy.files import Pieces
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.scan import RawRecord, Scanner
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery.ending import search
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.journal.kit import body, commit, filled, make_spares

SIZE = 4096
"""Bytes of a segment."""
Record = tuple[int, int]
"""Position and CRC."""


@dataclass(frozen=True)
class Batch:
    """What ``Copy.write`` takes."""

    pieces: Pieces
    end: Position
    last: Checkpoint

    def to(self, copy: Copy) -> None:
        copy.write(self.pieces, end=self.end, last=self.last)


class History:
    """A journal, and its bytes as a stream brings them."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.image = disk.image()
        first = segment_bases(disk)[0]
        scanner = Scanner(disk, first, segment_size=SIZE, prev_crc=None if first else 0)
        self.all: list[RawRecord] = list(scanner)
        self.records: list[Record] = [(one.position, one.crc) for one in self.all]
        self.end = self.all[-1].end
        self.ends = [one.end for one in self.all]

    def bytes_of(self, record: RawRecord) -> bytes:
        base = record.position - record.position % SIZE
        at = record.position - base
        length = HEADER_BYTES if record.kind == Kind.PAD else record.length
        return self.image[segment_name(base)][at : at + length]

    def batch(self, records: list[RawRecord]) -> Batch:
        pieces: list[tuple[Position, bytes]] = []
        for record in records:
            data = self.bytes_of(record)
            if pieces and pieces[-1][0] // SIZE == record.position // SIZE:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + data)
            else:
                pieces.append((record.position, data))
        last = records[-1]
        return Batch(pieces, last.end, Checkpoint(last.position, Epoch(last.epoch), last.crc))

    def batches(self, start: int = 0, stop: int | None = None, count: int = 7) -> Iterator[Batch]:
        """Yield the records of ``[start, stop)``, a few at a time."""
        chosen = [
            one for one in self.all if start <= one.position and (stop is None or one.end <= stop)
        ]
        for at in range(0, len(chosen), count):
            yield self.batch(chosen[at : at + count])


def _histories() -> tuple[History, History, Position]:
    common = filled(40, size=120, segment_size=SIZE)
    sides: list[History] = []
    for epoch, count in ((2, 45), (3, 60)):
        disk = MemoryDisk(common.image())
        journal, _ = open_journal(disk, wall_us=epoch, min_epoch=Epoch(epoch), segment_size=SIZE)
        make_spares(journal)
        for number in range(count):
            journal.append(Kind.COUNTS, body(epoch * 1000 + number, 150), 5000)
            if number % 5 == 4:
                commit(journal)
        journal.close()
        sides.append(History(disk))
    old, new = sides
    parted = next(
        one for one, other in zip(old.records, new.records, strict=False) if one != other
    )[0]
    return old, new, Position(parted)


OLD, NEW, PARTED = _histories()


def begun(disk: Disk, first: Position = Position(0)) -> Copy:
    return Copy.make(disk, first=first, segment_size=SIZE, told=Epoch(1), reserve_bytes=0)


def opened(disk: Disk) -> Copy:
    copy = Copy.open(disk, reserve_bytes=0)
    assert copy is not None
    return copy


def follow(copy: Copy, history: History, stop: int | None = None) -> None:
    """Write what the copy lacks of a history."""
    for batch in history.batches(copy.end, stop):
        batch.to(copy)


def copied(history: History, stop: int | None = None, *, synced: bool = True) -> MemoryDisk:
    """Return the folder of a copy of a history."""
    disk = MemoryDisk()
    copy = begun(disk)
    follow(copy, history, stop)
    if synced:
        copy.sync_all()
    copy.close()
    return disk


def records_of(disk: Disk, end: int) -> list[Record]:
    """Return the records of a folder up to a position, where they must end."""
    first = segment_bases(disk)[0]
    scanner = Scanner(disk, first, segment_size=SIZE, prev_crc=None if first else 0, stop=end)
    found: list[Record] = [(one.position, one.crc) for one in scanner]
    assert scanner.position == end
    return found


def dirt_behind(disk: Disk, end: Position) -> bool:
    return bool(search(disk, segment_bases(disk), end, SIZE).dirt)
