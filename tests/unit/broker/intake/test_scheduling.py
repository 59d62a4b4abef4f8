"""Scheduled messages: stored at once, delivered when they are due, once, in order; cancelled."""

from __future__ import annotations

import pytest

from ternmq.broker.gate.replies import SendReply
from ternmq.broker.schedule import rowpages
from ternmq.model.errors import (
    AlreadyDelivered,
    Busy,
    DueTooFar,
    IdConflict,
    InvalidBatch,
    MessageNotFound,
    MessageTooLarge,
    UnknownQueue,
)
from ternmq.model.specs import Limits
from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, check, explore, offsets


def due(world: World, *seconds: float, key: str = "", name: str = "") -> list[Row]:
    """Return rows that are due so many seconds from now."""
    return [
        Row(
            body=b"row %d" % world._serial(),
            due_us=world.now + round(one * SECOND),
            ordering_key=key,
            application_id=name and f"{name}{number}",
        )
        for number, one in enumerate(seconds)
    ]


def start(world: World, **topic: object) -> int:
    world.topic("t", **topic)
    world.group("t", "g")
    return world.join()


def bodies(world: World, session: int) -> list[bytes]:
    """Pull and acknowledge all there is; return the bodies in the order of the offsets."""
    found: list[bytes] = []
    while (pulled := world.pull(session, "t", "g")) is not None:
        one = world.bodies(pulled)
        found += [one[offset] for offset in offsets(pulled)]
        world.settle(session, "t", "g", pulled)
        world.commit()
    return found


def come_due(world: World, seconds: float) -> None:
    world.pass_time(round(seconds * SECOND))
    world.commit()


def test_a_row_is_delivered_when_it_is_due_and_not_before() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        reply = world.send("t", due(world, 10))
        assert (reply.scheduled, reply.first_offset, reply.count) == (True, None, 1)
        come_due(world, 10 - 1e-6)
        assert world.pull(session, "t", "g") is None
        come_due(world, 1e-6)
        assert bodies(world, session) == [b"row 0"]
        come_due(world, 100)
        assert bodies(world, session) == []

    explore(scenario)


def test_rows_come_due_in_the_order_of_their_times_then_of_their_sending() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", due(world, 30, 10, 20))
        world.send("t", due(world, 20, 20), producer=2)
        world.send("t", 1)
        world.send("t", due(world, 5))
        come_due(world, 60)
        assert bodies(world, session) == [
            b"row 5", b"row 6", b"row 1", b"row 2", b"row 3", b"row 4", b"row 0",
        ]  # fmt: skip

    explore(scenario)


def test_neighbours_with_one_due_time_become_one_record() -> None:
    world = World()
    session = start(world)
    world.send("t", due(world, *[7] * 5))
    come_due(world, 7)
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    assert [len(places.positions) for places in pulled.places] == [1]
    assert offsets(pulled) == [0, 1, 2, 3, 4]


def test_rows_are_far_apart_and_far_away() -> None:
    """The horizon moves over months, and no row comes early or late."""

    def scenario(world: World) -> None:
        session = start(world)
        rows = due(world, 3599, 3601, 7200, 40 * 86400, 400 * 86400)
        world.send("t", rows)
        found: list[bytes] = []
        for row in rows:
            world.pass_time(row.due_us - world.now - 1)
            assert world.pull(session, "t", "g") is None
            come_due(world, 1e-6)
            found += bodies(world, session)
        assert found == [row.body for row in rows]

    explore(scenario, paces=((1, 1), (2, 3)))


def test_what_came_due_while_the_broker_was_down_is_delivered_in_order() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        for _ in range(4):
            world.send("t", due(world, 90, 30, 100_000, 60))
        come_due(world, 45)
        assert len(bodies(world, session)) == 4
        world.restart(gap_us=DAY_US * 45)
        world.resume(session)
        come_due(world, 0)
        assert bodies(world, session) == [
            b"row %d" % row for row in (3, 7, 11, 15, 0, 4, 8, 12, 2, 6, 10, 14)
        ]

    explore(scenario, paces=((1, 1), (3, 2)))


def test_an_answered_row_survives_a_restart_at_any_moment() -> None:
    def scenario(world: World) -> None:
        session = start(world, queues=2)
        found: list[bytes] = []
        for round_ in range(4):
            world.send("t", due(world, 3, 1, 2, 40))
            come_due(world, 1.5)
            found += bodies(world, session)
            world.restart(clean=round_ % 2 == 0)
            world.resume(session)
        come_due(world, 60)
        found += bodies(world, session)
        assert sorted(found) == sorted(b"row %d" % row for row in range(16))

    explore(scenario, paces=((1, 1), (2, 3)))


