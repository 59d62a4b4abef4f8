"""COPY: golden bytes, two slots of which a torn write leaves one, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.journal.disk.faulty import Fault, FaultyDisk
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log import copy_file as module
from ternmq.journal.log.copy_file import (
    COPY_NAME,
    CopyFile,
    CopyNote,
    read_note,
    remove_copy_file,
)
from ternmq.model.errors import CorruptJournal, DiskError, UnknownRecordKind
from ternmq.model.types import Epoch, Position

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden" / "copy_v2.bin"
GOLDEN_1 = ROOT / "tests" / "golden" / "copy_v1.bin"
A = CopyNote(Position(4096), Position(1000), Epoch(3), promise_ms=3000)
B = CopyNote(Position(8192), Position(5000), Epoch(4), promise_ms=60_000)
CUTTING = CopyNote(Position(8000), Position(5000), Epoch(4), Position(8000), promise_ms=1000)


def test_the_golden_file_is_what_is_written_and_read():
    disk = MemoryDisk()
    file = CopyFile.make(disk, A)
    file.write(B)
    file.write(CUTTING)
    assert disk.image() == {COPY_NAME: GOLDEN.read_bytes()}
    assert read_note(MemoryDisk({COPY_NAME: GOLDEN.read_bytes()})) == CUTTING


def test_a_file_of_version_1_promises_what_its_brokers_promised():
    """It has no field for it. The next write makes it version 2."""
    disk = MemoryDisk({COPY_NAME: GOLDEN_1.read_bytes()})
    assert read_note(disk) == replace(CUTTING, promise_ms=3000)
    file = CopyFile.open(disk)
    assert file is not None
    file.write(replace(B, promise_ms=700))
    assert read_note(disk) == replace(B, promise_ms=700)


def test_the_document_has_the_ruler():
    ruler = re.search(r"(?s)(     0  u32 crc32c.*?52  12 bytes 0)\n", module.__doc__ or "")
    assert ruler is not None
    text = [line.strip() for line in ruler[1].splitlines()]
    page = (ROOT / "docs" / "format" / "copy.md").read_text(encoding="utf-8")
    assert text == [line.strip() for line in page.splitlines() if line.strip() in text]


notes = st.builds(
    CopyNote,
    st.integers(0, 2**63),
    st.integers(0, 2**63),
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 2**63),
    st.integers(0, 2**32 - 1),
)


@given(st.lists(notes, min_size=1, max_size=6))
def test_what_was_written_last_is_read(written: list[CopyNote]):
    disk = MemoryDisk()
    assert read_note(disk) is None
    file = CopyFile.make(disk, written[0])
    for note in written[1:]:
        file.write(note)
    assert read_note(disk) == written[-1] == file.note
    assert len(disk.image()[COPY_NAME]) == 4096
    again = CopyFile.open(disk)
    assert again is not None
    assert again.note == written[-1]
    again.write(A)
    assert read_note(disk) == A
    remove_copy_file(disk)
    assert read_note(disk) is None
    assert CopyFile.open(disk) is None


@given(st.lists(notes, min_size=2, max_size=4), st.integers(0, 64), st.binary(min_size=64))
def test_a_torn_write_leaves_the_note_before(written: list[CopyNote], kept: int, junk: bytes):
    """The first bytes of the write are there, then old ones, or anything."""
    disk = MemoryDisk()
    file = CopyFile.make(disk, written[0])
    for note in written[1:-1]:
        file.write(note)
    before = disk.image()[COPY_NAME]
    file.write(written[-1])
    after = disk.image()[COPY_NAME]
    (start,) = {at // 2048 * 2048 for at in range(4096) if before[at] != after[at]}
    for rest in (before[start + kept : start + 64], junk[kept:64]):
        torn = after[: start + kept] + rest + after[start + 64 :]
        found = read_note(MemoryDisk({COPY_NAME: torn}))
        assert found == (written[-1] if torn == after else written[-2])


def test_every_changed_byte_of_a_slot_is_noticed():
    whole = GOLDEN.read_bytes()
    for at in range(56):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        assert read_note(MemoryDisk({COPY_NAME: bytes(damaged)})) == B


@pytest.mark.parametrize("data", [b"", bytes(4096), b"x" * 4096, GOLDEN.read_bytes()[8:60]])
def test_without_a_valid_slot_the_error_says_what_to_do(data):
    disk = MemoryDisk({COPY_NAME: data})
    for call in (read_note, CopyFile.open):
        with pytest.raises(CorruptJournal, match="neither slot is valid") as caught:
            call(disk)
        assert caught.value.file == COPY_NAME
        assert "another broker of the group" in str(caught.value)
    assert disk.image() == {COPY_NAME: data}


def test_a_newer_version_is_refused(monkeypatch):
    disk = MemoryDisk()
    monkeypatch.setattr(module, "VERSION", 3)
    CopyFile.make(disk, A).write(B)
    monkeypatch.undo()
    with pytest.raises(UnknownRecordKind, match="version 3"):
        read_note(disk)


def test_the_file_gets_its_name_when_its_bytes_are_durable():
    probe = FaultyDisk(MemoryDisk())
    CopyFile.make(probe, A)
    for call in ("open", "write", "sync", "rename", "sync_folder"):
        for number in range(1, probe.counts[call] + 1):
            inner = MemoryDisk()
            with pytest.raises(DiskError):
                CopyFile.make(FaultyDisk(inner, [Fault(call, number)]), A)
            assert read_note(inner) in (None, A)
            CopyFile.make(inner, B)  # what is left is in nobody's way
            assert read_note(inner) == B


def test_opening_writes_the_newest_slot_again():
    """It may be in the page cache only, and the next write goes to the durable one."""
    disk = FaultyDisk(MemoryDisk())
    CopyFile.make(disk, A).write(B)
    writes, syncs = disk.counts["write"], disk.counts["sync"]
    file = CopyFile.open(disk)
    assert file is not None
    assert (disk.counts["write"], disk.counts["sync"]) == (writes + 1, syncs + 1)
    assert read_note(disk) == B
    before = disk.open(COPY_NAME).pread(4096, 0)
    file.write(A)
    assert disk.open(COPY_NAME).pread(64, 2048) == before[2048 : 2048 + 64]


def test_on_a_real_disk(tmp_path):
    disk = RealDisk(tmp_path)
    CopyFile.make(disk, A).write(CUTTING)
    assert read_note(RealDisk(tmp_path, read_only=True)) == CUTTING
    remove_copy_file(disk)
    assert read_note(disk) is None
