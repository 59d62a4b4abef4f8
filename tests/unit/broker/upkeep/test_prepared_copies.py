"""Prepared rows outlive the segment they were stored in: a parked transaction pins nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ternmq.broker.upkeep.judging import COPIED_AFTER_US
from ternmq.journal.log.retention import Pin, RetentionSpec
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle, TransactionPrepare
from tests.unit.broker.kit import SECOND, check, difference, offsets, portrait, reopened
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, Kept, pressed


def prepared(world: Kept, rows: list[Row], counter: int = 1, number: int = 0) -> int:
    spec = world.broker.views.producer_groups.spec("pay")
    if not spec.without_checker:
        put = replace(spec, without_checker=True)
        world.run(lambda: world.broker.checking.put_group(world.now, "app", put))
    data = world.batch("p", rows)
    reply = world.run(
        lambda: world.broker.checking.prepare(
            world.now, "app", 1,
            TransactionPrepare("p", None, 9, counter, "pay", "", number, 0, data),
        )
    )  # fmt: skip
    world.commit()
    return reply.transaction


def start(world: Kept) -> int:
    world.topic("t")
    world.topic("p")
    world.group("t", "g")
    world.group("p", "g")
    return world.join()


@pytest.mark.parametrize("commit", [True, False])
def test_rows_move_from_segment_to_segment_until_the_decision(commit: bool) -> None:
    world = pressed()
    session = start(world)
    number = prepared(world, [Row(body=b"one"), Row(body=b"two")])
    prepared(world, [Row(body=b"three")], number=number)
    copies = world.started.upkeep.moving.prepared_copies
    for _ in range(2):
        world.grow("t", 6, session=session, group="g")
        assert copies.copied_rows >= 3
        assert not world.broker.views.checked.pins(0)
        check(world.broker, world.now)
        other = reopened(world)
        assert not difference(portrait(world.broker.views), portrait(other.views))
        world.restart()
        world.resume(session)
        copies = world.started.upkeep.moving.prepared_copies
        copies.copied_rows = 3
    reply = world.run(lambda: world.broker.checking.decide(world.now, "app", number, commit=commit))
    world.commit()
    assert reply.rows == (3 if commit else 0)
    if commit:
        pulled = world.broker.pull(world.now, session, "p", "g")
        assert pulled is not None
        assert offsets(pulled) == [0, 1, 2]
    check(world.broker, world.now)


@pytest.mark.parametrize("due", [False, True])
def test_a_segment_is_judged_again_when_rows_in_it_become_messages(due: bool) -> None:
    """It may be about to go, and the groups were looked at before: they owed none of these rows."""
    world = pressed()
    session = start(world)
    rows = [Row(body=b"one", due_us=world.now + 3600 * SECOND if due else 0)]
    first = prepared(world, rows)
    while world.broker.journal.end < 2 * SEGMENT:
        world.send("t", 5)
        world.drain(session, "t", "g")
        world.spare()
    second = prepared(world, [Row(body=b"two")], counter=2)
    assert world.broker.journal.first == 0
    for number, again in ((second, 0), (first, 1)):
        before = world.broker.ledger.rewinds
        position = world.broker.views.checked.by_number[number].batches[0].position
        assert (position < SEGMENT) is (number == first)
        world.run(
            lambda: world.broker.checking.decide(world.now, "app", number, commit=True)  # noqa: B023
        )
        assert world.broker.ledger.rewinds == before + again


def test_rows_that_it_settles_are_copied_and_keep_no_segment() -> None:
    world = pressed()
    session = start(world)
    sent = world.send("p", 2)
    pulled = world.pull(session, "p", "g")
    assert sent.count == 2
    assert pulled is not None
    number = prepared(world, [Row(body=b"one")])
    world.run(
        lambda: world.broker.checking.settle(
            world.now, "app", session, number,
            Settle("p", "g", 0, pulled.epoch, pulled.lease, Outcome.DONE),
        )
    )  # fmt: skip
    for _ in range(2):
        world.grow("t", 6, session=session, group="g")
        assert world.broker.journal.first > 0
        check(world.broker, world.now)
        world.restart()
        world.resume(session)
    world.run(lambda: world.broker.checking.decide(world.now, "app", number, commit=False))
    world.commit()
    again = world.pull(session, "p", "g")  # compares what is read with what was sent
    assert offsets(again) == [0, 1]
    check(world.broker, world.now)


def test_without_pressure_they_keep_their_segment_for_a_day() -> None:
    world = Kept(RetentionSpec())
    session = start(world)
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    world.topic("t", retention_us=SECOND)
    world.group("t", "g")
    prepared(world, [Row(body=b"one")])
    for _ in range(400):
        world.send("t", 5)
        world.turn()
        world.drain(session, "t", "g")
    world.turn(10 * SECOND)
    assert world.broker.journal.first == 0
    assert world.started.upkeep.moving.judging.pinned.pin is Pin.CHECK_BACK
    world.turn(COPIED_AFTER_US)
    for _ in range(50):
        world.turn()
    assert world.broker.journal.first > 0
    assert world.broker.views.checked.batches == 1
    assert world.broker.journal.end > 2 * SEGMENT


def test_due_rows_of_a_decided_one_are_copied_like_scheduled_ones() -> None:
    world = pressed()
    session = start(world)
    due = world.now + 1_000_000 * SECOND
    number = prepared(world, [Row(body=b"one", due_us=due), Row(body=b"two", due_us=due)])
    world.run(lambda: world.broker.checking.decide(world.now, "app", number, commit=True))
    world.commit()
    world.grow("t", 8, session=session, group="g")
    assert world.started.upkeep.moving.schedule_copies.copied_rows >= 2
    assert world.broker.views.schedule.rows == 2
    check(world.broker, world.now)
    other = reopened(world)
    assert not difference(portrait(world.broker.views), portrait(other.views))
    world.turn(1_000_000 * SECOND)
    world.resume(session)
    world.turn(SECOND)
    assert world.broker.views.catalog.topic("p").queues[0].next == 2
