"""Pulls and reads that waited filled the memory for requests: then nobody was heard any more."""

from __future__ import annotations

from ternmq.testing import broker
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient

CONNECTIONS = 5
WAITING = 1000
"""Of each connection; all of them are more than the memory, by the bytes that a request counts."""


def test_many_that_wait_hold_nobody_up() -> None:
    with broker(settings={"memory": "1MiB"}) as one, RawClient(one.port) as client:
        client.create("orders")
        client.join("orders", "billing")
        pull = bodies.pack_pull(bodies.Pull("orders", "billing", None, 1, 0, 300_000))
        read = bodies.pack_read(bodies.Read("orders", 0, 0, 1, 0, 300_000))
        pending = one._server.hub.accounts.pending
        waiting = [RawClient(one.port) for _ in range(CONNECTIONS)]
        for peer in waiting:
            frames = [peer.session.ask(Command.PULL, pull)[1] for _ in range(WAITING - 10)]
            frames += [peer.session.ask(Command.READ, read)[1] for _ in range(10)]
            peer.socket.sendall(b"".join(frames))
            peer.socket.settimeout(20.0)
            peer.call(Command.PING)  # answered: what came before it waits
        assert one._server.core.broker.parked_pulls == CONNECTIONS * (WAITING - 10)
        assert pending.held < 10_000
        assert client.send("orders", "a").first_offset == 0
        for peer in waiting:
            peer.close()
        client.call(Command.PING)
    assert pending.held == 0


def test_a_connection_may_have_so_many_waiting_and_no_more() -> None:
    settings = {"requests_per_connection": 8}
    with broker(settings=settings) as one, RawClient(one.port) as client:
        client.create("orders")
        client.join("orders", "billing")
        pulls = [client.ask_pull("orders", "billing", 1, wait_ms=5_000) for _ in range(8)]
        late = client.ask(Command.PING)
        with RawClient(one.port) as other:
            other.call(Command.PING)
            assert one._server.core.broker.parked_pulls <= 8
            assert late not in client.answers
            other.send("orders", "a")
        client.wait(late)
        one.clock.advance(seconds=6)
        answers = [bodies.unpack_delivery(client.wait(id_)) for id_ in pulls]
        assert sum(bool(one.lease) for one in answers) == 1
