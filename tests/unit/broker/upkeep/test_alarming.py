"""Alarms: raised for what needs a person, cleared when it is over, the same after every restart."""

from __future__ import annotations

import pytest

from ternmq.broker.catalog import alarms as open_alarms
from ternmq.broker.catalog.alarms import AlarmKey
from ternmq.broker.ledger.alarms import (
    CLOCK,
    COORDINATOR,
    DEAD_LETTERS,
    DUE_NO_ROOM,
    DUE_UNREADABLE,
    HELD,
    MOST_TEXT,
    ONE_COPY,
)
from ternmq.broker.upkeep import alarming
from ternmq.broker.upkeep.alarming import CALM_US
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import Scanner
from ternmq.journal.store.store import RecordStore
from ternmq.model.errors import DiskReadError, JournalFull
from ternmq.model.specs import Exhausted, Limits, RetryPolicy
from ternmq.model.types import HOUR_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.control import Alarm, unpack_alarm
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.header import Kind
from tests.unit.broker.kit import SECOND, World, explore, offsets

HOLDS = RetryPolicy(first_us=SECOND, jitter=0.0, attempts=1, exhausted=Exhausted.HOLD)


def seconds(world: World, count: float) -> None:
    """Let time pass, a second at a time, as the shell does."""
    for _ in range(int(count)):
        world.pass_time(SECOND)
        world.commit()


def names(world: World) -> list[tuple[str, str]]:
    return [(key.name, key.subject) for key in world.broker.alarms.open]


def told(world: World) -> list[Alarm]:
    """Return the bodies of all ALARM records."""
    world.commit()
    scanner = Scanner(world.disk, 0, segment_size=world.options.segment_bytes)
    return [unpack_alarm(one.body) for one in scanner if one.kind == Kind.ALARM]


# -- the broker group ------------------------------------------------------------------------------


def test_the_shell_says_what_is_wrong_with_the_broker_group() -> None:
    def scenario(world: World) -> None:
        alone = AlarmKey(ONE_COPY, "main")
        world.broker.alarming.of_group = {alone: "one copy: b does not run"}
        seconds(world, 2)
        assert names(world) == [alone]
        (alarm,) = world.broker.alarms.open.values()
        assert alarm.text == "one copy: b does not run"
        world.broker.alarming.of_group = {}
        seconds(world, CALM_US / SECOND + 2)
        assert names(world) == []
        world.broker.alarming.of_group = {AlarmKey(COORDINATOR, ""): "no answer"}
        seconds(world, 2)
        assert names(world) == [(COORDINATOR, "")]

    explore(scenario)


def test_an_alarm_about_copies_says_what_is_wrong_now() -> None:
    def scenario(world: World) -> None:
        alone = AlarmKey(ONE_COPY, "main")

        def text() -> str:
            seconds(world, 2)
            return world.broker.alarms.open[alone].text

        world.broker.alarming.of_group = {alone: "one copy: a does not run"}
        assert text() == "one copy: a does not run"
        since_us = world.broker.alarms.open[alone].since_us
        world.restart()  # another broker takes over
        world.broker.alarming.of_group = {alone: "one copy: b does not run"}
        assert text() == "one copy: b does not run"
        world.broker.alarming.of_group = {alone: "one copy: b catches up"}
        assert text() == "one copy: b does not run"
        seconds(world, alarming.RESTATE_US / SECOND)
        assert text() == "one copy: b catches up"
        assert world.broker.alarms.open[alone].since_us == since_us
        seconds(world, 2 * alarming.RESTATE_US / SECOND)
        assert len(told(world)) == 3

    explore(scenario)


# -- the clock -------------------------------------------------------------------------------------


