"""The index files that a copy writes while it grows are those that a start believes."""

from __future__ import annotations

from random import Random

from ternmq.broker.start import open_broker
from ternmq.journal.copy.copy import Copy
from ternmq.journal.copy.indexing import CopyIndex
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.open import open_index
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.scan import Scanner
from ternmq.journal.log.segment import segment_name
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.broker.kit import World, check, difference, portrait

SIZE = 16384


def world() -> World:
    made = World(segment_bytes=SIZE)
    made.topic("t", queues=2)
    made.group("t", "g")
    for _ in range(900):
        made.send("t", 4)
    made.commit()
    return made


def copied(other: MemoryDisk) -> Copy:
    disk = MemoryDisk()
    copy = Copy.make(disk, first=Position(0), segment_size=SIZE, told=Epoch(1))
    for one in Scanner(other, 0, segment_size=SIZE, prev_crc=0):
        base = one.position // SIZE * SIZE
        length = HEADER_BYTES if one.kind == Kind.PAD else one.length
        data = other.open(segment_name(base)).pread(length, one.position - base)
        last = Checkpoint(one.position, Epoch(one.epoch), one.crc)
        copy.write([(one.position, data)], end=one.end, last=last)
    copy.sync_all()
    return copy


def written(index: CopyIndex, copy: Copy) -> list[Position]:
    """Run the jobs there are; return the segments that got their file."""
    bases = []
    while (job := index.next_job(copy.first, copy.end)) is not None:
        assert index.next_job(copy.first, copy.end) is None, "one at a time"
        job.run()
        index.finished(job)
        bases.append(job.base)
    return bases


def gaps(copy: Copy, disk: MemoryDisk) -> list[Position]:
    """Return the segments of which a start would have to read the journal."""
    _, found = open_index(
        disk, segment_size=SIZE, first=copy.first, end=copy.end, last_crc=copy.last_crc or 0
    )
    return [gap.start for gap in found]


def test_each_sealed_segment_gets_its_file_once() -> None:
    origin = world()
    copy = copied(origin.disk)
    disk = copy._disk
    assert isinstance(disk, MemoryDisk)
    sealed = [Position(base) for base in range(0, copy.end - SIZE, SIZE)]
    assert len(sealed) > 3
    index = CopyIndex(disk, SIZE)
    assert written(index, copy) == sealed
    assert written(index, copy) == []
    assert written(CopyIndex(disk, SIZE), copy) == [], "nor after a restart"
    assert gaps(copy, disk) == [Position(sealed[-1] + SIZE)]


def test_a_broker_that_starts_with_them_is_the_one_that_was_copied() -> None:
    origin = world()
    copy = copied(origin.disk)
    disk = copy._disk
    assert isinstance(disk, MemoryDisk)
    written(CopyIndex(disk, SIZE), copy)
    copy.close()
    promoted = open_broker(
        MemoryDisk(disk.image()), wall_us=origin.now, chance=Random(1), options=origin.options
    ).broker
    assert not difference(portrait(origin.broker.views), portrait(promoted.views))
    check(promoted)


def test_what_was_cut_is_indexed_anew() -> None:
    origin = world()
    copy = copied(origin.disk)
    disk = copy._disk
    assert isinstance(disk, MemoryDisk)
    index = CopyIndex(disk, SIZE)
    before = written(index, copy)
    at = next(
        one.position
        for one in Scanner(disk, 0, segment_size=SIZE, prev_crc=0)
        if one.position > 2 * SIZE + 1000
    )
    copy.cut(at)
    index.cut(copy.end)
    assert disk.names("index") == [f"{base:020d}.idx" for base in before[:2]]
    assert written(index, copy) == []


def test_files_go_with_their_segments() -> None:
    copy = copied(world().disk)
    disk = copy._disk
    assert isinstance(disk, MemoryDisk)
    index = CopyIndex(disk, SIZE)
    before = written(index, copy)
    copy.remove_below(before[2], needs=copy.durable)
    index.removed(copy.first)
    assert disk.names("index") == [f"{base:020d}.idx" for base in before[2:]]
