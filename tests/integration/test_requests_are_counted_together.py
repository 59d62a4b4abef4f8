"""What requests and answers hold of an app's memory: passed on for a batch, not for each frame."""

from __future__ import annotations

import pytest

from ternmq.record.batch.batch import Row
from ternmq.server.desk.accounts import Account
from ternmq.server.native.connection import FEW
from ternmq.testing import InProcessBroker
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.integration.raw import RawClient

SENDS = 64


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what accounts took, as it comes; none ever holds less than nothing."""
    sizes: list[int] = []
    take = Account.take

    def noted(self: Account, size: int) -> None:
        take(self, size)
        sizes.append(size)
        assert self.held >= 0
        assert self.budget.held >= 0

    monkeypatch.setattr(Account, "take", noted)
    return sizes


def frames(client: RawClient, count: int, size: int) -> tuple[list[int], bytes]:
    """Return the ids and the bytes of so many sends."""
    asked = []
    for _ in range(count):
        body = bodies.pack_send("orders", None, client.batch("orders", [Row(bytes(size))]))
        asked.append(client.session.ask(Command.SEND, body))
    return [id_ for id_, _ in asked], b"".join([frame for _, frame in asked])


async def test_a_lone_request_is_not_accounted_for(
    timed: InProcessBroker, taken: list[int]
) -> None:
    with RawClient(timed.port) as client:
        client.send("orders", "a")
        accounts = timed._server.hub.accounts
        await until(lambda: accounts.pending.held == accounts.unwritten.held == 0)
        taken.clear()
        for _ in range(20):
            client.call(Command.PING)
            client.send("orders", "b" * (FEW // 2))
        assert [size for size in taken if size] == []


async def test_many_at_once_are_accounted_for_together(
    timed: InProcessBroker, taken: list[int]
) -> None:
    accounts = timed._server.hub.accounts
    with RawClient(timed.port) as client:
        client.send("orders", "a")
        ids, sends = frames(client, SENDS, 100)
        taken.clear()
        client.socket.sendall(sends)
        for id_ in ids:
            client.wait(id_)
        counted = [size for size in taken if size]
        assert max(counted) > SENDS * 100 / 2
        assert len(counted) <= SENDS // 4  # few, whatever pieces the bytes came in
        await until(lambda: accounts.pending.held == 0)
        assert accounts.pending.holders == accounts.unwritten.holders == 0


async def test_when_little_memory_is_left_each_request_is_counted_before_the_next(
    timed: InProcessBroker, taken: list[int]
) -> None:
    hub = timed._server.hub
    accounts = hub.accounts
    with RawClient(timed.port) as client:
        client.send("orders", "a")
        ids, sends = frames(client, SENDS, FEW)
        accounts.pending.limit = FEW  # one of them is too many, but for an app that is alone
        most = 0
        taken.clear()
        client.socket.sendall(sends)
        for id_ in ids:
            client.wait(id_)
        held = 0
        for size in taken:
            held += size
            most = max(most, held)
        assert most < 2 * (FEW + 1024)
        assert accounts.pending.held_back
        await until(lambda: accounts.pending.held == 0)


async def test_what_a_lost_connection_had_counted_is_given_back(
    timed: InProcessBroker, taken: list[int]
) -> None:
    accounts = timed._server.hub.accounts
    with RawClient(timed.port) as client:
        client.send("orders", "a")
        _, sends = frames(client, SENDS, 100)
        client.socket.sendall(sends)  # its answers are not awaited
    await until(lambda: not timed._server.hub.peers)
    await until(lambda: accounts.pending.held == 0)
    assert accounts.pending.holders == 0
    assert taken
