"""A blocking connection for bulk work: few large answers, no event loop, no thread.

``BulkLine`` is one connection after the other: a lost one is replaced, a limited number of times,
and the unanswered request is sent again. So only requests that may be repeated go over it. ``Bulk``
has the requests.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

from ternmq.client.connection.backoff import Backoff
from ternmq.client.connection.blocking import BlockingConnection, lost
from ternmq.client.connection.connecting import options_of
from ternmq.client.connection.known import Known
from ternmq.client.connection.options import Options
from ternmq.client.connection.raising import own
from ternmq.client.connection.stats import Traffic
from ternmq.client.connection.trying import connect_to_first
from ternmq.client.content.validation import check_positive, length_of, seconds_of, text, whole
from ternmq.model.errors import (
    Busy,
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    InvalidRequest,
    NotPrimary,
    ProtocolError,
    ReadOnly,
    ShuttingDown,
    TernMQError,
    Unreadable,
)
from ternmq.model.version import __version__
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, Push, Refusal

T = TypeVar("T")

_STALE: Final = 0.8
"""Share of three heartbeats of the broker: a connection that was silent for longer is replaced."""
_AGAIN: Final = (Busy, NotPrimary, ReadOnly, ShuttingDown, Unreadable)
"""Refusals that may pass later."""
_ELSEWHERE: Final = (NotPrimary, ShuttingDown)
"""Those among them that may pass over another connection."""
_LIBRARY: Final = "ternmq-python"
_BYE: Final = 1.0
"""Most seconds that ``close`` waits for the answer to BYE."""
PAGE_BYTES: Final = 1 << 17
"""With twice as much, live sends during two readers took a millisecond longer (p99)."""


@dataclass(slots=True, frozen=True, init=False)
class BulkOptions:
    """How to reach a broker for bulk work; plain values, so that a worker process can get them.

    Attributes:
        url: Address of the broker, as for ``ternmq.connect``, or of several; it may contain app
            and token. Empty: from the environment, as for ``ternmq.connect``.
        app: The app. Empty: from the url or the environment, else no app.
        token: Token of the app; it is never shown. Empty: from the url or the environment.
        timeout: Longest time for an answer, in addition to the wait that was requested. Times are
            seconds, or are given as timedeltas.
        connect_timeout: Most time for one attempt to connect.
        tries: Largest number of tries if the connection is lost, or the broker is busy.
        first_backoff: Pause before the second try; each further one is twice as long.
        longest_backoff: Longest pause.
        read_bytes: Bytes of records in one answer: small enough that other clients of the broker
            wait no longer than a few milliseconds for their turn.
    """

    url: str
    app: str
    token: str
    timeout: float
    connect_timeout: float
    tries: int
    first_backoff: float
    longest_backoff: float
    read_bytes: int

    def __init__(
        self,
        *,
        url: str = "",
        app: str = "",
        token: str = "",
        timeout: float | timedelta = 30.0,
        connect_timeout: float | timedelta = 5.0,
        tries: int = 6,
        first_backoff: float | timedelta = 0.1,
        longest_backoff: float | timedelta = 2.0,
        read_bytes: int = PAGE_BYTES,
    ) -> None:
        """Times are seconds or timedeltas.

        Raises:
            InvalidRequest: A number or a time is not valid; the text names the argument.
        """
        check_positive("tries", tries)
        if not 4096 <= whole("read_bytes", read_bytes) <= 1 << 30:
            raise InvalidRequest(f"read_bytes must be 4096 to 2^30, not {read_bytes}")
        put = object.__setattr__
        put(self, "url", text("url", url))
        put(self, "app", text("app", app))
        put(self, "token", text("token", token))
        put(self, "timeout", length_of("timeout", timeout))
        put(self, "connect_timeout", length_of("connect_timeout", connect_timeout))
        put(self, "tries", tries)
        put(self, "first_backoff", seconds_of("first_backoff", first_backoff))
        put(self, "longest_backoff", seconds_of("longest_backoff", longest_backoff))
        put(self, "read_bytes", read_bytes)

    @property
    def backoff(self) -> Backoff:
        """The pauses between tries."""
        return Backoff(self.first_backoff, self.longest_backoff)

    def __repr__(self) -> str:
        """Show no secret: neither the token nor what precedes the host in the url."""
        scheme, colon, rest = self.url.partition("://")
        shown = f"{scheme}{colon}{rest.rpartition('@')[2]}"
        token = "***" if self.token else ""
        return f"BulkOptions(url={shown!r}, app={self.app!r}, token={token!r})"

    def resolved(self) -> Options:
        """Return client options; what is empty comes from the url and the environment.

        Raises:
            InvalidUrl, InvalidName, InvalidRequest: A value is not valid; the text names it.
        """
        made = options_of(
            self.url or None, self.app or None, self.token or None, self.timeout, self.timeout
        )
        return replace(made, connect_timeout=self.connect_timeout)


class Asked(NamedTuple):
    """A request whose answer is taken later."""

    command: Command
    body: bytes
    wait: float
    """Seconds that the broker was asked to wait for data."""


class BulkLine:
    """Connections for bulk requests. One thread at a time; a forked child makes its own."""

    def __init__(self, options: BulkOptions) -> None:
        self.options = options
        self._resolved = options.resolved()
        self._known = Known(self._resolved.addresses)
        self._at = self._resolved.address
        """Address of the last connection."""
        self._stepped_down = False
        """Whether the broker there was no longer the primary."""
        self._routes_id = 0
        """Request for the routes whose answer is not taken yet; 0: there is none."""
        self._routes_changed = False
        """Whether the routes are to be asked for again."""
        self._client = secrets.token_hex(16)
        self._pid = os.getpid()
        self._traffic = Traffic()
        self._line: BlockingConnection | None = None
        self._welcome: control.Welcome | None = None
        """The last one; it has the session that the next connection resumes."""
        self._waiting: deque[tuple[int, Asked]] = deque()
        self._closed = False

    @property
    def welcome(self) -> control.Welcome:
        """The broker's last WELCOME; connects if there was no connection yet.

        Raises:
            CannotConnect, RefusedError: There is no connection, and none can be made.
        """
        self._see_process()
        if self._welcome is None:
            self._again(self._connected)
        assert self._welcome is not None
        return self._welcome

    def ask(self, command: Command, body: bytes, wait: float = 0.0) -> bytes:
        """Return the answer to a request that may be repeated.

        Raises:
            RefusedError: The broker refused it.
            ConnectionLost, CannotConnect: There was no answer, after all tries.
        """
        self.send(command, body, wait)
        return self.take()

    def send(self, command: Command, body: bytes, wait: float = 0.0) -> None:
        """Send a request; ``take`` returns the answers in the order of the requests."""
        asked = Asked(command, body, wait)
        try:
            id_ = self._connected().send(command, body, self.options.timeout)
        except (OSError, ConnectionLost, CannotConnect, *_AGAIN):
            self._hang_up()
            id_ = 0  # sent again when its answer is taken
        self._waiting.append((id_, asked))

    def take(self) -> bytes:
        """Return the answer to the oldest unanswered request; raises as ``ask``."""
        if not self._waiting:
            raise ClientClosed("no request was sent")
        try:
            return self._again(self._take)
        except BaseException:
            self.drop()  # the next caller must not get the answer to this request
            raise

    def drop(self) -> None:
        """Discard pending requests and close the connection."""
        if self._waiting:
            self._waiting.clear()
            self._hang_up()

    def close(self) -> None:
        """End the connection, and the session with it. May be repeated."""
        self._closed = True
        self._waiting.clear()
        if self._line is not None and self._pid == os.getpid():
            self._line.say_bye(_BYE)
        self._hang_up()

    # -- tries

    def _again(self, attempt: Callable[[], T]) -> T:
        """Run an attempt until it succeeds, or the tries are used up."""
        options = self.options
        pauses = options.backoff.pauses()
        failure: Exception | None = ConnectionLost("nothing was tried")
        try:
            for left in reversed(range(options.tries)):
                try:
                    return attempt()
                except _AGAIN as error:
                    failure = error
                    if isinstance(error, _ELSEWHERE):
                        self._hang_up()
                except (OSError, ConnectionLost, CannotConnect) as error:
                    failure = error
                    self._hang_up()
                except ProtocolError:
                    self._hang_up()
                    raise
                if left:
                    time.sleep(next(pauses))
            if isinstance(failure, TernMQError):
                raise failure
            raise ConnectionLost(
                f"no answer from {self._resolved.url} after {options.tries} tries: {failure}"
            ) from failure
        finally:
            del failure  # see ``raising``

    def _take(self) -> bytes:
        """Return the oldest answer; send requests of a lost connection again."""
        line, timeout = self._connected(), self.options.timeout
        for at, (id_, asked) in enumerate(self._waiting):
            if not id_:
                self._waiting[at] = line.send(asked.command, asked.body, timeout), asked
        id_, asked = self._waiting[0]
        event = line.receive(id_, timeout + asked.wait)
        self._learn(line)
        if isinstance(event, Refusal):
            if not event.id:
                raise lost(event.error)
            if isinstance(event.error, _AGAIN):
                self._waiting[0] = 0, asked
                if isinstance(event.error, NotPrimary):
                    self._stepped_down = True
            else:
                self._waiting.popleft()
            raise own(event.error)
        self._waiting.popleft()
        return event.body

    # -- the connection

    def _connected(self) -> BlockingConnection:
        """Return the connection; make one if there is none, or if it was silent for long.

        Raises:
            CannotConnect, RefusedError, ProtocolError: There is none.
        """
        if self._closed:
            raise ClientClosed("this client is closed")
        self._see_process()
        line = self._line
        if line is not None:
            assert self._welcome is not None
            quiet = time.monotonic() - line.heard
            if self._waiting or quiet < 3 * _STALE * self._welcome.heartbeat_us / 1e6:
                if self._routes_changed:
                    self._ask_routes(line)
                return line
            self._hang_up()
        return self._connect()

    def _see_process(self) -> None:
        """Start over in a forked child: connection, session and client id are the parent's."""
        if self._pid != os.getpid():
            self._hang_up()  # closes this process's descriptor, not the connection
            self._welcome = None
            self._client = secrets.token_hex(16)
            self._pid = os.getpid()

    def _connect(self) -> BlockingConnection:
        options, welcome = self._resolved, self._welcome
        hello = control.Hello(
            app=options.app,
            token=options.token,
            client=self._client,
            session=0 if welcome is None else welcome.session,
            library=f"{_LIBRARY} {__version__}",
            language=f"python {platform.python_version()}",
            pid=self._pid,
            routes=True,
        )
        line, welcome, self._at = connect_to_first(
            self._known.in_order(self._at, stepped_down=self._stepped_down),
            self._traffic,
            hello,
            options.connect_timeout,
            self.options.timeout,
            self._known,
        )
        self._stepped_down = False
        self._line, self._welcome = line, welcome
        self._known.serves(self._at, welcome)
        line.on_push = self._pushed
        self._routes_id = 0
        if welcome.routes:
            self._ask_routes(line)
        return line

    def _ask_routes(self, line: BlockingConnection) -> None:
        """Ask for the routes; the answer is taken when it has come before that to a request."""
        self._routes_changed = False
        body = control.encode(control.RoutesAsk())
        self._routes_id = line.send(Command.ROUTES, body, self.options.timeout)

    def _pushed(self, push: Push) -> None:
        if push.command is Command.ROUTES_CHANGED:
            self._routes_changed = True

    def _learn(self, line: BlockingConnection) -> None:
        """Take the answer to ROUTES, if it has come."""
        event = line.taken(self._routes_id) if self._routes_id else None
        if event is not None:
            self._routes_id = 0
            if isinstance(event, Answer):
                self._known.answered(self._at, event.body)

    def _hang_up(self) -> None:
        """Drop the connection; pending requests are to be sent again."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        self._waiting = deque((0, asked) for _, asked in self._waiting)
