"""Extends leases, on a thread and a connection of its own.

The thread is there so that a loop that is blocked (a long computation, a slow call that does not
await) does not lose what it holds. It starts when the first lease is a third over. A lease is
extended when a third of its time is left, until ``max_processing_time`` has passed; then it ends
by itself, and the messages are delivered again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ternmq.client.lease import Lease
from ternmq.client.options import Options
from ternmq.client.session import Session
from ternmq.client.settler import Settler
from ternmq.client.settles import extended, extension
from ternmq.client.stats import Traffic
from ternmq.model.errors import (
    ConnectionLost,
    LeaseExpired,
    RefusedError,
    TernMQError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Refusal

log: Final = logging.getLogger("ternmq")

_SHARE: Final = 1 / 3
"""Of its time that a lease has left when it is extended."""
_LONGEST_NAP: Final = 1.0
_SHORTEST_NAP: Final = 0.005
_PAUSE: Final = 0.2
_READ_BYTES: Final = 65536


class Keeper:
    """See the module. ``start`` and ``stop``: loop only.

    Args:
        session: Whose leases they are.
        settler: Knows the leases.

    Attributes:
        traffic: What went over its connections.
    """

    def __init__(self, session: Session, settler: Settler) -> None:
        self._session = session
        self._settler = settler
        self._thread: threading.Thread | None = None
        self._ended = False
        self._wake = threading.Event()
        self._looks_at = float("inf")
        self._line: _Line | None = None
        self.traffic = Traffic()
        settler.on_lease = self._began

    @property
    def connected(self) -> bool:
        """It has a connection now. Any thread."""
        return self._line is not None

    def start(self) -> None:
        """Begin, if it has not begun."""
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="ternmq-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End; does not wait for the thread longer than an answer takes."""
        self._ended = True
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join(self._session.options.connect_timeout)

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._ended and not self._session.loop.is_closed():
                self._sleep(self._nap())
                self._beat()
                self._extend_due()
        finally:
            self._hang_up()

    def _sleep(self, seconds: float) -> None:
        self._looks_at = time.monotonic() + seconds
        self._wake.wait(seconds)
        if not self._ended:
            self._wake.clear()

    def _began(self, lease: Lease) -> None:
        """A lease came: look earlier, if it is a short one. Loop only."""
        if self._due(lease) < self._looks_at:
            self._wake.set()

    def _nap(self) -> float:
        """Return how long there is nothing to do."""
        now = time.monotonic()
        naps = [self._due(lease) - now for lease in self._settler.held()]
        return min(_LONGEST_NAP, max(_SHORTEST_NAP, min(naps, default=_LONGEST_NAP)))

    @staticmethod
    def _due(lease: Lease) -> float:
        return lease.until - lease.duration * _SHARE

    def _extend_due(self) -> None:
        now = time.monotonic()
        longest = self._session.options.max_processing_time
        for lease in self._settler.held():
            if lease.lost or self._due(lease) > now or now - lease.began >= longest:
                continue
            if not self._extend(lease, min(lease.duration, lease.began + longest - now)):
                return

    def _extend(self, lease: Lease, seconds: float) -> bool:
        """Extend a lease; return False if there is no connection for it now."""
        try:
            extended(lease, self._ask(Command.EXTEND, extension(lease, seconds)))
        except (LeaseExpired, UnknownGroup, UnknownTopic):
            self._tell(lease)
        except RefusedError as error:
            log.warning("a lease of %s cannot be extended now: %s", lease.topic, error)
            self._hang_up()
            self._sleep(_PAUSE)
            return False
        except (TernMQError, OSError) as error:
            log.debug("the keeper's connection is lost: %s", error)
            self._hang_up()
            self._sleep(_PAUSE)
            return False
        return True

    def _ask(self, command: Command, body: bytes) -> bytes:
        line = self._line
        if line is not None:
            try:
                return line.ask(command, body)
            except (OSError, ConnectionLost):
                self._hang_up()  # it was quiet for long; perhaps a new one is better
        line = self._line = _Line(self._session, self.traffic)
        return line.ask(command, body)

    def _beat(self) -> None:
        """Say something, so that the broker keeps the connection."""
        line = self._line
        if line is not None and time.monotonic() - line.said > line.heartbeat:
            try:
                line.ask(Command.PING, b"")
            except (TernMQError, OSError):
                self._hang_up()

    def _tell(self, lease: Lease) -> None:
        """Let the loop know that a lease is lost."""
        with suppress(RuntimeError):  # the loop is closed: nobody holds it any more
            self._session.loop.call_soon_threadsafe(self._settler.lose, lease)

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()


class _Line:
    """A blocking connection of a session that has one already.

    Attributes:
        said: Monotonic time of the last request.
        heartbeat: Seconds after which something should be said.

    Raises:
        OSError, TernMQError: It cannot be made.
    """

    def __init__(self, session: Session, traffic: Traffic) -> None:
        self._traffic = traffic
        options: Options = session.options
        address = options.address
        self._state = ClientSession()
        self.said = time.monotonic()
        self._socket: socket.socket = socket.create_connection(
            (address.host, address.port), timeout=options.connect_timeout
        )
        try:
            context = address.ssl_context()
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = control.Hello(
                app=options.app,
                token=options.token,
                client=session.client,
                session=session.number,
                auxiliary=True,
                library=session.library,
                language=session.language,
                pid=os.getpid(),
            )
            self._exchange(lambda: (1, self._state.hello(hello)))
            traffic.opened += 1
            welcome = self._state.welcome
            self.heartbeat = welcome.heartbeat_us / 1e6 if welcome is not None else 1.0
        except BaseException:
            self._socket.close()
            raise

    def ask(self, command: Command, body: bytes) -> bytes:
        """Return the answer to a request.

        Raises:
            OSError, TernMQError: There is none, or it says no.
        """
        return self._exchange(lambda: self._state.ask(command, body))

    def _exchange(self, make: Callable[[], tuple[int, bytes]]) -> bytes:
        id_, frame = make()
        self.said = time.monotonic()
        self._socket.sendall(frame)
        self._traffic.requests += 1
        self._traffic.bytes_sent += len(frame)
        while True:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionLost("the broker closed the keeper's connection")
            self._traffic.bytes_received += len(data)
            for event in self._state.receive(data):
                if isinstance(event, Answer) and event.id == id_:
                    return event.body
                if isinstance(event, Refusal):
                    raise event.error

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
