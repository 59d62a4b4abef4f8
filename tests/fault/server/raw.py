"""A peer on a plain blocking socket: well behaved, slow, frozen, or talking nonsense."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from ternmq.model.errors import TernMQError
from ternmq.record.batch import encode_bodies, topic_seed
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal, State
from tests.fault.processes import DEADLINE
from tests.fault.server.broker import APP, TOKEN, Address

READ_BYTES: Final = 1 << 20


class Peer:
    """One connection; leaving the context closes it.

    Args:
        address: Of the broker.
        hello: Whether to say who it is.
        window_bytes: Of the receive buffer; None: the machine's.
        name: Of the client.
    """

    def __init__(
        self,
        address: Address,
        *,
        hello: bool = True,
        window_bytes: int | None = None,
        name: str = "peer",
    ) -> None:
        self.socket = socket.socket()
        self.pushes: list[Push] = []
        self.session = ClientSession()
        self._answers: dict[int, Answer | Refusal] = {}
        if window_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        try:
            self.socket.settimeout(DEADLINE)
            self.socket.connect(address)
            if hello:
                self._hello(name)
        except BaseException:
            self.socket.close()
            raise

    def _hello(self, name: str) -> None:
        self.send(self.session.hello(control.Hello(client=name, app=APP, token=TOKEN)))
        while self.session.state is State.OPENING:
            self._receive()
        for event in self._answers.values():
            if isinstance(event, Refusal):
                raise event.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self.socket.sendall(data)

    def send_what_fits(self, data: bytes) -> int:
        """Send until the other side takes no more, or closes; return how much went."""
        self.socket.setblocking(False)
        sent = 0
        try:
            while sent < len(data):
                ready = select.select([], [self.socket], [], 0.2)[1]
                if not ready:
                    break
                sent += self.socket.send(data[sent : sent + (1 << 16)])
        except OSError:
            pass
        finally:
            self.socket.settimeout(DEADLINE)
        return sent

    def _receive(self) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("closed by the broker")
        for event in self.session.receive(data):
            if isinstance(event, Push):
                self.pushes.append(event)
            else:
                self._answers[event.id] = event

    def begin(self, command: Command, body: bytes = b"") -> int:
        """Ask; return the id to ``end`` it with."""
        id_, frame = self.session.ask(command, body)
        self.send(frame)
        return id_

    def end(self, id_: int) -> bytes:
        """Return the body of an answer, or raise what refused it."""
        while id_ not in self._answers:
            self._receive()
        event = self._answers.pop(id_)
        if isinstance(event, Refusal):
            raise event.error
        return event.body

    def ask(self, command: Command, body: bytes = b"") -> bytes:
        """Ask, and wait for the answer."""
        return self.end(self.begin(command, body))

    @property
    def cut(self) -> bool:
        """Whether the broker has closed the connection; reads nothing."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def last_words(self, seconds: float = DEADLINE) -> TernMQError | None:
        """Read until the broker closes; return the reason that it gave."""
        self.socket.settimeout(seconds)
        until = time.monotonic() + seconds
        error: TernMQError | None = None
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            while data := self.socket.recv(READ_BYTES):
                assert time.monotonic() < until, "the broker does not close"
                for event in self.session.receive(data):
                    if isinstance(event, Refusal):
                        error = event.error
        return error


def batch(topic: str, rows: Sequence[bytes], producer: int, first: int) -> bytes:
    """Return the body of a SEND of these bodies."""
    data = encode_bodies(
        rows,
        topic_seed=topic_seed(topic),
        producer_id=producer,
        first_sequence=first,
        born_us=time.time_ns() // 1000,
    )
    return bodies.pack_send(topic, None, data)
