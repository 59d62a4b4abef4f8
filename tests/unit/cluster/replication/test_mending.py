"""What a donor's bytes must fulfil: they lead from the last good record to the first good one."""

from __future__ import annotations

import random

import pytest

from ternmq.cluster.replication import mending
from ternmq.cluster.replication.mending import BadDonor, Mending
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.pieces import PieceRead
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.mending.patch import Patch
from ternmq.journal.mending.scrub import DamagedRange, Place
from ternmq.journal.recovery.kept import REPAIR_FOLDER
from ternmq.model.errors import FileMissing
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, Kind, framed, header_of
from tests.unit.journal.kit import SEGMENT, commit, crafted, fill, filled, open_views
from tests.unit.journal.mending.kit import (
    BadSectors,
    contents,
    copy_of,
    damage_of,
    flip,
    journal,
    records_of,
)

EPOCH = Epoch(1)


def end_of(disk: Disk) -> Position:
    return records_of(disk)[-1].end


def mending_of(disk: Disk, damage: DamagedRange, limit: Position) -> Mending:
    return Mending(disk, SEGMENT, damage, newest=EPOCH, limit=limit)


def asked(donor: Disk, one: Mending, limit: Position, most: int = 1 << 20) -> Patch:
    """Take pieces of a donor until they lead to a good record."""
    while True:
        read = PieceRead(donor, SEGMENT, one.next, limit, most)
        read.run()
        patch = one.take(read.data)
        if patch is not None:
            return patch


def refused(disk: MemoryDisk, damage: DamagedRange, data: bytes, limit: Position) -> str:
    """Return why a donor's bytes are refused; nothing is written for them."""
    before = contents(disk)
    with pytest.raises(BadDonor) as caught:
        mending_of(disk, damage, limit).take(data)
    assert contents(disk) == before
    assert disk.names(REPAIR_FOLDER) == []
    return str(caught.value)


@pytest.mark.parametrize("most", [1, 500, 1 << 20])
@pytest.mark.parametrize("seed", range(12))
def test_damage_is_mended_wherever_it_is(seed, most):
    """Some stretches at random, over records, PADs and the ends of segments."""
    donor = journal()
    disk = copy_of(donor)
    end, chance = end_of(donor), random.Random(seed)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(end - SEGMENT)
        flip(disk, at, min(chance.choice((1, 30, 300, 3000)), SEGMENT - at % SEGMENT))
    before = contents(disk)
    rounds = 0
    while found := damage_of(disk, end):
        patch = asked(donor, mending_of(disk, found[0], end), end, most)
        patch.run()
        rounds += 1
        assert rounds < 20
    assert records_of(disk) == records_of(donor)
    assert bool(disk.names(REPAIR_FOLDER)) == (rounds > 0)
    for record in records_of(donor):  # all but what follows a PAD's header is equal
        base = record.position - record.position % SEGMENT
        size = HEADER_BYTES if record.kind == Kind.PAD else record.length
        begin = record.position - base
        assert (
            contents(disk)[base][begin : begin + size]
            == (contents(donor)[base][begin : begin + size])
        )
    if rounds:
        assert contents(disk) != before


def test_the_damaged_bytes_are_kept():
    donor = journal()
    disk, record = copy_of(donor), records_of(donor)[5]
    flip(disk, record.position + 10, 20)
    bad = contents(disk)[0][record.position : record.end]
    end = end_of(donor)
    (found,) = damage_of(disk, end)
    patch = asked(donor, mending_of(disk, found, end), end)
    patch.run()
    (name,) = patch.kept
    file = disk.open(name)
    assert file.pread(file.size(), 0) == bad
    assert contents(disk) == contents(donor)


def test_sectors_that_cannot_be_read_are_written_again():
    donor = journal()
    records = records_of(donor)
    one, end = records[7], records[-1].end
    disk = BadSectors(copy_of(donor), [(one.position, one.position + 10)])
    (found,) = damage_of(disk, end)
    asked(donor, mending_of(disk, found, end), end).run()
    assert disk.sectors == []
    assert damage_of(disk, end) == []
    assert contents(disk) == contents(donor)


def test_a_segment_that_is_missing_is_not_made_anew():
    """Retention may have removed it just now: a file of it would begin the journal anew."""
    donor = journal()
    disk, end = copy_of(donor), end_of(donor)
    disk.remove(segment_name(segment_bases(disk)[1]))
    before = contents(disk)
    (found,) = damage_of(disk, end)
    patch = asked(donor, mending_of(disk, found, end), end)
    with pytest.raises(FileMissing):
        patch.run()
    assert contents(disk) == before
    assert disk.names(REPAIR_FOLDER) == []


def test_the_first_record_of_the_oldest_segment():
    """Nothing comes before it; the chain behind it says that it is the right one."""
    donor = journal()
    first = segment_bases(donor)[1]
    donor.remove(segment_name(0))
    disk = copy_of(donor)
    end = list(scan_from(donor, first))[-1].end
    flip(disk, first + 20)
    (found,) = damage_of(disk, end, place=Place(Position(first), None, 0))
    asked(donor, mending_of(disk, found, end), end).run()
    assert contents(disk) == contents(donor)


def scan_from(disk: Disk, position: int):
    from ternmq.journal.log.scan import scan

    return scan(disk, position)


# ------------------------------------------------------------------------------------ bad donors


@pytest.fixture
def good() -> MemoryDisk:
    return journal()


