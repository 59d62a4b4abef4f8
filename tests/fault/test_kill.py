"""Killed by SIGKILL: at the k-th write, sync, rename ... and at random moments (DUR-1, DUR-3)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fault import history
from tests.fault.processes import Verdicts, Worker, run
from tests.fault.tools import POINTS, TRACED, counted, need_strace, spread, strace

pytestmark = [pytest.mark.fault, pytest.mark.slow]

KILLED = -9
SMALL: dict[str, Any] = {
    "segment": 64 << 10,
    "state": 24 << 10,
    "reserve": 64 << 10,
    "journal": 256 << 10,
    "remember": 2,
    "messages": 900,
    "speed": 60,
}
"""Rolls, STATE sets, index files, MOVED rows and removed segments, in a third of a second."""

Kill = Callable[[int], dict[str, Any]]


def killed(folder: Path, number: int, kill: Kill, verdicts: Verdicts) -> bool:
    """Kill a worker at its k-th call, perhaps another one while it recovers, and verify.

    A machine that is busy gathers more sends under one sync, and never comes to the k-th: such a
    worker must be sound as well, and another one is killed earlier.
    """
    for call in (number, number * 2 // 3, number // 2, number // 3):
        if _killed(folder, f"{number}-{call}", call, kill, verdicts):
            return True
    return False


def _killed(folder: Path, name: str, number: int, kill: Kill, verdicts: Verdicts) -> bool:
    data, record = folder / name, folder / f"{name}.history"
    worker = run(data, record, seed=number, **kill(number), **SMALL)
    assert worker.code in (0, KILLED), worker.log
    if number % 3 == 0:  # again, while the first death is being recovered from, and once more
        for again in (1 + number % 4, 2):
            second = run(data, record, seed=number + again, **kill(again), **SMALL)
            assert second.code in (0, KILLED), second.log
    verdicts.sound(data, record)
    shutil.rmtree(data, ignore_errors=True)
    return worker.code == KILLED


def sweep(
    folder: Path, numbers: list[int], kill: Kill, verdicts: Verdicts, enough: float = 0.7
) -> None:
    """Kill at each of the calls; most must be reached, or the sweep proves nothing."""
    with ThreadPoolExecutor(2) as pool:
        fired = list(pool.map(lambda number: killed(folder, number, kill, verdicts), numbers))
    assert sum(fired) >= enough * len(numbers), (
        f"inconclusive: {sum(fired)} of {len(numbers)} fired"
    )


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """How often a worker that is left alone makes each call."""
    need_strace()
    folder = tmp_path_factory.mktemp("count")
    before = strace(trace=list(TRACED), output=folder / "trace")
    worker = run(folder / "data", folder / "history", before=before, seed=1, **SMALL)
    assert worker.code == 0, worker.log
    assert history.read(folder / "history")[-1]["op"] == "closed"
    return counted(folder / "trace")


@pytest.mark.timeout(600)
@pytest.mark.row("B1")
@pytest.mark.parametrize("call", list(TRACED))
def test_killed_at_a_system_call(call, calls, memory_folder, verdicts):
    assert calls[call] > 3, f"inconclusive: {calls[call]} calls of {call}"

    def kill(number: int) -> dict[str, Any]:
        return {"before": strace(trace=[call], inject=f"signal=KILL:when={number}")}

    # The first calls make the folder; the last ones may come late or not at all in another run.
    points = POINTS if call in ("pwrite", "fdatasync") else POINTS // 2
    sweep(memory_folder, spread(int(calls[call] * 0.8), points), kill, verdicts)


@pytest.mark.timeout(600)
@pytest.mark.row("B1")
@pytest.mark.parametrize(
    ("call", "last"),
    [
        ("write", 70),
        ("write:short", 70),
        ("sync", 40),
        ("allocate", 5),
        ("rename", 8),
        ("remove", 8),
        ("sync_folder", 3),
    ],
)
def test_killed_at_a_disk_operation(call, last, memory_folder, verdicts):
    """The same from inside: works without strace, and leaves half of a write."""
    name, _, kind = call.partition(":")

    def kill(number: int) -> dict[str, Any]:
        return {"kill": f"{name}:{number}" + (f":{kind}" if kind else "")}

    # Half of a write to an index file, which is a cache, is survived.
    enough = 0.3 if kind else 0.7
    sweep(memory_folder, spread(last, max(3, POINTS // 3)), kill, verdicts, enough)


@pytest.mark.row("B1", "C8", "G2")
def test_killed_at_random_moments(tmp_path, verdicts):
    """One folder goes through six kills; each time everything answered is there (DUR-1)."""
    chance = random.Random(6)
    data, record = tmp_path / "data", tmp_path / "history"
    copy = tmp_path / "copy"
    for cycle in range(6):
        with Worker(data, record, seed=cycle, messages=10**9, segment=256 << 10) as worker:
            worker.answered(chance.randint(20, 900))
            worker.kill()
        shutil.copytree(data, copy)
        verdicts.sound(copy, record)
        shutil.rmtree(copy)
    verdict = verdicts.sound(data, record)
    assert verdict["begin"] == 6
    assert verdict["sent"] > 1000


@pytest.mark.row("C3")
def test_group_commit_loses_nothing(tmp_path, verdicts):
    """64 sends are out at a time: far fewer syncs than answers, and all answered survive."""
    need_strace()
    data, record, output = tmp_path / "data", tmp_path / "history", tmp_path / "trace"
    before = strace(trace=["fdatasync"], output=output)
    with Worker(data, record, before=before, scenario="flood", messages=10**9) as worker:
        worker.answered(3000)
        worker.kill()
    verdict = verdicts.sound(data, record)
    assert verdict["sent"] >= 3000
    assert counted(output)["fdatasync"] * 8 < verdict["sent"]
