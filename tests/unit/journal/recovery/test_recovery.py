"""Opening again: what is believed, what is cut, what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import Scanner, scan
from ternmq.journal.log.segment import FOLDER, segment_name
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.recovery.recovery import mend, open_journal, records
from ternmq.journal.state.sets import StateKey, StateWriter
from ternmq.model.errors import CorruptJournal, DiskError, JournalFailed, UnknownRecordKind
from ternmq.model.types import Position
from ternmq.record.fact.control import EPOCH, EPOCH_CLEAN, EPOCH_FIRST
from ternmq.record.fact.header import Kind
from tests.unit.journal.kit import (
    SEGMENT,
    body,
    commit,
    crafted,
    fill,
    filled,
    make_spares,
    open_views,
)

Image = dict[str, bytes]


def changed(image: Image, position: int, data: bytes, segment_size: int = SEGMENT) -> MemoryDisk:
    """A disk with the image's files, and other bytes at a position."""
    disk = MemoryDisk(image)
    base = position - position % segment_size
    disk.open(segment_name(base)).pwrite(data, position - base)
    return disk


def last_epoch(disk: MemoryDisk) -> tuple[int, int, int, int]:
    found = [record.body for record in scan(disk, 0) if record.kind == Kind.EPOCH]
    epoch, flags, valid_end, durable = EPOCH.unpack(found[-1])
    return epoch, flags, valid_end, durable


# -------------------------------------------------------------------------------------- ordinary


def test_a_new_folder_gets_a_new_journal():
    disk = MemoryDisk()
    journal, report, views = open_views(disk, wall_us=77)
    assert report.fresh
    assert (report.epoch, report.time_us, report.cut) == (1, 77, None)
    assert [record.kind for record in views.records] == [Kind.EPOCH]
    assert views.records[0].position == report.epoch_position
    assert (views.begin, views.finished) == (0, [0])
    assert last_epoch(disk) == (1, EPOCH_FIRST, 0, 0)
    assert journal.wants_spare() is not None  # one is there, the reserve wants more


def test_everything_comes_back_in_order():
    disk = filled(500)
    end = find_end(disk)
    assert end is not None
    journal, report, views = open_views(disk)
    assert views.bodies() == [body(number) for number in range(500)]
    assert views.finished == [end.valid_end]
    assert (report.epoch, report.fresh, report.clean, report.cut) == (2, False, False, None)
    assert report.valid_end == end.valid_end
    assert report.time_us == 2499  # the last record is later than the wall clock
    assert views.records[-1].position == report.epoch_position
    assert journal.durable == journal.end


def test_reigns_follow_one_another():
    disk = MemoryDisk()
    for reign in range(1, 6):
        journal, report, views = open_views(disk)
        assert report.epoch == journal.epoch == reign
        assert views.bodies() == [body(number, 100) for number in range((reign - 1) * 40)]
        make_spares(journal)
        fill(journal, range((reign - 1) * 40, reign * 40), 100)
        journal.close()


def test_a_clean_stop_is_told_from_another():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    journal.close(5000)
    journal, report, _ = open_views(disk)
    assert report.clean
    assert last_epoch(disk)[1] == EPOCH_CLEAN
    journal.close()
    _, report, _ = open_views(disk)
    assert not report.clean
    assert last_epoch(disk)[1] == 0


def test_an_idle_mark_is_no_clean_stop():
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    assert journal.mark(5000) is not None
    commit(journal)
    _, report, _ = open_views(disk)
    assert not report.clean


def test_the_clock_never_goes_back():
    disk = filled(10)
    _, report, _ = open_views(disk, wall_us=2005)
    assert report.time_us == 2009
    _, report, _ = open_views(disk, wall_us=9000)
    assert report.time_us == 9000


def test_a_real_folder(tmp_path):
    for reign in range(3):
        disk = RealDisk(tmp_path)
        disk.lock()
        journal, _, views = open_views(disk)
        assert views.bodies() == [body(number) for number in range(reign * 300)]
        make_spares(journal)
        fill(journal, range(reign * 300, (reign + 1) * 300))
        journal.close()
        disk.close()


# ------------------------------------------------------------------------------------- the tail


Spans = Sequence[tuple[int, int]]


