"""Scheduled rows: their lists, and look-ups by id, application id and key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from ternmq.broker.query.messages import Queries
from ternmq.broker.query.scheduled import PAGE_BYTES, PAGE_ROWS, ScheduledQueries
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.store.lookup import NOWHERE, Found, State
from ternmq.model.errors import CorruptJournal, MessageNotFound, UnknownTopic
from ternmq.model.types import DAY_US, HOUR_US
from ternmq.record.batch.batch import Row
from ternmq.wire.control.schedule import ScheduledInfo
from tests.unit.broker.kit import SECOND, START_US, Nothing, World, explore, waiting
from tests.unit.broker.upkeep.test_upkeep import pressed

EVER_US = 2**63 - 1


def due(world: World, *seconds: float, key: str = "", name: str = "", bytes_: int = 0) -> list[Row]:
    return [
        Row(
            body=bytes(bytes_),
            key=key,
            due_us=world.now + round(one * SECOND),
            application_id=name and f"{name}{number}",
        )
        for number, one in enumerate(seconds)
    ]


def listed(
    world: World, since_us: int = 0, until_us: int = EVER_US, limit: int = 1000
) -> list[ScheduledInfo]:
    """Return all pages."""
    asked = ScheduledQueries(world.broker.ledger)
    found: list[ScheduledInfo] = []
    entry: int | None = 0
    while entry is not None:
        page = waiting(partial(asked.rows, "t", since_us, until_us, entry, limit))
        assert len(page.rows) <= min(limit, PAGE_ROWS)
        found += page.rows
        entry = page.next
    return found


def by_id(world: World, sequence: int, producer: int = 1) -> Found:
    return waiting(lambda: Queries(world.broker.ledger).by_id(producer, sequence))


def by_name(world: World, name: str) -> Found:
    return waiting(lambda: Queries(world.broker.ledger).by_application_id("t", name))


def by_key(world: World, key: str, limit: int = 1000) -> list[Found]:
    """Return what all pages of a look-up by key list."""
    asked = Queries(world.broker.ledger)
    found: list[Found] = []
    after = None
    while True:
        page = waiting(partial(asked.by_key, "t", key, limit=limit, after=after))
        found += page.found
        after = page.next
        if after is None:
            return found


def sequences(rows: Sequence[ScheduledInfo]) -> list[int]:
    return [int(one.id.partition(":")[2], 16) for one in rows]


# -- lists -----------------------------------------------------------------------------------------


def test_rows_are_listed_in_pages_with_what_users_look_for() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=4)
        world.topic("other")
        world.send("other", due(world, 5))
        world.send("t", due(world, 50, 10, key="k", name="a"), queue=3)
        world.send("t", due(world, 30))
        world.send("t", 1)
        first, second, third = listed(world)
        assert (first.id, first.queue) == (f"{1:016x}:1", 3)
        assert (first.due_us, first.stored_us) == (START_US + 50 * SECOND, START_US)
        assert (first.key, first.application_id, first.ordering_key) == ("k", "a0", "")
        assert (second.application_id, third.application_id, third.queue) == ("a1", "", None)
        assert sequences(listed(world, limit=1)) == [1, 2, 3]
        span = START_US + 10 * SECOND, START_US + 50 * SECOND
        assert sequences(listed(world, *span)) == [2, 3]
        world.run(lambda: world.broker.cancel_scheduled(world.now, "t", 1, 2))
        assert sequences(listed(world)) == [1, 3]
        world.restart()
        assert sequences(listed(world)) == [1, 3]
        world.pass_time(30 * SECOND)
        assert sequences(listed(world)) == [1]
        with pytest.raises(UnknownTopic):
            ScheduledQueries(world.broker.ledger).rows("nowhere", 0, EVER_US, 0, 1)

    explore(scenario, paces=((1, 1),), any_order=True)


def test_hours_are_counted() -> None:
    world = World()
    world.topic("t")
    asked = ScheduledQueries(world.broker.ledger)
    assert asked.hours("t", 0, 10) == ([], None)
    rows = due(world, *[600 * row for row in range(1, 50)])
    world.send("t", rows)
    expected = sorted(Counter(row.due_us // HOUR_US * HOUR_US for row in rows).items())
    hours, following = asked.hours("t", 0, 3)
    assert [(one.hour_us, one.messages) for one in hours] == expected[:3]
    assert following == expected[2][0] // HOUR_US
    rest, end = asked.hours("t", following, 1000)
    assert ([(one.hour_us, one.messages) for one in rest], end) == (expected[3:], None)
    with pytest.raises(UnknownTopic):
        asked.hours("nowhere", 0, 1)


def test_a_page_ends_when_it_has_read_enough() -> None:
    world = World(segment_bytes=8 << 20)
    world.topic("t")
    for _ in range(4):
        world.send("t", due(world, 60, 60, bytes_=PAGE_BYTES // 4))
    page = ScheduledQueries(world.broker.ledger).rows("t", 0, EVER_US, 0, 1000)
    # The page ends in the record that reaches the limit, with its first row.
    assert (len(page.rows), page.next is None) == (3, False)
    assert len(listed(world)) == 8


def test_a_page_ends_where_the_disk_is_needed_and_leaves_out_what_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.topic("t")
    for _ in range(4):
        world.send("t", due(world, 60))
    positions = [
        row.position for row in world.broker.views.schedule.pages.scan(1, 0, EVER_US, 0, 9)[0]
    ]
    get = world.broker.store.get
    fails: dict[int, Exception] = {positions[2]: WouldBlock(Nothing())}

    def read(position: int) -> bytes:
        if position in fails:
            raise fails[position]
        return get(position)

    monkeypatch.setattr(world.broker.store, "get", read)
    asked = ScheduledQueries(world.broker.ledger)
    page = asked.rows("t", 0, EVER_US, 0, 1000)
    assert (len(page.rows), page.next) == (2, 3)
    with pytest.raises(WouldBlock):
        asked.rows("t", 0, EVER_US, 3, 1000)
    fails = {positions[2]: CorruptJournal("a byte")}
    page = asked.rows("t", 0, EVER_US, 3, 1000)
    assert (sequences(page.rows), page.next) == ([3], None)


# -- look-ups --------------------------------------------------------------------------------------


def test_a_row_is_found_as_scheduled_then_as_stored_or_cancelled() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=2)
        world.send("t", due(world, 10, 20, 30, key="k", name="a"), queue=1)
        world.commit()
        for sequence in range(3):
            for found in (by_id(world, sequence), by_name(world, f"a{sequence}")):
                assert (found.state, found.offset, found.queue) == (State.SCHEDULED, NOWHERE, 1)
                assert found.due_us == START_US + (sequence + 1) * 10 * SECOND
                assert (found.stored_us, found.row) == (START_US, sequence)
        assert [one.row for one in by_key(world, "k", 1)] == [2, 1, 0]
        world.run(lambda: world.broker.cancel_scheduled(world.now, "t", 1, 1))
        world.pass_time(10 * SECOND)
        world.commit()
        found = by_name(world, "a0")
        assert (found.state, found.offset, found.queue) == (State.STORED, 0, 1)
        assert found.stored_us == START_US + 10 * SECOND
        assert (by_id(world, 0).place, by_id(world, 1).state) == (found.place, State.CANCELLED)
        assert by_name(world, "a1").state is State.CANCELLED
        assert [(one.state, one.offset) for one in by_key(world, "k")] == [
            (State.STORED, 0), (State.SCHEDULED, NOWHERE),
        ]  # fmt: skip
        world.restart()
        world.pass_time(30 * SECOND)
        world.commit()
        assert [by_id(world, one).state for one in range(3)] == [
            State.STORED, State.CANCELLED, State.STORED,
        ]  # fmt: skip
        assert [one.offset for one in by_key(world, "k")] == [1, 0]

    explore(scenario, paces=((1, 1), (2, 3)))


def test_what_a_crash_could_lose_does_not_count() -> None:
    world = World()
    world.topic("t")
    world.send_batch("t", world.batch("t", due(world, 10, key="k", name="a")))
    for look in (lambda: by_id(world, 0), lambda: by_name(world, "a0")):
        with pytest.raises(MessageNotFound):
            look()
    assert by_key(world, "k") == []
    world.commit()
    world.pass_time(10 * SECOND)
    assert world.broker.views.schedule.rows == 0
    for found in (by_id(world, 0), by_name(world, "a0"), *by_key(world, "k")):
        assert (found.state, found.due_us) == (State.SCHEDULED, START_US + 10 * SECOND)
    assert len(by_key(world, "k")) == 1
    world.commit()
    assert [one.state for one in by_key(world, "k")] == [State.STORED]


def test_the_newest_message_with_an_id_wins() -> None:
    world = World()
    world.topic("t")
    world.send("t", [Row(body=b"first", application_id="a")])
    world.pass_time(3 * HOUR_US)
    world.send("t", [Row(body=b"later", application_id="a", due_us=world.now + DAY_US)])
    world.commit()
    assert by_name(world, "a").state is State.SCHEDULED
    world.pass_time(3 * HOUR_US)
    world.send("t", [Row(body=b"last", application_id="a")])
    world.commit()
    assert by_name(world, "a").offset == 1
    world.pass_time(DAY_US)
    world.commit()
    assert by_name(world, "a").offset == 2
    assert by_id(world, 1).offset == 2


def test_a_copy_is_found_once_with_the_time_of_the_first_record() -> None:
    world = pressed()
    world.topic("t")
    world.topic("filler")
    world.group("filler", "g")
    session = world.join()
    world.send("t", due(world, 400 * 86_400, 401 * 86_400, 402 * 86_400, key="k", name="a"))
    world.commit()
    first = by_id(world, 0).place

    def look() -> None:
        for found in (by_id(world, 0), by_name(world, "a0")):
            assert (found.state, found.offset) == (State.SCHEDULED, NOWHERE)
            assert (found.stored_us, found.due_us) == (START_US, START_US + 400 * DAY_US)
        assert by_id(world, 1).state is by_name(world, "a1").state is State.CANCELLED
        assert [(one.state, one.due_us) for one in by_key(world, "k")] == [
            (State.SCHEDULED, START_US + days * DAY_US) for days in (402, 400)
        ]
        assert [one.stored_us for one in listed(world)] == [START_US] * 2
        assert sequences(listed(world)) == [0, 2]

    world.run(lambda: world.broker.cancel_scheduled(world.now, "t", 1, 1))
    look()
    moving = world.started.upkeep.moving
    world.grow("filler", 1, session=session, group="g")
    while not moving.schedule_copies.copied_rows:
        world.turn()
        look()
    world.commit()
    world.grow("filler", 3, session=session, group="g")
    assert by_id(world, 0).place.position > first.position
    with pytest.raises(MessageNotFound):
        by_id(world, 1)  # it went with its segment
    assert [one.due_us for one in by_key(world, "k")] == [
        START_US + days * DAY_US for days in (402, 400)
    ]
    world.run(lambda: world.broker.cancel_scheduled(world.now, "t", 1, 0))
    assert by_id(world, 0).state is by_name(world, "a0").state is State.CANCELLED
    assert len(by_key(world, "k")) == 1
