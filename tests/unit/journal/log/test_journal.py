"""Appending: places, links, groups, space, failure."""

from __future__ import annotations

import queue
from itertools import pairwise

import pytest

from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import RawRecord, Scanner, record_at, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.log.space import default_reserve_bytes
from ternmq.journal.log.worker import SyncThread
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.errors import (
    CorruptJournal,
    DiskSyncError,
    DiskWriteError,
    InvalidRequest,
    JournalFailed,
    JournalFull,
    NoSpace,
    RecordTooLarge,
    UnknownRecordKind,
)
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.fact import control
from ternmq.record.fact.header import FLAG_SKIPPABLE, HEADER_BYTES, Kind
from tests.unit.journal.kit import SEGMENT, body, commit, fill, filled, make_spares


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def journal(disk) -> Journal:
    return Journal.create(disk, segment_size=SEGMENT, time_us=7)


def all_records(disk: MemoryDisk) -> list[RawRecord]:
    return list(scan(disk, 0))


def test_a_new_journal_begins_with_segment_and_epoch(disk, journal):
    segment, epoch = all_records(disk)
    assert (segment.kind, segment.position, segment.time_us) == (Kind.SEGMENT, 0, 7)
    assert control.SEGMENT.unpack(segment.body) == (0, SEGMENT, NO_POSITION, NO_POSITION)
    assert (epoch.kind, epoch.epoch, epoch.position) == (Kind.EPOCH, 1, segment.end)
    assert journal.durable == journal.written == journal.end == epoch.end
    assert (journal.first, journal.epoch) == (0, 1)


@pytest.mark.parametrize("size", [0, 4095, 4097, -4096])
def test_odd_segment_sizes_are_refused(disk, size):
    with pytest.raises(InvalidRequest):
        Journal.create(disk, segment_size=size)


@pytest.mark.parametrize("size", [*range(18), 1000, 4000])
def test_a_record_reads_back(disk, journal, size):
    position = journal.append(Kind.COUNTS, b"x" * size, -5, FLAG_SKIPPABLE)
    assert journal.end == position + HEADER_BYTES + size + -size % 8
    journal.flush()
    record = all_records(disk)[-1]
    assert record.position == position
    assert (record.kind, record.flags, record.time_us) == (Kind.COUNTS, FLAG_SKIPPABLE, -5)
    assert record.body == b"x" * size + bytes(-size % 8)
    assert record == record_at(disk, position, SEGMENT)
    assert record.crc == journal.last_crc


def test_large_bodies_take_the_other_path_to_the_same_bytes(disk):
    journal = Journal.create(disk, segment_size=1 << 20)
    for size in (16383, 16384, 16385, 16391, 300001):
        journal.append(Kind.COUNTS, b"y" * size, 1)
    journal.flush()
    assert [len(record.body.rstrip(b"\0")) for record in all_records(disk)[2:]] == [
        16383,
        16384,
        16385,
        16391,
        300001,
    ]


def test_a_record_states_what_was_durable_when_it_was_built(disk, journal):
    before = journal.durable
    first = journal.append(Kind.COUNTS, b"1", 1)
    journal.flush()
    job = journal.next_sync()
    assert job is not None
    second = journal.append(Kind.COUNTS, b"2", 1)
    assert job.upto == second
    job.run()
    assert journal.durable == before
    journal.synced(job)
    assert journal.durable == second
    third = journal.append(Kind.COUNTS, b"3", 1)
    journal.flush()
    stated = {record.position: record.durable for record in all_records(disk)}
    assert (stated[first], stated[second], stated[third]) == (before, before, second)


def test_one_sync_at_a_time_and_the_next_covers_all_written(journal):
    assert journal.next_sync() is None
    journal.append(Kind.COUNTS, b"1", 1)
    assert journal.next_sync() is None  # nothing is written yet
    journal.flush()
    job = journal.next_sync()
    assert job is not None
    journal.append(Kind.COUNTS, b"2", 1)
    journal.flush()
    written = journal.written
    journal.append(Kind.COUNTS, b"3", 1)
    assert journal.next_sync() is None
    job.run()
    journal.synced(job)
    job = journal.next_sync()
    assert job is not None
    assert job.upto == written < journal.end
    journal.synced(job)
    journal.synced(job)  # a completion that comes twice changes nothing
    assert journal.durable == written


