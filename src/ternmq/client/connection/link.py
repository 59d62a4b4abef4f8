"""One connection to a broker: requests out, answers and pushes in. No decisions.

Frames of one turn of the loop leave in one write. Each request comes with an ``Asker``, which is
called exactly once with its outcome: ``answered``, ``refused`` or ``lost``.

``NotPrimary`` ends the connection, whatever request it answers: another broker leads now. That
request was not carried out, so its asker gets the refusal; those without an answer are lost.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, cast

from ternmq.client.connection.stats import Traffic
from ternmq.client.content.broker_time import BrokerTime
from ternmq.client.process.forking import let_go
from ternmq.model.errors import ConnectionLost, NotPrimary, ProtocolError, TernMQError
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal, State

log: Final = logging.getLogger("ternmq")

_SECOND_US: Final = 1_000_000
_SILENT_BEATS: Final = 3
_READ_BYTES: Final = 256 * 1024


class Asker(Protocol):
    """Receives the outcome of a request, once."""

    def answered(self, body: bytes) -> None:
        """Handle the answer: the request was carried out."""

    def refused(self, error: TernMQError) -> None:
        """Handle the broker's refusal."""

    def lost(self) -> None:
        """Handle that the connection ended before the answer."""


class Waiting:
    """An asker for coroutines: ``future`` gets the answer's body, or an error."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()

    def answered(self, body: bytes) -> None:
        """Set the answer."""
        if not self.future.done():
            self.future.set_result(body)

    def refused(self, error: TernMQError) -> None:
        """Set the refusal as error."""
        if not self.future.done():
            self.future.set_exception(error)

    def lost(self) -> None:
        """Set ``ConnectionLost`` as error."""
        if not self.future.done():
            self.future.set_exception(ConnectionLost("the connection ended before the answer"))


class Owner(Protocol):
    """Receives the events of a link: its session."""

    def link_opened(self, link: Link) -> None:
        """Handle the answer to HELLO."""

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """Handle the end; ``error`` is the broker's last refusal, or why the connection was cut."""

    def link_pushed(self, link: Link, push: Push) -> None:
        """Handle a message that the broker sends on its own."""

    def link_writable(self, link: Link) -> None:
        """Handle that more may be written."""

    @property
    def broker_time(self) -> BrokerTime:
        """Learns the broker's clock from answers."""


