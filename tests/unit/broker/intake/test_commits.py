"""Transactions named by their writers: invisible before, at one position, once, for good."""

from __future__ import annotations

import pytest

from ternmq.broker.query.messages import Queries
from ternmq.model.errors import (
    Busy,
    DiskFull,
    IdConflict,
    InvalidRequest,
    OrderingKeyRequired,
    TernMQError,
    TransactionConflict,
    TransactionDecided,
    TransactionTooLarge,
    TransactionTooOld,
    UnknownTopic,
    UnknownTransaction,
    WriterTaken,
)
from ternmq.model.specs import LONGEST_US, Limits
from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.transactions import Why, unpack_resolved
from tests.unit.broker.kit import SECOND, World, explore, offsets, same_after_restart, waiting


def ready(limits: Limits | None = None, **topic: object) -> tuple[World, int]:
    world = World(limits)
    world.topic("t", **topic)
    world.group("t", "g")
    session = world.join()
    world.commit()
    return world, session


# -- visible at one position, or never ---------------------------------------------------------


def test_prepared_rows_are_seen_by_nobody_before_the_commit_is_durable() -> None:
    world, session = ready()
    world.send("t", 2)
    ids = [world.prepare("t", 3).prepared, world.prepare("t", 1).prepared]
    world.commit()
    world.send("t", 2)
    queries = Queries(world.broker.ledger)
    assert world.drain(session, "t", "g") == [0, 1, 2, 3]
    assert queries.read("t", 0, 0, 100, 1 << 20).stop == 4
    reply = world.decide(ids, commit=False)
    assert reply.rows == 4
    assert world.pull(session, "t", "g") is None
    assert queries.read("t", 0, 4, 100, 1 << 20).stop == 4
    world.commit()
    assert world.drain(session, "t", "g") == [4, 5, 6, 7]
    world.send("t", 1)
    assert world.drain(session, "t", "g") == [8]
    same_after_restart(world)


def test_rows_get_offsets_in_the_order_of_the_list() -> None:
    world, session = ready()
    one, two, three = [world.prepare("t", [Row(b"%d" % at)]).prepared for at in range(3)]
    world.decide([three, one, two])
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    assert [world.bodies(pulled)[at] for at in range(3)] == [b"2", b"0", b"1"]


def test_what_is_not_listed_is_dropped_for_good() -> None:
    world, session = ready()
    one, two = world.prepare("t", 1).prepared, world.prepare("t", 1, part="0/1").prepared
    world.decide([two])
    assert world.drain(session, "t", "g") == [0]
    with pytest.raises(TransactionConflict):
        world.decide([one], digest=8)
    assert world.decide([one]).repeated
    assert world.drain(session, "t", "g") == []
    assert world.broker.views.undecided.batches == world.broker.views.undecided.bytes == 0
    same_after_restart(world)


def test_several_topics_and_queues_become_visible_at_one_position() -> None:
    world, session = ready(queues=2)
    world.topic("u")
    world.group("u", "g")
    ids = [
        world.prepare("t", 2, queue=0).prepared,
        world.prepare("u", 3).prepared,
        world.prepare("t", 1, queue=1).prepared,
        world.prepare("t", 4, queue=0, part="1/0").prepared,
    ]
    world.decide(ids, commit=False)
    ends = {
        queue.end for topic in world.broker.views.catalog.topics.values() for queue in topic.queues
    }
    assert ends == {world.broker.journal.end}
    world.commit()
    assert sorted(world.drain(session, "t", "g")) == sorted([*range(6), 0])
    assert world.drain(session, "u", "g") == [0, 1, 2]
    same_after_restart(world)


def test_keys_keep_their_order_in_an_ordered_topic() -> None:
    world, session = ready(ordered=True)
    world.send("t", "ab")
    ids = [world.prepare("t", "ab").prepared, world.prepare("t", "ca").prepared]
    world.decide(ids)
    first = world.pull(session, "t", "g")
    assert offsets(first) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(OrderingKeyRequired):
        world.broker.prepare(
            world.now, "app", "t", world.batch("t", [Row(b"x", ordering_key="a")])[:0] or _plain(),
            "w", 2,
        )  # fmt: skip
    same_after_restart(world)


