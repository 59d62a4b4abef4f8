"""A READ that waits was ended by the loop's timer, not by the broker's clock.

Where the two differed (a slewed or a manual clock) the timer came too early, and was not set
again: the read was never answered. The timers of reads that had been answered stayed.
"""

from __future__ import annotations

import pytest

from ternmq.testing import InProcessBroker
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.integration.raw import RawClient


def test_it_ends_when_the_brokers_time_has_come(timed: InProcessBroker) -> None:
    with RawClient(timed.port) as client:
        client.create("orders")
        read = client.ask(Command.READ, bodies.pack_read(bodies.Read("orders", 0, 0, 10, 0, 50)))
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.wait(read)
        timed.clock.advance(seconds=1)
        client.socket.settimeout(3.0)
        rows = bodies.unpack_rows(client.wait(read))
        assert rows.stop == rows.start


async def test_no_timers_are_left(real: InProcessBroker) -> None:
    with RawClient(real.port) as client, RawClient(real.port) as sender:
        client.create("orders")
        loop = real._server.core.loop
        for number in range(20):
            asked = bodies.Read("orders", 0, number, 10, 0, 200_000)
            read = client.ask(Command.READ, bodies.pack_read(asked))
            sender.send("orders", f"{number}")
            client.wait(read)
        waiting = [one for one in loop._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
        await until(lambda: len(waiting) < 15, f"{len(waiting)} timers")
