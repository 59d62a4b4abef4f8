"""Groups that lock a queue: one lease at a time, rows in order, retries in place, held rows."""

from __future__ import annotations

import random

import pytest

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import InvalidRequest, LeaseExpired
from ternmq.model.specs import Exhausted, Limits, Mode, RetryPolicy, SubscriptionSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.replay import Cause
from tests.unit.broker.kit import SECOND, World, attempts, explore, offsets

LEASE = 30 * SECOND


def start(world: World, *, ordered: bool = False, queues: int = 1, **settings: object) -> int:
    world.topic("t", ordered=ordered, queues=queues, ignore_ordering_keys=not ordered)
    world.group("t", "g", mode=Mode.QUEUE_LOCK, **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "t", "g", rows)
    assert pulled is not None
    return pulled


@pytest.mark.parametrize("ordered", [False, True])
def test_while_a_lease_is_open_nobody_gets_rows_of_its_queue(ordered: bool) -> None:
    def scenario(world: World) -> None:
        one = start(world, ordered=ordered)
        other = world.join()
        world.send("t", "abc")
        first = pull(world, one, 2)
        assert first.runs == [(0, 2, 1, 1)]
        assert first.position == world.end  # its answer waits for the record
        world.send("t", "ab")
        for session in (one, other):
            assert world.pull(session, "t", "g") is None
        world.settle(one, "t", "g", first, spans=[(0, 1)])
        assert world.pull(other, "t", "g") is None
        world.settle(one, "t", "g", first)
        assert offsets(pull(world, other)) == [2, 3, 4]
        assert world.pull(one, "t", "g") is None

    explore(scenario)


def test_the_queues_of_a_topic_are_locked_one_by_one() -> None:
    def scenario(world: World) -> None:
        session = start(world, queues=2)
        world.send("t", "abc")
        world.send("t", "abc", queue=1)
        world.send("t", "ab", queue=0)
        held = [pull(world, session, 2), pull(world, session, 2)]
        assert sorted(one.queue for one in held) == [0, 1]
        assert world.pull(session, "t", "g") is None
        world.settle(session, "t", "g", held[1])
        assert pull(world, session).queue == held[1].queue

    explore(scenario)


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RELEASED])
def test_the_rows_behind_a_failure_are_given_back_uncounted(outcome: Outcome) -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abcdef")
        pulled = pull(world, session, 5)
        world.settle(session, "t", "g", pulled, spans=[(0, 1), (3, 4)])
        world.settle(session, "t", "g", pulled, outcome, [(1, 2)], reason="no")
        progress = world.progress("t", "g")
        assert (progress.leased_rows, progress.leases) == (0, {})
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "g", pulled, spans=[(2, 3)])
        if outcome is Outcome.RETRY:
            world.pass_time(SECOND - 1)
            assert world.pull(session, "t", "g") is None
            world.pass_time(1)
        again = pull(world, session)
        counted = (2, 2) if outcome is Outcome.RETRY else (1, 2)
        assert offsets(again) == [1, 2, 4, 5]
        assert attempts(again) == {1: counted, 2: (1, 2), 4: (1, 2), 5: (1, 1)}

    explore(scenario)


def test_of_several_failed_rows_the_first_was_handled() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abcd")
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2), (3, 4)], reason="no")
        assert world.progress("t", "g").failures.waiting_rows == 1
        assert world.pull(session, "t", "g") is None  # the first row is still leased
        world.settle(session, "t", "g", pulled)
        world.pass_time(SECOND)
        assert attempts(pull(world, session)) == {1: (2, 2), 2: (1, 2), 3: (1, 2)}

    explore(scenario)


def test_a_dead_row_lets_the_queue_go_on() -> None:
    def scenario(world: World) -> None:
        session = start(world, retry=RetryPolicy(attempts=1))
        world.send("t", "abcd")
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(1, 2)], reason="never")
        assert world.pull(session, "t", "g") is None
        world.settle(session, "t", "g", pulled)
        progress = world.progress("t", "g")
        assert (progress.failures.dead_rows, progress.floor()) == (2, 4)
        world.send("t", "e")
        assert offsets(pull(world, session)) == [4]

    explore(scenario)


