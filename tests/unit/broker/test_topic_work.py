"""A topic with very many groups is changed and deleted with little work for each."""

from __future__ import annotations

import random

import pytest

from ternmq.broker.catalog.gone import Gone, GoneName, Sort
from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.model.errors import Busy
from ternmq.model.specs import Limits, TopicSpec
from tests.unit.broker.kit import SECOND, World, difference, portrait
from tests.work import bytecodes


def crowded(groups: int, queues: int = 1, limits: Limits | None = None) -> World:
    world = World(limits)
    world.topic("t", queues=queues)
    for number in range(groups):
        world.group("t", f"g{number}")
    return world


def change_work(groups: int) -> int:
    world = crowded(groups)
    spec = TopicSpec(name="t", retention_us=3600 * SECOND)
    return bytecodes(lambda: world.broker.administration.change_topic(world.now, spec))


def delete_work(groups: int) -> int:
    world = crowded(groups)
    return bytecodes(lambda: world.broker.administration.delete_topic(world.now, "t"))


def test_a_setting_of_a_topic_walks_over_no_queue_of_its_groups() -> None:
    # Who waits is asked of each, and whether its queues have owners.
    assert change_work(200) - change_work(100) <= 100 * 18


def test_a_topic_goes_with_little_work_for_each_of_its_groups() -> None:
    assert delete_work(200) - delete_work(100) <= 100 * 300


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_left_of_a_deleted_topic_is_the_same_after_a_start(*, clean: bool) -> None:
    world = crowded(100, queues=2)
    world.topic("other")
    world.group("other", "g")
    session = world.join()
    world.send("t", 4, queue=0)
    assert world.pull(session, "t", "g7") is not None
    pulled = world.pull(session, "t", "g8")
    assert pulled is not None
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    views = world.broker.views
    views.figures.settle()
    assert (views.figures.leased, views.figures.by_session) == (0, {})
    assert len(views.progress) == len(views.catalog.groups) == 1
    assert list(views.catalog.group_numbers) == list(views.catalog.groups)
    assert [one.name for one in views.gone.entries.values()] == [
        "t",
        *[f"g{n}" for n in range(100)],
    ]
    before, gone = portrait(views), list(views.gone.entries.items())
    world.restart(clean=clean)
    assert not difference(portrait(world.broker.views), before)
    assert list(world.broker.views.gone.entries.items()) == gone


def test_more_queues_are_read_by_groups_that_were_there() -> None:
    world = crowded(3)
    session = world.join()
    spec = TopicSpec(name="t", queues=3)
    world.run(lambda: world.broker.administration.change_topic(world.now, spec))
    world.send("t", 1, queue=2)
    for number in range(3):
        assert world.drain(session, "t", f"g{number}") == [0]


def test_several_names_are_gone_as_if_one_after_the_other() -> None:
    for cap in (1000, 30):
        one_by_one, together = Gone(cap), Gone(cap)
        ones = [GoneName(number, f"g{number}", 50) for number in range(1, 200, 3)]
        for gone in (one_by_one, together):
            gone.add(Sort.GROUP, GoneName(4, "before", 10))
        for one in ones:
            one_by_one.add(Sort.GROUP, one)
        together.add_all(Sort.GROUP, ones)
        assert list(together.entries.items()) == list(one_by_one.entries.items())
        assert together.pages == one_by_one.pages
        assert together._on_page == one_by_one._on_page
        assert list(together.numbers(Sort.GROUP)) == list(one_by_one.numbers(Sort.GROUP))


def test_several_keys_are_taken_out_as_if_one_after_the_other() -> None:
    chance = random.Random(3)
    for _ in range(200):
        there = chance.sample(range(3000), 2000)
        keys, plain = SortedKeys(there), set(there)
        low = chance.randrange(3000)
        gone = chance.sample(range(low, low + 800), chance.choice([0, 1, 400, 800]))
        keys.discard_all(gone)
        plain.difference_update(gone)
        assert list(keys) == sorted(plain)
        assert len(keys) == len(plain)
        assert list(keys.behind(low)) == sorted([key for key in plain if key > low])


def test_a_topic_has_only_so_many_places_of_groups_in_queues() -> None:
    world = crowded(3, queues=2, limits=Limits(group_queues=8))
    world.group("t", "g3")
    with pytest.raises(Busy, match=r"5 groups of 2 queues are 10 pairs.*limits.group_queues"):
        world.group("t", "g4")
    with pytest.raises(Busy, match="4 groups of 3 queues"):
        world.broker.administration.change_topic(world.now, TopicSpec(name="t", queues=3))
    # What adds no place is taken, also where a limit was lowered since.
    kept = TopicSpec(name="t", queues=2, retention_us=3600 * SECOND)
    world.run(lambda: world.broker.administration.change_topic(world.now, kept))
    world.run(lambda: world.broker.administration.unsubscribe(world.now, "t", "g3"))
    world.group("t", "g4")
