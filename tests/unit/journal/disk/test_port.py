"""Every disk keeps the port's promises."""

from __future__ import annotations

import errno
import os

import pytest

from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.model.errors import (
    AlreadyRunning,
    DiskError,
    DiskReadError,
    DiskSyncError,
    DiskWriteError,
    FileMissing,
    NoSpace,
)


@pytest.fixture(params=["real", "memory", "faulty"])
def disk(request, tmp_path) -> Disk:
    if request.param == "real":
        return RealDisk(tmp_path / "data")
    return MemoryDisk() if request.param == "memory" else FaultyDisk(MemoryDisk())


def test_what_is_written_is_read(disk: Disk):
    disk.allocate("journal/a.seg", 8192)
    file = disk.open("journal/a.seg")
    assert file.name == "journal/a.seg"
    assert file.size() == 8192
    file.pwrite(b"hello", 4094)
    file.sync()
    again = disk.open("journal/a.seg")
    assert again.pread(7, 4093) == b"\0hello\0"
    assert again.try_pread(5, 4094) in (b"hello", None)
    assert again.pread(10, 8190) == b"\0\0"
    assert again.try_pread(10, 8190) in (b"\0\0", None)
    assert again.pread(10, 9000) == b""
    file.close()
    file.close()
    again.close()


def test_created_files_begin_empty_and_grow(disk: Disk):
    file = disk.open("index/x.tmp", create=True)
    assert file.size() == 0
    file.pwrite(b"ab", 3)
    assert file.pread(100, 0) == b"\0\0\0ab"
    file.close()
    disk.rename("index/x.tmp", "index/x.idx")
    disk.sync_folder("index")
    assert disk.names("index") == ["x.idx"]
    kept = disk.open("index/x.idx", create=True)
    assert kept.size() == 5
    kept.close()
    disk.remove("index/x.idx")
    assert disk.names("index") == []


def test_what_is_not_there_is_missing(disk: Disk):
    assert disk.names("nothing") == []
    with pytest.raises(FileMissing):
        disk.open("journal/none")
    with pytest.raises(FileMissing):
        disk.remove("journal/none")
    with pytest.raises(FileMissing):
        disk.rename("journal/none", "journal/some")


def test_allocating_replaces(disk: Disk):
    file = disk.open("journal/a", create=True)
    file.pwrite(b"old" * 5000, 0)
    file.close()
    disk.allocate("journal/a", 4096)
    file = disk.open("journal/a")
    assert file.pread(20000, 0) == bytes(4096)
    file.close()


@pytest.mark.parametrize("written", [True, False])
def test_what_is_allocated_is_zero_to_its_end_and_then_what_is_written(disk: Disk, written):
    disk.allocate("a", 1 << 20, written=written)
    file = disk.open("a")
    assert file.size() == 1 << 20
    assert file.pread(1 << 20, 0) == bytes(1 << 20)
    file.pwrite(b"data", 600_000)
    file.pwrite(b"more", 900_000)
    for offset, data in ((0, 600_000), (599_999, 600_000), (600_002, 600_002)):
        assert offset <= file.next_data(offset) <= data
    file.sync()
    assert file.next_data(0) <= 600_000
    assert 600_004 <= file.next_data(600_004) <= 900_000
    for offset in (900_004, (1 << 20) - 1, 1 << 20):
        assert offset <= file.next_data(offset) <= 1 << 20
    assert file.pread(1 << 20, 0).count(0) == (1 << 20) - 8
    file.close()


def test_names_are_sorted(disk: Disk):
    for name in ("b", "c", "a"):
        disk.allocate(f"journal/{name}", 4096)
    assert disk.names("journal") == ["a", "b", "c"]


def test_space_is_told(disk: Disk):
    assert 0 < disk.free_bytes() <= disk.total_bytes()


def test_one_owner(disk: Disk):
    disk.lock()
    with pytest.raises(AlreadyRunning):
        disk.lock()
    disk.close()
    disk.lock()
    disk.close()


def test_another_opening_of_the_folder_is_refused(tmp_path):
    first, second = RealDisk(tmp_path), RealDisk(tmp_path)
    first.lock()
    with pytest.raises(AlreadyRunning, match="another process"):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_space_that_was_only_allocated_is_known_to_be_blank(tmp_path, monkeypatch):
    disk = RealDisk(tmp_path)
    disk.allocate("a", 1 << 20, written=False)
    file = disk.open("a")
    real = os.lseek

    def hole(fd, offset, how):
        raise OSError(errno.ENXIO, "no data")

    def unknown(fd, offset, how):
        raise OSError(errno.EINVAL, "no such call")

    monkeypatch.setattr(os, "lseek", hole)
    assert file.next_data(4096) == 1 << 20
    monkeypatch.setattr(os, "lseek", unknown)
    assert file.next_data(4096) == 4096
    monkeypatch.setattr(os, "lseek", real)
    assert file.next_data(2 << 20) == 1 << 20
    file.close()


