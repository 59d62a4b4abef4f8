"""Reset, skip and pause; leases lost with power; topics and groups that come and go."""

from __future__ import annotations

from functools import partial

import pytest

from ternmq.broker.gate.replies import PullReply
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import (
    Busy,
    GroupExists,
    GroupPaused,
    InvalidName,
    InvalidRequest,
    LeaseExpired,
    TopicExists,
    UnknownGroup,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.model.specs import Limits, SubscriptionSpec, TopicSpec
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import (
    SECOND,
    World,
    attempts,
    check,
    explore,
    offsets,
    same_after_restart,
)


def start(world: World, **settings: object) -> int:
    world.topic("t")
    world.group("t", "g", **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "t", "g", rows)
    assert pulled is not None
    return pulled


def test_a_reset_makes_rows_unread_and_forgets_what_was_owed() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 12)
        pulled = pull(world, session, 10)
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 1), (7, 8)], reason="never")
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2), (8, 9)], reason="no")
        world.settle(session, "t", "g", pulled, Outcome.RELEASED, [(2, 3)])
        world.settle(session, "t", "g", pulled, spans=[(4, 6)])
        world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 5))
        progress = world.progress("t", "g")
        assert (progress.cursor, progress.round) == (5, 1)
        assert (progress.leased_rows, progress.failures.waiting_rows) == (0, 0)
        assert progress.failures.dead_letter(0) is not None
        assert progress.failures.dead_letter(7) is None
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled)
        again = pull(world, session)
        assert attempts(again) == {at: (1, 2 if at < 10 else 1) for at in range(5, 12)}
        world.settle(session, "t", "g", again)
        world.pass_time(60 * SECOND)
        assert world.pull(session, "t", "g") is None
        world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 12))
        world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 0))
        assert world.drain(session, "t", "g") == list(range(12))
        assert progress.failures.dead_rows == 0

    explore(scenario)


def test_a_skip_passes_over_what_is_unread_and_keeps_what_is_owed() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 12)
        pulled = pull(world, session, 3)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        with pytest.raises(InvalidRequest):
            world.broker.operating.skip(world.now, "t", "g", 0, 2)
        with pytest.raises(InvalidRequest):
            world.broker.operating.skip(world.now, "t", "g", 0, 13)
        world.run(lambda: world.broker.operating.skip(world.now, "t", "g", 0, 9))
        assert offsets(pull(world, session)) == [9, 10, 11]
        assert world.settle(session, "t", "g", pulled).settled == [(1, 3, 1, 1)]
        world.pass_time(SECOND)
        assert attempts(pull(world, session)) == {0: (2, 2)}

    explore(scenario)


def test_positions_outside_the_queue_are_refused() -> None:
    world = World()
    start(world)
    world.send("t", 3)
    for offset in (-1, 4):
        with pytest.raises(InvalidRequest):
            world.broker.operating.reset(world.now, "t", "g", 0, offset)
    with pytest.raises(UnknownQueue):
        world.broker.operating.reset(world.now, "t", "g", 1, 0)
    with pytest.raises(UnknownGroup):
        world.broker.operating.reset(world.now, "t", "x", 0, 0)


def test_a_paused_group_gets_nothing_and_loses_nothing() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 4)
        pulled = pull(world, session, 2)
        world.change("t", "g", paused=True)
        with pytest.raises(GroupPaused):
            world.pull(session, "t", "g")
        world.settle(session, "t", "g", pulled, spans=[(0, 1)])  # what it holds it may finish
        world.pass_time(30 * SECOND)
        with pytest.raises(GroupPaused):
            world.pull(session, "t", "g")
        world.change("t", "g", paused=False)
        assert attempts(pull(world, session)) == {1: (2, 2), 2: (1, 1), 3: (1, 1)}

    explore(scenario)


# -- hand-outs that were lost with power -----------------------------------------------------------


def cut(world: World, image: dict[str, bytes], gap_us: int = SECOND) -> None:
    """Power goes; the disk holds what it held when the image was taken."""
    world.disk = MemoryDisk(image)
    world.now += gap_us
    world._open(world.now)


def lost_lease(world: World, rows: int = 4) -> tuple[int, PullReply]:
    """A session, and what it pulled before power went; the journal knows nothing of the pull."""
    session = start(world)
    world.send("t", 10)
    image = world.disk.image()
    pulled = pull(world, session, rows)
    cut(world, image)
    return session, pulled


