"""Members of groups of mode owned and exclusive: who may pull what, and when that changes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.operation.membership import MEMBERSHIPS, Assigned
from ternmq.model.assignments import Assignment
from ternmq.model.errors import (
    Busy,
    InvalidRequest,
    NotOwner,
    UnknownSession,
)
from ternmq.model.specs import Limits, Mode, SubscriptionSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, explore, offsets

GRACE = 10 * SECOND


def start(world: World, queues: int = 5, mode: Mode = Mode.OWNED, **settings: object) -> None:
    world.topic("t", queues=queues)
    world.group("t", "g", mode=mode, **settings)


def member(world: World, name: str = "") -> int:
    """Open a session that joins the group."""
    session = world.join()
    join(world, session, name)
    return session


def join(world: World, session: int, name: str = "") -> None:
    found = world.broker.views.catalog.subscription("t", "g")
    world.run(lambda: world.broker.membership.join(world.now, session, found, name))


def quit_group(world: World, session: int) -> None:
    found = world.broker.views.catalog.subscription("t", "g")
    world.run(lambda: world.broker.membership.leave(world.now, session, found))


def owners(world: World) -> list[int]:
    found = world.broker.views.catalog.subscription("t", "g").owners
    assert found is not None
    return found.of


def fill(world: World, queues: int = 5, rows: int = 2) -> None:
    for queue in range(queues):
        world.send("t", rows, queue=queue)


def all_of(world: World, session: int) -> list[PullReply]:
    got = []
    while (pulled := world.pull(session, "t", "g")) is not None:
        got.append(pulled)
    return got


def test_two_members_have_three_and_two_queues_and_a_third_two_two_and_one() -> None:
    def scenario(world: World) -> None:
        start(world)
        fill(world)
        one = member(world)
        assert owners(world) == [one] * 5  # the first member waits for nobody
        other = member(world)
        assert owners(world) == [one] * 5
        world.pass_time(SECOND)
        assert owners(world) == [one, one, one, other, other]
        third = member(world)
        world.pass_time(SECOND)
        assert owners(world) == [one, one, third, other, other]
        for session, queues in ((one, [0, 1]), (other, [3, 4]), (third, [2])):
            assert sorted(pulled.queue for pulled in all_of(world, session)) == queues

    explore(scenario)


def test_owners_follow_a_second_after_the_last_change_and_three_after_the_first() -> None:
    world = World()
    start(world)
    one = member(world)
    others = []
    for _ in range(4):
        others.append(member(world))
        world.pass_time(SECOND - 100_000)
        if len(others) < 4:
            assert set(owners(world)) == {one}
    assert set(owners(world)) == {one, *others}  # 3 s after the first, though others still come


def test_who_leaves_is_replaced_at_once_and_who_is_gone_after_its_grace() -> None:
    world = World(Limits(session_grace_us=GRACE))
    start(world)
    one, two, three = member(world), member(world), member(world)
    world.pass_time(SECOND)
    quit_group(world, one)
    assert set(owners(world)) == {two, three}
    with pytest.raises(NotOwner, match="no member"):
        world.pull(one, "t", "g")
    world.leave(two)
    assert set(owners(world)) == {three}
    four = member(world)
    world.broker.clients.disconnected(world.now, three)
    world.pass_time(SECOND)
    assert set(owners(world)) == {three, four}
    world.pass_time(GRACE)
    world.pass_time(SECOND)
    assert set(owners(world)) == {four}


def test_a_queue_changes_hands_only_when_its_lease_is_settled_or_over() -> None:
    def scenario(world: World) -> None:
        start(world, 2, lease_us=30 * SECOND)
        fill(world, 2, 4)
        one = member(world)
        held = [world.pull(one, "t", "g", 2), world.pull(one, "t", "g", 2)]
        other = member(world)
        world.pass_time(SECOND)
        assert owners(world) == [one, other]
        assert world.pull(other, "t", "g") is None
        first = next(pulled for pulled in held if pulled is not None and pulled.queue == 1)
        world.settle(one, "t", "g", first, spans=[(0, 1)])
        assert world.pull(other, "t", "g") is None
        world.settle(one, "t", "g", first)
        mine = world.pull(other, "t", "g", 1)
        assert mine is not None
        assert (mine.queue, offsets(mine)) == (1, [2])
        quit_group(world, one)
        assert owners(world) == [other, other]
        world.settle(other, "t", "g", mine)
        again = world.pull(other, "t", "g", 1)
        assert again is not None
        assert again.queue == 1  # queue 0 is locked still
        world.settle(other, "t", "g", again)
        world.pass_time(29 * SECOND)
        world.pass_time(10 * SECOND)
        taken = world.pull(other, "t", "g")
        assert taken is not None
        assert (taken.queue, offsets(taken)[:2]) == (0, [0, 1])

    explore(scenario)


def test_a_failing_row_is_retried_in_place_and_those_behind_it_are_uncounted() -> None:
    def scenario(world: World) -> None:
        start(world, 1)
        world.send("t", 3)
        one = member(world)
        pulled = world.pull(one, "t", "g")
        assert pulled is not None
        world.settle(one, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        assert world.pull(one, "t", "g") is None
        world.pass_time(2 * SECOND)
        again = world.pull(one, "t", "g")
        assert again is not None
        assert again.runs == [(0, 1, 2, 2), (1, 3, 1, 2)]

    explore(scenario)


def test_a_pull_that_waits_gets_rows_of_its_queues_only() -> None:
    world = World()
    start(world, 2)
    one, other = member(world), member(world)
    world.pass_time(SECOND)
    tokens = [
        world.broker.park(session, "t", "g", 10, 1 << 20, world.now + 100 * SECOND)
        for session in (one, other)
    ]
    world.send("t", 1, queue=1)
    world.commit()
    (woken,) = world.woken()
    assert woken.token == tokens[1]
    assert woken.reply is not None
    assert woken.reply.queue == 1
    world.send("t", 1, queue=1)
    world.commit()
    assert world.woken() == []  # the other one does not get it
    quit_group(world, one)
    (over,) = world.woken()
    assert (over.token, over.reply) == (tokens[0], None)


def test_the_queue_of_another_is_refused_by_name() -> None:
    world = World()
    start(world, 2)
    one, other = member(world), member(world)
    world.pass_time(SECOND)
    fill(world, 2)
    for session, queue in ((one, 1), (other, 0)):
        with pytest.raises(NotOwner, match=f"queue {queue} of topic 't' does not belong"):
            world.broker.pull(world.now, session, "t", "g", queue=queue)
    assert world.broker.pull(world.now, one, "t", "g", queue=0) is not None


def test_a_member_with_several_queues_takes_them_in_turn() -> None:
    world = World()
    start(world, 3)
    fill(world, 3, 4)
    one, other = member(world), member(world)
    world.pass_time(SECOND)
    assert owners(world) == [one, one, other]
    seen = []
    for _ in range(2):
        for session in (one, other):
            pulled = world.pull(session, "t", "g", 1)
            assert pulled is not None
            seen.append(pulled.queue)
            world.settle(session, "t", "g", pulled)
    assert sorted(seen) == [0, 1, 2, 2]


def test_exclusive_all_queues_belong_to_the_first_and_then_to_the_next() -> None:
    world = World(Limits(session_grace_us=GRACE))
    start(world, 3, Mode.EXCLUSIVE)
    fill(world, 3)
    one, two, three = member(world), member(world), member(world)
    world.pass_time(SECOND)
    assert owners(world) == [one] * 3
    assert world.pull(two, "t", "g") is None
    assert len(all_of(world, one)) == 3
    world.leave(one)
    assert owners(world) == [two] * 3  # at once
    assert len(all_of(world, two)) == 3
    world.broker.clients.disconnected(world.now, two)
    world.pass_time(GRACE)
    assert owners(world) == [three] * 3  # as soon as the grace is over
    assert len(all_of(world, three)) == 3


def test_configured_queues_wait_for_a_member_of_that_name() -> None:
    world = World()
    assign = (Assignment((0, 1), "blue-*"), Assignment((2,), "green-1"))
    start(world, 3, assign=assign)
    fill(world, 3)
    one = member(world, "green-1")
    assert owners(world) == [0, 0, one]
    two = member(world, "blue-7")
    world.pass_time(SECOND)
    assert owners(world) == [two, two, one]
    quit_group(world, two)
    assert owners(world) == [0, 0, one]
    # Other settings apply at once.
    world.change("t", "g", mode=Mode.OWNED, assign=(Assignment((0,), "*"),))
    assert owners(world) == [one, 0, 0]


def test_new_queues_are_assigned() -> None:
    world = World()
    start(world, 1)
    one = member(world)
    assert owners(world) == [one]
    spec = world.broker.views.catalog.topic("t").spec
    wider = type(spec)(name="t", queues=3)
    world.run(lambda: world.broker.administration.change_topic(world.now, wider))
    assert owners(world) == [one] * 3


def test_members_hear_which_queues_they_own() -> None:
    world = World()
    told: list[Assigned] = []
    world.broker.membership.tell = told.append
    start(world, 2)
    one = member(world)
    other = member(world)
    world.pass_time(SECOND)
    third = member(world)
    world.pass_time(SECOND)
    join(world, one)  # again: it is told again, and stays the first
    assert told == [
        Assigned(one, "t", "g", (0, 1)),
        Assigned(one, "t", "g", (0,)),
        Assigned(other, "t", "g", (1,)),
        Assigned(third, "t", "g", ()),
        Assigned(one, "t", "g", (0,)),
    ]


def test_after_a_start_the_members_join_again_and_the_locks_are_still_there() -> None:
    world = World()
    start(world, 1)
    world.send("t", 3)
    one, other = member(world), member(world)
    pulled = world.pull(one, "t", "g", 1)
    assert pulled is not None
    world.restart()
    for session in (one, other):
        world.resume(session)
        with pytest.raises(NotOwner):
            world.pull(session, "t", "g")
    join(world, other)
    assert owners(world) == [other]
    assert world.pull(other, "t", "g") is None  # locked by the lease of the first
    world.settle(one, "t", "g", pulled)
    taken = world.pull(other, "t", "g")
    assert taken is not None
    assert offsets(taken) == [1, 2]


def test_bad_input_is_refused_and_changes_nothing() -> None:
    world = World()
    start(world, 2, Mode.QUEUE_LOCK)
    end = world.broker.journal.end
    administration = world.broker.administration
    for settings in (
        {"mode": Mode.OWNED, "tags": "a"},
        {"mode": Mode.EXCLUSIVE, "filter": "a = 1"},
        {"mode": Mode.EXCLUSIVE, "assign": (Assignment((0,), "*"),)},
        {"mode": Mode.OWNED, "assign": (Assignment((2,), "*"),)},
        {"mode": Mode.OWNED, "assign": (Assignment((1, 0), "*"),)},
        {"mode": Mode.OWNED, "assign": (Assignment((), "*"),)},
        {"mode": Mode.OWNED, "assign": (Assignment((0,), "a b"),)},
    ):
        spec = SubscriptionSpec(**settings)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest):
            administration.subscribe(world.now, "t", "h", spec)
    assert world.broker.journal.end == end
    session = world.join()
    join(world, session)  # of a group of another mode nobody is a member
    assert world.broker.views.catalog.subscription("t", "g").owners is None
    administration.subscribe(world.now, "t", "o", SubscriptionSpec(mode=Mode.OWNED))
    found = world.broker.views.catalog.subscription("t", "o")
    with pytest.raises(UnknownSession):
        world.broker.membership.join(world.now, session + 1, found)


def test_a_session_is_a_member_of_so_many_groups_and_those_that_are_gone_do_not_count() -> None:
    world = World()
    start(world, 1)
    session = world.join()
    known = world.broker.views.sessions.by_number[session].memberships
    known.update(dict.fromkeys(range(10_000, 10_000 + MEMBERSHIPS)))
    join(world, session)
    assert len(known) == 1
    found = world.broker.views.catalog.subscription("t", "g")
    world.broker.views.catalog.groups.update(
        dict.fromkeys(range(20_000, 20_000 + MEMBERSHIPS), found)
    )
    other = world.join()
    mine = world.broker.views.sessions.by_number[other].memberships
    mine.update(dict.fromkeys(range(20_000, 20_000 + MEMBERSHIPS)))
    with pytest.raises(Busy, match="member of 1000 groups"):
        join(world, other)


def test_the_lower_levels_of_each_member_have_their_turns() -> None:
    """Members that pull one after the other: each sixteenth pull of them all is the other's."""
    world = World()
    world.topic("t", queues=2, levels=2)
    world.group("t", "g", mode=Mode.OWNED)
    sessions = [member(world), member(world)]
    world.pass_time(SECOND)
    assert owners(world) == [sessions[0]] * 2 + [sessions[1]] * 2
    for queue in range(4):
        rows = [Row(body=b"%d" % at, priority=queue % 2) for at in range(40)]
        world.send("t", rows, queue=queue)
    levels: dict[int, list[int]] = {session: [] for session in sessions}
    for _ in range(32):
        for session in sessions:
            pulled = world.pull(session, "t", "g", 1)
            assert pulled is not None
            levels[session].append(pulled.queue % 2)
            world.settle(session, "t", "g", pulled)
    assert [of.count(0) for of in levels.values()] == [2, 2]


