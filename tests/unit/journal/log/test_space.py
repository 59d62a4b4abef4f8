"""Spares: the next one is filled with zeros, never while records go into it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk, MemoryFile
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.segment import segment_name
from ternmq.journal.log.space import AllocateJob, default_reserve_bytes, default_segment_bytes
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.errors import DiskError, JournalFull
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, Kind
from tests.unit.journal.kit import SEGMENT, make_spares


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def commit_only(journal: Journal) -> None:
    """Flush and sync, and make no spares."""
    journal.flush()
    journal.sync_now()


def wanted(journal: Journal) -> AllocateJob:
    job = journal.wants_spare()
    assert job is not None
    return job


class Told(MemoryDisk):
    """Notes how segments were allocated."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: list[tuple[int, bool]] = []

    def allocate(self, name: str, size: int, *, written: bool = True) -> None:
        super().allocate(name, size, written=written)
        self.allocated.append((int(name[-24:-4]) // SEGMENT, written))


class Watched(MemoryDisk):
    """Tells of every write."""

    def __init__(self, told: Callable[[str, int], None]) -> None:
        super().__init__()
        self.told = told

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = super().open(name, create=create)
        return WatchedFile(self, name, file._data)


class WatchedFile(MemoryFile):
    def pwrite(self, data: bytes, offset: int) -> None:
        super().pwrite(data, offset)
        assert isinstance(self._disk, Watched)
        self._disk.told(self.name, offset)


def test_only_the_next_segment_has_written_zeros():
    disk = Told()
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=3 * SEGMENT)
    make_spares(journal)
    assert disk.allocated == [(0, True), (1, True), (2, False), (3, False)]
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    zeros = wanted(journal)
    assert (zeros.base, zeros.made) == (2 * SEGMENT, True)
    zeros.run()
    journal.spare_ready(zeros)
    make_spares(journal)
    assert disk.allocated[4:] == [(4, False)]
    assert journal.wants_spare() is None


def test_a_spare_is_not_used_while_zeros_are_written_into_it():
    """Else they would be written over records. Here the journal comes while the job is at it."""
    refused: list[int] = []

    def told(name: str, offset: int) -> None:
        if zeros is not None and name == segment_name(2 * SEGMENT) and not refused:
            end = journal.end
            with pytest.raises(JournalFull):
                journal.append(Kind.COUNTS, bytes(journal.max_body), 2)
            assert journal.end == end
            refused.append(offset)

    zeros: AllocateJob | None = None
    disk = Watched(told)
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=3 * SEGMENT)
    make_spares(journal)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    commit_only(journal)
    zeros = wanted(journal)
    zeros.run()
    assert (refused, zeros.stop) == ([0], True)
    journal.spare_ready(zeros)
    position = journal.append(Kind.COUNTS, b"x" * journal.max_body, 2)
    assert position > 2 * SEGMENT
    commit_only(journal)
    reopened(disk, position)


def test_a_job_that_comes_too_late_writes_no_zeros(disk):
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=3 * SEGMENT)
    make_spares(journal)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    zeros = wanted(journal)
    position = journal.append(Kind.COUNTS, b"x" * journal.max_body, 2)
    assert position > 2 * SEGMENT
    commit_only(journal)
    zeros.run()
    journal.spare_ready(zeros)
    again = wanted(journal)
    assert (again.base, again.made) == (3 * SEGMENT, True)
    reopened(disk, position)


def reopened(disk: MemoryDisk, position: int) -> None:
    """The record at a position, of the largest body, is the last one, and it is whole."""
    journal, report = open_journal(MemoryDisk(disk.image()), wall_us=3, reserve_bytes=0)
    assert report.valid_end == position + HEADER_BYTES + journal.max_body
    journal.close()


