"""Transactions and the order of keys: no row is done or dead behind one that may come again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.lease import LENT_UNTIL_US
from ternmq.model.errors import Busy, DiskFull, LeaseExpired
from ternmq.model.specs import Exhausted, RetryPolicy
from ternmq.record.fact.facts import LEASED_RUN, Outcome
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


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_fits_whatever_others_hold_behind_its_rows(commit: bool) -> None:
    """The rows behind are not counted in the size of the transaction: it could not be decided."""
    world = Transacting(segment_bytes=1 << 16)
    world.topic("o", ordered=True)
    world.group("o", "g", retry=STEADY)
    session = world.checker()
    for _ in range(78):
        world.send("o", "ab" * 50)
    pulled = world.pull(session, "o", "g", 7800)
    assert pulled is not None
    assert len(offsets(pulled)) == 7800
    world.commit()
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, Outcome.RETRY, [(0, 1)])
    spans = [(at, at + 1) for at in range(1, 1001, 2)]
    world.hold(number, session, "o", pulled, Outcome.DONE, spans)
    behind, own = 3899, 500
    assert (behind + own) * LEASED_RUN.size > world.broker.journal.max_body
    same_after_a_start(world)
    world.commit()
    for _ in range(3):
        try:
            world.decided(number, commit=commit)
        except (Busy, DiskFull):  # a segment is full; the client asks again
            world.commit()
    assert number not in world.broker.views.checked.by_number
    progress = world.progress("o", "g")
    assert not any(one.until_us >= LENT_UNTIL_US for one in progress.leases.values())
    assert progress.leased_rows == (3400 if commit else 0)
    same_after_a_start(world)
