"""Over a restart: DRAIN, sessions that go on, leases that hold, sends that are known."""

from __future__ import annotations

import os
import signal
import struct

import pytest

from tests.black_box import stranger
from tests.black_box.conftest import TOKEN, Broker, start, stop
from tests.black_box.stranger import DRAIN, GROUP_JOIN, SEND, TOPIC_CREATE, Ended, Stranger

KEEP = 5


@pytest.fixture
def restarted(tmp_path):
    """Yield a function that starts a broker on the same data each time."""
    running: list[Broker] = []

    def begin() -> Broker:
        broker = start(tmp_path)
        running.append(broker)
        return broker

    yield begin
    for broker in running:
        if broker.process.poll() is None:
            stop(broker)
        assert broker.process.stdout is not None
        broker.process.stdout.close()


def greet(broker: Broker, client: str, session: int = 0) -> tuple[Stranger, dict[str, int]]:
    stranger_ = Stranger(broker.address)
    welcome = stranger_.hello(app="admin", token=TOKEN, client=client, session=session)
    return stranger_, welcome


def prepared(broker: Broker, client: str) -> tuple[Stranger, dict[str, int], bytes]:
    """Connect, make a topic and a group, send a batch; return its SEND as well."""
    one, welcome = greet(broker, client)
    one.control(TOPIC_CREATE, topic="t", spec={"name": "t"})
    one.control(GROUP_JOIN, topic="t", group="g")
    body = stranger.send_body("t", stranger.make_batch("t", [b"a", b"b"], 7, 0))
    one.ask(SEND, body)
    return one, welcome, body


def test_a_broker_that_stops_lets_its_clients_finish(restarted):
    broker = restarted()
    client, welcome, _ = prepared(broker, "careful")
    with client:
        got = client.pull("t", "g")
        broker.process.send_signal(signal.SIGTERM)
        command, flags, id_, body = client.next()
        assert (command, flags, id_) == (DRAIN, stranger.PUSH, 0)
        assert isinstance(stranger.unpack(body), dict)
        assert client.settle("t", "g", got) == (2, 0)
        with pytest.raises(Ended):
            client.next()
    assert broker.process.wait(30) == 0
    again, second = greet(restarted(), "careful", welcome["session"])
    with again:
        assert second["resumed"] is True
        assert second["epoch"] > welcome["epoch"]
        assert again.pull("t", "g").lease == 0


def test_a_broker_that_is_killed_forgets_nothing_that_it_answered(restarted):
    broker = restarted()
    client, welcome, sent = prepared(broker, "unlucky")
    with client:
        got = client.pull("t", "g")
        assert got.rows == {0: b"a", 1: b"b"}
        os.kill(broker.process.pid, signal.SIGKILL)
        with pytest.raises(Ended):
            client.next()
    broker.process.wait(30)
    again, second = greet(restarted(), "unlucky", welcome["session"])
    with again:
        assert second["resumed"] is True
        lease = {"epoch": got.epoch, "lease": got.lease}
        assert again.control(KEEP, leases=[lease]) == {}
        receipt = again.ask(SEND, sent)
        assert struct.unpack_from("<Q", receipt) == (0,)
        assert struct.unpack_from("<II", receipt, 16) == (2, 1), "a duplicate"
        assert again.pull("t", "g").lease == 0, "they are in hand"
        assert again.settle("t", "g", got) == (2, 0)
        assert again.pull("t", "g").lease == 0


def test_what_did_not_arrive_comes_again_at_once(restarted):
    broker = restarted()
    client, welcome, _ = prepared(broker, "deaf")
    lost = client.pull("t", "g")
    client.socket.close()
    again, second = greet(broker, "deaf", welcome["session"])
    with again:
        assert second["resumed"] is True
        again.control(KEEP, leases=[])
        got = again.pull("t", "g", wait_ms=5000)
        assert got.rows == lost.rows
        assert got.lease != lost.lease
        assert {attempt for _, _, attempt, _ in got.runs} == {1}, "not counted"
