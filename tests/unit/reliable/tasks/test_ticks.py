"""Which process runs a tick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ternmq.reliable.database.lease import LEASE_S
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.tasks.ticks import Look, Ticks, is_due

HOUR_MS = 3_600_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[AlchemyDatabase]:
    found = AlchemyDatabase(f"sqlite:///{tmp_path}/shop.db")
    prepare(found)
    yield found
    found.close()


def ticks(database: AlchemyDatabase, name: str = "report", period_ms: int = HOUR_MS) -> Ticks:
    return Ticks(database.dialect, name, period_ms, "", LEASE_S)


def look(database: AlchemyDatabase, of: Ticks) -> Look:
    with database.reading() as work:
        found = of.look(work)
        return of.look(work) if found == Look(run=False) else found  # its row was made


def tick_back(database: AlchemyDatabase, by: int) -> None:
    with database.writing() as work:
        work.run("UPDATE ternmq_lease SET tick = tick - :by", {"by": by})


def test_one_of_many_runs_a_tick(database) -> None:
    many = [ticks(database) for _ in range(3)]
    assert [look(database, one).run for one in many] == [True, False, False]
    assert [look(database, one).run for one in many] == [False] * 3


def test_the_next_look_is_at_the_next_tick(database) -> None:
    one = ticks(database)
    look(database, one)
    assert 0 < look(database, one).pause_s <= HOUR_MS / 1000


def test_a_new_tick_is_not_run_while_another_process_has_the_lease(database) -> None:
    one, other = ticks(database), ticks(database)
    assert look(database, one).run
    tick_back(database, 1)
    assert not look(database, other).run
    with database.reading() as work:
        one.lease.give_back(work)
    assert look(database, other).run


def test_a_clock_that_was_set_back_does_not_stop_a_job(database) -> None:
    one = ticks(database)
    assert look(database, one).run
    tick_back(database, -2)  # the row is of a later time
    assert look(database, one).run
    tick_back(database, -1)
    assert not look(database, one).run


def test_jobs_do_not_share_ticks(database) -> None:
    assert look(database, ticks(database, "a")).run
    assert look(database, ticks(database, "b")).run


@pytest.mark.parametrize(
    ("seen", "tick", "due"),
    [(-1, 0, True), (5, 5, False), (5, 6, True), (5, 4, False), (5, 3, True)],
)
def test_what_is_due(seen: int, tick: int, due: bool) -> None:
    assert is_due(seen, tick) is due
