"""One peer: its bytes, its budgets, its time limits.

Flow control, both ways:

* **In.** A connection has at most so many requests, and bytes of them, without an answer; beyond,
  and while the broker's memory for requests is used up, nothing is read from it: TCP tells the
  peer. A send that waits for the disk holds up the requests behind it, so that order stays.
* **Out.** When the peer does not read, answers pile up to a limit; then nothing more is read from
  it and nothing more is handed to it (its parked pulls are withdrawn). A peer that takes nothing
  for ``stall_timeout`` is cut off. Answers that are made and not written yet count as well: who
  asks for everything a thousand times over gets it piece by piece.

Before HELLO a peer may hold one frame of 4 KiB for a few seconds. Loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from ternmq.broker.replies import Rests
from ternmq.model.errors import (
    Busy,
    HandshakeTimeout,
    InvalidRequest,
    ProtocolError,
    TernMQError,
    UnknownCommand,
)
from ternmq.server.admission import Admission
from ternmq.server.core import Core
from ternmq.server.counters import Counters
from ternmq.server.sessions import Place
from ternmq.settings import Settings
from ternmq.wire import frames, session
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.session import Request, ServerSession, State, Unknown

log = logging.getLogger("ternmq.server.connection")

FAREWELL_S: Final = 2.0
"""How long a connection that was closed by the broker may still be there."""
READ_BYTES: Final = 256 * 1024
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of no time at all: a close throws away what was not sent, and resets."""
REQUEST_BYTES: Final = 256
"""What a request counts for besides its body."""


Handler = Callable[["Connection", Request], None]
"""Carries a request out and answers it, now or later; may raise what refuses it."""


class Commands(Protocol):
    """What a connection asks to carry out requests."""

    def greet(self, peer: Connection, hello: Hello) -> Place:
        """Say who it is; raises a TernMQError that refuses it."""
        ...

    def welcome(self, place: Place) -> Welcome:
        """Return the answer to HELLO."""
        ...

    def run(self, peer: Connection, request: Request) -> None:
        """Carry a request out; it is answered through the peer, now or later."""
        ...

    def gone(self, peer: Connection) -> None:
        """Its connection is lost."""
        ...

    def withdraw(self, peer: Connection) -> list[Request]:
        """Take its parked requests back, to be asked again when it reads."""
        ...


class Hub:
    """What all connections share. Loop only.

    Args:
        core: The broker.
        settings: Limits.
        counters: Numbers.
    """

    def __init__(self, core: Core, settings: Settings, counters: Counters) -> None:
        self.core = core
        self.settings = settings
        self.counters = counters
        self.commands: Commands
        self.peers: set[Connection] = set()
        self.admission = Admission(settings)
        self.buffer = bytearray(READ_BYTES)
        """Where bytes are read into; copied out before the loop does anything else."""
        self.draining = False
        self._dirty: list[Connection] = []
        self._stalled: dict[Connection, None] = {}
        core.on_turn = self.flush

    def dirty(self, peer: Connection) -> None:
        """Note that a connection has something to write when the turn ends."""
        self._dirty.append(peer)
        self.core.touch()

    def flush(self) -> None:
        """Write what the turn's answers are; read on where there is room again."""
        while self._dirty:
            some, self._dirty = self._dirty, []
            for peer in some:
                peer.write_out()
        if self._stalled and not self.overloaded:
            some_stalled, self._stalled = list(self._stalled), {}
            for peer in some_stalled:
                peer.go_on()

    @property
    def overloaded(self) -> bool:
        """Whether requests without an answer fill the broker's memory for them."""
        return self.counters.pending_bytes > self.settings.memory_bytes

    def stall(self, peer: Connection) -> None:
        """Have a connection go on when there is memory again."""
        self._stalled[peer] = None

    def sweep(self, now: float) -> None:
        """Cut off who is late: with HELLO, with reading, with any sign of life. Once a second."""
        for peer in list(self.peers):
            peer.look(now)