class Link(asyncio.BufferedProtocol):
    """A connection. Not thread-safe: call it from the client's loop.

    Attributes:
        writable: False while the socket takes no more; frames are still accepted.
        usable: Whether HELLO was answered and the connection has not ended.
        traffic: Counts what goes over it.
        over: Done when the connection has ended.
        greeted_us: Moment (``BrokerTime.moment_us``) at which HELLO was sent.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: Owner,
        hello: control.Hello,
        traffic: Traffic,
    ) -> None:
        self.traffic = traffic
        self.over: asyncio.Future[None] = loop.create_future()
        self.writable = True
        self.usable = False
        self.greeted_us = 0
        self._loop = loop
        self._owner = owner
        self._hello = hello
        self._session = ClientSession()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._askers: dict[int, Asker] = {}
        self._frames: list[bytes] = []
        self._flushing = False
        self._last_words: TernMQError | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._heard = self._said = 0.0

    # -- callbacks of asyncio

    @property
    def accepted(self) -> bool:
        """Whether the connection was accepted, by a broker or another program."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send HELLO."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1 << 20)
        hello = self._session.hello(self._hello)
        self.traffic.bytes_sent += len(hello)
        self.greeted_us = self._owner.broker_time.moment_us()
        self._transport.write(hello)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the read buffer: always the same, as one per read would be mapped and unmapped.

        It is a memoryview, since asyncio's TLS reads into slices of it: those of a bytearray are
        copies.
        """
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received bytes."""
        self._heard = self._loop.time()
        self.traffic.bytes_received += nbytes
        data = bytes(self._buffer[:nbytes])
        try:
            self._handle(self._session.receive(data))
        except TernMQError as error:
            # Before HELLO is answered, the error is raised in the application's code.
            level = logging.WARNING if self.usable else logging.DEBUG
            log.log(level, "the answer of the broker is not valid: %s", error)
            self.abort(error)

    def _handle(self, events: list[Answer | Refusal | Push]) -> None:
        askers = self._askers
        for event in events:
            if type(event) is Answer:
                asker = askers.pop(event.id, None)
                if asker is not None:
                    try:
                        asker.answered(event.body)
                    except BaseException:
                        asker.lost()  # the answer cannot be read: the connection ends
                        raise
                else:
                    self._open()
            elif type(event) is Refusal:
                asker = askers.pop(event.id, None)
                if asker is not None:
                    if isinstance(event.error, NotPrimary):
                        self.abort(event.error)  # first: the asker finds no connection
                    asker.refused(event.error)
                else:
                    self.abort(event.error)
            else:
                self._owner.link_pushed(self, cast("Push", event))

    def _open(self) -> None:
        if self.usable:
            return
        self.usable = True
        self._said = self._heard
        self._beat_later()
        self._owner.link_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the owner, and every asker without an outcome."""
        self.usable = False
        if not self.over.done():
            self.over.set_result(None)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._frames.clear()
        askers, self._askers = self._askers, {}
        self._owner.link_lost(self, self._last_words or exc)
        for asker in askers.values():
            asker.lost()

    def pause_writing(self) -> None:
        """Note that the socket takes no more for now."""
        self.writable = False

    def resume_writing(self) -> None:
        """Note that the socket takes more."""
        self.writable = True
        self._owner.link_writable(self)

    # -- requests

    @property
    def welcome(self) -> control.Welcome:
        """The broker's answer to HELLO."""
        welcome = self._session.welcome
        if welcome is None:
            raise ProtocolError("HELLO was not answered yet")
        return welcome

    def ask(self, command: Command, body: bytes, asker: Asker) -> int:
        """Send a request; return its id. Never blocks.

        Raises:
            ProtocolError: The link is not usable.
        """
        id_, frame = self._session.ask(command, body)
        self._askers[id_] = asker
        self._frames.append(frame)
        if not self._flushing:
            self._flush_later()
        return id_

    def tell(self, command: Command, body: bytes) -> None:
        """Send a request without an answer."""
        self._frames.append(self._session.tell(command, body))
        if not self._flushing:
            self._flush_later()

    def _flush_later(self) -> None:
        self._flushing = True
        self._loop.call_soon(self.flush)

    def gather(self) -> None:
        """Keep the following frames for ``flush``, which the same caller must call."""
        self._flushing = True

    def flush(self) -> None:
        """Write the frames of this turn now."""
        self._flushing = False
        frames = self._frames
        if frames and self._transport is not None:
            self._said = self._loop.time()
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            self.traffic.requests += len(frames)
            self.traffic.bytes_sent += len(data)
            self._transport.write(data)
            frames.clear()

    def close(self) -> None:
        """End the connection after the written frames."""
        self.flush()
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def abort(self, error: TernMQError | None = None) -> None:
        """End the connection at once."""
        self._last_words = self._last_words or error
        self.usable = False
        if self._session.state is not State.CLOSED and self._transport is not None:
            self._transport.abort()
        elif self._transport is not None:
            self._transport.close()

    def leave_behind(self) -> None:
        """Close this process's copy of the connection after a fork: it belongs to the parent."""
        if self._transport is not None:
            let_go(self._transport.get_extra_info("socket").fileno())

    # -- heartbeat

    def _beat_later(self) -> None:
        beat = self.welcome.heartbeat_us / _SECOND_US
        if beat > 0:
            self._heartbeat = self._loop.call_later(beat, self._beat)

    def _beat(self) -> None:
        now = self._loop.time()
        beat = self.welcome.heartbeat_us / _SECOND_US
        if now - self._heard > _SILENT_BEATS * beat:
            self.abort(ConnectionLost(f"the broker was silent for {now - self._heard:.1f} s"))
            return
        self.ping()
        self._beat_later()

    def ping(self) -> None:
        """Ask for broker time, and whether the broker is there."""
        self.ask(Command.PING, b"", _Ping(self._owner.broker_time))


class _Ping:
    """The asker of a PING, whose answer has broker time."""

    __slots__ = ("_asked_us", "_broker_time")

    def __init__(self, broker_time: BrokerTime) -> None:
        self._broker_time = broker_time
        self._asked_us = broker_time.moment_us()

    def answered(self, body: bytes) -> None:
        """Take broker time from it."""
        self._broker_time.told(bodies.unpack_pong(body), self._asked_us)

    def refused(self, error: TernMQError) -> None:
        """Do nothing."""

    def lost(self) -> None:
        """Do nothing."""
