"""A start with a wall clock that is wrong by years brings nothing early and ends nothing."""

from __future__ import annotations

from ternmq.model.types import DAY_US, SECOND_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import World, explore, offsets

YEAR_2099 = 70 * 365 * DAY_US
KEPT_US = 7 * DAY_US


def waiting(world: World) -> int:
    """Let a row be scheduled, one wait for its retry, one be a dead letter, one be kept by id."""
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", [Row(body=b"due", due_us=world.now + 40 * DAY_US)])
    world.send("t", [Row(body=b"retried"), Row(body=b"dead"), Row(body=b"id", application_id="i")])
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    first = offsets(pulled)[0]
    wait = 5 * DAY_US
    world.settle(session, "t", "g", pulled, Outcome.RETRY, [(first, first + 1)], delay_us=wait)
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(first + 1, first + 2)])
    world.settle(session, "t", "g", pulled, Outcome.DONE, [(first + 2, first + 3)])
    world.commit()
    return session


def standing(world: World) -> tuple[int, int, int]:
    """Return the rows that wait for a retry, the dead letters, the scheduled rows."""
    views = world.broker.views
    (progress,) = views.progress.values()
    failures = progress.failures
    return failures.waiting_rows, failures.dead_rows, views.schedule.rows


def pulled_bodies(world: World, session: int) -> set[bytes]:
    """Pull once; return the bodies."""
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    found = world.bodies(pulled)
    return {found[offset] for offset in offsets(pulled)}


def test_the_clock_is_believed_up_to_the_setting_and_no_further() -> None:
    def scenario(world: World) -> None:
        session = waiting(world)
        before = world.now
        world.restart(gap_us=YEAR_2099)
        assert world.report.disbelieved_us == YEAR_2099
        assert world.report.time_us == before
        world.now = before + SECOND_US  # as the shell's clock goes on
        world.resume(session)
        world.pass_time(4 * DAY_US)
        assert standing(world) == (1, 1, 1)
        assert world.pull(session, "t", "g") is None
        world.pass_time(DAY_US)
        world.commit()
        assert pulled_bodies(world, session) == {b"retried"}

    explore(scenario, paces=((1, 1), (3, 2)))


def test_a_stop_of_45_days_is_believed() -> None:
    world = World()
    session = waiting(world)
    world.restart(gap_us=45 * DAY_US)
    assert world.report.disbelieved_us == 0
    world.resume(session)
    world.pass_time(0)
    world.commit()
    assert pulled_bodies(world, session) == {b"retried", b"due"}


def test_what_an_operator_accepted_holds_over_a_restart() -> None:
    def scenario(world: World) -> None:
        waiting(world)
        accepted = world.now + YEAR_2099
        broker, before = world.broker, world.now
        world.now = accepted
        world.run(lambda: broker.administration.accept_clock(world.now, before, "ops"))
        world.commit()
        world.restart(gap_us=0)
        assert world.report.disbelieved_us == 0
        assert world.report.time_us == accepted

    explore(scenario, paces=((1, 1), (3, 2)))