def unsynced_tail(size: int, segment_size: int) -> tuple[Image, Spans, int]:
    """An image with 20 durable facts and then 8 KiB that were written and never synced.

    Returns:
        The image, (position, end) of every record of the tail, D.
    """
    disk = MemoryDisk()
    journal, _, _ = open_views(disk, segment_size=segment_size)
    make_spares(journal)
    fill(journal, range(20), size)
    number = 20
    durable = journal.durable
    while journal.end < durable + 8192:
        journal.append(Kind.COUNTS, body(number, size), 2000 + number)
        if number % 4 == 0:
            journal.flush()
        number += 1
    journal.flush()
    journal.close()
    spans = [(one.position, one.end) for one in scan(disk, 0) if one.position >= durable]
    # What a record says of D is what was durable when it was built.
    return disk.image(), spans, durable


TAILS = [(700, 1 << 15), (300, 4096)]


@pytest.mark.parametrize(("size", "segment_size"), TAILS)
def test_a_cut_at_every_byte_of_the_tail_leaves_a_prefix(size, segment_size):
    image, spans, durable = unsynced_tail(size, segment_size)
    whole = views_of(MemoryDisk(image))
    for cut in range(durable, spans[-1][1]):
        disk = MemoryDisk(image)
        for name in disk.names("journal"):
            base = int(name[:20])
            file = disk.open("journal/" + name)
            start = max(0, cut - base)
            if start < file.size():
                file.pwrite(bytes(file.size() - start), start)
        ending = find_end(disk)
        assert ending is not None
        # What the cut took from a record may have been its zero padding: then nothing is lost.
        expected = next(start for start, end in spans if end > cut)
        assert ending.durable <= durable  # who says that it is durable may be cut off himself
        assert durable in (ending.durable, ending.valid_end)
        if ending.valid_end != expected:
            assert ending.valid_end > expected
            assert disk.image() == MemoryDisk(image).image() or only_padding(image, spans, cut)
        if cut % 97 == 0:
            bodies = views_of(disk)
            assert bodies == whole[: len(bodies)]
            assert len(bodies) >= 20


def only_padding(image: Image, spans: Spans, cut: int) -> bool:
    """Whether the record at the cut has nothing but zeros behind it."""
    start, end = next((start, end) for start, end in spans if end > cut)
    segment_size = len(next(iter(image.values())))
    data = image[segment_name(start - start % segment_size)]
    offset = start % segment_size
    return not data[offset + cut - start : offset + end - start].strip(b"\0")


def views_of(disk: MemoryDisk) -> list[bytes]:
    return open_views(disk)[2].bodies()


@pytest.mark.parametrize(("size", "segment_size"), TAILS)
def test_noise_at_every_byte_of_the_tail_ends_it_there(size, segment_size):
    image, spans, durable = unsynced_tail(size, segment_size)
    pads = {one.position for one in scan(MemoryDisk(image), 0) if one.kind == Kind.PAD}
    for start, end in spans:
        # What stands behind a PAD's header is not covered: noise there does no harm.
        for at in range(start, start + 48 if start in pads else end):
            base = at - at % segment_size
            old = image[segment_name(base)][at - base]
            ending = find_end(changed(image, at, bytes([old ^ 0x41]), segment_size))
            assert ending is not None
            assert (ending.valid_end, ending.durable) == (start, durable), at
            assert ending.fault
            cut = ending.cut
            assert cut is not None
            assert cut[0] == start


@pytest.mark.parametrize(("size", "segment_size"), TAILS)
def test_noise_below_d_is_refused_by_name(size, segment_size):
    image, _, durable = unsynced_tail(size, segment_size)
    for record in list(scan(MemoryDisk(image), 0)):
        if record.position >= durable or record.kind == Kind.PAD:
            continue
        for at in (record.position, record.position + 20, record.end - 8):
            base = at - at % segment_size
            old = image[segment_name(base)][at - base]
            disk = changed(image, at, bytes([old ^ 1]), segment_size)
            before = disk.image()
            with pytest.raises(CorruptJournal) as caught:
                open_views(disk)
            assert caught.value.file == segment_name(base)
            assert caught.value.byte == record.position - base
            assert disk.image() == before


