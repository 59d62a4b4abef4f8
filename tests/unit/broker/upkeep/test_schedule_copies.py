"""Scheduled rows outlive the segment they were stored in: their copies are delivered instead."""

from __future__ import annotations

from functools import partial

import pytest

from ternmq.broker.upkeep.judging import COPIED_AFTER_US
from ternmq.journal.index.tail import Place
from ternmq.journal.log.retention import Decision, Pin, RetentionSpec
from ternmq.model.errors import AlreadyDelivered
from ternmq.model.types import DAY_US
from ternmq.record.batch.batch import Row
from tests.unit.broker.kit import (
    SECOND,
    check,
    difference,
    offsets,
    portrait,
    reopened,
    waiting,
)
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, Kept, pressed


def scheduled(world: Kept, days: float, rows: int = 1, name: str = "", body: int = 0) -> list[Row]:
    due_us = world.now + round(days * DAY_US)
    return [
        Row(
            body=b"row %d" % world._serial() + bytes(body),
            due_us=due_us + number,
            application_id=name and f"{name}{number}",
        )
        for number in range(rows)
    ]


def start(world: Kept) -> int:
    world.topic("t")
    world.topic("due")
    world.group("t", "g")
    world.group("due", "g")
    return world.join()


def bodies(world: Kept, session: int) -> list[bytes]:
    found: list[bytes] = []
    while (pulled := world.pull(session, "due", "g")) is not None:
        one = world.bodies(pulled)
        found += [one[offset].rstrip(b"\0") for offset in offsets(pulled)]
        world.settle(session, "due", "g", pulled)
        world.commit()
    return found


def test_rows_move_from_segment_to_segment_until_they_are_due() -> None:
    world = pressed()
    session = start(world)
    sent = [scheduled(world, 400, 5, "id-") + scheduled(world, 500), scheduled(world, 300)]
    for rows in sent:
        world.send("due", rows)
    copies = world.started.upkeep.moving.schedule_copies
    for round_ in (1, 2):
        world.grow("t", 6, session=session, group="g")
        assert copies.copied_rows >= 7
        assert world.broker.views.schedule.rows == 7
        assert not world.broker.views.schedule.pins(0)
        check(world.broker, world.now)
        other = reopened(world)
        assert not difference(portrait(world.broker.views), portrait(other.views))
        if round_ == 1:
            world.restart()
            world.resume(session)
            copies = world.started.upkeep.moving.schedule_copies
    for days, expected in ((300, [6]), (100, [0, 1, 2, 3, 4]), (100, [5])):
        world.turn(days * DAY_US)
        world.resume(session)
        world.turn(SECOND)
        assert bodies(world, session) == [b"row %d" % row for row in expected]
    assert world.broker.views.schedule.rows == 0


def test_a_copy_is_found_cancelled_and_known_as_the_first_record_was() -> None:
    world = pressed()
    session = start(world)
    batch = world.batch("due", scheduled(world, 400, 4, "id-"))
    world.send_batch("due", batch)
    world.grow("t", 3, session=session, group="g")
    assert world.started.upkeep.moving.schedule_copies.copied_rows >= 4
    world.run(lambda: world.broker.cancel_scheduled(world.now, "due", 1, 1))
    world.run(lambda: world.broker.cancel_scheduled_id(world.now, "due", "id-2"))
    world.grow("t", 3, session=session, group="g")
    world.turn(401 * DAY_US)
    world.resume(session)
    world.turn(SECOND)
    assert bodies(world, session) == [b"row 0", b"row 3"]
    with pytest.raises(AlreadyDelivered):
        world.run(lambda: world.broker.cancel_scheduled(world.now, "due", 1, 0))


def test_rows_that_were_due_long_ago_keep_their_order_when_they_are_copied() -> None:
    """Their due time is that of their first record, not that of the copy."""
    world = pressed()
    session = start(world)
    world.send("due", [Row(body=b"late", due_us=1), Row(body=b"later", due_us=world.now + DAY_US)])
    world.send("due", [Row(body=b"second", due_us=world.now + 1)])
    fulfil = world.broker.fulfilling.fulfil
    table = world.broker.timers.table
    for kind, row in list(table.items()):
        if row.fire == fulfil:
            table[kind] = row._replace(fire=lambda *_: 1)  # nothing comes due for now
    world.grow("t", 3, session=session, group="g")
    assert world.broker.views.schedule.rows == 3
    world.restart()
    world.resume(session)
    world.turn(2 * DAY_US)
    world.resume(session)
    world.turn(SECOND)
    assert bodies(world, session) == [b"late", b"second", b"later"]


def test_without_pressure_they_keep_their_segment_for_a_day() -> None:
    world = Kept(RetentionSpec())
    world.topic("due", retention_us=20 * SECOND)
    world.send("due", scheduled(world, 400))
    moving = world.started.upkeep.moving
    for _ in range(400):
        world.send("due", 5)
        world.turn(100_000)
    world.turn(60 * SECOND)
    assert world.broker.journal.first == 0
    assert (moving.judging.pinned.verdict, moving.judging.pinned.pin) == (
        Decision.KEEP,
        Pin.SCHEDULE,
    )
    assert moving.judging.present().pin is Pin.SCHEDULE
    world.turn(COPIED_AFTER_US)
    for _ in range(50):
        world.turn(SECOND)
    assert world.broker.journal.first > 0
    assert world.broker.views.schedule.rows == 1
    assert moving.schedule_copies.copied_rows <= 2


def test_a_journal_full_of_scheduled_rows_refuses_sends_and_goes_on_when_they_are_due() -> None:
    world = pressed()
    session = start(world)
    sent = 0
    while world.broker.journal.end < 3 * SEGMENT:
        world.send("due", scheduled(world, 30, body=1000))
        sent += 1
        world.turn()
    for _ in range(200):
        world.turn(SECOND)
    copies = world.started.upkeep.moving.schedule_copies
    assert copies.copied_bytes < 100 * SEGMENT, "they are copied again and again"
    world.turn(31 * DAY_US)
    world.resume(session)
    for _ in range(20):
        world.turn(SECOND)
    assert len(bodies(world, session)) == sent
    world.grow("t", 2, session=session, group="g")


def newest_of(world: Kept, sequence: int) -> Place | None:
    """Return the newest place of a message of producer 1."""
    return next(iter(world.broker.index.by_message_id(1, sequence)), None)


def test_rows_of_a_batch_that_was_copied_in_parts_are_found_by_their_ids() -> None:
    """A file of the index must not hide a part of a batch behind another one."""
    world = pressed()
    session = start(world)
    world.send("due", scheduled(world, 400, 12))
    for sequence in (1, 4, 5, 9):
        world.run(partial(world.broker.cancel_scheduled, world.now, "due", 1, sequence))
    pending = [0, 2, 3, 6, 7, 8, 10, 11]
    for _ in range(4):
        world.grow("t", 2, session=session, group="g")
        for sequence in pending:
            found = waiting(partial(newest_of, world, sequence))
            assert found is not None, f"{sequence} is not found"
        world.pass_time(700 * SECOND)  # deduplication has forgotten them: the index must know
        world.resume(session)
    for sequence in pending:
        world.run(partial(world.broker.cancel_scheduled, world.now, "due", 1, sequence))
    assert world.broker.views.schedule.rows == 0
