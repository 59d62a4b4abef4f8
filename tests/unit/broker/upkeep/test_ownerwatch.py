"""Alarms about queues of groups with members: the owner does nothing, or there is none."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.ledger.alarms import OWNER_IDLE, UNOWNED
from ternmq.broker.upkeep import ownerwatch
from ternmq.broker.upkeep.alarming import CALM_US
from ternmq.broker.upkeep.ownerwatch import IDLE_US
from ternmq.model.assignments import Assignment
from ternmq.model.specs import Exhausted, Limits, Mode, RetryPolicy
from ternmq.model.types import HOUR_US
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World

IDLE_S: Final = IDLE_US // SECOND
CALM_S: Final = CALM_US // SECOND


def start(world: World, mode: Mode = Mode.OWNED, queues: int = 1, **settings: object) -> None:
    world.topic("t", queues=queues)
    world.group("t", "g", mode=mode, lease_us=HOUR_US, **settings)


def member(world: World, name: str = "") -> int:
    """Open a session that joins the group."""
    session = world.join()
    found = world.broker.views.catalog.subscription("t", "g")
    world.run(lambda: world.broker.membership.join(world.now, session, found, name))
    return session


def seconds(world: World, count: int) -> None:
    """Let time pass, a second at a time, as the shell does."""
    for _ in range(count):
        world.pass_time(SECOND)
        world.commit()


def opened(world: World) -> dict[tuple[str, str], str]:
    """Return the open alarms about owners, with their texts."""
    return {
        (key.name, key.subject): one.text
        for key, one in world.broker.alarms.open.items()
        if key.name in {OWNER_IDLE, UNOWNED}
    }


def pull(world: World, session: int, rows: int = 32, queue: int | None = None) -> PullReply:
    pulled = world.pull(session, "t", "g", rows, queue=queue)
    assert pulled is not None
    return pulled


# -- an owner that does nothing --------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.OWNED, Mode.EXCLUSIVE])
def test_an_owner_that_takes_nothing_is_an_alarm_until_it_does(mode: Mode) -> None:
    world = World()
    start(world, mode)
    session = member(world, "billing-1")
    seconds(world, IDLE_S + 5)
    assert not opened(world), "nothing waits"
    world.send("t", 5)
    seconds(world, IDLE_S - 5)
    assert not opened(world)
    seconds(world, 10)
    ((key, text),) = opened(world).items()
    assert key == (OWNER_IDLE, "t/g")
    assert text.startswith("messages wait in queue 0: its owner billing-1/c has taken")
    assert text.endswith("has taken and settled none of it for 10 minutes")
    pulled = pull(world, session, 2)
    seconds(world, CALM_S + 3)
    assert not opened(world)
    world.settle(session, "t", "g", pulled)
    world.drain(session, "t", "g")
    seconds(world, IDLE_S + 5)
    assert not opened(world)


def test_an_owner_that_settles_nothing_of_what_it_has_is_one_too() -> None:
    world = World()
    start(world)
    session = member(world)
    world.send("t", 5)
    pulled = pull(world, session, 2)
    seconds(world, IDLE_S - 5)
    world.settle(session, "t", "g", pulled, spans=[(0, 1)])  # slow, but at work
    seconds(world, IDLE_S - 5)
    assert not opened(world)
    seconds(world, 10)
    assert [key for key, _ in opened(world)] == [OWNER_IDLE]
    world.settle(session, "t", "g", pulled)
    seconds(world, CALM_S + 3)
    assert not opened(world)


def test_one_alarm_for_all_queues_of_a_group() -> None:
    world = World()
    start(world, queues=3)
    idle, busy = member(world, "idle"), member(world, "busy")
    seconds(world, 2)
    for queue in range(3):
        world.send("t", 900, queue=queue)
    for _ in range(IDLE_S + 5):
        seconds(world, 1)
        pulled = pull(world, busy, 1)
        world.settle(busy, "t", "g", pulled)
    ((key, text),) = opened(world).items()
    assert key == (OWNER_IDLE, "t/g")
    assert text.startswith("messages wait in queue 0 and 1 other queue: its owner idle/c has")
    world.drain(idle, "t", "g")
    seconds(world, CALM_S + 3)
    assert not opened(world)


def test_the_next_owner_has_its_own_ten_minutes() -> None:
    world = World()
    start(world, Mode.EXCLUSIVE)
    first, _ = member(world), member(world)
    world.send("t", 5)
    seconds(world, IDLE_S + 5)
    assert len(opened(world)) == 1
    world.leave(first)
    seconds(world, CALM_S + 3)
    assert not opened(world)
    seconds(world, IDLE_S)
    assert len(opened(world)) == 1


def test_the_alarm_says_that_all_members_are_switched_off() -> None:
    world = World()
    start(world, offline=("c",))
    member(world, "web")
    world.send("t", 5)
    seconds(world, IDLE_S + 5)
    ((key, text),) = opened(world).items()
    assert key == (UNOWNED, "t/g")
    assert text.endswith("all members of the group are switched off (`ternmq client online`)")
    world.change("t", "g", mode=Mode.OWNED, lease_us=HOUR_US, paused=True)
    seconds(world, CALM_S + 3)
    assert not opened(world), "a group that is paused gets nothing"


def test_a_queue_that_is_closed_does_not_wait_for_its_owner() -> None:
    """A failed row comes again in an hour, or is held; the failure store is full."""
    world = World(Limits(failures=1))
    retry = RetryPolicy(first_us=HOUR_US, factor=1.0, cap_us=HOUR_US, jitter=0.0, attempts=2)
    retry = replace(retry, exhausted=Exhausted.HOLD)
    start(world, retry=retry)
    session = member(world)
    world.send("t", 5)
    world.settle(session, "t", "g", pull(world, session, 1), Outcome.RETRY, reason="no")
    seconds(world, IDLE_S + 5)
    assert not opened(world)
    world.pass_time(HOUR_US)
    seconds(world, IDLE_S + 5)
    assert len(opened(world)) == 1, "it is due, and nobody takes it"
    world.settle(session, "t", "g", pull(world, session, 1), Outcome.RETRY, reason="no")
    seconds(world, IDLE_S + 5)
    assert not opened(world), "it is held"
    world.run(lambda: world.broker.operating.delete_failures(world.now, "t", "g", 0, [0]))
    world.settle(session, "t", "g", pull(world, session, 1), Outcome.DEAD, reason="no")
    seconds(world, IDLE_S + 5)
    assert world.progress("t", "g").cursor == 2
    assert not opened(world), "its failure store is full"


# -- a queue without an owner ----------------------------------------------------------------------


def test_messages_in_a_queue_that_no_member_may_own() -> None:
    world = World()
    start(world, queues=3, assign=(Assignment((0, 1), "billing-*"), Assignment((2,), "web-*")))
    for queue in range(3):
        world.send("t", 2, queue=queue)
    seconds(world, IDLE_S + 5)
    assert not opened(world), "a group without members is no reason: others say so"
    web = member(world, "web-1")
    world.drain(web, "t", "g")
    seconds(world, IDLE_S - 5)
    assert not opened(world)
    seconds(world, 10)
    ((key, text),) = opened(world).items()
    assert key == (UNOWNED, "t/g")
    assert text == (
        "messages wait in queue 0 and 1 other queue, which belongs to nobody: no assignment of the "
        "group fits one of its members"
    )
    billing = member(world, "billing-1")
    seconds(world, CALM_S + 5)
    assert not opened(world)
    world.drain(billing, "t", "g")
    world.broker.membership.leave(
        world.now, billing, world.broker.views.catalog.subscription("t", "g")
    )
    seconds(world, IDLE_S + 5)
    assert not opened(world), "no message waits"


# -- bounds ----------------------------------------------------------------------------------------


def test_a_look_does_a_bounded_piece_and_comes_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownerwatch, "LOOKS", 4)
    world = World()
    for name in ("a", "b", "c"):
        world.topic(name, queues=5)
        world.group(name, "g", mode=Mode.OWNED)
        for queue in range(5):
            world.send(name, 1, queue=queue)
        session = world.join()
        found = world.broker.views.catalog.subscription(name, "g")
        world.broker.membership.join(world.now, session, found)
    watch = ownerwatch.OwnerWatch(world.broker.ledger)
    looked: list[int] = []
    for _ in range(30):
        before = len(watch._next)
        watch.step(world.now)
        looked.append(len(watch._next) - before)
        if not watch._next:
            break
    assert all(one <= 4 for one in looked)
    assert len(watch._seen) == 15
    for _ in range(2):
        world.now += IDLE_US
        for _ in range(30):
            watch.step(world.now)
            if watch._at == (0, 0):
                break
    assert sorted(watch.idle) == ["a/g", "b/g", "c/g"]


def test_only_so_many_queues_are_watched_and_so_many_groups_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ownerwatch, "MOST_WATCHED", 6)
    monkeypatch.setattr(ownerwatch, "MOST_FOUND", 2)
    world = World()
    for name in ("a", "b", "c", "d"):
        world.topic(name, queues=2)
        world.group(name, "g", mode=Mode.EXCLUSIVE)
        for queue in range(2):
            world.send(name, 1, queue=queue)
        found = world.broker.views.catalog.subscription(name, "g")
        world.broker.membership.join(world.now, world.join(), found)
    watch = ownerwatch.OwnerWatch(world.broker.ledger)
    watch.step(world.now)
    assert len(watch._seen) == 6
    world.now += IDLE_US
    watch.step(world.now)
    assert sorted(watch.idle) == ["a/g", "b/g"]


@pytest.mark.parametrize("gone", ["group", "topic", "mode"])
def test_the_alarm_of_a_group_that_is_gone_is_cleared(gone: str) -> None:
    world = World()
    start(world)
    member(world)
    world.send("t", 5)
    seconds(world, IDLE_S + 5)
    assert len(opened(world)) == 1
    administration = world.broker.administration
    if gone == "group":
        world.run(lambda: administration.unsubscribe(world.now, "t", "g"))
    elif gone == "topic":
        world.run(lambda: administration.delete_topic(world.now, "t"))
    else:
        world.change("t", "g", mode=Mode.QUEUE_LOCK)
    seconds(world, CALM_S + 3)
    assert not opened(world)
    assert len(world.broker.views.catalog.joined) == 0


def test_times_begin_anew_at_a_start() -> None:
    world = World()
    start(world)
    member(world)
    world.send("t", 5)
    seconds(world, IDLE_S + 5)
    assert len(opened(world)) == 1
    world.commit()
    world.restart()
    assert len(opened(world)) == 1
    member(world)
    seconds(world, CALM_S + 3)
    assert not opened(world)
    seconds(world, IDLE_S)
    assert len(opened(world)) == 1
