"""A broker that begins to lead: its loop goes on while the journal is recovered."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ternmq.cluster.coordination.memory import Register
from ternmq.server import app
from ternmq.server.app import EXIT_OK
from ternmq.server.engine.engine import Core
from tests.asynchronous import until
from tests.unit.server.node.kit import node


class Slow:
    """Makes cores, each only when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.goes_on = threading.Event()
        monkeypatch.setattr(app, "Core", self)

    def __call__(self, *arguments: Any, **named: Any) -> Core:
        self.begun.set()
        assert self.goes_on.wait(30)
        return Core(*arguments, **named)


async def test_the_loop_goes_on_while_the_journal_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    a = node(tmp_path / "a", Register(), "a")
    await a.start()
    led = asyncio.create_task(a.run())
    await until(slow.begun.is_set, "the recovery has begun", 30)
    assert a.outlook.why_not_ready() == "a begins to lead broker group main"
    assert a.server is None
    slow.goes_on.set()
    await until(lambda: a.server is not None, "a leads", 30)
    a.stopping.set()
    assert await led == EXIT_OK


def is_cancelled() -> bool:
    """Return whether the task that starts the server was cancelled."""
    return any(
        task.cancelling() and "Server.start" in repr(task.get_coro())
        for task in asyncio.all_tasks()
    )


async def test_a_stop_waits_for_the_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    register = Register()
    a = node(tmp_path / "a", register, "a")
    await a.start()
    led = asyncio.create_task(a.run())
    await until(slow.begun.is_set, "the recovery has begun", 30)
    a.stopping.set()
    await until(is_cancelled, "the start is given up")
    assert not led.done(), "a thread works in the folder"
    slow.goes_on.set()
    assert await led == EXIT_OK
    again = node(tmp_path / "a", register, "a")  # nothing holds the folder
    await again.start()
    led = asyncio.create_task(again.run())
    await until(lambda: again.server is not None, "it leads again", 30)
    again.stopping.set()
    assert await led == EXIT_OK
