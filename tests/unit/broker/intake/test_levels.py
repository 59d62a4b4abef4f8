"""Topics with levels: which queue a batch gets, which are refused, and what a pull gets first."""

from __future__ import annotations

import pytest

from ternmq.model.errors import Busy, InvalidBatch, InvalidRequest, UnknownQueue
from ternmq.model.specs import Limits, TopicSpec
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, explore, offsets


def rows(world: World, *priorities: int, due: float = 0.0) -> list[Row]:
    """Return a row for each priority; ``due``: seconds from now."""
    due_us = world.now + round(due * SECOND) if due else 0
    return [
        Row(body=b"row %d" % world._serial(), priority=one, due_us=due_us) for one in priorities
    ]


def start(world: World, levels: int = 3, queues: int = 1) -> int:
    world.topic("t", levels=levels, queues=queues)
    world.group("t", "g")
    return world.join()


def taken(world: World, session: int, most: int = 32, rows: int = 1) -> list[int]:
    """Pull and acknowledge; return the number of the queue of each pull."""
    found: list[int] = []
    while len(found) < most and (pulled := world.pull(session, "t", "g", rows)) is not None:
        found.append(pulled.queue)
        world.settle(session, "t", "g", pulled)
        world.commit()
    return found


def test_a_batch_is_stored_in_a_queue_of_its_level_in_turn() -> None:
    def scenario(world: World) -> None:
        start(world, levels=3, queues=2)
        assert len(world.broker.views.catalog.topic("t").queues) == 6
        got = [world.send("t", rows(world, level)).queue for level in (2, 2, 2, 0, 1, 0, 1, 0)]
        assert [number % 3 for number in got] == [2, 2, 2, 0, 1, 0, 1, 0]
        assert got[0] == got[2] != got[1]
        assert got[3] == got[7] != got[5]

    explore(scenario)


def test_the_queue_that_is_asked_for_must_be_of_the_level() -> None:
    world = World()
    start(world, levels=3, queues=2)
    assert world.send("t", rows(world, 1, 1), queue=4).queue == 4
    before = world.broker.journal.end
    for priority, queue in ((1, 3), (0, 4), (2, 0)):
        with pytest.raises(InvalidBatch, match=rf"queue {queue} is of level {queue % 3}"):
            world.send("t", rows(world, priority), queue=queue)
    with pytest.raises(UnknownQueue):
        world.send("t", rows(world, 0), queue=6)
    assert world.broker.journal.end == before


@pytest.mark.parametrize("due", [0.0, 60.0])
def test_what_is_refused_stores_nothing(due: float) -> None:
    world = World()
    start(world)
    world.topic("plain")
    before = world.broker.journal.end
    with pytest.raises(InvalidBatch, match="several priorities; split it"):
        world.send("t", rows(world, 1, 2, due=due))
    with pytest.raises(InvalidBatch, match="several priorities"):
        world.send("t", rows(world, 0, 1, due=due))
    with pytest.raises(InvalidRequest, match="has 3 levels: priority 0 to 2, not 3"):
        world.send("t", rows(world, 3, due=due))
    with pytest.raises(InvalidRequest, match="has 3 levels: priority 0 to 2, not 255"):
        world.send("t", rows(world, 255, 255, due=due))
    with pytest.raises(InvalidRequest, match="'plain' has no levels"):
        world.send("plain", rows(world, 1, due=due))
    for bad in (rows(world, 1, 2, due=due), rows(world, 3, due=due)):
        with pytest.raises((InvalidBatch, InvalidRequest)):
            world.prepare("t", bad)
    with pytest.raises(InvalidBatch, match="queue 1 is of level 1"):
        world.prepare("t", rows(world, 2, due=due), queue=1)
    with pytest.raises(InvalidBatch, match="queue 1 is of level 1"):
        world.send("t", rows(world, 2, due=due), queue=1)
    assert world.broker.journal.end == before


def test_a_topic_that_a_first_batch_makes_has_no_levels() -> None:
    world = World()
    batch = encode(
        rows(world, 1), topic_seed=topic_seed("new"), producer_id=1, first_sequence=0, born_us=0
    )
    with pytest.raises(InvalidRequest, match="'new' does not exist, and a topic that a send makes"):
        world.broker.sending.made_by(TopicSpec(name="new"), batch)


def test_a_pull_gets_the_highest_level_that_has_rows() -> None:
    def scenario(world: World) -> None:
        session = start(world, levels=3)
        for level in (0, 1, 2, 0, 1, 2):
            world.send("t", rows(world, level))
        assert taken(world, session) == [2, 2, 1, 1, 0, 0]

    explore(scenario)


def test_a_message_of_a_higher_level_passes_a_backlog() -> None:
    def scenario(world: World) -> None:
        session = start(world, levels=2, queues=2)
        for _ in range(5):
            world.send("t", rows(world, *[0] * 4))
        assert [one % 2 for one in taken(world, session, 3)] == [0, 0, 0]
        world.send("t", rows(world, 1))
        assert taken(world, session, 1)[0] % 2 == 1
        assert [one % 2 for one in taken(world, session, 3)] == [0, 0, 0]

    explore(scenario)


