"""Nothing that looks or ticks goes over all topics, groups, apps or sessions (DESIGN, growth)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn, TypeVar

from ternmq.broker.catalog.catalog import Waiter
from ternmq.broker.catalog.gone import Sort
from ternmq.broker.containers.tokens import Tokens
from ternmq.broker.metrics import metrics
from ternmq.broker.query.listings import Listings, TransactionPlace
from ternmq.broker.query.messages import Queries
from ternmq.broker.query.names import names
from ternmq.broker.query.sight import EVERYTHING
from ternmq.broker.upkeep.upkeep import Upkeep
from ternmq.model.types import HOUR_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.control import App
from ternmq.record.fact.facts import Outcome
from ternmq.server.metrics.groups import GroupSeries
from tests.unit.broker.kit import SECOND, World

K = TypeVar("K")
V = TypeVar("V")


class NoWalk(dict[K, V]):
    """Can be asked for one, and for how many, and not be walked."""

    def __iter__(self) -> Iterator[K]:
        raise AssertionError("this walks over everything")

    def _walk(self) -> NoReturn:
        raise AssertionError("this walks over everything")

    keys = values = items = _walk


class NoWalkTokens(Tokens[V]):
    """The same of values by token."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("this walks over everything")

    def values(self) -> Iterator[V]:
        raise AssertionError("this walks over everything")


def guarded(world: World) -> None:
    """Have every walk over a view of the broker fail."""
    views, parking = world.broker.views, world.broker.parking
    waiters: Tokens[Waiter] = NoWalkTokens()
    for waiter in parking.waiters.values():
        waiters.add(waiter.token, waiter)
    parking.waiters = parking._deadlines._living = waiters
    owners: list[tuple[Any, str]] = [
        (views, "progress"),
        (views.catalog, "topics"),
        (views.catalog, "by_name"),
        (views.catalog, "groups"),
        (views.catalog, "apps"),
        (views.sessions, "by_number"),
        (views.gone, "entries"),
        (views.writers, "by_name"),
        (views.schedule, "topics"),
        (views.catalog.joined, "_shares"),
        (views.catalog.instances, "_session_of"),
    ]
    for owner, name in owners:
        setattr(owner, name, NoWalk(getattr(owner, name)))


def busy() -> World:
    """Return a broker with some of everything."""
    world = World()
    for number in range(5):
        world.topic(f"t{number}")
        world.group(f"t{number}", "g")
        world.send(f"t{number}", 6)
        made = App(
            name=f"app-{number}", salt=bytes(16), hash=bytes(32), owner="", created_us=0, grants=()
        )
        world.run(partial(world.broker.administration.put_app, world.now, made))
    return world


def test_sums_and_lists_do_not_walk() -> None:
    world = busy()
    upkeep = Upkeep(
        world.broker.ledger,
        world.broker.state_sets,
        world.broker.fulfilling,
        world.broker.expiring,
        world.disk,
    )
    session = world.join()
    world.pull(session, "t2", "g", 4)
    world.prepare("t1", 2)
    guarded(world)
    found = {one.name: one.value for one in metrics(world.broker, upkeep)}
    assert (found["leased_rows"], found["topics"], found["group_queues"]) == (4, 5, 5)
    listed = Listings(world.broker.ledger)
    assert len(listed.topics(limit=2).topics) == 2
    assert len(listed.topics(["t4", "t1"]).topics) == 2
    assert len(listed.groups(limit=2).groups) == 2
    assert len(listed.groups(group="g", limit=2).groups) == 2
    assert len(listed.places(3, EVERYTHING).groups) == 3
    assert len(listed.apps(limit=2).apps) == 2
    assert len(listed.sessions(limit=2).sessions) == 1
    assert len(listed.transactions(None, None, 5, TransactionPlace(0, "")).writers) == 1
    for sort in Sort:
        names(world.broker.ledger, sort, 0, 0, 3)
    assert not GroupSeries(Queries(world.broker.ledger), 100).step()


def test_time_and_the_end_of_sessions_do_not_walk() -> None:
    world = busy()
    leaves, goes, waits = (world.join(name) for name in ("leaves", "goes", "waits"))
    for session, topic in ((leaves, "t1"), (goes, "t2")):
        pulled = world.pull(session, topic, "g", 4)
        assert pulled is not None
        world.settle(session, topic, "g", pulled, Outcome.DEAD, [(0, 1)])
        world.settle(session, topic, "g", pulled, Outcome.RETRY, [(1, 2)])
    world.drain(waits, "t3", "g")
    world.park(waits, "t3", "g")
    guarded(world)
    world.leave(leaves)
    figures = world.broker.views.figures
    assert list(figures.by_session) == [goes]
    world.broker.clients.disconnected(world.now, goes)
    world.broker.clients.disconnected(world.now, waits)
    assert world.broker.parked_pulls == 0
    for _ in range(40):
        world.pass_time(SECOND)
    figures.settle()
    assert goes not in figures.by_session
    assert figures.dead == 2
    world.pass_time(world.options.limits.dead_letter_us + SECOND)
    world.pass_time(SECOND)
    figures.settle()
    assert figures.dead == 0, "dead letters expire, with no walk over those who have none"


def test_rows_that_come_due_do_not_walk() -> None:
    world = busy()
    for number, hours in ((1, 0.1), (2, 5), (3, 50)):
        world.send(f"t{number}", [Row(body=b"due", due_us=world.now + round(hours * HOUR_US))])
    guarded(world)
    for _ in range(60):
        world.pass_time(HOUR_US)
    assert world.broker.views.schedule.rows == 0
