"""The log says which alarms are raised and cleared."""

from __future__ import annotations

import logging

import pytest

from ternmq.broker.catalog.alarms import AlarmKey
from ternmq.record.fact.control import Alarm
from ternmq.server.process.alarm_log import AT_ONCE, AlarmLog


def alarms(*some: tuple[str, str, str], since_us: int = 1) -> dict[AlarmKey, Alarm]:
    return {
        AlarmKey(name, subject): Alarm(name, text, subject, since_us=since_us)
        for name, subject, text in some
    }


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> AlarmLog:
    caplog.set_level(logging.INFO, "ternmq.server")
    return AlarmLog()


def test_each_is_told_once_and_its_end(log: AlarmLog, caplog: pytest.LogCaptureFixture) -> None:
    held = ("held", "t/g/0", "a key is held")
    room = ("due-no-room", "", "no room")
    for _ in range(3):
        log.look(alarms(held))
    log.look(alarms(held, room))
    assert caplog.messages == ["alarm held (t/g/0): a key is held", "alarm due-no-room: no room"]
    caplog.clear()
    for _ in range(3):
        log.look(alarms(room))
    assert caplog.messages == ["alarm held (t/g/0) is cleared"]


def test_one_that_was_cleared_and_raised_between_two_looks_is_told(
    log: AlarmLog, caplog: pytest.LogCaptureFixture
) -> None:
    for since_us in (1, 2):
        log.look(alarms(("held", "t/g/0", "x"), since_us=since_us))
    assert len(caplog.messages) == 2


def test_that_of_the_clock_has_lines_of_its_own(
    log: AlarmLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.look(alarms(("clock", "", "x")))
    log.look({})
    assert caplog.messages == []


def test_very_many_do_not_fill_the_log(log: AlarmLog, caplog: pytest.LogCaptureFixture) -> None:
    log.look(alarms(*[("held", f"t/g/{queue}", "x") for queue in range(AT_ONCE + 5)]))
    assert len(caplog.messages) == AT_ONCE + 1
    assert caplog.messages[-1].startswith("5 more alarms were raised or cleared")
