"""Two pulls that waited under one id: the first stayed in the server when the client had gone."""

from __future__ import annotations

import pytest

from ternmq.model.errors import InvalidRequest
from ternmq.testing import InProcessBroker
from ternmq.wire import bodies, frames
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.integration.raw import RawClient


async def test_the_second_is_refused_and_nothing_stays(timed: InProcessBroker) -> None:
    pulls = timed._server.hub.commands._handlers[Command.PULL].__self__  # type: ignore[attr-defined]
    parked = pulls._parked
    with RawClient(timed.port) as client:
        client.create("orders")
        client.join("orders", "billing")
        body = bodies.pack_pull(bodies.Pull("orders", "billing", None, 10, 0, 300_000))
        id_, frame = client.session.ask(Command.PULL, body)
        client.socket.sendall(frame)
        await until(lambda: len(parked) == 1)
        client.socket.sendall(frames.pack(Command.PULL, 0, id_, body))
        with pytest.raises(InvalidRequest, match="waits already"):
            client.wait(id_)
    await until(lambda: not parked, "nothing waits any more")
