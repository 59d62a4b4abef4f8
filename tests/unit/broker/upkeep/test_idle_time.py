"""A quiet journal states the time once a day, so that no kill sets the time back by months."""

from __future__ import annotations

from ternmq.broker.upkeep.upkeep import MARK_EVERY_US, QUIET_US
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.types import DAY_US
from tests.unit.broker.kit import SECOND
from tests.unit.broker.upkeep.test_upkeep import Kept


def quiet() -> Kept:
    world = Kept(RetentionSpec())
    world.topic("t")
    world.send("t", 1)
    world.turn(QUIET_US)
    world.turn(QUIET_US)
    return world


def test_one_record_a_day_and_no_more() -> None:
    world = quiet()
    journal = world.broker.journal
    before = journal.appended
    for _ in range(100):
        world.turn(SECOND)
    assert journal.appended == before, "nothing was written"
    for days in range(1, 4):
        world.turn(MARK_EVERY_US)
        world.turn(SECOND)
        assert journal.appended == before + days


def test_time_does_not_go_back_by_months_when_an_idle_broker_is_killed() -> None:
    world = quiet()
    for _ in range(200):
        world.turn(DAY_US)
    killed_at = world.now
    world.restart(gap_us=SECOND)
    assert world.started.report.time_us >= killed_at
