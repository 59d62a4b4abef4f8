"""Leases are given back in pieces: each is bounded, and in the end it is as if it had been one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN, LEASE_WORK, QUEUE_WORK
from ternmq.broker.operation.drains import Drain
from ternmq.model.errors import JournalFull, LeaseExpired, UnknownSession
from ternmq.model.specs import Limits
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import STEADY, World, attempts, check, explore, offsets

MANY = 200
"""Group queues: more than are given back in a turn."""
A_TURN = ENDED_ROWS_A_TURN // (1 + LEASE_WORK + QUEUE_WORK) + 1
"""Group queues, of one leased row each, that are given back in a turn at most."""


def groups(world: World, count: int = MANY) -> list[str]:
    """Make a topic with a message and many groups."""
    world.topic("t")
    names = [f"g{number}" for number in range(count)]
    for name in names:
        world.group("t", name, retry=STEADY)
    world.send("t", 1)
    return names


def take(world: World, session: int, names: list[str]) -> None:
    """Have a session hold a row of each group."""
    for name in names:
        assert world.pull(session, "t", name, 1) is not None


def held_by(world: World, session: int) -> int:
    """Return of how many group queues a session has leases."""
    return len(world.broker.views.figures.leased_to(session))


def leave(world: World, session: int) -> Drain:
    drain = world.run(lambda: world.broker.clients.leave(world.now, session))
    assert isinstance(drain, Drain)
    return drain


def test_a_turn_gives_back_no_more_than_its_budget() -> None:
    world = World()
    names = groups(world)
    one, other = world.join(), world.join()
    take(world, one, names)
    drain = leave(world, one)
    assert held_by(world, one) == MANY, "the command itself ends none"
    while held_by(world, one):
        before = held_by(world, one)
        more = world.broker.tick(world.now)
        assert 0 < before - held_by(world, one) <= A_TURN
        assert more or not held_by(world, one)
        assert (drain in world.broker.drains.over) == (not held_by(world, one))
    assert drain.position == world.broker.journal.end
    for name in names:
        again = world.pull(other, "t", name)
        assert again is not None
        assert attempts(again) == {0: (1, 2)}, "it did not count"


@pytest.mark.parametrize("rows", [1, 40])
def test_many_leases_of_one_queue_are_given_back_in_pieces(rows: int) -> None:
    world = World()
    world.topic("t")
    world.group("t", "g", window=5000)
    one, other = world.join(), world.join()
    world.send("t", 1200)
    while world.pull(one, "t", "g", rows) is not None:
        pass
    progress = world.progress("t", "g")
    leave(world, one)
    turns = 0
    while progress.leases:
        before = progress.leased_rows + LEASE_WORK * len(progress.leases)
        world.broker.tick(world.now)
        turns += 1
        ended = before - progress.leased_rows - LEASE_WORK * len(progress.leases)
        assert ended <= ENDED_ROWS_A_TURN + LEASE_WORK
    assert turns > 2
    assert world.drain(other, "t", "g", 1000) == list(range(1200))
    check(world.broker)


def test_who_is_leaving_is_gone_for_everybody() -> None:
    world = World()
    names = groups(world)
    one, other = world.join(), world.join()
    world.park(one, "t", "g0")
    take(world, one, names)
    leave(world, one)
    world.broker.tick(world.now)
    assert held_by(world, one)
    clients = world.broker.clients
    refused: list[Callable[[], object]] = [
        lambda: world.pull(one, "t", "g0"),
        lambda: world.park(one, "t", "g0"),
        lambda: clients.resume(one, "app", "c"),
        lambda: clients.keep(world.now, one, []),
        lambda: clients.leave(world.now, one),
        lambda: clients.report(world.now, one, "t", 1, []),
    ]
    for ask in refused:
        with pytest.raises(UnknownSession):
            ask()
    assert world.broker.parked_pulls == 0
    clients.disconnected(world.now, one)
    world.pass_time(0)
    assert not held_by(world, one)
    assert world.broker.views.sessions.by_number.keys() == {other}
    # What had been given back already is handed out, what had not is not.
    assert world.pull(other, "t", names[0]) is not None


def test_a_lease_that_is_still_to_be_given_back_can_be_settled() -> None:
    world = World()
    names = groups(world)
    one, other = world.join(), world.join()
    take(world, one, names[:-1])
    last = world.pull(one, "t", names[-1])
    assert last is not None
    leave(world, one)
    world.broker.tick(world.now)
    assert world.settle(one, "t", names[-1], last, Outcome.DONE).settled == [(0, 1, 1, 1)]
    world.pass_time(0)
    assert world.pull(other, "t", names[-1]) is None
    with pytest.raises(LeaseExpired):
        world.settle(one, "t", names[-1], last, Outcome.DONE)


@pytest.mark.parametrize("clean", [False, True])
def test_a_start_goes_on_with_what_was_being_given_back(clean: bool) -> None:
    def scenario(world: World) -> None:
        names = groups(world, 70)
        one, other = world.join(), world.join()
        take(world, one, names)
        leave(world, one)
        assert world.broker.tick(world.now)
        assert 0 < held_by(world, one) < 70
        world.restart(clean=clean)
        world.resume(other)
        assert one not in world.broker.views.sessions.by_number
        assert held_by(world, one)
        world.pass_time(0)  # no grace: it had left
        assert not held_by(world, one)
        for name in names[:3] + names[-3:]:
            again = world.pull(other, "t", name)
            assert again is not None
            assert attempts(again) == {0: (1, 2)}, "it did not count"

    explore(scenario, paces=((1, 1),), step=40)


def test_a_key_has_no_later_row_in_a_hand_while_an_earlier_one_comes_again() -> None:
    world = World(Limits(pull_messages=4000))
    world.topic("t", ordered=True)
    world.group("t", "g")
    one, other = world.join(), world.join()
    rows = 3 * ENDED_ROWS_A_TURN
    world.send("t", "abc" * ENDED_ROWS_A_TURN)
    assert len(offsets(world.pull(one, "t", "g", rows))) == rows
    leave(world, one)
    progress = world.progress("t", "g")
    turns = 0
    while world.broker.tick(world.now):
        turns += 1
        leased = [run for lease in progress.leases.values() for run in lease.runs]
        if leased:
            assert min(run[0] for run in progress.ready.runs) >= max(run[1] for run in leased) - 1
            for key in range(3):
                in_hand = {
                    at for start, stop, *_ in leased for at in range(start, stop) if at % 3 == key
                }
                again = {
                    at
                    for start, stop, *_ in progress.ready.runs
                    for at in range(start, stop)
                    if at % 3 == key
                }
                assert max(in_hand, default=-1) < min(again, default=rows)
            assert world.pull(other, "t", "g") is None, "the first row of each key is held"
    assert turns > 2
    assert world.drain(other, "t", "g", 4000) == list(range(rows))


def test_leases_that_came_after_a_keep_are_not_its_business() -> None:
    def scenario(world: World) -> None:
        names = groups(world, 70)
        one = world.join()
        reached = world.pull(one, "t", names[0], 1)
        assert reached is not None
        take(world, one, names[1:])
        world.send("t", 1)
        drain = world.run(
            lambda: world.broker.clients.keep(world.now, one, [(reached.epoch, reached.lease)])
        )
        assert isinstance(drain, Drain)
        assert world.broker.tick(world.now)
        later = world.pull(one, "t", names[-1], 1)
        assert later is not None
        assert offsets(later) == [1]
        assert world.given_back(drain).position == world.end
        assert held_by(world, one) == 2
        world.settle(one, "t", names[0], reached)
        world.settle(one, "t", names[-1], later)
        assert one in world.broker.views.sessions.by_number

    explore(scenario, paces=((1, 1),), step=40)


def test_a_group_that_goes_meanwhile_is_passed_over() -> None:
    world = World()
    names = groups(world)
    one = world.join()
    take(world, one, names)
    drain = leave(world, one)
    world.broker.tick(world.now)
    for name in names[60:]:
        world.run(partial(world.broker.administration.unsubscribe, world.now, "t", name))
    world.given_back(drain)
    assert not held_by(world, one)
    check(world.broker)


def test_one_that_holds_little_does_not_wait_for_one_that_holds_much() -> None:
    world = World()
    names = groups(world)
    much, little = world.join(), world.join()
    world.send("t", 1)
    take(world, much, names)
    take(world, little, names[:2])
    leave(world, much)
    small = leave(world, little)
    world.broker.tick(world.now)
    world.broker.tick(world.now)
    assert small in world.broker.drains.over
    assert held_by(world, much)


def test_a_full_journal_puts_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    names = groups(world)
    one = world.join()
    take(world, one, names)
    drain = leave(world, one)
    world.broker.tick(world.now)
    left = held_by(world, one)

    def full(*_: object) -> int:
        raise JournalFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(world.broker.journal, "append", full)
        assert not world.broker.tick(world.now)
    assert held_by(world, one) == left
    world.pass_time(10**6)
    assert drain in world.broker.drains.over
    assert not held_by(world, one)
