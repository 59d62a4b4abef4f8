"""Ordered groups: one stretch of a key at a time, retries in place, parked rows, held rows."""

from __future__ import annotations

import random

import pytest

from ternmq.broker.gate.replies import PullReply
from ternmq.model.errors import (
    InvalidBatch,
    InvalidRequest,
    LeaseExpired,
    ModeNotAllowed,
    OrderingKeyRequired,
)
from ternmq.model.specs import (
    Exhausted,
    Limits,
    Mode,
    RetryPolicy,
    SubscriptionSpec,
    TopicSpec,
)
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, STEADY, World, attempts, explore, in_lines, offsets

LEASE = 30 * SECOND


def start(world: World, **settings: object) -> int:
    world.topic("k", ordered=True)
    world.group("k", "g", **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "k", "g", rows)
    assert pulled is not None
    return pulled


def test_one_consumer_at_a_time_has_a_key() -> None:
    def scenario(world: World) -> None:
        one = start(world)
        other = world.join()
        world.send("k", "abab")
        world.send("k", "cacb")
        first = pull(world, one, 2)  # a, b
        assert first.runs == [(0, 2, 1, 1)]
        assert first.position == world.end
        second = pull(world, other)
        assert offsets(second) == [4, 6]  # c; of a and b everything waits
        assert world.pull(other, "k", "g") is None
        world.settle(one, "k", "g", first, spans=[(0, 1)])
        third = pull(world, other)
        assert offsets(third) == [2, 5]
        world.settle(one, "k", "g", first)
        world.settle(other, "k", "g", second)
        world.settle(other, "k", "g", third)
        assert world.drain(one, "k", "g") == [3, 7]
        progress = world.progress("k", "g")
        assert (in_lines(progress), progress.intervals(), progress.floor()) == (0, 1, 8)

    explore(scenario)


def test_a_stretch_of_one_key_goes_to_one_consumer_in_order() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "aaabaa")
        pulled = pull(world, session, 4)
        assert offsets(pulled) == [0, 1, 2, 3]
        assert world.pull(session, "k", "g") is None
        world.settle(session, "k", "g", pulled, spans=[(0, 2)])
        assert world.pull(session, "k", "g") is None
        world.settle(session, "k", "g", pulled, spans=[(2, 3)])
        assert offsets(pull(world, session)) == [4, 5]

    explore(scenario)


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RELEASED])
def test_what_stands_behind_a_failure_is_given_back_uncounted(outcome: Outcome) -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "abaaba")
        pulled = pull(world, session)
        assert len(offsets(pulled)) == 6
        world.settle(session, "k", "g", pulled, spans=[(0, 1)])
        world.settle(session, "k", "g", pulled, outcome, [(2, 3)], reason="no")
        progress = world.progress("k", "g")
        assert progress.leased_rows == 2  # of b
        with pytest.raises(LeaseExpired):
            world.settle(session, "k", "g", pulled, spans=[(2, 4), (5, 6)])
        world.send("k", "ca")
        if outcome is Outcome.RETRY:
            assert offsets(pull(world, session)) == [6]
            world.pass_time(SECOND)
        again = pull(world, session)
        assert [at for at in offsets(again) if at != 6] == [2, 3, 5, 7]
        expected = (2, 2) if outcome is Outcome.RETRY else (1, 2)
        assert attempts(again)[2] == expected
        assert attempts(again)[3] == attempts(again)[5] == (1, 2)
        assert attempts(again)[7] == (1, 1)

    explore(scenario)


def test_a_row_that_fails_again_and_again_comes_again_and_again() -> None:
    """Pulls that find nothing in between must not make it forgotten."""

    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "aab")
        for attempt in range(1, 5):
            pulled = pull(world, session)
            assert attempts(pulled)[0] == (attempt, attempt)
            assert attempts(pulled)[1] == (1, attempt)
            world.settle(session, "k", "g", pulled, Outcome.RETRY, [(0, 1)], reason="again")
            if attempt == 1:
                world.settle(session, "k", "g", pulled, spans=[(2, 3)])
            wait = SECOND * 2 ** (attempt - 1)
            for part in (wait // 2, wait - wait // 2 - 1):
                world.pass_time(part)
                assert world.pull(session, "k", "g") is None
            world.pass_time(1)
        assert world.drain(session, "k", "g") == [0, 1]

    explore(scenario, step=3)


def test_a_retry_that_is_due_before_anybody_pulls_is_handed_out_once() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "aabb")
        pulled = pull(world, session)
        world.settle(session, "k", "g", pulled, Outcome.RETRY, [(0, 1), (2, 3)], reason="no")
        world.pass_time(SECOND)
        again = pull(world, session)
        assert offsets(again) == [0, 1, 2, 3]
        world.settle(session, "k", "g", again)
        assert world.progress("k", "g").intervals() == 1

    explore(scenario)


