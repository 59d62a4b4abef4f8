"""Damage below the durable position: found, mended from a donor, or cut by consent."""

from __future__ import annotations

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.scan import scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.lost import LostRecord
from ternmq.journal.recovery.repair import REPAIR_FOLDER, Inspection, inspect, repair
from ternmq.model.errors import CorruptJournal
from ternmq.record.fact.header import Kind
from ternmq.record.fact.messages import pack
from ternmq.record.fact.transactions import Part, Resolution, Resolved, Why, pack_resolved
from tests.unit.journal.kit import SEGMENT, body, commit, filled, make_spares, open_views

COUNT = 400


@pytest.fixture
def sound() -> dict[str, bytes]:
    return filled(COUNT, 100).image()


def positions(image: dict[str, bytes]) -> list[int]:
    return [one.position for one in scan(MemoryDisk(image), 0) if one.kind == Kind.COUNTS]


def damaged(image: dict[str, bytes], *places: tuple[int, bytes]) -> MemoryDisk:
    disk = MemoryDisk(image)
    for position, data in places:
        base = position - position % SEGMENT
        disk.open(segment_name(base)).pwrite(data, position - base)
    return disk


def test_a_sound_journal_is_left_alone(sound):
    disk = MemoryDisk(sound)
    found = inspect(disk)
    assert found.damage == ()
    assert (found.first, found.segment_size, found.epoch) == (0, SEGMENT, 1)
    assert found.record_count == len(list(scan(disk, 0)))
    report = repair(disk, consent=True, donor=MemoryDisk())
    assert (report.cut, report.patched, report.lost, report.saved) == (None, [], [], [])
    assert disk.image() == sound


def test_an_unsynced_tail_is_no_damage(sound):
    disk = MemoryDisk(sound)
    journal, _, _ = open_views(disk)
    journal.append(Kind.COUNTS, body(COUNT), 1)
    hole = journal.append(Kind.COUNTS, body(COUNT + 1), 1)
    journal.append(Kind.COUNTS, body(COUNT + 2), 1)
    journal.flush()
    disk = damaged(disk.image(), (hole + 50, b"\xff"))
    found = inspect(disk)
    assert found.damage == ()
    assert found.valid_end == hole


def test_every_damaged_range_is_found(sound):
    places = positions(sound)
    one, two, three = places[10], places[100], places[101]
    disk = damaged(sound, (one + 50, b"\xff"), (two + 4, b"\xff"), (three + 60, bytes(8)))
    found = inspect(disk)
    assert [(one.start, one.stop) for one in found.damage] == [
        (one, places[11]),
        (two, places[102]),
    ]
    assert "CRC" in found.damage[0].reason
    assert "magic" in found.damage[1].reason


def test_nothing_to_inspect():
    with pytest.raises(CorruptJournal):
        inspect(MemoryDisk())
    with pytest.raises(CorruptJournal):
        inspect(MemoryDisk({segment_name(0): b""}))


# -------------------------------------------------------------------------------- donor


def test_a_donor_mends_what_it_has(sound):
    places = positions(sound)
    disk = damaged(sound, (places[10] + 50, b"\xff"), (places[-30] + 4, bytes(3000)))
    with pytest.raises(CorruptJournal):
        open_views(disk)
    report = repair(disk, donor=MemoryDisk(sound))
    assert len(report.patched) == 2
    assert report.after is not None
    assert report.after.damage == ()
    assert disk.image() == sound


@pytest.mark.parametrize("size", [None, 0, 100, 5000])
def test_a_donor_mends_missing_and_short_files(sound, size):
    image = dict(sound)
    name = segment_name(2 * SEGMENT)
    whole = image.pop(name)
    if size is not None:
        image[name] = whole[:size]
    disk = MemoryDisk(image)
    with pytest.raises(CorruptJournal):
        open_views(disk)
    repair(disk, donor=MemoryDisk(sound))
    assert len(open_views(disk)[2].bodies()) == COUNT


