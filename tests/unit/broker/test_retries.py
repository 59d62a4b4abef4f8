"""Retries and dead letters: policy, reasons, the chain of failures, operators, expiry."""

from __future__ import annotations

import pytest

from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN
from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.history import failure_entries
from ternmq.broker.group.owed import owed_row
from ternmq.broker.upkeep.ticks import FIRED_WORK
from ternmq.model.errors import LeaseExpired
from ternmq.model.specs import Exhausted, Limits, RetryPolicy
from ternmq.model.types import DAY_US
from ternmq.record.fact.facts import MAX_REASON_BYTES, Cause, Outcome
from ternmq.record.fact.moved import FailureEntry
from tests.unit.broker.kit import SECOND, STEADY, World, attempts, check, explore, offsets, waiting


def start(world: World, **settings: object) -> int:
    world.topic("t")
    world.group("t", "g", **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "t", "g", rows)
    assert pulled is not None
    return pulled


def history(world: World, offset: int) -> list[FailureEntry]:
    progress = world.progress("t", "g")
    row = owed_row(progress, offset)
    assert row is not None
    broker = world.broker
    return waiting(
        lambda: failure_entries(broker.store, progress, offset, row.position, broker.journal.first)
    )


def test_delays_grow_by_the_policy_until_the_row_is_dead() -> None:
    policy = RetryPolicy(first_us=SECOND, factor=3.0, cap_us=10 * SECOND, jitter=0.0, attempts=5)

    def scenario(world: World) -> None:
        session = start(world, retry=policy, lease_us=3600 * SECOND)
        world.send("t", 3)
        for attempt, delay in enumerate((1, 3, 9, 10), 1):
            pulled = pull(world, session)
            assert attempts(pulled)[1] == (attempt, attempt)
            world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], reason=f"no {attempt}")
            world.pass_time(delay * SECOND - 1)
            assert world.pull(session, "t", "g") is None
            world.pass_time(1)
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no 5")
        progress = world.progress("t", "g")
        dead = progress.failures.dead_letter(1)
        assert dead is not None
        assert (dead.when_us, dead.attempt, dead.deliveries) == (world.now, 5, 5)
        told = history(world, 1)
        assert [entry.reason for entry in told] == [b"no %d" % n for n in (1, 2, 3, 4, 5)]
        assert [entry.attempt for entry in told] == [1, 2, 3, 4, 5]
        assert [entry.outcome for entry in told] == [Outcome.RETRY] * 4 + [Outcome.DEAD]
        assert [entry.cause for entry in told] == [Cause.CONSUMER] * 4 + [Cause.EXHAUSTED]
        assert {entry.session for entry in told} == {session}
        world.pass_time(10)
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_the_policy_can_be_changed_while_rows_wait() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 3)
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 2)], reason="one")
        world.change("t", "g", retry=RetryPolicy(attempts=2, jitter=0.0))
        world.pass_time(SECOND)
        again = pull(world, session)
        assert offsets(again) == [0, 1]
        world.settle(session, "t", "g", again, Outcome.RETRY, [(0, 1)], reason="two")
        assert world.progress("t", "g").failures.dead_letter(0) is not None
        world.change("t", "g", retry=RetryPolicy(enabled=False))
        world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="first is last")
        assert world.progress("t", "g").failures.dead_letter(2) is not None
        world.change("t", "g", retry=STEADY)
        world.settle(session, "t", "g", again, Outcome.RETRY, reason="three")
        assert world.progress("t", "g").failures.failure(1).when_us == world.now + 2 * SECOND

    explore(scenario)


def test_consumers_may_say_when() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 3)
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], delay_us=0)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(1, 2)], delay_us=7)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(2, 3)], delay_us=3600 * SECOND)
        assert offsets(pull(world, session)) == [0]
        world.pass_time(7)
        assert offsets(pull(world, session)) == [1]
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_rejected_rows_are_dead_at_once() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 4)
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(1, 3)], reason="malformed")
        world.settle(session, "t", "g", pulled)
        progress = world.progress("t", "g")
        assert (progress.failures.dead_rows, progress.floor()) == (2, 4)
        (entry,) = history(world, 2)
        assert (entry.reason, entry.cause) == (b"malformed", Cause.REJECTED)
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_a_row_that_nobody_settles_is_dead_after_its_last_attempt() -> None:
    def scenario(world: World) -> None:
        session = start(world, retry=RetryPolicy(attempts=3), lease_us=SECOND)
        world.send("t", 2)
        for attempt in (1, 2, 3):
            assert attempts(pull(world, session)) == dict.fromkeys((0, 1), (attempt, attempt))
            world.pass_time(SECOND)
        assert world.pull(session, "t", "g") is None
        told = history(world, 0)
        assert [entry.cause for entry in told] == [Cause.TIME] * 3
        assert [entry.outcome for entry in told] == [Outcome.RETRY] * 2 + [Outcome.DEAD]
        assert world.progress("t", "g").failures.dead_rows == 2

    explore(scenario)


