"""The file SCRUB: what the next life knows of the rounds."""

from __future__ import annotations

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.mending.progress import FILE, MOST_SUSPECTS, Progress, Save, load


def test_what_was_saved_is_loaded():
    disk = MemoryDisk()
    assert load(disk) == Progress()
    for one in (
        Progress(8192 * 5, 1_700_000_000_000_000, (0, 8192)),
        Progress(),
        Progress(2**62, 5, tuple(range(MOST_SUSPECTS))),
    ):
        Save(disk, one).run()
        assert load(disk) == one
    file = disk.open(FILE)
    assert file.size() == 4096


def test_more_suspects_than_there_is_room_for():
    disk = MemoryDisk()
    Save(disk, Progress(0, 0, tuple(range(MOST_SUSPECTS + 9)))).run()
    assert load(disk) == Progress(0, 0, tuple(range(MOST_SUSPECTS)))


@pytest.mark.parametrize("at", [0, 4, 9, 24, 40, 4095])
def test_a_damaged_file_says_nothing(at):
    disk = MemoryDisk()
    Save(disk, Progress(8192, 7, (8192,))).run()
    file = disk.open(FILE)
    file.pwrite(bytes([file.pread(1, at)[0] ^ 1]), at)
    assert load(disk) is None


@pytest.mark.parametrize("length", [0, 20, 4095])
def test_a_torn_file_says_nothing(length):
    disk = MemoryDisk()
    disk.open(FILE, create=True).pwrite(bytes(length), 0)
    assert load(disk) is None


def test_a_page_of_zeros_says_nothing():
    disk = MemoryDisk()
    disk.open(FILE, create=True).pwrite(bytes(4096), 0)
    assert load(disk) is None