def test_a_dead_row_lets_its_key_flow() -> None:
    def scenario(world: World) -> None:
        session = start(world, retry=RetryPolicy(attempts=1))
        world.send("k", "aaab")
        pulled = pull(world, session)
        reply = world.settle(session, "k", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        assert reply.settled == [(0, 1, 1, 1)]
        progress = world.progress("k", "g")
        assert progress.failures.dead_letter(0) is not None
        # The others go on where they are: nothing stands in their way.
        world.settle(session, "k", "g", pulled, Outcome.DEAD, [(1, 2)], reason="never")
        world.settle(session, "k", "g", pulled, spans=[(2, 4)])
        assert (progress.failures.dead_rows, in_lines(progress), progress.floor()) == (2, 0, 4)

    explore(scenario)


def test_a_held_row_holds_its_key_only_until_an_operator_lets_it_go() -> None:
    def scenario(world: World) -> None:
        session = start(world, retry=RetryPolicy(attempts=1, exhausted=Exhausted.HOLD))
        world.send("k", "aab")
        pulled = pull(world, session)
        world.settle(session, "k", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        world.settle(session, "k", "g", pulled, spans=[(2, 3)])
        world.send("k", "ab")
        assert world.drain(session, "k", "g") == [4]
        world.pass_time(3600 * SECOND)
        assert world.pull(session, "k", "g") is None
        assert world.progress("k", "g").floor() == 1  # a row of the key waits behind it
        world.run(lambda: world.broker.operating.retry_now(world.now, "k", "g", 0, [0]))
        again = pull(world, session)
        assert offsets(again) == [0, 1, 3]
        assert attempts(again)[0] == (2, 2)
        world.settle(session, "k", "g", again, Outcome.RETRY, [(0, 1)], reason="no")
        assert world.pull(session, "k", "g") is None
        world.run(lambda: world.broker.operating.delete_failures(world.now, "k", "g", 0, [0]))
        assert world.drain(session, "k", "g") == [1, 3]
        assert world.progress("k", "g").intervals() == 1

    explore(scenario, step=2)


def test_the_end_of_a_lease_counts_for_the_first_row_of_each_key() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "aabba")
        pulled = pull(world, session)
        world.settle(session, "k", "g", pulled, spans=[(0, 1)])
        world.pass_time(LEASE)
        again = pull(world, session)
        assert attempts(again) == {1: (2, 2), 2: (2, 2), 3: (1, 2), 4: (1, 2)}

    explore(scenario)


def test_the_end_of_a_large_lease_counts_once_for_each_key() -> None:
    """It ends in pieces; what stands behind a row that was counted is not counted in the next."""

    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "a" * 700 + "b")
        pulled = pull(world, session, 1000)
        assert len(offsets(pulled)) == 701
        world.pass_time(LEASE)
        counted = {}
        while (again := world.pull(session, "k", "g", 1000)) is not None:
            counted.update(attempts(again))
            world.settle(session, "k", "g", again)
        assert [at for at in sorted(counted) if counted[at][0] == 2] == [0, 700]

    explore(scenario, step=2)


def test_rows_behind_busy_keys_are_parked_up_to_the_cap() -> None:
    limits = Limits(parked=5)

    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "a" + "ab" * 10)
        first = pull(world, session, 1)
        assert offsets(first) == [0]
        got: list[int] = []
        while (pulled := world.pull(session, "k", "g", 2)) is not None:
            got += offsets(pulled)
            world.settle(session, "k", "g", pulled)
        progress = world.progress("k", "g")
        assert progress.ready.rows == 5
        assert got == [2, 4, 6, 8, 10]
        assert progress.cursor == 11
        world.settle(session, "k", "g", first)
        rest = world.drain(session, "k", "g", 3)
        assert sorted(got + rest) == list(range(1, 21))
        assert [at for at in rest if at % 2] == list(range(1, 21, 2))

    explore(scenario, limits, step=3)