def _plain() -> bytes:
    from ternmq.record.batch.batch import encode, topic_seed

    return encode(
        [Row(b"x")], topic_seed=topic_seed("t"), producer_id=9, first_sequence=0, born_us=1
    )


def test_tags_are_filtered_and_retries_work_for_rows_of_a_transaction() -> None:
    world = World()
    world.topic("t")
    world.group("t", "paid", tags="paid")
    session = world.join()
    rows = [Row(b"%d" % at, tag="paid" if at % 2 else "open") for at in range(6)]
    ids = [world.prepare("t", rows[:3]).prepared, world.prepare("t", rows[3:]).prepared]
    world.decide(ids)
    pulled = world.pull(session, "t", "paid")
    assert pulled is not None
    assert offsets(pulled) == [1, 3, 5]
    world.settle(session, "t", "paid", pulled, Outcome.RETRY, [(3, 4)], reason="no")
    world.settle(session, "t", "paid", pulled, Outcome.DONE, [(1, 2), (5, 6)])
    world.commit()
    world.pass_time(2 * SECOND)
    again = world.pull(session, "t", "paid")
    assert offsets(again) == [3]
    same_after_restart(world)


# -- once ---------------------------------------------------------------------------------------


def test_the_same_batch_prepared_again_gets_the_first_answer() -> None:
    world, session = ready()
    batch = world.batch("t", [Row(b"x")])
    first = world.prepare("t", batch)
    again = world.prepare("t", batch)
    assert (again.prepared, again.count, again.duplicate) == (first.prepared, 1, True)
    world.decide([first.prepared])
    late = world.prepare("t", batch)
    assert (late.prepared, late.duplicate) == (first.prepared, True)
    assert world.drain(session, "t", "g") == [0]
    for writer, number, part in (("v", 1, "0/0"), ("w", 2, "0/0"), ("w", 1, "0/1")):
        with pytest.raises(IdConflict):
            world.prepare("t", batch, writer, number, part)
    with pytest.raises(IdConflict):
        world.send_batch("t", batch)
    sent = world.batch("t", [Row(b"y")])
    world.send_batch("t", sent)
    with pytest.raises(IdConflict):
        world.prepare("t", sent)
    same_after_restart(world)


def test_a_repeated_commit_is_told_so_also_after_restarts_and_a_week() -> None:
    world, session = ready()
    reply = world.decide([world.prepare("t", 5).prepared])
    assert (reply.rows, reply.repeated) == (5, False)
    for clean in (False, True):
        world.restart(clean=clean, gap_us=8 * DAY_US)
        again = world.decide([1, 2, 3])
        assert (again.rows, again.repeated) == (5, True)
        with pytest.raises(TransactionConflict):
            world.decide([], digest=6)
        with pytest.raises(TransactionDecided, match="committed"):
            world.abort()
        with pytest.raises(TransactionDecided, match="committed"):
            world.prepare("t", 1)
    session = world.join("d")
    assert world.drain(session, "t", "g") == [0, 1, 2, 3, 4]


def test_the_answer_to_a_repeat_rests_on_the_first_commit() -> None:
    world, _ = ready()
    reply = world.decide([world.prepare("t", 1).prepared], commit=False)
    end = world.broker.journal.end
    world.send("t", 1, commit=False)
    assert reply.position == end
    assert world.decide([], commit=False).position == end


def test_an_empty_transaction_is_a_decision_like_any_other() -> None:
    world, _ = ready()
    assert world.decide([]).rows == 0
    assert world.decide([]).repeated
    with pytest.raises(TransactionConflict):
        world.decide([], digest=1)
    with pytest.raises(TransactionDecided):
        world.prepare("t", 1)
    same_after_restart(world)