def test_flushing_nothing_writes_nothing(disk):
    faulty = FaultyDisk(disk)
    journal = Journal.create(faulty, segment_size=SEGMENT)
    writes = faulty.counts["write"]
    journal.flush()
    assert faulty.counts["write"] == writes
    for number in range(5):
        journal.append(Kind.COUNTS, body(number), 1)
    journal.flush()
    assert faulty.counts["write"] == writes + 1


def test_appended_counts_records(journal):
    before = journal.appended
    journal.append(Kind.COUNTS, b"1", 1)
    assert journal.appended == before + 1
    journal.flush()
    journal.append(Kind.COUNTS, b"2", 1)
    assert journal.appended == before + 2


# ----------------------------------------------------------------------------------------- segments


@pytest.mark.parametrize("size", [16, 24, 100, 1000, 2500])
def test_segments_follow_one_another(size):
    disk = filled(3 * SEGMENT // (size + 56), size)
    records = all_records(disk)
    for one, two in pairwise(records):
        assert one.end == two.position
        left = SEGMENT - one.end % SEGMENT
        assert left == SEGMENT or left >= HEADER_BYTES
    bases = [record.position for record in records if record.kind == Kind.SEGMENT]
    assert len(bases) >= 3
    assert bases == list(range(0, bases[-1] + 1, SEGMENT))
    for record in records:
        assert (record.kind == Kind.SEGMENT) == (record.position % SEGMENT == 0)
        if record.kind == Kind.PAD:
            assert record.end % SEGMENT == 0
    facts = [record.body.rstrip(b"\0") for record in records if record.kind == Kind.COUNTS]
    assert facts == [body(number, size) for number in range(len(facts))]


def test_a_record_may_fill_a_segment_exactly(disk, journal):
    left = SEGMENT - journal.end
    for leaves in (8, 16, 40):
        with_gap = Journal.create(MemoryDisk(), segment_size=SEGMENT)
        with_gap.append(Kind.COUNTS, bytes(left - HEADER_BYTES - leaves), 1)
        assert with_gap.end > SEGMENT  # a PAD header would not have fitted behind it
    journal.append(Kind.COUNTS, bytes(left - HEADER_BYTES - 200), 1)
    journal.append(Kind.COUNTS, bytes(200 - HEADER_BYTES), 1)
    assert journal.end == SEGMENT
    position = journal.append(Kind.COUNTS, b"next", 1)
    journal.flush()
    kinds = [record.kind for record in all_records(disk)]
    assert kinds[-2:] == [Kind.SEGMENT, Kind.COUNTS]
    assert Kind.PAD not in kinds
    assert position == SEGMENT + 80


def test_the_largest_body_fits_any_segment(disk, journal):
    make_spares(journal)
    with pytest.raises(RecordTooLarge, match=str(journal.max_body)):
        journal.append(Kind.COUNTS, bytes(journal.max_body + 8), 1)
    for _ in range(2):
        journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    commit(journal)
    assert [record.kind for record in all_records(disk)][2:] == [
        Kind.PAD,
        Kind.SEGMENT,
        Kind.COUNTS,
        Kind.PAD,
        Kind.SEGMENT,
        Kind.COUNTS,
    ]


def test_a_group_may_span_segments(disk, journal):
    make_spares(journal)
    for number in range(300):
        journal.append(Kind.COUNTS, body(number, 64), 1)
    assert 4 * SEGMENT < journal.end < 5 * SEGMENT
    journal.flush()
    job = journal.next_sync()
    assert job is not None
    assert len(job.files) == 5
    job.run()
    journal.synced(job)
    assert journal.durable == journal.end
    facts = [record for record in all_records(disk) if record.kind == Kind.COUNTS]
    assert [record.body for record in facts] == [body(number, 64) for number in range(300)]


def test_without_a_spare_nothing_is_appended(journal):
    count = 0
    with pytest.raises(JournalFull):  # noqa: PT012 - the loop ends by raising
        while True:
            journal.append(Kind.COUNTS, bytes(1000), 1)
            count += 1
    end, crc = journal.end, journal.last_crc
    assert count > 8
    with pytest.raises(JournalFull):
        journal.append(Kind.COUNTS, bytes(1000), 1)
    assert (journal.end, journal.last_crc) == (end, crc)
    make_spares(journal)
    journal.append(Kind.COUNTS, bytes(1000), 1)


def test_segment_records_name_the_newest_durable_state_set(disk, journal):
    make_spares(journal)
    begin = journal.append(Kind.STATE, bytes(16), 1)
    end = journal.append(Kind.STATE, bytes(16), 1)
    journal.set_newest_state(begin, end)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)  # END is not durable yet
    commit(journal)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    journal.set_newest_state(Position(journal.end), Position(journal.end + 64))  # to come
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    journal.flush()
    stated = [
        control.SEGMENT.unpack(record.body)[2:]
        for record in all_records(disk)
        if record.kind == Kind.SEGMENT
    ]
    none = (NO_POSITION, NO_POSITION)
    assert stated == [none, none, (begin, end), (begin, end)]


