"""Broker time goes on while the journal is opened: a long recovery does not leave it behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ternmq.broker.start import Options, open_broker
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.server.engine import engine as core_module
from ternmq.server.engine.engine import Core

WALL_US = 1_700_000_000_000_000
RECOVERY_US = 3_000_000


class Clocks:
    """Both stand still until somebody moves them."""

    def __init__(self) -> None:
        self.passed_us = 0

    def monotonic_us(self) -> int:
        return self.passed_us

    def wall_us(self) -> int:
        return WALL_US + self.passed_us

    def call_at(self, monotonic_us: int, call: Callable[[], None]) -> Callable[[], None]:
        del monotonic_us, call
        return lambda: None


def test_it_begins_where_the_wall_clock_is_when_recovery_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = Clocks()

    def slowly(*arguments: Any, **named: Any) -> Any:
        opened = open_broker(*arguments, **named)
        clocks.passed_us += RECOVERY_US
        return opened

    monkeypatch.setattr(core_module, "open_broker", slowly)

    async def run() -> None:
        options = Options(segment_bytes=4 << 20)
        core = Core(MemoryDisk(), options, clocks, asyncio.get_running_loop(), seed=1)
        assert core.now_us() == clocks.wall_us()

    asyncio.run(run())