def test_a_crowd_of_parked_runs_does_not_stop_the_group_for_ever() -> None:
    limits = Limits(parked=6, intervals=6)

    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "a" + "ab" * 12)
        first = pull(world, session, 1)
        while (pulled := world.pull(session, "k", "g", 4)) is not None:
            world.settle(session, "k", "g", pulled)
        world.settle(session, "k", "g", first)
        rest = world.drain(session, "k", "g", 4)
        assert [at for at in rest if at % 2] == list(range(1, 25, 2))
        assert world.progress("k", "g").intervals() == 1

    explore(scenario, limits, step=4)


def test_keys_flow_while_others_wait() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "abcabcabc")
        pulled = pull(world, session, 3)
        world.settle(session, "k", "g", pulled, Outcome.RETRY, [(1, 2)], reason="b fails")
        world.settle(session, "k", "g", pulled)
        assert world.drain(session, "k", "g", 2) == [3, 5, 6, 8]
        world.pass_time(SECOND)
        assert world.drain(session, "k", "g", 2) == [1, 4, 7]

    explore(scenario)


def test_a_release_hands_everything_back_at_once() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "aabbcc")
        pulled = pull(world, session)
        world.settle(session, "k", "g", pulled, Outcome.RELEASED)
        again = pull(world, session)
        assert attempts(again) == dict.fromkeys(range(6), (1, 2))
        world.settle(session, "k", "g", again, Outcome.RELEASED, [(1, 2)])
        assert world.pull(session, "k", "g") is None  # its key is still in hand
        world.settle(session, "k", "g", again, spans=[(0, 1)])
        assert offsets(pull(world, session)) == [1]

    explore(scenario)


