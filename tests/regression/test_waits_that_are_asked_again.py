"""A pull or read that was withdrawn from a peer that did not read waited its whole time anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ternmq.testing import InProcessBroker
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient


def in_loop(one: InProcessBroker, call: Callable[[], None]) -> None:
    """Do something in the broker's loop."""

    async def run() -> None:
        call()

    asyncio.run_coroutine_threadsafe(run(), one._loop).result(20)


def test_they_end_when_they_were_to_end(timed: InProcessBroker) -> None:
    with RawClient(timed.port) as client:
        client.create("orders")
        client.join("orders", "billing")
        pull = client.ask_pull("orders", "billing", wait_ms=60_000)
        read = client.ask(
            Command.READ, bodies.pack_read(bodies.Read("orders", 0, 0, 10, 0, 60_000))
        )
        client.call(Command.PING)
        (peer,) = timed._server.hub.peers
        in_loop(timed, peer.pause_writing)  # type: ignore[attr-defined]
        timed.clock.advance(seconds=40)
        in_loop(timed, peer.resume_writing)  # type: ignore[attr-defined]
        client.call(Command.PING)
        assert not client.answers
        timed.clock.advance(seconds=25)
        client.socket.settimeout(5.0)
        assert bodies.unpack_delivery(client.wait(pull)).lease == 0
        assert bodies.unpack_rows(client.wait(read)).stop == 0