def test_a_repeated_prepare_is_told_of_the_decision_whatever_the_topic_would_say_of_it() -> None:
    world, _ = ready()
    world.decide([world.prepare("t", 1).prepared])
    late = [Row(body=b"x", expiry_us=world.now - 3600 * SECOND)]
    far = [Row(body=b"x", expiry_us=world.now + LONGEST_US + 61 * SECOND)]
    keyed = [Row(body=b"x", ordering_key="k"), Row(body=b"y")]
    for rows in (late, far, keyed):
        with pytest.raises(TransactionDecided):
            world.prepare("t", rows)
    same_after_restart(world)


# -- rolled back ----------------------------------------------------------------------------------


def test_what_is_rolled_back_never_comes_and_its_commit_is_refused() -> None:
    world, session = ready()
    ids = [world.prepare("t", 2).prepared]
    assert not world.abort().repeated
    assert world.abort().repeated
    with pytest.raises(TransactionDecided, match="rolled back"):
        world.decide(ids)
    world.restart()
    assert world.abort().repeated
    with pytest.raises(TransactionDecided, match="rolled back"):
        world.decide(ids)
    session = world.join("d")
    assert world.drain(session, "t", "g") == []
    same_after_restart(world)


def test_a_failed_batch_may_be_run_again_under_its_number() -> None:
    world, session = ready()
    old = world.prepare("t", 2).prepared
    world.abort()
    new = world.prepare("t", 3, part="0/1").prepared
    with pytest.raises(TransactionDecided, match="rolled back"):
        world.decide([old, new])
    assert world.decide([new]).rows == 3
    assert world.drain(session, "t", "g") == [0, 1, 2]
    with pytest.raises(TransactionDecided, match="committed"):
        world.abort()
    same_after_restart(world)


def test_an_abort_of_what_nobody_knows_changes_nothing() -> None:
    world, _ = ready()
    end = world.broker.journal.end
    assert world.abort().repeated
    assert world.broker.journal.end == end
    assert not world.broker.views.writers.by_number


def test_ids_that_are_not_of_the_transaction_are_refused_and_nothing_happens() -> None:
    world, session = ready()
    mine = world.prepare("t", 1).prepared
    other = world.prepare("t", 1, batch=2).prepared
    end = world.broker.journal.end
    for ids in ([mine, other], [mine, 12345], [0]):
        with pytest.raises(UnknownTransaction):
            world.decide(ids)
    with pytest.raises(InvalidRequest):
        world.decide([mine, mine])
    assert world.broker.journal.end == end
    world.decide([mine])
    world.decide([other], batch=2)
    assert world.drain(session, "t", "g") == [0, 1]


def test_a_topic_that_was_deleted_meanwhile_refuses_the_whole_commit() -> None:
    world, session = ready()
    world.topic("u")
    ids = [world.prepare("t", 1).prepared, world.prepare("u", 1).prepared]
    world.run(lambda: world.broker.administration.delete_topic(world.now, "u"))
    with pytest.raises(UnknownTopic):
        world.decide(ids)
    assert world.drain(session, "t", "g") == []
    world.abort()
    same_after_restart(world)


def test_a_writer_belongs_to_the_app_that_used_it_first() -> None:
    world, _ = ready()
    ids = [world.prepare("t", 1).prepared]
    for refused in (
        lambda: world.prepare("t", 1, app="b"),
        lambda: world.decide(ids, app="b"),
        lambda: world.abort(app="b"),
    ):
        with pytest.raises(WriterTaken):
            refused()
    world.decide(ids)


def _why(world: World, position: int) -> tuple[Why, str]:
    """Return why what the record at a position resolved was, and whose it is."""
    world.commit()
    record = waiting(lambda: world.broker.store.get(position))
    fact = unpack_resolved(record[HEADER_BYTES:])
    return fact.why, fact.app


