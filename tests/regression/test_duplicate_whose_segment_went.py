"""A send that was repeated after retention had removed its first copy was refused as not found.

Deduplication remembers a batch for longer than a full disk keeps it. The producer that came back
with it was told MessageNotFound, although its messages had been stored, and a new batch with an id
of a removed message was refused with the same error.
"""

from __future__ import annotations

import pytest

from ternmq.broker.gate.replies import RowOutcome, SendReply
from ternmq.model.errors import InvalidBatch
from ternmq.model.marks import Rests
from ternmq.record.batch.batch import Row
from tests.unit.broker.kit import SECOND
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, Kept, pressed


def ready(**topic: object) -> Kept:
    """Return a world whose next records are the last of a segment.

    What deduplication knows of them is written to STATE behind it, so nothing keeps the segment.
    """
    world = pressed()
    world.topic("t", **topic)
    world.topic("other")
    while world.broker.journal.end < SEGMENT - 3000:
        world.send("other", [Row(b"y" * 500)], producer=99)
        world.turn(1000)
    world.turn(3 * SECOND)
    return world


def without(world: Kept) -> None:
    """Let retention remove everything that was sent so far."""
    assert world.broker.journal.end < SEGMENT
    for _ in range(100):
        world.send("other", [Row(b"y" * 1000)] * 5, producer=99)
        world.turn(1000)
        if world.broker.journal.first:
            world.restart(gap_us=1000)  # memory still held the records
            return
    raise AssertionError("the segment does not go")


def told(reply: SendReply) -> tuple[int | None, int, bool]:
    return reply.first_offset, reply.count, reply.duplicate


def test_it_is_answered_as_the_duplicate_that_it_is() -> None:
    world = ready(queues=3)
    batch = world.batch("t", world.rows(2))
    first = world.send_batch("t", batch, 2)
    assert told(first) == (0, 2, False)
    without(world)
    end = world.broker.journal.end
    for queue in (2, None, 7):
        again = world.send_batch("t", batch, queue)
        assert told(again) == (None, 2, True)
        assert again.rests is Rests.DURABLE
        assert again.position <= world.broker.journal.durable
        assert again.queue == (2 if queue == 2 else 0)
        assert not again.rows
    assert world.broker.journal.end == end
    assert world.broker.views.catalog.topic("t").queues[2].next == 2
    assert not world.send_batch("t", world.batch("t", world.rows(1))).duplicate


def test_rows_with_ids_are_told_from_those_that_were_left_out() -> None:
    world = ready()
    world.send("t", [Row(b"a", application_id="a")], producer=2)
    some = [
        Row(b"a", application_id="a"),
        Row(b"b", application_id="b"),
        Row(b"other", application_id="a2"),
        Row(b"plain"),
    ]
    batch = world.batch("t", some)
    first = world.send_batch("t", batch)
    assert (told(first), first.rows) == ((1, 3, False), [RowOutcome(0, 0, conflict=False, queue=0)])
    without(world)
    again = world.send_batch("t", batch)
    assert (told(again), again.rows) == ((None, 3, True), [RowOutcome(0, None, conflict=False)])


def test_an_id_whose_message_went_is_known_all_the_same() -> None:
    world = ready()
    world.send("t", [Row(b"a", application_id="a"), Row(b"b", application_id="b")])
    without(world)
    next_ = world.broker.views.catalog.topic("t").queues[0].next
    both = [Row(b"a", application_id="a"), Row(b"not b", application_id="b")]
    reply = world.send_batch("t", world.batch("t", both))
    assert told(reply) == (None, 0, True)
    assert reply.rows == [RowOutcome(0, None, conflict=False), RowOutcome(1, None, conflict=True)]
    assert reply.position <= world.broker.journal.durable
    mixed = [*both, Row(b"c", application_id="c")]
    reply = world.send_batch("t", world.batch("t", mixed))
    assert told(reply) == (next_, 1, False)
    assert [one.row for one in reply.rows] == [0, 1]


def test_a_batch_of_a_topic_that_was_made_again_is_still_refused_where_ids_tell() -> None:
    world = ready()
    batch = world.batch("t", [Row(b"a", application_id="a")])
    world.send_batch("t", batch)
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    world.topic("t")
    without(world)
    with pytest.raises(InvalidBatch, match="another topic"):
        world.send_batch("t", batch)
