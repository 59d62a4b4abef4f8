"""Holds: what they keep, how they move, and that every STATE moment keeps them."""

from __future__ import annotations

import pytest

from ternmq.broker.metrics import metrics
from ternmq.journal.log.retention import Decision, QueueShare, RetentionSpec, judge
from ternmq.model.errors import Busy, DiskFull, InvalidName, InvalidRequest
from ternmq.model.specs import Limits
from tests.unit.broker.kit import World, explore
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, Kept, pressed


def put(world: World, name: str, position: int, **more: object) -> int:
    holding = world.broker.holding
    reply = world.run(lambda: holding.put(world.now, name, position, **more))  # type: ignore[arg-type]
    assert isinstance(reply.value, int)
    return reply.value


def drop(world: World, name: str) -> None:
    world.run(lambda: world.broker.holding.delete(world.now, name))


def test_holds_are_kept_at_every_moment_of_a_set() -> None:
    def scenario(world: World) -> None:
        put(world, "archive", 8)
        put(world, "audit", 0, note="who did it", app="auditor")
        put(world, "archive", 96)
        put(world, "gone", 8)
        drop(world, "gone")
        put(world, "archive", 48)
        put(world, "audit", 56)
        put(world, "audit", 16, back=True)
        holds = world.broker.views.holds
        assert {one.name: one.position for one in holds.values()} == {"archive": 96, "audit": 16}
        assert (holds["audit"].note, holds["audit"].app) == ("who did it", "")
        assert world.broker.holding.lowest == 16

    explore(scenario)


def test_when_it_moved_and_when_not() -> None:
    world = World()
    begun = world.now
    put(world, "archive", 8)
    world.pass_time(1000)
    put(world, "archive", 8, note="now with a note")
    hold = world.broker.views.holds["archive"]
    assert (hold.created_us, hold.moved_us, hold.note) == (begun, begun, "now with a note")
    put(world, "archive", 16)
    hold = world.broker.views.holds["archive"]
    assert (hold.created_us, hold.moved_us, hold.note) == (begun, world.now, "now with a note")
    end = world.broker.journal.end
    put(world, "archive", 16)
    put(world, "archive", 0)
    assert world.broker.journal.end == end, "what changes nothing is not recorded"


def test_what_is_refused() -> None:
    world = World(Limits(holds=2))
    end = world.broker.journal.end
    put(world, "a", end)
    with pytest.raises(InvalidRequest, match="where the journal ends"):
        put(world, "b", world.broker.journal.end + 1)
    with pytest.raises(InvalidRequest):
        put(world, "b", -1)
    with pytest.raises(InvalidName):
        put(world, "a b", 0)
    with pytest.raises(InvalidRequest, match="note"):
        put(world, "b", 0, note="x" * 201)
    put(world, "b", 0)
    with pytest.raises(Busy, match="2 holds"):
        put(world, "c", 0)
    put(world, "a", 0, back=True)
    drop(world, "b")
    drop(world, "b")
    put(world, "c", 0)


def test_a_hold_keeps_the_journal_and_then_sends_are_refused() -> None:
    kept = pressed()
    kept.topic("t", keep_until_consumed=False)
    put(kept, "archive", 0)
    with pytest.raises(DiskFull):
        kept.grow("t", 1)
    moving = kept.started.upkeep.moving
    assert moving.removed_segments == 0
    assert moving.judging.blocked_by_hold
    numbers = {one.name: one.value for one in metrics(kept.broker, kept.started.upkeep)}
    assert (numbers["holds"], numbers["holds_blocking"], numbers["sends_blocked"]) == (1, 1, 1)
    assert numbers["journal_room"] == 0
    assert numbers["hold_lag_bytes"] >= 3 * SEGMENT
    put(kept, "archive", 2 * SEGMENT)
    for _ in range(200):
        kept.turn()
    kept.grow("t", 1)
    assert kept.broker.journal.first <= 2 * SEGMENT
    while kept.broker.journal.first < 2 * SEGMENT:
        kept.grow("t", 1)
    with pytest.raises(DiskFull):
        kept.grow("t", 1)
    assert kept.broker.journal.first == 2 * SEGMENT
    drop(kept, "archive")
    for _ in range(200):
        kept.turn()
    kept.grow("t", 3)
    assert not moving.judging.blocked_by_hold


def test_a_hold_that_comes_while_a_segment_is_judged_counts() -> None:
    """Also one that comes when all is judged and only its durability is waited for."""
    kept = Kept(RetentionSpec())
    kept.topic("t", keep_until_consumed=False, retention_us=1)
    moving = kept.started.upkeep.moving
    for _ in range(3000):
        kept.send("t", 5, commit=False)
        kept.pass_time(10_000)
        kept.started.upkeep.step(kept.now, lambda: True)
        if moving._active:
            break
        kept.turn()
    assert moving._active
    first = kept.broker.journal.first
    put(kept, "archive", 0)
    for _ in range(300):
        kept.turn()
    assert kept.broker.journal.first == first
    assert not kept.broker.ledger.room.blocked, "there is no pressure: nothing is refused"


def test_below_the_oldest_it_stands_at_the_oldest() -> None:
    kept = pressed()
    kept.topic("t", keep_until_consumed=False)
    kept.grow("t", 2)
    first = kept.broker.journal.first
    assert first
    assert put(kept, "archive", 0) == first
    assert put(kept, "archive", first + 8) == first + 8
    assert put(kept, "archive", 0, back=True) == first


class _Nothing:
    def retention_us(self, topic: int) -> int:
        return 100

    def unread_below(self, share: QueueShare) -> bool:
        return False


@pytest.mark.parametrize(
    ("held_from", "pressure", "age", "verdict"),
    [
        (None, False, 1000, Decision.REMOVE),
        (4096, False, 1000, Decision.REMOVE),
        (4095, False, 1000, Decision.KEEP),
        (0, True, 0, Decision.REFUSE),
        (4095, True, 1000, Decision.REFUSE),
        (4096, True, 0, Decision.REMOVE),
        (0, False, 0, Decision.KEEP),
    ],
)
def test_the_verdict(held_from: int | None, pressure: bool, age: int, verdict: Decision) -> None:
    found = judge(
        _Nothing(),
        [QueueShare(1, 0, 5)],
        end=4096,
        last_us=10_000 - age,
        held_from=held_from,
        now_us=10_000,
        pressure=pressure,
    )
    assert found.verdict is verdict
