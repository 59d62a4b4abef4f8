"""Accepting the wall clock: broker time jumps once, for good, and never back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ternmq.broker.start import Options
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import InvalidRequest
from ternmq.model.types import DAY_US, HOUR_US, SECOND_US
from ternmq.server.engine.engine import Core
from tests.unit.server.test_core_time import WALL_US, Clocks

OPTIONS = Options(segment_bytes=4 << 20, start_jump_us=90 * DAY_US)


class Jumping(Clocks):
    """Clocks of which the wall clock can be set."""

    jumped_us = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.jumped_us


def reign(disk: MemoryDisk, clocks: Jumping, what: Callable[[Core], Awaitable[None]]) -> None:
    async def run() -> None:
        core = Core(disk, OPTIONS, clocks, asyncio.get_running_loop(), seed=1)
        try:
            await what(core)
        finally:
            core.close(clean=True)

    asyncio.run(run())


def test_a_jump_is_followed_once_it_is_accepted_and_after_a_restart() -> None:
    disk, clocks = MemoryDisk(), Jumping()

    async def accept(core: Core) -> None:
        clocks.jumped_us = 400 * DAY_US
        clocks.passed_us += SECOND_US
        assert core.clock_gap_us() == 400 * DAY_US
        assert core.clock.alarmed
        assert core.now_us() == WALL_US + SECOND_US
        reply = core.accept_clock("ops")
        assert reply.position == core.broker.journal.end
        assert core.now_us() == clocks.wall_us()
        assert core.clock.gap_us == 0
        core.touch()
        await core.settle_down()

    async def again(core: Core) -> None:
        assert core.started.report.disbelieved_us == 0
        assert core.now_us() == clocks.wall_us()

    reign(disk, clocks, accept)
    reign(disk, clocks, again)


def test_a_start_does_not_believe_it_before() -> None:
    disk, clocks = MemoryDisk(), Jumping()

    async def nothing(core: Core) -> None:
        pass

    async def start(core: Core) -> None:
        assert core.started.report.disbelieved_us == 400 * DAY_US
        assert core.now_us() == WALL_US
        assert core.clock.alarmed

    reign(disk, clocks, nothing)
    clocks.jumped_us = 400 * DAY_US
    reign(disk, clocks, start)
    reign(disk, clocks, start)


def test_a_clock_that_is_behind_is_refused() -> None:
    disk, clocks = MemoryDisk(), Jumping()

    async def accept(core: Core) -> None:
        clocks.jumped_us = -2 * HOUR_US
        before = core.now_us()
        with pytest.raises(InvalidRequest, match="2 hours behind broker time"):
            core.accept_clock("ops")
        assert core.now_us() == before
        clocks.jumped_us = -SECOND_US  # followed by itself
        core.accept_clock("ops")
        core.clock_moved()
        assert core.now_us() == before

    reign(disk, clocks, accept)