def test_each_sixteenth_pull_gets_a_row_of_a_lower_level() -> None:
    world = World()
    session = start(world, levels=2)
    world.send("t", rows(world, *[1] * 40))
    world.send("t", rows(world, *[0] * 4))
    assert taken(world, session, 40) == ([1] * 15 + [0]) * 2 + [1] * 8


def test_pulls_without_rows_do_not_count() -> None:
    world = World()
    session = start(world, levels=2)
    for _ in range(40):
        assert world.pull(session, "t", "g") is None
    world.send("t", rows(world, 0))
    world.send("t", rows(world, 1))
    assert taken(world, session) == [1, 0]


def test_a_parked_pull_gets_the_highest_level() -> None:
    def scenario(world: World) -> None:
        session = start(world, levels=3)
        world.park(session, "t", "g", 1)
        world.send("t", rows(world, 0), commit=False)
        world.send("t", rows(world, 2), commit=False)
        world.commit()
        (woken,) = world.woken()
        assert woken.reply is not None
        assert woken.reply.queue == 2

    explore(scenario)


def test_a_retry_keeps_its_level() -> None:
    def scenario(world: World) -> None:
        session = start(world, levels=2)
        world.send("t", rows(world, 1))
        world.send("t", rows(world, 0))
        first = world.pull(session, "t", "g", 1)
        assert first is not None
        world.settle(session, "t", "g", first, Outcome.RETRY)
        low = world.pull(session, "t", "g", 1)
        assert low is not None
        assert (first.queue, low.queue) == (1, 0), "the failed row waits"
        world.settle(session, "t", "g", low, Outcome.RETRY)
        world.commit()
        world.pass_time(10 * SECOND)
        again = world.pull(session, "t", "g", 1)
        assert again is not None
        assert (again.queue, offsets(again)) == (1, [0])

    explore(scenario)


def test_rows_with_due_times_get_a_queue_of_their_level() -> None:
    def scenario(world: World) -> None:
        session = start(world, levels=3, queues=2)
        world.send("t", rows(world, 0, 0, due=10))
        world.send("t", rows(world, 2, due=10))
        world.send("t", rows(world, 1, 1, 1, due=10))
        world.send("t", rows(world, 1, due=10), queue=4)
        assert world.pull(session, "t", "g") is None
        world.pass_time(10 * SECOND)
        world.commit()
        got = taken(world, session, rows=32)
        levels = [number % 3 for number in got]
        assert levels == sorted(levels, reverse=True)
        assert set(levels) == {0, 1, 2}
        assert 4 in got

    explore(scenario)


def test_rows_of_transactions_keep_their_priority() -> None:
    def scenario(world: World) -> None:
        session = start(world, levels=3)
        low = world.prepare("t", rows(world, 0, 0))
        high = world.prepare("t", rows(world, 2))
        later = world.prepare("t", rows(world, 1, due=10))
        assert (low.queue, high.queue) == (0, 2)
        world.decide([low.prepared, high.prepared, later.prepared])
        assert taken(world, session, rows=32) == [2, 0]
        world.pass_time(10 * SECOND)
        world.commit()
        assert taken(world, session) == [1]

    explore(scenario)


def test_levels_stay_after_a_restart() -> None:
    world = World()
    session = start(world, levels=3, queues=2)
    for level in (0, 2, 1, 2):
        world.send("t", rows(world, level))
    for clean in (False, True):
        world.restart(clean=clean)
        topic = world.broker.views.catalog.topic("t")
        assert (topic.spec.levels, len(topic.queues)) == (3, 6)
    world.resume(session)
    assert [one % 3 for one in taken(world, session)] == [2, 2, 1, 0]


def test_a_topic_grows_by_a_queue_of_each_level() -> None:
    def scenario(world: World) -> None:
        session = start(world, levels=3)
        world.send("t", rows(world, 2))
        change = TopicSpec(name="t", levels=3, queues=2)
        world.run(lambda: world.broker.administration.change_topic(world.now, change))
        topic = world.broker.views.catalog.topic("t")
        assert len(topic.queues) == 6
        assert {world.send("t", rows(world, 2)).queue for _ in range(2)} == {2, 5}
        assert [one % 3 for one in taken(world, session)] == [2, 2, 2]
        fewer = TopicSpec(name="t", levels=3, queues=1)
        with pytest.raises(InvalidRequest, match="has 2 queues, and cannot have fewer"):
            world.broker.administration.change_topic(world.now, fewer)

    explore(scenario)


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_levels_cannot_be_changed(levels: int) -> None:
    world = World()
    start(world, levels=3, queues=4)
    before = world.broker.journal.end
    change = TopicSpec(name="t", levels=levels, queues=12)
    with pytest.raises(InvalidRequest, match="has 3 levels, which cannot be changed"):
        world.broker.administration.change_topic(world.now, change)
    assert world.broker.journal.end == before


def test_queues_of_all_levels_count_for_the_limit() -> None:
    world = World(Limits(group_queues=8))
    start(world, levels=4, queues=2)
    with pytest.raises(Busy, match="2 groups of 8 queues"):
        world.group("t", "h")
    with pytest.raises(Busy, match="1 groups of 12 queues"):
        world.broker.administration.change_topic(world.now, TopicSpec(name="t", levels=4, queues=3))
