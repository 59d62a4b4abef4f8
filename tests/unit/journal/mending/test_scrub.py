"""Records that are read again: what is damaged, where it begins and ends."""

from __future__ import annotations

import random

import pytest

from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.mending.scrub import Joint, Place, ScrubRead, beginning, joint
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.journal.kit import SEGMENT, crafted
from tests.unit.journal.mending.kit import (
    BadSectors,
    damage_of,
    flip,
    journal,
    records_of,
)


def test_a_sound_journal_has_no_damage_however_small_the_reads():
    disk = journal()
    end = records_of(disk)[-1].end
    for most in (1, 300, 5000, 1 << 20):
        assert damage_of(disk, end, most=most) == []


def test_a_read_ends_behind_a_whole_record_and_goes_on_there():
    disk = journal()
    records = records_of(disk)
    read = ScrubRead(disk, SEGMENT, beginning(Position(0)), records[-1].end, records[3].end - 1)
    read.run()
    assert read.place == Place(records[3].end, records[3].crc, records[3].epoch)
    assert read.read_bytes == records[3].end
    assert read.damage is None


def test_every_byte_of_every_record_counts():
    """But for what follows a PAD's header: nothing is stored there."""
    disk = journal()
    records = records_of(disk)
    end = records[-1].end
    chance = random.Random(1)
    for at, record in enumerate(records[:-1]):
        covered = HEADER_BYTES if record.kind == Kind.PAD else record.length
        position = record.position + chance.randrange(covered)
        flip(disk, position)
        (found,) = damage_of(disk, end)
        assert (found.start, found.stop) == (record.position, record.end)
        assert found.reason
        before = records[at - 1] if at else None
        assert found.place.prev_crc == (0 if before is None else before.crc)
        flip(disk, position)
    assert damage_of(disk, end) == []


def test_a_record_that_fits_the_chain_no_more_is_damage():
    """The bytes of another record that is valid by itself, of the same length."""
    disk = journal()
    records = records_of(disk)
    one = records[5]
    data = crafted(one.position, durable=0, inside=b"x" * (one.length - HEADER_BYTES))
    disk.open(segment_name(0)).pwrite(data, one.position)
    found = damage_of(disk, records[-1].end)
    assert found[0].start == one.position
    assert "chain" in found[0].reason


def test_blank_records_are_damage():
    disk = journal()
    records = records_of(disk)
    one, last = records[5], records[8]
    disk.open(segment_name(0)).pwrite(bytes(last.end - one.position), one.position)
    (found,) = damage_of(disk, records[-1].end)
    assert (found.start, found.stop, found.reason) == (
        one.position,
        last.end,
        "the record is blank",
    )


def test_a_segment_file_that_is_missing_is_damage():
    disk = journal()
    records = records_of(disk)
    base = segment_bases(disk)[1]
    disk.remove(segment_name(base))
    (found,) = damage_of(disk, records[-1].end)
    assert (found.start, found.stop) == (base, base + SEGMENT)
    assert "missing" in found.reason


@pytest.mark.parametrize("most", [1, 700, 1 << 20])
def test_pages_that_the_disk_cannot_read_are_damage_of_their_records_alone(most):
    disk = journal()
    records = records_of(disk)
    bad = BadSectors(disk, [(4096, SEGMENT), (2 * SEGMENT, 2 * SEGMENT + 4096)])
    first, second = damage_of(bad, records[-1].end, most=most)
    crosses = next(one for one in records if one.end > 4096)
    behind = next(one for one in records if one.position >= 2 * SEGMENT + 4096)
    assert (first.start, first.stop) == (crosses.position, SEGMENT)
    assert "cannot read" in first.reason
    assert (second.start, second.stop) == (2 * SEGMENT, behind.position)


def test_what_a_record_says_of_the_one_before():
    disk = journal()
    records = records_of(disk)
    assert joint(disk, SEGMENT, records[4].position) == Joint(records[3].crc, records[4].epoch)
    assert joint(disk, SEGMENT, Position(records[4].position + 8)) is None
    flip(disk, records[4].end - 1)
    assert joint(disk, SEGMENT, records[4].position) is None
    assert joint(disk, SEGMENT, Position(100 * SEGMENT)) is None
    bad = BadSectors(disk, [(records[6].position, records[6].position + 1)])
    assert joint(bad, SEGMENT, records[6].position) is None
