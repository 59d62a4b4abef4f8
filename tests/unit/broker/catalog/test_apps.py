"""Apps and reports: what is recorded, what is refused, and that every STATE moment keeps them."""

from __future__ import annotations

from functools import partial

import pytest

from ternmq.broker.catalog.catalog import APP_PAGES, app_page
from ternmq.broker.query.listings import Listings
from ternmq.model.errors import (
    Busy,
    InvalidName,
    InvalidRequest,
    UnknownApp,
    UnknownSession,
    UnknownTopic,
)
from ternmq.model.specs import Limits
from ternmq.record.fact import control
from ternmq.record.fact.control import BUCKET_US, App, Count, Counts, Grant, SequenceRange
from ternmq.record.fact.header import Kind
from tests.unit.broker.kit import START_US, World, explore, reopened

BUCKET = START_US // BUCKET_US * BUCKET_US


def app(name: str = "shop", *, token: int = 0, grants: tuple[Grant, ...] = ()) -> App:
    return App(name, "somebody", bytes([token]) * 16, bytes([token]) * 32, grants, START_US)


def put(world: World, one: App) -> None:
    reply = world.run(lambda: world.broker.administration.put_app(world.now, one))
    assert reply.position == world.end


def drop(world: World, name: str) -> None:
    reply = world.run(lambda: world.broker.administration.delete_app(world.now, name))
    assert reply.position == world.end


def test_apps_are_kept_at_every_moment_of_a_set() -> None:
    first, second = [name for name in map(str, range(5000)) if app_page(name) == 7][:2]

    def scenario(world: World) -> None:
        put(world, app("shop"))
        put(world, app(first))
        put(world, app("shop", token=1, grants=(Grant("produce", "orders.*"),)))
        put(world, app(second, grants=(Grant("consume", "a", "b", deny=True),)))
        drop(world, first)
        put(world, app("billing"))
        drop(world, "billing")
        put(world, app(first, token=2))
        apps = world.broker.views.catalog.apps
        assert set(apps) == {"shop", first, second}
        assert apps["shop"].hash == b"\1" * 32
        assert apps[first].hash == b"\2" * 32

    explore(scenario)


def test_apps_are_there_after_a_restart_and_gone_ones_are_not() -> None:
    world = World(state_from=1)
    put(world, app("shop", grants=(Grant("manage"),)))
    put(world, app("gone"))
    world.restart(clean=True)
    drop(world, "gone")
    world.restart()
    assert world.broker.views.catalog.apps == {"shop": app("shop", grants=(Grant("manage"),))}


def test_pages_of_names_are_small_and_many() -> None:
    sizes = [0] * APP_PAGES
    for number in range(10_000):
        sizes[app_page(f"team-{number}.service")] += 1
    assert max(sizes) < 40


def test_an_app_that_is_not_there_cannot_be_deleted() -> None:
    world = World()
    with pytest.raises(UnknownApp):
        world.broker.administration.delete_app(world.now, "shop")
    put(world, app())
    drop(world, "shop")
    with pytest.raises(UnknownApp):
        world.broker.administration.delete_app(world.now, "shop")


def test_there_is_a_limit_of_apps_but_those_that_are_there_may_change() -> None:
    world = World(Limits(apps=2))
    put(world, app("a"))
    put(world, app("b"))
    with pytest.raises(Busy):
        world.broker.administration.put_app(world.now, app("c"))
    put(world, app("b", token=1))
    drop(world, "a")
    put(world, app("c"))


@pytest.mark.parametrize(
    "wrong",
    [
        App("shop", "", b"", bytes(32), (), 0),
        App("shop", "", bytes(16), bytes(31), (), 0),
        App("shop", "a\nb", bytes(16), bytes(32), (), 0),
        App("shop", "x" * 201, bytes(16), bytes(32), (), 0),
        app(grants=(Grant("admin"),)),
        app(grants=(Grant("produce", ""),)),
        app(grants=(Grant("produce", "a*b"),)),
        app(grants=(Grant("produce", "**"),)),
        app(grants=(Grant("produce", "a\n*"),)),
        app(grants=(Grant("consume", "a", "b c"),)),
        app(grants=(Grant("produce", "a", "b"),)),
        app(grants=(Grant("produce", "x" * 128),)),
        app(grants=(Grant("manage"),) * 257),
    ],
)
def test_what_no_app_may_look_like(wrong: App) -> None:
    world = World()
    before = world.broker.journal.end
    with pytest.raises(InvalidRequest):
        world.broker.administration.put_app(world.now, wrong)
    assert world.broker.journal.end == before