def test_d_may_stand_behind_the_damage():
    """A hole in what was never synced, and behind it a record that says how far it was synced."""
    disk = filled(20)
    journal, _, _ = open_views(disk)
    journal.append(Kind.COUNTS, body(20), 1)
    journal.flush()
    hole = journal.durable
    commit(journal)
    told = journal.append(Kind.COUNTS, body(21), 1)
    journal.flush()
    image = disk.image()
    # Both records there and a hole in the first: durable bytes are gone.
    with pytest.raises(CorruptJournal) as caught:
        find_end(changed(image, hole + 50, b"\xff"))
    assert caught.value.byte == hole
    # The witness is gone too: nobody knows any more that it was durable.
    end = find_end(changed(changed(image, hole + 50, b"\xff").image(), told + 50, b"\xff"))
    assert end is not None
    assert end.valid_end == hole


def test_valid_records_behind_a_hole_are_cut_and_zeroed():
    image, spans, _ = unsynced_tail(300, 4096)
    middle = spans[len(spans) // 2][0]
    disk = changed(image, middle + 20, b"\xff" * 8, 4096)
    _, report, views = open_views(disk)
    assert report.valid_end == middle
    assert report.cut is not None
    assert report.cut[0] == middle
    assert report.cut[1] > middle + 3000
    bodies = views.bodies()
    assert bodies == [body(number, 300) for number in range(len(bodies))]
    epoch = report.epoch_position
    assert [one.kind for one in scan(disk, epoch)] == [Kind.EPOCH]
    end = find_end(disk)
    assert end is not None
    assert not end.dirt


def end_of(image: Image) -> int:
    ending = find_end(MemoryDisk(image))
    assert ending is not None
    return ending.valid_end


def test_epochs_behind_the_cut_count():
    image = filled(3).image()
    hole = end_of(image)
    stray = hole + 64
    disk = changed(image, stray, crafted(stray, durable=hole, epoch=9))
    _, report, _ = open_views(disk)
    assert (report.valid_end, report.durable, report.epoch) == (hole, hole, 10)


def test_a_record_cannot_state_more_than_its_own_position():
    image = filled(3).image()
    hole = end_of(image)
    stray = hole + 64
    ending = find_end(changed(image, stray, crafted(stray, durable=stray + 8)))
    assert ending is not None
    assert ending.durable <= hole == ending.valid_end


def test_a_message_that_holds_a_journal_is_not_taken_for_one():
    """A record in the body of a whole record is data, even where its position fits."""
    image = filled(3).image()
    hole = end_of(image)
    stray = hole + 64
    inner = stray + 48
    outer = crafted(stray, durable=hole, inside=crafted(inner, durable=inner))
    ending = find_end(changed(image, stray, outer))
    assert ending is not None
    assert (ending.durable, ending.valid_end) == (hole, hole)
    with pytest.raises(CorruptJournal):  # without the record around it, it would count
        find_end(changed(image, inner, crafted(inner, durable=inner)))


# -------------------------------------------------------------------------------- half-made files


def test_a_journal_whose_making_was_cut_short_is_made_anew():
    for image in (
        {},
        {segment_name(0): b""},
        {segment_name(0): bytes(1000)},
        {segment_name(0): bytes(SEGMENT)},
        {segment_name(0): bytes(SEGMENT), segment_name(SEGMENT): bytes(77)},
    ):
        _, report, _ = open_views(MemoryDisk(image))
        assert report.fresh


def test_every_torn_first_write_is_made_anew():
    disk = MemoryDisk()
    Journal.create(disk, segment_size=4096)
    first = disk.image()[segment_name(0)]
    for cut in range(152):
        for data in (first[:cut].ljust(4096, b"\0"), bytes(cut) + first[cut:]):
            _, report, _ = open_views(MemoryDisk({segment_name(0): data}), segment_size=4096)
            assert report.epoch <= 2
            assert report.durable == 0


def test_half_made_spares_go():
    image = filled(5).image()
    used = {segment_name(0): image[segment_name(0)]}
    for extra in (
        {segment_name(SEGMENT): bytes(100)},
        {segment_name(SEGMENT): b""},
        {segment_name(SEGMENT): bytes(SEGMENT + 8)},
        {segment_name(2 * SEGMENT): bytes(SEGMENT)},  # beyond a gap
        {"journal/12.seg": b"?", "journal/notes": b"?"},
    ):
        disk = MemoryDisk({**used, **extra})
        journal, _, views = open_views(disk)
        assert len(views.bodies()) == 5
        assert disk.names("journal")[:2] == [segment_name(0)[8:], segment_name(SEGMENT)[8:]]
        make_spares(journal)
        fill(journal, range(5, 400))
        journal.close()
        assert views_of(disk) == [body(number) for number in range(400)]


def test_noise_in_a_spare_is_zeroed():
    image = filled(5).image()
    disk = changed(image, 2 * SEGMENT + 100, b"noise")
    _, report, _ = open_views(disk)
    assert report.cut is not None
    assert disk.image()[segment_name(2 * SEGMENT)] == bytes(SEGMENT)


def test_files_that_do_not_fit_are_refused():
    image = filled(600).image()
    assert len(image) > 6
    missing = dict(image)
    del missing[segment_name(2 * SEGMENT)]
    with pytest.raises(CorruptJournal) as caught:
        open_views(MemoryDisk(missing))
    assert (caught.value.file, caught.value.byte) == (segment_name(2 * SEGMENT), 0)
    for size in (0, 100, SEGMENT - 4096):
        short = dict(image)
        short[segment_name(SEGMENT)] = image[segment_name(SEGMENT)].ljust(size, b"\0")[:size]
        with pytest.raises(CorruptJournal) as caught:
            open_views(MemoryDisk(short))
        assert caught.value.file == segment_name(SEGMENT)
    other = dict(image)
    other[segment_name(SEGMENT)] = image[segment_name(2 * SEGMENT)]  # a misdirected restore
    with pytest.raises(CorruptJournal):
        open_views(MemoryDisk(other))
    odd = dict(image)
    odd[segment_name(100)] = bytes(SEGMENT)
    with pytest.raises(CorruptJournal):
        open_views(MemoryDisk(odd))


@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_what_somebody_appended_to_a_file_is_no_part_of_the_journal(which):
    image = filled(600).image()
    report = open_views(MemoryDisk(dict(image)))[1]
    name = [one for one in sorted(image) if one.endswith(".seg")][which]
    whole = image[segment_name(SEGMENT)]  # records that are valid at another place, then garbage
    longer = {**image, name: image[name] + whole + b"\xff" * 4097}
    disk = MemoryDisk(longer)
    _, after, _ = open_views(disk)
    assert (after.valid_end, after.durable, after.cut) == (
        report.valid_end, report.durable, report.cut,
    )  # fmt: skip
    again = open_views(disk)[1]
    assert again.valid_end > after.valid_end


def test_a_journal_without_its_beginning_needs_a_state_set():
    image = filled(600).image()
    del image[segment_name(0)]
    with pytest.raises(CorruptJournal, match="beginning is gone"):
        open_views(MemoryDisk(image))


def test_a_newer_version_is_refused_not_cut():
    disk = filled(5)
    journal, _, _ = open_views(disk)
    journal.append(99, b"from the future", 1)
    journal.flush()
    before = disk.image()
    with pytest.raises(UnknownRecordKind):
        open_views(disk)
    assert disk.image() == before


# ------------------------------------------------------------------------------------ state sets


class Source:
    """Objects 0..count-1, each changed at a position."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.version = b"1"

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        return (StateKey(1, number) for number in range(self.count))

    def state_changed(self, key: StateKey) -> int:
        return 1 << 60

    def state_encode(self, key: StateKey) -> bytes:
        return self.version + str(key.a).encode()

    def state_written(self, key: StateKey) -> None:
        del key


def with_sets(versions: str, facts: int = 200) -> tuple[MemoryDisk, Spans]:
    """A disk with facts before, between and after durable STATE sets; (BEGIN, END) of each."""
    disk = MemoryDisk()
    journal, _, _ = open_views(disk)
    make_spares(journal)
    number = 0
    sets = []
    source = Source(30)
    for version in versions:
        fill(journal, range(number, number + facts))
        number += facts
        source.version = version.encode()
        writer = StateWriter(journal, source, chunk_bytes=200)
        writer.begin(3000)
        steps = iter([True] * 10 + [False])
        while not writer.step(3000, partial(next, steps, False)):
            journal.append(Kind.COUNTS, body(number), 3000)
            number += 1
            commit(journal)
        commit(journal)
        sets.append((writer.complete[-1].begin, writer.complete[-1].end))
    fill(journal, range(number, number + facts))
    journal.close()
    return disk, sets


def bodies_from(disk: MemoryDisk, position: int) -> list[bytes]:
    return [
        record.body.rstrip(b"\0") for record in scan(disk, position) if record.kind == Kind.COUNTS
    ]


def test_the_newest_set_is_loaded_and_replayed_from():
    disk, sets = with_sets("12")
    begin, end = sets[1]
    journal, report, views = open_views(disk)
    assert report.start == begin
    assert report.loaded_set is not None
    assert report.loaded_set[:2] == (begin, end)
    assert views.begin == begin
    assert len(views.objects) == len(report.directory) == 30
    assert {payload[:1] for payload, _ in views.objects.values()} == {b"2"}
    assert views.bodies() == bodies_from(disk, begin)
    assert journal._newest_state == (begin, end)


def test_a_hint_saves_the_way_and_is_not_believed():
    disk, sets = with_sets("1", facts=8)  # no SEGMENT record names the set yet
    image = disk.image()
    begin = sets[0][0]
    ending = find_end(MemoryDisk(image))
    assert ending is not None
    assert ending.start == 0
    ending = find_end(MemoryDisk(image), Position(begin))
    assert ending is not None
    assert (ending.start, ending.sets) == (begin, (sets[0],))
    for wrong in (0, 7, begin - 8, begin + 8, 80, 10**12, sets[0][1]):
        ending = find_end(MemoryDisk(image), Position(wrong))
        assert ending is not None
        assert ending.start == 0, wrong


def test_a_set_behind_a_hole_is_no_start():
    """The set was written whole and never synced; a page before it did not reach the disk."""
    disk = filled(20)
    journal, _, _ = open_views(disk)
    hole = journal.append(Kind.COUNTS, body(20), 1)
    writer = StateWriter(journal, Source(3))
    writer.begin(1)
    assert writer.step(1, lambda: True)
    journal.flush()
    image = changed(disk.image(), hole, bytes(64)).image()
    ending = find_end(MemoryDisk(image), writer.complete[-1].begin)
    assert ending is not None
    assert (ending.start, ending.valid_end) == (0, hole)


def test_an_unreadable_set_is_passed_over_for_the_one_before():
    disk, sets = with_sets("123")
    assert sets[1][0] > SEGMENT
    chunk = next(
        record.position
        for record in scan(disk, sets[2][0])
        if record.kind == Kind.STATE and record.body[8] == 2
    )
    # The chunk is whole as a record, but not what the directory says.
    image = disk.image()
    _, _, views = open_views(MemoryDisk(image))
    assert {payload[:1] for payload, _ in views.objects.values()} == {b"3"}
    ending = find_end(MemoryDisk(image))
    assert ending is not None
    assert ending.start == sets[2][0]
    hurt = BrokenRead(MemoryDisk(image), chunk)
    _, report, views = open_views(hurt)
    assert report.loaded_set is not None
    assert report.loaded_set.begin == sets[1][0]
    assert views.begin == sets[1][0]
    assert {payload[:1] for payload, _ in views.objects.values()} == {b"2"}
    assert views.bodies() == bodies_from(MemoryDisk(image), sets[1][0])


class BrokenRead(MemoryDisk):
    """Reads of exactly one record, alone, come back as zeros (as a set's loader reads it)."""

    def __init__(self, inner: MemoryDisk, position: int) -> None:
        super().__init__(inner.image())
        self.position = position

    def open(self, name: str, *, create: bool = False):
        file = super().open(name, create=create)
        base = int(name[8:28])
        hidden = self.position - base

        class Broken(type(file)):  # type: ignore[misc]
            __slots__ = ()

            def pread(self, length: int, offset: int) -> bytes:
                data = super().pread(length, offset)
                return bytes(len(data)) if offset == hidden and length == 48 else data

        return Broken(self, name, file._data)


@pytest.mark.parametrize("back", [1, 2, 200])
def test_what_reads_differently_the_second_time_is_named(back):
    disk = filled(300)
    ending = find_end(disk)
    assert ending is not None
    image = disk.image()
    spans = [(record.position, record.end) for record in scan(disk, 0)]
    at, _ = spans[-back]
    broken = changed(image, at + 60, b"\xff")
    with pytest.raises(CorruptJournal, match=f"position {at} was readable a moment ago") as failed:
        list(records(broken, ending, Position(0)))
    assert failed.value.file == segment_name(at - at % SEGMENT)
    assert failed.value.byte == at % SEGMENT


def test_a_scan_ends_where_it_is_told_to():
    disk = filled(600)
    spans = [(record.position, record.end) for record in scan(disk, 0)]
    assert any(end % SEGMENT == 0 for _, end in spans)  # one of the ends is a segment's
    for stop in [0, *(end for _, end in spans)]:
        scanner = Scanner(disk, 0, segment_size=SEGMENT, prev_crc=0, stop=stop)
        assert [record.end for record in scanner] == [end for _, end in spans if end <= stop]
        assert (scanner.position, scanner.fault) == (stop, "")
    scanner = Scanner(disk, 0, segment_size=SEGMENT, prev_crc=0)
    assert len(list(scanner)) == len(spans)
    assert scanner.position == spans[-1][1]


def test_a_scan_for_some_kinds_checks_all_records():
    disk = filled(600)
    records = list(scan(disk, 0))
    for kind in {record.kind for record in records}:
        scanner = Scanner(disk, 0, segment_size=SEGMENT, prev_crc=0, only=frozenset({kind}))
        assert list(scanner) == [record for record in records if record.kind == kind]
        assert scanner.position == records[-1].end
    damaged = records[len(records) // 2]
    broken = Scanner(
        changed(disk.image(), damaged.position + 60, b"\xff"),
        0, segment_size=SEGMENT, prev_crc=0, only=frozenset({int(Kind.MARK)}),
    )  # fmt: skip
    assert list(broken) == []
    assert (broken.position, broken.fault) == (damaged.position, "CRC does not fit")


def test_removed_segments_are_not_missed():
    disk, sets = with_sets("12")
    journal, _, _ = open_views(disk)
    while journal.first + SEGMENT <= sets[1][0]:
        journal.remove_first_segment()
    journal.close()
    _, report, views = open_views(disk)
    assert report.start == sets[1][0]
    assert len(views.objects) == 30


def test_a_start_that_the_replay_refuses_changes_nothing():
    """No set can be read, and the beginning is gone: whoever looks at it finds it as it was."""
    disk, sets = with_sets("12")
    journal, _, _ = open_views(disk)
    while journal.first + SEGMENT <= sets[1][0]:
        journal.remove_first_segment()
    journal.close()
    assert journal.first > sets[0][0]
    chunk = next(
        record.position
        for record in scan(disk, sets[1][0])
        if record.kind == Kind.STATE and record.body[8] == 2
    )
    ending = find_end(disk)
    assert ending is not None
    spare = ending.valid_end - ending.valid_end % SEGMENT + SEGMENT
    image = disk.image()
    for extra in (
        {segment_name(spare): bytes(100)},  # half-made
        {segment_name(spare + 4 * SEGMENT): bytes(SEGMENT)},  # beyond a gap
        {segment_name(spare): b"noise".ljust(SEGMENT, b"\0")},
    ):
        found = {**image, **extra}
        refused = BrokenRead(MemoryDisk(found), chunk)
        with pytest.raises(CorruptJournal, match="no complete STATE set can be read"):
            open_views(refused)
        assert refused.image() == found
        open_views(MemoryDisk(found))  # nothing else was wrong with it


# -------------------------------------------------------------------------- crashes of recovery


def crash_points(image: Image) -> Iterator[tuple[str, int, str]]:
    probe = FaultyDisk(MemoryDisk(image))
    open_views(probe)
    for call in ("write", "sync", "allocate", "remove", "sync_folder"):
        for number in range(1, probe.counts[call] + 1):
            kinds = {"write": ("eio", "short", "late"), "sync": ("eio", "late", "drop")}
            for kind in kinds.get(call, ("eio",)):
                yield call, number, kind


def test_recovery_may_be_cut_short_anywhere_twice():
    image, spans, _ = unsynced_tail(300, 4096)
    image = changed(image, spans[len(spans) // 2][0] + 100, b"\xff", 4096).image()
    image[segment_name(10 * 4096)] = bytes(100)
    expected = views_of(MemoryDisk(image))
    points = 0
    for call, number, kind in crash_points(image):
        inner = MemoryDisk(image)
        fail_once(inner, call, number, kind)
        again = inner.image()
        points += 1
        for second in (1, 2, 3):
            other = MemoryDisk(again)
            fail_once(other, "write", second, "short")
            assert views_of(other) == expected, (call, number, kind, second)
        assert views_of(inner) == expected, (call, number, kind)
    assert points > 20


def fail_once(disk: MemoryDisk, call: str, number: int, kind: str) -> None:
    faulty = FaultyDisk(disk, [Fault(call, number, kind)])  # type: ignore[arg-type]
    try:
        journal, _, _ = open_views(faulty)
    except (DiskError, JournalFailed):
        return
    journal.close()


def test_mending_twice_is_mending_once():
    image, spans, _ = unsynced_tail(700, 1 << 15)
    disk = changed(image, spans[3][0] + 10, b"\xff", 1 << 15)
    ending = find_end(disk)
    assert ending is not None
    spares = mend(disk, ending)
    once = disk.image()
    assert mend(disk, ending) == spares
    assert disk.image() == once
    again = find_end(disk)
    assert again is not None
    assert (again.valid_end, again.last_crc, again.dirt) == (ending.valid_end, ending.last_crc, ())


def test_what_is_not_known_durable_is_written_again_and_synced_before_epoch():
    image, _, _ = unsynced_tail(700, 1 << 15)
    seen: list[str] = []

    class Watched(FaultyDisk):
        def count(self, call):
            seen.append(call)
            return super().count(call)

    open_views(Watched(MemoryDisk(image)))
    order = [call for call in seen if call in ("write", "sync")]
    assert order == ["write", "sync", "write", "sync"]  # rewritten, synced, EPOCH, synced


# ---------------------------------------------------------------------------------- power cuts


def power_cut(disk: FaultyDisk, inner: MemoryDisk, rng: random.Random) -> Image:
    """What the platter may hold: each 512 bytes of each unsynced write is there, or is not."""
    for name, writes in disk.unsynced.items():
        file = inner.open(name)
        for offset, before in reversed(writes):
            for at in range(0, len(before), 512):
                if rng.random() < 0.5:
                    file.pwrite(before[at : at + 512], offset + at)
    return inner.image()


@pytest.mark.parametrize("seed", range(150))
def test_what_was_durable_survives_power_cuts(seed):
    rng = random.Random(seed)
    inner = MemoryDisk()
    appended: list[bytes] = []
    acked = 0
    for _ in range(4):
        disk = FaultyDisk(inner)
        journal, _, views = open_views(disk, segment_size=4096)
        found = views.bodies()
        assert found == appended[: len(found)], seed
        assert len(found) >= acked, seed
        del appended[len(found) :]
        acked = len(found)
        ends: list[int] = [0] * acked
        job = None
        for _ in range(rng.randrange(60)):
            make_spares(journal)
            step = rng.random()
            if step < 0.6:
                data = body(len(appended), rng.choice((16, 100, 900)))
                journal.append(Kind.COUNTS, data, 1)
                appended.append(data)
                ends.append(journal.end)
            elif step < 0.8:
                journal.flush()
            elif job is None:
                job = journal.next_sync()
            else:
                job.run()
                journal.synced(job)
                job = None
        acked = max(acked, sum(1 for end in ends if end <= journal.durable))
        journal.close()
        inner = MemoryDisk(power_cut(disk, inner, rng))


def test_replaying_needs_no_views():
    disk = filled(10)
    _, report = open_journal(disk, wall_us=1)
    assert report.record_count == 12


class Folders(MemoryDisk):
    """Notes which folders were synced."""

    def __init__(self, image: dict[str, bytes]) -> None:
        super().__init__(image)
        self.synced: list[str] = []

    def sync_folder(self, folder: str) -> None:
        self.synced.append(folder)


def test_a_start_makes_durable_what_the_reign_before_removed():
    """It may have been killed between the removal and the sync of the folder.

    Were the next segment removed without that sync, a power cut could bring this one back alone.
    """
    first = MemoryDisk()
    Journal.create(first, segment_size=SEGMENT)
    disk = Folders(first.image())  # killed
    open_journal(disk, wall_us=1, segment_size=SEGMENT)
    assert FOLDER in disk.synced
