"""A broker that starts on a folder that was a copy, and was cut: index and STATE do not lie.

Two brokers go on from the same journal. The folder of the one, with all its index files, becomes a
copy of the other's journal, and then a broker is opened on it.
"""

from __future__ import annotations

import pytest

from ternmq.broker.start import Options
from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.copy_file import read_note
from ternmq.journal.log.scan import Scanner
from ternmq.journal.log.segment import segment_name
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.broker.kit import World, check, difference, portrait, reopened

SIZE = 16384
ROWS = 4


def world_on(disk: MemoryDisk, epoch: int, state_from: int | None) -> World:
    world = World(segment_bytes=SIZE, state_from=state_from, disk=disk)
    world.options = Options(segment_bytes=SIZE, reserve_bytes=SIZE, min_epoch=Epoch(epoch))
    world._open(world.now)
    return world


def send(world: World, times: int, producer: int) -> None:
    for _ in range(times):
        world.send("t", ROWS, producer=producer)


def index_files(world: World) -> list[str]:
    """Write the run files that there are to write; return their names."""
    coverage = world.broker.views.index.coverage
    for job in coverage.unsealed(world.broker.journal.written):
        job.run()
    part = coverage.cut(world.broker.journal.written, world.broker.journal.last_crc)
    if part is not None:
        part.run()
    return world.disk.names("index")


def follow(copy: Copy, other: MemoryDisk) -> int:
    """Cut where the journals part, and copy the rest; return where they part."""
    records = list(Scanner(other, 0, segment_size=SIZE, prev_crc=0))
    parted = 0
    for one in records:
        own = copy.record(one.position)
        if own is None or (own.crc, own.epoch) != (one.crc, one.epoch):
            break
        parted = one.end
    copy.cut(Position(parted))
    for one in records:
        if one.position >= parted:
            base = one.position // SIZE * SIZE
            length = HEADER_BYTES if one.kind == Kind.PAD else one.length
            data = other.open(segment_name(base)).pread(length, one.position - base)
            last = Checkpoint(one.position, Epoch(one.epoch), one.crc)
            copy.write([(one.position, data)], end=one.end, last=last)
    copy.sync_all()
    return parted


@pytest.mark.parametrize("state_from", [None, 1])
def test_index_files_of_what_was_cut_are_not_used(state_from):
    common = World(segment_bytes=SIZE, state_from=state_from)
    common.topic("t", queues=1)
    common.group("t", "g")
    send(common, 30, 1)
    image = common.disk.image()

    old = world_on(MemoryDisk(image), 5, state_from)
    send(old, 150, 2)
    files = index_files(old)
    new = world_on(MemoryDisk(image), 6, state_from)
    new.sent = dict(common.sent)
    send(new, 200, 3)
    new.broker.journal.flush()

    disk = MemoryDisk(old.disk.image())
    copy = Copy.open(disk, reserve_bytes=0)
    assert copy is not None
    parted = follow(copy, new.disk)
    copy.close()
    assert any(int(name[:20]) > parted for name in files)  # files of what was cut
    assert set(files) <= set(disk.names("index"))

    with_index = disk.image()
    without = {name: data for name, data in with_index.items() if not name.startswith("index/")}
    worlds = []
    for one in (with_index, without):
        world = world_on(MemoryDisk(one), 7, None)
        assert read_note(world.disk) is None
        check(world.broker, world.now)
        world.sent = dict(new.sent)
        worlds.append(world)
    first, second = (portrait(one.broker.views) for one in worlds)
    assert not difference(first, second)
    assert not difference(portrait(reopened(worlds[0]).views), portrait(reopened(worlds[1]).views))
    for world in worlds:
        # every row is found where the index says, with the body that `new` sent
        assert world.drain(world.join(), "t", "g") == list(range(230 * ROWS))
