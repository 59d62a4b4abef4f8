"""What is an object of STATE, what is gone through for a set, and what is not written again."""

from __future__ import annotations

from collections import Counter

import pytest

from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.shards import shards_of
from ternmq.broker.ledger import heldobjects
from ternmq.broker.ledger import objects as stateobjects
from ternmq.journal.state.sets import StateKey
from ternmq.record.fact import state
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.state import FORGOTTEN, GLOBAL, HELD, SHARD, SUBSCRIPTIONS, TOPICS
from tests.unit.broker.kit import World, explore, offsets, same_after_restart


class Watched:
    """Counts what is written and looked at, by type of object."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: Counter[int] = Counter()
        self.looked = 0
        encode = stateobjects.StateObjects.state_encode

        def state_encode(objects: stateobjects.StateObjects, key: StateKey) -> bytes:
            self.written[key.type] += 1
            return encode(objects, key)

        def look(progress: Progress) -> list[int]:
            self.looked += 1
            return shards_of(progress)

        monkeypatch.setattr(stateobjects.StateObjects, "state_encode", state_encode)
        monkeypatch.setattr(heldobjects, "shards_of", look)

    def set_of(self, world: World) -> Counter[int]:
        """Write a whole set; return how many objects of which type were written."""
        self.written.clear()
        self.looked = 0
        writer = world.broker.writer
        writer.begin(world.now)
        assert writer.step(world.now, lambda: True)
        world.commit()
        return Counter({type_: count for type_, count in self.written.items() if count})


ALWAYS = Counter({GLOBAL: 1})


def written(watched: Watched, world: World) -> Counter[int]:
    found = watched.set_of(world)
    found.pop(FORGOTTEN, None)
    return found


def test_of_many_idle_groups_no_set_after_the_first_takes_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    for number in range(150):
        world.topic(f"t{number}")
        world.group(f"t{number}", "g")
    watched = Watched(monkeypatch)
    first = written(watched, world)
    assert (first[TOPICS], first[SUBSCRIPTIONS], first[HELD], watched.looked) == (3, 3, 3, 150)
    assert written(watched, world) == ALWAYS
    assert watched.looked == 0
    session = world.join()
    world.send("t70", 3)
    assert offsets(world.pull(session, "t70", "g")) == [0, 1, 2]
    second = written(watched, world)
    assert (second[TOPICS], second[SUBSCRIPTIONS], second[HELD], second[SHARD]) == (0, 0, 1, 1)
    assert watched.looked == 64  # those of its page
    same_after_restart(world)


def test_what_a_start_loaded_is_named_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.topic("t", queues=40)
    world.group("t", "g")
    session = world.join()
    world.send("t", 9, queue=20)
    pulled = world.pull(session, "t", "g", 4)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 1)])
    world.restart(clean=True)
    watched = Watched(monkeypatch)
    assert written(watched, world) == ALWAYS
    same_after_restart(world)


def test_rows_in_hand_again_after_a_set_found_nothing_owed_are_in_the_next() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        world.group("t", "g")
        session = world.join()
        for _ in range(4):
            world.send("t", 3)
            pulled = world.pull(session, "t", "g")
            assert pulled is not None
            world.settle(session, "t", "g", pulled, Outcome.RELEASED)
            again = world.pull(session, "t", "g", 2)
            assert again is not None
            world.drain(session, "t", "g")
            world.settle(session, "t", "g", again)

    explore(scenario)


def test_groups_of_topics_that_are_made_while_their_page_is_written() -> None:
    def scenario(world: World) -> None:
        session = world.join()
        for number in range(4):
            name = f"t{number}"
            world.topic(name, queues=2)
            world.send(name, 2, queue=1)
            world.group(name, "g")
            world.change(name, "g", window=50 + number)
            pulled = world.pull(session, name, "g", 1)
            assert pulled is not None
            if number == 1:
                world.run(lambda: world.broker.administration.unsubscribe(world.now, "t0", "g"))
            if number == 2:
                world.run(lambda: world.broker.administration.delete_topic(world.now, "t1"))

    explore(scenario)


def test_pages_that_are_empty_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    watched = Watched(monkeypatch)
    for number in range(130):
        world.topic("t")
        world.group("t", "g")
        session = world.join(f"c{number}")
        world.send("t", 1)
        world.pull(session, "t", "g")
        world.leave(session)
        world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
        if number == 70:
            watched.set_of(world)
    watched.set_of(world)
    views = world.broker.views
    for left in (
        views.progress, views.held_pages, views.catalog.topic_pages, views.catalog.queue_pages,
        views.catalog.subscription_pages, views.sessions.pages,
    ):  # fmt: skip
        assert not left
    same_after_restart(world)
    world.topic("t")
    world.group("t", "g")
    watched.set_of(world)
    same_after_restart(world)


def test_shards_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    watched = Watched(monkeypatch)
    for _ in range(3):
        for _ in range(5):
            world.send("t", 1000)
        assert len(world.drain(session, "t", "g", 1000)) == 5000
        watched.set_of(world)
        assert not world.progress("t", "g").shard_changed
    world.send("t", 2000)
    pulled = world.pull(session, "t", "g", 1500)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, spans=[(15_000, 15_900)])
    watched.set_of(world)
    assert len(world.progress("t", "g").shard_changed) <= 2
    same_after_restart(world)


def test_a_page_is_idle_until_something_is_said_of_it() -> None:
    page = HeldPage()
    assert not page.idle()  # nobody has looked
    page.changed, page.touched, page.idle_at = 8, 16, 24
    assert page.idle()
    page.changed = 24
    assert not page.idle()
    page.changed, page.touched = 8, 32
    assert not page.idle()


def test_every_type_of_object_is_registered_and_once() -> None:
    types = {
        value
        for name, value in vars(state).items()
        if name.isupper() and isinstance(value, int) and name != "CLIENT_SHOWN"
    }
    objects = World().broker.views.objects
    assert len(types) == 24
    assert set(objects.table) == types
    with pytest.raises(ValueError, match="type 2 of STATE objects is registered already"):
        objects.register(TOPICS, objects.table[TOPICS])
