"""One connection without an event loop: its socket, TLS, HELLO, requests and BYE.

The lease keeper and the bulk client use it, each with its own rules for when to connect again.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from ternmq.client.connection.address import Address
from ternmq.client.connection.connecting import refused
from ternmq.client.connection.raising import own
from ternmq.client.connection.stats import Traffic
from ternmq.client.process.forking import let_go, watch
from ternmq.model.errors import ConnectionLost, ProtocolError, TernMQError
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal

_READ_BYTES: Final = 1 << 20
_NONE: Final = -1


class BlockingConnection:
    """A connection, opened once. One thread at a time, except where noted.

    After an ``OSError``, ``ConnectionLost`` or ``ProtocolError`` it is of no more use: close it. A
    forked child loses its copy of the socket, from the moment that it is made; where Python's hooks
    do not run, ``close`` in the child closes the copy.

    Args:
        address: Address of the broker.
        traffic: Counts what goes over it.

    Attributes:
        said: Monotonic time of the last request.
        heard: Monotonic time of the last received bytes.
        open: Whether HELLO was answered and it was not closed. Readable from any thread.
        on_push: Is called with what the broker sends on its own.
    """

    def __init__(self, address: Address, traffic: Traffic) -> None:
        self.said = self.heard = time.monotonic()
        self.open = False
        self.on_push: Callable[[Push], None] = _ignore
        self._address = address
        self._traffic = traffic
        self._session = ClientSession()
        self._socket: socket.socket | None = None
        self._descriptor = _NONE
        """Descriptor of the socket, also while TLS moves it to another object."""
        self._answers: dict[int, Answer | Refusal] = {}
        watch(self)

    def connect(
        self, hello: control.Hello, connect_timeout: float, timeout: float
    ) -> control.Welcome:
        """Connect and say HELLO; if that fails, close the connection.

        Args:
            hello: The request.
            connect_timeout: Most seconds for the connection, and for TLS.
            timeout: Most seconds for the answer to HELLO.

        Raises:
            CannotConnect, NotABroker: There is no connection.
            RefusedError: The broker refused it.
            ConnectionLost, OSError, ProtocolError: HELLO was not answered.
        """
        try:
            self._connect(connect_timeout)
            return self._greet(hello, timeout)
        except BaseException:
            self.close()
            raise

    def _greet(self, hello: control.Hello, timeout: float) -> control.Welcome:
        self._write(self._session.hello(hello), timeout)
        answer = self.receive(1, timeout)
        if isinstance(answer, Refusal):
            raise own(answer.error) if answer.id else lost(answer.error)
        welcome = self._session.welcome
        assert welcome is not None
        self._traffic.opened += 1
        self.open = True
        return welcome

    def _connect(self, timeout: float) -> None:
        try:
            line = self._accepted(timeout)
            context = self._address.ssl_context()
            if context is not None:
                line = self._secured(line, context)
        except OSError as error:
            raise refused(self._address, error) from error
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _accepted(self, timeout: float) -> socket.socket:
        """Return a socket connected to the first of the host's addresses that accepts it."""
        address = self._address
        failure = OSError("the host's name has no address")
        try:
            for family, kind, protocol, _, place in socket.getaddrinfo(
                address.host, address.port, 0, socket.SOCK_STREAM
            ):
                try:
                    line = self._socket = socket.socket(family, kind, protocol)
                    self._descriptor = line.fileno()
                    line.settimeout(timeout)
                    line.connect(place)
                except OSError as error:
                    self.close()
                    failure = error
                else:
                    return line
            raise failure
        finally:
            del failure  # see ``raising``

    def _secured(self, line: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
        # The handshake comes after the move: an object that fails in it would close the descriptor.
        secure = self._socket = context.wrap_socket(
            line, server_hostname=self._address.host, do_handshake_on_connect=False
        )
        secure.do_handshake()
        return secure

    # -- requests

    def send(self, command: Command, body: bytes, timeout: float) -> int:
        """Send a request; return its id.

        Raises:
            OSError: It may have been sent in part.
            ProtocolError: The connection is not open.
        """
        id_, frame = self._session.ask(command, body)
        self._write(frame, timeout)
        return id_

    def receive(self, id_: int, timeout: float) -> Answer | Refusal:
        """Return the answer to a request, or its refusal; others that come first are kept.

        A refusal with the id 0 is the broker's reason for closing the connection.

        Raises:
            ConnectionLost: There is no answer in time, or the connection ended.
            OSError, ProtocolError: The connection failed.
        """
        answers, line = self._answers, self._socket
        assert line is not None
        until = time.monotonic() + timeout
        while id_ not in answers:
            left = until - time.monotonic()
            if left <= 0:
                raise ConnectionLost(f"{self._address} did not answer in time")
            line.settimeout(left)
            data = line.recv(_READ_BYTES)
            if not data:
                raise ConnectionLost(f"{self._address} closed the connection")
            self.heard = time.monotonic()
            self._traffic.bytes_received += len(data)
            for event in self._session.receive(data):
                if isinstance(event, Refusal) and not event.id:
                    return event
                if isinstance(event, Answer | Refusal):
                    answers[event.id] = event
                else:
                    self.on_push(event)
        return answers.pop(id_)

    def taken(self, id_: int) -> Answer | Refusal | None:
        """Return the answer to a request if it has come already. Does not wait, nor read."""
        return self._answers.pop(id_, None)

    def say_bye(self, timeout: float) -> None:
        """Say BYE and wait for the answer, which ends the session; then close the connection."""
        until = time.monotonic() + timeout
        try:
            id_ = self.send(Command.BYE, b"", timeout)
            self.receive(id_, until - time.monotonic())
        except (OSError, TernMQError):
            pass  # the session ends by its grace
        self.close()

    def _write(self, frame: bytes, timeout: float) -> None:
        assert self._socket is not None
        self.said = time.monotonic()
        self._socket.settimeout(timeout)
        self._socket.sendall(frame)
        self._traffic.requests += 1
        self._traffic.bytes_sent += len(frame)

    # -- the end

    def close(self) -> None:
        """Close the connection, without BYE. May be repeated."""
        self.open = False
        self._descriptor = _NONE  # first: another file may get its number
        if self._socket is not None:
            self._socket.close()

    def after_fork(self) -> None:
        """Close a child's copy: the connection is the parent's. For ``forking``."""
        if self._descriptor != _NONE:
            let_go(self._descriptor)


def _ignore(push: Push) -> None:
    """Do nothing with a push."""


def lost(error: TernMQError) -> TernMQError:
    """Return the error for a closing reason: bytes that break the protocol are not sent twice."""
    return own(error) if isinstance(error, ProtocolError) else ConnectionLost(str(error))
