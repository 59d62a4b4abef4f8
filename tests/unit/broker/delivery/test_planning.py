"""Rows that cannot be read: groups that must read rows before they hand them out go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ternmq.broker.delivery.planning import PATIENCE_US
from ternmq.broker.operation.broadcasting import InstanceAsked
from ternmq.broker.query.messages import Queries
from ternmq.journal.index.tail import Places
from ternmq.model.errors import CorruptJournal, DiskReadError
from ternmq.model.specs import Exhausted, Mode, instance_group
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.delivery.test_expiry import check_restart, damage, dead
from tests.unit.broker.kit import SECOND, STEADY, World, offsets


def by_key(world: World) -> None:
    world.topic("t", ordered=True)
    world.group("t", "g")


def by_header(world: World) -> None:
    world.topic("t")
    world.group("t", "g", filter="a = '1'")


def by_tag(world: World) -> None:
    world.topic("t")
    world.group("t", "g", tags="red")


KINDS = [by_key, by_header, by_tag]


def send(world: World, *after: int) -> None:
    """Send a batch whose rows expire after so many seconds; 0: never."""
    ordered = world.broker.views.catalog.topic("t").spec.ordered
    world.send(
        "t",
        [
            Row(
                body=b"row %d" % world._serial(),
                ordering_key="k" if ordered else "",
                tag="red",
                headers={"a": "1"},
                expiry_us=world.now + one * SECOND if one else 0,
            )
            for one in after
        ],
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("last", [0, 90])
def test_a_damaged_batch_does_not_stop_a_group(kind: Callable[[World], None], last: int) -> None:
    """With and without expiry."""
    world = World()
    kind(world)
    session = world.join()
    send(world, 0, 0)
    send(world, last, 0, 0)
    send(world, 0, last)
    damage(world, 2, CorruptJournal)
    world.now += SECOND
    pulled = world.pull(session, "t", "g")
    assert offsets(pulled) == [0, 1]
    assert pulled is not None
    world.settle(session, "t", "g", pulled)
    with pytest.raises(CorruptJournal):
        world.pull(session, "t", "g")
    assert dead(world) == {2: (0, 0), 3: (0, 0), 4: (0, 0)}
    assert world.drain(session, "t", "g") == [5, 6]
    check_restart(world)
    session = world.join()
    send(world, 0)
    assert world.drain(session, "t", "g") == [7]
    assert sorted(dead(world)) == [2, 3, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_expired_rows_before_a_damaged_batch_are_recorded(kind: Callable[[World], None]) -> None:
    """They were recorded again and again in a loop of errors, or not at all."""
    world = World()
    kind(world)
    session = world.join()
    send(world, 1, 1)
    send(world, 1, 0)
    send(world, 1, 0)
    damage(world, 2, CorruptJournal)
    world.now += 2 * SECOND
    got: list[int] = []
    errors = 0
    for _ in range(6):
        try:
            pulled = world.pull(session, "t", "g", 1)
        except CorruptJournal:
            errors += 1
            continue
        got += offsets(pulled)
        if pulled is not None:
            world.settle(session, "t", "g", pulled)
    assert got == [5]
    assert errors == 1
    assert sorted(dead(world)) == [0, 1, 2, 3, 4]
    check_restart(world)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_fails_is_given_time(kind: Callable[[World], None]) -> None:
    world = World()
    kind(world)
    session = world.join()
    send(world, 0, 0)
    send(world, 0)
    get, time_us = world.broker.store.get, world.broker.store.time_us
    damage(world, 0, DiskReadError)
    for _ in range(PATIENCE_US // (30 * SECOND)):
        with pytest.raises(DiskReadError):
            world.pull(session, "t", "g")
        assert not dead(world)
        world.now += 30 * SECOND
    broken = world.broker.store.get
    world.broker.store.get, world.broker.store.time_us = get, time_us  # type: ignore[method-assign]
    pulled = world.pull(session, "t", "g", 1)
    assert offsets(pulled) == [0]
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RELEASED)
    world.drain(session, "t", "g")
    send(world, 0, 0)
    send(world, 0)
    world.broker.store.get = broken  # type: ignore[method-assign]
    damage(world, 3, DiskReadError)
    for _ in range(PATIENCE_US // (30 * SECOND) + 1):
        with pytest.raises(DiskReadError):
            world.pull(session, "t", "g")
        world.now += 30 * SECOND
    assert world.drain(session, "t", "g") == [5]
    assert sorted(dead(world)) == [3, 4]


def test_a_group_that_holds_keys_stops() -> None:
    world = World()
    world.topic("t", ordered=True)
    world.group("t", "g", retry=replace(STEADY, exhausted=Exhausted.HOLD))
    session = world.join()
    send(world, 0)
    send(world, 0)
    damage(world, 0, CorruptJournal)
    for _ in range(3):
        with pytest.raises(CorruptJournal):
            world.pull(session, "t", "g")
        world.now += PATIENCE_US
    assert not dead(world)
    world.run(lambda: world.broker.operating.skip(world.now, "t", "g", 0, 1))
    assert world.drain(session, "t", "g") == [1]


def test_other_queues_come_before_the_next_attempt() -> None:
    world = World()
    world.topic("t", queues=2)
    world.group("t", "g", filter="a = '1'")
    session = world.join()
    for queue in range(2):
        world.send("t", [Row(body=b"x", headers={"a": "1"})], queue=queue)
    damage(world, 0, DiskReadError)
    got: list[int] = []
    for _ in range(3):
        try:
            pulled = world.pull(session, "t", "g")
        except DiskReadError:
            continue
        if pulled is not None:
            got.append(pulled.queue)
    assert got == [1]


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.OWNED])
def test_a_queue_whose_index_cannot_be_read_does_not_keep_back_others(
    mode: Mode, levels: int
) -> None:
    world = World()
    world.topic("t", queues=2 // levels, levels=levels)
    world.group("t", "g", mode=mode)
    session = world.join()
    found = world.broker.views.catalog.subscription("t", "g")
    world.broker.membership.join(world.now, session, found)
    for queue in range(2):
        world.send("t", [Row(body=b"x", priority=queue if levels > 1 else 0)], queue=queue)
    bad = levels - 1  # which is tried first
    locate = world.broker.index.locate

    def failing(topic: int, queue: int, *more: int) -> Places:
        if queue == bad:
            raise DiskReadError("damaged")
        return locate(topic, queue, *more)

    world.broker.index.locate = failing  # type: ignore[method-assign, assignment]
    got: list[int] = []
    for _ in range(3):
        try:
            pulled = world.pull(session, "t", "g")
        except DiskReadError:
            continue
        if pulled is not None:
            got.append(pulled.queue)
    assert got == [1 - bad]


def test_the_reason_says_what_cannot_be_read() -> None:
    world = World()
    world.topic("t", ordered=True)
    world.group("t", "g")
    session = world.join()
    send(world, 0)
    damage(world, 0, CorruptJournal)
    with pytest.raises(CorruptJournal):
        world.pull(session, "t", "g")
    page = Queries(world.broker.ledger).dead_letters("t", "g", 0, after=-1, limit=10)
    assert [one.failures[-1].reason for one in page.rows] == [b"damaged"]


def test_a_damaged_batch_is_done_in_a_broadcast_instance() -> None:
    """It has no dead letters."""
    world = World()
    world.topic("t")
    session = world.join()
    asked = InstanceAsked(filter="a = '1'")
    world.broker.broadcasting.join(world.now, session, "t", "i", asked)
    group = instance_group("i", session)
    send(world, 0, 0)
    send(world, 0)
    damage(world, 0, CorruptJournal)
    with pytest.raises(CorruptJournal):
        world.pull(session, "t", group)
    assert world.drain(session, "t", group) == [2]
    (progress,) = world.broker.views.catalog.subscription("t", group).queues
    assert (progress.cursor, progress.failures.dead_rows) == (3, 0)
    check_restart(world)