def test_a_row_keeps_the_order_of_its_key_from_when_it_is_due() -> None:
    def scenario(world: World) -> None:
        session = start(world, ordered=True, queues=4)
        world.send("t", due(world, 5, 5, 5, key="a") + due(world, 5, key="a"))
        world.send("t", "aa")
        come_due(world, 6)
        world.send("t", "a")
        got: list[bytes] = []
        while (pulled := world.pull(session, "t", "g")) is not None:
            one = world.bodies(pulled)
            got += [one[offset] for offset in offsets(pulled)]
            world.settle(session, "t", "g", pulled)
        assert got == [b"a 4", b"a 5", b"row 0", b"row 1", b"row 2", b"row 3", b"a 6"]

    explore(scenario)


def test_the_queue_is_the_one_asked_for_or_the_next_in_turn() -> None:
    world = World()
    start(world, queues=3)
    world.send("t", due(world, 1), queue=2)
    for _ in range(6):
        world.send("t", due(world, 2))
    come_due(world, 3)
    queues = world.broker.views.catalog.topic("t").queues
    assert sorted(queue.next for queue in queues) == [2, 2, 3]
    assert queues[2].next == 3
    with pytest.raises(UnknownQueue):
        world.send("t", due(world, 1), queue=3)


def test_times_that_are_over_are_a_plain_send() -> None:
    world = World()
    session = start(world)
    reply = world.send("t", due(world, -5, 0))
    assert (reply.scheduled, reply.first_offset) == (False, 0)
    assert len(bodies(world, session)) == 2
    reply = world.send("t", due(world, -5, 1))
    assert (reply.scheduled, reply.first_offset) == (True, None)
    come_due(world, 0)
    assert bodies(world, session) == [b"row 2"]


def test_times_that_cannot_be_are_refused() -> None:
    world = World(Limits(scheduled_rows=3))
    start(world)
    end = world.broker.journal.end
    for rows, error in (
        ([*due(world, 1), Row(body=b"")], InvalidBatch),
        (due(world, 731 * 86400 + 61), DueTooFar),
        ([Row(body=b"", due_us=2**63 - 1)], DueTooFar),
        (due(world, 1, 1, 1, 1), Busy),
    ):
        with pytest.raises(error):
            world.send("t", rows)
    assert world.broker.journal.end == end
    world.send("t", due(world, 731 * 86400, 1, 1))
    with pytest.raises(Busy):
        world.send("t", due(world, 1))
    come_due(world, 1)
    world.send("t", due(world, 1))
    check(world.broker, world.now)


# -- repeats ---------------------------------------------------------------------------------------


def test_a_repeat_gets_the_first_receipt_before_and_after_the_delivery() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        batch = world.batch("t", due(world, 5, 6))

        def again() -> SendReply:
            reply = world.send_batch("t", batch)
            world.commit()
            return reply

        first = again()
        for wait in (0, 5, 1):
            come_due(world, wait)
            reply = again()
            assert (reply.duplicate, reply.scheduled) == (True, True)
            assert (reply.count, reply.first_offset) == (first.count, None)
        assert len(bodies(world, session)) == 2
        assert world.broker.views.schedule.rows == 0

    explore(scenario)


def test_an_id_is_known_whether_its_message_is_scheduled_or_stored() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        first = due(world, 5, name="a")[0]
        world.send("t", [first])
        later = Row(body=first.body, application_id="a0", due_us=first.due_us + 7)
        for rows in ([later], [Row(body=first.body, application_id="a0")]):
            reply = world.send("t", rows)
            assert reply.count == 0
            assert [(one.row, one.offset, one.conflict) for one in reply.rows] == [(0, None, False)]
        other = world.send("t", [Row(body=b"other", application_id="a0", due_us=first.due_us)])
        assert [one.conflict for one in other.rows] == [True]
        some = world.send("t", [later, *due(world, 5, 5, name="b"), later])
        assert (some.count, [one.row for one in some.rows]) == (2, [0, 3])
        come_due(world, 6)
        again = world.send("t", [first])
        assert (again.count, again.rows[0].conflict) == (0, False)
        assert bodies(world, session) == [b"row 0", b"row 1", b"row 2"]

    explore(scenario)