# -------------------------------------------------------------------------------------------- space


def test_the_default_reserve():
    gib = 1 << 30
    small, large = MemoryDisk(capacity=gib), MemoryDisk(capacity=1000 * gib)
    assert default_reserve_bytes(small, 256 << 20) == gib // 25
    assert default_reserve_bytes(MemoryDisk(capacity=gib // 10), 256 << 20) == 16 << 20
    assert default_reserve_bytes(large, 256 << 20) == gib
    assert default_reserve_bytes(large, SEGMENT) == 4 * SEGMENT


def test_spares_cover_the_reserve(disk):
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=2 * SEGMENT + 1)
    assert disk.names("journal")[1:] == [segment_name(SEGMENT)[8:]]
    make_spares(journal)
    assert len(disk.names("journal")) == 4
    assert journal.wants_spare() is None


def test_one_allocation_at_a_time(journal):
    job = journal.wants_spare()
    assert job is not None
    assert job.base == 2 * SEGMENT
    assert journal.wants_spare() is None
    job.run()
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)  # rolls over meanwhile
    journal.spare_ready(job)
    zeros = journal.wants_spare()
    assert zeros is not None
    assert (zeros.base, zeros.made) == (2 * SEGMENT, True)
    zeros.run()
    journal.spare_ready(zeros)
    job = journal.wants_spare()
    assert job is not None
    assert job.base == 3 * SEGMENT


def test_a_full_disk_refuses_sends_and_keeps_the_reserve():
    disk = MemoryDisk(capacity=6 * SEGMENT)
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=2 * SEGMENT)
    make_spares(journal)
    sent = 0
    while journal.room() >= 1048:
        journal.append(Kind.COUNTS, bytes(1000), 1)
        commit(journal)
        sent += 1
    assert sent * 1048 > 2 * SEGMENT
    assert len(disk.names("journal")) == 6
    settled = 0
    while journal.room(reserve=True) > 200:
        journal.append(Kind.SETTLED, bytes(100), 1)
        settled += 1
    commit(journal)
    assert settled * 152 > SEGMENT


def test_the_fullest_journal_can_still_be_opened(disk):
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=0)
    while True:
        try:
            journal.append(Kind.SETTLED, bytes(8), 1)
        except JournalFull:
            break
    journal.close(2)
    for epoch in (2, 3):
        reopened = MemoryDisk(disk.image(), capacity=2 * SEGMENT)
        journal, report = open_journal(reopened, wall_us=3, reserve_bytes=0)
        assert (journal.epoch, report.clean) == (epoch, True)
        assert journal.wants_spare() is None or journal.room() <= 0
        journal.close(4)
        disk = reopened


