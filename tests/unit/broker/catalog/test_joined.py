"""Metrics of the catalog: members, instances, clients that are off, topics with expiring rows."""

from __future__ import annotations

import random
from functools import partial

from ternmq.broker.metrics import metrics
from ternmq.broker.operation.broadcasting import InstanceAsked
from ternmq.broker.upkeep.upkeep import Upkeep
from ternmq.model.assignments import Assignment
from ternmq.model.specs import Limits, Mode
from ternmq.model.types import DAY_US
from ternmq.record.batch.batch import Row
from tests.unit.broker.kit import SECOND, World

MEMBERSHIP = ("members", "unowned_queues")
INSTANCES = (
    "broadcast_instances", "broadcast_instances_connected", "broadcast_instances_kept"
)  # fmt: skip


def values(world: World, *names: str) -> tuple[int, ...]:
    """Return metrics of the broker."""
    upkeep = Upkeep(
        world.broker.ledger,
        world.broker.state_sets,
        world.broker.fulfilling,
        world.broker.expiring,
        world.disk,
    )
    found = {one.name: one.value for one in metrics(world.broker, upkeep)}
    return tuple(found[name] for name in names)


def walked(world: World) -> tuple[int, int]:
    """Return the members, and the queues without an owner, of all groups with members."""
    groups = world.broker.views.catalog.groups.values()
    members = unowned = 0
    for one in groups:
        if one.owners is not None and one.owners.members:
            members += len(one.owners.members)
            unowned += sum(not one.owners.owner(queue) for queue in range(len(one.queues)))
    return members, unowned


def test_sums_of_members_are_those_of_a_walk() -> None:
    chance = random.Random(3)
    world = World()
    broker = world.broker
    for topic in "abc":
        world.topic(topic, queues=3)
    sessions = [world.join() for _ in range(4)]
    seen: set[tuple[int, int]] = set()
    for step in range(400):
        topic = chance.choice("abc")
        found = broker.views.catalog.topic(topic)
        one = found.by_group.get("g")
        act = chance.randrange(9)
        if one is None:
            mode = chance.choice((Mode.OWNED, Mode.EXCLUSIVE))
            assign = (Assignment((0, 1), "x*"),) if mode is Mode.OWNED and step % 2 else ()
            world.group(topic, "g", mode=mode, assign=assign)
        elif act < 5:
            name = chance.choice("xy")
            broker.membership.join(world.now, chance.choice(sessions), one, name)
        elif act == 5:
            broker.membership.leave(world.now, chance.choice(sessions), one)
        elif act == 6:
            gone = chance.choice(sessions)
            world.leave(gone)
            sessions[sessions.index(gone)] = world.join()
        elif act == 7:
            mode = chance.choice((Mode.SHARED, Mode.OWNED, Mode.EXCLUSIVE))
            world.change(topic, "g", mode=mode, assign=())
        elif chance.random() < 0.5:
            broker.administration.unsubscribe(world.now, topic, "g")
        else:
            broker.administration.delete_topic(world.now, topic)
            world.topic(topic, queues=chance.choice((2, 3)))
        world.pass_time(chance.choice((0, SECOND)))
        now = values(world, *MEMBERSHIP)
        assert now == walked(world)
        seen.add((now[0], now[1]))
    assert len(seen) > 20


def test_new_queues_count_at_once() -> None:
    world = World()
    world.topic("t", queues=2)
    world.group("t", "g", mode=Mode.OWNED, assign=(Assignment((0, 1), "*"),))
    found = world.broker.views.catalog.subscription("t", "g")
    assert values(world, *MEMBERSHIP) == (0, 0)
    world.broker.membership.join(world.now, world.join(), found)
    assert values(world, *MEMBERSHIP) == (1, 0)
    spec = world.broker.views.catalog.topic("t").spec
    named = {field: getattr(spec, field) for field in spec.__struct_fields__}
    longer = type(spec)(**(named | {"queues": 5}))
    world.run(lambda: world.broker.administration.change_topic(world.now, longer))
    assert values(world, *MEMBERSHIP) == (1, 3) == walked(world)


def test_instances_are_connected_or_kept() -> None:
    world = World(Limits(instances=3))
    world.topic("t")
    broker = world.broker

    def come(name: str) -> int:
        session = world.join()
        broker.broadcasting.join(world.now, session, "t", name, InstanceAsked())
        return session

    one, _, unnamed = come("one"), come("two"), come("")
    assert values(world, *INSTANCES) == (3, 3, 0)
    world.leave(one)
    world.leave(unnamed)
    world.pass_time(SECOND)
    assert values(world, *INSTANCES) == (2, 1, 1)
    world.commit()
    world.restart()
    broker = world.broker
    assert values(world, *INSTANCES) == (2, 1, 1)
    come("one")
    assert values(world, *INSTANCES) == (2, 2, 0)
    for _ in range(60):
        world.pass_time(SECOND)
    world.pass_time(7 * DAY_US)
    for _ in range(20):
        world.pass_time(SECOND)
    assert values(world, *INSTANCES)[2] == 0


def test_topics_with_messages_that_expire_are_counted_until_they_are_deleted() -> None:
    world = World()
    for topic in "tu":
        world.topic(topic)
        world.group(topic, "g")
    world.topic("v", expires_us=SECOND)
    assert values(world, "expiring_topics") == (1,)
    world.send("t", [Row(b"x", expiry_us=world.now + SECOND)])
    world.send("u", [Row(b"x")])
    assert values(world, "expiring_topics") == (2,)
    world.restart()
    assert values(world, "expiring_topics") == (2,)
    delete_topic = world.broker.administration.delete_topic
    for topic in "tv":
        world.run(partial(delete_topic, world.now, topic))
    assert values(world, "expiring_topics") == (0,)


def test_clients_that_are_off_are_counted_by_the_entries_of_all_groups() -> None:
    world = World()
    world.topic("t")
    world.topic("u")
    world.group("t", "g", offline=("a", "b"))
    world.group("u", "g")
    world.group("u", "h", offline=("a",))
    assert values(world, "offline_clients") == (3,)
    world.change("u", "g", offline=("a", "b", "c"))
    world.change("t", "g", offline=("a",))
    assert values(world, "offline_clients") == (5,)
    world.commit()
    world.restart()
    assert values(world, "offline_clients") == (5,)
    world.run(lambda: world.broker.administration.unsubscribe(world.now, "u", "h"))
    assert values(world, "offline_clients") == (4,)
    world.run(lambda: world.broker.administration.delete_topic(world.now, "u"))
    assert values(world, "offline_clients") == (1,)