def test_a_donor_mends_the_very_beginning(sound):
    disk = damaged(sound, (0, bytes(200)))
    with pytest.raises(CorruptJournal):
        open_views(disk)
    repair(disk, donor=MemoryDisk(sound))
    assert disk.image() == sound


def test_a_donor_may_have_damage_of_its_own(sound):
    places = positions(sound)
    donor = damaged(sound, (places[50] + 50, b"\xff"))
    disk = damaged(sound, (places[150] + 50, b"\xff"))
    repair(disk, donor=donor)
    assert disk.image() == sound
    repair(donor, donor=disk)
    assert donor.image() == sound


def test_another_journal_is_no_donor(sound):
    places = positions(sound)
    disk = damaged(sound, (places[50] + 50, b"\xff"))
    before = disk.image()
    other = filled(COUNT, 100)
    other_records = MemoryDisk()
    journal, _, _ = open_views(other_records)
    make_spares(journal)
    for number in range(COUNT):
        journal.append(Kind.COUNTS, body(number + 1, 100), 1)
        commit(journal)
    for donor in (other_records, MemoryDisk(), damaged(other.image(), (places[50] + 50, b"\xff"))):
        with pytest.raises(CorruptJournal) as caught:
            repair(disk, donor=donor)
        assert caught.value.file == segment_name(places[50] - places[50] % SEGMENT)
        assert disk.image() == before


def test_a_journal_that_went_another_way_is_no_donor(sound):
    """The same up to the damage, then other records of the same lengths (an old backup's reign)."""
    other = MemoryDisk()
    journal, _, _ = open_views(other)
    make_spares(journal)
    for number in range(COUNT):
        other_number = number if number < 50 else number + 1000
        journal.append(Kind.COUNTS, body(other_number, 100), 2000 + number)
        if (number + 1) % 5 == 0:
            commit(journal)
    places = positions(sound)
    assert positions(other.image()) == places
    disk = damaged(sound, (places[50] + 50, b"\xff"))
    before = disk.image()
    with pytest.raises(CorruptJournal):
        repair(disk, donor=other)
    assert disk.image() == before


# ----------------------------------------------------------------------------------- consent


def test_without_consent_nothing_is_cut(sound):
    places = positions(sound)
    disk = damaged(sound, (places[50] + 50, b"\xff"))
    before = disk.image()
    with pytest.raises(CorruptJournal, match=str(places[50])):
        repair(disk)
    assert disk.image() == before


def test_a_cut_by_consent_keeps_the_prefix_and_saves_the_rest(sound):
    places = positions(sound)
    disk = damaged(sound, (places[50] + 50, b"\xff"))
    hurt = disk.image()
    report = repair(disk, consent=True)
    assert report.cut == places[50]
    assert [one.position for one in report.lost] == places[50:]
    assert [one.whole for one in report.lost] == [False] + [True] * (COUNT - 51)
    assert report.after is not None
    assert report.after.damage == ()
    saved = {name: disk.image()[name] for name in report.saved}
    for name, data in saved.items():
        base = int(name.split("-")[1])
        start = max(0, places[50] - base)
        original = hurt[segment_name(base)][start:]
        assert data == original.rstrip(b"\0")
    assert all(name.startswith(REPAIR_FOLDER + "/") for name in saved)
    journal, opened, views = open_views(disk)
    assert views.bodies() == [body(number, 100) for number in range(50)]
    assert opened.cut is None
    journal.append(Kind.COUNTS, body(999), 1)
    commit(journal)
    assert open_views(disk)[2].bodies()[-1] == body(999)


def test_the_new_reign_is_above_all_that_were_cut():
    disk = MemoryDisk()
    for _ in range(5):
        journal, _, _ = open_views(disk)
        journal.append(Kind.COUNTS, body(journal.epoch), 1)
        journal.close(9)
    place = positions(disk.image())[1]  # of epoch 2
    hurt = damaged(disk.image(), (place + 50, b"\xff"))
    repair(hurt, consent=True)
    _, report, views = open_views(hurt)
    assert report.epoch == 7
    assert views.bodies() == [body(1)]


