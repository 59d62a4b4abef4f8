"""What a new journal takes is said before it is made, and how far it is."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest

from ternmq.broker.start import Options
from ternmq.journal.real_disk import RealDisk
from ternmq.server import making

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
        assert "files of 32 MiB are made before it listens, 3 in all; 96 MiB of" in caplog.text
        disk.allocate(NAME, SIZE)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[1:2] == [f"made {NAME}, 32 MiB"]
    assert lines[2].startswith("made in ")
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
