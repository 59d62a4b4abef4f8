"""Sessions: grace, disconnect, leave, restart; what a session held reaches others, and counts."""

from __future__ import annotations

import pytest

from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN
from ternmq.broker.gate.replies import PullReply
from ternmq.model.errors import Busy, LeaseExpired, UnknownSession
from ternmq.model.specs import Limits, RetryPolicy
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, attempts, check, explore, offsets

GRACE = 10 * SECOND


def start(world: World, **settings: object) -> int:
    world.topic("t")
    world.group("t", "g", **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "t", "g", rows)
    assert pulled is not None
    return pulled


def test_what_a_lost_session_held_comes_again_after_its_grace_and_counts() -> None:
    def scenario(world: World) -> None:
        one = start(world)
        other = world.join()
        world.send("t", 6)
        lost = pull(world, one, 3)
        kept = pull(world, other, 1)
        world.broker.clients.disconnected(world.now, one)
        world.pass_time(GRACE - 1)
        assert offsets(world.pull(other, "t", "g")) == [4, 5]
        assert world.progress("t", "g").leased_rows == 6
        world.pass_time(1)
        again = pull(world, other)
        assert attempts(again) == dict.fromkeys((0, 1, 2), (2, 2))
        with pytest.raises(LeaseExpired):
            world.settle(one, "t", "g", lost)
        with pytest.raises(UnknownSession):
            world.pull(one, "t", "g")
        world.settle(other, "t", "g", kept)
        assert world.broker.views.sessions.by_number.keys() == {other}

    explore(scenario)


def test_a_session_that_comes_back_within_its_grace_keeps_what_it_has() -> None:
    def scenario(world: World) -> None:
        one = start(world)
        other = world.join()
        world.send("t", 3)
        pulled = pull(world, one)
        world.broker.clients.disconnected(world.now, one)
        world.pass_time(GRACE - 1)
        world.resume(one)
        world.pass_time(2)
        assert world.pull(other, "t", "g") is None
        world.broker.clients.disconnected(world.now, one)  # a second time: a grace of its own
        world.pass_time(GRACE - 1)
        world.resume(one)
        assert world.settle(one, "t", "g", pulled).settled == [(0, 3, 1, 1)]

    explore(scenario)