@pytest.mark.parametrize("mode", [Mode.OWNED, Mode.EXCLUSIVE])
def test_the_queues_of_a_member_that_is_switched_off_go_to_others(mode: Mode) -> None:
    def scenario(world: World) -> None:
        start(world, 2, mode)
        one, other = world.join("bad-0000-secret"), world.join("good-000-secret")
        join(world, one)
        join(world, other)
        world.pass_time(SECOND)
        assert one in owners(world)
        fill(world, 2, 2)
        world.park(other, "t", "g")
        if mode is Mode.EXCLUSIVE:
            assert world.woken() == []
        world.change("t", "g", offline=("bad-0000",))
        assert owners(world) == [other] * 2
        (woken,) = world.woken()
        assert offsets(woken.reply) == [0, 1]
        assert len(all_of(world, other)) == 1
        assert world.pull(one, "t", "g") is None
        world.change("t", "g", offline=())
        assert one in owners(world)
        world.change("t", "g", offline=("*",))
        assert owners(world) == [0, 0]

    explore(scenario)


def test_queues_of_a_session_with_many_groups_are_assigned_in_pieces() -> None:
    world = World()
    groups = 200
    sessions = [world.join() for _ in range(2)]
    for number in range(groups):
        world.topic(f"t{number}")
        world.group(f"t{number}", "g", mode=Mode.OWNED)
        found = world.broker.views.catalog.subscription(f"t{number}", "g")
        for session in sessions:
            world.broker.membership.join(world.now, session, found)
    world.pass_time(SECOND)
    told: list[Assigned] = []
    world.broker.membership.tell = told.append
    world.leave(sessions[0])
    pieces = [len(told)]
    while world.broker.tick(world.now):
        pieces.append(len(told))
    pieces.append(len(told))
    assert pieces[0] == 0
    assert max(after - before for before, after in pairwise(pieces)) <= 60
    assert pieces[-1] == groups, "all of them, and at once"
    assert {one.session for one in told} == {sessions[1]}
    joined = world.broker.views.catalog.joined
    assert (joined.members, joined.unowned) == (groups, 0)
