"""When a turn asks for upkeep: always, save for a lone request soon after upkeep had no work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ternmq.journal.log.space import AllocateJob
from ternmq.model.errors import DiskWriteError, JournalFailed
from ternmq.model.types import Position
from ternmq.server.engine import engine as core_module
from tests.unit.server.engine.test_sync_pace import Desk, with_desk

NEVER_US = 1 << 60


def asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return where the journal ended whenever upkeep was asked for work, as it comes."""
    upkeep, found = desk.core.upkeep, list[int]()
    step = upkeep.step

    def noted(now_us: int, may_go_on: Callable[[], bool]) -> None:
        found.append(desk.core.broker.journal.end)
        step(now_us, may_go_on)

    monkeypatch.setattr(upkeep, "step", noted)
    return found


async def quiet(desk: Desk) -> None:
    """Have nothing under way, and upkeep asked by a turn that is for nobody."""
    await desk.sent()
    await desk.settle()
    desk.core.touch()
    await desk.settle()
    await desk.sent()
    await desk.settle()


def test_lone_requests_leave_upkeep_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "HOUSE_EVERY_US", NEVER_US)

    async def work(desk: Desk) -> None:
        await quiet(desk)
        steps = asked(desk, monkeypatch)
        for _ in range(20):
            desk.core._house_us = NEVER_US
            desk.send()
            desk.core._end_turn()
            assert not steps
            await desk.settle()
            steps.clear()  # the turn of a sync that was made in the thread is for nobody

    with_desk(work)


def test_lone_requests_that_record_nothing_leave_upkeep_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(desk: Desk) -> None:
        await quiet(desk)
        core = desk.core
        core._house_us = core._house_end = NEVER_US
        steps = asked(desk, monkeypatch)
        for _ in range(20):
            core.asked += 1
            core._end_turn()
        assert not steps
        core._end_turn()
        assert len(steps) == 1

    with_desk(work)


def test_time_and_growth_ask_for_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        await quiet(desk)
        core = desk.core
        steps = asked(desk, monkeypatch)
        for due in ({"_house_us": core.now_us()}, {"_house_end": core.broker.journal.end}):
            core._house_us = core._house_end = NEVER_US
            for name, value in due.items():
                setattr(core, name, value)
            desk.send()
            core._end_turn()
            assert len(steps) == 1, due
            await desk.settle()
            steps.clear()

    with_desk(work)


@pytest.mark.parametrize("count", [0, 2])
def test_what_is_not_alone_asks_for_upkeep(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    async def work(desk: Desk) -> None:
        await quiet(desk)
        steps = asked(desk, monkeypatch)
        desk.core._house_us = desk.core._house_end = NEVER_US
        desk.send(count=count)
        desk.core._end_turn()
        assert len(steps) == 1

    with_desk(work)


@pytest.mark.parametrize("work_left", ["a job", "a set of STATE", "the oldest segment"])
def test_upkeep_that_has_work_is_asked_in_every_turn(
    monkeypatch: pytest.MonkeyPatch, work_left: str
) -> None:
    async def work(desk: Desk) -> None:
        await quiet(desk)
        core = desk.core
        upkeep = core.upkeep
        if work_left == "a job":
            monkeypatch.setattr(upkeep, "next_job", Nothing)
        elif work_left == "a set of STATE":
            core.broker.writer.begin(core.now_us(), 0)
            monkeypatch.setattr(upkeep, "step", lambda *_: None)
        else:
            monkeypatch.setattr(type(upkeep), "goes_on", property(lambda _: True))
        core._house_us = NEVER_US
        core._go_on_keeping_house(core.now_us())
        assert core._house_us == 0
        monkeypatch.undo()
        if core.broker.writer.active:
            await desk.sent(count=2)
            await desk.settle()

    with_desk(work)


class Nothing:
    """A job that does nothing."""

    def run(self) -> None:
        """Do it."""


def test_a_job_that_ended_has_upkeep_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        await quiet(desk)
        core = desk.core
        core._house_us = NEVER_US
        steps = asked(desk, monkeypatch)
        core._take(Nothing(), None)
        desk.send()
        core._end_turn()
        assert len(steps) == 1

    with_desk(work)


def test_a_job_that_ends_when_the_folder_is_gone_ends_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(desk: Desk) -> None:
        await quiet(desk)
        core = desk.core

        def finished(job: object, error: Exception | None) -> None:
            raise DiskWriteError("reading the free space of data: there is no such folder")

        monkeypatch.setattr(core.upkeep, "finished", finished)
        core._take(AllocateJob(core.disk, Position(0), 8), OSError("gone"))
        assert isinstance(core.failure, JournalFailed)
        assert "reading the free space" in str(core.failure)

    with_desk(work)
