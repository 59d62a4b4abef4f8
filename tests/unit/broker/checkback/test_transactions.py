"""Transactions with check-back: all or nothing, once, at one position, whatever stops between."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ternmq.broker.checkback.questions import Name
from ternmq.broker.clock.timers import Timer
from ternmq.broker.gate.replies import PullReply
from ternmq.model.errors import (
    Busy,
    DueTooFar,
    InvalidBatch,
    InvalidRequest,
    LeaseExpired,
    NoChecker,
    ProducerGroupTaken,
    TransactionDecided,
    TransactionTooLarge,
    UnknownQueue,
    UnknownTopic,
    UnknownTransaction,
)
from ternmq.model.specs import Limits, Mode
from ternmq.model.types import DAY_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import (
    SECOND,
    STEADY,
    attempts,
    check,
    difference,
    offsets,
    portrait,
    reopened,
)


def start(**more: object) -> tuple[Transacting, int]:
    world = Transacting(**more)  # type: ignore[arg-type]
    world.topic("t")
    world.topic("u", queues=3)
    world.group("t", "g")
    return world, world.checker()


def rows_of(world: Transacting, session: int, topic: str, most: int = 32) -> PullReply:
    """Pull; there is something."""
    pulled = world.pull(session, topic, "g", most)
    assert pulled is not None
    return pulled


def same_after_a_start(world: Transacting) -> None:
    check(world.broker, world.now)
    other = reopened(world)
    assert not difference(portrait(world.broker.views), portrait(other.views))


def test_rows_are_seen_at_the_commit_and_not_before() -> None:
    world, session = start()
    number = world.put(1, "t", 3).transaction
    world.put(1, "t", 2, number=number)
    world.put(1, "u", 4, number=number)
    assert world.pull(session, "t", "g") is None
    same_after_a_start(world)
    assert world.decided(number).rows == 9
    pulled = rows_of(world, session, "t")
    assert offsets(pulled) == [0, 1, 2, 3, 4]
    assert sum(one.next for one in world.broker.views.catalog.topic("u").queues) == 4
    same_after_a_start(world)


def test_what_is_rolled_back_is_never_seen() -> None:
    world, session = start()
    number = world.put(1, "t", 3).transaction
    assert world.decided(number, commit=False).rows == 0
    assert world.pull(session, "t", "g") is None
    world.send("t", 1)
    pulled = rows_of(world, session, "t")
    assert offsets(pulled) == [0]
    same_after_a_start(world)


@pytest.mark.parametrize("clean", [True, False])
def test_it_survives_a_restart_at_each_step(clean: bool) -> None:
    world, session = start()
    number = world.put(1).transaction
    world.restart(clean=clean)
    world.resume(session)
    world.put(1, "t", 2, number=number)
    world.restart(clean=clean)
    assert world.broker.checking.show("app", number).rows == 2
    world.decided(number)
    world.restart(clean=clean)
    assert world.broker.checking.show("app", number).outcome == "committed"
    assert world.decided(number).repeated
    with pytest.raises(TransactionDecided):
        world.decided(number, commit=False)
    world.resume(session)
    pulled = rows_of(world, session, "t")
    assert offsets(pulled) == [0, 1]


def test_a_lost_answer_to_the_opening_is_asked_for_by_name() -> None:
    world, _ = start()
    first = world.put(7)
    again = world.put(7)
    assert (again.transaction, again.duplicate) == (first.transaction, True)
    assert world.decided(Name(9, 7), commit=False).transaction == first.transaction
    with pytest.raises(UnknownTransaction):
        world.decided(Name(9, 7))


def test_a_batch_that_is_prepared_again_gets_its_first_answer() -> None:
    world, _ = start()
    data = world.batch("t", world.rows(2))
    first = world.put(7, "t", data)
    again = world.put(7, "t", data)
    assert (again.transaction, again.rows, again.duplicate) == (first.transaction, 2, True)
    again = world.put(7, "t", data, number=first.transaction)
    assert again.duplicate
    assert world.decided(first.transaction).rows == 2


def test_nobody_to_ask() -> None:
    world = Transacting()
    world.topic("t")
    world.join()
    end = world.broker.journal.end
    for topic in (None, "t"):
        with pytest.raises(NoChecker):
            world.put(1, topic)
    assert world.broker.journal.end == end, "something was stored"
    spec = world.broker.views.producer_groups.spec("pay")
    world.run(
        lambda: world.broker.checking.put_group(
            world.now, "app", replace(spec, without_checker=True)
        )
    )
    assert world.put(1, "t").rows == 1
    same_after_a_start(world)


def test_a_group_belongs_to_the_app_that_used_it_first() -> None:
    world, _ = start()
    number = world.put(1, "t").transaction
    other = world.join("d")
    with pytest.raises(ProducerGroupTaken):
        world.put(2, app="other", session=other)
    with pytest.raises(ProducerGroupTaken):
        world.offer(other, app="other")
    for commit in (True, False):
        with pytest.raises(ProducerGroupTaken):
            world.decided(number, commit=commit, app="other")
    assert world.decided(number, app="other", operator=True).rows == 1


def test_the_first_decision_is_the_only_one() -> None:
    world, _ = start()
    one, two = (world.put(counter, "t").transaction for counter in (1, 2))
    world.decided(one)
    world.decided(two, commit=False)
    for number, commit in ((one, True), (two, False)):
        assert world.decided(number, commit=commit).repeated
        with pytest.raises(TransactionDecided):
            world.decided(number, commit=not commit)
        with pytest.raises(TransactionDecided):
            world.put(1 if commit else 2, "t", number=number)
    for unknown in (0, 77, 1 << 63):
        with pytest.raises(UnknownTransaction):
            world.decided(unknown)
        with pytest.raises(UnknownTransaction):
            world.broker.checking.show("app", unknown)


def test_what_is_wrong_is_one_error_and_nothing_stored() -> None:
    world, session = start(limits=Limits(open_transactions=2, transaction_due_rows=2))
    number = world.put(1, "t").transaction
    end = world.broker.journal.end
    with pytest.raises(UnknownTopic):
        world.put(2, "nope", b"x", session=session)
    with pytest.raises(UnknownQueue):
        world.put(1, "t", queue=3, number=number)
    with pytest.raises(InvalidBatch):
        world.put(1, "t", b"nonsense", number=number)
    with pytest.raises(InvalidRequest):
        world.put(1, "t", [Row(body=b"x", application_id="a")], number=number)
    with pytest.raises(InvalidRequest):
        world.put(2, "t", number=number)
    with pytest.raises(InvalidRequest):
        world.put(3, query_id="q" * 256)
    with pytest.raises(InvalidRequest):
        world.put(3, check_after_us=SECOND - 1)
    with pytest.raises(DueTooFar):
        world.put(1, "t", [Row(body=b"x", due_us=world.now + 800 * DAY_US)], number=number)
    with pytest.raises(TransactionTooLarge, match=r"3 messages .* transaction_due_rows is 2"):
        world.put(1, "t", [Row(body=b"x", due_us=world.now + 9)] * 3, number=number)
    for never in (0, number + 1, (1 << 64) - 1, Name(9, 9)):
        for commit in (True, False):
            for operator in (True, False):
                with pytest.raises(UnknownTransaction):
                    world.decided(never, commit=commit, operator=operator)
    assert world.broker.journal.end == end
    world.put(2)
    with pytest.raises(Busy):
        world.put(3)


def test_a_settle_is_repeated_after_a_lost_answer() -> None:
    world, session = start()
    world.send("t", 5)
    pulled = rows_of(world, session, "t", 5)
    number, other = world.put(1).transaction, world.put(2).transaction
    spans = [(0, 2), (3, 4)]
    for _ in range(2):
        world.hold(number, session, "t", pulled, spans=spans)
    end = world.broker.journal.end
    world.hold(number, session, "t", pulled, spans=spans)
    assert world.broker.journal.end == end  # it recorded nothing
    world.commit()
    world.restart()
    world.hold(number, session, "t", pulled, spans=spans)
    for which, outcome, some in (
        (number, Outcome.DONE, [(0, 1)]),
        (number, Outcome.DONE, [(0, 2)]),
        (number, Outcome.DEAD, spans),
        (other, Outcome.DONE, spans),
    ):
        with pytest.raises(LeaseExpired):
            world.hold(which, session, "t", pulled, outcome, some)
    world.decided(number)


def test_rows_that_it_settles_stay_its_own_after_a_restart() -> None:
    world, session = start()
    world.send("t", 3)
    pulled = rows_of(world, session, "t", 2)
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled, spans=[(0, 2)])
    world.commit()
    for clean in (False, True):
        world.restart(clean=clean)
        world.wait(5 * SECOND)
        world.commit()
        progress = world.broker.views.catalog.subscription("t", "g").queues[0]
        assert progress.leased_rows == 2
    other = world.checker("d")
    again = world.pull(other, "t", "g", 3)
    assert again is not None
    assert offsets(again) == [2]
    world.decided(number)
    assert world.broker.views.catalog.subscription("t", "g").queues[0].leased_rows == 1


def test_rows_that_it_settles_are_nobodys_until_the_commit() -> None:
    world, session = start()
    world.send("t", 4)
    pulled = rows_of(world, session, "t", 3)
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled, spans=[(0, 2)])
    with pytest.raises(LeaseExpired):
        world.hold(number, session, "t", pulled, spans=[(1, 3)])
    with pytest.raises(LeaseExpired):
        world.settle(session, "t", "g", pulled, spans=[(0, 1)])
    with pytest.raises(LeaseExpired):
        world.broker.settle(world.now, session, Settle("t", "g", 0, 0, number, Outcome.DONE))
    with pytest.raises(LeaseExpired):
        world.broker.extend(world.now, session, "t", "g", 0, 0, number, SECOND)
    same_after_a_start(world)
    world.pass_time(3600 * SECOND)
    other = world.join("d")
    got = [offset for _ in range(3) for offset in world.drain(other, "t", "g")]
    assert sorted(got) == [2, 3], "its rows went to another consumer"
    world.decided(number)
    same_after_a_start(world)
    assert world.progress("t", "g").leased_rows == 0
    assert world.drain(other, "t", "g") == []


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_roll_back_its_rows_come_again_uncounted(clean: bool) -> None:
    world, session = start()
    world.send("t", 2)
    pulled = rows_of(world, session, "t")
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled)
    world.commit()
    world.restart(clean=clean)
    world.resume(session)
    world.decided(number, commit=False)
    pulled = rows_of(world, session, "t")
    assert offsets(pulled) == [0, 1]
    assert set(attempts(pulled).values()) == {(1, 2)}
    same_after_a_start(world)


def test_a_retry_and_a_reject_in_it_count_from_the_commit_on() -> None:
    world, session = start()
    world.send("t", 3)
    pulled = rows_of(world, session, "t")
    number = world.put(1, "t", 1).transaction
    world.hold(number, session, "t", pulled, Outcome.RETRY, [(0, 1)], delay_us=5 * SECOND)
    world.hold(number, session, "t", pulled, Outcome.DEAD, [(1, 2)], reason="no")
    world.hold(number, session, "t", pulled, spans=[(2, 3)])
    world.pass_time(100 * SECOND)
    world.decided(number)
    progress = world.progress("t", "g")
    assert progress.failures.dead_rows == 1
    assert progress.failures.waiting_rows == 1
    assert world.drain(session, "t", "g") == [3]
    world.pass_time(5 * SECOND)
    assert world.drain(session, "t", "g") == [0]
    same_after_a_start(world)


def test_what_a_reset_took_away_is_left_out_of_the_commit() -> None:
    world, session = start()
    world.send("t", 2)
    pulled = rows_of(world, session, "t")
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled)
    world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 0))
    world.decided(number)
    assert world.drain(session, "t", "g") == [0, 1]
    same_after_a_start(world)


def test_a_group_and_a_topic_that_are_gone_are_left_out_of_the_commit() -> None:
    world, session = start()
    world.send("t", 2)
    pulled = rows_of(world, session, "t")
    number = world.put(1, "u", 2).transaction
    world.put(1, "t", 2, number=number)
    world.hold(number, session, "t", pulled)
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    assert world.decided(number).rows == 2
    same_after_a_start(world)


def test_the_key_of_a_row_in_it_stays_closed() -> None:
    world = Transacting()
    world.topic("o", ordered=True)
    world.group("o", "g")
    session, other = world.checker(), world.join("d")
    world.send("o", "abab")
    pulled = rows_of(world, session, "o")
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, spans=[(0, 1)])
    world.settle(session, "o", "g", pulled, Outcome.RELEASED, [(1, 4)])
    assert world.drain(other, "o", "g") == [1, 3], "a later row of the key was handed out"
    same_after_a_start(world)
    world.decided(number, commit=False)
    assert world.drain(other, "o", "g") == [0, 2]
    same_after_a_start(world)


def test_a_roll_back_takes_back_the_later_rows_of_its_keys() -> None:
    """Their consumer must not go on with them: the row before them comes again."""
    world = Transacting()
    world.topic("o", ordered=True)
    world.group("o", "g")
    session = world.checker()
    world.send("o", "aab")
    pulled = rows_of(world, session, "o")
    assert offsets(pulled) == [0, 1, 2]
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, spans=[(0, 1)])
    world.decided(number, commit=False)
    with pytest.raises(LeaseExpired):
        world.settle(session, "o", "g", pulled, spans=[(1, 2)])
    world.settle(session, "o", "g", pulled, spans=[(2, 3)])
    assert world.drain(session, "o", "g")[:1] == [0]
    same_after_a_start(world)


@pytest.mark.parametrize("clean", [False, True])
def test_rows_in_it_stay_in_it_over_starts_whatever_ends_meanwhile(clean: bool) -> None:
    world, session = start()
    world.send("t", 3)
    pulled = rows_of(world, session, "t")
    number = world.put(1).transaction
    world.hold(number, session, "t", pulled)
    world.commit()
    other = session
    for _ in range(2):
        world.restart(clean=clean)
        world.pass_time(100 * SECOND)  # graces and leases are over
        assert [lease.id for lease in world.progress("t", "g").leases.values()] == [number]
        other = world.join("d")
        assert world.pull(other, "t", "g") is None
    world.decided(number)
    assert world.drain(other, "t", "g") == []
    same_after_a_start(world)


def ordered(keys: str) -> tuple[Transacting, int, PullReply]:
    """Return a world with an ordered group that was given rows with these keys."""
    world = Transacting()
    world.topic("o", ordered=True)
    world.group("o", "g")
    session = world.checker()
    world.send("o", keys)
    pulled = rows_of(world, session, "o")
    return world, session, pulled


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.DEAD])
def test_a_row_behind_one_in_a_transaction_is_settled_in_it_or_not_at_all(
    outcome: Outcome,
) -> None:
    """The transaction may be rolled back: then the row before it comes again."""
    world, session, pulled = ordered("aabb")
    number, other = world.put(1).transaction, world.put(2).transaction
    world.hold(number, session, "o", pulled, spans=[(0, 1)])
    with pytest.raises(LeaseExpired):
        world.settle(session, "o", "g", pulled, outcome, [(1, 2)])
    with pytest.raises(LeaseExpired):
        world.hold(other, session, "o", pulled, outcome, spans=[(1, 2)])
    reply = world.settle(session, "o", "g", pulled, outcome, [(1, 3)])
    assert (list(reply.settled), list(reply.refused)) == ([(2, 3, 1, 1)], [(1, 2)])
    world.hold(number, session, "o", pulled, outcome, spans=[(1, 2)])
    world.decided(number)
    assert world.drain(session, "o", "g") == []
    world.settle(session, "o", "g", pulled, spans=[(3, 4)])
    same_after_a_start(world)


def test_in_a_commit_no_row_is_done_before_one_of_its_key_that_comes_again() -> None:
    world, session, pulled = ordered("aaabb")
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, spans=[(2, 5)])
    world.hold(number, session, "o", pulled, Outcome.RETRY, [(0, 2)], delay_us=SECOND)
    world.decided(number)
    same_after_a_start(world)
    assert world.pull(session, "o", "g") is None, "the first row of the key waits"
    world.pass_time(SECOND)
    again = world.pull(session, "o", "g")
    assert again is not None
    assert attempts(again) == {0: (2, 2), 1: (1, 2), 2: (1, 2)}
    same_after_a_start(world)


@pytest.mark.parametrize("mode", [Mode.ORDERED, Mode.QUEUE_LOCK])
def test_retries_that_end_by_age_keep_the_order_of_a_commit(mode: Mode) -> None:
    """The first row is young enough for a retry: the rows behind it wait with it."""
    world = Transacting()
    world.topic("o", ordered=mode is Mode.ORDERED)
    world.group("o", "g", mode=mode, retry=replace(STEADY, expires_us=3600 * SECOND))
    session = world.checker()
    world.send("o", "aaa" if mode is Mode.ORDERED else 3)
    pulled = world.pull(session, "o", "g")
    assert pulled is not None
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, Outcome.RETRY, [(0, 1)], delay_us=SECOND)
    world.hold(number, session, "o", pulled, spans=[(1, 3)])
    world.decided(number)
    same_after_a_start(world)
    assert world.pull(session, "o", "g") is None, "the first row waits"
    world.pass_time(SECOND)
    again = world.pull(session, "o", "g")
    assert again is not None
    assert attempts(again) == {0: (2, 2), 1: (1, 2), 2: (1, 2)}
    same_after_a_start(world)


@pytest.mark.parametrize("how", ["retry", "release", "time", "leave"])
def test_rows_behind_one_that_comes_again_leave_the_transaction(how: str) -> None:
    """They were settled in it before the row in front of them: no commit may make them done."""
    world, session, pulled = ordered("aab")
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, spans=[(1, 3)])
    if how == "retry":
        world.settle(session, "o", "g", pulled, Outcome.RETRY, [(0, 1)], delay_us=0)
    elif how == "release":
        world.settle(session, "o", "g", pulled, Outcome.RELEASED, [(0, 1)])
    elif how == "leave":
        world.leave(session)
    else:
        world.pass_time(60 * SECOND)
    same_after_a_start(world)
    world.decided(number)
    session = session if how != "leave" else world.join("d")
    again = world.pull(session, "o", "g")
    assert offsets(again) == [0, 1], "the row of the other key is done, those of this one are not"
    same_after_a_start(world)


def test_in_a_commit_a_dead_row_does_not_hold_back_its_key() -> None:
    world = Transacting()
    world.topic("o", ordered=True)
    world.group("o", "g", retry=replace(STEADY, attempts=1))
    session = world.checker()
    world.send("o", "aa")
    pulled = rows_of(world, session, "o")
    number = world.put(1).transaction
    world.hold(number, session, "o", pulled, Outcome.RETRY, [(0, 1)])
    world.hold(number, session, "o", pulled, spans=[(1, 2)])
    world.decided(number)
    assert world.progress("o", "g").failures.dead_rows == 1
    assert world.drain(session, "o", "g") == []
    same_after_a_start(world)


def test_a_settle_that_is_asked_for_again_is_made_once() -> None:
    world, session = start()
    world.send("t", 4)
    pulled = rows_of(world, session, "t")
    number, other = world.put(1).transaction, world.put(2).transaction
    for _ in range(2):
        world.hold(number, session, "t", pulled, spans=[(0, 2)])
    assert world.broker.views.checked.by_number[number].settled_rows == 2
    for which, outcome, span in (
        (other, Outcome.DONE, (0, 2)),
        (number, Outcome.RETRY, (0, 2)),
        (number, Outcome.DONE, (0, 3)),
    ):
        with pytest.raises(LeaseExpired):
            world.hold(which, session, "t", pulled, outcome, [span])
    for _ in range(2):
        world.hold(number, session, "t", pulled)
    assert world.broker.views.checked.by_number[number].settled_rows == 4
    world.decided(number)
    assert world.drain(session, "t", "g") == []
    same_after_a_start(world)


def test_of_two_settles_of_a_row_the_later_one_counts() -> None:
    world, session = start()
    world.send("t", 1)
    number = world.put(1).transaction
    for outcome in (Outcome.DONE, Outcome.DEAD):
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        world.hold(number, session, "t", pulled, outcome)
        if outcome is Outcome.DONE:
            world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 0))
    world.decided(number)
    assert world.progress("t", "g").failures.dead_rows == 1
    same_after_a_start(world)


def test_rows_in_it_set_no_timer() -> None:
    world, session = start()
    for counter in range(1, 20):
        world.send("t", 2)
        pulled = world.pull(session, "t", "g", 2)
        assert pulled is not None
        number = world.put(counter).transaction
        world.hold(number, session, "t", pulled)
        world.pass_time(40 * SECOND)  # the lease would have ended
    assert len([one for one in world.broker.timers._heap if one[2] is Timer.LEASES]) <= 1


def test_a_cursor_moves_with_the_commit() -> None:
    world, session = start()
    world.send("t", 5)
    number = world.put(1).transaction
    move = world.broker.checking.move
    world.run(lambda: move(world.now, "app", number, "t", "g", 0, 2))
    world.run(lambda: move(world.now, "app", number, "t", "g", 0, 3))
    with pytest.raises(InvalidRequest):
        world.run(lambda: move(world.now, "app", number, "t", "g", 0, 6))
    assert world.progress("t", "g").cursor == 0
    same_after_a_start(world)
    world.decided(number)
    assert world.progress("t", "g").cursor == 3
    assert world.drain(session, "t", "g") == [3, 4]
    same_after_a_start(world)


@pytest.mark.parametrize("set_between", [False, True])
def test_a_move_from_before_a_reset_is_left_out_of_the_commit(set_between: bool) -> None:
    """The reset is newer: the operator wants the rows again that the move would pass over."""
    world, session = start(limits=Limits(transaction_settles=3))
    world.send("t", 5)
    world.group("t", "other")
    number, second = world.put(1).transaction, world.put(2).transaction

    def move(number: int, group: str, offset: int) -> None:
        command = world.broker.checking.move
        world.run(lambda: command(world.now, "app", number, "t", group, 0, offset))

    def reset(group: str) -> None:
        world.run(lambda: world.broker.operating.reset(world.now, "t", group, 0, 1))

    move(second, "g", 4)
    move(number, "other", 2)
    move(number, "g", 3)
    if set_between:
        world.restart()  # the moves are in STATE
        world.resume(session)
    reset("g")
    assert world.broker.views.checked.settles == 1
    same_after_a_start(world)
    world.restart()  # what is left is in STATE
    world.resume(session)
    world.put(1, "t", 1, number=number)  # its number in the transaction was not used before
    same_after_a_start(world)
    world.decided(number)
    assert world.progress("t", "g").cursor == 1
    assert world.progress("t", "other").cursor == 2
    move(second, "g", 2)  # one from after the reset counts
    world.decided(second)
    assert world.progress("t", "g").cursor == 2
    assert world.drain(session, "t", "g") == [2, 3, 4, 5]
    assert not world.broker.views.checked.settles
    same_after_a_start(world)


@pytest.mark.parametrize("clean", [True, False])
def test_rows_with_due_times_are_scheduled_at_the_commit(clean: bool) -> None:
    world, session = start()
    rows = [Row(body=b"row %d" % at, due_us=world.now + at * SECOND) for at in (100, 5, 50)]
    number = world.put(1, "t", rows).transaction
    world.put(1, "t", 1, number=number)
    world.pass_time(10 * SECOND)
    assert world.drain(session, "t", "g") == []
    assert world.broker.views.schedule.rows == 0
    world.decided(number)
    world.pass_time(1)
    assert world.broker.views.schedule.rows == 2
    world.restart(clean=clean, gap_us=SECOND)
    world.resume(session)
    assert world.drain(session, "t", "g") == [0, 1], "the plain row, and the one that is past"
    world.pass_time(40 * SECOND)
    world.commit()
    assert world.drain(session, "t", "g") == [2]
    world.pass_time(50 * SECOND)
    world.commit()
    assert world.drain(session, "t", "g") == [3]
    same_after_a_start(world)


def test_rows_of_an_undecided_one_can_be_read() -> None:
    world, session = start()
    number = world.put(1, "t", 3).transaction
    world.put(1, "u", 2, number=number)
    first = world.broker.checking.rows("app", number, 0, 1)
    assert len(first.records) == 1
    second = world.broker.checking.rows("app", number, first.next, 1 << 20)
    assert (len(second.records), second.next) == (1, 0)
    assert len(world.broker.checking.rows("app", number, 0, 1 << 20).records) == 2
    world.decided(number)
    with pytest.raises(TransactionDecided):
        world.broker.checking.rows("app", number, 0, 1 << 20)
    del session


def test_prepared_batches_of_both_kinds_share_a_cap() -> None:
    world, _ = start(limits=Limits(prepared_batches=2, prepared_bytes=5000))
    number = world.put(1, "t").transaction
    world.prepare("t", 1, "w", producer=8)
    with pytest.raises(Busy, match="2 prepared batches"):
        world.prepare("t", 1, "w", part="1/0", producer=8)
    with pytest.raises(Busy, match="2 prepared batches"):
        world.put(1, "t", number=number)
    world.decided(number, commit=False)
    world.prepare("t", [Row(b"x" * 4000)], "w", part="1/0", producer=8)
    world.abort("w")
    other = world.put(2, "t", [Row(b"x" * 3500)]).transaction
    with pytest.raises(Busy, match="bytes of prepared"):
        world.prepare("t", [Row(b"x" * 1400)], "w", 2, producer=8)
    with pytest.raises(Busy, match="bytes of prepared"):
        world.put(2, "t", [Row(b"x" * 1400)], number=other)
    same_after_a_start(world)
