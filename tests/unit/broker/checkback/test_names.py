"""Names of transactions are made by clients: those of one app are nothing to another."""

from __future__ import annotations

import pytest

from ternmq.broker.checkback.questions import Name
from ternmq.model.errors import IdConflict, UnknownTransaction
from tests.unit.broker.checkback.kit import Transacting


def start() -> Transacting:
    world = Transacting()
    world.topic("t")
    world.checker()
    other = world.run(lambda: world.broker.clients.join(world.now, "other", "o")).value
    world.offer(other, "theirs", app="other")
    return world


def test_apps_may_use_the_same_names() -> None:
    """The producer id is in every message id, so others know it, and could use it up."""
    world = start()
    theirs = world.put(7, app="other", group="theirs").transaction
    ours = world.put(7, "t").transaction
    assert ours != theirs
    assert world.put(7).transaction == ours
    assert world.put(7, app="other", group="theirs").transaction == theirs
    world.restart()
    assert world.decided(Name(9, 7), commit=False).transaction == ours
    assert world.put(7, app="other", group="theirs").transaction == theirs
    assert world.decided(Name(9, 7), commit=False, app="other").transaction == theirs


@pytest.mark.parametrize("operator", [False, True])
def test_nobody_learns_from_a_name_that_another_app_uses_it(operator: bool) -> None:
    world = start()
    world.put(7)
    show = world.broker.checking.show
    with pytest.raises(UnknownTransaction):
        world.run(lambda: show("other", Name(9, 7), operator=operator))
    with pytest.raises(UnknownTransaction):
        world.decided(Name(9, 7), commit=False, app="other", operator=operator)
    assert world.broker.checking.show("app", Name(9, 7)).outcome == "undecided"


def test_a_batch_that_is_prepared_again_belongs_to_its_app() -> None:
    world = start()
    data = world.batch("t", world.rows(1))
    world.put(7, "t", data)
    with pytest.raises(IdConflict):
        world.put(7, "t", data, app="other", group="theirs")
