"""The clock of the database jumps by an hour, forth and back, while an application works.

It is the wall clock of the server's process, or of the application's, where the database is SQLite;
see ``tests.fault.group.clocks``.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.fault.group.clocks import WallClock, library
from tests.fault.reliable import checks, shop
from tests.fault.reliable.crew import nursery
from tests.fault.reliable.place import Place, place
from tests.fault.reliable.tools import much, wait_until
from tests.killable_databases import KINDS, Servers

pytestmark = [pytest.mark.fault, pytest.mark.slow]

HOUR_S: Final = 3600
JUMPS: Final = (HOUR_S, 0, -HOUR_S, 0)
"""Offsets of the clock, one after the other: an hour forth, back, back, forth."""
NEAR_S: Final = HOUR_S / 2

MARIADB: Final = "Lock wait timeout exceeded"
"""What MariaDB answers to a transaction that waits for a row: it counts by the clock that jumps."""


@pytest.fixture
def clock() -> Iterator[WallClock]:
    """A clock that processes of other users can read."""
    folder = Path(tempfile.mkdtemp(prefix="ternmq-clock-"))
    folder.chmod(0o755)
    yield WallClock(folder, library(folder))
    shutil.rmtree(folder)


def lease_s(here: Place) -> float:
    """Return how far the end of the compensator's lease is from the clock of this process."""
    with here.engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT until_ms FROM ternmq_lease WHERE name = 'compensator'"
        ).scalar_one()
    return int(found) / 1000 - time.time()


@pytest.mark.timeout(240)
@pytest.mark.row("J4", "J5", "K5")
@pytest.mark.parametrize("kind", KINDS)
def test_the_clock_of_the_database_jumps_by_an_hour(kind, clock, broker, tmp_path):
    """All rows are sent, in order, and none waits for an hour; nor does who takes over."""
    own, common = (clock.before, ()) if kind == "sqlite" else ((), clock.before)
    with (
        Servers(tmp_path / "sqlite", before=common) as servers,
        nursery(own) as forks,
        place(kind, servers, broker, forks, tmp_path / "crew", accounts=8) as here,
    ):
        pair = {one.pid: one for one in (here.crew.start("c1"), here.crew.start("c2"))}
        writer = here.crew.start(
            "w1", count=10**9, threads=2, compensate=False, pause_s=0.01, rolled_back=0.1,
            undone=0.1,
        )  # fmt: skip
        written(here, 20)
        for number, offset_s in enumerate(JUMPS):
            clock.set(offset_s)
            wait_until(
                partial(jumped, here, offset_s),
                "inconclusive: the lease is taken by the clock that jumped",
                pause=0.05,
            )
            written(here, much(20, 200))
            leader = checks.leader(here.engine)
            if leader in pair:
                pair.pop(leader).kill()
                made = here.crew.start(f"again{number}")
                pair[made.pid] = made
            wait_until(lambda: checks.leader(here.engine) in pair, "another one leads", pause=0.05)
            wait_until(lambda: shop.rows_left(here.engine) < 50, "rows are sent", pause=0.05)
        writer.end()
        verdict = here.judge()
        here.crew.end()
    errors = {line["error"] for line in here.crew.lines("unknown")}
    assert all(kind == "mariadb" and MARIADB in one for one in errors), errors
    assert verdict.rolled_back > 0


def jumped(here: Place, offset_s: int) -> bool:
    """Return whether the compensator's lease is one of the clock that jumped."""
    return abs(lease_s(here) - offset_s) < NEAR_S


def written(here: Place, more: int) -> None:
    """Wait until so many more transactions are committed, as far as the members know."""
    before = len(here.crew.lines("committed"))
    wait_until(
        lambda: len(here.crew.lines("committed")) >= before + more, "the application goes on"
    )