def test_lost_messages_are_named():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    hole = journal.append(Kind.MESSAGES, pack(7, 1, 100, 2, b"batch-1!", ()), 1)
    lost = journal.append(Kind.MESSAGES, pack(7, 2, 0, 3, b"batch-2!", ()), 1)
    commit(journal)
    journal.append(Kind.SETTLED, b"12345678", 1)
    commit(journal)
    disk = damaged(disk.image(), (hole + 48 + 33, b"\xff"))
    report = repair(disk, consent=True)
    assert report.lost[:2] == [
        LostRecord(Kind.MESSAGES, hole, 88, False),  # no intact record of its queue: unknown
        LostRecord(Kind.MESSAGES, lost, 88, True, 7, 2, 0, 3),
    ]
    assert report.lost[2].kind == Kind.SETTLED
    assert report.lost[2].topic is None


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (4, b"\xff" * 4),  # magic
        (8, b"\xff" * 4),  # length
        (13, b"\x0a"),  # kind: SETTLED
        (16, b"\xff" * 8),  # position
        (48, b"\xff" * 4),  # topic
        (52, b"\xff" * 4),  # queue
        (56, b"\xff" * 8),  # first_offset
        (64, b"\xff" * 4),  # count
        (48 + 33, b"\xff"),  # the batch
    ],
)
@pytest.mark.parametrize("followed", [True, False])
def test_offsets_of_a_damaged_record_come_from_its_neighbours(at, data, followed):
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    journal.append(Kind.MESSAGES, pack(7, 1, 0, 100, b"batch-0!", ()), 1)
    hole = journal.append(Kind.MESSAGES, pack(7, 1, 100, 2, b"batch-1!", ()), 1)
    journal.append(Kind.MESSAGES, pack(7, 2, 0, 3, b"batch-2!", ()), 1)
    if followed:
        journal.append(Kind.MESSAGES, pack(7, 1, 102, 1, b"batch-3!", ()), 1)
    commit(journal)
    journal.append(Kind.SETTLED, b"12345678", 1)
    commit(journal)
    report = repair(damaged(disk.image(), (hole + at, data)), consent=True)
    told = [one for one in report.lost if not one.whole]
    if followed:
        assert told == [LostRecord(Kind.MESSAGES, hole, 88, False, 7, 1, 100, 2)]
    else:
        assert all(one.position == hole and one.length == 88 for one in told)
        assert all((one.topic, one.queue, one.first_offset, one.count) == (None,) * 4
                   for one in told)  # fmt: skip
        assert len(told) == 1  # also if nothing says what kind of record it was


def test_damage_that_hit_two_queues_names_the_offsets_of_both():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    first = journal.append(Kind.MESSAGES, pack(7, 1, 0, 2, b"batch-1!", ()), 1)
    second = journal.append(Kind.MESSAGES, pack(7, 2, 0, 3, b"batch-2!", ()), 1)
    journal.append(Kind.MESSAGES, pack(7, 1, 2, 1, b"batch-3!", ()), 1)
    journal.append(Kind.MESSAGES, pack(7, 2, 3, 1, b"batch-4!", ()), 1)
    commit(journal)
    journal.append(Kind.SETTLED, b"12345678", 1)  # its commit states that the others are durable
    commit(journal)
    hurt = damaged(disk.image(), (first + 50, b"\xff"), (second + 50, b"\xff"))
    told = [one for one in repair(hurt, consent=True).lost if not one.whole]
    assert told == [
        LostRecord(Kind.MESSAGES, first, 176, False, 7, 1, 0, 2),
        LostRecord(Kind.MESSAGES, first, 176, False, 7, 2, 0, 3),
    ]


