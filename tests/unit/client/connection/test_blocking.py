"""The connection of the lease keeper and of the bulk client, against a broker that may be mute."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

import ternmq
from ternmq.client.connection.address import parse
from ternmq.client.connection.blocking import BlockingConnection
from ternmq.client.connection.known import Known
from ternmq.client.connection.line import BulkLine, BulkOptions
from ternmq.client.connection.session import Session
from ternmq.client.connection.stats import Traffic
from ternmq.model.errors import CannotConnect, ConnectionLost, TernMQError, Unauthenticated
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Refusal, Request, ServerSession, State, answer, refusal
from tests.unit.client.fake import FakeBroker

HELLO = control.Hello(app="a", client="c", library="l", language="p", pid=1)
WELCOME = control.Welcome(
    version=1, broker="one", session=9, resumed=False, epoch=1, now_us=0, heartbeat_us=60_000_000,
    frame_bytes=1 << 21, body_bytes=1 << 20, pull_messages=1, pull_bytes=1, send_timeout_us=1,
)  # fmt: skip

forks = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")


class Broker:
    """A broker on a thread, for one connection after the other.

    Attributes:
        hellos: The HELLOs that came.
        cut: Number of connections that it closes at their HELLO.
        mute: Commands that it does not answer, HELLO among them.
        answers: Answers to requests; b"" if there is none here.
    """

    def __init__(self) -> None:
        self.hellos: list[control.Hello] = []
        self.cut = 0
        self.mute: set[Command] = set()
        self.answers: dict[Command, bytes | TernMQError] = {}
        self.ended = threading.Event()
        self._line: socket.socket | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._listening.shutdown(socket.SHUT_RDWR)
            self._thread.join(10)
        self._listening.close()

    def cut_now(self) -> None:
        assert self._line is not None
        self._line.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:
                return
            with line:
                self._line = line
                self.ended.clear()
                self._serve(line)
            self.ended.set()

    def _serve(self, line: socket.socket) -> None:
        session = ServerSession(1 << 20)
        while data := line.recv(1 << 16):
            requests = session.receive(data)
            if session.state is State.GREETED:
                assert session.hello is not None
                self.hellos.append(session.hello)
                if self.cut:
                    self.cut -= 1
                    return
                if Command.HELLO in self.mute:
                    continue
                refused = self.answers.get(Command.HELLO)
                if isinstance(refused, TernMQError):
                    line.sendall(session.refuse(refused))
                    return
                line.sendall(session.welcome(WELCOME))
            for request in requests:
                assert isinstance(request, Request)
                if request.command in self.mute:
                    continue
                told = self.answers.get(request.command, b"")
                if isinstance(told, bytes):
                    line.sendall(answer(request, told))
                else:
                    line.sendall(refusal(request.command, request.id, told))


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


def connected(broker: Broker, timeout: float = 5.0) -> BlockingConnection:
    line = BlockingConnection(parse(f"ternmq://127.0.0.1:{broker.port}"), Traffic())
    line.connect(HELLO, timeout, timeout)
    return line


def bulk(broker: Broker, **more: float) -> BulkLine:
    options = {"first_backoff": 0.001, **more}
    return BulkLine(BulkOptions(url=f"ternmq://127.0.0.1:{broker.port}", **options))  # type: ignore[arg-type]


def test_requests_are_answered_in_any_order(broker: Broker) -> None:
    line = connected(broker)
    broker.answers[Command.TOPIC_LIST] = b"topics"
    first = line.send(Command.PING, b"", 5.0)
    second = line.send(Command.TOPIC_LIST, b"", 5.0)
    found = line.receive(second, 5.0)
    assert not isinstance(found, Refusal)
    assert found.body == b"topics"
    assert line.receive(first, 5.0).id == first
    line.say_bye(5.0)
    assert not line.open
    assert broker.ended.wait(5)
    line.close()


def test_a_refused_hello_is_raised(broker: Broker) -> None:
    broker.answers[Command.HELLO] = Unauthenticated("who?")
    with pytest.raises(Unauthenticated):
        connected(broker)


def test_without_a_broker_the_error_names_the_address(broker: Broker) -> None:
    broker.close()
    with pytest.raises(CannotConnect, match=f"127.0.0.1:{broker.port}"):
        connected(broker)


def test_an_answer_is_waited_for_no_longer_than_asked(broker: Broker) -> None:
    line = connected(broker)
    broker.mute = {Command.PING}
    id_ = line.send(Command.PING, b"", 5.0)
    with pytest.raises((TimeoutError, ConnectionLost)):
        line.receive(id_, 0.05)
    line.close()


def test_a_mute_broker_does_not_hold_up_the_close_of_a_bulk_client(broker: Broker) -> None:
    line = bulk(broker, timeout=30.0)
    assert line.ask(Command.PING, b"") == b""
    broker.mute = {Command.BYE}
    began = time.monotonic()
    line.close()
    assert time.monotonic() - began < 10, "1 s for BYE, not the client's timeout"


def test_a_bulk_client_keeps_its_session_over_failed_connections(broker: Broker) -> None:
    line = bulk(broker)
    line.ask(Command.PING, b"")
    line._hang_up()
    broker.cut = 2
    line.ask(Command.PING, b"")
    assert [hello.session for hello in broker.hellos] == [0, 9, 9, 9]
    assert len({hello.client for hello in broker.hellos}) == 1
    line.close()


def in_child(look: Callable[[], bool]) -> bool:
    """Return what a forked child sees."""
    child = os.fork()
    if not child:
        seen = 2
        try:
            seen = int(look())
        finally:
            os._exit(seen)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def connections(port: int) -> set[int]:
    """Return the descriptors of this process that are connections to a port."""
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.getpeername()[1:2] == (port,):
                    found.add(int(name))
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@forks
def test_a_child_has_no_copy_of_a_connection(broker: Broker) -> None:
    line = connected(broker)
    assert len(connections(broker.port)) == 1
    assert in_child(lambda: not connections(broker.port))
    line.say_bye(5.0)
    assert broker.ended.wait(5)


@forks
async def test_a_child_has_no_copy_of_the_keeper_s_connection_before_its_hello_is_answered(
    broker: Broker,
) -> None:
    broker.mute = {Command.HELLO}
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        keeper = client._keeper
        address = parse(f"ternmq://127.0.0.1:{broker.port}")
        options = replace(client.options, address=address)
        keeper._session = cast("Session", SimpleNamespace(
            options=options, client="c", number=9, library="l", language="p",
            in_order=lambda: [address], address=address, traffic=Traffic(), known=Known([address]),
        ))  # fmt: skip
        asking = threading.Thread(target=keeper._say, args=(Command.PING, b""))
        asking.start()
        wait_for(lambda: broker.hellos)
        assert len(connections(broker.port)) == 1
        assert in_child(lambda: not connections(broker.port))
        broker.cut_now()
        asking.join()