def test_a_failed_allocation_closes_the_way_to_free_space():
    disk = MemoryDisk(capacity=100 * SEGMENT)
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=SEGMENT)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    assert journal.room() > 90 * SEGMENT
    job = journal.wants_spare()
    assert job is not None
    journal.spare_failed(job, NoSpace("somebody else was quicker"))
    assert journal.room() < 0
    assert journal.wants_spare() is None
    journal.retry_spare()
    assert journal.room() > 90 * SEGMENT
    assert journal.wants_spare() is not None


def test_retrying_waits_for_room(disk):
    disk.capacity = 2 * SEGMENT
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=2 * SEGMENT)
    make_spares(journal)
    journal.retry_spare()
    assert journal.wants_spare() is None
    disk.capacity = 3 * SEGMENT
    journal.retry_spare()
    assert journal.wants_spare() is not None


def test_room_shrinks_with_every_record(journal):
    before = journal.room()
    journal.append(Kind.COUNTS, bytes(16), 1)
    assert journal.room() == before - 64
    assert journal.room(reserve=True) == before - 64 + journal.reserve_bytes


# ---------------------------------------------------------------------------------------- retention


def test_old_segments_go(disk, journal):
    make_spares(journal)
    fill(journal, range(200), 100)
    assert journal.remove_first_segment() == segment_name(0)
    assert journal.first == SEGMENT
    assert disk.names("journal")[0] == segment_name(SEGMENT)[8:]
    again, _ = open_journal(disk, wall_us=1)
    assert again.first == SEGMENT


def test_the_active_segment_stays(journal):
    with pytest.raises(JournalFull):
        journal.remove_first_segment()
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    with pytest.raises(JournalFull):
        journal.remove_first_segment()  # what follows it is not durable
    commit(journal)
    journal.remove_first_segment()
    with pytest.raises(JournalFull):
        journal.remove_first_segment()


def test_a_removal_is_durable_before_the_next(disk):
    faulty = FaultyDisk(disk)
    journal = Journal.create(faulty, segment_size=SEGMENT)
    make_spares(journal)
    fill(journal, range(400), 100)
    synced = faulty.counts["sync_folder"]
    journal.remove_first_segment()
    assert faulty.counts["sync_folder"] == synced
    journal.remove_first_segment()
    assert faulty.counts["sync_folder"] == synced + 1
    journal.append(Kind.COUNTS, b"1", 1)
    commit(journal)
    assert faulty.counts["sync_folder"] == synced + 2
    journal.remove_first_segment()
    assert faulty.counts["sync_folder"] == synced + 2


# --------------------------------------------------------------------------------------------- tail


def test_the_tail_holds_the_newest_records(disk):
    journal = Journal.create(disk, segment_size=1 << 16, tail_bytes=1000)
    positions = []
    for number in range(50):
        positions.append(journal.append(Kind.COUNTS, body(number, 52), 1))
        assert journal.record(positions[-1]) is not None
        journal.flush()
    held = [position for position in positions if journal.record(position) is not None]
    assert held == positions[-len(held) :]
    assert 750 <= 104 * len(held) <= 1000
    for position in held:
        record = journal.record(position)
        assert record is not None
        assert record_at(disk, position, 1 << 16) == record_at(
            MemoryDisk({segment_name(0): bytes(position) + record}), position, 1 << 16
        )
    assert journal.record(positions[-1] + 8) is None
    assert journal.gather(held) == [journal.record(position) for position in held]
    assert journal.gather(positions[-len(held) - 1 :]) is None


def test_the_tail_forgets_across_segments(disk):
    journal = Journal.create(disk, segment_size=SEGMENT, tail_bytes=2000)
    make_spares(journal)
    kept: list[int] = []
    for number in range(1000):
        kept.append(journal.append(Kind.COUNTS, bytes(100), number))
        commit(journal)
        make_spares(journal)
        kept = [position for position in kept if journal.record(position) is not None]
        assert 1 <= len(kept) <= 2000 // 152


