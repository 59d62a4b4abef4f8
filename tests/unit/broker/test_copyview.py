"""What is read of a copy: the answers of the broker that it copies, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ternmq.broker.copyview import CopyView
from ternmq.broker.query.failed import FailedSearch
from ternmq.broker.query.failedpiece import Selection
from ternmq.broker.query.held import Held
from ternmq.broker.query.listings import Listings
from ternmq.broker.query.messages import Queries
from ternmq.broker.query.ranges import Ranges, Wanted
from ternmq.broker.query.scheduled import ScheduledQueries
from ternmq.broker.standby import Standby
from ternmq.journal.cache.cold import waiting
from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import MessageNotFound, OffsetExpired, TernMQError
from ternmq.model.types import Position
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.server.commands.rows import records_of
from tests.unit.broker.kit import SECOND, START_US, World, difference, portrait
from tests.unit.broker.test_standby import follow, standby_of

EVER = 2**62


def world_with_much() -> World:
    """Return a broker with read and unread, failed, dead, keyed and scheduled messages."""
    world = World()
    world.topic("t", queues=2)
    world.topic("keyed", ordered=True)
    world.group("t", "g")
    world.group("t", "other")
    world.group("keyed", "g")
    session = world.join()
    for turn in range(12):
        rows = [
            Row(body=b"%d" % turn, key=f"k{turn % 3}", application_id=f"own-{turn}"),
            Row(body=b"x" * 5000),
        ]
        world.send("t", rows, queue=turn % 2)
        world.send("keyed", "abca")
        for topic in ("t", "keyed"):
            reply = world.pull(session, topic, "g", 3)
            if reply is not None:
                outcome = [Outcome.DONE, Outcome.RETRY, Outcome.DEAD][turn % 3]
                world.settle(session, topic, "g", reply, outcome)
        world.pass_time(SECOND)
    world.send("t", [Row(body=b"later", due_us=world.now + 3600 * SECOND)])
    world.pull(session, "t", "other", 2)
    world.commit()
    return world


def answered(ask: Callable[[], Any]) -> Any:
    """Return an answer, or the class and text of the refusal."""
    try:
        return waiting(ask)
    except TernMQError as error:
        return type(error), str(error)


def answers(held: Held) -> dict[str, Any]:
    """Return the answers to all kinds of questions."""
    queries, listings = Queries(held), Listings(held)
    ranges, search, scheduled = Ranges(held, queries), FailedSearch(held), ScheduledQueries(held)
    topic = held.views.catalog.topic("t")

    def rows(queue: int, start: int, most: int) -> list[bytes]:
        found = queries.read("t", queue, start, most, 1 << 20)
        return records_of(held, topic, queue, [(found.start, found.stop)], [found.places])

    found: dict[str, Callable[[], Any]] = {
        "topics": lambda: listings.topics().topics,
        "groups": lambda: listings.groups().groups,
        "apps": lambda: listings.apps().apps,
        "hours": lambda: scheduled.hours("t", 0, 100),
        "scheduled": lambda: scheduled.rows("t", 0, EVER, 0, 100),
        "dead": lambda: queries.dead_letters("t", "g", 0),
        "failed": lambda: search.by_offset("t", "g", 0, Selection(), after=-1, limit=100),
        "newest": lambda: search.newest("t", "g", 1, Selection(), after=-1, limit=5),
        "counted": lambda: search.count("keyed", "g", 0, Selection(), after=-1),
        "no topic": lambda: queries.read("none", 0, 0, 1, 1000),
        "no queue": lambda: queries.read("t", 7, 0, 1, 1000),
        "not there": lambda: queries.by_id(77, 1),
    }
    for queue in range(2):
        for start in range(13):
            found[f"rows {queue} {start}"] = partial(rows, queue, start, 5)
            found[f"offset {queue} {start}"] = partial(queries.by_offset, "t", queue, start)
            found[f"row {queue} {start}"] = partial(queries.row, "t", "g", queue, start)
        at_us = START_US + 5 * SECOND
        found[f"range {queue}"] = partial(ranges.of_queue, topic, queue, at_us, Wanted(2, 6000))
        found[f"at {queue}"] = partial(queries.offset_at, "t", queue, at_us)
        found[f"status {queue}"] = partial(queries.status, "t", "g", queue)
        found[f"waiting {queue}"] = partial(queries.waiting, "t", "g", queue)
    for number in range(3):
        found[f"key {number}"] = partial(queries.by_key, "t", f"k{number}")
        found[f"own {number}"] = partial(queries.by_application_id, "t", f"own-{number}")
        found[f"id {number}"] = partial(queries.by_id, 1, number)
    return {name: answered(ask) for name, ask in found.items()}


def test_the_answers_are_those_of_the_broker() -> None:
    world = world_with_much()
    standby = standby_of(world)
    theirs, ours = answers(world.broker), answers(standby.view)
    assert {name for name in theirs if theirs[name] != ours[name]} == set()
    assert theirs["rows 1 3"]
    assert theirs["dead"].rows
    assert theirs["failed"].offsets
    assert theirs["scheduled"].rows
    assert theirs["not there"][0] is MessageNotFound


def test_also_when_records_were_applied_one_by_one() -> None:
    world = World()
    world.topic("t", queues=2)
    standby = standby_of(world)
    world = _more(world)
    follow(world, standby)
    theirs, ours = answers_of_t(world.broker), answers_of_t(standby.view)
    assert theirs == ours


def _more(world: World) -> World:
    world.group("t", "g")
    session = world.join()
    for turn in range(20):
        world.send("t", 3, queue=turn % 2)
        reply = world.pull(session, "t", "g", 2)
        assert reply is not None
        world.settle(session, "t", "g", reply, Outcome.RETRY if turn % 4 else Outcome.DONE)
        world.pass_time(SECOND)
    return world


def answers_of_t(held: Held) -> list[Any]:
    queries, listings = Queries(held), Listings(held)
    return [
        waiting(lambda: listings.topics().topics),
        waiting(lambda: listings.groups().groups),
        *[waiting(partial(queries.status, "t", "g", queue)) for queue in range(2)],
        *[waiting(partial(queries.waiting, "t", "g", queue)) for queue in range(2)],
    ]


def test_questions_change_nothing() -> None:
    """A promotion goes on with these views."""
    world = world_with_much()
    standby, untouched = standby_of(world), standby_of(world)
    for _ in range(2):
        answers(standby.view)
    assert difference(portrait(world.broker.views), portrait(standby.views)) == []
    end = world.broker.journal.end
    standby.catch_up(end)
    untouched.catch_up(end)
    assert difference(portrait(untouched.views), portrait(standby.views)) == []


def test_nothing_above_the_mark_is_seen() -> None:
    world = World()
    world.topic("t")
    world.send("t", 2)
    standby = standby_of(world)
    view = standby.view
    mark = world.broker.journal.committed
    world.send("t", 3)
    world.send("t", [Row(body=b"x", application_id="new")])
    queries = Queries(view)
    assert not standby.apply(mark, lambda: True)
    assert waiting(lambda: queries.read("t", 0, 0, 100, 1 << 20)).stop == 2
    assert queries.read("t", 0, 2, 100, 1 << 20).stop == 2
    with pytest.raises(MessageNotFound):
        waiting(lambda: queries.by_offset("t", 0, 2))
    with pytest.raises(MessageNotFound):
        waiting(lambda: queries.by_application_id("t", "new"))
    assert (view.journal.committed, view.journal.end, view.journal.written) == (mark, mark, mark)
    follow(world, standby)
    assert waiting(lambda: queries.read("t", 0, 0, 100, 1 << 20)).stop == 6
    assert waiting(lambda: queries.by_application_id("t", "new")).offset == 5


def test_a_slice_shows_what_it_has_applied() -> None:
    world = World()
    world.topic("t")
    standby = standby_of(world)
    for _ in range(30):
        world.send("t", 1)
    queries, seen = Queries(standby.view), [0]
    while standby.apply(world.broker.journal.committed, lambda: False):
        seen.append(waiting(lambda: queries.read("t", 0, 0, 100, 1 << 20)).stop)
        assert standby.view.journal.committed == standby.applied
    assert seen == sorted(set(seen))
    assert len(seen) > 2


SEGMENT = 16384


def test_what_was_removed_is_not_found_any_more() -> None:
    world = World(segment_bytes=SEGMENT, state_from=0, budget=50)
    world.topic("t")
    while world.broker.journal.end < 4 * SEGMENT:
        world.send("t", [Row(body=b"y" * 300)])
    disk = MemoryDisk(world.disk.image())
    copy = Copy.open(disk)
    assert copy is not None
    copy.tell(committed=copy.end)
    standby = Standby(disk, world.options.limits, segment_size=SEGMENT, first=copy.first)
    standby.load(copy.end)
    view = standby.view
    queries, topic = Queries(view), view.views.catalog.topic("t")
    before = waiting(lambda: queries.read("t", 0, 0, 5, 1 << 20))
    span = (before.start, before.stop)
    assert len(waiting(lambda: records_of(view, topic, 0, [span], [before.places]))) == 5
    copy.remove_below(Position(SEGMENT), needs=copy.end)
    standby.removed(Position(SEGMENT))
    assert view.journal.first == SEGMENT
    # A read that had found its places, and waited for the disk meanwhile.
    with pytest.raises(MessageNotFound):
        waiting(lambda: records_of(view, topic, 0, [span], [before.places]))
    with pytest.raises(OffsetExpired, match="the oldest offset that is kept is"):
        waiting(lambda: queries.read("t", 0, 0, 5, 1 << 20))
    first = topic.queues[0].first
    found = waiting(lambda: queries.read("t", 0, first, 5, 1 << 20))
    assert (found.start, found.stop) == (first, first + 5)


def grown(view: CopyView) -> list[int]:
    view.parking.look()
    found, view.parking.grown = view.parking.grown, []
    return sorted(queue.number for queue in found)


def test_a_queue_that_is_followed_is_reported_once_when_it_grows() -> None:
    world = World()
    world.topic("t", queues=3)
    world.send("t", 1, queue=0)
    standby = standby_of(world)
    view = standby.view
    queues = view.views.catalog.topic("t").queues
    for queue in queues[:2]:
        view.parking.follow(queue)
        view.parking.follow(queue)
    assert grown(view) == []
    world.send("t", 1, queue=1)
    world.send("t", 1, queue=2)
    assert grown(view) == []
    follow(world, standby)
    assert grown(view) == [1]
    world.send("t", 1, queue=1)
    follow(world, standby)
    assert grown(view) == []
    view.parking.follow(queues[1])
    world.send("t", 1, queue=0)
    world.send("t", 1, queue=1)
    follow(world, standby)
    assert grown(view) == [0, 1]


def test_a_queue_that_is_followed_is_reported_when_its_topic_ends() -> None:
    world = World()
    world.topic("t")
    world.commit()
    standby = standby_of(world)
    view = standby.view
    view.parking.follow(view.views.catalog.topic("t").queues[0])
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    follow(world, standby)
    assert grown(view) == [0]
