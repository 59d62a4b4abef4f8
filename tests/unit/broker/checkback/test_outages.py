"""The broker was down over the time to give up: clients come back first, and are asked."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ternmq.broker.checkback.asking import Asking
from ternmq.model.specs import ProducerGroupSpec, Unanswered
from ternmq.model.types import DAY_US
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import SECOND

PLAIN = ProducerGroupSpec(name="pay", jitter=0.0)
THEN = list(Unanswered)


def start(then: Unanswered) -> Transacting:
    world = Transacting()
    world.topic("t")
    spec = replace(PLAIN, then=then)
    world.run(lambda: world.broker.checking.put_group(world.now, "app", spec))
    world.checker()
    return world


def away(then: Unanswered) -> tuple[Transacting, int, int]:
    """Open a transaction, and be down for two days; return it and the session grace."""
    world = start(then)
    number = world.put(1, "t").transaction
    world.restart(gap_us=2 * DAY_US)
    return world, number, world.broker.limits.session_grace_us


@pytest.mark.parametrize("then", THEN)
def test_who_comes_back_within_the_grace_is_asked_and_decides(then: Unanswered) -> None:
    world, number, grace_us = away(then)
    assert world.wait(grace_us - SECOND) == []
    session = world.checker("d")
    assert world.wait(SECOND // 2) == [(session, number, 1)]
    world.wait(59 * SECOND)
    assert world.broker.checking.show("app", number).outcome == "undecided"
    world.decided(number, commit=then is not Unanswered.COMMIT, attempt=1)


@pytest.mark.parametrize("then", THEN)
def test_if_nobody_comes_the_policy_decides_after_the_grace(then: Unanswered) -> None:
    world, number, grace_us = away(then)
    world.wait(grace_us + PLAIN.first_us - 1)
    assert world.broker.checking.show("app", number).outcome == "undecided"
    world.wait(1)
    outcome = world.broker.checking.show("app", number).outcome
    assert outcome == {
        Unanswered.PARK: "parked", Unanswered.COMMIT: "committed",
        Unanswered.ROLL_BACK: "rolled-back",
    }[then]  # fmt: skip


def test_the_grace_is_not_for_transactions_that_were_opened_since() -> None:
    world = start(Unanswered.PARK)
    world.restart()
    session = world.checker()
    soon = replace(PLAIN, first_us=SECOND, cap_us=SECOND, give_up_us=2 * SECOND)
    world.run(lambda: world.broker.checking.put_group(world.now, "app", soon))
    number = world.put(1, "t", session=session).transaction
    assert world.wait(SECOND) == [(session, number, 1)]
    world.wait(SECOND)
    assert world.broker.checking.show("app", number).outcome == "parked"


def test_an_error_with_one_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = start(Unanswered.PARK)
    bad = world.put(1, "t").transaction
    good = world.put(2, "t").transaction
    look = Asking._look

    def fails(self: Asking, now_us: int, opened: object) -> int:
        if opened.number == bad:  # type: ignore[attr-defined]
            raise RuntimeError("a bug")
        return look(self, now_us, opened)  # type: ignore[arg-type]

    monkeypatch.setattr(Asking, "_look", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        world.wait(60 * SECOND)
    assert [number for _, number, _ in world.wait(SECOND)] == [good]
