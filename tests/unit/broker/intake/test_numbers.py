"""Blocks of numbers: none is given twice, whatever becomes of topics, sets and the broker."""

from __future__ import annotations

import pytest

from ternmq.broker.gate.replies import NumbersReply
from ternmq.model.errors import DiskFull, InvalidRequest, ReadOnly, StrictNeedsReplica, UnknownTopic
from ternmq.model.marks import Rests
from ternmq.model.specs import Durability
from ternmq.record.fact import numbers
from tests.unit.broker.kit import World, explore, same_after_restart


def take(world: World, topic: str, count: int, *, reserve: bool = False) -> NumbersReply:
    return world.run(lambda: world.broker.take_numbers(world.now, topic, count, reserve=reserve))


def delete(world: World, topic: str) -> None:
    world.run(lambda: world.broker.administration.delete_topic(world.now, topic))


def test_each_topic_has_a_dense_sequence_of_its_own() -> None:
    world = World()
    for name in "ab":
        world.topic(name)
    found = [take(world, topic, count) for topic, count in (("a", 100), ("b", 7), ("a", 1))]
    assert [(one.first, one.count) for one in found] == [(1, 100), (1, 7), (101, 1)]
    assert [one.reserve for one in found] == [None] * 3


def test_the_answer_rests_on_its_own_record() -> None:
    world = World()
    world.topic("t")
    before = world.broker.journal.end
    reply = take(world, "t", 10)
    assert reply.position == world.broker.journal.end > before
    assert reply.rests is Rests.DURABLE


def test_numbers_of_a_fast_topic_are_durable_before_they_are_answered() -> None:
    world = World()
    world.topic("t", durability=Durability.FAST)
    assert take(world, "t", 10).rests is Rests.DURABLE
    copies = world.broker.ledger.copies
    copies.strict, copies.needed = True, 2
    assert take(world, "t", 10).rests is Rests.COPIES
    world.topic("s", durability=Durability.STRICT)
    assert take(world, "s", 10).rests is Rests.STRICT


@pytest.mark.parametrize("count", [-1, 0, numbers.MOST + 1, 2**64])
def test_a_block_of_another_size_is_refused(count: int) -> None:
    world = World()
    world.topic("t")
    end = world.broker.journal.end
    with pytest.raises(InvalidRequest, match="1 to 1,000,000"):
        take(world, "t", count, reserve=True)
    assert world.broker.journal.end == end
    assert take(world, "t", numbers.MOST).first == 1


def test_where_no_message_is_taken_no_number_is_given() -> None:
    world = World()
    with pytest.raises(UnknownTopic):
        take(world, "t", 1)
    world.topic("t", durability=Durability.STRICT)
    with pytest.raises(StrictNeedsReplica):
        take(world, "t", 1)
    world.topic("u")
    world.broker.ledger.copies.read_only = "a copy is behind"
    with pytest.raises(ReadOnly):
        take(world, "u", 1)
    world.broker.ledger.copies.read_only = ""
    world.broker.ledger.room.block(blocked=True)
    with pytest.raises(DiskFull):
        take(world, "u", 1)
    world.broker.ledger.room.block(blocked=False)
    assert take(world, "u", 1, reserve=True).reserve == 0


def test_a_topic_that_is_created_again_repeats_no_number() -> None:
    world = World()
    world.topic("a")
    world.topic("b")
    take(world, "a", 1_000)
    delete(world, "a")
    world.topic("a")
    assert take(world, "a", 5).first == 1_001
    assert take(world, "b", 5).first == 1_001  # it begins now, too
    delete(world, "a")
    world.restart()
    world.topic("a")
    assert take(world, "a", 5).first == 1_006
    assert take(world, "b", 5).first == 1_006


def test_the_last_number_is_below_the_reserves() -> None:
    world = World()
    world.topic("t")
    given = world.broker.views.numbers
    given.sequences[world.broker.views.catalog.topic("t").number] = numbers.END - 10
    with pytest.raises(InvalidRequest, match="no more numbers"):
        take(world, "t", 11)
    assert take(world, "t", 10).first == numbers.END - 10
    with pytest.raises(InvalidRequest, match="no more numbers"):
        take(world, "t", 1)


def test_when_all_reserves_are_given_blocks_come_without() -> None:
    world = World()
    world.topic("t")
    world.broker.views.numbers.next_reserve = numbers.RESERVES - 1
    assert take(world, "t", 1, reserve=True).reserve == numbers.RESERVES - 1
    assert take(world, "t", 1, reserve=True).reserve is None
    world.restart()
    assert take(world, "t", 1, reserve=True).reserve is None


def test_a_lost_answer_costs_numbers_and_repeats_none() -> None:
    world = World()
    world.topic("t")
    taken = [take(world, "t", 10, reserve=True) for _ in range(3)]
    world.commit()
    world.restart()
    taken += [take(world, "t", 10, reserve=True) for _ in range(3)]
    assert [one.first for one in taken] == [1, 11, 21, 31, 41, 51]
    assert [one.reserve for one in taken] == [0, 1, 2, 3, 4, 5]


def scenario(world: World) -> None:
    """Take blocks and reserves while topics come and go, on two pages of topics."""
    for name in "ab":
        world.topic(name)
    take(world, "a", 100, reserve=True)
    take(world, "b", 7)
    delete(world, "a")
    for at in range(64):  # the topics after these are of another page
        world.topic(f"t{at}")
    world.topic("a")
    take(world, "a", 3, reserve=True)
    delete(world, "b")
    take(world, "t63", 9)
    delete(world, "a")
    world.topic("a")
    take(world, "a", 1, reserve=True)
    assert {at: take(world, at, 1).first for at in ("a", "t63", "t1")} == {
        "a": 105, "t63": 110, "t1": 104,
    }  # fmt: skip


def test_sets_from_any_moment_on_lose_and_repeat_nothing() -> None:
    explore(scenario, paces=((1, 1), (2, 3), (5, 1)), step=3)


def test_a_start_from_a_set_alone_knows_what_was_given() -> None:
    world = World(state_from=1 << 60)
    scenario(world)
    world.broker.writer.begin(world.now)
    assert world.broker.writer.step(world.now, lambda: True)
    same_after_restart(world)
    world.restart(clean=True)
    assert take(world, "a", 1, reserve=True).reserve == 3
    world.topic("c")
    assert take(world, "c", 1).first == 104


def test_pages_of_topics_that_are_gone_do_not_fill_the_sets() -> None:
    world = World(state_from=1 << 60)
    for at in range(200):
        world.topic(f"t{at}")
        take(world, f"t{at}", at + 1)
        delete(world, f"t{at}")
    given = world.broker.views.numbers
    assert len(given.changed) == 4
    assert list(given.pages()) == [max(given.changed)]
    world.broker.writer.begin(world.now)
    assert world.broker.writer.step(world.now, lambda: True)
    same_after_restart(world)
    world.restart(clean=True)
    world.topic("new")
    assert take(world, "new", 1).first == given.begin
