"""The plan of random faults on a broker group (``tests/fault/group/nemesis.py``)."""

from __future__ import annotations

from itertools import islice

from tests.fault.group.nemesis import DECK, plan, planned, steps


def test_a_plan_follows_from_its_seed() -> None:
    assert list(map(str, plan(5, 50, 8.0))) == list(map(str, islice(steps(5, 8.0), 50)))
    assert plan(5, 50, 8.0) != plan(6, 50, 8.0)


def test_every_fault_comes_before_one_comes_again() -> None:
    for seed in range(20):
        count = len(DECK)
        inner = [step.faults[-1] for step in plan(seed, 2 * count, 8.0)]
        assert set(inner[:count]) == set(inner[count:]) == set(DECK)


def test_what_is_planned_is_counted_with_the_faults_around_others() -> None:
    found = plan(1, 40, 8.0)
    assert planned(found).total() == sum(len(step.faults) for step in found) > len(found)
