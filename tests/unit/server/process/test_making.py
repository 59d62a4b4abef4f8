"""What a new journal takes is said before it is made, and how far it is."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest

from ternmq.broker.start import Options
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.errors import SettingsError
from ternmq.server.process import making

SIZE = 32 << 20
NAME = "journal/00000000000000000000.seg"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ternmq.server")


def options() -> Options:
    return Options(segment_bytes=SIZE, reserve_bytes=2 * SIZE)


def test_lines_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = RealDisk(tmp_path)
    with making.said(disk, options(), io.StringIO()):
        assert "files of 32 MiB before it listens, and 3 files in all: 96 MiB of" in caplog.text
        disk.allocate(NAME, SIZE)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[1:2] == [f"created {NAME}, 32 MiB"]
    assert lines[2].startswith("created in ")
    assert disk.told is None


def test_a_bar_on_a_terminal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk, out = RealDisk(tmp_path), Terminal()
    with making.said(disk, options(), out):
        disk.allocate(NAME, SIZE)
    said = out.getvalue()
    assert "16 of 32 MiB" in said
    assert "32 of 32 MiB" in said
    assert said.endswith("\r\x1b[K")
    assert NAME not in caplog.text


def test_nothing_of_one_that_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = RealDisk(tmp_path)
    disk.allocate(NAME, 4096)
    with making.said(disk, options()):
        disk.allocate("journal/other.seg", SIZE)
    assert not caplog.records


MIB = 1 << 20


def reserve(mib: int | None, watermark: float = 1.0) -> Options:
    return Options(
        segment_bytes=8 * MIB,
        reserve_bytes=None if mib is None else mib * MIB,
        retention=RetentionSpec(watermark=watermark),
    )


def refusal(disk: MemoryDisk, options: Options) -> str:
    """Return why the reserve is refused, empty if it is not; nothing is made."""
    before = disk.image().keys()
    try:
        making.check_reserve(disk, options)
    except SettingsError as error:
        text = str(error)
        assert "\n" not in text
    else:
        text = ""
    assert disk.image().keys() == before
    return text


def test_a_reserve_that_does_not_fit_is_refused() -> None:
    assert refusal(MemoryDisk(capacity=200 * MIB), reserve(2048)) == (
        "reserve = 2GiB is too much for this disk: its files and the first one take 2056 MiB, and"
        " the disk has 200 MiB free; set reserve to less, or to 0 to derive it from the size of "
        "the disk"
    )
    assert refusal(MemoryDisk(capacity=200 * MIB), reserve(192)) == ""
    assert "take 208 MiB" in refusal(MemoryDisk(capacity=200 * MIB), reserve(193))
    assert refusal(MemoryDisk(capacity=12 * MIB), reserve(None)) == "", "it is no one's setting"


def test_a_reserve_that_leaves_no_room_for_sends_is_refused() -> None:
    disk = MemoryDisk(capacity=200 * MIB)
    assert refusal(disk, reserve(152, 0.8)) == ""
    assert (
        "take 168 MiB, and the disk has 160 MiB up to retention_watermark = 0.8, above"
        in refusal(disk, reserve(160, 0.8))
    )
    full = MemoryDisk({"others": bytes(16 * MIB)}, capacity=200 * MIB)
    assert refusal(full, reserve(136, 0.8)) == ""
    assert "144 MiB up to" in refusal(full, reserve(144, 0.8))
    assert refusal(full, reserve(64, 0.05)) == "", "others are above the watermark already"


def test_of_a_journal_that_is_there_the_reserve_may_be_the_rest_of_the_disk() -> None:
    """A disk that others have filled is no reason not to start."""
    there = {f"journal/{n:020}.seg": bytes(8 * MIB) for n in range(3)}
    disk = MemoryDisk({**there, "others": bytes(75 * MIB)}, capacity=100 * MIB)
    assert refusal(disk, reserve(16, 0.8)) == ""
    assert refusal(disk, reserve(100, 0.8)) == ""
    assert (
        "reserve = 101MiB is too much for this disk: the broker can use 100 MiB of it in all;"
        in refusal(disk, reserve(101, 0.8))
    )


def test_a_reserve_that_is_not_whole_and_cannot_be_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    making.warn_of_reserve(0)
    assert not caplog.records
    making.warn_of_reserve(MIB + 1)
    assert "the disk lacks 2 MiB of free space" in caplog.text


class Filled(MemoryDisk):
    """A disk of 100 MiB that other programs have filled."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free

    def free_bytes(self) -> int:
        return self.free << 20

    def total_bytes(self) -> int:
        return 100 << 20


@pytest.mark.parametrize(
    ("free", "says"),
    [(18, "82 % full (18 MiB are free, as df counts), above retention_watermark = 0.8"), (20, "")],
)  # fmt: skip
def test_a_disk_above_the_watermark_is_said(
    free: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    making.warn_of_watermark(Filled(free), 0.8)
    assert says in caplog.text
    assert bool(caplog.text) == bool(says)
