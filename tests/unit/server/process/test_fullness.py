"""The log says that sends are refused, why, and when they are taken again."""

from __future__ import annotations

import logging

import pytest

from ternmq.server.process.fullness import AGAIN_S, CHANGED_S, Fullness
from tests.unit.broker.upkeep.test_refreshing import Small, small

GROUP = (
    "What keeps the oldest file of the journal: group g has not finished its messages of topic t"
)


def looking(world: Small) -> Fullness:
    return Fullness(world.broker, world.started.upkeep.moving, world.disk, 0.9)


@pytest.fixture
def full(caplog: pytest.LogCaptureFixture) -> Small:
    caplog.set_level(logging.INFO, "ternmq.server")
    world = small()
    world.fill()
    world.turns(60)
    return world


def test_it_is_said_once_a_minute_and_when_it_is_over(
    full: Small, caplog: pytest.LogCaptureFixture
) -> None:
    looks = looking(full)
    for second in range(100, 100 + int(2 * AGAIN_S)):
        looks.look(float(second))
    assert len(caplog.messages) == 2
    free, total = full.disk.free_bytes(), full.disk.total_bytes()
    for said in caplog.messages:
        assert said.startswith("no room: sends are refused. The journal has ")
        assert f"; the disk is {100 * (total - free) / total:.0f} % full, {free >> 20} MiB" in said
        assert " MiB are free, as df counts (retention_watermark = 0.9). " in said
        assert said.endswith(GROUP)
    full.drain(full.join(), "t", "g")
    assert full.takes_again()
    caplog.clear()
    for second in range(1000, 1100):
        looks.look(float(second))
    assert caplog.messages == ["there is room again: sends are accepted"]


def test_another_reason_is_said_soon_but_not_each_second(
    full: Small, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = iter([f"reason {number}" for number in range(100)])
    monkeypatch.setattr("ternmq.server.process.fullness.sentence", lambda one: next(reasons))
    looks = looking(full)
    for second in range(100, 100 + int(3 * CHANGED_S)):
        looks.look(float(second))
    assert len(caplog.messages) == 3


def test_nothing_is_said_of_one_refusal_that_is_over_at_the_next_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = small()
    world.fill()
    looks = looking(world)
    looks.look(1.0)
    world.drain(world.join(), "t", "g")
    assert world.takes_again()
    looks.look(2.0)
    assert caplog.messages == []