def test_the_id_of_a_cancelled_message_is_refused_not_stored_and_not_told_to_be() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        rows = due(world, 5, 6, name="a")
        world.send("t", rows)
        cancel(world, 1, 0)
        for again in (
            [rows[0], *due(world, 7)],
            [Row(body=rows[0].body, application_id="a0"), Row(body=b"at once")],
        ):
            reply = world.send("t", again)
            (told,) = reply.rows
            assert (told.row, told.offset, told.conflict, told.cancelled) == (0, None, True, True)
            assert reply.count == 1
        come_due(world, 8)
        reply = world.send("t", rows)
        assert [(one.conflict, one.cancelled) for one in reply.rows] == [
            (True, True), (False, False),
        ]  # fmt: skip
        assert len(bodies(world, session)) == 3

    explore(scenario)


def test_a_resend_gets_the_first_receipt_although_rows_were_cancelled_since() -> None:
    world = World()
    start(world)
    rows = due(world, 5, 6, name="a")
    world.send("t", rows[:1])
    batch = world.batch("t", rows)
    first = world.send_batch("t", batch)
    cancel(world, 1, 0)
    cancel(world, 1, 2)
    again = world.send_batch("t", batch)
    assert (again.duplicate, again.count, again.rows) == (True, first.count, first.rows)
    assert [one.conflict for one in again.rows] == [False]


def test_sequences_of_a_scheduled_batch_are_used() -> None:
    world = World()
    start(world)
    world.send_batch("t", world.batch("t", due(world, 5, 5), first=10))
    with pytest.raises(IdConflict):
        world.send_batch("t", world.batch("t", world.rows(1), first=11))
    batch = world.batch("t", world.rows(1), producer=2)
    world.prepare("t", batch)
    with pytest.raises(IdConflict, match="prepared for a transaction"):
        world.send_batch("t", batch)


# -- cancelling ------------------------------------------------------------------------------------


def cancel(world: World, producer: int, sequence: int, topic: str = "t") -> None:
    world.run(lambda: world.broker.cancel_scheduled(world.now, topic, producer, sequence))
    world.commit()


def test_a_cancelled_row_is_never_delivered_and_the_others_are() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", due(world, 5, 6, 7 * 86400, 8))
        cancel(world, 1, 1)
        cancel(world, 1, 2)
        cancel(world, 1, 1)
        world.restart()
        world.resume(session)
        cancel(world, 1, 2)
        come_due(world, 10 * 86400)
        assert bodies(world, session) == [b"row 0", b"row 3"]

    explore(scenario, paces=((1, 1), (3, 1), (2, 3)))


def test_a_second_cancel_writes_nothing() -> None:
    world = World()
    start(world)
    world.send("t", due(world, 5))
    cancel(world, 1, 0)
    end = world.broker.journal.end
    cancel(world, 1, 0)
    assert world.broker.journal.end == end


def test_a_row_stays_cancelled_when_others_come_due() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", due(world, 5, 6, 7, name="a"))
        cancel(world, 1, 0)
        cancel(world, 1, 2)
        come_due(world, 10)
        assert bodies(world, session) == [b"row 1"]
        world.restart()
        world.resume(session)
        for sequence in (0, 2):
            cancel(world, 1, sequence)
            world.run(lambda: world.broker.cancel_scheduled_id(world.now, "t", "a0"))
        with pytest.raises(AlreadyDelivered):
            cancel(world, 1, 1)
        come_due(world, 10)
        assert bodies(world, session) == []

    explore(scenario)


def test_a_second_cancel_is_fine_although_later_rows_were_delivered() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", due(world, 5, 6, name="order-"))
        cancel(world, 1, 0)
        come_due(world, 7)
        assert bodies(world, session) == [b"row 1"]
        cancel(world, 1, 0)
        world.run(lambda: world.broker.cancel_scheduled_id(world.now, "t", "order-0"))
        with pytest.raises(AlreadyDelivered):
            cancel(world, 1, 1)

    explore(scenario)


def test_what_was_delivered_or_never_sent_cannot_be_cancelled() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.topic("other")
        world.send("t", due(world, 5))
        world.send("t", 1)
        come_due(world, 5)
        for sequence in (0, 1):
            with pytest.raises(AlreadyDelivered):
                cancel(world, 1, sequence)
        for producer, sequence in ((1, 2), (9, 0)):
            with pytest.raises(MessageNotFound):
                cancel(world, producer, sequence)
        world.send("t", due(world, 5))
        with pytest.raises(MessageNotFound):
            cancel(world, 1, 2, "other")
        come_due(world, 5)
        assert len(bodies(world, session)) == 3

    explore(scenario)


def test_a_row_is_cancelled_by_its_application_id() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", due(world, 5, 5, name="order-"))

        def by_id(name: str) -> None:
            world.run(lambda: world.broker.cancel_scheduled_id(world.now, "t", name))
            world.commit()

        by_id("order-1")
        by_id("order-1")
        with pytest.raises(MessageNotFound):
            by_id("order-2")
        come_due(world, 5)
        with pytest.raises(AlreadyDelivered):
            by_id("order-0")
        assert bodies(world, session) == [b"row 0"]

    explore(scenario)


