"""Rows with due times in transactions of writers: scheduled at the commit, once, or never."""

from __future__ import annotations

import pytest

from ternmq.broker.query.messages import Queries
from ternmq.model.errors import (
    AlreadyDelivered,
    Busy,
    DueTooFar,
    IdConflict,
    InvalidBatch,
    TransactionConflict,
    TransactionTooLarge,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.model.specs import Limits
from ternmq.model.types import DAY_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.schedule import NO_QUEUE
from ternmq.record.fact.transactions import unpack_prepared, unpack_resolved
from tests.unit.broker.kit import (
    SECOND,
    World,
    check,
    difference,
    explore,
    portrait,
    reopened,
    same_after_restart,
    waiting,
)
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, pressed


def ready(limits: Limits | None = None, **topic: object) -> tuple[World, int]:
    world = World(limits)
    world.topic("t", **topic)
    world.group("t", "g")
    session = world.join()
    world.commit()
    return world, session


def due(world: World, *after: float, key: str = "") -> list[Row]:
    return [
        Row(body=b"due %d" % at, due_us=world.now + int(seconds * SECOND), ordering_key=key)
        for at, seconds in enumerate(after)
    ]


def come_due(world: World, seconds: float) -> None:
    world.pass_time(int(seconds * SECOND))
    world.commit()


@pytest.mark.parametrize("clean", [True, False])
def test_immediate_and_due_rows_of_one_batch_go_their_ways_at_the_commit(clean: bool) -> None:
    world, session = ready()
    ids = [world.prepare("t", due(world, 100, 5, 50)).prepared, world.prepare("t", 2).prepared]
    come_due(world, 10)
    assert world.drain(session, "t", "g") == []
    assert world.broker.views.schedule.rows == 0, "not scheduled before the commit"
    same_after_restart(world)
    world.restart(clean=clean)
    world.resume(session)
    reply = world.decide(ids)
    assert reply.rows == 5
    assert world.drain(session, "t", "g") == [0, 1], "the plain rows"
    assert world.broker.views.schedule.rows == 3
    come_due(world, 0)
    assert world.drain(session, "t", "g") == [2], "the one that is past is delivered now"
    world.restart(clean=clean)
    world.resume(session)
    come_due(world, 39)
    assert world.drain(session, "t", "g") == [3]
    come_due(world, 60)
    assert world.drain(session, "t", "g") == [4]
    same_after_restart(world)


def test_a_commit_of_due_rows_is_recorded_in_the_order_of_the_list() -> None:
    world, _ = ready(queues=2)
    one = world.prepare("t", due(world, 5)).prepared
    two = world.prepare("t", due(world, 7, 3), queue=1).prepared
    three = world.prepare("t", due(world, 5), part="0/1").prepared
    plain = world.prepare("t", 1, queue=0).prepared
    come_due(world, 4)
    world.decide([two, plain, one])
    record = world.broker.store.get(world.broker.views.catalog.topic("t").queues[0].page[0])
    fact = unpack_resolved(record[HEADER_BYTES:])
    assert [part.position for part in fact.parts] == [plain]
    assert [(part.position, part.first_entry, part.queue) for part in fact.due] == [
        (two, 1, 1), (one, 3, NO_QUEUE),
    ]  # fmt: skip
    started = world.now - 5 * SECOND  # between the prepares and here
    assert [list(part.due_us) for part in fact.due] == [
        [started + 8 * SECOND, world.now], [started + 6 * SECOND],
    ]  # fmt: skip
    assert (fact.dropped, fact.writer_name, fact.digest, fact.rows) == ((three,), "w", 7, 4)
    prepared = unpack_prepared(world.broker.store.get(one)[HEADER_BYTES:])
    assert (prepared.scheduled, prepared.writer_name, prepared.part) == (True, "w", "0/0")
    same_after_restart(world)


def test_a_repeated_commit_schedules_nothing_again() -> None:
    world, _ = ready()
    ids = [world.prepare("t", due(world, 5, 6)).prepared]
    first = world.decide(ids)
    for gap in (1, 3, 10):
        world.restart()
        come_due(world, gap)
        again = world.decide(ids)
        assert again.repeated
        assert again.rows == first.rows == 2
        with pytest.raises(TransactionConflict):
            world.decide(ids, digest=8)
    session = world.join("d")
    assert world.drain(session, "t", "g") == [0, 1]
    assert world.broker.views.schedule.next_entry == 3
    same_after_restart(world)


def test_a_batch_prepared_again_gets_the_first_answer() -> None:
    world, _ = ready()
    batch = world.batch("t", due(world, 5))
    first = world.prepare("t", batch)
    for _ in range(2):
        again = world.prepare("t", batch)
        assert again.duplicate
        assert (again.prepared, again.queue) == (first.prepared, 0)
        world.restart()
    with pytest.raises(IdConflict):
        world.prepare("t", batch, part="0/1")
    with pytest.raises(IdConflict):
        world.send_batch("t", batch)
    world.decide([first.prepared])
    come_due(world, 10)
    assert world.drain(world.join("d"), "t", "g") == [0]


def test_what_is_rolled_back_or_dropped_is_never_scheduled() -> None:
    world, _ = ready()
    kept = world.prepare("t", due(world, 1)).prepared
    world.prepare("t", due(world, 1, 1), part="0/1")
    world.decide([kept])
    world.prepare("t", due(world, 1), batch=2)
    world.abort(batch=2)
    world.prepare("t", due(world, 1), batch=3)
    assert world.broker.views.schedule.rows == 1
    come_due(world, world.broker.limits.transaction_us // SECOND + 1)
    assert world.broker.transactions.expired == 1
    assert not world.broker.views.undecided.times.rows
    session = world.join("d")
    assert world.drain(session, "t", "g") == [0]
    world.decide([world.prepare("t", due(world, 2), batch=3).prepared], batch=3)
    come_due(world, 2)
    assert world.drain(session, "t", "g") == [1], "the batch that was run again"
    same_after_restart(world)


def test_the_queue_that_is_asked_for_and_the_home_of_a_key() -> None:
    world, session = ready(ordered=True, queues=4)
    with pytest.raises(UnknownQueue):
        world.prepare("t", due(world, 1, key="k"), queue=4)
    homes = []
    for queue in range(4):
        try:
            homes.append(world.prepare("t", due(world, 1, key="k"), queue=queue).queue)
        except InvalidBatch:
            continue
    free = world.prepare("t", due(world, 1, key="k"))
    assert (len(homes), free.queue) == (1, 0)
    world.decide([free.prepared])
    come_due(world, 1)
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    assert pulled.queue == homes[0]


def test_times_that_cannot_be_and_caps() -> None:
    world, _ = ready(Limits(scheduled_rows=4, transaction_due_rows=3))
    end = world.broker.journal.end
    for rows, error in (
        ([*due(world, 1), Row(body=b"")], InvalidBatch),
        (due(world, 731 * 86400 + 61), DueTooFar),
        (due(world, 1, 1, 1, 1), TransactionTooLarge),
    ):
        with pytest.raises(error):
            world.prepare("t", rows)
    assert world.broker.journal.end == end
    one = world.prepare("t", due(world, 100, 100)).prepared
    with pytest.raises(TransactionTooLarge, match="4 messages with due times"):
        world.prepare("t", due(world, 1, 1))
    world.prepare("t", 1)
    two = world.prepare("t", due(world, 100)).prepared
    world.restart()
    with pytest.raises(TransactionTooLarge):
        world.prepare("t", due(world, 1))
    world.decide([one, two])
    with pytest.raises(Busy, match="scheduled_rows"):
        world.prepare("t", due(world, 1, 1), batch=2)
    world.prepare("t", due(world, 1), batch=2)
    same_after_restart(world)


def test_a_resolved_has_room_for_the_due_times_of_its_rows() -> None:
    world = World(Limits(transaction_due_rows=100_000), segment_bytes=8192)
    world.topic("t")
    world.commit()
    ids: list[int] = []

    def fill() -> None:
        for _ in range(1000):
            ids.append(world.prepare("t", due(world, *[DAY_US / SECOND] * 20)).prepared)
            world.commit()

    with pytest.raises(TransactionTooLarge):
        fill()
    assert len(ids) > 30
    assert world.decide(ids).rows == 20 * len(ids)
    same_after_restart(world)


def test_a_topic_that_was_deleted_meanwhile_refuses_the_whole_commit() -> None:
    world, _ = ready()
    world.topic("u")
    ids = [world.prepare("t", due(world, 1)).prepared, world.prepare("u", 1).prepared]
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    with pytest.raises(UnknownTopic):
        world.decide(ids)
    assert world.broker.views.schedule.rows == 0
    world.abort()
    same_after_restart(world)


def test_a_scheduled_row_of_a_writer_is_found_and_can_be_cancelled() -> None:
    world, session = ready()
    queries = Queries(world.broker.ledger)
    ids = [world.prepare("t", due(world, 5, 5, 1), producer=5).prepared]
    world.decide(ids)
    found = waiting(lambda: queries.by_id(5, 1))
    assert (found.state.value, found.place.position, found.row) == ("scheduled", ids[0], 1)
    world.run(lambda: world.broker.cancel_scheduled(world.now, "t", 5, 1))
    come_due(world, 1)
    with pytest.raises(AlreadyDelivered):
        world.run(lambda: world.broker.cancel_scheduled(world.now, "t", 5, 2))
    come_due(world, 10)
    assert world.drain(session, "t", "g") == [0, 1]
    same_after_restart(world)


def test_due_rows_outlive_the_segment_that_they_were_prepared_in() -> None:
    world = pressed()
    for topic in "tp":
        world.topic(topic)
        world.group(topic, "g")
    session = world.join()
    ids = [world.prepare("p", due(world, 1_000_000, 1_000_000)).prepared]
    while world.broker.journal.end < 2 * SEGMENT:
        world.send("t", 5)
        world.turn()
        world.drain(session, "t", "g")
    assert ids[0] < SEGMENT
    before = world.broker.ledger.rewinds
    world.decide(ids)
    assert world.broker.ledger.rewinds == before + 1, "the segment is judged again"
    world.grow("t", 8, session=session, group="g")
    assert world.broker.journal.first > ids[0]
    assert world.broker.views.schedule.rows == 2
    check(world.broker, world.now)
    other = reopened(world)
    assert not difference(portrait(world.broker.views), portrait(other.views))
    world.turn(1_000_001 * SECOND)
    world.turn(SECOND)
    assert world.broker.views.catalog.topic("p").queues[0].next == 2


def _life(world: World) -> None:
    world.topic("t", queues=2)
    one = world.prepare("t", due(world, 3, 1)).prepared
    two = world.prepare("t", due(world, 2), "v", 3, queue=1).prepared
    three = world.prepare("t", 1, part="1/0").prepared
    world.decide([three, one])
    world.prepare("t", due(world, 1), "v", 4)
    world.abort("v", 4)
    world.pass_time(SECOND)
    world.decide([two], "v", 3)
    world.prepare("t", due(world, 5), "v", 5)
    world.pass_time(2 * SECOND)
    world.prepare("t", due(world, 5, 6), "v", 5)
    world.commit()


def test_a_set_may_be_written_at_any_moment() -> None:
    explore(_life, paces=((1, 1), (1, 2), (2, 3)))
