"""Where a copy of a journal ends: COPY says what is durable, and the records do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.copy_file import CopyFile, CopyNote, read_note
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery import kept
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.recovery.kept import REPAIR_FOLDER
from ternmq.journal.recovery.recovery import open_journal
from ternmq.journal.recovery.repair import inspect, repair
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Epoch, Position
from tests.unit.journal.copy.kit import (
    NEW,
    OLD,
    PARTED,
    SIZE,
    copied,
    dirt_behind,
    follow,
    opened,
    records_of,
)


def at_rest(synced: int, cut_to: int | None = None) -> MemoryDisk:
    """Return a folder with the whole of OLD, of which COPY says that so much is synced."""
    disk = MemoryDisk(OLD.image)
    cut = None if cut_to is None else Position(cut_to)
    CopyFile.make(disk, CopyNote(Position(synced), Position(0), Epoch(2), cut)).close()
    return disk


def damage(disk: MemoryDisk, position: int) -> None:
    base = position - position % SIZE
    disk.open(segment_name(base)).pwrite(b"\xff" * 4, position - base)


def test_damage_behind_the_synced_position_is_an_unsynced_tail():
    """The records behind it state that it was durable: on the disk of the primary."""
    hole = OLD.all[60]
    assert max(one.durable for one in OLD.all) > hole.end
    disk = at_rest(hole.position)
    damage(disk, hole.position + 50)
    found = find_end(disk)
    assert found is not None
    assert (found.valid_end, found.durable) == (hole.position, hole.position)
    assert inspect(disk).damage == ()
    assert inspect(disk).valid_end == hole.position
    copy = opened(disk)
    assert copy.end == hole.position
    assert not dirt_behind(disk, copy.end)


def test_damage_below_the_synced_position_stops_the_start():
    hole = OLD.all[60]
    disk = at_rest(hole.end)
    damage(disk, hole.position + 50)
    image = disk.image()
    for call in (find_end, Copy.open, lambda disk: open_journal(disk, wall_us=1)):
        with pytest.raises(CorruptJournal, match=f"position {hole.position}"):
            call(disk)
    assert disk.image() == image
    (found,) = inspect(disk).damage
    assert found.start == hole.position


def test_without_copy_the_records_count():
    hole = OLD.all[60]
    disk = at_rest(hole.position)
    disk.remove("COPY")
    damage(disk, hole.position + 50)
    with pytest.raises(CorruptJournal):
        find_end(disk)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_whole_segment_behind_the_synced_position_may_be_lost(lost):
    disk = at_rest(SIZE * 2 - 48)
    *_, last = (one for one in OLD.all if one.end <= 2 * SIZE)
    CopyFile.make(disk, CopyNote(last.position, Position(0), Epoch(2)))
    base = [base for base in segment_bases(disk) if base >= 2 * SIZE][lost]
    disk.open(segment_name(base)).pwrite(bytes(SIZE), 0)
    copy = opened(disk)
    assert copy.end == base
    assert not dirt_behind(disk, copy.end)
    follow(copy, OLD)
    assert records_of(disk, OLD.end) == OLD.records


def test_while_a_copy_is_cut_every_reader_ends_at_the_cut():
    disk = at_rest(PARTED, PARTED)
    image = disk.image()
    found = find_end(disk)
    assert found is not None
    assert (found.valid_end, found.durable) == (PARTED, PARTED)
    assert found.cut is not None
    assert found.cut[0] == PARTED
    assert OLD.end - 8 < found.cut[1] <= OLD.end  # the padding of the last record is zeros
    report = inspect(disk)
    assert (report.valid_end, report.damage) == (PARTED, ())
    assert report.record_count == OLD.ends.index(PARTED) + 1
    assert disk.image() == image


def test_a_cut_is_finished_by_who_opens_the_folder():
    for number in range(2):
        disk = at_rest(PARTED, PARTED)
        if number:
            opened(disk).close()
        else:
            journal, report = open_journal(disk, wall_us=1)
            assert report.valid_end == PARTED
            assert report.cut is not None
            assert report.cut[0] == PARTED
            journal.close()
        assert disk.names(REPAIR_FOLDER)
        note = read_note(disk)
        assert note == (CopyNote(PARTED, Position(0), Epoch(2)) if number else None)


def test_damage_below_a_cut_stops_the_start():
    disk = at_rest(PARTED, PARTED)
    damage(disk, OLD.all[5].position + 50)
    image = disk.image()
    with pytest.raises(CorruptJournal):
        opened(disk)
    assert disk.image() == image


def test_what_a_broken_cut_left_is_found_by_the_next_start():
    """Files behind the cut are gone, in any order, or part of the zeros are written."""
    for base in [base for base in segment_bases(at_rest(PARTED)) if base >= PARTED]:
        disk = at_rest(PARTED, PARTED)
        disk.remove(segment_name(base))
        copy = opened(disk)
        assert copy.end == PARTED
        follow(copy, NEW)
        assert records_of(disk, NEW.end) == NEW.records


def test_repair_cuts_a_copy_with_consent():
    hole = OLD.all[60]
    disk = at_rest(OLD.end)
    damage(disk, hole.position + 50)
    with pytest.raises(CorruptJournal):
        repair(disk)
    report = repair(disk, consent=True)
    assert report.cut == hole.position
    assert report.lost
    assert report.saved
    assert read_note(disk) is None  # it is a journal of its own now
    found = find_end(disk)
    assert found is not None
    assert records_of(disk, found.valid_end)[:60] == OLD.records[:60]


def test_repair_with_a_donor_leaves_a_copy():
    hole = OLD.all[60]
    disk = at_rest(OLD.end)
    damage(disk, hole.position + 50)
    report = repair(disk, donor=MemoryDisk(OLD.image))
    assert len(report.patched) == 1
    assert opened(disk).end == OLD.end


# ------------------------------------------------------------------------------ what a cut keeps


def cut_again(disk: MemoryDisk, at: int) -> dict[str, int]:
    """Cut at a position, and fill the copy again; return the files that are kept, and sizes."""
    copy = opened(disk)
    copy.cut(Position(at))
    follow(copy, OLD)
    copy.sync_all()
    copy.close()
    image = disk.image()
    return {name: len(data) for name, data in image.items() if name.startswith(REPAIR_FOLDER + "/")}


def test_older_cuts_make_room_for_new_ones(monkeypatch):
    disk = copied(OLD)
    disk.open(f"{REPAIR_FOLDER}/of-an-operator", create=True).pwrite(b"x" * 9000, 0)
    monkeypatch.setattr(kept, "KEPT_BYTES", 6000)
    positions = [one.position for one in OLD.all]
    for at in (positions[-20], positions[-10], positions[-30], positions[-2]):
        found = cut_again(disk, at)
        assert found.pop(f"{REPAIR_FOLDER}/of-an-operator") == 9000
        assert 0 < sum(found.values()) <= 6000
        assert any(f"-{at:020d}-" in name for name in found)
        assert len({name.split("-")[1] for name in found}) < 4


def test_a_cut_larger_than_what_is_kept_keeps_its_beginning(monkeypatch):
    disk = copied(OLD)
    monkeypatch.setattr(kept, "KEPT_BYTES", 600)
    found = cut_again(disk, PARTED)
    (name,) = found
    assert found[name] == 600
    assert (
        disk.image()[name]
        == OLD.image[segment_name(PARTED // SIZE * SIZE)][PARTED % SIZE : PARTED % SIZE + 600]
    )


def test_a_cut_that_was_interrupted_does_not_remove_what_it_kept(monkeypatch):
    disk = copied(OLD)
    copy = opened(disk)
    copy.cut(PARTED)
    copy.close()
    before = disk.image()
    assert sum(len(before[name]) for name in before if name.startswith(REPAIR_FOLDER)) > 6000
    monkeypatch.setattr(kept, "KEPT_BYTES", 6000)
    junk = segment_name(PARTED // SIZE * SIZE)
    disk.open(junk).pwrite(b"left", SIZE - 100)
    file = CopyFile.open(disk)
    assert file is not None
    file.write(replace(file.note, cut_to=PARTED))
    opened(disk)
    after = disk.image()
    for name, data in before.items():
        if name.startswith(REPAIR_FOLDER):
            assert after[name] == data


def test_a_full_disk_does_not_stop_a_cut():
    disk = copied(OLD)
    disk.capacity = sum(map(len, disk.image().values()))
    copy = opened(disk)
    copy.cut(PARTED)
    assert copy.end == PARTED
    assert disk.names(REPAIR_FOLDER) == []
