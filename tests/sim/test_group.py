"""The simulator of a broker group: it runs, it is deterministic, and it notices broken rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.group.__main__ import main
from tests.sim.group.case import ROTATION, Case
from tests.sim.group.mutants import MUTANTS, kind_of, planted
from tests.sim.tape import Violation

ROOT = Path(__file__).parents[2]
SOON = {
    "answer_before_the_ack": 10,
    "answer_before_the_sync": 10,
    "joiner_not_checked": 20,
    "acknowledged_more_than_was_written": 10,
    "anyone_elected": 20,
    "no_sync_before_the_swap": 20,
    "stands_without_stopping": 20,
    "acknowledged_before_it_was_compared": 20,
    "committed_beyond_what_was_compared": 20,
    "copy_note_before_the_bytes": 20,
    "durable_taken_from_the_records_of_a_copy": 20,
    "commit_mark_at_the_local_disk": 10,
    "loss_not_accepted_by_others": 30,
    "cut_below_what_was_accepted": 30,
    "given_up_and_not_kept": 30,
    "loss_stated_too_late": 10,
    "patched_without_linking_behind": 10,
    "patched_with_what_is_not_checked": 10,
    "applied_above_the_commit_mark": 5,
    "views_kept_after_a_cut": 10,
    "follower_never_forgets": 5,
    "shorter_lease_acted_on_at_once": 20,
    "own_lease_trusted": 10,
    "promise_not_stored": 20,
}
"""Mutants that are noticed within so many cases; ``python -m tests.sim.group mutants`` runs all."""


@pytest.mark.parametrize("number", range(7))
def test_a_case_holds(number: int) -> None:
    case = Case(f"{ROTATION[number % len(ROTATION)]}/pytest.{number}")
    case.run()
    assert case.world.oracle.answers > 10


@pytest.mark.parametrize("kind", sorted(set(ROTATION)))
def test_the_event_log_does_not_depend_on_the_hash_seed(kind: str) -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-m", "tests.sim.group", "digest", f"{kind}/pytest.1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("name", SOON)
def test_a_broken_rule_is_noticed(name: str) -> None:
    def run() -> None:
        for number in range(SOON[name]):
            Case(f"{kind_of(name, number)}/mutant.{number}").run()

    with planted(name), pytest.raises(Violation):
        run()


def test_a_mutant_is_gone_behind_its_test() -> None:
    before = _rules()
    for name in MUTANTS:
        with planted(name):
            pass
    assert _rules() == before


def _rules() -> list[object]:
    return [vars(where)[what] for make in MUTANTS.values() for where, what, _ in make()]


def test_a_kind_that_is_not_there_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["replay", "nosuch/1.17"])
    assert refused.value.code == 2
    assert "no such kind: nosuch" in capsys.readouterr().err
