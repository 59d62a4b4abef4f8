"""Shared groups: leases, partial settles, gaps, ends by time, windows, what comes again when."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ternmq.model.errors import InvalidRequest, LeaseExpired, UnknownQueue, UnknownSession
from ternmq.model.specs import Limits
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle
from tests.unit.broker.kit import SECOND, World, attempts, check, explore, offsets

LEASE = 30 * SECOND


def start(world: World, **settings: object) -> int:
    world.topic("t")
    world.group("t", "g", **settings)
    return world.join()


def test_rows_are_leased_in_order_settled_and_done() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 3)
        for _ in range(4):
            world.send("t", 1)
        first = world.pull(session, "t", "g", 2)
        rest = world.pull(session, "t", "g", 32)
        assert first is not None
        assert rest is not None
        assert (first.runs, rest.runs) == ([(0, 2, 1, 1)], [(2, 7, 1, 1)])
        assert first.position == 0
        assert first.until_us == world.now + LEASE
        assert world.pull(session, "t", "g") is None
        reply = world.settle(session, "t", "g", first)
        assert reply.settled == [(0, 2, 1, 1)]
        assert reply.position == world.end
        world.settle(session, "t", "g", rest)
        progress = world.progress("t", "g")
        assert (progress.cursor, progress.floor(), progress.intervals()) == (7, 7, 1)
        world.pass_time(2 * LEASE)
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_partial_settles_leave_gaps_that_come_back_when_their_time_is_over() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 10)
        pulled = world.pull(session, "t", "g", 10)
        assert pulled is not None
        reply = world.settle(session, "t", "g", pulled, spans=[(7, 9), (1, 3)])
        assert sorted(reply.settled) == [(1, 3, 1, 1), (7, 9, 1, 1)]
        assert reply.refused == []
        assert world.progress("t", "g").floor() == 0
        # What is no longer held is refused, what still is counts.
        reply = world.settle(session, "t", "g", pulled, spans=[(2, 5)])
        assert reply.settled == [(3, 5, 1, 1)]
        assert reply.refused == [(2, 3)]
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled, spans=[(1, 3), (20, 30)])
        world.pass_time(LEASE - 1)
        assert world.pull(session, "t", "g") is None
        world.pass_time(1)
        again = world.pull(session, "t", "g")
        assert again is not None
        assert attempts(again) == dict.fromkeys((0, 5, 6, 9), (2, 2))
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled)
        world.settle(session, "t", "g", again)
        assert world.progress("t", "g").intervals() == 1

    explore(scenario)


def test_a_late_settle_leaves_the_second_consumers_lease_alone() -> None:
    def scenario(world: World) -> None:
        one = start(world)
        other = world.join()
        world.send("t", 4)
        slow = world.pull(one, "t", "g", 4)
        assert slow is not None
        world.pass_time(LEASE)
        quick = world.pull(other, "t", "g", 2)
        assert quick is not None
        with pytest.raises(LeaseExpired):
            world.settle(one, "t", "g", slow, spans=[(0, 4)])
        assert world.progress("t", "g").leased_rows == 2
        assert world.settle(other, "t", "g", quick).settled == [(0, 2, 2, 2)]

    explore(scenario)


def test_extending_a_lease_keeps_it() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 4)
        pulled = world.pull(session, "t", "g")
        assert pulled is not None

        def extend(us: int) -> None:
            world.run(
                lambda: world.broker.extend(
                    world.now, session, "t", "g", 0, pulled.epoch, pulled.lease, us
                )
            )

        world.pass_time(20 * SECOND)
        extend(LEASE)
        extend(1)  # never less than it has
        world.pass_time(29 * SECOND)
        assert world.pull(session, "t", "g") is None
        world.pass_time(SECOND)
        again = world.pull(session, "t", "g")
        assert again is not None
        assert attempts(again)[0] == (2, 2)
        with pytest.raises(LeaseExpired):
            extend(LEASE)

    explore(scenario)


def test_released_rows_come_again_at_once_and_do_not_count() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 5)
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RELEASED, [(1, 3)])
        again = world.pull(session, "t", "g")
        assert again is not None
        assert again.runs == [(1, 3, 1, 2)]
        world.settle(session, "t", "g", again, Outcome.RELEASED)
        third = world.pull(session, "t", "g")
        assert third is not None
        assert third.runs == [(1, 3, 1, 3)]
        world.settle(session, "t", "g", third)
        world.settle(session, "t", "g", pulled)
        assert world.progress("t", "g").intervals() == 1

    explore(scenario)


def test_what_comes_again_takes_half_of_a_pull_while_there_is_new() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 20)
        pulled = world.pull(session, "t", "g", 10)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RELEASED)
        mixed = world.pull(session, "t", "g", 6)
        assert mixed is not None
        assert offsets(mixed) == [0, 1, 2, 10, 11, 12]
        rest = world.pull(session, "t", "g", 32)
        assert rest is not None
        assert offsets(rest) == [3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18, 19]
        world.settle(session, "t", "g", rest, Outcome.RELEASED)
        last = world.pull(session, "t", "g", 8)  # nothing new: all of the pull comes again
        assert offsets(last) == [3, 4, 5, 6, 7, 8, 9, 13]

    explore(scenario)


def test_pulls_of_one_row_take_turns_between_old_and_new() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 12)
        pulled = world.pull(session, "t", "g", 6)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RELEASED)
        got = [offsets(world.pull(session, "t", "g", 1))[0] for _ in range(12)]
        old, new = [at for at in got if at < 6], [at for at in got if at >= 6]
        assert (old, new) == (list(range(6)), list(range(6, 12)))
        assert all((one < 6) != (other < 6) for one, other in pairwise(got))

    explore(scenario)


def test_a_window_limits_what_is_leased_and_not_settled() -> None:
    def scenario(world: World) -> None:
        session = start(world, window=5)
        world.send("t", 12)
        first = world.pull(session, "t", "g", 3)
        second = world.pull(session, "t", "g", 32)
        assert first is not None
        assert second is not None
        assert offsets(second) == [3, 4]
        assert world.pull(session, "t", "g") is None
        world.settle(session, "t", "g", first, spans=[(1, 2)])
        third = world.pull(session, "t", "g", 32)
        assert offsets(third) == [5]
        world.change("t", "g", window=7)
        assert offsets(world.pull(session, "t", "g", 32)) == [6, 7]
        world.change("t", "g", window=1)
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_adding_consumers_spreads_a_backlog_and_nothing_is_lost_or_doubled() -> None:
    def scenario(world: World) -> None:
        sessions = [start(world), world.join(), world.join()]
        world.send("t", 40)
        got: list[int] = []
        for turn in range(9):
            pulled = world.pull(sessions[turn % 3], "t", "g", 5)
            got += offsets(pulled)
            if pulled is not None and turn % 2:
                world.settle(sessions[turn % 3], "t", "g", pulled)
        assert got == list(range(40))

    explore(scenario, step=3)


def test_rows_are_told_apart_over_the_edges_of_shards() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 1000)
        world.send("t", 100)
        pulled = world.pull(session, "t", "g", 1010)
        tail = world.pull(session, "t", "g", 60)
        assert pulled is not None
        assert tail is not None
        assert tail.runs == [(1010, 1070, 1, 1)]
        world.settle(session, "t", "g", pulled, spans=[(0, 1000)])
        world.settle(session, "t", "g", tail, Outcome.RETRY, [(1020, 1030)], reason="edge")
        world.settle(session, "t", "g", tail, Outcome.DEAD, [(1040, 1042)], reason="gone")
        world.settle(session, "t", "g", tail, spans=[(1012, 1016)])
        world.settle(session, "t", "g", tail, Outcome.RELEASED, [(1022 + 20, 1060)])
        world.pass_time(2 * SECOND)
        again = world.pull(session, "t", "g", 200)
        assert again is not None
        named = attempts(again)
        assert named[1023] == named[1024] == (2, 2)
        assert named[1042] == (1, 2)
        assert named[1080] == (1, 1)
        world.settle(session, "t", "g", again, spans=[(1020, 1026)])

    explore(scenario, step=2)


def test_only_committed_rows_are_handed_out() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 2)
        world.send("t", 2, commit=False)
        world.send("t", 1, commit=False)
        assert offsets(world.pull(session, "t", "g")) == [0, 1]
        assert world.pull(session, "t", "g") is None
        world.commit()
        assert offsets(world.pull(session, "t", "g")) == [2, 3, 4]

    explore(scenario)


def test_bytes_limit_a_pull_but_one_batch_always_comes() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        for _ in range(4):
            world.send("t", [Row(body=bytes(1000))])
        assert offsets(world.pull(session, "t", "g", 32, max_bytes=10)) == [0]
        assert offsets(world.pull(session, "t", "g", 32, max_bytes=2600)) == [1, 2]
        assert offsets(world.pull(session, "t", "g", 32)) == [3]

    explore(scenario)


def test_a_large_batch_counts_once_however_many_of_its_rows_come_again() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", [Row(body=bytes(100)) for _ in range(40)])
        pulled = world.pull(session, "t", "g", 40)
        assert pulled is not None
        odd = [(at, at + 1) for at in range(1, 40, 2)]
        world.settle(session, "t", "g", pulled, Outcome.RELEASED, odd)
        again = world.pull(session, "t", "g", 40, max_bytes=6000)
        assert offsets(again) == list(range(1, 40, 2))

    explore(scenario)


def test_settling_thousands_of_gaps_takes_time_in_proportion() -> None:
    """One span after the other would take the square of it: seconds of a loop that stands still."""
    world = World(segment_bytes=1 << 22)
    session = start(world)
    world.send("t", 10_000)
    pulled = world.pull(session, "t", "g", 10_000)
    assert pulled is not None
    odd = [(at, at + 1) for at in range(1, 10_000, 2)]

    reply = world.settle(session, "t", "g", pulled, spans=odd)
    assert len(reply.settled) == 5000
    world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
    assert world.progress("t", "g").failures.waiting_rows == 5000
    world.pass_time(SECOND)
    assert world.drain(session, "t", "g", 10_000) == list(range(0, 10_000, 2))
    check(world.broker, world.now)


def test_several_queues_take_turns() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=3)
        world.group("t", "g")
        session = world.join()
        for queue in (0, 1, 2, 0, 1, 2):
            world.send("t", 2, queue=queue)
        got = []
        for _ in range(6):
            pulled = world.pull(session, "t", "g", 2)
            assert pulled is not None
            got.append((pulled.queue, offsets(pulled)))
        assert sorted(got) == [(queue, rows) for queue in range(3) for rows in ([0, 1], [2, 3])]
        assert {queue for queue, _ in got[:3]} == {0, 1, 2}
        world.send("t", 1, queue=1)
        assert world.pull(session, "t", "g", queue=0) is None
        assert offsets(world.pull(session, "t", "g", queue=1)) == [4]

    explore(scenario, step=2)


def test_groups_have_a_copy_each() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 4)
        world.group("t", "late")
        world.group("t", "later", start="latest")
        world.send("t", 2)
        assert world.drain(session, "t", "g") == [0, 1, 2, 3, 4, 5]
        assert world.drain(session, "t", "late") == [0, 1, 2, 3, 4, 5]
        assert world.drain(session, "t", "later") == [4, 5]

    from ternmq.model.specs import Start

    def with_start(world: World) -> None:
        original = world.group

        def group(topic: str, name: str, **settings: object) -> int:
            if settings.get("start") == "latest":
                settings["start"] = Start.LATEST
            return original(topic, name, **settings)

        world.group = group  # type: ignore[method-assign]
        scenario(world)

    explore(with_start)


@pytest.mark.parametrize("spans", [[(3, 3)], [(3, 2)], [(-1, 2)], [(0, 2), (5, 4)]])
def test_spans_that_make_no_sense_are_refused(spans: list[tuple[int, int]]) -> None:
    world = World()
    session = start(world)
    world.send("t", 6)
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    end = world.broker.journal.end
    for outcome in (Outcome.DONE, Outcome.RETRY, Outcome.RELEASED):
        with pytest.raises(InvalidRequest):
            world.settle(session, "t", "g", pulled, outcome, spans)
    assert world.broker.journal.end == end
    check(world.broker)


@pytest.mark.parametrize("delay", [-1, 1 << 62, 1 << 70])
def test_delays_that_make_no_sense_are_refused(delay: int) -> None:
    world = World()
    session = start(world)
    world.send("t", 6)
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    with pytest.raises(InvalidRequest):
        world.settle(session, "t", "g", pulled, Outcome.RETRY, delay_us=delay)
    with pytest.raises(InvalidRequest):
        world.broker.extend(world.now, session, "t", "g", 0, pulled.epoch, pulled.lease, delay)
    check(world.broker)


def test_commands_that_name_nothing_are_refused() -> None:
    world = World()
    session = start(world)
    world.send("t", 1)
    broker, now = world.broker, world.now
    with pytest.raises(UnknownSession):
        broker.pull(now, 99, "t", "g")
    with pytest.raises(UnknownQueue):
        broker.pull(now, session, "t", "g", queue=1)
    for rows in (0, -1, 10_001):
        with pytest.raises(InvalidRequest):
            broker.pull(now, session, "t", "g", rows)
    with pytest.raises(InvalidRequest):
        broker.pull(now, session, "t", "g", max_bytes=0)
    with pytest.raises(UnknownQueue):
        broker.settle(now, session, Settle("t", "g", 1, 1, 1, Outcome.DONE))
    with pytest.raises(InvalidRequest):
        broker.settle(now, session, Settle("t", "g", 0, 1, 1, Outcome.HELD))
    with pytest.raises(LeaseExpired):
        broker.settle(now, session, Settle("t", "g", 0, 1, 1, Outcome.DONE))


def test_a_row_that_is_released_without_end_can_still_be_pulled() -> None:
    world = World()
    session = start(world)
    world.send("t", 1)
    world.progress("t", "g").cursor = 1
    world.progress("t", "g").ready.add(0, 1, 1, 65_534)
    for _ in range(4):
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        assert pulled.runs == [(0, 1, 1, 65_535)]
        world.settle(session, "t", "g", pulled, Outcome.RELEASED)


def test_a_crowd_of_open_runs_stops_new_rows_but_not_those_that_are_owed() -> None:
    """Were nothing handed out at all, the runs could never become fewer."""
    limits = Limits(intervals=4)

    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 30)
        pulled = world.pull(session, "t", "g", 20)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, spans=[(at, at + 1) for at in range(1, 20, 2)])
        world.settle(session, "t", "g", pulled, Outcome.RELEASED)
        assert len(world.progress("t", "g").ready) == 10
        again = world.pull(session, "t", "g", 6)
        assert offsets(again) == [0, 2, 4, 6, 8, 10]
        assert again is not None
        world.settle(session, "t", "g", again)
        got = world.drain(session, "t", "g", 4)
        assert sorted(got) == [12, 14, 16, 18, *range(20, 30)]

    explore(scenario, limits, step=3)