def test_what_a_lost_lease_says_counts_for_rows_never_handed_out() -> None:
    world = World()
    session, pulled = lost_lease(world)
    assert world.broker.views.suspect_below > 0
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled)  # which rows? nobody knows
    reply = world.settle(session, "t", "g", pulled, spans=[(1, 3)])
    assert reply.settled == [(1, 3, 1, 1)]
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, spans=[(1, 3)])
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, spans=[(9, 11)])  # not there at all
    same_after_restart(world)
    again = pull(world, session, 5)
    assert offsets(again) == [0, 3, 4, 5, 6]
    assert again.suspect_below > 0
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, spans=[(3, 4)])  # leased anew since
    world.settle(session, "t", "g", again)
    assert offsets(pull(world, session)) == [7, 8, 9]
    same_after_restart(world)


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.DEAD, Outcome.RELEASED])
def test_failures_of_a_lost_lease_count_as_well(outcome: Outcome) -> None:
    world = World()
    session, pulled = lost_lease(world)
    world.settle(session, "t", "g", pulled, outcome, [(1, 3)], reason="late")
    same_after_restart(world)
    got = {}
    for _ in range(3):
        again = world.pull(session, "t", "g", 3)
        if again is not None:
            got.update(attempts(again))
            same_after_restart(world)
            world.settle(session, "t", "g", again)
        world.pass_time(SECOND)
    while (again := world.pull(session, "t", "g", 3)) is not None:
        got.update(attempts(again))
        world.settle(session, "t", "g", again)
    expected = dict.fromkeys(range(10), (1, 1))
    if outcome is Outcome.DEAD:
        del expected[1], expected[2]
    elif outcome is Outcome.RETRY:
        expected |= dict.fromkeys((1, 2), (2, 2))
    else:
        expected |= dict.fromkeys((1, 2), (1, 2))
    assert got == expected
    same_after_restart(world)


def test_a_lost_lease_says_nothing_of_rows_that_came_later() -> None:
    world = World()
    session, pulled = lost_lease(world)
    world.send("t", 3)
    world.send("t", 1, commit=False)
    for spans in ([(9, 11)], [(10, 12)], [(13, 14)]):
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled, spans=spans)
    assert world.settle(session, "t", "g", pulled, spans=[(8, 10)]).settled == [(8, 10, 1, 1)]


@pytest.mark.parametrize("outcome", list(Outcome)[:4])
def test_a_lost_lease_says_nothing_of_rows_that_were_removed_unread(outcome: Outcome) -> None:
    """A topic need not wait for its groups; nobody would have the content of such rows."""
    world = World()
    session, pulled = lost_lease(world)
    queue = world.broker.views.catalog.topic("t").queues[0]
    queue.known_first = 2  # as after the removal of a segment
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, outcome, [(1, 3)], reason="late")
    reply = world.settle(session, "t", "g", pulled, outcome, [(2, 4)], reason="late")
    assert reply.settled == [(2, 4, 1, 1)]


def test_a_reset_is_not_undone_by_a_lease_of_a_reign_before() -> None:
    world = World()
    session = start(world)
    world.send("t", 4)
    pulled = pull(world, session)
    world.restart()
    world.resume(session)
    world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 0))
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, spans=[(0, 4)])
    assert offsets(pull(world, session)) == [0, 1, 2, 3]


def test_rows_settled_ahead_are_unread_again_after_a_reset_and_a_restart() -> None:
    world = World()
    session, pulled = lost_lease(world)
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 1)], reason="stays")
    world.settle(session, "t", "g", pulled, spans=[(2, 4)])
    world.broker.writer.begin(world.now)
    world.broker.writer.step(world.now, lambda: True)
    rest = pull(world, session)
    assert offsets(rest) == [1, *range(4, 10)]
    world.settle(session, "t", "g", rest)
    world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 1))
    world.broker.writer.begin(world.now)
    world.broker.writer.step(world.now, lambda: True)
    same_after_restart(world)
    world.restart()
    world.resume(session)
    assert offsets(pull(world, session)) == list(range(1, 10))


def test_what_was_settled_ahead_is_forgotten_in_state_when_the_cursor_has_passed_it() -> None:
    """The shard holds nothing else that changes, and a later set names the chunk that it had."""
    world = World()
    session = start(world)
    world.send("t", 1500)
    pulled = pull(world, session, 1000)
    world.settle(session, "t", "g", pulled, Outcome.DEAD, [(5, 6)], reason="stays")
    world.settle(session, "t", "g", pulled)
    world.commit()
    image = world.disk.image()
    lost = pull(world, session, 24)
    cut(world, image)
    world.resume(session)
    world.settle(session, "t", "g", lost, spans=[(1000, 1024)])

    def write_set() -> None:
        world.broker.writer.begin(world.now)
        assert world.broker.writer.step(world.now, lambda: True)

    write_set()
    assert offsets(pull(world, session, 10)) == list(range(1024, 1034))
    world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 990))
    write_set()
    same_after_restart(world)
    write_set()
    world.restart()
    world.resume(session)
    assert offsets(pull(world, session, 100)) == list(range(990, 1090))