def test_a_held_row_closes_the_queue_until_an_operator_lets_it_go() -> None:
    def scenario(world: World) -> None:
        session = start(world, retry=RetryPolicy(attempts=1, exhausted=Exhausted.HOLD))
        world.send("t", "aab")
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, spans=[(0, 1)])
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], reason="no")
        world.send("t", "ab")
        world.pass_time(3600 * SECOND)
        assert world.pull(session, "t", "g") is None
        queries = Queries(world.broker.ledger)
        assert queries.ready_behind("t", "g", 0, world.now) == 1
        world.run(lambda: world.broker.operating.retry_now(world.now, "t", "g", 0, [1]))
        assert queries.ready_behind("t", "g", 0, world.now) == 0
        assert queries.due("t", "g", 0, world.now) == 1
        again = pull(world, session)
        assert offsets(again) == [1, 2, 3, 4]
        assert attempts(again)[1] == (2, 2)
        world.settle(session, "t", "g", again, Outcome.RETRY, [(1, 2)], reason="no")
        assert world.pull(session, "t", "g") is None
        world.run(lambda: world.broker.operating.delete_failures(world.now, "t", "g", 0, [1]))
        assert world.drain(session, "t", "g") == [2, 3, 4]
        assert world.progress("t", "g").intervals() == 1

    explore(scenario, step=2)


def test_the_end_of_a_lease_counts_for_the_first_row_only() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "a" * 701)
        pulled = pull(world, session, 1000)
        world.settle(session, "t", "g", pulled, spans=[(0, 1)])
        world.pass_time(LEASE)  # it ends in pieces
        again = pull(world, session, 1000)
        assert again.runs == [(1, 2, 2, 2), (2, 701, 1, 2)]

    explore(scenario, step=2)


def test_a_session_that_ends_gives_back_what_its_client_has_not_begun() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abcd")
        assert world.pull(session, "t", "g", at_once=4) is not None
        world.broker.clients.disconnected(world.now, session)
        world.pass_time(10 * SECOND)
        other = world.join()
        assert pull(world, other).runs == [(0, 1, 2, 2), (1, 4, 1, 2)]

    explore(scenario)


def test_a_session_that_leaves_hands_over_the_queue_at_once() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "ab")
        pull(world, session)
        other = world.join()
        token = world.park(other, "t", "g")
        world.leave(session)
        (woken,) = world.woken()
        assert woken.token == token
        assert woken.reply is not None
        assert woken.reply.runs == [(0, 2, 1, 2)]

    explore(scenario)


def test_a_waiting_pull_gets_the_queue_when_it_is_open() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abc")
        pulled = pull(world, session, 2)
        world.park(world.join(), "t", "g")
        world.settle(session, "t", "g", pulled, spans=[(0, 1)])
        assert world.woken() == []
        world.settle(session, "t", "g", pulled)
        (woken,) = world.woken()
        assert offsets(woken.reply) == [2]

    explore(scenario)


def test_rows_that_are_replayed_come_first_and_nothing_overtakes_them() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abcdefgh")
        world.settle(session, "t", "g", pull(world, session, 3))
        pulled = pull(world, session, 3)  # 3 to 5
        world.settle(session, "t", "g", pulled, spans=[(4, 5)])
        replay(world, [(1, 2), (4, 5)])
        progress = world.progress("t", "g")
        assert (progress.leases, progress.ready.rows) == ({}, 4)
        again = pull(world, session)
        assert offsets(again) == [1, 3, 4, 5, 6, 7]
        assert attempts(again)[3] == (1, 2)
        world.settle(session, "t", "g", again)
        assert progress.intervals() == 1

    explore(scenario)


def test_replayed_rows_wait_until_a_row_behind_them_is_due() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abc")
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, spans=[(0, 1)])
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], reason="no")
        replay(world, [(0, 1)])
        assert world.pull(session, "t", "g") is None
        queries = Queries(world.broker.ledger)
        assert queries.ready_behind("t", "g", 0, world.now) == 2
        world.pass_time(SECOND)
        assert world.drain(session, "t", "g", 1) == [0, 1, 2]

    explore(scenario)


