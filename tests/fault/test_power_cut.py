"""Power cuts on ext4 and XFS: everything answered is there, the folder opens by itself (DUR-4)."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.fault.processes import Worker
from tests.fault.tools import CYCLES, need_root, need_strace, strace
from tests.fault.volumes import Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

NO_SYNC = "retval=0"


@pytest.mark.timeout(300)
@pytest.mark.row("B1", "C3", "C8")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts(kind, memory_folder, verdicts):
    need_root(f"mkfs.{kind}")
    chance = random.Random(kind)
    record, copy = memory_folder / "history", memory_folder / "copy"
    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        for cycle in range(CYCLES):
            with Worker(data, record, seed=cycle, messages=10**9) as worker:
                worker.answered(chance.randint(20, 700))
                volume.cut(worker)
            shutil.copytree(data, copy)
            verdicts.sound(copy, record, power=True)
            shutil.rmtree(copy)
        verdict = verdicts.sound(data, record, power=True)
    assert verdict["begin"] == CYCLES
    assert verdict["sent"] > 100 * CYCLES


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_while_recovering(kind, memory_folder, verdicts):
    """Cut, and cut again in the middle of the next start's writes and syncs."""
    need_root(f"mkfs.{kind}")
    record = memory_folder / "history"
    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        with Worker(data, record, messages=10**9) as worker:
            worker.answered(300)
            volume.cut(worker)
        for call, number in (("sync", 1), ("write", 1), ("sync", 2), ("write", 3)):
            with Worker(data, record, messages=10**9, kill=f"{call}:{number}") as worker:
                assert worker.wait() == -9, worker.log
                volume.shut_down()
                volume.again()
        verdicts.sound(data, record, power=True)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_disk_that_lies_is_noticed(kind, memory_folder, verdicts):
    """The check of the check: with syncs that do nothing, a power cut must lose answers."""
    need_root(f"mkfs.{kind}")
    need_strace()
    record = memory_folder / "history"
    lying = strace(trace=["fdatasync"], inject=NO_SYNC)
    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        with Worker(data, record, before=lying, messages=10**9) as worker:
            worker.answered(200)
            volume.cut(worker)
        verdict = verdicts.of(data, record, power=True)
    assert any(problem.startswith(("lost", "open")) for problem in verdict["problems"]), verdict
