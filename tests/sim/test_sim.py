"""The simulator itself: it runs, it is deterministic, and it notices a disk that lies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ternmq.journal.log.journal import Journal
from tests.sim.__main__ import main
from tests.sim.crash import Count, Plan, Sweep
from tests.sim.run import FIRST, FORWARD, Case
from tests.sim.tape import Violation
from tests.sim.workloads import KINDS
from tests.sim.world import World

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_case_of_every_kind_holds(kind: str) -> None:
    number = 0 if kind == "tiny" else FIRST  # before, cases are swept too thinly
    case = Case(f"{kind}/pytest.{number}")
    case.run()
    assert case.count.images > 10


@pytest.mark.parametrize("kind", ["shared", "ordered", "rolls"])
def test_the_event_log_does_not_depend_on_the_hash_seed(kind: str) -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.sim", "digest", f"{kind}/pytest.1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def _swept(world: World) -> Count:
    count = Count()
    Sweep(world.reign, Plan(points=0.3, draws=1), random.Random(1), count).run()
    return count


def test_a_disk_that_lies_about_syncs_is_noticed() -> None:
    world = KINDS["shared"]("lying")
    world.run(40)
    assert _swept(world).images > 0
    world.faults.lying = True
    world.run(120)
    with pytest.raises(Violation, match="loss"):
        _swept(world)


def test_a_removal_that_the_reign_before_did_not_sync_is_noticed_when_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Journal.__init__

    def forget(journal: Journal, *args: Any, **kwargs: Any) -> None:
        begin(journal, *args, **kwargs)
        journal._removed = journal._removed_durable

    monkeypatch.setattr(Journal, "__init__", forget)

    def run() -> None:
        for number in range(FORWARD, FORWARD + 8):
            Case(f"crowded/pytest.{number}").run()

    with pytest.raises(Violation, match="it does not start"):
        run()


def test_an_answer_before_its_sync_is_noticed() -> None:
    world = KINDS["shared"]("early")
    world.run(40)
    journal = world.broker.journal

    def call_it_durable() -> None:
        journal.durable = journal.committed = journal.written
        world.after(50, call_it_durable)

    # Again and again: at one moment there may be nothing that waits, or a sweep may pass over it.
    world.after(1, call_it_durable)
    world.run(120)
    with pytest.raises(Violation):
        _swept(world)


def test_a_case_is_the_same_when_it_runs_again() -> None:
    first, second = Case(f"fast/pytest.{FORWARD}"), Case(f"fast/pytest.{FORWARD}")
    first.run()
    second.run()
    assert first.digest() == second.digest()
    assert first.totals() == second.totals()


@pytest.mark.parametrize(
    "arguments", [["run", "--kinds", "rolls,nosuch"], ["replay", "nosuch/1.17"], ["digest", "x"]]
)
def test_a_kind_that_is_not_there_is_refused_by_name(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    told = capsys.readouterr().err
    assert "no such kind: " in told
    assert "rolls" in told
