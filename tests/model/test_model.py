"""The model itself: small bounds are explored to the end, and what is broken is found."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import permutations
from pathlib import Path

import pytest

from tests.model.__main__ import main
from tests.model.codes import Codes, Renaming
from tests.model.explore import explore
from tests.model.invariants import _two_writers, violations
from tests.model.mutants import MUTANTS, Mutant
from tests.model.rules import acknowledged, commit_mark, known_committed, may_follow, required
from tests.model.run import Broken, Run
from tests.model.runs import RUNS
from tests.model.state import Force, Member, Node, Record, State, entry
from tests.model.steps import steps

FOLDER = Path(__file__).parent
A1, B1, B2 = Member(0, 1), Member(1, 1), Member(1, 2)
LONG = 10_000
"""States; a mutant that needs more is left to `make model`."""
LONGER = {
    "joiner_without_epoch",
    "ack_of_earlier_epoch",
    "promises_forgotten",
    "epoch_not_awaited+promises_forgotten",
    "epoch_not_awaited+followed_forgotten",
    "promise_not_in_copy",
    "anyone_elected+cut_below_mark:gone",
    "force_keeps_its_end",
    "earlier_force_ignored",
}
SHORT = [one for one in MUTANTS if not one.harmless and one.name not in LONGER]


@pytest.mark.parametrize(
    ("run", "states"),
    [
        pytest.param(Run(messages=1, crashes=1, changes=3), 22_058, id="two"),
        pytest.param(Run(messages=2, crashes=1, changes=1), 20_838, id="two messages"),
        pytest.param(Run(messages=1, crashes=1, changes=2, resigns=True), 34_122, id="resigns"),
        pytest.param(Run(messages=1, crashes=1, changes=1, marks=True), 13_938, id="marks"),
        pytest.param(Run(messages=1, crashes=1, changes=2, switches=True), 22_774, id="switches"),
        pytest.param(
            Run(messages=1, crashes=1, changes=2, synced_acks=True, switches=True),
            17_684,
            id="synced acks",
        ),
        pytest.param(
            Run(messages=1, crashes=1, changes=1, marks=True, forces=True), 14_120, id="forces"
        ),
        pytest.param(Run(brokers=3, messages=1, crashes=0, changes=2), 42_874, id="three"),
    ],
)
def test_small_bounds_are_explored_to_the_end_without_a_violation(run: Run, states: int) -> None:
    result = explore(run)
    assert (result.exhausted, result.found) == (True, None)
    # Another number is another model: look at what changed, then at the figures of the README.
    assert result.states == states


@pytest.mark.parametrize("mutant", SHORT, ids=lambda one: one.name)
def test_a_broken_rule_is_found(mutant: Mutant) -> None:
    result = explore(mutant.run, judged=mutant.judged, most_states=LONG)
    assert result.found is not None, f"nothing in {result.states} states"
    assert len(result.found.trace) == result.depth
    # The trace is one: from the beginning, each step is possible, and the last violates.
    state = mutant.run.start()
    for step in result.found.trace:
        assert step in list(steps(mutant.run, state))
        assert not [kind for kind, _ in violations(state) if kind in mutant.judged]
        state = step.state
    assert result.found.kind in [kind for kind, _ in violations(state)]


def test_each_rule_has_a_mutant_and_a_line_in_the_readme() -> None:
    broken = {name for one in MUTANTS for name in one.run.broken.names()}
    assert broken == {one.name for one in fields(Broken)}
    assert {one.name for one in MUTANTS} >= LONGER
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(broken) if f"`{name}`" not in text] == []


def test_the_readme_has_the_figures_that_are_kept() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    explored = json.loads((FOLDER / "results/explore.json").read_text(encoding="utf-8"))
    mutants = json.loads((FOLDER / "results/mutants.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in explored["runs"]] == list(RUNS)
    assert {one["name"] for one in mutants["runs"]} >= {one.name for one in MUTANTS}
    for one in (*explored["runs"], *mutants["runs"]):
        assert one["as_expected"], one["name"]
        if not one["name"].startswith("("):
            assert f"{one['states']:,}" in text, one["name"]


def _code(codes: Codes, state: State) -> int:
    return codes.code(state, codes.numbered(state))


def _reached(run: Run, depth: int) -> list[State]:
    """Return all states up to a depth, those that differ in names each."""
    seen = {run.start(): None}
    level = [run.start()]
    for _ in range(depth):
        found = dict.fromkeys(step.state for state in level for step in steps(run, state))
        level = [state for state in found if state not in seen]
        seen.update(dict.fromkeys(level))
    return list(seen)


def test_states_that_differ_in_names_have_one_code_and_no_others_have() -> None:
    run = Run(brokers=3, messages=1, crashes=1, changes=2, switches=True)
    states = _reached(run, 5)
    codes = Codes(3)
    swapped = Renaming((0, 2, 1), codes)
    orbits: dict[int, set[State]] = {}
    for state in states:
        orbits.setdefault(_code(codes, state), set()).add(state)
    assert all(len(orbit) in {1, 2} for orbit in orbits.values())
    # With a state, its mirror is reached; both have one code, and only they.
    for orbit in orbits.values():
        one = next(iter(orbit))
        assert {swapped.state(state) for state in orbit} == orbit
        assert orbit == {one, swapped.state(one)}


def test_four_brokers_have_all_permutations_of_the_three_that_follow() -> None:
    run = Run(brokers=4, messages=1, crashes=0, changes=1)
    codes = Codes(4)
    names = {
        _code(codes, Renaming((0, *order), codes).state(state))
        for state in _reached(run, 3)[-1:]
        for order in permutations((1, 2, 3))
    }
    assert len(names) == 1


def test_the_exploration_without_symmetry_comes_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(brokers=3, messages=1, crashes=0, changes=1)
    with_symmetry = explore(run)
    begin = Codes.__init__

    def plain(codes: Codes, _brokers: int) -> None:
        begin(codes, 1)

    monkeypatch.setattr(Codes, "__init__", plain)
    without = explore(run)
    assert without.found is None
    assert (without.depth, without.exhausted) == (with_symmetry.depth, True)
    assert with_symmetry.states < without.states <= 2 * with_symmetry.states


_KNOWN = Record(3, 2, 0, 1, frozenset({A1, B1}), ())
_PRIMARY = Node(1, (entry(1), entry(1, 1), entry(2)), synced=3, role="serves", known=_KNOWN)


def test_c_is_what_all_hold_from_this_reigns_epoch_on() -> None:
    intact = Broken()
    assert commit_mark(0, _PRIMARY, intact) == 0
    assert commit_mark(0, _PRIMARY._replace(acks=frozenset({(B1, 2)})), intact) == 0
    assert commit_mark(0, _PRIMARY._replace(acks=frozenset({(B1, 3)})), intact) == 3
    assert commit_mark(0, _PRIMARY._replace(acks=frozenset({(B1, 3)}), synced=2), intact) == 0
    assert commit_mark(0, _PRIMARY._replace(acks=frozenset({(B2, 3)})), intact) == 0
    early = replace(intact, epoch_not_awaited=True)
    assert commit_mark(0, _PRIMARY._replace(acks=frozenset({(B1, 2)})), early) == 2


def test_both_sets_are_required_until_the_outcome_is_known() -> None:
    known = _KNOWN
    alone = known._replace(version=4, members=frozenset({A1}))
    again = known._replace(version=4, members=frozenset({A1, B2}))
    assert required(_PRIMARY._replace(swap=alone, outcome="taken"), Broken()) == {A1, B1}
    assert required(_PRIMARY._replace(swap=again, outcome="out"), Broken()) == {A1, B1, B2}
    assert acknowledged(_PRIMARY._replace(acks=frozenset({(B1, 3)})), B2, Broken()) == 0


def test_no_epoch_is_followed_below_what_was_promised() -> None:
    node = Node(life=1, log=(entry(1),), synced=1, told=3)
    assert [epoch for epoch in range(5) if may_follow(node, epoch, Broken())] == [3, 4]
    forgot = replace(Broken(), promises_forgotten=True)
    assert [epoch for epoch in range(5) if may_follow(node, epoch, forgot)] == [1, 2, 3, 4]


def test_a_mark_counts_as_far_as_a_later_forced_promotion_left_it() -> None:
    node = Node(life=1, log=(entry(1),) * 9, synced=9, mark=7, marked=2)
    assert known_committed(node, (), Broken()) == 7
    assert known_committed(node, (Force(2, 1),), Broken()) == 7
    assert known_committed(node, (Force(2, 1), Force(3, 5), Force(4, 6)), Broken()) == 5


def test_two_writers_of_an_epoch_are_noticed_and_a_lost_tail_is_not() -> None:
    one = (entry(1), entry(1, 1), entry(3))
    assert not _two_writers(one, one[:2])
    assert not _two_writers(one, (entry(1), entry(1, 1), entry(1, 2), entry(2)))
    assert _two_writers(one, (entry(1), entry(1, 2)))
    assert _two_writers(one, (entry(1), entry(3)))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = ["--messages", "1", "--crashes", "0", "--changes", "1"]
    path = tmp_path / "results.json"
    assert main(["explore", *bounds, "--json", str(path)]) == 0
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["runs"][0]["exhausted"]
    assert kept["runs"][0]["run"]["changes"] == 1
    assert main(["explore", *bounds, "--broken", "answer_before_ack"]) == 1
    assert "B1 is a recorded member and lacks 1m1 at place 2" in capsys.readouterr().out
    assert main(["explore", *bounds, "--broken", "answer_before_ack", "--harm"]) == 1
    assert "B leads the recorded reign and lacks 1m1 at place 2" in capsys.readouterr().out
    assert main(["explore", *bounds, "--most-states", "10"]) == 3
    assert main(["mutants", "answer_before_ack", "anyone_elected"]) == 0
    assert main(["trace", "reign_resumed"]) == 0
    assert "A goes on with epoch 1" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["mutants", "nothing_such"])
    assert "there are answer_before_sync" in capsys.readouterr().err
