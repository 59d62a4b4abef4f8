"""Commits of groups that keep their place themselves: they only grow."""

from __future__ import annotations

import pytest

from ternmq.broker.operation.groups import NextOffset
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import InvalidRequest, UnknownQueue, UnknownTopic
from ternmq.model.specs import Mode
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import World, explore, offsets


def commit(world: World, *places: tuple[int, int], topic: str = "t") -> list[NextOffset]:
    wanted = [NextOffset(*one) for one in places]
    reply = world.run(lambda: world.broker.operating.commit(world.now, topic, "spark.x", wanted))
    assert isinstance(reply.value, list)
    return reply.value


def test_a_commit_grows_at_every_moment_of_a_set() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=2)
        for _ in range(4):
            world.send("t", 5, queue=0)
            world.send("t", 3, queue=1)
        assert commit(world, (0, 7)) == [(0, 7)]
        assert commit(world, (1, 12), (0, 3)) == [(1, 12), (0, 7)]
        assert commit(world, (0, 20)) == [(0, 20)]
        assert commit(world) == []

    explore(scenario)


def test_nothing_is_done_when_a_place_is_wrong() -> None:
    world = World()
    world.topic("t", queues=2)
    world.send("t", 5, queue=0)
    with pytest.raises(InvalidRequest, match="above its end, 0"):
        commit(world, (0, 3), (1, 1))
    with pytest.raises(UnknownQueue):
        commit(world, (0, 3), (2, 0))
    with pytest.raises(InvalidRequest):
        commit(world, (0, -1))
    assert "spark.x" not in world.broker.views.catalog.topic("t").by_group
    with pytest.raises(UnknownTopic):
        commit(world, (0, 0), topic="u")


def test_what_is_owed_stays_owed() -> None:
    world = World()
    world.topic("t")
    world.group("t", "spark.x")
    session = world.join()
    world.send("t", 10)
    pulled = world.pull(session, "t", "spark.x", 4)
    assert pulled is not None
    world.settle(session, "t", "spark.x", pulled, Outcome.RETRY, [(0, 1)])
    commit(world, (0, 8))
    status = Queries(world.broker.ledger).status("t", "spark.x", 0)
    assert (status.cursor, status.leased, status.waiting, status.lag) == (8, 3, 1, 2)
    assert offsets(world.pull(session, "t", "spark.x", 10)) == [8, 9]


def test_a_group_on_an_ordered_topic() -> None:
    world = World()
    world.topic("t", ordered=True)
    world.send("t", "aabb")
    assert commit(world, (0, 3)) == [(0, 3)]
    group = world.broker.views.catalog.subscription("t", "spark.x")
    assert group.spec.mode is Mode.ORDERED
    assert offsets(world.pull(world.join(), "t", "spark.x")) == [3]


def test_a_commit_that_changes_nothing_is_not_recorded() -> None:
    world = World()
    world.topic("t")
    world.send("t", 5)
    commit(world, (0, 3))
    end = world.broker.journal.end
    commit(world, (0, 3))
    commit(world, (0, 1))
    assert world.broker.journal.end == end
