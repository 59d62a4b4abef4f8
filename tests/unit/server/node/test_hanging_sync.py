"""A primary whose disk takes writes, and whose sync does not end, leaves the group to a member."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from ternmq.cluster.coordination.memory import Register
from ternmq.journal.disk import real
from ternmq.server.app import EXIT_FAILED
from ternmq.server.engine import sync_pace
from ternmq.server.engine.engine import Core
from ternmq.server.node import reigning
from tests.asynchronous import until
from tests.unit.server.node.kit import core_of, has_member, node


class Syncs:
    """Syncs of the files in a folder, which hang when they are told to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hang = False
        self.goes_on = threading.Event()
        self._folder = str(folder)
        self._sync = real._datasync
        monkeypatch.setattr(real, "_datasync", self)
        monkeypatch.setattr(sync_pace, "SMALL_BYTES", -1)  # each sync runs in its thread

    def __call__(self, number: int) -> None:
        if self.hang and os.readlink(f"/proc/self/fd/{number}").startswith(self._folder):
            assert self.goes_on.wait(30)
        self._sync(number)

    def go_on_when_failed(self, core: Core) -> threading.Thread:
        """End the hanging sync once the core has failed: its end waits for the thread."""
        pause = threading.Event()

        def wait() -> None:
            for _ in range(3000):
                if core.failure is not None:
                    break
                pause.wait(0.01)
            self.goes_on.set()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread


async def test_a_member_leads_when_the_sync_of_the_primary_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reigning, "_SYNC_HANGS_S", 0.3)
    syncs = Syncs(tmp_path / "a", monkeypatch)
    register = Register()
    a, b = (node(tmp_path / name, register, name) for name in "ab")
    await a.start()
    led = asyncio.create_task(a.run())
    await until(lambda: a.server is not None, "a leads", 30)
    core = core_of(a)
    syncs.hang = True
    core.broker.holding.put(core.now_us(), "alone", 0)
    core.touch()
    reign = a.reigning
    assert reign is not None
    await until(lambda: core.syncing is not None and reign._ticks_of_sync > 5, "the sync hangs")
    assert core.failure is None, "a broker that nobody can replace waits for its disk"
    syncs.hang = False
    syncs.goes_on.set()
    await until(lambda: core.syncing is None, "the sync has ended")

    await b.start()
    following = asyncio.create_task(b.run())
    await until(lambda: has_member(a), "b is a member", 30)
    syncs.goes_on.clear()
    syncs.hang = True
    letting_go = syncs.go_on_when_failed(core)
    core.broker.holding.put(core.now_us(), "two", 0)
    core.touch()
    assert await led == EXIT_FAILED
    letting_go.join()
    assert "a sync has not ended for" in str(core.failure)
    await until(lambda: b.server is not None, "b leads", 30)
    assert set(core_of(b).broker.views.holds) == {"alone", "two"}
    b.stopping.set()
    await following
