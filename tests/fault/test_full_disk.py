"""A disk that fills: sends are refused for certain, consuming goes on, sends come back (DUR-6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fault import history
from tests.fault.processes import Verdicts, Worker, patience, run, wait_until
from tests.fault.tools import need_root
from tests.fault.volumes import Memory, Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

BUSY, DISK_FULL = 140, 141
RESUME_SECONDS = 5.0
"""On a machine that has the time."""
GIVEN: dict[str, Any] = {"segment": 512 << 10, "state": 256 << 10, "remember": 2, "speed": 10}
"""Not faster: a lease must outlast what a worker without a core to itself takes for a message."""


def phases(lines: list[history.Line]) -> dict[str, list[history.Line]]:
    """Return the lines of each phase."""
    found: dict[str, list[history.Line]] = {}
    name = ""
    for line in lines:
        if line["op"] == "phase":
            name = line["name"]
        found.setdefault(name, []).append(line)
    return found


def count(lines: list[history.Line], op: str) -> int:
    return sum(line["op"] == op for line in lines)


def _refused_for_room(lines: list[history.Line]) -> None:
    """Sends were refused as the disk is full, or told to come again while a segment is made."""
    refused = {line["code"] for line in lines if line["op"] == "refused"}
    assert DISK_FULL in refused
    assert refused <= {BUSY, DISK_FULL}


@pytest.mark.timeout(120)
@pytest.mark.row("C14")
def test_filled_by_sends(memory_folder, verdicts: Verdicts):
    """Nothing else takes space: the backlog reaches the watermark, is consumed, and goes."""
    need_root()
    record = memory_folder / "history"
    with Memory(memory_folder / "volume", 12 << 20) as volume:
        data = volume.point / "data"
        worker = run(data, record, scenario="fill", messages=10**9, **GIVEN)
        assert worker.code == 0, worker.log
        lines = history.read(record)
        parts = phases(lines)
        _refused_for_room(lines)
        assert count(parts["fill"], "sent") > 500
        assert count(parts["full"], "settled") > 50
        assert count(parts["again"], "sent") >= 200
        assert lines[-1]["op"] == "closed"
        verdicts.sound(data, record)


@pytest.mark.timeout(120)
@pytest.mark.row("C14")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_filled_by_others(kind, memory_folder, verdicts: Verdicts):
    """Somebody else takes the last block: what is preallocated serves consumers meanwhile."""
    need_root(f"mkfs.{kind}", "fallocate")
    record = memory_folder / "history"

    def lines() -> list[history.Line]:
        return history.read(record)

    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        with Worker(data, record, scenario="fill", messages=10**9, **GIVEN) as worker:
            worker.answered(200)
            ballast = volume.fill()
            wait_until(lambda: "again" in phases(lines()) or worker.ended, "all consumed")
            ballast.unlink()
            assert worker.wait(max(20.0, RESUME_SECONDS * patience())) == 0, worker.log
        parts = phases(lines())
        _refused_for_room(lines())
        assert count(parts["fill"], "sent") >= 200
        assert count(parts["full"], "settled") >= 5
        assert count(parts["again"], "sent") >= 200
        verdict = verdicts.sound(data, record)
        assert verdict["failed"] == 0
