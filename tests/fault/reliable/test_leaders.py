"""Several compensators on one database: one works; another takes over when it is killed (J5)."""

from __future__ import annotations

import pytest

from tests.fault.reliable import checks
from tests.fault.reliable.place import place
from tests.fault.reliable.tools import much, wait_until
from tests.killable_databases import KINDS

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.mark.timeout(180)
@pytest.mark.row("J5", "K3")
@pytest.mark.parametrize("kind", KINDS)
def test_one_of_two_compensators_works_and_the_other_takes_over(
    kind, servers, broker, forks, tmp_path
):
    """Nobody is killed: no receipt is of a duplicate. Then the leader is killed with kill -9."""
    with place(
        kind, servers, broker, forks, tmp_path / "crew", accounts=16, lease_s=float(much(2, 10))
    ) as here:
        pair = {one.pid: one for one in (here.crew.start("c1"), here.crew.start("c2"))}
        writer = here.crew.start(
            "w1", count=much(100, 1000), compensate=False, rolled_back=0.1, undone=0.1
        )
        writer.said("done")
        checks.wait_until_empty(here.engine)
        leader = checks.leader(here.engine)
        assert leader in pair, "inconclusive: nobody leads"
        killed = pair.pop(leader)
        (other,) = pair.values()
        killed.kill()
        here.crew.start("w2", count=much(50, 500), compensate=False).said("done")
        verdict = here.judge()
        wait_until(lambda: checks.leader(here.engine) == other.pid, "the other one leads")
        counts = {one["name"]: one for one in here.crew.end()}
    assert verdict.unknown == 0
    assert verdict.rolled_back > 0
    assert not any(one["duplicates"] for one in counts.values()), counts
    assert counts[other.name]["resent"] == much(50, 500), "only what the killed one had left"
    assert counts["w1"]["resent"] == counts["w2"]["resent"] == 0