def test_the_chain_of_failures_survives_releases_and_ends() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 3)
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1), (2, 3)], reason="one")
        world.pass_time(SECOND)
        again = pull(world, session)
        world.settle(session, "t", "g", again, Outcome.RELEASED)
        assert [entry.reason for entry in history(world, 2)] == [b"one"]
        third = pull(world, session)
        assert attempts(third) == dict.fromkeys((0, 2), (2, 3))
        world.pass_time(30 * SECOND)  # this one counts
        last = pull(world, session)
        assert attempts(last) == {0: (3, 4), 1: (2, 2), 2: (3, 4)}
        world.settle(session, "t", "g", last, Outcome.DEAD, reason="end")
        told = history(world, 2)
        assert [entry.reason for entry in told] == [b"one", b"", b"end"]
        assert [entry.cause for entry in told] == [Cause.CONSUMER, Cause.TIME, Cause.REJECTED]
        assert [entry.reason for entry in history(world, 1)] == [b"", b"end"]
        assert world.progress("t", "g").failures.history == {}

    explore(scenario)


def test_a_row_that_is_done_at_last_leaves_nothing_behind() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 3)
        for _ in range(3):
            pulled = pull(world, session)
            world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
            world.pass_time(60 * SECOND)
        world.settle(session, "t", "g", pull(world, session))
        progress = world.progress("t", "g")
        assert (progress.failures.history, progress.failures.waiting, progress.failures.dead) == (
            {},
            {},
            {},
        )
        assert (progress.failures.waiting_rows, progress.intervals()) == (0, 1)
        assert not progress.due(world.now, 10)

    explore(scenario)


def test_operators_let_rows_come_at_once_or_give_them_up() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 6)
        pulled = pull(world, session)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 3)], reason="no")
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(3, 5)], reason="never")
        broker = world.broker
        with pytest.raises(LeaseExpired):
            broker.operating.retry_now(world.now, "t", "g", 0, [3, 5, 77, -1])
        reply = world.run(lambda: broker.operating.retry_now(world.now, "t", "g", 0, [2, 0, 0, 5]))
        assert reply.settled == [(0, 1, 1, 1), (2, 3, 1, 1)]
        assert reply.refused == [(5, 6)]
        again = pull(world, session)
        assert attempts(again) == dict.fromkeys((0, 2), (2, 2))
        assert [entry.cause for entry in history(world, 0)] == [Cause.CONSUMER, Cause.OPERATOR]
        reply = world.run(
            lambda: broker.operating.delete_failures(world.now, "t", "g", 0, [1, 3, 0])
        )
        assert reply.settled == [(1, 2, 1, 1), (3, 4, 1, 1)]
        assert reply.refused == [(0, 1)]
        world.settle(session, "t", "g", again)
        world.settle(session, "t", "g", pulled)
        progress = world.progress("t", "g")
        assert (
            progress.failures.dead_rows,
            progress.failures.waiting_rows,
            progress.leased_rows,
        ) == (1, 0, 0)
        world.pass_time(3600 * SECOND)
        assert world.pull(session, "t", "g") is None

    explore(scenario)


