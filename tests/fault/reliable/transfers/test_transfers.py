"""EOS-1: money goes through three stages, and somebody is killed every two seconds."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

import ternmq.sync
from ternmq.reliable import Inbox
from tests.black_box.process import BrokerProcess
from tests.fault.reliable.crew import Crew, MemberProcess, Nursery
from tests.fault.reliable.tools import LONG, SEED, much, wait_until
from tests.fault.reliable.transfers import audit, bank
from tests.fault.reliable.transfers.bank import ASK, CONFIRM, STAGES
from tests.fault.reliable.transfers.clerk import AFTER, BEFORE, SIGNALS, Duty
from tests.fault.server.results import keep
from tests.killable_databases import KINDS, SERVED, Servers

pytestmark = [pytest.mark.fault, pytest.mark.slow]

EVERY_S: Final = 2.0
KILLS: Final = much(8, 30)
ACCOUNTS: Final = 16
OUTSIDE: Final = "anywhere"
WHERE: Final = (AFTER, BEFORE, OUTSIDE)
"""Where a stage is killed."""
_TOPICS: Final = itertools.count(1)


class Bank:
    """One clerk for each role at a time; another one follows who was killed.

    Args:
        kind: Of the database.
        engine: Of the test, which only looks.
        crew: The clerks.
        servers: Have the database.
        broker: Where messages go.
    """

    def __init__(
        self, kind: str, engine: sa.Engine, crew: Crew, servers: Servers, broker: BrokerProcess
    ) -> None:
        self.engine = engine
        self.crew = crew
        self._kind = kind
        self._servers = servers
        self._broker = broker
        self._numbers = itertools.count(1)
        self._clerks = {role: self._start(role) for role in (ASK.name, *(s.name for s in STAGES))}

    def _start(self, role: str) -> MemberProcess:
        number = next(self._numbers)
        return self.crew.start(f"{role}{number}", role=role, seed=SEED * 1000 + number)

    def ready(self) -> None:
        """Wait until all work: a transfer is confirmed."""
        wait_until(lambda: bank.count(self.engine, CONFIRM) > 0, "one is confirmed", pause=0.05)

    def kill(self, who: str, where: str) -> None:
        """Kill somebody; another process of that role goes on."""
        if who == "broker":
            self._broker.kill()
            self._broker.start()
        elif who == "database":
            self._servers.kill(self._kind)
            self._servers.again(self._kind)
        else:
            victim = self._clerks[who]
            if where == OUTSIDE:
                victim.said("started")
                victim.kill()
            else:
                victim.dies(SIGNALS[where])
            self._clerks[who] = self._start(who)

    def end_asking(self) -> None:
        """Have the teller end."""
        self._clerks[ASK.name].end()


@contextmanager
def opened(
    kind: str, servers: Servers, broker: BrokerProcess, forks: Nursery, folder: Path
) -> Iterator[tuple[Bank, str]]:
    """Make a database with accounts, and clerks; yield them with the beginning of their topics."""
    url, topic = servers.fresh(kind), f"transfers-{next(_TOPICS)}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with Inbox(engine, clean=False) as inbox:
        inbox.prepare()
    bank.make(engine, ACCOUNTS)
    with ternmq.sync.connect(broker.url) as client:
        for stage in bank.ALL:
            client.admin.create_topic(f"{topic}-{stage.sends}", ordered=stage.ordered)
    with Crew(
        forks, folder, Duty, database=url, broker=broker.url, topic=topic, accounts=ACCOUNTS
    ) as crew:
        yield Bank(kind, engine, crew, servers, broker), topic
    servers.drop(kind, url)


def plan_of(kind: str) -> list[tuple[str, str]]:
    """Return who is killed, and where, by the seed: all in turn, stages each time elsewhere."""
    chance = random.Random(f"{SEED}-{kind}")
    first = chance.sample(range(len(WHERE)), len(STAGES))
    places = {
        stage.name: itertools.cycle(WHERE[at:] + WHERE[:at])
        for stage, at in zip(STAGES, first, strict=True)
    }
    roles = [ASK.name, *places, "broker", *(["database"] if kind in SERVED else [])]
    plan: list[tuple[str, str]] = []
    while len(plan) < KILLS:
        for role in chance.sample(roles, len(roles)):
            plan.append((role, next(places[role]) if role in places else OUTSIDE))
    return plan[:KILLS]


@pytest.mark.timeout(180 if KILLS < 20 else 900)
@pytest.mark.row("J1", "J4", "K5", "K18", "M1", "M2", "M7")
@pytest.mark.parametrize("kind", KINDS if LONG else ("sqlite",))
def test_money_over_three_stages(kind, servers, broker, forks, tmp_path):
    """What was asked for is debited, credited and confirmed once, and the sum never changes."""
    plan = plan_of(kind)
    begun = time.monotonic()
    with opened(kind, servers, broker, forks, tmp_path / "crew") as (here, topic):
        here.ready()
        first = time.monotonic()
        for number, (who, where) in enumerate(plan):
            wait_for_turn(here, first + number * EVERY_S)
            assert bank.total(here.engine) == ACCOUNTS * bank.START_CENTS
            here.kill(who, where)
        span_s = time.monotonic() - first
        confirmed = bank.count(here.engine, CONFIRM)
        here.end_asking()
        with ternmq.sync.connect(broker.url, timeout=60) as client:
            audit.wait_until_done(client, here.engine, topic)
            counts = here.crew.end()
            verdict = audit.judge(client, here.engine, topic, here.crew, accounts=ACCOUNTS)
    assert verdict.rolled_back > 0, "inconclusive: some are rolled back"
    planned = Counter(where for _, where in plan)
    died = Counter(line["where"] for line in here.crew.lines("dies"))
    assert died == Counter({where: planned[where] for where in SIGNALS}), "inconclusive"
    known = len(here.crew.lines("known"))
    assert known >= planned[AFTER], "inconclusive: what was committed and not acked came again"
    assert not any(one["failed"] for one in counts)
    keep(
        f"eos-1-{kind}",
        {"seed": SEED, "kills": dict(Counter(who for who, _ in plan)), "where": dict(planned),
         "kills_s": round(span_s, 1), **verdict.counts(), "confirmed_meanwhile": confirmed,
         "suppressed": known, "span_s": round(time.monotonic() - begun, 1),
         "lost": 0, "phantom": 0, "out_of_order": 0, "twice": 0},
    )  # fmt: skip


def wait_for_turn(here: Bank, until: float) -> None:
    """Wait for the time of a kill; that of a machine which does much else comes later.

    Between two kills, a transfer is confirmed: who is killed had work.
    """
    before = bank.count(here.engine, CONFIRM)
    threading.Event().wait(max(0.0, until - time.monotonic()))
    wait_until(
        lambda: bank.count(here.engine, CONFIRM) > before,
        "inconclusive: transfers go on between the kills",
        pause=0.05,
    )