def test_an_operator_may_roll_back_what_is_another_apps_and_no_more() -> None:
    world, session = ready()
    ids = [world.prepare("t", 2).prepared]
    at = world.broker.journal.end
    assert not world.abort(app="root", operator=True).repeated
    assert _why(world, at) == (Why.OPERATOR, "app")
    assert world.abort(app="root", operator=True).repeated
    with pytest.raises(TransactionDecided, match="rolled back"):
        world.decide(ids)
    assert world.drain(session, "t", "g") == []
    # It stays the owner's: he may use the name again, and nobody else.
    with pytest.raises(WriterTaken):
        world.prepare("t", 1, app="root")
    ids = [world.prepare("t", 2).prepared]
    with pytest.raises(WriterTaken):
        world.decide(ids, app="root")
    world.decide(ids)
    with pytest.raises(TransactionDecided, match="committed"):
        world.abort(app="root", operator=True)
    assert world.abort("nobody", app="root", operator=True).repeated
    assert "nobody" not in world.broker.views.writers.by_name
    same_after_restart(world)


@pytest.mark.parametrize("operator", [False, True])
def test_what_the_owner_gives_up_he_gave_up_whatever_else_he_may(operator: bool) -> None:
    world, _ = ready()
    world.prepare("t", 2)
    at = world.broker.journal.end
    world.abort(operator=operator)
    assert _why(world, at) == (Why.WRITER, "app")


def test_application_ids_and_odd_names_are_refused() -> None:
    world, _ = ready()
    with pytest.raises(InvalidRequest, match="ids of their own"):
        world.prepare("t", [Row(b"x", application_id="a")])
    for writer, part in (("", ""), ("w" * 129, ""), ("w", "p" * 129)):
        with pytest.raises(InvalidRequest):
            world.prepare("t", 1, writer, 1, part)
    with pytest.raises(InvalidRequest):
        world.prepare("t", 1, batch=-1)
    with pytest.raises(InvalidRequest):
        world.decide([], digest=1 << 64)


# -- time and limits ------------------------------------------------------------------------------


