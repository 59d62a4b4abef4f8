"""One connection to a broker: requests out, answers and pushes in. No decisions.

Frames of one turn of the loop leave in one write. A request is given with whoever wants its answer
(``Asker``), who is told exactly once: ``answered``, ``refused`` or ``lost``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, cast

from ternmq.client.forking import let_go
from ternmq.client.stats import Traffic
from ternmq.model.errors import ConnectionLost, ProtocolError, TernMQError
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal, State

log: Final = logging.getLogger("ternmq")

_SECOND_US: Final = 1_000_000
_SILENT_BEATS: Final = 3
_READ_BYTES: Final = 256 * 1024


class Asker(Protocol):
    """Who wants to know what became of a request; told once."""

    def answered(self, body: bytes) -> None:
        """It was carried out."""

    def refused(self, error: TernMQError) -> None:
        """The broker said no."""

    def lost(self) -> None:
        """The connection ended before the answer."""


class Waiting:
    """An asker for coroutines: ``future`` gets the answer's body."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()

    def answered(self, body: bytes) -> None:
        """See ``Asker``."""
        if not self.future.done():
            self.future.set_result(body)

    def refused(self, error: TernMQError) -> None:
        """See ``Asker``."""
        if not self.future.done():
            self.future.set_exception(error)

    def lost(self) -> None:
        """See ``Asker``."""
        if not self.future.done():
            self.future.set_exception(ConnectionLost("the connection ended before the answer"))


class Owner(Protocol):
    """What a link tells its session."""

    def link_opened(self, link: Link) -> None:
        """HELLO was answered."""

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """The connection is over; ``error`` is what the broker said last, or why it was cut."""

    def link_pushed(self, link: Link, push: Push) -> None:
        """The broker says something of itself."""

    def link_writable(self, link: Link) -> None:
        """What was written left; more may be written."""


class Link(asyncio.BufferedProtocol):
    """A connection. Loop only.

    Attributes:
        writable: False while the socket takes no more; frames are still taken.
        usable: HELLO was answered and the connection is not over.
        traffic: What goes over it is counted here.
        over: Done when the connection has ended.
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

    # -- what asyncio tells

    @property
    def accepted(self) -> bool:
        """Whether somebody took the connection, a broker or another."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say HELLO."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1 << 20)
        hello = self._session.hello(self._hello)
        self.traffic.bytes_sent += len(hello)
        self._transport.write(hello)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where bytes go: always there, a new one for each read is mapped and unmapped.

        A memoryview, since asyncio's TLS reads into slices of it: those of a bytearray are copies.
        """
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out what came."""
        self._heard = self._loop.time()
        self.traffic.bytes_received += nbytes
        data = bytes(self._buffer[:nbytes])
        try:
            self._handle(self._session.receive(data))
        except TernMQError as error:
            log.warning("what the broker said cannot be understood: %s", error)
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
                        asker.lost()  # it is not understood: the connection ends
                        raise
                else:
                    self._open()
            elif type(event) is Refusal:
                asker = askers.pop(event.id, None)
                if asker is not None:
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
        """Tell everybody who waits."""
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
        """The socket takes no more for now."""
        self.writable = False

    def resume_writing(self) -> None:
        """The socket takes more."""
        self.writable = True
        self._owner.link_writable(self)

    # -- what the session says

    @property
    def welcome(self) -> control.Welcome:
        """What the broker answered to HELLO."""
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
        self._post(frame)
        return id_

    def tell(self, command: Command, body: bytes) -> None:
        """Send a request that is not answered."""
        self._post(self._session.tell(command, body))

    def _post(self, frame: bytes) -> None:
        self._frames.append(frame)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def gather(self) -> None:
        """Keep the frames that follow for ``flush``, which the same call must make."""
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
        """End the connection after what was written."""
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
        """This process was forked from the one that has the connection: close the copy of it."""
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
        self.ask(Command.PING, b"", _Nobody())
        self._beat_later()


class _Nobody:
    """Wants no answer."""

    __slots__ = ()

    def answered(self, body: bytes) -> None:
        """See ``Asker``."""

    def refused(self, error: TernMQError) -> None:
        """See ``Asker``."""

    def lost(self) -> None:
        """See ``Asker``."""