def replay(world: World, spans: list[tuple[int, int]]) -> None:
    """Have rows delivered again."""
    subscription = world.broker.views.catalog.subscription("t", "g")
    replaying = world.broker.replaying
    queue, progress = subscription.topic.queues[0], subscription.queues[0]
    plan = world.run(lambda: replaying.plan(subscription, queue, progress, spans))
    world.run(lambda: replaying.record(world.now, 0, plan, Cause.REPLAY))


def test_a_pull_ends_where_its_bytes_do_and_passes_over_nothing() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        for key in "abc":
            world.send("t", [Row(body=bytes(1000), key=key)])
        first = world.pull(session, "t", "g", 32, max_bytes=10)
        assert offsets(first) == [0]
        assert first is not None
        world.settle(session, "t", "g", first, Outcome.RELEASED)
        again = world.pull(session, "t", "g", 32, max_bytes=2600)
        assert offsets(again) == [0, 1]
        assert again is not None
        world.settle(session, "t", "g", again, Outcome.RELEASED)
        again = world.pull(session, "t", "g", 32, max_bytes=10)
        assert offsets(again) == [0]  # neither the next released row nor a new one

    explore(scenario)


def test_a_pull_of_few_rows_takes_the_first_that_come_again() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abcdef")
        pulled = pull(world, session, 4)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        world.pass_time(SECOND)
        seen = []
        while (again := world.pull(session, "t", "g", 2)) is not None:
            seen.append(again.runs)
            world.settle(session, "t", "g", again)
        assert seen == [[(0, 1, 2, 2), (1, 2, 1, 2)], [(2, 4, 1, 2)], [(4, 6, 1, 1)]]

    explore(scenario)


def test_after_a_reset_the_queue_is_open_and_begins_again() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", "abcd")
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 1))
        assert attempts(pull(world, session)) == dict.fromkeys((1, 2, 3), (1, 2))

    explore(scenario)


def test_a_restart_keeps_the_queue_locked() -> None:
    world = World()
    session = start(world)
    world.send("t", "abc")
    pulled = pull(world, session, 2)
    world.commit()
    world.restart()
    other = world.join()
    assert world.pull(other, "t", "g") is None
    world.resume(session)
    world.settle(session, "t", "g", pulled)
    assert offsets(pull(world, other)) == [2]


def test_the_window_limits_a_lease() -> None:
    world = World()
    session = start(world, window=3)
    world.send("t", "abcde")
    assert offsets(pull(world, session)) == [0, 1, 2]


def test_new_rows_wait_while_too_many_are_dead() -> None:
    world = World(Limits(failures=1))
    session = start(world, retry=RetryPolicy(attempts=1))
    world.send("t", "abc")
    world.settle(session, "t", "g", pull(world, session, 1), Outcome.DEAD, reason="no")
    assert world.pull(session, "t", "g") is None


def test_it_takes_no_filter() -> None:
    world = World()
    start(world)
    administration = world.broker.administration
    spec = SubscriptionSpec(mode=Mode.QUEUE_LOCK, tags="a")
    with pytest.raises(InvalidRequest, match="takes no tag filter"):
        administration.subscribe(world.now, "t", "h", spec)
    spec = SubscriptionSpec(mode=Mode.QUEUE_LOCK, filter="a = 1")
    with pytest.raises(InvalidRequest, match="no header filter"):
        administration.subscribe(world.now, "t", "h", spec)


def test_many_rows_in_order_whoever_has_them() -> None:
    def scenario(world: World) -> None:
        chance = random.Random(5)
        sessions = [start(world, window=7), world.join()]
        for _ in range(10):
            world.send("t", "abcdef")
        done: list[int] = []
        for _ in range(400):
            session = chance.choice(sessions)
            pulled = world.pull(session, "t", "g", chance.randint(1, 9))
            if pulled is None:
                world.pass_time(SECOND)
                continue
            assert world.pull(chance.choice(sessions), "t", "g") is None
            for offset in offsets(pulled):
                assert offset == len(done), "overtaken"
                span = [(offset, offset + 1)]
                what = chance.random()
                if what < 0.2:
                    outcome = Outcome.RETRY if what < 0.15 else Outcome.RELEASED
                    world.settle(session, "t", "g", pulled, outcome, span, reason="no")
                    break
                world.settle(session, "t", "g", pulled, spans=span)
                done.append(offset)
        assert done == list(range(60))

    explore(scenario, paces=((1, 1),), step=41)