def test_what_is_undecided_for_too_long_is_rolled_back() -> None:
    world, _ = ready()
    ids = [world.prepare("t", 1).prepared]
    world.pass_time(HOUR_US // 2)
    ids.append(world.prepare("t", 1).prepared)
    world.prepare("t", 1, batch=2)
    world.pass_time(HOUR_US // 2 - 2 * SECOND)
    assert len(world.broker.views.undecided.by_number) == 2
    world.pass_time(4 * SECOND)
    assert [one.batch_id for one in world.broker.views.undecided.by_number.values()] == [2]
    assert world.broker.transactions.expired == 1
    with pytest.raises(TransactionDecided, match="rolled back"):
        world.decide(ids)
    same_after_restart(world)
    world.restart(gap_us=HOUR_US)
    world.pass_time(2 * SECOND)
    assert not world.broker.views.undecided.by_number


def test_a_commit_in_time_beats_the_clock() -> None:
    world, session = ready()
    ids = [world.prepare("t", 1).prepared]
    world.pass_time(HOUR_US - 2 * SECOND)
    world.decide(ids)
    world.pass_time(HOUR_US)
    assert world.drain(session, "t", "g") == [0]


def test_decisions_are_forgotten_but_never_the_highest_committed_one() -> None:
    limits = Limits(decisions=3, decision_us=10 * SECOND)
    world, _ = ready(limits)
    for batch in range(5):
        world.decide([], batch=batch)
    writer = world.broker.views.writers.by_name["w"]
    assert list(writer.decisions) == [2, 3, 4]
    assert writer.forgotten == 2
    for ask in (
        lambda: world.decide([], batch=1),
        lambda: world.abort(batch=1),
        lambda: world.prepare("t", 1, batch=0),
    ):
        with pytest.raises(TransactionTooOld):
            ask()
    world.pass_time(20 * SECOND)
    world.prepare("t", 1, batch=9)
    world.abort(batch=9)  # a decision that forgets what is older, but not the highest
    assert list(world.broker.views.writers.by_name["w"].decisions) == [4, 9]
    assert world.decide([], batch=4).repeated
    assert world.broker.views.writers.by_name["w"].forgotten == 4
    same_after_restart(world)


def test_idle_writers_are_forgotten() -> None:
    limits = Limits(writer_idle_us=DAY_US)
    world, _ = ready(limits)
    world.decide([])
    world.pass_time(DAY_US + 2 * HOUR_US)
    assert not world.broker.views.writers.by_number
    assert not world.decide([], digest=99).repeated
    same_after_restart(world)


def test_a_writer_with_an_undecided_transaction_is_not_forgotten() -> None:
    """A broker that was down for long gets a prepare before it has expired the transaction."""
    world, _ = ready(Limits(writer_idle_us=DAY_US))
    world.prepare("t", 1)
    world.commit()
    world.now += 45 * DAY_US
    world.prepare("t", 1)
    (opened,) = world.broker.views.undecided.by_number.values()
    assert opened.count == 2
    assert len(world.broker.views.writers.by_number) == 1
    with pytest.raises(WriterTaken):
        world.prepare("t", 1, app="another")
    same_after_restart(world)


def test_caps() -> None:
    limits = Limits(
        transactions=2, transaction_batches=3, prepared_batches=4, prepared_bytes=5000, writers=2
    )
    world, _ = ready(limits)
    for _ in range(3):
        world.prepare("t", 1)
    with pytest.raises(TransactionTooLarge, match="the limit transaction_batches is 3"):
        world.prepare("t", 1)
    world.prepare("t", 1, "v")
    with pytest.raises(Busy, match="prepared batches"):
        world.prepare("t", 1, "v")
    with pytest.raises(Busy, match="writers"):
        world.prepare("t", 1, "u")
    with pytest.raises(Busy, match="writers"):
        world.decide([], "u")
    with pytest.raises(Busy, match="transactions"):
        world.prepare("t", 1, "v", 2)
    world.abort("w")
    world.abort("v")
    world.prepare("t", [Row(b"x" * 4300)])
    with pytest.raises(Busy, match="bytes"):
        world.prepare("t", [Row(b"x" * 400)], "v")
    same_after_restart(world)


def test_a_transaction_is_never_larger_than_its_resolved_can_name() -> None:
    world = World(segment_bytes=8192)
    world.topic("t")
    world.commit()
    ids: list[int] = []

    def fill() -> None:
        for _ in range(1000):
            ids.append(world.prepare("t", [Row(b"")]).prepared)
            world.commit()

    with pytest.raises(TransactionTooLarge):
        fill()
    assert len(ids) > 100
    assert world.decide(ids).rows == len(ids)
    same_after_restart(world)


def test_a_resend_that_nobody_remembers_is_another_batch_and_only_the_listed_one_counts() -> None:
    world, session = ready()
    batch = world.batch("t", [Row(b"x")])
    first = world.prepare("t", batch)
    world.pass_time(30 * MINUTE_US)
    again = world.prepare("t", batch)
    assert not again.duplicate
    world.decide([again.prepared])
    assert first.prepared != again.prepared
    assert world.drain(session, "t", "g") == [0]


def test_no_room_refuses_prepares_and_lets_commits_through() -> None:
    world, session = ready()
    ids = [world.prepare("t", 1).prepared]
    world.broker.ledger.room.blocked = True
    with pytest.raises(DiskFull):
        world.prepare("t", 1, batch=2)
    world.decide(ids)
    assert world.drain(session, "t", "g") == [0]


def test_a_transaction_that_keeps_the_oldest_file_can_be_prepared_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its handler was killed before the commit, and no longer knows the ids."""
    world, session = ready()
    world.prepare("t", 1)
    world.broker.ledger.room.blocked = True
    again = world.prepare("t", 1).prepared
    monkeypatch.setattr(type(world.broker.journal), "room", lambda journal: 0)
    with pytest.raises(DiskFull):
        world.prepare("t", 1)
    monkeypatch.undo()
    world.decide([again])
    assert world.drain(session, "t", "g") == [0]


# -- look-ups -------------------------------------------------------------------------------------


def test_rows_are_found_once_they_are_messages() -> None:
    world, _ = ready()
    queries = Queries(world.broker.ledger)
    world.send("t", [Row(b"0", key="k")])
    ids = [world.prepare("t", [Row(b"x", key="j"), Row(b"1", key="k")], producer=5).prepared]
    dropped = world.prepare("t", [Row(b"2", key="k")], producer=6, part="1/0").prepared
    world.pass_time(10 * SECOND)

    def bodies() -> list[tuple[int, int]]:
        page = waiting(lambda: queries.by_key("t", "k"))
        return [(one.offset, one.place.position) for one in page.found]

    assert [offset for offset, _ in bodies()] == [0]
    with pytest.raises(TernMQError):
        queries.by_id(5, 1)
    world.decide(ids, commit=False)
    assert [offset for offset, _ in bodies()] == [0]
    world.commit()
    assert bodies() == [(2, ids[0]), bodies()[1]]
    found = queries.by_id(5, 1)
    assert (found.offset, found.row, found.stored_us, found.place.position) == (
        2, 1, world.now, ids[0],
    )  # fmt: skip
    assert queries.by_offset("t", 0, 2).stored_us == world.now
    with pytest.raises(TernMQError):
        queries.by_id(6, 0)
    assert dropped
    assert queries.offset_at("t", 0, world.now) == 1
    assert queries.offset_at("t", 0, world.now + 1) == 3


# -- every moment a set may be written --------------------------------------------------------


def _life(world: World) -> None:
    world.topic("t", queues=2)
    world.group("t", "g")
    session = world.join()
    world.send("t", 2, queue=0)
    one = world.prepare("t", 2, queue=0).prepared
    two = world.prepare("t", 1, "v", 3, queue=1).prepared
    three = world.prepare("t", 1, part="1/0", queue=1).prepared
    world.send("t", 1, queue=1)
    world.prepare("t", 1, part="1/1", queue=1)
    world.decide([three, one])
    world.drain(session, "t", "g")
    world.prepare("t", 1, "v", 4)
    world.abort("v", 4)
    world.decide([two], "v", 3)
    world.prepare("t", 2, "v", 4)
    world.prepare("t", 1, "u", 0)
    world.pass_time(2 * SECOND)
    world.decide([], "u", 1)
    world.prepare("t", 1, "u", 2)
    world.commit()


def test_a_set_may_be_written_at_any_moment() -> None:
    explore(_life, step=2)


def test_a_set_may_be_written_while_decisions_are_forgotten() -> None:
    def life(world: World) -> None:
        world.topic("t")
        for batch in range(6):
            world.decide([world.prepare("t", 1, batch=batch).prepared], batch=batch)
            world.pass_time(3 * SECOND)
        world.abort(batch=9)
        world.prepare("t", 1, batch=9)
        world.abort(batch=9)

    limits = Limits(decisions=3, decision_us=5 * SECOND, transaction_us=10 * SECOND)
    explore(life, limits, paces=((1, 1), (2, 3), (1, 4)), step=2)


def test_pages_of_a_large_transaction_are_objects_of_their_own() -> None:
    limits = Limits(transaction_batches=3000)
    world, session = ready(limits)
    ids = [world.prepare("t", [Row(b"")]).prepared for _ in range(1500)]
    assert sorted(world.broker.views.undecided.changed) == [(1, 0), (1, 1)]
    world.run(lambda: world.broker.writer.begin(world.now))
    world.broker.writer.step(world.now, lambda: True)
    ids += [world.prepare("t", [Row(b"")]).prepared for _ in range(700)]
    same_after_restart(world)
    world.restart()
    session = world.join("d")
    world.decide(ids)
    assert len(world.drain(session, "t", "g", 1000)) == 2200
    same_after_restart(world)