def test_a_grace_that_began_anew_is_not_cut_short_by_the_one_before() -> None:
    world = World()
    one = start(world)
    world.send("t", 3)
    pull(world, one)
    world.broker.clients.disconnected(world.now, one)
    world.pass_time(GRACE // 2)
    world.resume(one)
    world.broker.clients.disconnected(world.now, one)
    world.pass_time(GRACE - 1)
    assert world.progress("t", "g").leased_rows == 3
    world.pass_time(1)
    assert world.progress("t", "g").leased_rows == 0
    assert one not in world.broker.views.sessions.by_number


def test_leaving_hands_everything_back_uncounted_at_once() -> None:
    def scenario(world: World) -> None:
        one = start(world)
        other = world.join()
        world.send("t", 6)
        pulled = pull(world, one, 4)
        world.settle(one, "t", "g", pulled, spans=[(1, 2)])
        reply = world.leave(one)
        assert reply.position == world.end
        again = pull(world, other, 3)
        assert attempts(again) == {0: (1, 2), 2: (1, 2), 4: (1, 1)}
        with pytest.raises(UnknownSession):
            world.leave(one)
        with pytest.raises(UnknownSession):
            world.resume(one)
        world.broker.clients.disconnected(world.now, one)  # late news of its connection
        world.pass_time(2 * GRACE)
        assert world.broker.views.sessions.by_number.keys() == {other}

    explore(scenario)


def test_the_last_attempt_of_a_lost_session_is_the_last() -> None:
    def scenario(world: World) -> None:
        one = start(world, retry=RetryPolicy(attempts=1))
        world.send("t", 3)
        pull(world, one)
        world.broker.clients.disconnected(world.now, one)
        world.pass_time(GRACE)
        progress = world.progress("t", "g")
        assert (progress.failures.dead_rows, progress.leased_rows) == (3, 0)
        assert len(world.broker.views.sessions.by_number) == 0

    explore(scenario)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_session_with_many_rows_ends_in_pieces_and_whole(ordered: bool) -> None:
    def scenario(world: World) -> None:
        world.topic("t", ordered=ordered)
        for group in ("g", "h"):
            world.group("t", group)
        one, other = world.join(), world.join()
        world.send("t", "".join(chr(97 + at % 26) for at in range(900)) if ordered else 900)
        for group in ("g", "h"):
            assert len(offsets(world.pull(one, "t", group, 700))) == 700
            assert world.pull(other, "t", group, 10) is None or not ordered
        world.broker.clients.disconnected(world.now, one)
        world.now += GRACE
        turns = 0
        while world.broker.tick(world.now):
            turns += 1
            progress = world.broker.views.figures.leased_to(one)
            assert one in world.broker.views.sessions.by_number or not progress
            world.between()
        assert turns >= 2
        assert one not in world.broker.views.sessions.by_number
        for group in ("g", "h"):
            got = []
            while (pulled := world.pull(other, "t", group, 400)) is not None:
                got += offsets(pulled)
                world.settle(other, "t", group, pulled)
            missing = set(range(900)) - set(got)
            assert not missing or not ordered
            assert len(missing) <= 10

    explore(scenario, paces=((1, 1),), step=5)


def test_a_session_that_comes_back_while_it_is_being_ended_lives_on() -> None:
    world = World()
    one = start(world)
    world.send("t", 900)
    pulled = pull(world, one, 900)
    world.broker.clients.disconnected(world.now, one)
    world.now += GRACE
    assert world.broker.tick(world.now)
    world.resume(one)
    while world.broker.tick(world.now):
        pass
    ended = 900 - world.progress("t", "g").leased_rows
    assert 0 < ended <= ENDED_ROWS_A_TURN
    assert world.settle(one, "t", "g", pulled).settled == [(ended, 900, 1, 1)]
    assert world.drain(one, "t", "g", 900) == list(range(ended))
    check(world.broker)


def test_a_restart_gives_every_session_its_grace_anew() -> None:
    world = World()
    one = start(world)
    other = world.join()
    world.send("t", 4)
    mine = pull(world, one, 2)
    pull(world, other, 2)
    world.restart()
    world.pass_time(GRACE - 1)
    assert world.progress("t", "g").leased_rows == 4
    world.resume(one)
    world.pass_time(1)
    assert world.progress("t", "g").leased_rows == 2
    assert other not in world.broker.views.sessions.by_number
    # The lease of the reign before is as good as ever.
    assert world.settle(one, "t", "g", mine).settled == [(0, 2, 1, 1)]
    assert attempts(pull(world, one)) == dict.fromkeys((2, 3), (2, 2))
    assert world.join() == 3  # numbers are not given again
    check(world.broker)


def test_leases_end_by_time_after_a_restart_too() -> None:
    world = World()
    one = start(world)
    world.send("t", 2)
    pulled = pull(world, one)
    world.restart()
    world.resume(one)
    world.pass_time(pulled.until_us - world.now - 1)
    assert world.progress("t", "g").leased_rows == 2
    world.pass_time(1)
    assert attempts(pull(world, one)) == dict.fromkeys((0, 1), (2, 2))


def test_there_is_a_limit_of_sessions() -> None:
    world = World(Limits(sessions=2))
    one = world.join()
    world.join()
    with pytest.raises(Busy):
        world.join()
    world.leave(one)
    world.join()


def test_one_app_leaves_sessions_for_others() -> None:
    world = World(Limits(sessions=16))
    clients = world.broker.clients

    def join(app: str, number: int) -> int:
        session = clients.join(world.now, app, f"{app}{number}").value
        assert isinstance(session, int)
        return session

    many = [join("evil", number) for number in range(14)]
    with pytest.raises(Busy):
        join("evil", 14)
    world.restart()
    clients = world.broker.clients
    with pytest.raises(Busy):
        join("evil", 14)
    join("good", 1)
    join("other", 1)
    with pytest.raises(Busy):
        join("late", 1)
    for session in many:
        clients.leave(world.now, session)
    assert world.broker.views.sessions.by_app == {"good": 1, "other": 1}
    join("evil", 15)


def test_sessions_that_came_and_went_leave_nothing_behind() -> None:
    def scenario(world: World) -> None:
        last = 0
        for _ in range(150):
            last = world.join()
            world.leave(last)
        keeper = world.join()
        assert keeper == last + 1

    world = explore(scenario, paces=((3, 1),), step=60)
    assert len(list(world.broker.views.sessions.by_number)) == 1


def test_settles_need_no_living_session_only_the_lease() -> None:
    """The lease is the evidence: another connection of the same client may settle what it holds."""
    world = World()
    one = start(world)
    other = world.join()
    world.send("t", 2)
    pulled = pull(world, one)
    assert world.settle(other, "t", "g", pulled, Outcome.DONE).settled == [(0, 2, 1, 1)]


def test_only_the_same_client_of_the_same_app_comes_back() -> None:
    world = World()
    one = world.join("mine")
    other = world.join("other")
    for app, client in (("app", "other"), ("ap", "mine"), ("", ""), ("app", "mıne")):
        with pytest.raises(UnknownSession):
            world.broker.clients.resume(one, app, client)
    info = world.broker.clients.resume(one, "app", "mine")
    assert (info.session, info.app, info.client) == (one, "app", "mine")
    world.restart()
    with pytest.raises(UnknownSession):
        world.broker.clients.resume(other, "app", "mine")
    world.broker.clients.resume(one, "app", "mine")
    world.pass_time(GRACE)
    assert world.broker.views.sessions.by_number.keys() == {one}
    with pytest.raises(UnknownSession):
        world.broker.clients.resume(other, "app", "other")


def test_a_session_lives_as_long_as_one_of_its_connections() -> None:
    world = World()
    one = start(world)
    world.send("t", 2)
    pull(world, one)
    world.resume(one)  # its auxiliary connection
    token = world.park(one, "t", "g")
    world.broker.clients.disconnected(world.now, one)
    world.pass_time(2 * GRACE)
    assert one in world.broker.views.sessions.by_number
    world.send("t", 1)
    assert [found.token for found in world.woken()] == [token]
    world.park(one, "t", "g")
    world.broker.clients.disconnected(world.now, one)
    assert world.broker.parked_pulls == 0
    world.broker.clients.disconnected(world.now, one)  # told once more: nothing is counted twice
    world.resume(one)
    world.pass_time(2 * GRACE)
    assert one in world.broker.views.sessions.by_number
    world.broker.clients.disconnected(world.now, one)
    world.pass_time(GRACE)
    assert one not in world.broker.views.sessions.by_number


def test_a_client_that_comes_back_keeps_what_reached_it_and_the_rest_goes_to_others() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        world.group("t", "g")
        session, other = world.join(), world.join()
        world.send("t", 6)
        reached = world.pull(session, "t", "g", 2)
        lost = world.pull(session, "t", "g", 2)
        assert reached is not None
        assert lost is not None
        foreign = world.pull(other, "t", "g", 1)
        assert foreign is not None
        assert world.keep(session, reached).position == world.end
        again = world.pull(other, "t", "g", 6)
        assert again is not None
        assert set(offsets(lost)) < set(offsets(again))
        assert {run[2] for run in again.runs} == {1}  # it did not count as an attempt
        world.settle(session, "t", "g", reached)
        world.settle(other, "t", "g", foreign)
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", lost)

    explore(scenario)


def test_only_a_session_that_is_there_keeps_leases() -> None:
    world = World()
    with pytest.raises(UnknownSession):
        world.broker.clients.keep(world.now, 77, [])