# ---------------------------------------------------------------------------------- reading only


@pytest.fixture
def read_only(tmp_path) -> Disk:
    disk = RealDisk(tmp_path)
    file = disk.open("journal/a", create=True)
    file.pwrite(b"0123456789", 0)
    file.close()
    return RealDisk(tmp_path, read_only=True)


def test_a_disk_for_reading_reads(read_only):
    assert read_only.names("journal") == ["a"]
    assert read_only.names("index") == []
    file = read_only.open("journal/a")
    assert file.size() == 10
    assert file.pread(3, 1) == b"123"
    assert file.try_pread(3, 1) in (b"123", None)
    file.close()
    assert 0 < read_only.free_bytes() <= read_only.total_bytes()
    with pytest.raises(FileMissing):
        read_only.open("journal/b")


@pytest.mark.parametrize(
    "act",
    [
        lambda disk: disk.open("journal/a").pwrite(b"x", 0),
        lambda disk: disk.open("journal/a", create=True),
        lambda disk: disk.open("other/b", create=True),
        lambda disk: disk.allocate("other/b", 4096),
        lambda disk: disk.rename("journal/a", "other/a"),
        lambda disk: disk.remove("journal/a"),
        lambda disk: disk.lock(),
    ],
)
def test_a_disk_for_reading_refuses_to_write_and_leaves_nothing(read_only, tmp_path, act):
    with pytest.raises(DiskWriteError, match="for reading only"):
        act(read_only)
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "journal",
        "journal/a",
    ]
    assert (tmp_path / "journal" / "a").read_bytes() == b"0123456789"


def test_a_disk_for_reading_asks_the_system_for_no_more(read_only, monkeypatch):
    flags = []
    real = os.open

    def spy(path, flag, *rest):
        flags.append(flag)
        return real(path, flag, *rest)

    monkeypatch.setattr(os, "open", spy)
    read_only.open("journal/a").close()
    assert flags == [os.O_RDONLY]


def test_a_folder_to_read_must_be_there(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for name in ("typo", "typo/deeper", "file"):
        with pytest.raises(FileMissing, match=name):
            RealDisk(tmp_path / name, read_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ------------------------------------------------------------------------------------------- memory


def test_memory_is_finite():
    disk = MemoryDisk(capacity=10000)
    disk.allocate("a", 8192)
    with pytest.raises(NoSpace):
        disk.allocate("b", 8192)
    assert disk.names("") == []
    with pytest.raises(NoSpace):
        disk.allocate("a", 20000)
    file = disk.open("a")
    assert file.size() == 8192  # a failed allocation leaves the old file
    with pytest.raises(DiskWriteError):
        file.pwrite(bytes(4096), 8192)


def test_an_image_is_a_copy():
    disk = MemoryDisk({"a": b"123"})
    image = disk.image()
    disk.open("a").pwrite(b"x", 0)
    assert image == {"a": b"123"}
    assert disk.image() == {"a": b"x23"}


# --------------------------------------------------------------------------------------------- real


def test_a_short_write_is_an_error(tmp_path, monkeypatch):
    file = RealDisk(tmp_path).open("a", create=True)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: len(data) - 1)
    with pytest.raises(DiskWriteError, match="wrote 4 of 5"):
        file.pwrite(b"hello", 0)
    file.close()


@pytest.mark.parametrize(
    ("call", "act", "wanted"),
    [
        ("pwrite", lambda file: file.pwrite(b"x", 0), DiskWriteError),
        ("pread", lambda file: file.pread(1, 0), DiskReadError),
        ("preadv", lambda file: file.try_pread(1, 0), DiskReadError),
    ],
)
def test_errors_of_the_system_keep_their_sort(tmp_path, monkeypatch, call, act, wanted):
    file = RealDisk(tmp_path).open("a", create=True)

    def fail(*args):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(wanted, match="broken"):
        act(file)
    file.close()


def test_a_failed_sync_says_so(tmp_path, monkeypatch):
    file = RealDisk(tmp_path).open("a", create=True)

    def fail(fd):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("ternmq.journal.disk.real._datasync", fail)
    with pytest.raises(DiskSyncError, match="broken"):
        file.sync()
    file.close()


def test_short_reads_go_on(tmp_path, monkeypatch):
    file = RealDisk(tmp_path).open("a", create=True)
    file.pwrite(b"0123456789", 0)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 3), offset))
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(80, 1) == b"123456789"
    file.close()


def test_a_read_that_would_wait_says_so(tmp_path, monkeypatch):
    file = RealDisk(tmp_path).open("a", create=True)
    file.pwrite(b"0123456789", 0)

    def wait(*args):
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", wait)
    assert file.try_pread(3, 0) is None
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset, flags: 2)
    assert file.try_pread(3, 0) is None  # part of it is cached, the rest would wait
    file.close()