# --------------------------------------------------------------------------------------------- mark


def test_an_idle_journal_says_once_that_all_is_durable(disk, journal):
    journal.append(Kind.COUNTS, b"1", 1)
    assert journal.mark(5) is None  # not durable yet
    commit(journal)
    position = journal.mark(5)
    assert position is not None
    assert journal.mark(5) is None
    commit(journal)
    assert journal.mark(5) is None
    last = all_records(disk)[-1]
    assert (last.kind, last.position, last.durable) == (Kind.MARK, position, position)
    journal.append(Kind.COUNTS, b"2", 1)
    commit(journal)
    assert journal.mark(6) is not None


def test_no_room_for_a_mark_is_no_error(disk):
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=0)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    journal.append(Kind.MARK, bytes(SEGMENT * 2 - journal.end - HEADER_BYTES), 1)
    journal.flush()
    journal.sync_now()
    assert journal.mark(1) is None


# ------------------------------------------------------------------------------------------ failure


@pytest.mark.parametrize("kind", ["eio", "short", "late"])
def test_a_failed_write_ends_the_journal(disk, kind):
    faulty = FaultyDisk(disk, [Fault("write", 3, kind)])
    journal = Journal.create(faulty, segment_size=SEGMENT)
    journal.append(Kind.COUNTS, b"1", 1)
    commit(journal)
    durable = journal.durable
    journal.append(Kind.COUNTS, b"2", 1)
    with pytest.raises(JournalFailed) as caught:
        journal.flush()
    assert isinstance(caught.value.__cause__, DiskWriteError)
    assert_ended(journal, durable)


def test_a_failed_sync_ends_the_journal(disk):
    faulty = FaultyDisk(disk, [Fault("sync", 2)])
    journal = Journal.create(faulty, segment_size=SEGMENT)
    durable = journal.durable
    journal.append(Kind.COUNTS, b"1", 1)
    journal.flush()
    job = journal.next_sync()
    assert job is not None
    with pytest.raises(DiskSyncError) as caught:
        job.run()
    journal.failed(caught.value)
    assert_ended(journal, durable)
    job.run()  # would succeed, as kernels do
    journal.synced(job)
    assert_ended(journal, durable)
    assert journal.failure is caught.value


def assert_ended(journal: Journal, durable: int) -> None:
    for act in (
        lambda: journal.append(Kind.COUNTS, b"", 1),
        journal.flush,
        journal.next_sync,
        journal.sync_now,
        journal.remove_first_segment,
    ):
        with pytest.raises(JournalFailed):
            act()
    assert journal.wants_spare() is None
    assert journal.mark(1) is None
    assert journal.durable == durable


def test_a_spare_that_cannot_be_opened_ends_the_journal(disk, journal):
    disk.remove(segment_name(SEGMENT))
    with pytest.raises(JournalFailed):
        journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    with pytest.raises(JournalFailed):
        journal.append(Kind.COUNTS, b"", 1)


def test_a_failed_unlink_ends_the_journal(disk):
    faulty = FaultyDisk(disk, [Fault("remove", 1)])
    journal = Journal.create(faulty, segment_size=SEGMENT)
    make_spares(journal)
    fill(journal, range(200), 100)
    with pytest.raises(JournalFailed):
        journal.remove_first_segment()


# -------------------------------------------------------------------------------------------- close


def test_a_clean_stop_ends_with_its_mark(disk, journal):
    journal.append(Kind.COUNTS, b"1", 1)
    journal.close(9)
    last = all_records(disk)[-1]
    assert (last.kind, last.durable, last.time_us) == (Kind.MARK, last.position, 9)
    assert last.flags


def test_a_stop_without_room_for_the_mark_loses_nothing(disk):
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=0)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    journal.append(Kind.MARK, bytes(SEGMENT * 2 - journal.end - HEADER_BYTES), 1)
    journal.close(9)
    assert all_records(disk)[-1].flags == 0
    assert journal.durable == journal.end


