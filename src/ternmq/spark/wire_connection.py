"""A blocking connection to a broker: requests out, answers in; made again when it is lost.

What is asked may be asked twice: reads change nothing, and what changes something (sends, commits)
is known again by the broker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import random
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import ternmq
from ternmq.client.address import Address
from ternmq.model.errors import CannotConnect, ConnectionLost, TernMQError
from ternmq.spark.connecting import Broker
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Refusal

log: Final = logging.getLogger("ternmq.spark")

_RECEIVE_BYTES: Final = 1 << 20
_FIRST_BACKOFF: Final = 0.05
_LONGEST_BACKOFF: Final = 2.0
_CONNECT_S: Final = 5.0


class WireConnection:
    """See the module. One thread at a time.

    Args:
        broker: Where it is.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._socket: socket.socket | None = None
        self._session = ClientSession()
        self._answers: dict[int, bytes | TernMQError] = {}

    # -- the connection

    @property
    def welcome(self) -> control.Welcome:
        """What the broker said when the connection was made; it is made now if there is none."""
        if self._socket is None:
            self._open(time.monotonic() + self._broker.timeout_ms / 1000)
        welcome = self._session.welcome
        assert welcome is not None
        return welcome

    def _open(self, until: float) -> None:
        """Connect to the first broker that answers.

        Raises:
            CannotConnect: None does.
            TernMQError: It does not want this client.
        """
        failure: TernMQError | None = None
        for address in self._broker.addresses:
            try:
                self._connect(address, until)
                return
            except OSError as error:
                failure = CannotConnect(f"no broker at {address}: {error}")
            except ConnectionLost as error:
                failure = CannotConnect(f"{address} closed the connection at once: {error}")
            except TernMQError as error:
                self._drop()
                if not error.retriable:
                    raise
                failure = error
            self._drop()
        assert failure is not None
        raise failure

    def _connect(self, address: Address, until: float) -> None:
        patience = max(0.1, min(_CONNECT_S, until - time.monotonic()))
        raw = socket.create_connection((address.host, address.port), patience)
        self._socket = raw
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = address.ssl_context()
        if tls is not None:
            self._socket = tls.wrap_socket(raw, server_hostname=address.host)
        self._session = ClientSession()
        self._answers.clear()
        hello = control.Hello(
            app=self._broker.app,
            token=self._broker.secret(),
            client=secrets.token_hex(16),
            library=f"ternmq-spark {ternmq.__version__}",
            language=f"python {platform.python_version()}",
            pid=os.getpid(),
        )
        self._send(self._session.hello(hello))
        while self._session.welcome is None:
            self._receive(until)
            for answer in self._answers.values():
                if isinstance(answer, TernMQError):
                    raise answer
        self._answers.clear()

    def _drop(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None

    def close(self) -> None:
        """Leave."""
        if self._socket is not None:
            with contextlib.suppress(OSError, TernMQError):
                self._socket.settimeout(1.0)
                self._send(self._session.tell(Command.BYE))
        self._drop()

    # -- bytes

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(data)
        except (OSError, ssl.SSLError) as error:
            raise ConnectionLost(f"the connection to {self._broker.shown()}: {error}") from error

    def _receive(self, until: float) -> None:
        """Take what comes, at least something.

        Raises:
            ConnectionLost: The connection is over, or nothing came in time.
        """
        assert self._socket is not None
        left = until - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(left)
            data = self._socket.recv(_RECEIVE_BYTES)
        except (OSError, ssl.SSLError) as error:
            raise ConnectionLost(f"the connection to {self._broker.shown()}: {error}") from error
        if not data:
            raise ConnectionLost(f"{self._broker.shown()} closed the connection")
        for event in self._session.receive(data):
            if isinstance(event, Answer):
                self._answers[event.id] = event.body
            elif isinstance(event, Refusal):
                if not event.id:
                    raise ConnectionLost(f"{self._broker.shown()}: {event.error}")
                self._answers[event.id] = event.error

    # -- requests

    def ask(self, command: Command, body: bytes, wait_ms: int = 0) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            CannotConnect, ConnectionLost: There was no answer in time.
            TernMQError: The broker's refusal.
        """
        (found,) = self.ask_many(command, [body], 1, wait_ms)
        return found

    def ask_many(
        self, command: Command, bodies: Iterable[bytes], in_flight: int, wait_ms: int = 0
    ) -> Iterator[bytes]:
        """Send requests, some of them before the answers to those before; yield answers in order.

        Each has ``timeoutMs`` for being answered, being asked again included.

        Raises:
            CannotConnect, ConnectionLost: There was no answer in time.
            TernMQError: The broker's refusal, of the first that it refused.
        """
        patience = (self._broker.timeout_ms + wait_ms) / 1000
        left = iter(bodies)
        asked: deque[_Asked] = deque()
        more = True
        while True:
            while more and len(asked) < in_flight:
                body = next(left, None)
                if body is None:
                    more = False
                else:
                    asked.append(_Asked(body, time.monotonic() + patience))
                    self._tell(command, asked)
            if not asked:
                return
            yield self._answer(command, asked)
            asked.popleft()

    def _tell(self, command: Command, asked: deque[_Asked]) -> None:
        """Send what was not sent over this connection."""
        if self._socket is None:
            self._open(asked[0].until)
            for one in asked:
                one.id = 0
        for one in asked:
            if not one.id:
                one.id, frame = self._session.ask(command, one.body)
                self._send(frame)

    def _answer(self, command: Command, asked: deque[_Asked]) -> bytes:
        """Return the answer to the oldest request; ask again as long as there is time."""
        first = asked[0]
        backoff = _FIRST_BACKOFF
        while True:
            try:
                self._tell(command, asked)
                while (answer := self._answers.pop(first.id, None)) is None:
                    self._receive(first.until)
                if isinstance(answer, bytes):
                    return answer
                first.id = 0
                raise answer
            except TernMQError as error:
                if isinstance(error, ConnectionLost):
                    self._drop()
                pause = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spread, no secret
                if not error.retriable or time.monotonic() + pause >= first.until:
                    self._drop()  # answers to the others are of no use any more
                    raise
                log.debug("%s; again in %.2f s", error, pause)
            time.sleep(pause)
            backoff = min(backoff * 2, _LONGEST_BACKOFF)


class _Asked:
    """A request; ``id`` is 0 until it was sent over this connection."""

    __slots__ = ("body", "id", "until")

    def __init__(self, body: bytes, until: float) -> None:
        self.body = body
        self.until = until
        self.id = 0