class Connection(asyncio.BufferedProtocol):
    """A client's connection. Made by the loop's server for each that is accepted."""

    __slots__ = (
        "_backlog",
        "_blocked",
        "_began",
        "_farewell_at",
        "_heard",
        "_host",
        "_hub",
        "_out",
        "_pending",
        "_pending_bytes",
        "_progress",
        "_reading",
        "_session",
        "_transport",
        "_unread",
        "_unwritten",
        "address",
        "app",
        "closed",
        "counted",
        "session",
        "writable",
    )

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._session = ServerSession(hub.settings.frame_bytes)
        self._transport: asyncio.Transport
        self._out: list[bytes] = []
        self._backlog: deque[Request] = deque()
        self._pending = 0
        self._pending_bytes = 0
        self._blocked = False
        self._reading = True
        self._began = self._heard = hub.core.loop.time()
        self._unread = 0  # bytes that the peer had not taken at the last look
        self._unwritten = 0  # bytes of answers that are made, or being made, and not written
        self._progress = self._began
        self._farewell_at = self._began
        self._host = ""
        self.address = ""
        self.app = ""
        self.session = 0
        self.closed = False
        self.counted = False
        self.writable = True

    # -- the transport ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or close it at once for a limit."""
        self._transport = cast("asyncio.Transport", transport)
        hub, counters = self._hub, self._hub.counters
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
        self._host = host
        self.address = f"{host}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else host
        counters.accepted += 1
        if hub.draining or not hub.admission.admit(self, host):
            counters.refused_connections += 1
            self.closed = True
            self._transport.abort()
            return
        self.counted = True
        hub.peers.add(self)
        counters.connections = len(hub.peers)
        self._transport.set_write_buffer_limits(high=hub.settings.send_buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone; what it asked for is not answered."""
        del exc
        hub = self._hub
        self.closed = True
        if self.counted:
            self.counted = False
            hub.peers.discard(self)
            hub.admission.left(self, self._host)
            hub.counters.connections = len(hub.peers)
        hub.counters.pending_bytes -= self._pending_bytes
        self._pending = self._pending_bytes = 0
        if not self._reading:
            self._reading = True
            hub.counters.stalled -= 1
        self._backlog.clear()
        self._out.clear()
        if self.session:
            hub.commands.gone(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the shared buffer; see ``Hub.buffer``."""
        del sizehint
        return self._hub.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        hub = self._hub
        self._heard = hub.core.loop.time()
        hub.counters.bytes_in += nbytes
        if self.closed:
            return
        data = bytes(memoryview(hub.buffer)[:nbytes])
        try:
            requests = self._session.receive(data)
        except (ProtocolError, InvalidRequest) as error:
            self._end(error)
            return
        if self._session.state is State.GREETED:
            self._greet()
            return
        if not requests:
            return
        for request in requests:
            if isinstance(request, Unknown):
                self._refuse_unknown(request)
            else:
                self._backlog.append(request)
        hub.core.touch()
        self._pump()

    def eof_received(self) -> bool:
        """The peer says no more; what it still waits for is of no use to it."""
        return False

    def pause_writing(self) -> None:
        """The peer does not read: hand it nothing more, read nothing more from it."""
        self.writable = False
        self._unread = self._transport.get_write_buffer_size()
        self._progress = self._hub.core.loop.time()
        for request in self._hub.commands.withdraw(self):
            self._settled(len(request.body) + REQUEST_BYTES)
            self._backlog.append(request)
        self._regulate()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.writable = True
        self.go_on()

    # -- requests ---------------------------------------------------------------------------------

    def _greet(self) -> None:
        hub = self._hub
        hub.admission.introduced(self)
        hello = self._session.hello
        assert hello is not None
        try:
            if hub.draining:
                raise Busy("the broker is stopping")
            place = hub.commands.greet(self, hello)
        except TernMQError as error:
            log.info("%s was refused: %s", self.address, error)
            self._count_refusal(error)
            self._transport.write(self._session.refuse(error))
            self._close("refused")
            return
        self.session = place.session
        frame = self._session.welcome(hub.commands.welcome(place))
        self._leave(frame, 0, place.position, place.rests)
        hub.core.touch()

    def _pump(self) -> None:
        """Run what was asked, as long as there is room for answers."""
        backlog, hub = self._backlog, self._hub
        counters = hub.counters
        settings = hub.settings
        if backlog:
            hub.core.touch()  # what runs here after the turn's write needs a turn of its own
        while (
            backlog
            and not self._blocked
            and self.writable
            and not self.closed
            and self._pending < settings.requests_per_connection
            and self._pending_bytes < settings.sends_per_connection_bytes
            and self._unwritten < settings.send_buffer_bytes
        ):
            if counters.pending_bytes > settings.memory_bytes:
                hub.stall(self)
                break
            request = backlog.popleft()
            if not request.one_way:
                size = len(request.body) + REQUEST_BYTES
                self._pending += 1
                self._pending_bytes += size
                counters.pending_bytes += size
            hub.commands.run(self, request)
        self._regulate()

    def _regulate(self) -> None:
        """Read on only when everything that was asked is being done."""
        read = not self._backlog and self.writable
        if read != self._reading and not self.closed:
            self._reading = read
            if read:
                self._hub.counters.stalled -= 1
                self._transport.resume_reading()
            else:
                self._hub.counters.stalled += 1
                self._transport.pause_reading()

    def go_on(self) -> None:
        """Something that held requests up is over."""
        if not self.closed:
            self._pump()

    def block(self) -> None:
        """A send waits for the disk: what was asked after it waits as well."""
        self._blocked = True

    def unblock(self) -> None:
        """It waits no longer."""
        self._blocked = False

    # -- answers ----------------------------------------------------------------------------------

    def answer(
        self,
        request: Request,
        body: bytes,
        position: int = 0,
        rests: Rests = Rests.DURABLE,
    ) -> None:
        """Answer a request, when what the answer rests on is committed."""
        size = len(request.body) + REQUEST_BYTES
        if request.one_way:
            return
        self._leave(session.answer(request, body), size, position, rests)

    def refuse(self, request: Request, error: TernMQError, position: int = 0) -> None:
        """Answer a request with an error."""
        self._count_refusal(error)
        if request.one_way:
            log.debug("%s: a one-way request was refused: %s", self.address, error)
            return
        size = len(request.body) + REQUEST_BYTES
        self._leave(session.refusal(request.command, request.id, error), size, position)

    def push(self, command: int, body: bytes) -> None:
        """Say something without being asked."""
        self._leave(frames.pack(command, frames.PUSH, 0, body), 0)

    def expect(self, size: int) -> None:
        """Count an answer that is being made, so that not too many are; negative: no longer."""
        self._unwritten += size

    @property
    def roomy(self) -> bool:
        """Whether there is room for another answer."""
        return self._unwritten < self._hub.settings.send_buffer_bytes

    def put_back(self, request: Request) -> None:
        """Have a request wait until there is room for its answer."""
        self._settled(len(request.body) + REQUEST_BYTES)
        self._backlog.appendleft(request)
        self._regulate()

    def _leave(
        self, frame: bytes, settled_bytes: int, position: int = 0, rests: Rests = Rests.DURABLE
    ) -> None:
        """Let a frame leave, when what it rests on is committed."""
        self._unwritten += len(frame)
        if position:
            self._hub.core.hold(self, frame, position, rests, settled_bytes)
        else:
            self.put(frame, settled_bytes)

    def put(self, frame: bytes, settled_bytes: int) -> None:
        """Take a frame that may leave."""
        if self.closed:
            return
        if settled_bytes:
            self._settled(settled_bytes)
        if not self._out:
            self._hub.dirty(self)
        self._out.append(frame)

    def write_out(self) -> None:
        """Write what was put since the last time."""
        out = self._out
        if not out or self.closed:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._unwritten -= len(data)
        self._hub.counters.bytes_out += len(data)
        self._transport.write(data)
        if self._backlog:
            self._pump()

    def _refuse_unknown(self, request: Unknown) -> None:
        error = UnknownCommand(f"command {request.command}")
        self._count_refusal(error)
        if not request.one_way:
            self._leave(session.refusal(request.command, request.id, error), 0)

    def _settled(self, size: int) -> None:
        self._pending -= 1
        self._pending_bytes -= size
        self._hub.counters.pending_bytes -= size

    def _count_refusal(self, error: TernMQError) -> None:
        self._hub.counters.refusals[type(error).__name__] += 1

    # -- ends -------------------------------------------------------------------------------------

    def _end(self, error: TernMQError) -> None:
        """Close a connection that broke the protocol, with a word about why."""
        self._hub.counters.protocol_errors += 1
        self._count_refusal(error)
        log.info("%s broke the protocol: %s", self.address, error)
        opening = self._session.state is State.OPENING
        self.write_out()
        self._transport.write(self._session.farewell(error))
        self._close("protocol" if not opening else "handshake")

    def _close(self, why: str) -> None:
        """Let the last word reach the peer: to close while it still sends would reset it away."""
        self._hub.counters.cut_off[why] += 1
        self.closed = True
        self._farewell_at = self._hub.core.loop.time()
        if self._transport.can_write_eof():
            self._transport.write_eof()  # what still comes is read and dropped, for a moment
        else:
            self._transport.close()

    def abandon(self, why: str) -> None:
        """Close without a word."""
        log.info("%s is closed: %s", self.address, why)
        self._hub.counters.cut_off["superseded"] += 1
        self.closed = True
        self._transport.abort()

    def finish(self) -> None:
        """Write what there is, then close."""
        self.write_out()
        self.closed = True
        self._transport.close()

    def look(self, now: float) -> None:
        """Cut the peer off if it is late; see ``Hub.sweep``."""
        settings = self._hub.settings
        if self.closed:
            if now - max(self._farewell_at, self._progress) > FAREWELL_S:
                self._transport.abort()
            return
        self._progress = max(self._progress, self._began)
        if self._session.state is State.OPENING:
            if now - self._began > settings.handshake_timeout_us / 1e6:
                self._end(HandshakeTimeout("no HELLO came in time"))
            return
        if not self.writable:
            unread = self._transport.get_write_buffer_size()
            if unread < self._unread:
                self._progress = now
            self._unread = unread
            if now - self._progress > settings.stall_timeout_us / 1e6:
                self._cut("does not read")
            return
        self._progress = now
        if self._reading and now - self._heard > 3 * settings.heartbeat_us / 1e6:
            self._cut("silent")

    def turn_away(self) -> None:
        """Close without a word: there is no room for those who do not say who they are."""
        self._hub.counters.cut_off["handshake"] += 1
        self.closed = True
        self._transport.abort()

    def _cut(self, why: str) -> None:
        log.warning("%s (app %r) is cut off: %s", self.address, self.app, why)
        self._hub.counters.cut_off[why] += 1
        self.closed = True
        # Without it the kernel keeps what the peer does not take, megabytes, for many minutes.
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()


__all__ = ["Connection", "Hub"]