def test_a_gap_of_the_clock_is_an_alarm_until_it_is_closed_for_a_while() -> None:
    def scenario(world: World) -> None:
        world.broker.alarming.clock_gap_us = 5 * SECOND
        seconds(world, 2)
        assert names(world) == []
        world.broker.alarming.clock_gap_us = 3 * HOUR_US
        seconds(world, 2)
        raised = world.now
        world.broker.alarming.clock_gap_us = -3 * HOUR_US  # nothing is told of it once more
        seconds(world, 30)
        assert names(world) == [(CLOCK, "")]
        (alarm,) = world.broker.alarms.open.values()
        assert alarm.text == (
            "the wall clock is 3 hours ahead of broker time, which does not follow it"
        )
        assert raised - 2 * SECOND < alarm.since_us <= raised
        world.broker.alarming.clock_gap_us = 0
        seconds(world, 10)
        assert names(world) == [(CLOCK, "")]
        seconds(world, 2)
        assert names(world) == []

    world = explore(scenario, paces=((1, 1), (3, 2)))
    first, last = told(world)
    assert (first.raised, last.raised) == (True, False)
    assert (first.since_us, first.text) == (last.since_us, last.text)


def test_an_alarm_does_not_flap() -> None:
    world = World()
    for _ in range(20):
        world.broker.alarming.clock_gap_us = 6 * SECOND
        seconds(world, 2)
        world.broker.alarming.clock_gap_us = 4 * SECOND
        seconds(world, 8)
    assert names(world) == [(CLOCK, "")]
    assert len(told(world)) == 1


def test_an_alarm_outlives_a_restart_and_is_cleared_then() -> None:
    def scenario(world: World) -> None:
        for clean in (True, False):
            world.broker.alarming.clock_gap_us = HOUR_US
            seconds(world, 2)
            (before,) = world.broker.alarms.open.values()
            world.restart(clean=clean)
            assert list(world.broker.alarms.open.values()) == [before]
            seconds(world, CALM_US // SECOND + 2)
            assert names(world) == []
            world.restart(clean=clean)
            assert names(world) == []

    explore(scenario, paces=((1, 1), (2, 3)))


# -- group queues ----------------------------------------------------------------------------------


def failing(world: World, rows: int, **settings: object) -> int:
    world.topic("t", queues=2)
    world.group("t", "g", **settings)
    session = world.join()
    world.send("t", rows, queue=1)
    return session


def kill(world: World, session: int, rows: int) -> None:
    pulled = world.pull(session, "t", "g", rows, queue=1)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.DEAD)
    world.commit()


def test_dead_letters_near_their_cap() -> None:
    def scenario(world: World) -> None:
        session = failing(world, 10)
        kill(world, session, 8)
        seconds(world, 2)
        assert names(world) == []
        kill(world, session, 1)
        seconds(world, 2)
        assert names(world) == [(DEAD_LETTERS, "t/g/1")]
        (alarm,) = world.broker.alarms.open.values()
        assert alarm.text == "9 dead letters; at 10 the group gets no more messages"
        dead = [
            row.offset for row in world.progress("t", "g", 1).failures.failed(dead=True, after=-1)
        ]
        broker = world.broker
        world.run(lambda: broker.operating.delete_failures(world.now, "t", "g", 1, dead[:1]))
        seconds(world, 12)
        assert names(world) == []

    explore(scenario, Limits(failures=10), paces=((1, 1), (3, 2)))


@pytest.mark.parametrize("gone", ["group", "topic"])
def test_the_alarm_of_a_group_that_is_deleted_is_cleared(gone: str) -> None:
    def scenario(world: World) -> None:
        session = failing(world, 10)
        kill(world, session, 10)
        seconds(world, 2)
        assert names(world) == [(DEAD_LETTERS, "t/g/1")]
        administration = world.broker.administration
        if gone == "group":
            world.run(lambda: administration.unsubscribe(world.now, "t", "g"))
        else:
            world.run(lambda: administration.delete_topic(world.now, "t"))
        seconds(world, 12)
        assert names(world) == []

    explore(scenario, Limits(failures=10), paces=((1, 1),), step=3)


