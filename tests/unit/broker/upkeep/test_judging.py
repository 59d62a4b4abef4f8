"""The oldest segment is judged queue by queue, in pieces, and no longer than it takes."""

from __future__ import annotations

import pytest

from ternmq.broker.upkeep import judging
from ternmq.broker.upkeep.oldestsegment import OldestSegment
from ternmq.journal.log.retention import QueueShare, RetentionSpec
from tests.unit.broker.kit import SECOND
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, Kept


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queues were asked in each piece."""
    found: list[int] = []
    shares_of = OldestSegment.shares_of

    def counting(self: OldestSegment, keys: list[int]) -> list[QueueShare]:
        found.append(len(keys))
        return shares_of(self, keys)

    monkeypatch.setattr(judging, "SHARES_A_LOOK", 4)
    monkeypatch.setattr(judging, "JUDGED_A_STEP", 2)
    monkeypatch.setattr(OldestSegment, "shares_of", counting)
    return found


def world_of(topics: int, **settings: object) -> Kept:
    world = Kept(RetentionSpec())
    for number in range(topics):
        world.topic(f"t{number}", **settings)
        world.send(f"t{number}", 1)
    return world


def test_of_many_queues_few_are_asked_when_the_first_keeps_the_segment(asked: list[int]) -> None:
    world = world_of(30)
    for _ in range(400):
        world.send("t0", 5)
        world.turn()
    assert world.broker.writer.removable_below() > SEGMENT
    assert world.broker.journal.first == 0
    asked.clear()
    world.turn(SECOND)
    assert asked == [4]


def test_a_segment_goes_when_all_of_many_queues_were_asked(asked: list[int]) -> None:
    world = world_of(30, retention_us=20 * SECOND)
    world.grow("t0", 1)
    assert asked.count(4) >= 7  # 30 queues


def test_one_of_many_queues_that_is_unread_keeps_the_segment(asked: list[int]) -> None:
    world = world_of(29, retention_us=20 * SECOND)
    world.topic("kept", retention_us=20 * SECOND)
    world.group("kept", "g")
    world.send("kept", 1)
    for _ in range(400):
        world.send("t0", 5)
        world.turn(100_000)
    assert world.broker.journal.first == 0
    assert sum(asked) >= 30
    session = world.join()
    assert world.drain(session, "kept", "g") == [0]
    world.grow("t0", 1)
