"""Sends: receipts, duplicates and what they rest on, ids of the application, refusals, limits."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from ternmq.broker.gate.replies import SendReply
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import (
    Busy,
    DiskFull,
    IdConflict,
    InvalidBatch,
    InvalidRequest,
    MessageTooLarge,
    OrderingKeyRequired,
    ReadOnly,
    ResendTooOld,
    StrictNeedsReplica,
    TopicNotOrdered,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.model.marks import Rests
from ternmq.model.specs import Durability, Limits, TopicSpec
from ternmq.record.batch.batch import Row, encode, slice_batch, topic_seed
from ternmq.record.fact import messages
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.header import HEADER_BYTES
from tests.unit.broker.kit import (
    SECOND,
    World,
    check,
    difference,
    explore,
    offsets,
    portrait,
    same_after_restart,
)


def row(text: str, id_: str = "", **more: str) -> Row:
    return Row(body=text.encode(), application_id=id_, **more)  # type: ignore[arg-type]


def told(reply: SendReply) -> tuple[int | None, int, bool]:
    return reply.first_offset, reply.count, reply.duplicate


# -- receipts --------------------------------------------------------------------------------------


def test_receipts_name_the_place_and_rest_on_their_own_record() -> None:
    def scenario(world: World) -> None:
        number = world.topic("t", queues=2)
        reply = world.send("t", 3, queue=1, commit=False)
        assert (reply.topic, reply.queue, reply.first_offset, reply.count) == (number, 1, 0, 3)
        assert (reply.position, reply.rests) == (world.end, Rests.DURABLE)
        reply = world.send("t", 2, queue=1)
        assert told(reply) == (3, 2, False)
        assert told(world.send("t", 1, queue=0)) == (0, 1, False)
        with pytest.raises(UnknownQueue):
            world.send("t", 1, queue=2)
        world.sequences[1] -= 1
        with pytest.raises(UnknownTopic):
            world.broker.send(world.now, "x", b"")

    explore(scenario)


def test_queues_are_taken_in_turn() -> None:
    world = World()
    world.topic("t", queues=3)
    assert sorted(world.send("t", 1).queue for _ in range(6)) == [0, 0, 1, 1, 2, 2]


def test_a_key_keeps_its_queue_whatever_a_sender_states() -> None:
    world = World()
    world.topic("t", ordered=True, queues=4)
    home = world.send("t", "a").queue
    other = next(key for key in "bcdefghijk" if world.send("t", key).queue != home)
    assert world.send("t", "aa", queue=home).queue == home
    with pytest.raises(InvalidBatch, match=f"belong to queue {home}, not"):
        world.send("t", "a", queue=(home + 1) % 4)
    with pytest.raises(InvalidBatch, match="several queues"):
        world.send("t", f"a{other}", queue=home)
    with pytest.raises(InvalidBatch, match="several queues"):
        world.send("t", f"a{other}")


def test_reads_that_block_do_not_change_whose_turn_it_is() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=2)
        world.send("t", [row("a", "one")], queue=0)
        for at in range(8):
            world.send("t", [row("a", "one"), row("b", f"id {at}")])
        counts = [queue.next for queue in world.broker.views.catalog.topic("t").queues]
        assert sorted(counts) == [4, 5]

    explore(scenario)


def test_a_fast_topic_is_answered_when_written_and_delivered_when_durable() -> None:
    def scenario(world: World) -> None:
        world.topic("f", durability=Durability.FAST)
        world.group("f", "g")
        session = world.join()
        batch = world.batch("f", [row("a")])
        reply = world.send_batch("f", batch)
        assert (reply.first_offset, reply.rests, reply.position) == (None, Rests.WRITTEN, world.end)
        again = world.send_batch("f", batch)
        assert (again.first_offset, again.rests, again.duplicate) == (None, Rests.WRITTEN, True)
        assert again.position == reply.position
        world.broker.journal.flush()
        assert world.pull(session, "f", "g") is None
        world.commit()
        pulled = world.pull(session, "f", "g")
        assert pulled is not None
        settled = world.settle(session, "f", "g", pulled)
        assert settled.rests is Rests.DURABLE

    explore(scenario)


def test_a_strict_topic_is_refused_without_a_replica() -> None:
    world = World()
    world.topic("s", durability=Durability.STRICT)
    end = world.broker.journal.end
    with pytest.raises(StrictNeedsReplica):
        world.send("s", 1)
    assert world.broker.journal.end == end
    assert not len(world.broker.views.dedup)


def test_a_strict_topic_takes_messages_while_two_copies_are_sure() -> None:
    world = World()
    world.topic("s", durability=Durability.STRICT)
    world.topic("n")
    copies = world.broker.ledger.copies
    copies.strict = True
    batch = world.batch("s", [row("a")])
    first = world.send_batch("s", batch)
    assert first.rests is Rests.STRICT
    assert world.send("n", 1).rests is Rests.DURABLE
    copies.strict = False
    again = world.send_batch("s", batch)  # it is stored: this is no new message
    assert (again.duplicate, again.rests, again.first_offset) == (True, Rests.STRICT, 0)
    with pytest.raises(StrictNeedsReplica):
        world.send("s", 1)


def test_as_many_copies_as_are_needed_are_waited_for() -> None:
    world = World()
    for name, durability in (
        ("n", Durability.NORMAL), ("s", Durability.STRICT), ("f", Durability.FAST)
    ):  # fmt: skip
        world.topic(name, durability=durability)
    copies = world.broker.ledger.copies
    copies.needed, copies.strict = 2, True
    batch = world.batch("n", [row("a")])
    assert world.send_batch("n", batch).rests is Rests.COPIES
    assert world.send("s", 1).rests is Rests.STRICT
    assert world.send("f", 1).rests is Rests.WRITTEN
    session = world.join()
    world.group("n", "g")
    world.commit()
    pulled = world.pull(session, "n", "g")
    assert pulled is not None
    copies.strict = False  # the reign has just learned that one is gone
    end = world.broker.journal.end
    for name in ("n", "s", "f"):
        with pytest.raises(ReadOnly, match="fewer than 2 copies"):
            world.send(name, 1)
    assert world.broker.journal.end == end
    again = world.send_batch("n", batch)
    assert (again.duplicate, again.rests) == (True, Rests.COPIES)
    assert world.settle(session, "n", "g", pulled).rests is Rests.DURABLE
    copies.needed = 1
    assert world.send_batch("n", batch).rests is Rests.DURABLE
    assert world.send("n", 1).rests is Rests.DURABLE


def test_a_group_that_is_read_only_knows_what_it_has_and_takes_nothing_new() -> None:
    world = World()
    world.topic("t")
    batch = world.batch("t", [row("a")])
    first = world.send_batch("t", batch)
    world.broker.ledger.copies.read_only = "one copy is left"
    end = world.broker.journal.end
    with pytest.raises(ReadOnly, match="one copy is left") as refused:
        world.send("t", 1)
    assert world.broker.refusal_rests_on(refused.value) == 0
    again = world.send_batch("t", batch)
    assert (again.duplicate, again.first_offset) == (True, first.first_offset)
    assert world.broker.journal.end == end
    world.broker.ledger.copies.read_only = ""
    assert not world.send("t", 1).duplicate


# -- duplicates ------------------------------------------------------------------------------------


def test_a_batch_sent_again_gets_its_first_receipt() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=2)
        batch = world.batch("t", [row("a"), row("b")])
        first = world.send_batch("t", batch, 1)
        world.send("t", 3, queue=1)
        end = world.broker.journal.end
        for queue in (None, 0, 1):
            again = world.send_batch("t", batch, queue)
            assert (again.queue, told(again)) == (1, (0, 2, True))
            assert again.position == first.position
            assert again.rests is Rests.DURABLE
        if world.state_from is None:
            assert world.broker.journal.end == end
        assert world.broker.views.catalog.topic("t").queues[1].next == 5

    explore(scenario)


def test_sequences_that_were_used_otherwise_are_a_conflict() -> None:
    def scenario(world: World) -> None:
        world.topic("t")

        def batch(first: int, count: int, text: str = "x") -> bytes:
            return world.batch("t", [row(text)] * count, first=first)

        world.send_batch("t", batch(10, 5))
        world.send_batch("t", batch(20, 5))
        for first, count, text in (
            (10, 5, "y"), (10, 4, "x"), (10, 6, "x"), (11, 2, "x"), (14, 1, "x"), (8, 3, "x"),
            (8, 30, "x"), (14, 8, "x"), (24, 9, "x"), (19, 2, "x"),
        ):  # fmt: skip
            with pytest.raises(IdConflict):
                world.send_batch("t", batch(first, count, text))
        for first, count in ((15, 5), (8, 2), (25, 1), (0, 1)):  # gaps are normal
            assert not world.send_batch("t", batch(first, count)).duplicate
        for first, count in ((15, 5), (8, 2), (25, 1), (0, 1), (10, 5), (20, 5)):
            assert world.send_batch("t", batch(first, count)).duplicate

    explore(scenario)


def test_what_was_forgotten_by_time_is_too_old() -> None:
    limits = Limits(dedup_window_us=10 * SECOND, send_timeout_us=SECOND)

    def scenario(world: World) -> None:
        world.topic("t")
        old = world.batch("t", [row("old")])
        world.send_batch("t", old)
        world.pass_time(5 * SECOND)
        younger = world.batch("t", [row("younger")])
        world.send_batch("t", younger)
        world.pass_time(5 * SECOND)
        world.send_batch("t", world.batch("t", [row("other")], producer=2))
        assert world.send_batch("t", old).duplicate
        world.pass_time(2 * SECOND)
        world.send_batch("t", world.batch("t", [row("other")], producer=2))
        with pytest.raises(ResendTooOld):
            world.send_batch("t", old)
        assert world.send_batch("t", younger).duplicate
        assert not world.send_batch("t", world.batch("t", [row("new")])).duplicate

    explore(scenario, limits)


@pytest.mark.parametrize("window_us", [2_000_000, 2_000_001, 2_500_000, 2_999_999])
def test_a_window_is_never_shorter_than_asked_for(window_us: int) -> None:
    limits = Limits(dedup_window_us=window_us, send_timeout_us=SECOND)

    def scenario(world: World) -> None:
        world.topic("t")
        for begin_us in (0, 1, 500_000, 999_999):
            world.now += begin_us - world.now % SECOND + SECOND
            old = world.batch("t", [row("old")])
            named = world.batch("t", [Row(b"named", application_id=f"id-{begin_us}")])
            world.send_batch("t", old)
            world.send_batch("t", named)
            world.now += window_us
            world.send_batch("t", world.batch("t", [row("other")], producer=2))
            assert world.send_batch("t", old).duplicate
            assert world.send_batch("t", named).duplicate
            again = world.batch("t", [Row(b"named", application_id=f"id-{begin_us}")], producer=3)
            assert world.send_batch("t", again).duplicate
            world.now += 3 * SECOND
            world.send_batch("t", world.batch("t", [row("other")], producer=2))
            with pytest.raises(ResendTooOld):
                world.send_batch("t", old)

    explore(scenario, limits)


@pytest.mark.parametrize("timeout_us", [1_000_000, 1_250_000, 1_400_000])
def test_a_window_is_never_shorter_than_two_timeouts(timeout_us: int) -> None:
    limits = Limits(dedup_window_us=10 * SECOND, send_timeout_us=timeout_us, dedup_batches=2)
    world = World(limits)
    world.topic("t")
    for begin_us in (0, 500_000, 999_999):
        world.now += begin_us - world.now % SECOND + SECOND
        old = world.batch("t", [row("old")])
        while True:
            try:
                world.send_batch("t", old)
                break
            except Busy:
                world.now += SECOND
        sent_us = world.now
        while world.now + 100_000 <= sent_us + 2 * timeout_us:
            world.now += 100_000
            with contextlib.suppress(Busy):
                world.send_batch("t", world.batch("t", [row("other")], producer=2))
            assert world.send_batch("t", old).duplicate


def test_what_was_forgotten_by_number_is_too_old_and_never_too_soon() -> None:
    limits = Limits(dedup_batches=5, send_timeout_us=2 * SECOND)

    def scenario(world: World) -> None:
        world.topic("t")
        sent = []
        for _ in range(5):
            sent.append(world.batch("t", [row("x")]))
            world.send_batch("t", sent[-1])
            world.pass_time(SECOND)
        # Five are remembered; the oldest is five seconds old, more than twice two.
        for _ in range(3):
            sent.append(world.batch("t", [row("x")]))
            world.send_batch("t", sent[-1])
        with pytest.raises(ResendTooOld):
            world.send_batch("t", sent[0])
        assert world.send_batch("t", sent[-1]).duplicate
        world.pass_time(20 * SECOND)
        for _ in range(5):
            sent.append(world.batch("t", [row("x")]))
            world.send_batch("t", sent[-1])
        world.pass_time(SECOND)
        world.send_batch("t", world.batch("t", [row("x")], producer=2))
        # Only these six are left, and none of them may be forgotten yet: sends are refused instead.
        with pytest.raises(Busy):
            world.send_batch("t", world.batch("t", [row("x")], producer=2))
        world.sequences[2] -= 1
        assert world.send_batch("t", sent[-5]).duplicate
        with pytest.raises(ResendTooOld):
            world.send_batch("t", sent[-6])
        world.pass_time(10 * SECOND)
        assert not world.send_batch("t", world.batch("t", [row("x")], producer=2)).duplicate

    explore(scenario, limits)


def test_a_duplicate_survives_any_restart() -> None:
    world = World(state_from=3)
    world.topic("t")
    batches = []
    for _ in range(12):
        batches.append(world.batch("t", [row("x"), row("y")]))
        world.send_batch("t", batches[-1])
    world.commit()
    for turn in range(3):
        world.restart(clean=bool(turn % 2))
        for at, batch in enumerate(batches):
            assert told(world.send_batch("t", batch)) == (2 * at, 2, True)
        batches.append(world.batch("t", [row("x"), row("y")]))
        world.send_batch("t", batches[-1])
        world.commit()


def test_a_batch_of_a_topic_that_was_made_again_is_not_taken_for_one_of_the_new() -> None:
    world = World()
    world.topic("t")
    batch = world.batch("t", [row("x")])
    world.send_batch("t", batch)
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    world.topic("t")
    with pytest.raises(InvalidBatch):
        world.send_batch("t", batch)


def test_there_is_a_limit_of_producers_and_idle_ones_make_room() -> None:
    limits = Limits(producers=3, producer_idle_us=60 * SECOND, dedup_window_us=60 * SECOND)
    world = World(limits)
    world.topic("t")
    for producer in (1, 2, 3):
        world.send("t", 1, producer=producer)
    with pytest.raises(Busy):
        world.send("t", 1, producer=4)
    world.send("t", 1, producer=3)
    world.pass_time(30 * SECOND)
    world.send("t", 1, producer=1)
    world.pass_time(31 * SECOND)
    world.pass_time(SECOND)
    world.send("t", 1, producer=5)
    world.send("t", 1, producer=6)
    with pytest.raises(Busy):
        world.send("t", 1, producer=7)


def test_a_producer_that_was_idle_begins_anew_whether_it_was_swept_or_not() -> None:
    limits = Limits(producer_idle_us=60 * SECOND, dedup_window_us=60 * SECOND)

    def life(world: World, sweep: bool) -> list[str]:
        world.topic("t")
        world.send_batch("t", world.batch("t", [row("a")] * 10, first=0))
        world.now += 100 * SECOND
        if sweep:
            world.pass_time(0)
        seen = []
        for first in (5, 2, 0, 5, 20):
            try:
                reply = world.send_batch("t", world.batch("t", [row("b")] * 2, first=first))
                seen.append("again" if reply.duplicate else "new")
            except (IdConflict, ResendTooOld) as error:
                seen.append(type(error).__name__)
        same_after_restart(world)
        return seen

    assert life(World(limits), sweep=True) == life(World(limits), sweep=False)


# -- ids of the application ------------------------------------------------------------------------


def test_rows_with_known_ids_are_left_out_and_get_the_first_receipt() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        world.group("t", "g")
        session = world.join()
        first = world.send("t", [row("a", "1"), row("b"), row("c", "3")])
        assert told(first) == (0, 3, False)
        mixed = world.batch("t", [row("x", "9"), row("c", "3"), row("y"), row("a", "1"), row("z")])
        reply = world.send_batch("t", mixed)
        assert told(reply) == (3, 3, False)
        assert [(one.row, one.offset, one.conflict) for one in reply.rows] == [
            (1, 2, False), (3, 0, False),
        ]  # fmt: skip
        again = world.send_batch("t", mixed)
        assert told(again) == (3, 3, True)
        assert list(again.rows) == list(reply.rows)
        assert again.position == reply.position
        world.commit()
        assert world.drain(session, "t", "g") == list(range(6))
        end = world.broker.journal.end
        only = world.send_batch("t", world.batch("t", [row("c", "3"), row("x", "9")]))
        assert (only.first_offset, only.count, only.duplicate) == (None, 0, True)
        assert [(one.row, one.offset) for one in only.rows] == [(0, 2), (1, 3)]
        assert only.position == reply.position
        if world.state_from is None:
            assert world.broker.journal.end == end

    explore(scenario)


def test_an_id_with_another_body_is_a_conflict_of_that_row() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        world.send("t", [row("a", "1")])
        reply = world.send("t", [row("other", "1"), row("b", "2")])
        assert told(reply) == (1, 1, False)
        (left,) = reply.rows
        assert (left.row, left.offset, left.conflict) == (0, None, True)
        reply = world.send("t", [row("other", "1")])
        assert (reply.count, [one.conflict for one in reply.rows]) == (0, [True])

    explore(scenario)


def test_ids_are_of_their_topic_and_of_their_window() -> None:
    limits = Limits(dedup_window_us=10 * SECOND, send_timeout_us=SECOND)

    def scenario(world: World) -> None:
        world.topic("t")
        world.topic("u")
        world.send("t", [row("a", "1")])
        assert told(world.send("u", [row("b", "1")], producer=2)) == (0, 1, False)
        world.pass_time(8 * SECOND)
        world.send("t", [row("b", "2")])
        assert world.send("t", [row("a", "1")]).duplicate
        world.pass_time(4 * SECOND)
        world.send("t", [row("c", "3")])
        assert told(world.send("t", [row("other", "1")])) == (3, 1, False)
        assert world.send("t", [row("b", "2")]).duplicate

    explore(scenario, limits)


def test_an_id_is_forgotten_though_nothing_else_comes() -> None:
    limits = Limits(dedup_window_us=10 * SECOND, send_timeout_us=SECOND)

    def scenario(world: World) -> None:
        world.topic("t")
        world.send("t", [row("a", "1")])
        world.pass_time(9 * SECOND)
        assert told(world.send("t", [row("a", "1")])) == (None, 0, True)
        world.pass_time(3 * SECOND)
        assert told(world.send("t", [row("a", "1")])) == (1, 1, False)
        assert told(world.send("t", [row("a", "1")])) == (None, 0, True)
        world.pass_time(12 * SECOND)
        assert told(world.send("t", [row("other", "1")])) == (2, 1, False)

    explore(scenario, limits)


def test_a_duplicate_still_tells_of_rows_whose_ids_are_forgotten_by_now() -> None:
    limits = Limits(dedup_window_us=10 * SECOND, send_timeout_us=SECOND)

    def scenario(world: World) -> None:
        world.topic("t")
        world.send("t", [row("a", "1")])
        world.pass_time(8 * SECOND)
        mixed = world.batch("t", [row("a", "1"), row("b", "2")])
        world.send_batch("t", mixed)
        world.pass_time(4 * SECOND)
        world.send("t", [row("c", "3")])
        again = world.send_batch("t", mixed)
        assert told(again) == (1, 1, True)
        assert [one.row for one in again.rows] == [0]
        assert not again.rows[0].conflict

    explore(scenario, limits)


def test_an_id_twice_in_a_batch_is_stored_once_and_told_twice() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        world.group("t", "g")
        session = world.join()
        world.send("t", [row("0", "old")])
        batch = world.batch(
            "t",
            [row("a", "1"), row("b", "2"), row("a", "1"), row("other", "2"), row("0", "old"),
             row("0", "old"), row("c"), row("a", "1")],
        )  # fmt: skip
        reply = world.send_batch("t", batch)
        assert told(reply) == (1, 3, False)
        left = [
            (2, 1, False), (3, None, True), (4, 0, False), (5, 0, False), (7, 1, False),
        ]  # fmt: skip
        assert [(one.row, one.offset, one.conflict) for one in reply.rows] == left
        again = world.send_batch("t", batch)
        assert told(again) == (1, 3, True)
        assert [(one.row, one.offset, one.conflict) for one in again.rows] == left
        assert again.position == reply.position
        world.commit()
        assert world.drain(session, "t", "g") == [0, 1, 2, 3]
        assert [told(world.send("t", [row("a", "1")]))] == [(None, 0, True)]
        check(world.broker)

    explore(scenario)


def test_an_id_twice_in_a_batch_of_a_fast_topic() -> None:
    world = World()
    world.topic("f", durability=Durability.FAST)
    batch = world.batch("f", [row("a", "1"), row("a", "1"), row("b", "1")])
    for duplicate in (False, True):
        reply = world.send_batch("f", batch)
        assert told(reply) == (None, 1, duplicate)
        assert [one[:4] for one in reply.rows] == [(1, None, False, None), (2, None, True, None)]


@pytest.mark.parametrize(
    "more",
    [
        {"key": "other"}, {"key": ""}, {"tag": "other"}, {"headers": {"h": "other"}},
        {"headers": {}}, {"content_type": "text/plain"}, {"ordering_key": "other"},
    ],
)  # fmt: skip
def test_an_id_with_other_properties_is_a_conflict_of_that_row(more: dict[str, Any]) -> None:
    def scenario(world: World) -> None:
        world.topic("t", ignore_ordering_keys=True)
        sent: dict[str, Any] = {"key": "k", "tag": "t", "headers": {"h": "v"}, "ordering_key": "o"}
        world.send("t", [row("x"), row("a", "1", **sent)])
        same = world.send("t", [row("y"), row("a", "1", **sent)])
        assert [one[:4] for one in same.rows] == [(1, 1, False, 0)]
        reply = world.send("t", [row("a", "1", **{**sent, **more})])
        assert [one[:4] for one in reply.rows] == [(0, None, True, None)]
        both = world.send("t", [row("b", "2", **sent), row("b", "2", **{**sent, **more})])
        assert [one[:4] for one in both.rows] == [(1, None, True, None)]

    explore(scenario)


def test_headers_of_a_trace_make_no_other_message() -> None:
    world = World()
    world.topic("t")
    world.send("t", [row("a", "1", headers={"h": "v", "traceparent": "00-1"})])  # type: ignore[arg-type]
    headers = {"Traceparent": "00-2", "h": "v", "x-b3-traceid": "3", "baggage": ""}
    reply = world.send("t", [row("a", "1", headers=headers)])  # type: ignore[arg-type]
    assert [one[:4] for one in reply.rows] == [(0, 0, False, 0)]


def test_batches_with_rows_left_out_are_delivered_row_by_row() -> None:
    def scenario(world: World) -> None:
        world.topic("k", ordered=True)
        world.group("k", "g")
        world.topic("t")
        world.group("t", "f", tags="a")
        session = world.join()
        world.send("k", [row("1", "1", ordering_key="x"), row("2", "2", ordering_key="y")])
        some = [
            row("1", "1", ordering_key="x"), row("3", ordering_key="y"),
            row("2", "2", ordering_key="y"), row("4", ordering_key="x"),
        ]  # fmt: skip
        world.send("k", some)
        pulled = world.pull(session, "k", "g", 1)
        assert offsets(pulled) == [0]
        assert pulled is not None
        rest = world.pull(session, "k", "g")
        assert rest is not None
        assert offsets(rest) == [1, 2]  # y twice; x waits
        world.settle(session, "k", "g", pulled, Outcome.RELEASED)
        world.settle(session, "k", "g", rest)
        assert world.drain(session, "k", "g") == [0, 3]
        world.send("t", [row("1", "1", tag="b")], producer=2)
        world.send("t", [row("1", "1", tag="b"), row("2", tag="a"), row("3", tag="b"),
                         row("4", tag="a")], producer=2)  # fmt: skip
        assert world.drain(session, "t", "f") == [1, 3]

    explore(scenario)


# -- refusals --------------------------------------------------------------------------------------


def test_batches_that_do_not_belong_here_are_refused() -> None:
    world = World(segment_bytes=1 << 16)
    world.topic("t")
    world.topic("k", ordered=True)
    world.topic("i", ignore_ordering_keys=True)
    good = world.batch("t", [row("a"), row("b")])

    def made(topic: str, rows: list[Row], **more: Any) -> bytes:
        return encode(
            rows, topic_seed=topic_seed(topic), producer_id=7, first_sequence=0, born_us=0, **more
        )

    end = world.broker.journal.end
    for topic, batch, error in (
        ("t", good[:-1], InvalidBatch),
        ("t", good + bytes(8), InvalidBatch),
        ("t", b"", InvalidBatch),
        ("t", bytes(100), InvalidBatch),
        ("t", good[:60] + b"!" + good[61:], InvalidBatch),
        ("t", made("k", [row("a")]), InvalidBatch),
        ("t", slice_batch(good, 0, 1, topic_seed("t")), InvalidBatch),
        ("k", made("k", [row("a")]), OrderingKeyRequired),
        ("t", made("t", [row("a", ordering_key="x")], keyed=True), TopicNotOrdered),
        ("t", made("t", [row("a"), row("b", ordering_key="x")]), TopicNotOrdered),
        ("i", made("i", [row("a", ordering_key="x")], keyed=True), TopicNotOrdered),
        ("t", made("t", [Row(body=b"", due_us=5), row("a")]), InvalidBatch),
        ("t", made("t", [Row(body=b"", expiry_us=1 << 62)]), InvalidRequest),
        ("t", made("t", [Row(body=bytes(1 << 16))]), MessageTooLarge),
    ):
        with pytest.raises(error) as told:
            world.broker.send(world.now, topic, batch)
        if error is TopicNotOrdered:
            assert "is not ordered, and the messages have ordering keys" in str(told.value)
    assert world.broker.journal.end == end
    assert not len(world.broker.views.dedup)
    assert not world.broker.views.dedup.producers
    world.send_batch("t", good)


def every_second_known(due_us: int) -> tuple[World, list[Row], int]:
    """Return rows of which each second one is stored, and the bytes that lack in the first body.

    With so many more, the record of all rows fills a segment.
    """
    world = World(segment_bytes=1 << 16)
    world.topic("t")
    rows = [Row(body=b"%d" % at, application_id=f"id {at}", due_us=due_us) for at in range(400)]
    world.send("t", rows[1::2])
    bare = len(world.batch("t", rows, 2, 0))
    record = HEADER_BYTES + messages.PREFIX_BYTES + 8 + bare + 200 * messages.RUN.size
    return world, rows, world.broker.journal.max_body - record


def refused_as_too_large(world: World, rows: list[Row]) -> None:
    """Send rows that are refused, then in two parts, as they were to be."""
    data = world.batch("t", rows, 2, 0)
    before, end = portrait(world.broker.views), world.broker.journal.end
    for _ in range(2):
        with pytest.raises(MessageTooLarge, match="200 runs of new messages"):
            world.broker.send(world.now, "t", data)
    assert world.broker.journal.end == end
    assert not difference(before, portrait(world.broker.views))
    for first in (0, 200):
        reply = world.send_batch("t", world.batch("t", rows[first : first + 200], 2, first))
        assert (reply.count, len(reply.rows)) == (100, 100)
    world.commit()
    same_after_restart(world)


@pytest.mark.parametrize("delay_us", [0, 1000 * SECOND])
def test_a_batch_that_does_not_fit_because_of_its_known_ids_is_refused(delay_us: int) -> None:
    due_us = delay_us and World().now + delay_us
    world, rows, lack = every_second_known(due_us)
    assert lack > 0
    refused_as_too_large(world, [replace(rows[0], body=bytes(lack + 16)), *rows[1:]])
    world, rows, lack = every_second_known(due_us)
    data = world.batch("t", [replace(rows[0], body=bytes(lack - 16)), *rows[1:]], 2, 0)
    reply = world.send_batch("t", data)
    assert (reply.count, len(reply.rows)) == (200, 200)
    world.commit()
    same_after_restart(world)


@pytest.mark.parametrize("delay_us", [0, 1000 * SECOND])
def test_a_batch_of_too_many_runs_is_refused(
    monkeypatch: pytest.MonkeyPatch, delay_us: int
) -> None:
    world, rows, _ = every_second_known(delay_us and World().now + delay_us)
    monkeypatch.setattr(messages, "MOST_RUNS", 199)
    refused_as_too_large(world, rows)


def test_a_topic_that_ignores_ordering_keys_takes_and_keeps_them() -> None:
    def scenario(world: World) -> None:
        world.topic("t", queues=2, ignore_ordering_keys=True)
        world.group("t", "g")
        session = world.join()
        batch = world.batch("t", [row("a", ordering_key="k"), row("b")])
        assert world.send_batch("t", batch).count == 2
        spec = TopicSpec(name="t", queues=2)
        world.run(lambda: world.broker.administration.change_topic(world.now, spec))
        assert world.send_batch("t", batch).duplicate  # what is stored stays so
        with pytest.raises(TopicNotOrdered, match="ignore-ordering-keys"):
            world.send("t", [row("c", ordering_key="k")])
        world.sequences[1] -= 1
        world.commit()
        assert world.drain(session, "t", "g") == [0, 1]

    explore(scenario)


def test_whether_a_topic_ignores_ordering_keys_is_only_asked_of_plain_ones() -> None:
    world = World()
    with pytest.raises(InvalidRequest, match="ignore_ordering_keys"):
        world.topic("t", ordered=True, ignore_ordering_keys=True)
    world.topic("t", ordered=True)
    spec = TopicSpec(name="t", ordered=True, ignore_ordering_keys=True)
    with pytest.raises(InvalidRequest, match="ignore_ordering_keys"):
        world.broker.administration.change_topic(world.now, spec)


def test_a_batch_beyond_the_limit_is_refused() -> None:
    world = World(Limits(batch_bytes=1000))
    world.topic("t")
    with pytest.raises(MessageTooLarge):
        world.send("t", [Row(body=bytes(2000))])


def test_a_full_disk_refuses_sends_and_lets_consuming_go_on() -> None:
    world = World(segment_bytes=1 << 16, disk=MemoryDisk(capacity=6 << 16))
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    sent = 0
    journal = world.broker.journal
    refused = False
    for _ in range(1000):
        try:
            world.send("t", [Row(body=bytes(4000))], commit=False)
        except DiskFull:
            refused = True
            break
        sent += 1
        journal.flush()
        job = journal.next_sync()
        assert job is not None
        job.run()
        journal.synced(job)
        spare = journal.wants_spare()
        if spare is not None:
            try:
                spare.run()
                journal.spare_ready(spare)
            except Exception as error:  # noqa: BLE001
                journal.spare_failed(spare, error)
    assert refused
    assert sent > 20
    world.sequences[1] -= 1
    world.spare = lambda: None  # type: ignore[method-assign]
    got = world.drain(session, "t", "g", 4)
    assert got == list(range(sent))
    same_after_restart(world)
    # A refused batch was never stored: sent again, it is refused again, not called a duplicate.
    with pytest.raises(DiskFull):
        world.send("t", [Row(body=bytes(4000))])
