"""A broker that nobody asks anything still runs a turn now and then: time itself brings work."""

from __future__ import annotations

import math

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.server.app import _IDLE_TURN_S, Server
from ternmq.settings import Mode, load
from tests.asynchronous import until


def turn_follows(server: Server) -> bool:
    """Sweep now, not in a second; return whether a turn follows."""
    if server._sweeper is not None:
        server._sweeper.cancel()
    server._sweep()
    return server.core._turn is not None


async def test_an_idle_server_runs_a_turn_every_hour() -> None:
    server = Server(load(mode=Mode.TESTING), disk=MemoryDisk())
    await server.start()
    try:
        core = server.core
        await until(lambda: core._turn is None and not core.upkeep.watches)
        server._touch_at = math.inf
        assert not turn_follows(server), "a sweep alone is no reason for a turn"
        server._touch_at = core.loop.time()
        assert turn_follows(server)
        assert 0 < server._touch_at - core.loop.time() <= _IDLE_TURN_S
    finally:
        await server.abandon()