def test_a_file_system_without_nowait_is_read_plainly(tmp_path, monkeypatch):
    file = RealDisk(tmp_path).open("a", create=True)
    file.pwrite(b"0123456789", 0)

    def unknown(*args):
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "preadv", unknown)
    assert file.try_pread(3, 1) == b"123"
    assert file.try_pread(3, 2) == b"234"
    file.close()


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    disk = RealDisk(tmp_path)

    def full(*args):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("ternmq.journal.disk.real._fallocate", full)
    with pytest.raises(NoSpace):
        disk.allocate("journal/a", 4096)
    assert disk.names("journal") == []


def test_a_broken_disk_is_not_a_full_one(tmp_path, monkeypatch):
    disk = RealDisk(tmp_path)

    def broken(*args):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("ternmq.journal.disk.real._fallocate", broken)
    with pytest.raises(DiskError) as caught:
        disk.allocate("journal/a", 4096)
    assert not isinstance(caught.value, NoSpace)


# ------------------------------------------------------------------------------------------- faulty


def test_planned_writes():
    disk = FaultyDisk(MemoryDisk(), [Fault("write", 2), Fault("write", 3, "short")])
    file = disk.open("a", create=True)
    file.pwrite(b"1111", 0)
    with pytest.raises(DiskWriteError):
        file.pwrite(b"2222", 0)
    assert file.pread(9, 0) == b"1111"
    with pytest.raises(DiskWriteError):
        file.pwrite(b"3333", 0)
    assert file.pread(9, 0) == b"3311"
    file.pwrite(b"4444", 0)
    assert file.pread(9, 0) == b"4444"
    assert [fault.number for fault in disk.fired] == [2, 3]
    assert disk.counts["write"] == 4


def test_a_dropping_sync_forgets_and_then_pretends():
    disk = FaultyDisk(MemoryDisk(), [Fault("sync", 2, "drop")])
    file = disk.open("a", create=True)
    file.pwrite(b"kept....", 0)
    file.sync()
    file.pwrite(b"lost", 0)
    file.pwrite(b"again", 2)
    with pytest.raises(DiskSyncError):
        file.sync()
    assert file.pread(8, 0) == b"kept...."
    file.sync()
    assert file.pread(8, 0) == b"kept...."


@pytest.mark.parametrize("kind", ["eio", "late", "short", "full"])
def test_planned_allocations(kind):
    disk = FaultyDisk(MemoryDisk(), [Fault("allocate", 1, kind)])
    with pytest.raises(NoSpace if kind == "full" else DiskWriteError):
        disk.allocate("journal/a", 4096)
    left = {"eio": [], "full": [], "late": [4096], "short": [2048]}[kind]
    assert [disk.open("journal/" + name).size() for name in disk.names("journal")] == left


def test_other_planned_calls():
    disk = FaultyDisk(
        MemoryDisk({"a": b"123"}),
        [
            Fault("open", 2),
            Fault("read", 1),
            Fault("remove", 1),
            Fault("rename", 1),
            Fault("sync_folder", 1),
        ],
    )
    file = disk.open("a")
    with pytest.raises(DiskError):
        disk.open("a")
    with pytest.raises(DiskReadError):
        file.pread(1, 0)
    with pytest.raises(DiskError):
        disk.remove("a")
    with pytest.raises(DiskError):
        disk.rename("a", "b")
    with pytest.raises(DiskSyncError):
        disk.sync_folder("")
    disk.rename("a", "b")
    disk.sync_folder("")
    assert disk.open("b").try_pread(3, 0) == b"123"


def test_every_folder_that_is_made_is_synced_into_the_one_above(tmp_path, monkeypatch):
    synced: list[str] = []
    real = RealDisk._sync_path

    def noted(path):
        synced.append(path.name)
        real(path)

    monkeypatch.setattr(RealDisk, "_sync_path", staticmethod(noted))
    disk = RealDisk(tmp_path / "a" / "b" / "data")
    assert synced == [tmp_path.name, "a", "b"]
    disk.open("repair/x", create=True).close()
    assert synced[3:] == ["data"]


def test_a_folder_that_cannot_be_made_comes_with_advice(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DiskError, match=r"the folder .*file cannot be made: File exists") as caught:
        RealDisk(tmp_path / "file" / "below")
    assert "name another folder" in caught.value.hint


def test_blocks_reserved_for_others_are_no_part_of_the_volume(tmp_path, monkeypatch) -> None:
    """As ``df`` counts: 60 of 100 used, 30 reserved for root, 10 left: 86 % are used."""
    found = os.statvfs_result((4096, 4096, 100, 40, 10, 0, 0, 0, 0, 255))
    disk = RealDisk(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    assert (disk.total_bytes(), disk.free_bytes()) == (70 * 4096, 10 * 4096)
    assert disk.size_bytes() == 100 * 4096
