"""Transactions and the order of keys: no row is done or dead behind one that may come again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ternmq.broker.gate.replies import PullReply
from ternmq.model.errors import LeaseExpired
from ternmq.model.specs import Exhausted, RetryPolicy
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import (
    STEADY,
    attempts,
    check,
    difference,
    offsets,
    portrait,
    reopened,
)


def ordered(keys: str, retry: RetryPolicy = STEADY) -> tuple[Transacting, int, PullReply]:
    world = Transacting()
    world.topic("o", ordered=True)
    world.group("o", "g", retry=retry)
    session = world.checker()
    world.send("o", keys)
    pulled = world.pull(session, "o", "g")
    assert pulled is not None
    return world, session, pulled


def same_after_a_start(world: Transacting) -> None:
    check(world.broker, world.now)
    other = reopened(world)
    assert not difference(portrait(world.broker.views), portrait(other.views))


def test_a_last_try_fails_for_good_only_when_the_rows_before_it_are_decided() -> None:
    """As a dead row it would let the transaction roll back a row that comes before it."""
    world, session, pulled = ordered("aaab", replace(STEADY, attempts=1))
    number, other = world.put(1).transaction, world.put(2).transaction
    world.hold(number, session, "o", pulled, spans=[(0, 1)])
    with pytest.raises(LeaseExpired):
        world.settle(session, "o", "g", pulled, Outcome.RETRY, [(1, 2)])
    with pytest.raises(LeaseExpired):
        world.hold(other, session, "o", pulled, Outcome.RETRY, [(1, 2)])
    reply = world.settle(session, "o", "g", pulled, Outcome.RETRY, [(1, 4)])
    assert (list(reply.settled), list(reply.refused)) == ([(3, 4, 1, 1)], [(1, 3)])
    same_after_a_start(world)
    world.decided(number, commit=False)
    again = world.pull(session, "o", "g")
    assert offsets(again) == [0, 1, 2]
    same_after_a_start(world)


@pytest.mark.parametrize("exhausted", [Exhausted.DEAD_LETTER, Exhausted.HOLD])
def test_a_try_that_is_followed_by_another_may_fail(exhausted: Exhausted) -> None:
    """The row stays in its key, behind the one that may come again."""
    attempts_left = 1 if exhausted is Exhausted.HOLD else 2
    world, session, pulled = ordered(
        "aa", replace(STEADY, attempts=attempts_left, exhausted=exhausted)
    )
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, spans=[(0, 1)])
    world.settle(session, "o", "g", pulled, Outcome.RETRY, [(1, 2)], delay_us=0)
    world.decided(number, commit=False)
    again = world.pull(session, "o", "g")
    assert again is not None
    assert offsets(again)[0] == 0
    same_after_a_start(world)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.DEAD, Outcome.RETRY])
def test_a_commit_leaves_out_rows_behind_those_of_a_later_transaction(outcome: Outcome) -> None:
    """The consumer settled the second row of the key before the first."""
    world, session, pulled = ordered("aaab")
    first, second = world.put(1).transaction, world.put(2).transaction
    world.hold(second, session, "o", pulled, outcome, [(1, 2), (3, 4)], delay_us=0)
    world.hold(first, session, "o", pulled, spans=[(0, 1)])
    subscription = world.broker.views.catalog.subscription("o", "g")
    subscription.spec = replace(subscription.spec, retry=replace(STEADY, attempts=1))
    world.decided(second)
    progress = world.progress("o", "g")
    assert progress.failures.dead_rows == (outcome is not Outcome.DONE), "the row of the other key"
    assert [run[:2] for run in progress.ready.runs] == [(1, 3)], "those of this key come again"
    world.decided(first, commit=False)
    again = world.pull(session, "o", "g")
    assert again is not None
    assert attempts(again) == {0: (1, 2), 1: (1, 2), 2: (1, 2)}