def test_resetting_makes_everything_unread_whoever_has_it() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("k", "aabbab")
        pulled = pull(world, session, 3)
        world.settle(session, "k", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
        assert world.pull(session, "k", "g") is None
        world.run(lambda: world.broker.operating.reset(world.now, "k", "g", 0, 1))
        progress = world.progress("k", "g")
        assert (in_lines(progress), progress.leased_rows, progress.failures.waiting_rows) == (
            0,
            0,
            0,
        )
        with pytest.raises(LeaseExpired):
            world.settle(session, "k", "g", pulled, spans=[(2, 3)])
        again = pull(world, session)
        # The cursor was at 6: of what was parked then, it is not known that nobody was given it.
        assert attempts(again) == dict.fromkeys(range(1, 6), (1, 2))

    explore(scenario)


def test_bytes_limit_a_pull_and_one_batch_always_comes() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        for key in "abcab":
            world.send("k", [Row(body=bytes(1000), ordering_key=key)])
        first = world.pull(session, "k", "g", 32, max_bytes=10)
        assert first is not None
        assert offsets(first) == [0]
        second = world.pull(session, "k", "g", 32, max_bytes=2600)
        assert second is not None
        assert offsets(second) == [1, 2]
        world.settle(session, "k", "g", first, Outcome.RELEASED)
        world.settle(session, "k", "g", second, Outcome.RELEASED)
        third = world.pull(session, "k", "g", 32, max_bytes=2600)
        assert third is not None
        assert offsets(third) == [0, 3]
        got = offsets(third)
        while (pulled := world.pull(session, "k", "g", 32, max_bytes=10)) is not None:
            assert len(offsets(pulled)) == 1
            got += offsets(pulled)
            world.settle(session, "k", "g", pulled)
        world.settle(session, "k", "g", third)
        got += world.drain(session, "k", "g")
        assert sorted(got) == [0, 1, 2, 3, 4]

    explore(scenario)


def test_many_keys_in_random_order_each_in_its_own() -> None:
    def scenario(world: World) -> None:
        chance = random.Random(5)
        sessions = [start(world, window=7), world.join()]
        keys = "".join(chance.choice("abcdef") for _ in range(60))
        for at in range(0, 60, 6):
            world.send("k", keys[at : at + 6])
        done: list[int] = []
        for _ in range(400):
            session = chance.choice(sessions)
            pulled = world.pull(session, "k", "g", chance.randint(1, 9))
            if pulled is None:
                world.pass_time(SECOND)
                continue
            for offset in offsets(pulled):
                span = [(offset, offset + 1)]
                earlier = [at for at in range(offset) if keys[at] == keys[offset]]
                assert set(earlier) <= set(done), "overtaken"
                what = chance.random()
                if what < 0.15:
                    world.settle(session, "k", "g", pulled, Outcome.RETRY, span, reason="no")
                    break
                if what < 0.2:
                    world.settle(session, "k", "g", pulled, Outcome.RELEASED, span)
                    break
                world.settle(session, "k", "g", pulled, spans=span)
                done.append(offset)
            else:
                continue
            if world.broker.views.progress and pulled is not None:
                try:
                    world.settle(session, "k", "g", pulled, Outcome.RELEASED)
                except LeaseExpired:
                    continue
        assert sorted(done) == list(range(60))

    explore(scenario, paces=((1, 1),), step=41)


def test_keys_keep_their_queue() -> None:
    def scenario(world: World) -> None:
        world.topic("k", ordered=True, queues=4)
        world.group("k", "g")
        session = world.join()
        homes: dict[str, set[int]] = {}
        for key in "abcdefabcdef":
            homes.setdefault(key, set()).add(world.send("k", key).queue)
        assert all(len(queues) == 1 for queues in homes.values())
        assert len({min(queues) for queues in homes.values()}) > 1
        got = 0
        while (pulled := world.pull(session, "k", "g")) is not None:
            got += len(offsets(pulled))
            world.settle(session, "k", "g", pulled)
        assert got == 12
        with pytest.raises(InvalidBatch):
            world.send("k", "abcdef")
        world.sequences[1] -= 6

    explore(scenario, step=2)


def test_what_does_not_fit_the_order_of_a_topic_is_refused() -> None:
    world = World()
    world.topic("k", ordered=True)
    world.topic("t")
    broker = world.broker
    with pytest.raises(OrderingKeyRequired):
        broker.send(
            world.now,
            "k",
            encode(
                [Row(body=b"")],
                topic_seed=topic_seed("k"),
                producer_id=1,
                first_sequence=0,
                born_us=0,
            ),
        )
    with pytest.raises(ModeNotAllowed):
        broker.administration.subscribe(world.now, "t", "g", SubscriptionSpec(mode=Mode.ORDERED))
    with pytest.raises(InvalidRequest):
        broker.administration.subscribe(
            world.now, "k", "g", SubscriptionSpec(mode=Mode.ORDERED, tags="a")
        )
    with pytest.raises(InvalidRequest):
        broker.administration.change_topic(world.now, TopicSpec(name="k", ordered=True, queues=2))
    with pytest.raises(InvalidRequest):
        broker.administration.change_topic(world.now, TopicSpec(name="k", ordered=False))
    world.group("k", "shared", mode=Mode.SHARED, retry=STEADY)
    session = world.join()
    world.send("k", "aab")
    assert offsets(world.pull(session, "k", "shared", 1)) == [0]
    assert offsets(world.pull(session, "k", "shared", 1)) == [1]


def test_the_mode_of_a_new_group_is_its_topics() -> None:
    world = World()
    world.topic("k", ordered=True)
    world.topic("t")
    world.broker.administration.subscribe(world.now, "k", "g")
    world.broker.administration.subscribe(world.now, "t", "g")
    assert world.broker.views.catalog.subscription("k", "g").spec.mode is Mode.ORDERED
    assert world.broker.views.catalog.subscription("t", "g").spec.mode is Mode.SHARED


def test_behind_a_dead_row_what_is_given_back_holds_up_its_key() -> None:
    """Found by the simulator: of three rows of a key the first died, the second was given back, and
    the third stayed in the consumer's hands."""
    world = World()
    world.topic("k", ordered=True)
    world.group("k", "o", retry=RetryPolicy(attempts=1, jitter=0.0))
    session = world.join()
    world.send("k", "aaa")
    pulled = world.pull(session, "k", "o", 3)
    assert pulled is not None
    world.settle(session, "k", "o", pulled, Outcome.RETRY, [(0, 1), (1, 2)])
    progress = world.progress("k", "o")
    assert progress.failures.dead_letter(0) is not None
    assert progress.leased_rows == 0
    world.commit()
    again = world.pull(session, "k", "o", 3)
    assert offsets(again) == [1, 2]
