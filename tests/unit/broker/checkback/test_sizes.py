"""Transactions as large as they may be: what they take of memory and of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from ternmq.broker.group.keyorder import KeyOrder
from ternmq.broker.group.lease import Lease
from ternmq.broker.group.progress import Progress
from ternmq.broker.transaction import checked
from ternmq.model.errors import Busy, TransactionTooLarge
from ternmq.model.specs import Limits, ProducerGroupSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import LeasedRun, Outcome
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import SECOND, check, difference, offsets, portrait, reopened


def settled_one_by_one(rows: int) -> tuple[Transacting, int, int]:
    """Return a transaction that settles each second row of a queue, with a call for each."""
    world = Transacting()
    world.topic("t")
    world.group("t", "g")
    session = world.checker()
    world.send("t", 2 * rows)
    pulled = world.pull(session, "t", "g", 2 * rows)
    assert pulled is not None
    number = world.put(1).transaction
    for row in range(rows):
        world.hold(number, session, "t", pulled, spans=[(2 * row, 2 * row + 1)])
    return world, session, number


def test_settles_that_are_alike_are_one_fact_of_the_commit() -> None:
    """Each fact of it takes time for all rows of the transaction: of thousands, it took seconds."""
    world, _, number = settled_one_by_one(100)
    found: list[Any] = []
    of_commit = world.broker.checking._deciding._outcomes.of_commit
    opened = world.broker.views.checked.by_number[number]
    found += of_commit(world.now, opened).own
    assert len(found) == 1
    assert len(found[0].runs) == 100
    world.decided(number)
    assert world.progress("t", "g").leased_rows == 100


@pytest.mark.parametrize("ordered", [False, True])
def test_settles_with_reasons_of_their_own_are_taken_back_in_one_pass(ordered: bool) -> None:
    """The lease of the transaction was cut for each of them: time grew with their square."""
    world = Transacting()
    world.topic("t", ordered=ordered)
    world.group("t", "g")
    session = world.checker()
    world.send("t", [Row(body=b"x", ordering_key=f"k{at}" * ordered) for at in range(100)])
    pulled = world.pull(session, "t", "g", 100)
    assert pulled is not None
    number = world.put(1).transaction
    for at in range(0, 100, 2):
        reason = f"reason {at}"
        world.hold(number, session, "t", pulled, Outcome.RETRY, [(at, at + 1)], reason=reason)
    looked = 0
    taken_back = Progress._take_back

    def counted(progress: Progress, lease: Lease, runs: Sequence[LeasedRun]) -> list[LeasedRun]:
        nonlocal looked
        looked += len(lease.runs)
        return taken_back(progress, lease, runs)

    with patch.object(Progress, "_take_back", counted):
        world.decided(number)
    assert looked == 50
    progress = world.progress("t", "g")
    assert (progress.failures.waiting_rows, progress.leased_rows) == (50, 50)
    assert [one.offset for one in progress.failures.failed(dead=False, after=-1)] == list(
        range(0, 100, 2)
    )
    check(world.broker, world.now)
    assert not difference(portrait(world.broker.views), portrait(reopened(world).views))


def test_what_takes_a_commit_longer_counts_more() -> None:
    """So that no commit takes more than 20 ms: a row that fails takes longer than an ack."""
    world = Transacting(limits=Limits(transaction_settles=26))
    world.topic("t")
    world.group("t", "g")
    session = world.checker()
    world.send("t", 40)
    pulled = world.pull(session, "t", "g", 40)
    assert pulled is not None
    number = world.put(1).transaction
    opened = world.broker.views.checked.by_number[number]
    world.hold(number, session, "t", pulled, spans=[(0, 4), (6, 7)])
    assert opened.settle_runs == 2
    world.hold(number, session, "t", pulled, Outcome.RETRY, [(8, 9)])
    assert opened.settle_runs == 2 + 10
    world.hold(number, session, "t", pulled, Outcome.DEAD, [(10, 12)])
    assert opened.settle_runs == 12 + 13
    with pytest.raises(TransactionTooLarge, match="the limit transaction_settles is 26"):
        world.hold(number, session, "t", pulled, Outcome.RETRY, [(13, 14)])
    world.hold(number, session, "t", pulled, spans=[(13, 14)])
    assert world.broker.views.checked.settles == 26
    world.decided(number)
    assert not world.broker.views.checked.settles


def test_an_ack_does_not_walk_over_the_rows_of_transactions() -> None:
    world = Transacting()
    world.topic("o", ordered=True)
    world.group("o", "g")
    session = world.checker()
    world.send("o", [Row(body=b"x", ordering_key=f"k{one}") for one in range(200)])
    world.send("o", [Row(body=b"x", ordering_key="k7")])
    pulled = world.pull(session, "o", "g", 500)
    assert pulled is not None
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, spans=[(8, 199)])
    looked = 0
    hash_of = KeyOrder.hash_of

    def counted(order: KeyOrder, offset: int) -> int | None:
        nonlocal looked
        looked += 1
        return hash_of(order, offset)

    with patch.object(KeyOrder, "hash_of", counted):
        world.settle(session, "o", "g", pulled, spans=[(199, 200)])  # the first of its key
        world.settle(session, "o", "g", pulled, spans=[(200, 201)])  # behind another row
    assert looked < 10
    assert isinstance(world.progress("o", "g").leases[number], Lease)
    assert offsets(pulled)[-1] == 200


def wait(world: Transacting, seconds: int) -> None:
    for _ in range(seconds):
        world.wait(SECOND)


def move(world: Transacting, number: int, offset: int = 0) -> None:
    world.run(lambda: world.broker.checking.move(world.now, "app", number, "t", "g", 0, offset))


def test_moves_and_settles_are_counted_together() -> None:
    """Each is in memory until the decision: a client must not fill it with moves."""
    world = Transacting(limits=Limits(transaction_settles=3, prepared_settles=5))
    world.topic("t")
    world.group("t", "g")
    session = world.checker()
    world.send("t", 4)
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    number, other = world.put(1).transaction, world.put(2).transaction
    world.hold(number, session, "t", pulled, spans=[(0, 1)])
    for _ in range(2):
        move(world, number)
    with pytest.raises(TransactionTooLarge):
        move(world, number)
    with pytest.raises(TransactionTooLarge):
        world.hold(number, session, "t", pulled, spans=[(1, 2)])
    world.restart()
    world.resume(session)
    for _ in range(2):
        move(world, other)
    with pytest.raises(Busy):
        move(world, other)
    world.decided(number)
    assert world.broker.views.checked.settles == 2
    move(world, other)
    world.decided(other, commit=False)
    assert not world.broker.views.checked.settles
    check(world.broker, world.now)
    assert not difference(portrait(world.broker.views), portrait(reopened(world).views))


def test_a_look_at_the_alarms_of_parked_transactions_is_short() -> None:
    """Hundreds of alarms were each compared with thousands of parked transactions."""
    world = Transacting()
    spec = ProducerGroupSpec(name="pay", first_us=SECOND, cap_us=SECOND, give_up_us=SECOND)
    world.run(lambda: world.broker.checking.put_group(world.now, "app", spec))
    world.checker()
    numbers = [world.put(one).transaction for one in range(1, 40)]
    wait(world, 5)
    assert len(world.broker.alarms.open) == len(numbers)
    made = 0

    def counted(number: int) -> str:
        nonlocal made
        made += 1
        return f"t-{number:x}"

    with patch.object(checked, "transaction_id", counted):
        world.wait(SECOND)
    assert made <= 2 * len(numbers)
    world.decided(numbers[0])
    wait(world, 15)
    assert len(world.broker.alarms.open) == len(numbers) - 1
