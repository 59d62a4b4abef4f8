"""The copy of a journal: written, synced, compared, cut; what COPY says of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ternmq.cluster.replication.incoming import Incoming
from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.checkpoint import Checkpoint, end_if_held
from ternmq.journal.log.copy_file import CopyNote, read_note
from ternmq.journal.log.scan import record_at
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.recovery.kept import REPAIR_FOLDER
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.errors import CorruptJournal, DiskSyncError, JournalFailed, JournalFull
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.fact.header import Kind
from tests.unit.journal.copy.kit import (
    NEW,
    OLD,
    PARTED,
    SIZE,
    begun,
    copied,
    dirt_behind,
    follow,
    opened,
    records_of,
)
from tests.unit.journal.kit import crafted, filled, open_views


@pytest.fixture(params=["memory", "real"])
def disk(request, tmp_path) -> Disk:
    return MemoryDisk() if request.param == "memory" else RealDisk(tmp_path)


# ----------------------------------------------------------------------------------------- writing


def test_a_copy_has_the_bytes_of_the_journal(disk):
    copy = begun(disk)
    assert (copy.end, copy.durable, copy.last, copy.last_crc, copy.last_epoch) == (0, 0, None, 0, 0)
    follow(copy, OLD)
    assert copy.end == OLD.end
    assert copy.last_crc == OLD.all[-1].crc
    assert copy.last_epoch == 2
    copy.close()
    for base in range(0, OLD.end, SIZE):
        file = disk.open(segment_name(base))
        stop = min(SIZE, OLD.end - base)
        assert file.pread(stop, 0) == OLD.image[segment_name(base)][:stop]
        assert file.size() == SIZE
        file.close()


def test_an_empty_folder_is_none_until_a_copy_is_begun(disk):
    assert Copy.open(disk) is None
    assert disk.names("journal") == []
    assert read_note(disk) is None
    begun(disk).close()
    assert read_note(disk) == CopyNote(Position(0), Position(0), Epoch(1))
    assert Copy.open(disk) is None  # COPY is there, and no record


def test_a_copy_that_has_nothing_keeps_what_it_was_told(disk):
    copy = begun(disk)
    copy.tell(committed=Position(800), told=Epoch(7))
    copy.sync_all()
    copy.close()
    assert Copy.open(disk) is None
    copy = begun(disk)
    assert (copy.committed, copy.told) == (800, 7)


def test_a_copy_may_begin_at_a_later_segment(disk):
    copy = begun(disk, Position(SIZE))
    assert (copy.first, copy.end, copy.durable, copy.last_crc) == (SIZE, SIZE, SIZE, None)
    follow(copy, OLD)
    assert copy.durable == SIZE
    copy.sync_all()
    copy.close()
    again = opened(disk)
    assert (again.first, again.end, again.durable) == (SIZE, OLD.end, OLD.end)
    assert records_of(disk, OLD.end) == [one for one in OLD.records if one[0] >= SIZE]


def test_begin_refuses_a_folder_with_records_and_a_wrong_place(disk):
    with pytest.raises(ValueError, match="no segment begins"):
        begun(disk, Position(8))
    copy = begun(disk)
    follow(copy, OLD)
    copy.close()
    with pytest.raises(ValueError, match="has a journal"):
        begun(disk)


def test_begin_removes_what_was_never_synced(disk):
    begun(disk, Position(2 * SIZE)).close()
    copy = begun(disk)
    assert segment_bases(disk) == [0]
    follow(copy, OLD)
    assert records_of(disk, OLD.end) == OLD.records


@pytest.mark.parametrize("count", [1, 3, 50, 1000])
def test_pieces_of_the_stream_are_what_write_takes(count):
    """From one record at a time to the whole journal, which is several segments."""
    disk = MemoryDisk()
    copy = begun(disk)
    incoming = Incoming(
        segment_size=SIZE,
        end=copy.end,
        last_crc=copy.last_crc,
        last_epoch=copy.last_epoch,
        followed=Epoch(2),
    )
    for at in range(0, len(OLD.all), count):
        part = OLD.all[at : at + count]
        data = b"".join(map(OLD.bytes_of, part))
        pieces = incoming.take(part[0].position, Epoch(2), data)
        last = Checkpoint(part[-1].position, incoming.last_epoch, part[-1].crc)
        copy.write(pieces, end=incoming.end, last=last)
        assert (copy.end, copy.last_crc) == (incoming.end, incoming.last_crc)
    assert records_of(disk, OLD.end) == OLD.records


def test_bytes_that_do_not_follow_are_refused():
    disk = MemoryDisk()
    copy = begun(disk)
    first, second, third, *_ = OLD.batches()
    first.to(copy)
    image = disk.image()
    last = third.last
    for pieces, end in (
        (third.pieces, third.end),  # not the next
        (first.pieces, first.end),  # again
        (second.pieces, Position(second.end + SIZE)),
        (second.pieces, copy.end),
        ([], second.end),
        ([(copy.end, b"")], second.end),
        ([(copy.end, bytes(SIZE))], second.end),  # in two segments
        ([*second.pieces, (Position(3 * SIZE), b"x" * 48)], Position(3 * SIZE + 48)),  # a gap
    ):
        with pytest.raises(ValueError, match=r"bytes from|pieces"):
            copy.write(pieces, end=end, last=last)
    assert disk.image() == image
    assert copy.failure is None
    second.to(copy)
    assert copy.end == second.end


def test_a_spare_that_a_job_made_is_used():
    inner = MemoryDisk()
    disk = FaultyDisk(inner)
    copy = Copy.make(
        disk, first=Position(0), segment_size=SIZE, told=Epoch(1), reserve_bytes=2 * SIZE
    )
    made = disk.counts["allocate"]
    for batch in OLD.batches(count=3):
        while (job := copy.wants_spare()) is not None:
            job.run()
            copy.spare_ready(job)
        before = disk.counts["allocate"]
        batch.to(copy)
        assert disk.counts["allocate"] == before
    assert made < disk.counts["allocate"]
    assert records_of(inner, OLD.end) == OLD.records


def test_while_the_next_segment_is_being_made_a_write_waits():
    disk = MemoryDisk()
    copy = begun(disk)
    job = copy.wants_spare()
    assert job is not None
    waiting = None
    for batch in OLD.batches(count=3):
        if waiting is None and batch.end > SIZE:
            image = disk.image()
            with pytest.raises(JournalFull):
                batch.to(copy)
            assert copy.spare_is_coming
            assert disk.image() == image
            waiting = batch
            job.run()
            copy.spare_ready(job)
        batch.to(copy)
    assert waiting is not None
    assert records_of(disk, OLD.end) == OLD.records


def test_no_zeros_are_written_into_the_next_segment():
    copy = Copy.make(
        MemoryDisk(), first=Position(0), segment_size=SIZE, told=Epoch(1), reserve_bytes=2 * SIZE
    )
    for _ in range(2):
        job = copy.wants_spare()
        assert job is not None
        assert not job.made
        assert not job.written
        job.run()
        copy.spare_ready(job)
    assert copy.wants_spare() is None
    follow(copy, OLD, SIZE)
    *_, last = OLD.batches(stop=2 * SIZE, count=1)
    follow(copy, OLD, last.end)  # into the segment that was made ahead
    job = copy.wants_spare()
    assert job is None or not job.made


def test_a_full_disk_writes_nothing_and_the_same_call_passes_later():
    disk = MemoryDisk(capacity=SIZE + 4096)
    copy = begun(disk)
    refused = 0
    for batch in OLD.batches(count=20):
        try:
            batch.to(copy)
        except JournalFull:
            refused += 1
            end, image = copy.end, disk.image()
            with pytest.raises(JournalFull):
                batch.to(copy)
            assert disk.image() == image
            assert copy.end == end
            disk.capacity = 1 << 30
            batch.to(copy)
    assert refused == 1
    assert records_of(disk, OLD.end) == OLD.records


def test_a_failed_write_ends_the_copy():
    disk = FaultyDisk(MemoryDisk())
    copy = begun(disk)
    first, second, *_ = OLD.batches()
    first.to(copy)
    disk.plan([Fault("write", disk.counts["write"] + 1, "short")])
    with pytest.raises(JournalFailed):
        second.to(copy)
    assert copy.end == first.end
    assert copy.failure is not None
    calls: list[Callable[[], object]] = [
        lambda: second.to(copy),
        copy.next_sync,
        copy.sync_all,
        lambda: copy.cut(first.end),
        lambda: copy.remove_below(Position(0), needs=Position(0)),
    ]
    for call in calls:
        with pytest.raises(JournalFailed):
            call()
    assert copy.wants_spare() is None


# -------------------------------------------------------------------------------------- sync, COPY


def test_a_sync_moves_durable_to_what_was_written_when_it_began():
    disk = MemoryDisk()
    copy = begun(disk)
    first, second, *_ = OLD.batches()
    assert copy.next_sync() is None
    first.to(copy)
    copy.tell(committed=Position(100), told=Epoch(2))
    job = copy.next_sync()
    assert job is not None
    assert copy.next_sync() is None
    second.to(copy)
    job.run()
    assert copy.durable == 0
    copy.synced(job)
    assert copy.durable == first.end
    assert read_note(disk) == CopyNote(first.end, Position(100), Epoch(2)) == copy.stated
    again = copy.next_sync()
    assert again is not None
    again.run()
    copy.synced(job)  # an old one counts for nothing
    assert copy.durable == first.end
    copy.synced(again)
    assert copy.durable == second.end
    assert copy.next_sync() is None


def test_copy_is_written_after_the_bytes_are_synced():
    """Else a power cut between the two would leave a lie."""
    files = len(range(0, OLD.end, SIZE))
    for number in range(1, files + 1):
        inner = MemoryDisk()
        disk = FaultyDisk(inner)
        copy = begun(disk)
        follow(copy, OLD)
        job = copy.next_sync()
        assert job is not None
        assert len(job.files) == files
        disk.plan([Fault("sync", disk.counts["sync"] + number)])
        with pytest.raises(DiskSyncError):
            job.run()
        assert read_note(inner) == CopyNote(Position(0), Position(0), Epoch(1))


def test_what_was_told_is_written_without_a_byte_and_never_falls():
    disk = MemoryDisk()
    copy = begun(disk)
    copy.tell(told=Epoch(5))
    job = copy.next_sync()
    assert job is not None
    assert job.files == ()
    job.run()
    copy.synced(job)
    assert copy.stated.told == 5
    copy.tell(told=Epoch(3))
    assert copy.next_sync() is None
    copy.tell(committed=Position(64))
    copy.sync_all()
    copy.tell(committed=Position(8))
    assert read_note(disk) == CopyNote(Position(0), Position(64), Epoch(5))


def test_what_was_promised_outlives_a_cut_a_restart_and_a_copy_that_is_made_anew():
    disk = MemoryDisk()
    copy = begun(disk)
    follow(copy, OLD)
    copy.tell(promise_ms=60_000)
    assert copy.stored_promise_ms == 0
    copy.sync_all()
    assert copy.stored_promise_ms == 60_000
    copy.cut(PARTED)
    assert copy.promise_ms == copy.stored_promise_ms == 60_000
    copy.close()
    again = Copy.open(disk)
    assert again is not None
    assert again.promise_ms == again.stored_promise_ms == 60_000
    again.tell(promise_ms=1000)  # not synced yet: a kill leaves the longer one
    again.discard(Position(1 << 40))
    made = begun(disk)
    assert made.promise_ms == made.stored_promise_ms == 60_000


def test_a_shorter_promise_counts_from_when_its_sync_begins():
    """A kill may leave either of them on the disk."""
    copy = begun(MemoryDisk())
    copy.tell(promise_ms=9000)
    copy.sync_all()
    copy.tell(promise_ms=700)
    assert copy.stored_promise_ms == 9000
    job = copy.next_sync()
    assert job is not None
    assert copy.stored_promise_ms == 700
    job.run()
    copy.synced(job)
    copy.tell(promise_ms=9000)
    assert copy.stored_promise_ms == 700
    job = copy.next_sync()
    assert job is not None
    assert copy.stored_promise_ms == 700


@pytest.mark.parametrize("call", ["sync", "write"])
def test_a_failed_sync_ends_the_copy(call):
    disk = FaultyDisk(MemoryDisk())
    copy = begun(disk)
    follow(copy, OLD, 2000)
    disk.plan([Fault(call, disk.counts[call] + 1)])
    with pytest.raises(JournalFailed):
        copy.sync_all()
    with pytest.raises(JournalFailed):
        copy.sync_all()
    assert copy.durable == 0


def test_a_sync_that_ends_after_a_failure_is_not_believed():
    copy = begun(MemoryDisk())
    follow(copy, OLD, 2000)
    job = copy.next_sync()
    assert job is not None
    with pytest.raises(ValueError, match="at work"):
        copy.sync_all()
    copy.failed(OSError("a thread died"))
    job.run()
    copy.synced(job)
    assert copy.durable == 0


def test_no_descriptor_is_kept_of_segments_that_are_full(tmp_path, monkeypatch):
    closed: list[str] = []
    disk = RealDisk(tmp_path)
    copy = begun(disk)
    opening = disk.open

    def watching(name, *, create=False):
        file = opening(name, create=create)
        closing = file.close

        class Watched:
            def __getattr__(self, name):
                return getattr(file, name)

            def close(self):
                closed.append(file.name)
                closing()

        return Watched()

    monkeypatch.setattr(disk, "open", watching)
    for batch in OLD.batches(count=1):
        batch.to(copy)
        copy.sync_all()
    names = {segment_name(base) for base in range(SIZE, OLD.end - SIZE, SIZE)}
    assert names <= set(closed)
    copy.close()
    disk.close()


# ------------------------------------------------------------------------------------ what it has


def test_checkpoints_are_the_last_record_the_epochs_and_the_segments():
    disk = MemoryDisk()
    copy = begun(disk)
    assert copy.checkpoints() == []
    follow(copy, NEW)
    by_position = {one.position: one for one in NEW.all}
    found = copy.checkpoints()
    positions = [one.position for one in found]
    assert positions == sorted(set(positions), reverse=True)
    assert all(
        by_position[one.position].crc == one.crc and by_position[one.position].epoch == one.epoch
        for one in found
    )
    assert positions[0] == NEW.all[-1].position
    assert set(range(0, NEW.end, SIZE)) <= set(positions)
    assert PARTED in positions  # the first record of epoch 3
    assert copy.checkpoints(3) == [found[0], found[1], found[-1]]
    copy.sync_all()
    copy.close()
    assert opened(disk).checkpoints() == found


def test_the_other_journal_names_the_checkpoint_that_it_has():
    copy = opened(copied(OLD))
    other = MemoryDisk(NEW.image)
    held = [
        end_if_held(other, one, first=Position(0), end=NEW.end, segment_size=SIZE)
        for one in copy.checkpoints()
    ]
    common = next(end for end in held if end is not None)
    assert common <= PARTED
    assert common in NEW.ends
    assert held[0] is None


def test_a_checkpoint_outside_or_of_another_epoch_is_not_held():
    disk = MemoryDisk(OLD.image)
    one = OLD.all[30]
    checkpoint = Checkpoint(one.position, Epoch(one.epoch), one.crc)

    def held(checkpoint: Checkpoint, first: int = 0, end: int = OLD.end) -> Position | None:
        return end_if_held(
            disk, checkpoint, first=Position(first), end=Position(end), segment_size=SIZE
        )

    assert held(checkpoint) == one.end
    assert held(checkpoint, end=one.end) == one.end
    assert held(checkpoint, end=one.position) is None
    assert held(checkpoint, end=one.end - 8) is None
    assert held(checkpoint, first=one.position // SIZE * SIZE + SIZE) is None
    assert held(checkpoint._replace(epoch=Epoch(one.epoch + 1))) is None
    assert held(checkpoint._replace(crc=one.crc ^ 1)) is None
    assert held(checkpoint._replace(position=Position(one.position + 1))) is None
    assert held(checkpoint._replace(position=Position(one.position + 8))) is None


def test_a_copy_of_a_record_inside_a_message_is_no_record():
    """The message was made so that its body is, at its place, a record of the other history."""
    disk = MemoryDisk()
    journal, *_ = open_views(disk, segment_size=SIZE)
    inside = Position(journal.end + 48)
    journal.append(Kind.COUNTS, crafted(inside, durable=0), 1)
    journal.flush()
    fake = record_at(disk, inside, SIZE)
    assert fake is not None
    checkpoint = Checkpoint(inside, Epoch(fake.epoch), fake.crc)
    assert (
        end_if_held(disk, checkpoint, first=Position(0), end=journal.end, segment_size=SIZE) is None
    )


def test_own_records_are_compared_with_what_a_stream_brings():
    copy = opened(copied(OLD))
    same = 0
    for one in NEW.all:
        own = copy.record(one.position)
        if own is None or (own.crc, own.epoch) != (one.crc, one.epoch):
            break
        assert own.end == one.end
        same = own.end
    assert same == PARTED
    assert copy.record(OLD.end) is None
    assert copy.record(Position(OLD.all[3].position + 8)) is None


# ------------------------------------------------------------------------------------ cut, removal


@pytest.mark.parametrize("synced", [True, False])
def test_a_cut_leaves_what_the_histories_have_in_common(disk, synced):
    copy = begun(disk)
    follow(copy, OLD)
    copy.tell(committed=PARTED, told=Epoch(3))
    if synced:
        copy.sync_all()
    copy.cut(PARTED)
    at = OLD.ends.index(PARTED)
    last = OLD.all[at]
    assert (copy.end, copy.durable) == (PARTED, PARTED)
    assert copy.last == Checkpoint(last.position, Epoch(last.epoch), last.crc)
    assert read_note(disk) == CopyNote(PARTED, PARTED, Epoch(3)) == copy.stated
    assert not dirt_behind(disk, PARTED)
    assert segment_bases(disk) == list(range(0, PARTED, SIZE))
    assert all(one.position < PARTED for one in copy.checkpoints())
    follow(copy, NEW)
    copy.sync_all()
    copy.close()
    again = opened(disk)
    assert again.end == NEW.end
    assert records_of(disk, NEW.end) == NEW.records


def test_the_bytes_that_were_cut_are_kept():
    disk = copied(OLD)
    opened(disk).cut(PARTED)
    kept = disk.names(REPAIR_FOLDER)
    found = b"".join(disk.image()[f"{REPAIR_FOLDER}/{name}"] for name in kept)
    for one in OLD.all:
        if one.position >= PARTED:
            assert OLD.bytes_of(one).rstrip(b"\0") in found
    assert all(name.startswith("copy-00000001-") for name in kept)


@pytest.mark.parametrize("at", sorted({*range(SIZE, OLD.end, SIZE), OLD.ends[1], OLD.ends[-2]}))
def test_a_cut_at_a_segments_end_and_elsewhere(at):
    disk = copied(OLD)
    copy = opened(disk)
    copy.cut(Position(at))
    assert records_of(disk, at) == [one for one in OLD.records if one[0] < at]
    assert not dirt_behind(disk, Position(at))
    follow(copy, OLD)
    copy.sync_all()
    assert records_of(disk, OLD.end) == OLD.records
    assert opened(disk).end == OLD.end


def test_a_cut_below_the_commit_mark_needs_somebody_who_accepts_the_loss():
    disk = copied(OLD)
    copy = opened(disk)
    copy.tell(committed=Position(PARTED + 8))
    image = disk.image()
    with pytest.raises(ValueError, match="committed"):
        copy.cut(PARTED)
    assert disk.image() == image
    copy.cut(PARTED, accept_loss=True)
    assert (copy.end, copy.committed) == (PARTED, PARTED)
    assert read_note(disk) == CopyNote(PARTED, PARTED, Epoch(1))


def test_a_cut_is_refused_where_no_record_ends_and_beside_jobs():
    disk = copied(OLD)
    copy = opened(disk)
    image = disk.image()
    for at in (PARTED - 8, 0, OLD.end + 8, -8):
        with pytest.raises(ValueError, match=r"no record ends|the copy has"):
            copy.cut(Position(at))
    job = copy.wants_spare()
    assert job is not None
    with pytest.raises(ValueError, match="at work"):
        copy.cut(PARTED)
    assert disk.image() == image
    assert copy.failure is None
    copy.spare_failed(job, OSError())
    copy.cut(OLD.end)  # nothing to cut
    assert disk.image() == image


def test_a_failure_in_a_cut_ends_the_copy_and_the_next_start_finishes_it():
    inner = copied(OLD)
    disk = FaultyDisk(inner)
    copy = opened(disk)
    disk.plan([Fault("remove", 1)])
    with pytest.raises(JournalFailed):
        copy.cut(PARTED)
    assert copy.failure is not None
    note = read_note(inner)
    assert note is not None
    assert note.cut_to == PARTED
    image = inner.image()
    ending = find_end(inner)
    assert ending is not None
    assert ending.valid_end == PARTED
    assert inner.image() == image
    again = opened(inner)
    assert again.end == PARTED
    assert read_note(inner) == CopyNote(PARTED, Position(0), Epoch(1))
    assert not dirt_behind(inner, PARTED)


def test_segments_are_removed_as_the_primary_removed_them():
    disk = copied(OLD)
    copy = opened(disk)
    with pytest.raises(ValueError, match="cannot go"):
        copy.remove_below(Position(SIZE), needs=Position(OLD.end + 8))
    with pytest.raises(ValueError, match="cannot go"):
        copy.remove_below(Position(SIZE), needs=Position(SIZE))
    with pytest.raises(ValueError, match="cannot go"):
        copy.remove_below(Position(SIZE + 8), needs=OLD.end)
    with pytest.raises(ValueError, match="cannot go"):
        copy.remove_below(Position(OLD.end // SIZE * SIZE + SIZE), needs=OLD.end)
    names = copy.remove_below(Position(2 * SIZE), needs=OLD.end)
    assert names == [segment_name(0), segment_name(SIZE)]
    assert segment_bases(disk)[0] == copy.first == 2 * SIZE
    assert copy.remove_below(Position(2 * SIZE), needs=OLD.end) == []
    assert min(one.position for one in copy.checkpoints()) == 2 * SIZE
    copy.close()
    assert opened(disk).first == 2 * SIZE


def test_the_folder_is_synced_between_two_removals_and_after_the_last():
    disk = FaultyDisk(copied(OLD))
    copy = opened(disk)
    before = disk.counts["sync_folder"]
    copy.remove_below(Position(2 * SIZE), needs=OLD.end)
    assert disk.counts["sync_folder"] == before + 2  # also before the first: see the next start
    copy.tell(told=Epoch(9))
    copy.sync_all()
    assert disk.counts["sync_folder"] == before + 3


# ------------------------------------------------------------------------ an ordinary folder, COPY


def test_an_ordinary_folder_becomes_a_copy_and_is_a_journal_again(disk):
    for name, data in OLD.image.items():
        file = disk.open(name, create=True)
        file.pwrite(data, 0)
        file.close()
    copy = opened(disk)
    assert read_note(disk) == CopyNote(OLD.end, Position(0), Epoch(2))
    copy.tell(told=Epoch(6))
    copy.sync_all()
    copy.close()
    journal, report = open_journal(disk, wall_us=1)
    assert report.epoch == 7  # above all that it was told of
    assert (report.valid_end, report.durable) == (OLD.end, OLD.end)
    assert read_note(disk) is None
    assert records_of(disk, journal.end)[: len(OLD.records)] == OLD.records
    journal.close()


def test_a_journal_is_not_begun_in_the_folder_of_an_empty_copy():
    disk = MemoryDisk()
    begun(disk).close()
    image = disk.image()
    with pytest.raises(CorruptJournal, match="none of its records") as caught:
        open_journal(disk, wall_us=1)
    assert "delete the file COPY" in caught.value.hint
    assert disk.image() == image


def test_a_folder_that_lost_its_segments_is_not_taken_for_an_empty_copy():
    disk = copied(OLD)
    for base in segment_bases(disk):
        disk.remove(segment_name(base))
    for call in (lambda: Copy.open(disk), lambda: open_journal(disk, wall_us=1)):
        with pytest.raises(CorruptJournal, match="there is none"):
            call()


def test_a_folder_that_is_half_made_is_an_empty_one():
    disk = filled(3)
    whole = disk.image()
    half = MemoryDisk({name: bytes(len(data)) for name, data in whole.items()})
    assert Copy.open(half) is None


# ------------------------------------------------------------------------------------ begun anew


def test_a_stream_does_not_go_on_behind_another_history(disk):
    """The primary has removed all that both had; its first segment begins where a record ends."""
    copy = begun(disk)
    assert copy.leads_to(Position(0), Position(NO_POSITION))
    assert not copy.leads_to(Position(SIZE), Position(NO_POSITION))
    follow(copy, OLD)
    first = Position(-(-PARTED // SIZE) * SIZE)
    assert copy.first < first < copy.end
    assert not copy.leads_to(first, Position(NO_POSITION))
    assert copy.leads_to(Position(0), Position(OLD.records[3][0]))


def test_a_copy_is_discarded_and_made_anew(disk):
    copy = begun(disk)
    follow(copy, OLD)
    copy.tell(committed=Position(SIZE), told=Epoch(5))
    copy.sync_all()
    first = Position(2 * SIZE)
    copy.discard(first)
    assert segment_bases(disk) == []
    assert Copy.open(disk) is None
    anew = begun(disk, first)
    assert (anew.first, anew.end, anew.committed, anew.told) == (first, first, SIZE, 5)


@pytest.mark.parametrize("promised", [PARTED, 0])
def test_what_was_committed_is_kept_aside_if_its_loss_was_accepted(disk, promised):
    copy = begun(disk)
    follow(copy, OLD)
    copy.tell(committed=OLD.end, told=Epoch(5))
    copy.sync_all()
    first = Position(-(-PARTED // SIZE) * SIZE)
    kept_from = max(promised, OLD.ends[0])
    with pytest.raises(ValueError, match="is committed"):
        copy.discard(Position(0), promised=PARTED)
    copy.discard(first, promised=Position(promised))
    assert Copy.open(disk) is None
    kept = [one for one in disk.names(REPAIR_FOLDER) if one.startswith("copy-")]
    assert len(kept) == len(range(kept_from // SIZE, -(-OLD.end // SIZE)))
    data = b""
    for name in sorted(kept):
        file = disk.open(f"{REPAIR_FOLDER}/{name}")
        data += file.pread(file.size(), 0)
        file.close()
    last = OLD.image[segment_name((OLD.end - 1) // SIZE * SIZE)][: (OLD.end - 1) % SIZE + 1]
    assert last.rstrip(b"\0") in data
    anew = begun(disk, first)
    assert (anew.first, anew.committed) == (first, promised)


def test_a_copy_that_removed_all_that_is_promised_is_kept_aside_and_made_anew(disk):
    copy = begun(disk)
    follow(copy, OLD)
    copy.tell(committed=OLD.end)
    copy.sync_all()
    copy.remove_below(Position(2 * SIZE), needs=OLD.end)
    promised = OLD.ends[1]
    assert 0 < promised < copy.first
    copy.discard(Position(0), promised=promised)
    assert [one for one in disk.names(REPAIR_FOLDER) if one.startswith("copy-")]
    assert begun(disk).committed == promised


def test_a_copy_is_not_discarded_for_a_journal_that_must_have_what_is_committed(disk):
    copy = begun(disk)
    follow(copy, OLD)
    copy.tell(committed=Position(SIZE + 8))
    with pytest.raises(ValueError, match="is committed"):
        copy.discard(Position(SIZE))
    assert copy.end == OLD.end
    copy.sync_all()


@pytest.mark.parametrize("left", range(4))
def test_a_crash_while_a_copy_is_discarded_leaves_one_that_opens(left):
    disk = copied(OLD)
    copy = opened(disk)
    bases = segment_bases(disk)
    copy._copy_file.write(CopyNote(Position(0), Position(0), Epoch(2)))
    copy.close()
    for number, base in enumerate(bases):
        if number != left:
            disk.remove(segment_name(base))
    again = Copy.open(disk, reserve_bytes=0)
    assert again is None or again.first == bases[left]


def test_of_too_many_checkpoints_the_newest_below_the_commit_mark_is_kept(disk):
    copy = begun(disk)
    follow(copy, NEW)
    everything = [one.position for one in copy.checkpoints()]
    assert len(everything) > 5
    shared = everything[-2]
    copy.tell(committed=Position(shared + 8))
    assert [one.position for one in copy.checkpoints(4)] == [
        *everything[:2], shared, everything[-1]
    ]  # fmt: skip
    copy.tell(committed=copy.end)
    assert [one.position for one in copy.checkpoints(4)] == [*everything[:3], everything[-1]]
