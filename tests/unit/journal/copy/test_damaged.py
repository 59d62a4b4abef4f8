"""A damaged copy ends before the damage, and is copied again; wherever the power goes meanwhile."""

from __future__ import annotations

import random

import pytest

from ternmq.journal.copy.copy import CommittedCut, Copy
from ternmq.journal.copy.damaged import cut_before_damage, damage_of
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.copy_file import COPY_NAME, read_note
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery.kept import REPAIR_FOLDER
from ternmq.journal.recovery.repair import inspect
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Epoch, Position
from tests.unit.journal.copy.kit import NEW, OLD, PARTED, SIZE, copied, follow, opened, records_of
from tests.unit.journal.copy.test_crashes import Promise, images, started

TOLD = Epoch(9)


def whole() -> MemoryDisk:
    """Return the folder of a copy that was told what is committed."""
    disk = copied(OLD)
    copy = opened(disk)
    copy.tell(committed=OLD.end, told=TOLD)
    copy.sync_all()
    copy.close()
    return disk


def damage(disk: Disk, number: int) -> Position:
    """Overwrite some bytes of a record; return where it begins."""
    record = OLD.all[number]
    base = record.position - record.position % SIZE
    file = disk.open(segment_name(Position(base)))
    file.pwrite(b"\xa5" * 8, record.position - base + 24)
    file.close()
    return Position(record.position)


def mended(disk: Disk) -> Copy | None:
    with pytest.raises(CorruptJournal):
        Copy.open(disk, reserve_bytes=0)
    cut_before_damage(disk, damage_of(disk))
    return Copy.open(disk, reserve_bytes=0)


def catches_up(disk: Disk, copy: Copy | None) -> None:
    """Follow the primary again, and check that nothing is missing."""
    if copy is None:
        copy = Copy.make(disk, first=Position(0), segment_size=SIZE, told=Epoch(1), reserve_bytes=0)
    follow(copy, OLD)
    copy.sync_all()
    assert (copy.committed, copy.told) == (OLD.end, TOLD)
    copy.close()
    assert records_of(disk, OLD.end) == OLD.records
    assert inspect(disk).damage == ()
    again = opened(disk)
    assert (again.first, again.end) == (0, OLD.end)
    again.close()


@pytest.mark.parametrize("number", [1, 7, len(OLD.all) // 2, len(OLD.all) - 2])
def test_it_ends_before_the_first_damage(number: int) -> None:
    disk = whole()
    damage(disk, len(OLD.all) - 2)  # there may be more than one
    at = damage(disk, number)
    copy = mended(disk)
    assert copy is not None
    assert copy.end == copy.durable == at
    assert (copy.committed, copy.told) == (OLD.end, TOLD)
    assert disk.names(REPAIR_FOLDER)
    catches_up(disk, copy)


def test_nothing_valid_comes_before_the_damage() -> None:
    disk = whole()
    damage(disk, 0)
    copy = mended(disk)
    assert copy is None
    assert segment_bases(disk) == []
    catches_up(disk, copy)


def test_a_segment_is_missing() -> None:
    disk = whole()
    disk.remove(segment_name(Position(SIZE)))
    copy = mended(disk)
    assert copy is not None
    assert copy.end <= SIZE
    catches_up(disk, copy)


def test_the_journal_of_a_primary_becomes_a_copy() -> None:
    disk = whole()
    disk.remove(COPY_NAME)
    at = damage(disk, 7)
    copy = mended(disk)
    assert copy is not None
    assert (copy.end, copy.committed) == (at, 0)
    assert copy.told == 2  # the largest epoch in it
    follow(copy, OLD)
    assert copy.end == OLD.end


def test_what_is_committed_is_not_cut_afterwards() -> None:
    """It was told that all of it is committed: a primary with another history lacks that."""
    disk = whole()
    damage(disk, len(OLD.all) - 2)
    copy = mended(disk)
    assert copy is not None
    assert copy.end > PARTED
    with pytest.raises(CommittedCut):
        copy.cut(PARTED)
    assert NEW.records != OLD.records


def test_a_primary_that_begins_later_has_nothing_of_it() -> None:
    """What this copy still has, the primary has removed; what is committed, it need not lack."""
    disk = whole()
    damage(disk, 7)
    copy = mended(disk)
    assert copy is not None
    first = Position(3 * SIZE)
    assert copy.end < first < copy.committed
    copy.discard(first)
    copy = Copy.make(disk, first=first, segment_size=SIZE, told=Epoch(1), reserve_bytes=0)
    follow(copy, OLD)
    assert (copy.end, copy.committed, copy.told) == (OLD.end, OLD.end, TOLD)


def test_what_is_not_damaged_in_a_record_is_not_touched() -> None:
    disk = whole()
    image = disk.image()
    with pytest.raises(CorruptJournal, match="no damaged record"):
        cut_before_damage(disk, damage_of(disk))
    assert disk.image() == image
    disk.open(COPY_NAME).pwrite(bytes(4096), 0)
    image = disk.image()
    with pytest.raises(CorruptJournal, match="COPY"):
        cut_before_damage(disk, damage_of(disk))
    assert disk.image() == image


@pytest.mark.parametrize("number", [0, 7, len(OLD.all) // 2])
def test_the_power_goes_meanwhile(number: int) -> None:
    """Whatever is left is damaged as before, or a copy from the beginning up to the damage."""
    chance = random.Random(number)
    damaged = whole()
    at = damage(damaged, number)
    run, medium = started(damaged.image())
    run.promise(Promise(0, (OLD,)))
    cut_before_damage(run.disk, damage_of(run.disk))
    Copy.open(run.disk, reserve_bytes=0)
    seen = 0
    for _, image in images(run, medium, chance):
        disk = MemoryDisk(image)
        note = read_note(disk)
        assert note is not None
        assert note.committed == OLD.end
        try:
            copy = Copy.open(disk, reserve_bytes=0)
        except CorruptJournal:
            cut_before_damage(disk, damage_of(disk))
            copy = Copy.open(disk, reserve_bytes=0)
        if copy is not None:
            assert (copy.first, copy.end) == (0, at)
        catches_up(disk, copy)
        seen += 1
    assert seen > 10