def test_a_key_that_is_held() -> None:
    def scenario(world: World) -> None:
        world.topic("o", ordered=True)
        world.group("o", "g", retry=HOLDS, lease_us=HOUR_US)
        session = world.join()
        world.send("o", "aab")
        pulled = world.pull(session, "o", "g")
        assert pulled is not None
        first = offsets(pulled)[0]
        world.settle(session, "o", "g", pulled, Outcome.RETRY, [(first, first + 1)])
        world.commit()
        seconds(world, 2)
        assert names(world) == [(HELD, "o/g/0")]
        assert world.progress("o", "g").failures.held_rows == 1
        world.restart()
        world.resume(session)
        assert world.progress("o", "g").failures.held_rows == 1
        seconds(world, 20)
        assert names(world) == [(HELD, "o/g/0")]
        broker = world.broker
        world.run(lambda: broker.operating.retry_now(world.now, "o", "g", 0, [first]))
        seconds(world, 12)
        assert names(world) == []
        assert world.progress("o", "g").failures.held_rows == 0

    explore(scenario, paces=((1, 1), (3, 2)), step=2)


def test_many_held_rows_are_counted_however_they_leave() -> None:
    world = World()
    world.topic("o", ordered=True)
    world.group("o", "g", retry=HOLDS)
    session = world.join()
    world.send("o", [Row(body=b"x", ordering_key=str(at)) for at in range(300)])
    pulled = world.pull(session, "o", "g", 1000)
    assert pulled is not None
    world.settle(session, "o", "g", pulled, Outcome.RETRY)
    world.commit()
    failures = world.progress("o", "g").failures
    assert failures.held_rows == 300
    broker = world.broker
    world.run(lambda: broker.operating.delete_failures(world.now, "o", "g", 0, [*range(100)]))
    world.run(lambda: broker.operating.retry_now(world.now, "o", "g", 0, [*range(200, 250)]))
    assert failures.held_rows == 150
    world.restart()
    assert world.progress("o", "g").failures.held_rows == 150
    broker = world.broker
    world.run(lambda: broker.operating.reset(world.now, "o", "g", 0, 0))
    assert world.progress("o", "g").failures.held_rows == 0


# -- scheduled rows --------------------------------------------------------------------------------


def test_rows_that_cannot_be_read_are_an_alarm_until_an_operator_clears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    session = failing(world, 1)
    world.send("t", [Row(body=b"x", due_us=world.now + SECOND)], producer=2)
    position = world.broker.views.schedule.pages.find(1).position  # type: ignore[union-attr]
    get = RecordStore.get

    def unreadable(self: RecordStore, at: int) -> object:
        if at == position:
            raise DiskReadError("a bad sector")
        return get(self, at)

    monkeypatch.setattr(RecordStore, "get", unreadable)
    seconds(world, 10)
    assert world.broker.views.schedule.rows == 0
    assert names(world) == [(DUE_UNREADABLE, "t")]
    (alarm,) = world.broker.alarms.open.values()
    assert alarm.text == (
        "1 scheduled message cannot be read, and will not be delivered: "
        f"position {position} of the journal"
    )
    world.restart()
    world.resume(session)
    seconds(world, 60)
    assert names(world) == [(DUE_UNREADABLE, "t")]
    broker = world.broker
    assert world.run(lambda: broker.alarms.clear(world.now, DUE_UNREADABLE, "t"))
    assert not world.run(lambda: broker.alarms.clear(world.now, DUE_UNREADABLE, "t"))
    seconds(world, 20)
    assert names(world) == []


def test_rows_that_are_due_and_find_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    failing(world, 1)
    world.send("t", [Row(body=b"x", due_us=world.now + SECOND)], producer=2)
    monkeypatch.setattr(Journal, "room", lambda self: 0)
    seconds(world, 3)
    assert names(world) == [(DUE_NO_ROOM, "")]
    monkeypatch.undo()
    seconds(world, 11)
    assert world.broker.views.schedule.rows == 0
    assert names(world) == [(DUE_NO_ROOM, "")]
    seconds(world, 3)
    assert names(world) == []


# -- bounds ----------------------------------------------------------------------------------------