@pytest.mark.parametrize("call", ["write", "sync", "open"])
def test_zeros_that_cannot_be_written_do_no_harm(call):
    disk = FaultyDisk(MemoryDisk())
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=3 * SEGMENT)
    make_spares(journal)
    room = journal.room()
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    commit_only(journal)
    zeros = wanted(journal)
    disk.plan([Fault(call, disk.counts[call] + 1)])
    with pytest.raises(DiskError) as caught:
        zeros.run()
    journal.spare_failed(zeros, caught.value)
    assert 0 < journal.room() < room
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)  # goes into that segment
    commit_only(journal)
    assert journal.end > 2 * SEGMENT
    assert journal.failure is None
    assert wanted(journal).base == 3 * SEGMENT


def test_near_the_end_of_a_segment_the_next_one_gets_no_more_zeros(disk):
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=3 * SEGMENT)
    make_spares(journal)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 1)
    journal.append(Kind.COUNTS, bytes(SEGMENT // 2), 1)
    zeros = wanted(journal)
    commit_only(journal)
    early = zeros.stop
    journal.append(Kind.COUNTS, bytes(SEGMENT // 2 - 1000), 1)
    commit_only(journal)
    assert (early, zeros.stop) == (False, True)
    zeros.run()
    journal.spare_ready(zeros)
    journal.append(Kind.COUNTS, bytes(journal.max_body), 2)
    assert journal.end > 2 * SEGMENT


def test_zeros_cover_the_file_in_steps_that_can_be_stopped():
    steps: list[int] = []

    def told(name: str, offset: int) -> None:
        assert name == segment_name(0)
        steps.append(offset)
        job.stop = len(steps) == 3 and stopped

    mib = 1 << 20
    size = 4 * mib + 4096
    disk = Watched(told)
    disk.allocate(segment_name(0), size)
    for stopped in (False, True):
        steps.clear()
        job = AllocateJob(disk, Position(0), size, made=True)
        job.run()
        assert steps == [at * mib for at in range(3 if stopped else 5)]
    assert disk.image()[segment_name(0)] == bytes(size)


@pytest.mark.parametrize(
    ("total", "free", "least", "size"),
    [
        (100 << 20, 90 << 20, 0, 16 << 20),
        (1 << 30, 1 << 30, 0, 16 << 20),
        (4 << 30, 4 << 30, 0, 32 << 20),
        (10 << 30, 10 << 30, 0, 64 << 20),
        (26 << 30, 26 << 30, 0, 256 << 20),
        (4 << 40, 4 << 40, 0, 256 << 20),
        (4 << 40, 1 << 30, 0, 32 << 20),  # a full disk, however large
        (1 << 30, 1 << 30, 18 << 20, 32 << 20),  # bodies of 16 MiB
    ],
)
def test_small_disks_begin_small(
    total: int, free: int, least: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk()
    monkeypatch.setattr(disk, "total_bytes", lambda: total)
    monkeypatch.setattr(disk, "free_bytes", lambda: free)
    assert default_segment_bytes(disk, least) == size
    files = 1 + max(1, -(-default_reserve_bytes(disk, size) // size))
    assert files <= 5
    if total >= 4 << 30 and not least:
        assert files * size <= min(total // 20, free // 4)


def test_a_reserve_for_which_there_is_no_room_leaves_the_disk_to_others():
    disk = MemoryDisk(capacity=20 * SEGMENT)
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=100 * SEGMENT)
    make_spares(journal)
    assert disk.free_bytes() == 15 * SEGMENT
    assert journal.reserve_lacks_bytes == (96 - 15) * SEGMENT
    journal.retry_spare()
    make_spares(journal)
    assert disk.free_bytes() == 15 * SEGMENT
    disk.capacity = 101 * SEGMENT
    journal.retry_spare()
    make_spares(journal)
    assert disk.free_bytes() == 0
    assert journal.reserve_lacks_bytes == 0


def test_the_free_space_is_asked_for_once_until_something_changes():
    class Asked(MemoryDisk):
        times = 0

        def free_bytes(self) -> int:
            self.times += 1
            return super().free_bytes()

    disk = Asked(capacity=20 * SEGMENT)
    journal = Journal.create(disk, segment_size=SEGMENT, reserve_bytes=100 * SEGMENT)
    make_spares(journal)
    before = disk.times
    for _ in range(3):
        assert journal.wants_spare() is None
    assert disk.times == before
