"""Transactions that settle rows of a locked queue: it stays closed until their decision."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ternmq.broker.gate.replies import PullReply
from ternmq.model.errors import LeaseExpired
from ternmq.model.specs import Mode, RetryPolicy
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.checkback.test_order import same_after_a_start
from tests.unit.broker.kit import SECOND, STEADY, attempts, offsets


def locked(rows: int, retry: RetryPolicy = STEADY) -> tuple[Transacting, int, PullReply]:
    world = Transacting()
    world.topic("t")
    world.group("t", "g", mode=Mode.QUEUE_LOCK, retry=retry)
    session = world.checker()
    world.send("t", rows)
    pulled = world.pull(session, "t", "g", 3)
    assert pulled is not None
    return world, session, pulled


@pytest.mark.parametrize("commit", [True, False])
def test_the_queue_is_closed_until_the_decision(commit: bool) -> None:
    world, session, pulled = locked(5)
    other = world.join("d")
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled)
    assert [one.id for one in world.progress("t", "g").leases.values()] == [number]
    world.pass_time(100 * SECOND)
    assert world.pull(other, "t", "g") is None
    same_after_a_start(world)
    world.decided(number, commit=commit)
    again = world.pull(other, "t", "g")
    assert again is not None
    if commit:
        assert again.runs == [(3, 5, 1, 1)]
    else:
        assert again.runs == [(0, 3, 1, 2), (3, 5, 1, 1)]
    same_after_a_start(world)


def test_a_waiting_pull_gets_the_queue_after_the_decision() -> None:
    world, session, pulled = locked(3)
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled)
    world.park(world.join("d"), "t", "g")
    world.decided(number, commit=False)
    (woken,) = world.woken()
    assert offsets(woken.reply) == [0, 1, 2]


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.DEAD])
def test_a_row_behind_one_in_a_transaction_is_settled_in_it_or_not_at_all(outcome: Outcome) -> None:
    world, session, pulled = locked(3)
    number, other = world.put(1).transaction, world.put(2).transaction
    world.hold(number, session, "t", pulled, spans=[(0, 1)])
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, outcome, [(1, 2)])
    with pytest.raises(LeaseExpired):
        world.hold(other, session, "t", pulled, outcome, [(1, 2)])
    world.hold(number, session, "t", pulled, outcome, [(1, 2)])
    world.decided(number)
    world.settle(session, "t", "g", pulled)
    assert world.progress("t", "g").floor() == 3
    same_after_a_start(world)


def test_a_roll_back_takes_back_the_later_rows_from_their_consumer() -> None:
    world, session, pulled = locked(3)
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled, spans=[(0, 1)])
    world.decided(number, commit=False)
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, spans=[(1, 2)])
    assert world.drain(session, "t", "g") == [0, 1, 2]
    same_after_a_start(world)


def test_a_failure_before_them_takes_rows_out_of_a_transaction() -> None:
    world, session, pulled = locked(3)
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled, spans=[(1, 2)])
    world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)], reason="no")
    progress = world.progress("t", "g")
    assert (progress.leases, progress.ready.rows) == ({}, 2)
    assert world.pull(session, "t", "g") is None
    world.decided(number)
    world.pass_time(SECOND)
    again = world.pull(session, "t", "g")
    assert again is not None
    assert attempts(again) == {0: (2, 2), 1: (1, 2), 2: (1, 2)}
    same_after_a_start(world)


def test_a_retry_in_a_commit_releases_what_is_behind_it() -> None:
    world, session, pulled = locked(3)
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled, Outcome.RETRY, [(0, 1)])
    world.hold(number, session, "t", pulled, spans=[(1, 2)])
    world.decided(number)
    progress = world.progress("t", "g")
    assert (progress.leases, progress.ready.rows, progress.failures.waiting_rows) == ({}, 2, 1)
    world.pass_time(SECOND)
    assert world.drain(session, "t", "g") == [0, 1, 2]
    same_after_a_start(world)


def test_in_a_commit_a_dead_row_holds_back_nothing() -> None:
    world, session, pulled = locked(3, replace(STEADY, attempts=1))
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled, Outcome.RETRY, [(0, 1)])
    world.hold(number, session, "t", pulled, spans=[(1, 3)])
    world.decided(number)
    progress = world.progress("t", "g")
    assert (progress.failures.dead_rows, progress.leases, progress.floor()) == (1, {}, 3)
    same_after_a_start(world)