@pytest.fixture
def bad(good):
    """A copy of which records 5 to 7 are damaged."""
    disk = copy_of(good)
    records = records_of(good)
    for one in records[5:8]:
        flip(disk, one.position + 20, 8)
    return disk


@pytest.fixture
def damage(bad, good):
    (found,) = damage_of(bad, end_of(good))
    return found


def data_of(disk: Disk, start: int, stop: int) -> bytes:
    return contents(disk)[0][start:stop]


def test_the_donor_is_another_journal(good, bad, damage):
    other = filled(len(records_of(good)), size=208)
    data = data_of(other, damage.start, damage.stop)
    refused(bad, damage, data, end_of(good))


def test_the_donor_has_the_same_records_of_another_history(good, bad, damage):
    """Same places, same lengths, valid one by one, in a chain: but another one."""
    records, crc = [], 1234
    for record in records_of(good)[5:8]:
        header = header_of(data_of(good, record.position, record.end))
        one = framed(header._replace(prev_crc=crc), record.body)
        records.append(one)
        crc = header_of(one).crc
    why = refused(bad, damage, b"".join(records), end_of(good))
    assert "does not follow" in why


def test_the_donor_leads_from_the_record_before_and_not_to_the_one_behind(good, bad, damage):
    """Its last record is another one than this journal had: of another reign, say."""
    records = records_of(good)
    last = records[7]
    header = header_of(data_of(good, last.position, last.end))
    wrong = framed(header._replace(time_us=header.time_us + 1), last.body)
    data = data_of(good, damage.start, last.position) + wrong
    one = mending_of(bad, damage, end_of(good))
    before = contents(bad)
    assert one.take(data) is None, "no good record follows: more is needed"
    behind = data_of(good, records[8].position, records[8].end)
    with pytest.raises(BadDonor, match="does not follow"):
        one.take(behind)
    assert contents(bad) == before


def test_a_byte_of_the_donor_is_wrong(good, bad, damage):
    data = bytearray(data_of(good, damage.start, damage.stop))
    for at in range(0, len(data), 7):
        data[at] ^= 1
        refused(bad, damage, bytes(data), end_of(good))
        data[at] ^= 1


def test_the_donor_is_damaged_behind_the_range(good, bad, damage):
    """What lies behind the first good record is not looked at."""
    data = data_of(good, damage.start, damage.stop) + b"rubbish!" * 20
    patch = mending_of(bad, damage, end_of(good)).take(data)
    assert patch is not None
    patch.run()
    assert contents(bad) == contents(good)


def test_the_donor_ends_in_the_range(good, bad, damage):
    one = mending_of(bad, damage, end_of(good))
    assert one.take(data_of(good, damage.start, records_of(good)[6].position)) is None
    with pytest.raises(BadDonor, match="nothing"):
        one.take(b"")
    whole = records_of(good)[6]
    refused(bad, damage, data_of(good, damage.start, whole.position + 50), end_of(good))
    refused(bad, damage, data_of(good, damage.start, whole.position + 20), end_of(good))


@pytest.mark.parametrize(
    "rubbish", [b"", b"\0" * 100, b"\xff" * 300, b"TMR1" * 50, bytes(range(256)) * 3]
)
def test_the_donor_sends_rubbish(good, bad, damage, rubbish):
    refused(bad, damage, rubbish, end_of(good))


def test_records_of_another_place_are_refused(good, bad, damage):
    record = records_of(good)[20]
    refused(bad, damage, data_of(good, record.position, record.end), end_of(good))


def test_a_record_of_an_epoch_that_this_journal_never_had(good, bad, damage):
    record = records_of(good)[5]
    header = header_of(data_of(good, record.position, record.end))
    assert damage.place.prev_crc == header.prev_crc
    why = refused(bad, damage, framed(header._replace(epoch=2), record.body), end_of(good))
    assert "epoch" in why


def test_a_record_in_the_body_of_a_damaged_one_is_not_the_first_good_one():
    """A client may have sent the bytes of a record that is valid at its own place."""
    donor = MemoryDisk()
    opened, _, _ = open_views(donor)
    fill(opened, range(5), 200)
    inner = opened.end + HEADER_BYTES
    fake = crafted(inner, durable=0)
    opened.append(Kind.COUNTS, fake + b"!" * 104, 2000)
    begin, stop = opened.end - HEADER_BYTES - len(fake) - 104, opened.end
    fill(opened, range(5, 200), 200)
    commit(opened)
    disk, end = copy_of(donor), opened.end
    opened.close()
    flip(disk, begin + 8, 4)  # the damaged header, the body is whole
    found = damage_of(disk, end)[0]
    assert (found.start, found.stop) == (begin, inner), "the guess is wrong"
    patch = asked(donor, mending_of(disk, found, end), end)
    assert (patch.start, patch.stop) == (begin, stop)
    patch.run()
    assert contents(disk) == contents(donor)


def test_nothing_at_or_above_the_limit_is_written(good, bad, damage):
    """The record behind must be below the commit mark."""
    data = data_of(good, damage.start, damage.stop)
    assert "commit mark" in refused(bad, damage, data, damage.stop)
    assert mending_of(bad, damage, Position(damage.stop + 8)).take(data) is not None


def test_a_range_that_is_too_large_is_refused(good, bad, damage, monkeypatch):
    monkeypatch.setattr(mending, "MOST_BYTES", 100)
    data = data_of(good, damage.start, damage.stop)
    assert "MiB" in refused(bad, damage, data, end_of(good))