def test_a_session_that_was_lost_with_power_has_no_leases() -> None:
    world = World()
    start(world)
    world.send("t", 4)
    image = world.disk.image()
    ghost = world.join()
    pulled = pull(world, ghost)
    cut(world, image)
    assert world.join() == ghost  # its number never was
    assert world.settle(ghost, "t", "g", pulled, spans=[(0, 2)]).settled == [(0, 2, 1, 1)]
    check(world.broker)


# -- topics and groups come and go -----------------------------------------------------------------


def test_a_topic_that_is_made_again_is_another_topic() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 4)
        pulled = pull(world, session, 2)
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 1)], reason="never")
        world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
        with pytest.raises(UnknownTopic):
            world.pull(session, "t", "g")
        assert world.topic("t", queues=2) == 2
        with pytest.raises(UnknownGroup):
            world.pull(session, "t", "g")
        assert world.group("t", "g") == 2
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled)
        world.send("t", 3, queue=0, producer=2)
        assert world.drain(session, "t", "g") == [0, 1, 2]
        world.pass_time(60 * SECOND)
        assert world.broker.views.progress.keys() == {(2, 2, 0), (2, 2, 1)}

    explore(scenario)


def test_a_group_that_subscribes_again_is_another_group() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 4)
        pulled = pull(world, session, 3)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        world.run(lambda: world.broker.administration.unsubscribe(world.now, "t", "g"))
        with pytest.raises(UnknownGroup):
            world.settle(session, "t", "g", pulled)
        world.group("t", "g")
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled)
        world.pass_time(60 * SECOND)
        assert attempts(pull(world, session)) == dict.fromkeys(range(4), (1, 1))

    explore(scenario)


def test_queues_that_are_added_are_read_from_their_start() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.group("t", "h")
        world.send("t", 2)
        assert world.drain(session, "t", "g") == [0, 1]
        spec = TopicSpec(name="t", queues=3)
        world.run(lambda: world.broker.administration.change_topic(world.now, spec))
        world.send("t", 2, queue=2)
        world.send("t", 1, queue=1)
        world.group("t", "late")
        assert sorted(world.drain(session, "t", "g")) == [0, 0, 1]
        assert sorted(world.drain(session, "t", "h")) == [0, 0, 0, 1, 1]
        assert sorted(world.drain(session, "t", "late")) == [0, 0, 0, 1, 1]
        with pytest.raises(InvalidRequest):
            world.broker.administration.change_topic(world.now, TopicSpec(name="t", queues=2))

    explore(scenario)


def test_settings_of_topics_and_groups_survive() -> None:
    def scenario(world: World) -> None:
        start(world)
        for number in range(70):  # more than a page of topics
            world.topic(f"t{number}", retention_us=1 + number)
        for number in range(3, 40, 7):
            world.run(partial(world.broker.administration.delete_topic, world.now, f"t{number}"))
        for number in range(66):  # more than a page of groups
            world.group("t69", f"g{number}", window=1 + number)
        for number in range(0, 66, 9):
            world.run(
                partial(world.broker.administration.unsubscribe, world.now, "t69", f"g{number}")
            )
        world.change("t69", "g1", window=4321)
        assert world.broker.views.catalog.subscription("t69", "g1").spec.window == 4321

    explore(scenario, paces=((1, 1),), step=29)


def test_names_that_are_taken_or_wrong_are_refused() -> None:
    world = World(Limits(topics=2, groups=2))
    world.topic("t")
    world.group("t", "g")
    with pytest.raises(TopicExists):
        world.topic("t")
    with pytest.raises(GroupExists):
        world.group("t", "g")
    with pytest.raises(InvalidName):
        world.topic("$sys")
    with pytest.raises(InvalidName):
        world.group("t", "a/b")
    world.topic("u")
    with pytest.raises(Busy):
        world.topic("v")
    world.group("t", "h")
    with pytest.raises(Busy):
        world.group("t", "i")
    with pytest.raises(UnknownTopic):
        world.broker.administration.delete_topic(world.now, "x")
    with pytest.raises(UnknownGroup):
        world.broker.administration.unsubscribe(world.now, "t", "x")
    with pytest.raises(InvalidRequest):
        world.broker.administration.subscribe(world.now, "t", "j", SubscriptionSpec(tags="a b"))