def test_a_look_does_a_bounded_piece_and_comes_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarming, "CHANGES", 2)
    monkeypatch.setattr(alarming, "LOOKS", 3)
    world = World(Limits(failures=1))
    world.topic("t", queues=10)
    world.group("t", "g")
    session = world.join()
    for queue in range(10):
        world.send("t", 1, queue=queue)
        pulled = world.pull(session, "t", "g", queue=queue)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.DEAD)
    world.broker.views.figures.settle()
    assert world.broker.alarming.step(world.now) == 3
    for _ in range(6):
        assert world.broker.alarming.step(world.now) <= 4
    assert sorted(names(world)) == [(DEAD_LETTERS, f"t/g/{queue}") for queue in range(10)]


def test_reasons_do_not_push_one_another_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarming, "MOST_OPEN", 3)
    monkeypatch.setattr(open_alarms, "MOST_OPEN", 3)
    world = World(Limits(failures=1))
    world.topic("t", queues=5)
    world.group("t", "g")
    session = world.join()
    for queue in range(5):
        world.send("t", 1, queue=queue)
        pulled = world.pull(session, "t", "g", queue=queue)
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.DEAD)
    seconds(world, 5)
    assert len(told(world)) == 3
    # An event comes first: it cannot be found again.
    world.broker.alarms.raise_(world.now, DUE_UNREADABLE, "t", "x")
    assert len(world.broker.alarms.open) == 3
    assert world.broker.views.alarms.forgotten == 1
    seconds(world, 5)
    assert (DUE_UNREADABLE, "t") in names(world)
    assert len(told(world)) == 4


def test_one_that_is_cleared_while_its_reason_lasts_is_raised_again() -> None:
    world = World()
    world.broker.alarming.clock_gap_us = HOUR_US
    seconds(world, 2)
    assert world.broker.alarms.clear(world.now, CLOCK, "")
    seconds(world, 1)
    assert names(world) == [(CLOCK, "")]


def test_one_that_is_raised_again_stays_for_a_while_again() -> None:
    world = World()
    gap = world.broker.alarming
    world.broker.alarms.raise_(world.now, "parked", "7", "x")
    gap.clock_gap_us = HOUR_US
    seconds(world, 2)
    gap.clock_gap_us = 0
    seconds(world, 8)  # soon it would be cleared
    assert world.broker.alarms.clear(world.now, CLOCK, "")
    gap.clock_gap_us = HOUR_US
    world.broker.alarming.step(world.now)
    gap.clock_gap_us = 0
    seconds(world, 8)
    assert names(world) == [("parked", "7"), (CLOCK, "")]
    seconds(world, 4)
    assert names(world) == [("parked", "7")]


def test_a_text_is_cut_and_an_open_alarm_keeps_its_own() -> None:
    world = World()
    assert world.broker.alarms.raise_(world.now, "parked", "7", "x" * 1000)
    assert not world.broker.alarms.raise_(world.now, "parked", "7", "y")
    (alarm,) = world.broker.alarms.open.values()
    assert alarm.text == "x" * MOST_TEXT
    seconds(world, 30)
    assert names(world) == [("parked", "7")]  # nobody but who raised it knows its reason


def test_a_journal_without_room_for_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def full(self: Journal, *arguments: object, **named: object) -> None:
        raise JournalFull("no segment is ready")

    world.broker.alarming.clock_gap_us = HOUR_US
    monkeypatch.setattr(Journal, "append", full)
    assert world.broker.alarming.step(world.now) == 0
    monkeypatch.undo()
    assert names(world) == []
    assert world.broker.alarming.step(world.now) == 1
    assert names(world) == [(CLOCK, "")]


def test_a_body_of_before_is_an_alarm_that_was_raised() -> None:
    world = World(disk=MemoryDisk())
    world.broker.views.alarms.apply_alarm(8, 77, Alarm("disk", "full"))
    assert world.broker.alarms.open == {("disk", ""): Alarm("disk", "full", since_us=77)}
