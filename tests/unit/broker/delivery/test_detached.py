"""Detached leases: they belong to no session, and end by time or by their settles only."""

from __future__ import annotations

import pytest

from ternmq.broker.query.listings import Listings
from ternmq.model.errors import LeaseExpired, ModeNotAllowed
from ternmq.model.specs import Mode
from ternmq.model.types import SECOND_US
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import World, attempts, explore, offsets

MINUTE = 60 * SECOND_US


def start(world: World, **settings: object) -> int:
    world.topic("t")
    world.group("t", "g", **settings)
    return world.join("front")


def test_it_outlives_the_session_that_pulled_it() -> None:
    def scenario(world: World) -> None:
        front, other = start(world), world.join("other")
        world.send("t", 3)
        held = world.pull(front, "t", "g", 2, detached_us=MINUTE)
        assert held is not None
        assert held.until_us == world.now + MINUTE
        own = world.pull(front, "t", "g", 1)
        assert own is not None
        world.leave(front)
        again = world.pull(other, "t", "g")
        assert offsets(again) == [2], "the session's own lease has ended, the detached one has not"
        world.settle(other, "t", "g", held, spans=[(0, 1)])
        world.settle(other, "t", "g", held, Outcome.RETRY, spans=[(1, 2)], delay_us=0)
        assert again is not None
        world.settle(other, "t", "g", again)
        last = world.pull(other, "t", "g")
        assert last is not None
        assert attempts(last) == {1: (2, 2)}

    explore(scenario)


def test_it_outlives_a_session_that_does_not_come_back() -> None:
    world = World()
    front = start(world)
    world.send("t", 1)
    assert world.pull(front, "t", "g", detached_us=MINUTE) is not None
    other = world.join("other")
    world.broker.clients.disconnected(world.now, front)
    world.pass_time(MINUTE - SECOND_US)
    assert front not in world.broker.views.sessions.by_number
    assert world.pull(other, "t", "g") is None
    world.pass_time(2 * SECOND_US)
    assert offsets(world.pull(other, "t", "g")) == [0]


def test_its_end_by_time_counts_an_attempt_of_each_row() -> None:
    def scenario(world: World) -> None:
        front = start(world)
        world.send("t", 3)
        held = world.pull(front, "t", "g", at_once=1, detached_us=MINUTE)
        assert held is not None
        world.pass_time(MINUTE + SECOND_US)
        again = world.pull(world.join("other"), "t", "g")
        assert again is not None
        assert attempts(again) == {0: (2, 2), 1: (2, 2), 2: (2, 2)}
        with pytest.raises(LeaseExpired):
            world.broker.extend(world.now, front, "t", "g", 0, held.epoch, held.lease, MINUTE)

    explore(scenario)


def test_a_restart_does_not_end_it_and_others_extend_it() -> None:
    world = World()
    front = start(world)
    world.send("t", 1)
    held = world.pull(front, "t", "g", detached_us=5 * MINUTE)
    assert held is not None
    world.commit()
    world.restart()
    other = world.join("other")
    world.pass_time(4 * MINUTE)  # longer than the grace of sessions
    assert world.pull(other, "t", "g") is None
    world.broker.extend(world.now, other, "t", "g", 0, held.epoch, held.lease, 5 * MINUTE)
    world.pass_time(4 * MINUTE)
    assert world.pull(other, "t", "g") is None
    world.settle(other, "t", "g", held)
    world.pass_time(10 * MINUTE)
    assert world.pull(other, "t", "g") is None


def test_a_parked_pull_gets_a_detached_lease() -> None:
    world = World()
    front = start(world)
    world.park(front, "t", "g", detached_us=MINUTE)
    world.send("t", 1)
    world.commit()
    (woken,) = world.woken()
    assert woken.reply is not None
    assert woken.reply.until_us == world.now + MINUTE
    world.leave(front)
    assert world.pull(world.join("other"), "t", "g") is None


@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.QUEUE_LOCK])
def test_all_of_a_group_are_limited_as_one_client(mode: Mode) -> None:
    world = World()
    first = start(world, concurrency=3, mode=mode)
    second = world.join("second")
    world.send("t", 10)
    held = world.pull(first, "t", "g", 2, detached_us=MINUTE)
    assert held is not None
    if mode is Mode.SHARED:
        assert offsets(world.pull(second, "t", "g", detached_us=MINUTE)) == [2]
    assert world.pull(second, "t", "g", detached_us=MINUTE) is None
    world.settle(second, "t", "g", held)
    assert world.pull(first, "t", "g", detached_us=MINUTE) is not None


def test_a_client_that_is_switched_off_gets_none() -> None:
    world = World()
    front = start(world, offline=("front",))
    world.send("t", 1)
    assert world.pull(front, "t", "g", detached_us=MINUTE) is None


def test_no_session_is_listed_for_it() -> None:
    world = World()
    front = start(world)
    world.send("t", 1)
    assert world.pull(front, "t", "g", detached_us=MINUTE) is not None
    assert Listings(world.broker).members("t", "g") == []


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.OWNED])
def test_where_queues_belong_to_members_there_is_none(mode: Mode) -> None:
    world = World()
    front = start(world, mode=mode)
    world.send("t", 1)
    with pytest.raises(ModeNotAllowed, match="cannot be detached"):
        world.pull(front, "t", "g", detached_us=MINUTE)