@pytest.mark.parametrize("name", ["", "..", "../x", "a b", "a\n", "ａpp", "a\0", "x" * 128, "$x"])
def test_names_of_apps_are_names(name: str) -> None:
    world = World()
    with pytest.raises(InvalidName):
        world.broker.administration.put_app(world.now, app(name))


def reports(world: World) -> list[Counts]:
    world.broker.journal.flush()
    broker = reopened(world)
    found: list[Counts] = []
    position = 0
    while position < world.broker.journal.end:
        record = broker.store.get(position)
        if record[13] == Kind.COUNTS:
            found.append(control.unpack_counts(record[48:]))
        position += int.from_bytes(record[8:12], "little")
    return found


def test_a_report_is_one_record_and_changes_no_view() -> None:
    world = World()
    number = world.topic("t")
    session = world.join()
    entries = [
        Count(BUCKET - BUCKET_US, 10, 0),
        Count(BUCKET, 2**64 - 1, 3, 8, 2**64 - 1, True, (SequenceRange(8, 11),), 1),
    ]
    reply = world.run(lambda: world.broker.clients.report(world.now, session, "t", 7, entries))
    assert reply.position == world.end
    assert reports(world) == [Counts(7, number, tuple(entries))]


def test_a_report_needs_a_session_and_a_topic() -> None:
    world = World()
    world.topic("t")
    session = world.join()
    entries = [Count(BUCKET, 1, 0)]
    with pytest.raises(UnknownSession):
        world.broker.clients.report(world.now, session + 1, "t", 7, entries)
    with pytest.raises(UnknownTopic):
        world.broker.clients.report(world.now, session, "u", 7, entries)


def test_a_report_of_a_deleted_topic_names_its_number() -> None:
    world = World()
    gone = world.topic("t")
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    session = world.join()
    clients, entries = world.broker.clients, [Count(BUCKET, 1, 0)]
    with pytest.raises(UnknownTopic):
        clients.report(world.now, session, "t", 7, entries)
    with pytest.raises(UnknownTopic):
        clients.report(world.now, session, "u", 7, entries, topic_number=gone)
    world.run(lambda: clients.report(world.now, session, "t", 7, entries, topic_number=gone))
    there = world.topic("t")
    for number in (0, there, gone):
        asked = partial(clients.report, world.now, session, "t", 7, entries, topic_number=number)
        world.run(asked)
    with pytest.raises(UnknownTopic):
        clients.report(world.now, session, "t", 7, entries, topic_number=there + 1)
    assert [one.topic for one in reports(world)] == [gone, there, there, gone]


@pytest.mark.parametrize(
    ("producer", "entries"),
    [
        (7, []),
        (7, [Count(BUCKET, 1, 0)] * 1001),
        (7, [Count(BUCKET + 1, 1, 0)]),
        (7, [Count(-BUCKET_US, 1, 0)]),
        (7, [Count(BUCKET, -1, 0)]),
        (7, [Count(BUCKET, 0, 2**64)]),
        (7, [Count(BUCKET_US << 62, 0, 0)]),
        (7, [Count(BUCKET, 1, 0, 3, 2)]),
        (7, [Count(BUCKET, 1, 0, left_out=-1)]),
        (7, [Count(BUCKET, 1, 0, 0, 2**64)]),
        (7, [Count(BUCKET, 1, 1, 0, 9, runs=(SequenceRange(3, 3),))]),
        (7, [Count(BUCKET, 1, 1, 0, 9, runs=(SequenceRange(3, 4),) * 1001)]),
        (2**64, [Count(BUCKET, 1, 0)]),
        (-1, [Count(BUCKET, 1, 0)]),
    ],
)
def test_what_no_report_may_say(producer: int, entries: list[Count]) -> None:
    world = World()
    world.topic("t")
    session = world.join()
    before = world.broker.journal.end
    with pytest.raises(InvalidRequest):
        world.broker.clients.report(world.now, session, "t", producer, entries)
    assert world.broker.journal.end == before


def test_apps_are_listed_by_name() -> None:
    world = World()
    for name in ("b", "c", "a"):
        put(world, app(name))
    page = Listings(world.broker.ledger).apps()
    assert [one.name for one in page.apps] == ["a", "b", "c"]
    assert page.position == world.end
