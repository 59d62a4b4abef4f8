"""Questions to checkers: when, whom, how often; what follows without an answer."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from msgspec.structs import replace

from ternmq.broker.checkback.asking import A_SECOND, UNDER_WAY, Asking
from ternmq.broker.clock.timers import Timer
from ternmq.broker.containers.deadlines import STALE
from ternmq.broker.transaction.checked import CheckedTransaction
from ternmq.model.errors import (
    InvalidRequest,
    NoChecker,
    TransactionDecided,
    UnknownProducerGroup,
    UnknownSession,
)
from ternmq.model.specs import ProducerGroupSpec, Unanswered
from ternmq.model.types import HOUR_US
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import SECOND, check, difference, portrait, reopened

PLAIN = ProducerGroupSpec(name="pay", jitter=0.0)


def start(spec: ProducerGroupSpec = PLAIN) -> tuple[Transacting, int]:
    world = Transacting()
    world.topic("t")
    put(world, spec)
    return world, world.checker()


def put(world: Transacting, spec: ProducerGroupSpec) -> None:
    world.run(lambda: world.broker.checking.put_group(world.now, "app", spec))


def same_after_a_start(world: Transacting) -> None:
    check(world.broker, world.now)
    other = reopened(world)
    assert not difference(portrait(world.broker.views), portrait(other.views))


def alarms(world: Transacting) -> list[tuple[str, str]]:
    return [(key.name, key.subject) for key in world.broker.alarms.open]


def test_the_first_question_after_60_seconds_then_at_longer_and_longer_intervals() -> None:
    world, session = start()
    number = world.put(1, "t", session=session, query_id="order-7").transaction
    assert world.wait(59 * SECOND) == []
    world.pass_time(SECOND)
    world.commit()
    ((to, question),) = world.asked.all
    assert (to, question.query_id, question.attempt) == (session, "order-7", 1)
    assert (question.topics, question.rows) == (["t"], 1)
    world.asked.take()
    for attempt, pause in (
        (2, 90),
        (3, 135),
        (4, 202.5),
        (5, 303.75),
        (6, 455.625),
        (7, 600),
        (8, 600),
    ):
        world.broker.checking.unknown(session, number)
        assert world.wait(round(pause * SECOND) - 1) == []
        assert world.wait(1) == [(session, number, attempt)]
    same_after_a_start(world)


def test_a_question_leaves_when_its_record_is_durable() -> None:
    world, session = start()
    world.put(1, "t", session=session)
    world.pass_time(60 * SECOND)
    world.broker.committed()
    assert world.asked.all == []
    world.commit()
    assert len(world.asked.take()) == 1


def test_the_time_of_the_first_question_is_for_each_transaction() -> None:
    world, session = start()
    number = world.put(1, check_after_us=5 * SECOND).transaction
    assert world.wait(5 * SECOND) == [(session, number, 1)]


def test_who_opened_it_is_asked_first_then_the_others() -> None:
    world, session = start()
    other = world.checker("d")
    world.offer(session)
    number = world.put(1, session=other).transaction
    found = world.wait(60 * SECOND) + world.wait(90 * SECOND) + world.wait(135 * SECOND)
    assert found == [(other, number, 1), (session, number, 2), (other, number, 3)]


def test_a_session_that_is_gone_is_not_asked() -> None:
    world, session = start()
    other = world.checker("d")
    number = world.put(1, session=session).transaction
    world.broker.checking.withdrawn(session)
    assert world.wait(60 * SECOND) == [(other, number, 1)]


@pytest.mark.parametrize("restart", [False, True])
def test_while_nobody_offers_no_attempt_counts_and_who_comes_is_asked_at_once(
    restart: bool,
) -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    world.broker.checking.withdrawn(session)
    assert world.wait(10 * HOUR_US) == []
    assert world.broker.views.checked.by_number[number].attempt == 0
    if restart:
        world.restart()
        world.resume(session)
        assert world.wait(HOUR_US) == []
    newcomer = world.checker("e")
    assert world.wait(1) == [(newcomer, number, 1)]


def test_attempts_survive_restarts() -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    world.wait(60 * SECOND)
    world.wait(90 * SECOND)
    world.restart()
    world.resume(session)
    world.offer(session)
    assert world.broker.views.checked.by_number[number].attempt == 2
    assert world.wait(SECOND) == []
    assert world.wait(135 * SECOND) == [(session, number, 3)]


@pytest.mark.parametrize("then", list(Unanswered))
def test_after_the_last_attempt_the_policy_decides(then: Unanswered) -> None:
    world, session = start(replace(PLAIN, attempts=3, then=then))
    world.group("t", "g")
    number = world.put(1, "t", session=session).transaction
    for attempt, pause in ((1, 60), (2, 90), (3, 135)):
        assert world.wait(pause * SECOND) == [(session, number, attempt)]
    assert world.wait(203 * SECOND) == []
    state = world.broker.checking.show("app", number)
    if then is Unanswered.PARK:
        assert (state.outcome, state.next_us) == ("parked", 0)
        world.wait(2 * SECOND)
        assert alarms(world) == [("transaction-parked", "t-1")]
        assert world.wait(100 * HOUR_US) == []
        same_after_a_start(world)
        world.decided(number)
        for _ in range(15):
            world.wait(SECOND)
        assert alarms(world) == []
    else:
        assert state.outcome == ("committed" if then is Unanswered.COMMIT else "rolled-back")
        assert state.why == "policy"
        rows = world.broker.views.catalog.topic("t").queues[0].next
        assert rows == (1 if then is Unanswered.COMMIT else 0)
    same_after_a_start(world)


def test_after_a_day_it_is_parked_however_often_was_asked() -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    world.broker.checking.withdrawn(session)
    world.wait(24 * HOUR_US - 1)
    assert world.broker.checking.show("app", number).outcome == "undecided"
    world.wait(1)
    assert world.broker.checking.show("app", number).outcome == "parked"


def test_without_a_checker_for_an_hour_there_is_an_alarm() -> None:
    world, session = start()
    world.put(1, session=session)
    world.broker.checking.withdrawn(session)
    world.wait(60 * SECOND)
    for _ in range(30):
        world.wait(2 * 60 * SECOND - SECOND)
    assert alarms(world) == []
    world.wait(60 * SECOND)
    world.wait(SECOND)
    assert alarms(world) == [("no-checker", "pay")]
    world.offer(session)
    for _ in range(15):
        world.wait(SECOND)
    assert alarms(world) == []


def test_a_parked_one_is_taken_up_again() -> None:
    world, session = start(replace(PLAIN, attempts=1))
    number = world.put(1, session=session).transaction
    world.wait(60 * SECOND)
    world.wait(90 * SECOND)
    assert world.broker.checking.show("app", number).outcome == "parked"
    world.run(lambda: world.broker.checking.take_up(world.now, "app", number))
    assert world.wait(1) == [(session, number, 1)]
    same_after_a_start(world)
    world.decided(number, attempt=1)
    assert world.broker.checking.show("app", number).why == "checker"
    with pytest.raises(TransactionDecided):
        world.broker.checking.take_up(world.now, "app", number)


def test_a_change_of_the_policy_holds_for_open_ones() -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    assert world.wait(60 * SECOND) == [(session, number, 1)]
    put(world, replace(PLAIN, attempts=1, then=Unanswered.ROLL_BACK))
    world.wait(90 * SECOND)
    assert world.broker.checking.show("app", number).outcome == "rolled-back"


def test_no_session_and_no_group_is_asked_too_much_at_once() -> None:
    world, session = start()
    other = world.checker("d")
    count = A_SECOND + UNDER_WAY + 30
    numbers = [world.put(one, session=session).transaction for one in range(1, count + 1)]
    found = world.wait(60 * SECOND)
    for _ in range(99):
        found += world.wait(SECOND // 100)
    assert len(found) == A_SECOND
    for _ in range(300):
        found += world.wait(SECOND // 100)
    for asked in (session, other):
        assert sum(to == asked for to, _, _ in found) == UNDER_WAY
    for to, number, _ in found:
        world.broker.checking.unknown(to, number)
    for _ in range(300):
        found += world.wait(SECOND // 100)
    assert sorted({number for _, number, _ in found}) == numbers


def test_who_does_not_answer_is_asked_again() -> None:
    """Its questions under way are as many as may be: the next ones are no additional ones."""
    world, session = start()
    numbers = [world.put(one, session=session).transaction for one in range(1, UNDER_WAY + 1)]
    found = world.wait(60 * SECOND)
    for _ in range(100):
        found += world.wait(SECOND // 100)
    assert len(found) == UNDER_WAY
    again = world.wait(90 * SECOND)
    for _ in range(100):
        again += world.wait(SECOND // 100)
    assert sorted(again) == [(session, number, 2) for number in numbers]


def test_an_offer_and_a_change_look_at_some_transactions_in_a_turn() -> None:
    world, session = start()
    numbers = [world.put(one, session=session).transaction for one in range(1, 601)]
    world.broker.checking.withdrawn(session)
    world.wait(60 * SECOND)
    asking = world.broker.checking.asking
    looked = 0
    set_ = Asking._arm

    def counted(self: Asking, number: int, at_us: int) -> None:
        nonlocal looked
        looked += 1
        set_(self, number, at_us)

    with patch.object(Asking, "_arm", counted):
        world.broker.checking.offered(world.now, "app", session, ["pay"])
        assert looked <= 300
        looked = 0
        world.broker.checking.put_group(world.now, "app", replace(PLAIN, give_up_us=HOUR_US))
        assert looked <= 300
    world.commit()
    found: list[tuple[int, int, int]] = []
    for _ in range(800):
        found += world.wait(SECOND // 100)
        for to, number, _ in found[-5:]:
            world.broker.checking.unknown(to, number)
    assert sorted(number for _, number, _ in found) == numbers
    assert not asking._waits
    assert not asking._to_arm


def test_thousands_that_are_due_are_not_looked_at_again_and_again() -> None:
    """Each has a time of its own until its turn comes: others would wait for these looks."""
    world, session = start()
    for one in range(1, 1001):
        world.put(one, session=session)
    asking = world.broker.checking.asking
    looks = 0
    look = asking._look

    def counted(now_us: int, opened: CheckedTransaction) -> int:
        nonlocal looks
        looks += 1
        return look(now_us, opened)

    with patch.object(Asking, "_look", lambda self, now_us, opened: counted(now_us, opened)):
        world.wait(60 * SECOND)
        for _ in range(50):
            world.wait(SECOND // 10)
    assert 1000 <= looks < 2500


def test_decided_transactions_leave_no_times_behind() -> None:
    world, session = start()
    for one in range(1, 3001):
        number = world.put(one, session=session).transaction
        world.decided(number, commit=False)
    asking = world.broker.checking.asking
    assert len(asking._deadlines) < 2 * STALE + 100
    assert not asking._times
    timers = [one for one in world.broker.timers._heap if one[2] is Timer.CHECK]
    assert len(timers) < 5
    world.put(4000, session=session)
    assert world.wait(60 * SECOND) == [(session, 3001, 1)]


def test_who_waits_for_a_checker_and_is_decided_waits_no_more() -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    world.put(2, session=session)
    world.broker.checking.withdrawn(session)
    world.wait(2 * HOUR_US)
    asking = world.broker.checking.asking
    assert list(asking.unchecked(world.now)) == [("pay", 2)]
    world.decided(number)
    assert list(asking.unchecked(world.now)) == [("pay", 1)]
    world.decided(number + 1)
    assert not list(asking.unchecked(world.now))
    world.offer(session)
    assert world.wait(SECOND) == []


def test_questions_end_in_time_although_the_next_one_is_due_later() -> None:
    world, session = start(replace(PLAIN, first_us=100 * SECOND, give_up_us=150 * SECOND))
    number = world.put(1, session=session).transaction
    assert world.wait(100 * SECOND) == [(session, number, 1)]
    world.wait(50 * SECOND - 1)
    assert world.broker.checking.show("app", number).outcome == "undecided"
    world.wait(1)
    assert world.broker.checking.show("app", number).outcome == "parked"


def test_a_shorter_time_to_give_up_holds_for_open_ones() -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    world.wait(60 * SECOND)
    put(world, replace(PLAIN, give_up_us=70 * SECOND))
    world.wait(10 * SECOND)
    assert world.broker.checking.show("app", number).outcome == "parked"


def test_no_session_of_another_app_is_asked() -> None:
    """It may have offered a group of this name before the group was deleted."""
    world = Transacting()
    other = world.run(lambda: world.broker.clients.join(world.now, "other", "o")).value
    world.offer(other, app="other")
    world.run(lambda: world.broker.checking.delete_group(world.now, "other", "pay"))
    session = world.join()
    with pytest.raises(NoChecker):
        world.put(1, session=session)
    world.offer(session)
    number = world.put(1, session=session).transaction
    world.broker.checking.withdrawn(session)
    assert world.wait(2 * HOUR_US) == []
    world.wait(SECOND)
    assert alarms(world) == [("no-checker", "pay")]
    world.offer(session)
    assert [to for to, _, _ in world.wait(3 * SECOND)] == [session]
    assert number


def test_an_answer_to_a_question_that_cannot_be_is_refused() -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    for attempt in (-1, 65_536, 2**32 - 1):
        with pytest.raises(InvalidRequest):
            world.decided(number, attempt=attempt)
    assert world.broker.checking.show("app", number).outcome == "undecided"


def test_a_deleted_group_leaves_nothing_behind() -> None:
    world, session = start()
    number = world.put(1, "t", session=session).transaction
    world.pass_time(61 * SECOND)
    world.commit()
    assert world.asked.take()
    asking = world.broker.checking.asking
    assert list(asking._free_us) == ["pay"]
    world.decided(number, commit=False)
    world.run(lambda: world.broker.checking.delete_group(world.now, "app", "pay"))
    assert not asking._free_us


def test_an_offer_rests_on_the_groups_that_it_claims() -> None:
    """A power cut must not give a name that was answered for to another app."""
    world, session = start()
    offered = world.broker.checking.offered
    assert offered(world.now, "app", session, ["pay"]).position == 0
    reply = offered(world.now, "app", session, ["pay", "new"])
    assert reply.position == world.broker.journal.end > world.broker.journal.durable


def test_groups_are_put_changed_and_deleted() -> None:
    world, session = start()
    number = world.put(1, session=session).transaction
    with pytest.raises(InvalidRequest):
        world.broker.checking.delete_group(world.now, "app", "pay")
    world.decided(number)
    same_after_a_start(world)
    world.run(lambda: world.broker.checking.delete_group(world.now, "app", "pay"))
    same_after_a_start(world)
    with pytest.raises(UnknownProducerGroup):
        world.broker.checking.delete_group(world.now, "app", "pay")
    with pytest.raises(InvalidRequest):
        put(world, replace(PLAIN, attempts=0))
    with pytest.raises(UnknownSession):
        world.offer(77)
