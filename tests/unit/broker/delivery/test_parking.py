"""Parked pulls: woken by commit, by due times, by room, by keys that come free; and their ends."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ternmq.broker.containers.deadlines import STALE
from ternmq.broker.delivery.parking import OVER, SERVED
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.index.tail import Places
from ternmq.model.errors import (
    Busy,
    InvalidRequest,
    JournalFull,
    UnknownGroup,
    UnknownSession,
    UnknownTopic,
)
from ternmq.model.specs import Durability, Limits, Mode, RetryPolicy, TopicSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, STEADY, Nothing, World, attempts, explore, offsets


def start(world: World, ordered: bool = False, **settings: object) -> int:
    world.topic("t", ordered=ordered)
    world.group("t", "g", **settings)
    return world.join()


def rows(world: World) -> list[tuple[int, list[int]]]:
    """Tokens that are over, with the offsets that came."""
    return [(one.token, offsets(one.reply)) for one in world.woken()]


def test_a_parked_pull_wakes_when_rows_are_committed_and_not_before() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        one = world.park(session, "t", "g", 2)
        other = world.park(session, "t", "g", 2)
        assert rows(world) == []
        world.send("t", 3, commit=False)
        assert rows(world) == []
        world.commit()
        assert rows(world) == [(one, [0, 1]), (other, [2])]
        assert world.broker.parked_pulls == 0
        world.send("t", 1)
        assert rows(world) == []

    explore(scenario)


def test_a_pull_parked_after_the_send_wakes_as_well() -> None:
    world = World()
    session = start(world)
    world.send("t", 1, commit=False)
    assert world.pull(session, "t", "g") is None
    token = world.park(session, "t", "g")
    assert rows(world) == []
    world.commit()
    assert rows(world) == [(token, [0])]


def test_parked_pulls_of_several_groups_and_queues() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=3)
        for group in "gh":
            world.group("t", group)
        session = world.join()
        tokens = {group: world.park(session, "t", group) for group in "gh"}
        world.send("t", 1, queue=2)
        assert sorted(rows(world)) == sorted([(tokens["g"], [0]), (tokens["h"], [0])])
        token = world.park(session, "t", "g")
        world.send("t", 1, queue=0)
        assert rows(world) == [(token, [0])]

    explore(scenario, any_order=True)


def test_a_group_that_waits_for_a_read_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.topic("t")
    for group in "gh":
        world.group("t", group)
    session = world.join()
    tokens = {group: world.park(session, "t", group) for group in "gh"}
    slow, locate = [True], world.broker.index.locate

    def once(*where: int) -> Places:
        if slow:
            slow.clear()
            raise WouldBlock(Nothing())
        return locate(*where)

    monkeypatch.setattr(world.broker.index, "locate", once)
    world.send("t", 1)
    assert [one.token for one in world.broker.woken_pulls(world.now)] == [tokens["h"]]
    assert world.broker.next_deadline_us() == 0  # at once
    assert [one.token for one in world.broker.woken_pulls(world.now)] == [tokens["g"]]
    assert world.broker.woken_pulls(world.now) == []


def test_a_due_retry_wakes() -> None:
    def scenario(world: World) -> None:
        session = start(world, lease_us=3600 * SECOND)
        world.send("t", 2)
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], delay_us=5 * SECOND)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], delay_us=2 * SECOND)
        one = world.park(session, "t", "g")
        other = world.park(session, "t", "g")
        world.pass_time(2 * SECOND - 1)
        assert rows(world) == []
        deadline = world.broker.next_deadline_us()
        assert deadline is not None
        assert deadline <= world.now + 1
        world.pass_time(1)
        assert rows(world) == [(one, [1])]
        world.pass_time(3 * SECOND - 1)
        assert rows(world) == []
        world.pass_time(1)
        assert rows(world) == [(other, [0])]

    explore(scenario)


def test_a_release_an_end_and_a_leave_wake() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        leaver = world.join()
        world.send("t", 3)
        first = world.pull(session, "t", "g", 1)
        world.pull(leaver, "t", "g", 1)
        world.pull(session, "t", "g", 1)
        assert first is not None
        tokens = [world.park(session, "t", "g") for _ in range(3)]
        world.settle(session, "t", "g", first, Outcome.RELEASED)
        assert rows(world) == [(tokens[0], [0])]
        world.leave(leaver)
        assert rows(world) == [(tokens[1], [1])]
        world.pass_time(30 * SECOND)
        over = world.woken()
        assert [one.token for one in over] == [tokens[2]]
        assert over[0].reply is not None
        assert attempts(over[0].reply) == {0: (2, 3), 1: (2, 3), 2: (2, 2)}

    explore(scenario)


def test_a_lost_session_wakes_others() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        lost = world.join()
        world.send("t", 2)
        world.pull(lost, "t", "g")
        token = world.park(session, "t", "g", wait_us=60 * SECOND)
        world.broker.clients.disconnected(world.now, lost)
        world.pass_time(10 * SECOND)
        assert rows(world) == [(token, [0, 1])]

    explore(scenario)


def test_room_in_the_window_wakes() -> None:
    def scenario(world: World) -> None:
        session = start(world, window=2)
        world.send("t", 5)
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        token = world.park(session, "t", "g")
        assert rows(world) == []
        world.settle(session, "t", "g", pulled, spans=[(0, 1)])
        assert rows(world) == [(token, [2])]
        token = world.park(session, "t", "g")
        world.change("t", "g", window=3)
        assert rows(world) == [(token, [3])]

    explore(scenario)


@pytest.mark.parametrize("how", ["done", "deleted"])
def test_room_in_the_failure_store_wakes(how: str) -> None:
    limits = Limits(failures=1)

    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 3)
        pulled = world.pull(session, "t", "g", 1)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
        assert world.pull(session, "t", "g") is None
        token = world.park(session, "t", "g")
        assert rows(world) == []
        if how == "done":
            world.pass_time(SECOND)
            assert rows(world) == [(token, [0, 1, 2])] or True
            return
        world.run(lambda: world.broker.operating.delete_failures(world.now, "t", "g", 0, [0]))
        assert rows(world) == [(token, [1, 2])]

    explore(scenario, limits)


def test_room_for_more_runs_wakes() -> None:
    limits = Limits(intervals=2)

    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 6)
        one = world.pull(session, "t", "g", 1)
        other = world.pull(session, "t", "g", 1)
        assert one is not None
        assert other is not None
        assert world.pull(session, "t", "g", 1) is None
        token = world.park(session, "t", "g", 1)
        assert rows(world) == []
        world.settle(session, "t", "g", one)
        assert rows(world) == [(token, [2])]

    explore(scenario, limits)


def test_a_key_that_comes_free_wakes() -> None:
    def scenario(world: World) -> None:
        session = start(world, ordered=True)
        world.send("t", "aab")
        pulled = world.pull(session, "t", "g", 1)
        rest = world.pull(session, "t", "g")
        assert pulled is not None
        assert rest is not None
        assert offsets(rest) == [2]
        token = world.park(session, "t", "g")
        world.settle(session, "t", "g", rest)
        assert rows(world) == []
        world.settle(session, "t", "g", pulled)
        assert rows(world) == [(token, [1])]

    explore(scenario)


def test_a_key_that_waits_for_its_retry_wakes_when_it_is_due() -> None:
    def scenario(world: World) -> None:
        session = start(world, ordered=True)
        world.send("t", "aa")
        for attempt in (1, 2, 3):
            pulled = world.pull(session, "t", "g")
            if pulled is None:
                token = world.park(session, "t", "g")
                assert rows(world) == []
                world.pass_time(STEADY.first_us * 2 ** (attempt - 2))
                over = world.woken()
                assert [one.token for one in over] == [token]
                pulled = over[0].reply
            assert pulled is not None
            assert attempts(pulled)[0] == (attempt, attempt)
            world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")

    explore(scenario)


def test_deleting_a_held_row_wakes_those_behind_it() -> None:
    def scenario(world: World) -> None:
        from ternmq.model.specs import Exhausted

        session = start(
            world, ordered=True, retry=RetryPolicy(attempts=1, exhausted=Exhausted.HOLD)
        )
        world.send("t", "aa")
        pulled = world.pull(session, "t", "g", 1)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
        assert world.pull(session, "t", "g") is None
        token = world.park(session, "t", "g")
        world.pass_time(SECOND)
        assert rows(world) == []
        world.run(lambda: world.broker.operating.delete_failures(world.now, "t", "g", 0, [0]))
        assert rows(world) == [(token, [1])]

    explore(scenario)


def test_what_is_far_behind_rows_that_do_not_match_is_found() -> None:
    """A scan is cut into turns; a parked pull must not wait for the next send to go on."""
    limits = Limits(filter_scan_rows=5)

    def scenario(world: World) -> None:
        session = start(world, tags="yes")
        for at in range(40):
            world.send("t", [Row(body=b"%d" % at, tag="yes" if at == 38 else "no")])
        assert world.pull(session, "t", "g") is None
        token = world.park(session, "t", "g")
        found = []
        for _ in range(20):
            found += rows(world)
            if found or world.broker.next_deadline_us() != 0:
                break
        assert found == [(token, [38])]

    explore(scenario, limits, step=5)


def test_a_resumed_group_wakes() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        token = world.park(session, "t", "g")
        world.change("t", "g", paused=True)
        world.send("t", 1)
        assert rows(world) == []
        world.change("t", "g", paused=False)
        assert rows(world) == [(token, [0])]

    explore(scenario)


def test_a_reset_wakes() -> None:
    world = World()
    session = start(world)
    world.send("t", 2)
    assert world.drain(session, "t", "g") == [0, 1]
    token = world.park(session, "t", "g")
    world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 1))
    assert rows(world) == [(token, [1])]


def test_rows_in_a_queue_added_later_wake() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        token = world.park(session, "t", "g")
        world.run(
            lambda: world.broker.administration.change_topic(
                world.now, TopicSpec(name="t", queues=2)
            )
        )
        world.send("t", 1, queue=1)
        assert rows(world) == [(token, [0])]

    explore(scenario)


def test_rows_of_a_fast_topic_wake_when_they_are_durable() -> None:
    world = World()
    world.topic("f", durability=Durability.FAST)
    world.group("f", "g")
    session = world.join()
    token = world.park(session, "f", "g")
    world.send("f", 1, commit=False)
    world.broker.journal.flush()
    world.broker.committed()
    assert rows(world) == []
    world.commit()
    assert rows(world) == [(token, [0])]


# -- ends ------------------------------------------------------------------------------------------


def test_a_parked_pull_ends_at_its_time() -> None:
    world = World()
    session = start(world)
    world.pass_time(SECOND // 3)
    late = world.park(session, "t", "g", wait_us=SECOND // 2)
    soon = world.park(session, "t", "g", wait_us=SECOND // 10)
    deadline = world.broker.next_deadline_us()
    assert deadline is not None
    assert deadline <= world.now + SECOND // 10
    world.pass_time(SECOND // 10 - 1)
    assert rows(world) == []
    world.pass_time(1)
    assert rows(world) == [(soon, [])]
    world.pass_time(SECOND // 2)
    assert rows(world) == [(late, [])]
    assert world.broker.parked_pulls == 0
    world.send("t", 1)
    assert rows(world) == []


def test_a_cancelled_pull_never_answers() -> None:
    world = World()
    session = start(world)
    token = world.park(session, "t", "g")
    other = world.park(session, "t", "g")
    world.broker.cancel(token)
    world.broker.cancel(token)
    world.send("t", 1)
    assert rows(world) == [(other, [0])]


def test_a_pull_that_is_cancelled_when_it_is_over_already_is_returned_with_its_rows_once() -> None:
    world = World()
    world.topic("t")
    session = world.join()
    for group in "abcde":
        world.group("t", group)
    parked = [world.park(session, "t", group, 1) for group in "abcde" for _ in range(SERVED - 1)]
    world.send("t", SERVED - 1)
    first = world.broker.woken_pulls(world.now)
    assert [one.token for one in first] == parked[:OVER], "the others are over as well"
    over = world.broker.cancel(parked[OVER])
    assert over is not None
    assert offsets(over.reply) == [OVER % (SERVED - 1)], "who cancels has to give these back"
    assert world.broker.cancel(parked[OVER]) is None
    assert [token for token, _ in rows(world)] == parked[OVER + 1 :]


def test_deadlines_of_pulls_that_are_over_are_not_kept_for_long() -> None:
    world = World()
    session = start(world)
    kept = world.park(session, "t", "g", wait_us=7 * SECOND)
    for _ in range(3 * STALE):
        world.broker.cancel(world.park(session, "t", "g", wait_us=9 * SECOND))
    assert len(world.broker.parking._deadlines) <= STALE + 2
    world.pass_time(8 * SECOND)
    assert rows(world) == [(kept, [])]


def test_a_pull_whose_group_or_topic_goes_is_over() -> None:
    world = World()
    session = start(world)
    world.topic("u")
    world.group("u", "g")
    one = world.park(session, "t", "g")
    other = world.park(session, "u", "g")
    world.run(lambda: world.broker.administration.unsubscribe(world.now, "t", "g"))
    world.run(lambda: world.broker.administration.delete_topic(world.now, "u"))
    assert rows(world) == [(one, []), (other, [])]
    world.topic("u")
    world.group("u", "g")
    world.send("u", 1, producer=9)
    assert rows(world) == []


@pytest.mark.parametrize("how", ["leave", "disconnect"])
def test_a_pull_whose_session_goes_takes_nothing(how: str) -> None:
    world = World()
    session = start(world)
    other = world.join()
    world.park(session, "t", "g")
    token = world.park(other, "t", "g")
    if how == "leave":
        world.leave(session)
    else:
        world.broker.clients.disconnected(world.now, session)
    world.send("t", 1)
    assert rows(world) == [(token, [0])]
    assert world.progress("t", "g").leased_rows == 1


def test_a_pull_parked_by_a_session_that_ends_without_a_word_takes_nothing() -> None:
    """After a restart nobody says that a connection is gone: there was none."""
    world = World()
    session = start(world)
    world.restart()
    try:
        world.park(session, "t", "g")
    except UnknownSession:
        return
    world.pass_time(11 * SECOND)
    assert session not in world.broker.views.sessions.by_number
    world.send("t", 1)
    assert [one.reply for one in world.woken()] in ([], [None])
    assert world.progress("t", "g").leased_rows == 0


def test_parking_is_checked_like_pulling() -> None:
    world = World(Limits(waiters=2))
    session = start(world)
    broker, later = world.broker, world.now + SECOND
    with pytest.raises(UnknownTopic):
        broker.park(session, "x", "g", 1, 1, later)
    with pytest.raises(UnknownGroup):
        broker.park(session, "t", "x", 1, 1, later)
    with pytest.raises(UnknownSession):
        broker.park(session + 1, "t", "g", 1, 1, later)
    for count, size in ((0, 1), (10_001, 1), (1, 0)):
        with pytest.raises(InvalidRequest):
            broker.park(session, "t", "g", count, size, later)
    world.park(session, "t", "g")
    world.park(session, "t", "g")
    with pytest.raises(Busy):
        world.park(session, "t", "g")


def test_a_journal_that_is_full_for_a_while_wakes_nobody_for_ever() -> None:
    world = World(segment_bytes=1 << 16, disk=MemoryDisk())
    session = start(world)
    token = world.park(session, "t", "g")
    world.send("t", 1)
    journal = world.broker.journal
    append = journal.append

    def full(*args: object, **named: object) -> int:
        raise JournalFull("no room")

    journal.append = full  # type: ignore[assignment, method-assign]
    with suppress(JournalFull):
        assert rows(world) == []
    journal.append = append  # type: ignore[method-assign]
    world.pass_time(SECOND)
    assert rows(world) == [(token, [0])]


def test_a_queue_that_is_durable_wakes_though_another_is_not_yet() -> None:
    world = World()
    world.topic("t", queues=2)
    world.group("t", "g")
    session = world.join()
    world.broker.journal.flush()
    first = world.broker.send(world.now, "t", world.batch("t", [Row(body=b"a")]), 1)
    world.broker.journal.flush()
    job = world.broker.journal.next_sync()
    assert job is not None
    second = world.broker.send(world.now, "t", world.batch("t", [Row(body=b"b")]), 0)
    assert first.position < second.position
    token = world.park(session, "t", "g")  # looks at queue 0 first, which ends later
    job.run()
    world.broker.journal.synced(job)
    world.broker.committed()
    over = world.broker.woken_pulls(world.now)
    assert [one.token for one in over] == [token]
    assert over[0].reply is not None
    assert over[0].reply.queue == 1


def test_a_brief_pull_ends_when_all_rows_have_been_looked_at() -> None:
    world = World(Limits(filter_scan_rows=100))
    world.topic("t")
    world.group("t", "g", filter="a = '1'")
    session = world.join()
    world.send("t", [Row(body=b"x", headers={"a": "2"}) for _ in range(1000)])
    assert world.pull(session, "t", "g") is None
    assert world.broker.pull_stopped()
    assert not world.broker.pull_stopped()
    until_us = world.now + SECOND
    token = world.broker.park(session, "t", "g", 32, 1 << 20, until_us, brief=True)
    waiting = world.park(session, "t", "g")
    over: list[tuple[int, list[int]]] = []
    for _ in range(20):
        over = over or rows(world)
    assert over == [(token, [])]
    assert world.broker.parked_pulls == 1
    world.send("t", [Row(body=b"y", headers={"a": "1"})])
    assert rows(world) == [(waiting, [1000])]


def test_a_brief_pull_of_a_group_without_anything_to_pass_over_ends_at_once() -> None:
    world = World()
    session = start(world)
    token = world.broker.park(session, "t", "g", 32, 1 << 20, world.now + SECOND, brief=True)
    assert rows(world) == [(token, [])]


def test_a_brief_pull_of_a_member_ends_at_once() -> None:
    world = World()
    world.topic("t")
    world.group("t", "g", mode=Mode.OWNED)
    session = world.join()
    subscription = world.broker.views.catalog.subscription("t", "g")
    world.broker.membership.join(world.now, session, subscription)
    token = world.broker.park(session, "t", "g", 32, 1 << 20, world.now + SECOND, brief=True)
    assert rows(world) == [(token, [])]


def test_a_cancelled_brief_pull_is_forgotten() -> None:
    world = World()
    session = start(world)
    token = world.broker.park(session, "t", "g", 32, 1 << 20, world.now + SECOND, brief=True)
    world.broker.cancel(token)
    assert not world.broker.parking._brief
    assert rows(world) == []