def test_an_unclean_close_writes_nothing(disk, journal):
    journal.append(Kind.COUNTS, b"1", 1)
    image = disk.image()
    journal.close()
    assert disk.image() == image


# --------------------------------------------------------------------------------------------- scan


def test_a_reader_goes_on_after_a_live_writer(disk, journal):
    records = all_records(disk)
    end, crc, epoch = records[-1].end, records[-1].crc, records[-1].epoch
    assert list(scan(disk, end, segment_size=SEGMENT, prev_crc=crc, epoch=epoch)) == []
    make_spares(journal)
    fill(journal, range(300), 64)
    more = list(scan(disk, end, segment_size=SEGMENT, prev_crc=crc, epoch=epoch))
    assert records + more == all_records(disk)
    assert len([record for record in more if record.kind == Kind.COUNTS]) == 300


def test_scanning_nothing():
    assert list(scan(MemoryDisk(), 0)) == []
    with pytest.raises(CorruptJournal):
        scan(MemoryDisk({segment_name(0): bytes(8192)}), 0)


def test_records_larger_than_a_read_are_read_whole():
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=1 << 24)
    for size in (70_000, 10, 5_000_000, 300_000, 1):
        journal.append(Kind.COUNTS, b"z" * size, 1)
    journal.flush()
    sizes = [len(record.body.rstrip(b"\0")) for record in all_records(disk)[2:]]
    assert sizes == [70_000, 10, 5_000_000, 300_000, 1]


def test_unknown_kinds_are_refused_unless_skippable(disk, journal):
    journal.append(99, b"later", 1, FLAG_SKIPPABLE)
    journal.flush()
    assert all_records(disk)[-1].kind == 99
    position = journal.append(99, b"later", 1)
    journal.flush()
    with pytest.raises(UnknownRecordKind, match=str(position)):
        all_records(disk)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 1, "CRC"),
        (4, 1, "magic"),
        (8, 255, "length"),
        (8, 3, "length"),
        (12, 9, "version"),
        (16, 1, "belongs to position"),
        (40, 0, "epoch"),
        (44, 1, "chain"),
        (60, 1, "CRC"),
    ],
)
def test_the_fault_is_named(disk, journal, at, value, reason):
    position = journal.append(Kind.COUNTS, b"0123456789", 1)
    journal.flush()
    file = disk.open(segment_name(0))
    old = file.pread(1, position + at)[0]
    file.pwrite(bytes([value if at in (8, 40) else old ^ value]), position + at)
    scanner = Scanner(disk, 0, segment_size=SEGMENT, prev_crc=0)
    assert [record.kind for record in scanner] == [Kind.SEGMENT, Kind.EPOCH]
    assert reason in scanner.fault


# -------------------------------------------------------------------------------------- sync thread


def test_the_sync_thread_runs_jobs_in_order_and_reports_errors(tmp_path):
    disk = RealDisk(tmp_path)
    journal = Journal.create(disk, segment_size=SEGMENT)
    done: queue.SimpleQueue[tuple[object, Exception | None]] = queue.SimpleQueue()
    thread = SyncThread(lambda job, error: done.put((job, error)))
    for number in range(20):
        journal.append(Kind.COUNTS, body(number), 1)
        journal.flush()
        job = journal.next_sync()
        assert job is not None
        thread.submit(job)
        assert done.get(timeout=60) == (job, None)
        journal.synced(job)
    assert journal.durable == journal.end

    class Broken:
        def run(self) -> None:
            raise DiskSyncError("broken")

    broken = Broken()
    thread.submit(broken)
    spare = journal.wants_spare()
    assert spare is not None
    thread.submit(spare)
    thread.close()
    ran, error = done.get(timeout=60)
    assert ran is broken
    assert isinstance(error, DiskSyncError)
    assert done.get(timeout=60) == (spare, None)
    journal.spare_ready(spare)
    journal.close()
