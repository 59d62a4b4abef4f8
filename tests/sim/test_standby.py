"""A follower's views beside every workload: equal to a replay, and good to begin a reign with."""

from __future__ import annotations

import pytest

from tests.sim.run import Case
from tests.sim.standby import Beside
from tests.sim.workloads import KINDS
from tests.sim.world import World


def beside(monkeypatch: pytest.MonkeyPatch, name: str) -> Beside:
    """Run a case with a follower beside it; return the follower."""
    kind = name.partition("/")[0]
    make, made = KINDS[kind], list[Beside]()

    def with_a_follower(seed: str) -> World:
        world = make(seed)
        made.append(Beside(world, seed))
        return world

    monkeypatch.setitem(KINDS, kind, with_a_follower)
    case = Case(name)
    case.run(sweep=False)
    made[0].compare()
    return made[0]


@pytest.mark.parametrize(
    "name",
    [
        "checked/standby.0", "consumed/standby.0", "copied_rolls/standby.2", "crowded/standby.1",
        "fast/standby.1", "keyed/standby.0", "numbered/standby.0", "ordered/standby.1",
        "rolls/standby.1", "transactions/standby.1",
    ],
)  # fmt: skip
def test_a_followers_views_are_those_of_a_replay(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """At many points of a run, and where a reign begins with them."""
    found = beside(monkeypatch, name)
    assert found.loads
    assert found.compared


@pytest.mark.parametrize("name", ["crowded/standby.1", "transactions/standby.1"])
def test_a_reign_begins_with_them(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert beside(monkeypatch, name).promotions
