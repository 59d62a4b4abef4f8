"""What a transaction may hold: delays of its retries, and rows with due times of all of them."""

from __future__ import annotations

import pytest

from ternmq.broker.checkback import preparing
from ternmq.broker.delivery.settles import LONGEST_US
from ternmq.model.errors import Busy, InvalidRequest
from ternmq.model.specs import Limits
from ternmq.model.types import DAY_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import SECOND, check, difference, portrait, reopened


def start(**more: object) -> tuple[Transacting, int]:
    world = Transacting(**more)  # type: ignore[arg-type]
    world.topic("t")
    world.group("t", "g")
    return world, world.checker()


def same_after_a_start(world: Transacting) -> None:
    check(world.broker, world.now)
    assert not difference(portrait(world.broker.views), portrait(reopened(world).views))


@pytest.mark.parametrize("delay_us", [-1, LONGEST_US + 1, 10**18, (1 << 63) - 1])
def test_a_retry_in_a_transaction_is_at_most_two_years_later(delay_us: int) -> None:
    world, session = start()
    world.send("t", 1)
    number = world.put(1).transaction
    pulled = world.pull(session, "t", "g", 1)
    assert pulled is not None
    end = world.broker.journal.end
    with pytest.raises(InvalidRequest, match="two years"):
        world.hold(number, session, "t", pulled, Outcome.RETRY, delay_us=delay_us, reason="")
    assert world.broker.journal.end == end
    world.hold(number, session, "t", pulled, Outcome.RETRY, delay_us=LONGEST_US, reason="")
    world.decided(number)
    same_after_a_start(world)


@pytest.mark.parametrize("span", [(1, 1), (1, 0), (-1, 1)])
def test_a_span_of_a_transaction_is_a_span(span: tuple[int, int]) -> None:
    world, session = start()
    world.send("t", 2)
    number = world.put(1).transaction
    pulled = world.pull(session, "t", "g", 2)
    assert pulled is not None
    with pytest.raises(InvalidRequest, match="span"):
        world.hold(number, session, "t", pulled, spans=[span], delay_us=None, reason="")


def test_a_delay_of_an_earlier_version_that_no_record_can_say_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, session = start()
    world.send("t", 1)
    number = world.put(1).transaction
    pulled = world.pull(session, "t", "g", 1)
    assert pulled is not None
    monkeypatch.setattr(preparing, "stated", lambda asked: Outcome(asked.outcome))
    world.hold(number, session, "t", pulled, Outcome.RETRY, delay_us=(1 << 63) - 1, reason="")
    world.restart()
    world.decided(number)
    world.pass_time(LONGEST_US - SECOND)
    again = world.join("d")
    assert world.pull(again, "t", "g", 1) is None
    world.pass_time(2 * SECOND)
    assert world.pull(again, "t", "g", 1) is not None


def due(world: Transacting, count: int) -> list[Row]:
    return [Row(body=b"x", due_us=world.now + 9 * DAY_US)] * count


def test_rows_that_undecided_transactions_hold_count_among_the_scheduled() -> None:
    """Otherwise commits, which must not be refused, would bring any number."""
    world, _ = start(limits=Limits(scheduled_rows=10))
    world.prepare("t", due(world, 2), producer=8)
    first = world.put(1, "t", due(world, 5)).transaction
    second = world.put(2, "t", due(world, 3)).transaction
    end = world.broker.journal.end
    with pytest.raises(Busy, match="0 messages are scheduled and 10 prepared, the limit"):
        world.put(3, "t", due(world, 1))
    with pytest.raises(Busy, match="scheduled_rows"):
        world.send("t", due(world, 1))
    assert world.broker.journal.end == end
    world.restart()
    world.offer(world.join("c"))
    with pytest.raises(Busy, match="scheduled_rows"):
        world.send("t", due(world, 1))
    world.decided(first)
    assert world.broker.views.schedule.rows == 5
    with pytest.raises(Busy, match="5 messages are scheduled and 5 prepared"):
        world.send("t", due(world, 1))
    world.decided(second, commit=False)
    world.send("t", due(world, 3))
    with pytest.raises(Busy, match="8 messages are scheduled and 2 prepared"):
        world.send("t", due(world, 1))
    same_after_a_start(world)