def test_messages_of_a_transaction_behind_the_cut_are_named():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    hole = journal.append(Kind.SETTLED, b"12345678", 1)
    parts = [Part(0, 5, 0, 7, 1, 2, 64), Part(64, 0, 0, 8, 0, 3, 64)]
    body = pack_resolved(
        Resolved(1, 2, 3, 5, 4, Resolution.COMMITTED, Why.WRITER, "till", "shop", parts)
    )
    resolved = journal.append(Kind.RESOLVED, body, 1)
    commit(journal)
    journal.append(Kind.SETTLED, b"12345678", 1)  # its commit states that the others are durable
    commit(journal)
    report = repair(damaged(disk.image(), (hole + 50, b"\xff")), consent=True)
    told = [one for one in report.lost if one.kind == Kind.RESOLVED]
    length = told[0].length
    assert told == [
        LostRecord(Kind.RESOLVED, resolved, length, True, 7, 1, 5, 2),
        LostRecord(Kind.RESOLVED, resolved, length, True, 8, 0, 0, 3),
    ]


def test_scheduled_rows_behind_the_cut_are_named():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    hole = journal.append(Kind.SETTLED, b"12345678", 1)
    scheduled = journal.append(Kind.SCHEDULED, pack(7, 2**32 - 1, 100, 2, b"batch-1!", ()), 1)
    commit(journal)
    journal.append(Kind.SETTLED, b"12345678", 1)
    commit(journal)
    report = repair(damaged(disk.image(), (hole + 50, b"\xff")), consent=True)
    told = [one for one in report.lost if one.kind == Kind.SCHEDULED]
    assert told == [LostRecord(Kind.SCHEDULED, scheduled, 88, True, 7, None, None, 2)]


def test_what_the_donor_has_is_taken_before_the_cut(sound):
    places = positions(sound)
    disk = damaged(sound, (places[50] + 50, b"\xff"), (places[300] + 50, b"\xff"))
    donor = damaged(sound, (places[200] + 50, b"\xff"), (places[300] + 60, b"\xff"))
    report = repair(disk, donor=donor, consent=True)
    assert len(report.patched) == 1
    assert report.cut == places[300]
    assert open_views(disk)[2].bodies() == [body(number, 100) for number in range(300)]


def test_a_missing_segment_is_cut_at_by_consent(sound):
    image = dict(sound)
    del image[segment_name(2 * SEGMENT)]
    disk = MemoryDisk(image)
    report = repair(disk, consent=True)
    assert report.cut == 2 * SEGMENT
    assert len(open_views(disk)[2].bodies()) > 50


def test_without_a_beginning_there_is_nothing_to_keep(sound):
    disk = damaged(sound, (0, bytes(200)))
    with pytest.raises(CorruptJournal, match="there is nothing before it"):
        repair(disk, consent=True)


def test_a_repair_cut_short_saves_everything_all_the_same(sound):
    """The process dies while zeroing: the first copy stays, the second gets another name."""
    places = positions(sound)
    disk = damaged(sound, (places[50] + 50, b"\xff"))
    first = repair(MemoryDisk(disk.image()), consent=True)
    half = MemoryDisk(disk.image())
    done = MemoryDisk(disk.image())
    repair(done, consent=True)
    for name in first.saved:
        half.open(name, create=True).pwrite(done.image()[name], 0)
    last = max(int(name.split("-")[1]) for name in first.saved)
    half.open(segment_name(last)).pwrite(bytes(SEGMENT), 0)
    kept = {name: half.image()[name] for name in first.saved}
    second = repair(half, consent=True)
    assert not set(second.saved) & set(first.saved)
    assert {name: half.image()[name] for name in first.saved} == kept
    assert open_views(half)[2].bodies() == [body(number, 100) for number in range(50)]


def test_a_report_says_how_it_is_afterwards(sound):
    disk = damaged(sound, (positions(sound)[50] + 50, b"\xff"))
    report = repair(disk, consent=True)
    assert isinstance(report.after, Inspection)
    assert report.after.record_count == len(list(scan(disk, 0)))