def test_dead_letters_are_given_up_after_their_time() -> None:
    limits = Limits(dead_letter_us=DAY_US)

    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 40)
        pulled = pull(world, session, 40)
        world.settle(session, "t", "g", pulled, Outcome.DEAD, [(0, 20)], reason="never")
        world.pass_time(DAY_US // 2)
        again = pull(world, session, 40)
        world.settle(session, "t", "g", again, Outcome.DEAD, reason="never")
        progress = world.progress("t", "g")
        assert progress.failures.dead_rows == 40
        world.pass_time(DAY_US // 2)
        assert progress.failures.dead_rows == 40
        world.pass_time(11 * SECOND)  # old ones are looked for every ten seconds
        assert progress.failures.dead_rows == 20
        world.pass_time(DAY_US)
        assert progress.failures.dead_rows == 0
        assert progress.failures.dead == {}

    explore(scenario, limits)


def test_a_full_failure_store_keeps_new_rows_back_only() -> None:
    limits = Limits(failures=4)

    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", 10)
        pulled = pull(world, session, 4)
        world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 2)], reason="no")
        world.settle(session, "t", "g", pulled, Outcome.DEAD, reason="no")
        assert world.pull(session, "t", "g") is None
        world.pass_time(SECOND)
        again = pull(world, session)
        assert offsets(again) == [0, 1]
        world.settle(session, "t", "g", again)
        assert offsets(pull(world, session)) == [4, 5, 6, 7, 8, 9]

    explore(scenario, limits)


def test_reasons_are_cut_at_a_whole_character() -> None:
    world = World()
    session = start(world)
    world.send("t", 1)
    world.settle(session, "t", "g", pull(world, session), Outcome.RETRY, reason="€" * 5000)
    (entry,) = history(world, 0)
    assert MAX_REASON_BYTES - 3 < len(entry.reason) <= MAX_REASON_BYTES
    assert set(entry.reason.decode()) == {"€"}
    world.pass_time(SECOND)
    world.settle(session, "t", "g", pull(world, session), Outcome.RETRY, reason="\ud800 lone")
    assert history(world, 0)[-1].reason.endswith(b" lone")


def test_rows_of_different_attempts_are_judged_each_by_its_own() -> None:
    def scenario(world: World) -> None:
        session = start(world, retry=RetryPolicy(attempts=2, jitter=0.0))
        world.send("t", 4)
        first = pull(world, session, 2)
        world.settle(session, "t", "g", first, Outcome.RETRY, reason="one")
        world.pass_time(SECOND)
        mixed = pull(world, session)
        assert attempts(mixed) == {0: (2, 2), 1: (2, 2), 2: (1, 1), 3: (1, 1)}
        world.settle(session, "t", "g", mixed, Outcome.RETRY, reason="two")
        progress = world.progress("t", "g")
        assert (progress.failures.dead_rows, progress.failures.waiting_rows) == (2, 2)
        assert [entry.reason for entry in history(world, 1)] == [b"one", b"two"]

    explore(scenario)


def test_holding_is_for_ordered_groups_elsewhere_the_row_is_dead() -> None:
    world = World()
    session = start(world, retry=RetryPolicy(attempts=1, exhausted=Exhausted.HOLD))
    world.send("t", 1)
    world.settle(session, "t", "g", pull(world, session), Outcome.RETRY, reason="no")
    assert world.progress("t", "g").failures.dead_rows == 1


def test_many_failures_at_once_with_long_reasons_fit_the_journal() -> None:
    """Every run of another attempt is a fact of its own; the reason must not be told that often."""
    world = World(segment_bytes=1 << 18)
    session = start(world)
    world.send("t", 900)
    pulled = pull(world, session, 900)
    spans = [(at, at + 1) for at in range(0, 900, 2)]
    world.settle(session, "t", "g", pulled, Outcome.RELEASED, spans)
    again = pull(world, session, 900)
    world.settle(session, "t", "g", pulled)
    world.settle(session, "t", "g", again, Outcome.RETRY, reason="x" * 4096)
    world.commit()
    assert world.progress("t", "g").failures.waiting_rows == 450
    assert history(world, 898)[0].reason == b"x" * 4096
    check(world.broker)


def test_rows_of_many_groups_that_come_due_at_one_time_are_many_turns() -> None:
    world = World()
    world.topic("t")
    names = [f"g{number}" for number in range(ENDED_ROWS_A_TURN)]
    for name in names:
        world.group("t", name, retry=STEADY)
    session = world.join()
    world.send("t", 1)
    for name in names:
        pulled = world.pull(session, "t", name, 1)
        assert pulled is not None
        world.settle(session, "t", name, pulled, Outcome.RETRY)
    world.now += SECOND
    turns = 0
    before = len(world.broker.timers)
    while world.broker.tick(world.now):
        turns += 1
        assert before - len(world.broker.timers) <= ENDED_ROWS_A_TURN // FIRED_WORK + 1
        before = len(world.broker.timers)
    assert turns >= 2
    for name in names:
        assert offsets(world.pull(session, "t", name)) == [0]
