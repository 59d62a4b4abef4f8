"""A group's mode is changed while it is owed rows: nothing is lost, leases stay valid."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ternmq.broker.gate.replies import PullReply
from ternmq.model.errors import GroupBusy, InvalidRequest, ModeNotAllowed
from ternmq.model.specs import Exhausted, Mode, RetryPolicy, Start
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import (
    SECOND,
    STEADY,
    World,
    difference,
    explore,
    offsets,
    portrait,
)

HOLD = RetryPolicy(first_us=SECOND, factor=1.0, cap_us=SECOND, jitter=0.0, attempts=1,
                   exhausted=Exhausted.HOLD)  # fmt: skip


def start(world: World, mode: Mode, *, ordered: bool = True, **settings: object) -> int:
    world.topic("t", ordered=ordered, ignore_ordering_keys=not ordered)
    world.group("t", "g", mode=mode, **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "t", "g", rows)
    assert pulled is not None
    return pulled


def test_parked_rows_are_ready_when_a_group_is_not_ordered_any_more() -> None:
    def scenario(world: World) -> None:
        one = start(world, Mode.ORDERED)
        other = world.join()
        world.send("t", "aaabab")
        first = pull(world, one, 1)
        assert offsets(first) == [0]
        assert offsets(pull(world, other, 1)) == [3]  # rows of a are parked meanwhile
        world.change("t", "g", mode=Mode.SHARED)
        assert world.drain(other, "t", "g") == [1, 2, 4, 5]
        settled = world.settle(one, "t", "g", first)  # its lease is valid
        assert [run[:2] for run in settled.settled] == [(0, 1)]
        world.send("t", "aa")
        assert offsets(pull(world, one, 1)) == [6]
        assert offsets(pull(world, other, 1)) == [7]

    explore(scenario)


@pytest.mark.parametrize("before", [Mode.ORDERED, Mode.SHARED])
def test_a_queue_is_locked_until_the_leases_from_before_are_settled(before: Mode) -> None:
    def scenario(world: World) -> None:
        one = start(world, before)
        other = world.join()
        world.send("t", "abcaab")
        held = [pull(world, one, 1), pull(world, other, 1)]
        world.change("t", "g", mode=Mode.QUEUE_LOCK)
        assert world.pull(one, "t", "g") is None
        world.settle(other, "t", "g", held[1])
        assert world.pull(one, "t", "g") is None
        world.settle(one, "t", "g", held[0])
        rest = pull(world, other, 2)
        assert offsets(rest) == [2, 3]
        assert world.pull(one, "t", "g") is None
        world.settle(other, "t", "g", rest)
        assert world.drain(one, "t", "g") == [4, 5]

    explore(scenario)


def test_a_group_that_is_owed_rows_cannot_become_ordered() -> None:
    def scenario(world: World) -> None:
        session = start(world, Mode.SHARED, retry=STEADY)
        world.send("t", "aa")
        held = pull(world, session, 2)
        with pytest.raises(GroupBusy, match="is owed 2 messages of topic 't'"):
            world.change("t", "g", mode=Mode.ORDERED)
        world.settle(session, "t", "g", held, Outcome.RELEASED, spans=[(0, 1)])
        world.settle(session, "t", "g", held, Outcome.RETRY, spans=[(1, 2)])
        with pytest.raises(GroupBusy, match="is owed 2 messages"):  # a ready one, a waiting one
            world.change("t", "g", mode=Mode.ORDERED)
        world.settle(session, "t", "g", pull(world, session, 1))
        with pytest.raises(GroupBusy, match="is owed 1 message of"):
            world.change("t", "g", mode=Mode.ORDERED)
        world.pass_time(2 * SECOND)
        world.settle(session, "t", "g", pull(world, session, 1), Outcome.DEAD, reason="no")
        world.change("t", "g", mode=Mode.ORDERED)  # a dead letter is not owed
        world.send("t", "bb")
        head = pull(world, session, 1)
        assert offsets(head) == [2]
        assert world.pull(session, "t", "g") is None  # 3 has the same key, and is parked
        world.settle(session, "t", "g", head)
        assert world.drain(session, "t", "g") == [3]

    explore(scenario)


@pytest.mark.parametrize("between", [Mode.SHARED, Mode.QUEUE_LOCK])
def test_there_and_back(between: Mode) -> None:
    """Both orders by key know the rows of their own time only."""

    def scenario(world: World) -> None:
        session = start(world, Mode.ORDERED, retry=STEADY)
        world.send("t", "aabab")
        head = pull(world, session, 1)
        other = pull(world, session, 1)  # the first b; rows of a are parked
        world.change("t", "g", mode=between)
        world.settle(session, "t", "g", head)
        world.settle(session, "t", "g", other)
        assert world.drain(session, "t", "g") == [1, 3, 4]
        world.send("t", "aab")
        world.change("t", "g", mode=Mode.ORDERED)
        failing = pull(world, session, 1)
        assert offsets(failing) == [5]
        world.settle(session, "t", "g", failing, Outcome.RETRY)
        assert offsets(pull(world, session, 1)) == [7]
        assert world.pull(session, "t", "g") is None  # 6 waits for 5
        world.pass_time(2 * SECOND)
        again = pull(world, session, 2)
        assert offsets(again) == [5, 6]

    explore(scenario)


@pytest.mark.parametrize("after", [Mode.SHARED, Mode.QUEUE_LOCK])
@pytest.mark.parametrize("due", ["before", "behind"])
def test_rows_that_wait_for_a_retry_are_delivered_in_the_new_mode(after: Mode, due: str) -> None:
    def scenario(world: World) -> None:
        session = start(world, Mode.ORDERED, retry=STEADY)
        world.send("t", "ab")
        world.settle(session, "t", "g", pull(world, session, 2), Outcome.RETRY)
        if due == "before":
            world.pass_time(2 * SECOND)
        world.change("t", "g", mode=after)
        if due == "behind":
            assert world.pull(session, "t", "g") is None
            world.pass_time(2 * SECOND)
        assert world.drain(session, "t", "g") == [0, 1]

    explore(scenario)


def test_a_parked_pull_gets_what_the_new_mode_allows() -> None:
    def scenario(world: World) -> None:
        one = start(world, Mode.QUEUE_LOCK)
        other = world.join()
        world.send("t", "ab")
        pull(world, one, 1)
        world.park(other, "t", "g")
        assert world.woken() == []
        world.change("t", "g", mode=Mode.SHARED)
        (woken,) = world.woken()
        assert woken.reply is not None
        assert offsets(woken.reply) == [1]

    explore(scenario)


def test_held_rows_stay_held() -> None:
    def scenario(world: World) -> None:
        session = start(world, Mode.QUEUE_LOCK, retry=HOLD)
        world.send("t", "ab")
        world.settle(session, "t", "g", pull(world, session, 1), Outcome.RETRY)
        assert world.pull(session, "t", "g") is None
        world.change("t", "g", mode=Mode.SHARED)
        assert world.drain(session, "t", "g") == [1]
        with pytest.raises(GroupBusy, match="is owed 1 message"):
            world.change("t", "g", mode=Mode.ORDERED)
        broker = world.broker
        world.run(lambda: broker.operating.retry_now(world.now, "t", "g", 0, [0]))
        assert world.drain(session, "t", "g") == [0]

    explore(scenario)


def test_what_a_mode_does_not_allow_is_refused() -> None:
    world = World()
    start(world, Mode.SHARED, ordered=False, tags="a")
    has = (
        "group 'g' on topic 't' has a {} filter, and mode {} takes no .* filter: remove the filter"
    )
    with pytest.raises(InvalidRequest, match=has.format("tag", "queue_lock") + ".*tags=''"):
        world.change("t", "g", mode=Mode.QUEUE_LOCK)
    with pytest.raises(InvalidRequest, match="takes no tag filter: leave the tags out"):
        world.change("t", "g", mode=Mode.QUEUE_LOCK, tags="b")
    world.change("t", "g", mode=Mode.SHARED, tags="", filter="a = 1")
    with pytest.raises(InvalidRequest, match=has.format("header", "exclusive") + ".*filter=''"):
        world.change("t", "g", mode=Mode.EXCLUSIVE)
    with pytest.raises(InvalidRequest, match="takes no header filter: leave the filter out"):
        world.change("t", "g", mode=Mode.QUEUE_LOCK, filter="a = 2")
    with pytest.raises(ModeNotAllowed, match="topic 't' is not ordered: mode ordered needs an ord"):
        world.change("t", "g", mode=Mode.ORDERED)
    with pytest.raises(ModeNotAllowed):
        world.change("t", "g", mode=Mode.ORDERED, filter="")
    world.change("t", "g", mode=Mode.QUEUE_LOCK, filter="")
    world.restart()
    assert world.broker.views.catalog.subscription("t", "g").spec.mode is Mode.QUEUE_LOCK


def test_a_set_that_is_written_after_the_change_has_the_mode() -> None:
    """Nothing else has changed the objects of the group since the set before."""
    world = World(state_from=1, budget=1_000)
    start(world, Mode.ORDERED)
    world.change("t", "g", window=7)
    before = world.sets
    world.change("t", "g", mode=Mode.QUEUE_LOCK)
    assert world.sets > before
    world.restart()
    subscription = world.broker.views.catalog.subscription("t", "g")
    assert subscription.spec.mode is Mode.QUEUE_LOCK
    assert {one.mode.name for one in subscription.queues} == {Mode.QUEUE_LOCK}


def test_the_rows_that_are_parked_in_ordered_groups_are_counted() -> None:
    world = World()
    session = start(world, Mode.ORDERED)
    world.send("t", "aaab")
    pull(world, session, 1)
    pull(world, session, 1)
    figures = world.broker.views.figures
    figures.settle()
    assert figures.most_parked() == 2
    world.change("t", "g", mode=Mode.SHARED)
    figures.settle()
    assert (figures.most_parked(), figures.most_ready()) == (0, 2)


# -- rows that expire meanwhile --------------------------------------------------------------------


def send_expiring(world: World, keys: str, seconds: str) -> None:
    """Store one row for each key, which expires after so many seconds; 0: never."""
    rows = [
        Row(
            body=f"{key}{at}".encode(),
            ordering_key=key,
            expiry_us=world.now + int(after) * SECOND if int(after) else 0,
        )
        for at, (key, after) in enumerate(zip(keys, seconds, strict=True))
    ]
    world.send("t", rows)


def dead(world: World) -> dict[int, tuple[int, int]]:
    """Return offset -> (attempt, deliveries) of the dead letters."""
    failed = world.progress("t", "g").failures.failed(dead=True, after=-1)
    return {one.offset: (one.attempt, one.deliveries) for one in failed}


def each_state(scenario: Callable[[World], None]) -> None:
    """Run a scenario with sets of STATE from different moments on; a start finds the same state.

    Not with reads that block: a pull that has recorded expired rows ends there, without rows.
    """
    for begin in (None, 1, 3, 5, 7, 9):
        world = World(state_from=begin)
        scenario(world)
        before = portrait(world.broker.views)
        world.restart(gap_us=0)
        assert difference(before, portrait(world.broker.views)) == [], begin


def become_member(world: World, session: int) -> None:
    found = world.broker.views.catalog.subscription("t", "g")
    world.run(lambda: world.broker.membership.join(world.now, session, found))


@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.QUEUE_LOCK, Mode.OWNED, Mode.EXCLUSIVE])
def test_parked_rows_that_expire_are_not_handed_out_in_the_new_mode(mode: Mode) -> None:
    def scenario(world: World) -> None:
        session = start(world, Mode.ORDERED)
        send_expiring(world, "aaab", "0250")
        head = pull(world, session, 1)
        other = pull(world, session, 1)
        assert offsets(other) == [3]  # rows of a are parked meanwhile
        world.change("t", "g", mode=mode)
        become_member(world, session)
        world.pass_time(3 * SECOND)
        world.settle(session, "t", "g", head)
        world.settle(session, "t", "g", other)
        assert world.drain(session, "t", "g") == [2]
        assert dead(world) == {1: (0, 0)}

    each_state(scenario)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Mode.ORDERED, Mode.SHARED),
        (Mode.ORDERED, Mode.QUEUE_LOCK),
        (Mode.ORDERED, Mode.OWNED),
        (Mode.QUEUE_LOCK, Mode.SHARED),
        (Mode.SHARED, Mode.EXCLUSIVE),
    ],
)
def test_rows_that_expire_before_their_retry_are_not_tried_again_in_the_new_mode(
    before: Mode, after: Mode
) -> None:
    def scenario(world: World) -> None:
        session = start(world, before, retry=STEADY)
        send_expiring(world, "ab", "20")
        first = pull(world, session, 1)
        assert offsets(first) == [0]
        world.settle(session, "t", "g", first, Outcome.RETRY, reason="no")
        world.change("t", "g", mode=after)
        become_member(world, session)
        world.pass_time(3 * SECOND)
        assert world.drain(session, "t", "g") == [1]
        assert dead(world) == {0: (1, 1)}

    each_state(scenario)


def test_rows_replayed_from_before_the_group_began_are_not_judged_after_a_switch() -> None:
    """Of them, too, no delivery is known; an operator wants them."""
    world = World()
    world.topic("t", ordered=True)
    send_expiring(world, "ab", "11")
    world.group("t", "g", mode=Mode.SHARED, start=Start.LATEST)
    session = world.join()
    world.run(lambda: world.broker.operating.replay(world.now, session, "t", "g", {0: [(0, 2)]}))
    world.change("t", "g", mode=Mode.QUEUE_LOCK)
    world.pass_time(2 * SECOND)
    assert world.drain(session, "t", "g") == [0, 1]
