"""OBX-1 and OBX-2: everybody killed at random; transactions that commit out of order."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from typing import Final

import pytest

from tests.fault.reliable import checks
from tests.fault.reliable.crew import MemberProcess
from tests.fault.reliable.place import Place, place
from tests.fault.reliable.tools import SEED, much, wait_until
from tests.fault.server.results import keep
from tests.killable_databases import KINDS, SERVED

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TRANSACTIONS: Final = much(240, 2_000)
KILLS: Final = much(4, 20)
VICTIMS: Final = ("application", "broker", "database", "compensator")
MANY: Final = much(400, 20_000)
FOR_EVER: Final = 10**9
WRITERS: Final = 4


class Killer:
    """Two writers and two compensators, of which it kills some and starts others."""

    def __init__(self, here: Place, chance: random.Random) -> None:
        self._here = here
        self._chance = chance
        self._numbers = itertools.count(1)
        self.writers = [self._writer() for _ in range(2)]
        self.compensators = [self._compensator() for _ in range(2)]

    def _writer(self) -> MemberProcess:
        number = next(self._numbers)
        return self._here.crew.start(
            f"w{number}", count=FOR_EVER, threads=2, compensate=False, seed=number, rolled_back=0.1,
            undone=0.1, pause_s=0.005,
        )  # fmt: skip

    def _compensator(self) -> MemberProcess:
        return self._here.crew.start(f"c{next(self._numbers)}")

    def application(self) -> None:
        """Kill a writer."""
        at = self._chance.randrange(2)
        self.writers[at].kill()
        self.writers[at] = self._writer()

    def compensator(self) -> None:
        """Kill the compensator that leads."""
        pids = [one.pid for one in self.compensators]
        leader = 0

        def leads() -> bool:
            nonlocal leader
            leader = checks.leader(self._here.engine)
            return leader in pids

        wait_until(leads, "inconclusive: a compensator leads", pause=0.05)
        at = pids.index(leader)
        self.compensators[at].kill()
        self.compensators[at] = self._compensator()


@pytest.mark.timeout(180 if TRANSACTIONS < 1000 else 900)
@pytest.mark.row("J1", "J4", "J5", "K5")
@pytest.mark.parametrize("kind", KINDS)
def test_everybody_is_killed_at_random(kind, servers, broker, forks, tmp_path):
    """OBX-1: all that was committed is stored once and in order, and nothing else."""
    chance = random.Random(f"{SEED}-{kind}")
    victims = [one for one in VICTIMS if one != "database" or kind in SERVED]
    plan = [*victims, *chance.choices(victims, k=KILLS - len(victims))]
    chance.shuffle(plan)
    begun = time.monotonic()
    with place(kind, servers, broker, forks, tmp_path / "crew", accounts=32) as here:
        killer = Killer(here, chance)
        for number, victim in enumerate(plan):
            upto = round(TRANSACTIONS * (number + chance.random()) / KILLS)
            wait_for(here, upto)
            if victim == "broker":
                broker.kill()
                broker.start()
            elif victim == "database":
                servers.kill(kind)
                servers.again(kind)
            elif victim == "application":
                killer.application()
            else:
                killer.compensator()
        wait_for(here, TRANSACTIONS)
        for one in killer.writers:
            one.end()
        verdict = here.judge()
        here.crew.end()
    assert verdict.committed >= TRANSACTIONS
    assert verdict.rolled_back > 0
    keep(
        f"obx-1-{kind}",
        {"seed": SEED, "kills": dict(Counter(plan)), **verdict.counts(),
         "span_s": round(time.monotonic() - begun, 1), "lost": 0, "phantom": 0, "out_of_order": 0},
    )  # fmt: skip


def wait_for(here: Place, count: int) -> None:
    """Wait until so many transactions are committed, as far as the members know."""
    wait_until(
        lambda: len(here.crew.lines("committed")) >= count,
        f"{count} are committed",
        float(much(120, 900)),
        pause=0.02,
    )


@pytest.mark.timeout(180 if MANY < 1000 else 1800)
@pytest.mark.row("J1", "J5")
@pytest.mark.parametrize("kind", SERVED)
def test_transactions_that_commit_out_of_order(kind, servers, broker, forks, tmp_path):
    """OBX-2: two compensators, of which the leader is frozen for three leases and continued."""
    lease_s = float(much(2, 10))
    begun = time.monotonic()
    with place(
        kind, servers, broker, forks, tmp_path / "crew", accounts=400, lease_s=lease_s
    ) as here:
        pair = [here.crew.start(name, resend_after=10.0) for name in ("c1", "c2")]
        compensators = {one.pid: one for one in pair}
        writers = [
            here.crew.start(
                f"w{number}",
                count=MANY // WRITERS,
                threads=16,
                compensate=False,
                seed=number,
                held=1 / 3,
                hold_s=2.0,
                undone=0.1,
                rolled_back=0.1,
            )
            for number in range(WRITERS)
        ]
        wait_for(here, MANY // 4)
        leader = checks.leader(here.engine)
        assert leader in compensators, "inconclusive: nobody leads"
        compensators[leader].stop()
        frozen = time.monotonic()
        wait_until(
            lambda: checks.leader(here.engine) in set(compensators) - {leader},
            "inconclusive: the other one leads", pause=0.05,
        )  # fmt: skip
        wait_until(lambda: time.monotonic() > frozen + 3 * lease_s, "three leases", 4 * lease_s)
        compensators[leader].go_on()
        for one in writers:
            one.said("done", seconds=900)
        verdict = here.judge()
        counts = here.crew.end()
    assert verdict.unknown == 0
    assert MANY * 0.8 < verdict.committed < MANY
    assert verdict.rolled_back > MANY / 10
    duplicates = {one["name"]: one["duplicates"] for one in counts}
    assert not any(duplicates[one.name] for one in writers), "receipts of processes that went on"
    keep(
        f"obx-2-{kind}",
        {"transactions": MANY, "lease_s": lease_s, **verdict.counts(), "duplicates": duplicates,
         "resent": sum(one["resent"] for one in counts),
         "sent": sum(one["sent"] for one in counts),
         "span_s": round(time.monotonic() - begun, 1), "lost": 0, "phantom": 0, "out_of_order": 0},
    )  # fmt: skip
