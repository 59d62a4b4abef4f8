"""Each sync that ended while a turn was due added a turn to every later pass of a busy loop.

After a minute of load a pass had thirty turns, and whoever asked waited for all of them.
"""

from __future__ import annotations

import asyncio

from ternmq.testing import broker
from tests.integration.raw import RawClient

SENDS = 40


def test_a_pass_of_the_loop_ends_one_turn_and_one_more_for_each_sync() -> None:
    with broker() as one, RawClient(one.port) as client:
        core = one._server.core
        loop, before = core.loop, core.on_turn
        passes = 0
        busy = True

        def counted() -> None:
            nonlocal passes
            passes += 1
            if busy:
                loop.call_soon(counted)

        def on_turn() -> None:
            before()
            if busy:
                core.touch()  # there is always more to do

        async def begin() -> tuple[int, int]:
            core.on_turn = on_turn
            core.touch()
            loop.call_soon(counted)
            return core.turns, core.syncs

        async def end() -> tuple[int, int]:
            nonlocal busy
            busy = False
            return core.turns, core.syncs

        turns, syncs = asyncio.run_coroutine_threadsafe(begin(), loop).result(20)
        for _ in range(SENDS):
            client.send("orders", "a")
        turns_then, syncs_then = asyncio.run_coroutine_threadsafe(end(), loop).result(20)
        assert syncs_then - syncs >= SENDS // 2
        assert turns_then - turns <= passes + syncs_then - syncs + 2
