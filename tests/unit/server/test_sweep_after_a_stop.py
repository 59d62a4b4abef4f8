"""After the loop itself was held up, nobody is cut off for what he said meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.server import app
from ternmq.server.native.hub import Hub
from ternmq.settings import Mode, load


def test_who_could_not_be_heard_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[float] = []
    monkeypatch.setattr(Hub, "sweep", lambda self, now: judged.append(now))

    async def run() -> None:
        server = app.Server(load(None, environ={}, flags={}, mode=Mode.TESTING), disk=MemoryDisk())
        await server.start()
        try:
            for late_s, judges in ((0.0, True), (2 * app._LATE_S, False), (0.0, True)):
                judged.clear()
                assert server._sweeper is not None
                server._sweeper.cancel()
                server._swept_at = server.core.loop.time() - late_s
                server._sweep()
                assert bool(judged) == judges
        finally:
            await server.close()

    asyncio.run(run())