# -- topics and the journal ------------------------------------------------------------------------


@pytest.mark.parametrize("many", [rowpages.MANY_PAGES, 0])
def test_rows_go_with_their_topic(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(rowpages, "MANY_PAGES", many)

    def scenario(world: World) -> None:
        session = start(world)
        world.topic("other")
        world.group("other", "g")
        world.send("t", due(world, 5, 6))
        world.send("other", due(world, 5))
        world.send("t", due(world, 7))
        world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
        assert world.broker.views.schedule.rows == 1
        world.topic("t")
        world.group("t", "g")
        with pytest.raises(MessageNotFound):
            cancel(world, 1, 0)
        come_due(world, 10)
        assert bodies(world, session) == []
        assert world.drain(session, "other", "g") == [0]

    explore(scenario)


def test_many_rows_of_several_topics_take_turns() -> None:
    world = World()
    session = start(world)
    for name in ("u", "v"):
        world.topic(name)
        world.group(name, "g")
    for name in ("t", "u", "v"):
        for _ in range(4):
            world.send(name, due(world, *[5 + 0.001 * row for row in range(100)]))
    world.now += 6 * SECOND
    queues = [world.broker.views.catalog.topic(name).queues[0] for name in ("t", "u", "v")]
    while world.broker.tick(world.now):
        next_ = [queue.next for queue in queues]
        assert max(next_) - min(next_) <= 64
    world.commit()
    assert [queue.next for queue in queues] == [400] * 3
    assert len(bodies(world, session)) == 400


def test_a_due_row_can_fail_and_come_again_as_any_other() -> None:
    def scenario(world: World) -> None:
        session = start(world)
        world.send("t", due(world, 5))
        come_due(world, 5)
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RETRY)
        come_due(world, 1)
        assert bodies(world, session) == [b"row 0"]

    explore(scenario)


@pytest.mark.parametrize("many", [rowpages.MANY_PAGES, 0])
def test_pages_of_rows_come_and_go(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """More rows than a page of STATE holds, some cancelled, delivered over a day."""
    monkeypatch.setattr(rowpages, "MANY_PAGES", many)

    def scenario(world: World) -> None:
        session = start(world)
        for first in range(0, 2600, 650):
            world.send("t", due(world, *[60 * ((first + row) * 7 % 1440) for row in range(650)]))
        for sequence in range(0, 2600, 100):
            cancel(world, 1, sequence)
        found: list[bytes] = []
        for _ in range(13):
            come_due(world, (2 * HOUR_US + MINUTE_US) / SECOND)
            found += bodies(world, session)
        assert len(found) == len(set(found)) == 2600 - 26
        assert not world.broker.views.schedule.pages.by_number

    explore(scenario, paces=((4, 3),), step=37)


def test_pending_rows_are_listed_by_hour_and_in_pages() -> None:
    world = World()
    start(world)
    world.topic("other")
    world.send("other", due(world, 5))
    for _ in range(20):
        world.send("t", due(world, *[60 * row for row in range(1, 1000)]))
    topic = world.broker.views.catalog.topic("t").number
    schedule = world.broker.views.schedule
    hours = schedule.topics[topic].hours
    assert sum(hours.values()) == schedule.rows_of(topic) == 20 * 999
    found: list[int] = []
    entry: int | None = 0
    calls = 0
    while entry is not None:
        rows, entry = schedule.pages.scan(topic, world.now, world.now + HOUR_US, entry, 100)
        assert len(rows) <= 100
        found += [row.entry for row in rows]
        calls += 1
    assert len(found) == len(set(found)) == 20 * 59
    assert found == sorted(found)
    assert calls <= 15
    check(world.broker, world.now)


def test_a_row_that_can_be_stored_can_be_delivered() -> None:
    """The record of a delivery is longer than that of the send; the longest batch still fits."""
    world = World(segment_bytes=1 << 16)
    session = start(world)
    world.commit()
    room = world.broker.journal.max_body
    stored = 0
    for size in range(room - 400, room, 8):
        row = Row(body=bytes(size), due_us=world.now + SECOND)
        try:
            world.send("t", [row])
        except MessageTooLarge:
            continue
        stored += 1
    assert 0 < stored < 50
    for _ in range(3 * stored):
        come_due(world, 1)
    assert world.broker.fulfilling.fulfilled_rows == stored
    assert len(bodies(world, session)) == stored
