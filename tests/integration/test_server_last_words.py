"""What a consumer settled right before its process was killed counts, if it reached the broker."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.server.desk import accounts
from ternmq.server.native.connection import Connection
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies
from ternmq.wire.bodies import Delivery
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient, texts

COUNT = 200


@pytest.fixture
def one() -> Iterator[InProcessBroker]:
    with broker() as started:
        yield started


def holding(one: InProcessBroker) -> tuple[RawClient, Delivery]:
    """Return a consumer that holds all messages."""
    client = RawClient(one.port)
    client.send("t", *[str(number) for number in range(COUNT)])
    client.join("t", "g")
    got = client.pull("t", "g", most=COUNT)
    assert len(texts(got)) == COUNT
    return client, got


def ack(client: RawClient, got: Delivery, offset: int) -> bytes:
    """Return the frame that acks a row."""
    asked = bodies.Settle(
        "t", "g", got.queue, got.epoch, got.lease, int(Outcome.DONE), ((offset, offset + 1),),
        None, "",
    )  # fmt: skip
    return client.session.ask(Command.SETTLE, bodies.pack_settle(asked))[1]


def another(client: RawClient) -> bytes:
    """Return the frame that sends a message."""
    batch = client.batch("t", [Row(b"sent last")])
    return client.session.ask(Command.SEND, bodies.pack_send("t", None, batch))[1]


def dies(client: RawClient, *last: bytes) -> None:
    """Say something and end as a killed process does that has not read everything."""
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.socket.sendall(b"".join(last))
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def dies_before_the_answer(
    monkeypatch: pytest.MonkeyPatch, client: RawClient, first: bytes, *last: bytes
) -> None:
    """Have it say more, and die, after the broker read the first and before it answers that."""
    write_out, died = Connection.write_out, list[Connection]()

    def dying(peer: Connection) -> None:
        if not died and peer.session == client.number:
            died.append(peer)
            dies(client, *last)
        write_out(peer)

    monkeypatch.setattr(Connection, "write_out", dying)
    client.socket.sendall(first)


def come_again(one: InProcessBroker, count: int) -> list[int]:
    """Return what another consumer gets when the grace of the first is over, in order."""
    client = RawClient(one.port)
    found: dict[int, str] = {}
    for _ in range(10):
        one.clock.advance(seconds=11)
        found |= texts(client.pull("t", "g", most=COUNT + 1))
        if len(found) >= count:
            break
    return sorted(found)


def test_an_ack_behind_an_answer_that_cannot_be_written(
    one: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, got = holding(one)
    dies_before_the_answer(
        monkeypatch, client, ack(client, got, 0), ack(client, got, 1), ack(client, got, 2)
    )
    assert come_again(one, COUNT - 3) == list(range(3, COUNT))


def test_acks_that_wait_for_another_turn(
    one: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "ROUND", 8)
    one.restart()
    client, got = holding(one)
    frames = [ack(client, got, offset) for offset in range(COUNT - 1)]
    dies_before_the_answer(monkeypatch, client, b"".join(frames))
    assert come_again(one, 1) == [COUNT - 1]


def test_no_ack_counts_without_what_was_said_before_it(
    one: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, got = holding(one)
    pull = client.session.ask(Command.PULL, bodies.pack_pull(bodies.Pull("t", "g", None, 1, 0, 0)))[
        1
    ]
    dies_before_the_answer(
        monkeypatch, client, ack(client, got, 0),
        pull, ack(client, got, 1), another(client), ack(client, got, 2),
    )  # fmt: skip
    assert come_again(one, COUNT - 2) == list(range(2, COUNT))


def test_half_a_frame_is_no_ack(one: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    client, got = holding(one)
    dies_before_the_answer(
        monkeypatch, client, ack(client, got, 0), ack(client, got, 1), ack(client, got, 2)[:-1]
    )
    assert come_again(one, COUNT - 2) == list(range(2, COUNT))
