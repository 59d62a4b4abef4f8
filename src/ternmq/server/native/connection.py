"""One peer: its socket, its handshake, its time limits, its end.

Before HELLO a peer may send one frame of at most 4 KiB, within a few seconds. After it, requests
arrive, and ``Peer`` limits how many at a time. A peer that reads nothing for ``stall_timeout`` is
cut off, and so is one that sends nothing, or does not complete a frame, for three heartbeats. A
settle that arrived whole before its consumer was lost takes effect.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from typing import Final, cast

from ternmq.model.errors import (
    Busy,
    HandshakeTimeout,
    InvalidRequest,
    ProtocolError,
    TernMQError,
    Unauthenticated,
)
from ternmq.server.native.hub import FEW_BYTES, FEW_REQUESTS, Hub
from ternmq.server.native.peer import REQUEST_BYTES, Peer
from ternmq.wire.commands import Command
from ternmq.wire.session import ServerSession, State, Unknown

log = logging.getLogger("ternmq.server.connection")

_LAST_BYTES: Final = 64 * 1024
"""Most bytes that are read from a lost connection."""
_CHANGES_NOTHING: Final = frozenset(
    {Command.CANCEL, Command.EXTEND, Command.PING, Command.PULL, Command.REPORT}
)
"""Requests of a lost client that may be skipped: the effect of later ones does not depend on
them."""
FAREWELL_S: Final = 2.0
"""Seconds after which a connection that the broker has closed is aborted, if it still exists."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: a close drops the unsent bytes and resets the connection."""


_GREETED: Final = State.GREETED
"""A name of the module: looking a member up in its class takes 0.1 us (Python 3.11)."""
_HTTP: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"PRI * ")
"""First bytes of HTTP requests."""


class Connection(Peer, asyncio.BufferedProtocol):
    """A client's connection. The loop's server makes one for each socket that it accepts."""

    __slots__ = (
        "_began",
        "_farewell_at",
        "_heard",
        "_host",
        "_progress",
        "_sends_large",
        "_session",
        "_unfinished",
        "_unread",
        "counted",
    )

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._session = ServerSession(hub.settings.frame_bytes)
        self._began = self._heard = hub.core.loop.time()
        self._unfinished = 0  # received bytes of an incomplete frame
        self._unread = 0  # bytes that the peer had not taken at the last check
        self._progress = self._began
        self._farewell_at = self._began
        self._sends_large = False
        self._host = ""
        self.counted = False

    # -- the transport ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it at once because of a limit."""
        self._transport = cast("asyncio.Transport", transport)
        hub, counters = self._hub, self._hub.counters
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
        self._host = host
        self.address = f"{host}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else host
        counters.accepted += 1
        if hub.desk.draining or not hub.admission.admit(self, host):
            counters.refused_connections += 1
            self.closed = True
            self._transport.abort()
            return
        self.counted = True
        hub.peers.add(self)
        counters.connections = len(hub.peers)
        self._transport.set_write_buffer_limits(high=hub.settings.send_buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up: its requests are not answered; its last settles are applied."""
        hub = self._hub
        if self.session and not self.closed and not hub.stopped:
            if exc is not None:
                self._read_last()
            self._settle_last()
        self.closed = True
        if self.counted:
            self.counted = False
            hub.peers.discard(self)
            hub.admission.left(self, self._host)
            hub.counters.connections = len(hub.peers)
        self._drop()
        if self.session:
            hub.commands.gone(self)
        self._forget()

    def _read_last(self) -> None:
        """Read the last received bytes: after a failed write asyncio ends without reading them."""
        sock = self._transport.get_extra_info("socket")
        if sock is None or self._transport.get_extra_info("ssl_object") is not None:
            return
        try:
            data = os.read(sock.fileno(), _LAST_BYTES)
            requests = self._session.receive(data)
        except (OSError, ValueError, ProtocolError, InvalidRequest) as error:
            log.debug("%s: nothing more can be read: %s", self.address, error)
            return
        self._backlog.extend([one for one in requests if not isinstance(one, Unknown)])

    def _settle_last(self) -> None:
        """Run the settles that arrived before the end; else a finished message is redelivered.

        Stops at the first request that changes anything else, so that no request takes effect
        without those before it.
        """
        if self._blocked:
            return
        for request in self._backlog:
            if request.command is Command.SETTLE:
                self.app_accounts.units -= 1
                self._hub.commands.run(self, request)
            elif request.command not in _CHANGES_NOTHING:
                break

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer, or its beginning, which bounds the requests parsed at a time.

        It is a memoryview, since asyncio's TLS reads into slices: a bytearray's would be copies.
        """
        del sizehint
        return self._hub.buffer if self._sends_large else self._hub.small_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes, and run the requests in them."""
        hub = self._hub
        self._heard = hub.core.loop.time()
        hub.counters.bytes_in += nbytes
        if self.closed:
            return
        data = bytes(hub.buffer[:nbytes])
        try:
            requests = self._session.receive(data)
        except (ProtocolError, InvalidRequest) as error:
            http = self._session.state is State.OPENING and data.startswith(_HTTP)
            self._end(error, self._told_http() if http else None)
            return
        if nbytes >= FEW_BYTES or self._sends_large:
            self._sends_large = len(requests) <= FEW_REQUESTS
        held = self._session.held_bytes
        if held != self._unfinished and not self._hold(held, begun=bool(requests)):
            return
        if self._session.state is _GREETED:
            self._greet()
            return
        if not requests:
            self.regulate()
            return
        for request in requests:
            if isinstance(request, Unknown):
                self._refuse_unknown(request)
            else:
                self._backlog.append(request)
        self._pump()

    def _hold(self, size: int, *, begun: bool) -> bool:
        """Count the bytes of an incomplete frame; return False if the connection was cut off.

        ``begun``: it is another frame than at the last call.
        """
        app_accounts = self.app_accounts
        account = app_accounts.unfinished
        account.take(size - self._unfinished)
        if begun or not size:
            app_accounts.writing.pop(self, None)
        if size and (begun or not self._unfinished):
            app_accounts.writing[self] = self._heard
        self._unfinished = size
        if account.budget.held > account.budget.limit:
            self._hub.relieve(app_accounts, self._heard)
        return not self.closed

    def _drop(self) -> None:
        """Stop counting the incomplete frame: it will not be completed."""
        self.app_accounts.writing.pop(self, None)
        self.app_accounts.unfinished.take(-self._unfinished)
        self._unfinished = 0

    def eof_received(self) -> bool:
        """Close: the peer sends no more, so it needs no more answers."""
        return False

    def pause_writing(self) -> None:
        """Stop answering and reading: the peer does not read. Its parked pulls are withdrawn."""
        self.writable = False
        self._unread = self._look_at_buffer()
        self._progress = self._hub.core.loop.time()
        for request in self._hub.commands.withdraw(self):
            self._settled(len(request.body) + REQUEST_BYTES)
            self._backlog.append(request)
        self.regulate()

    def resume_writing(self) -> None:
        """Go on: the peer reads again."""
        self.writable = True
        self._look_at_buffer()
        self.go_on()

    # -- the handshake ----------------------------------------------------------------------------

    def _greet(self) -> None:
        hub = self._hub
        hello = self._session.hello
        assert hello is not None
        try:
            if hub.desk.draining:
                raise Busy("the broker is stopping")
            joined = hub.commands.greet(self, hello)
        except TernMQError as error:
            log.info("%s was refused: %s", self.address, error)
            self._count_refusal(error)
            if isinstance(error, Unauthenticated):
                hub.audit.denied(hello.app, self.address, Command.HELLO, error)
            self._transport.write(self._session.refuse(error))
            self._close("refused")
            return
        self.session = joined.session
        self.language = hello.language
        frame = self._session.welcome(hub.commands.welcome(joined))
        self._leave(frame, 0, joined.position)
        hub.core.touch()

    # -- ends -------------------------------------------------------------------------------------

    def _told_http(self) -> bytes:
        """Return the answer to a client of HTTP: one line with the address of the HTTP port."""
        where = self._hub.http_address
        told = f"HTTP, for metrics and health, is at http://{where}" if where else "HTTP is off"
        text = f"this is the port for clients of TernMQ; {told}\n"
        return (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}"
        ).encode()

    def _end(self, error: TernMQError, words: bytes | None = None) -> None:
        """Close a connection that broke the protocol; the last frame (or ``words``) tells why."""
        self._hub.counters.protocol_errors += 1
        self._count_refusal(error)
        log.info("%s broke the protocol: %s", self.address, error)
        opening = self._session.state is State.OPENING
        self.write_out()
        farewell = self._session.farewell(error)
        self._transport.write(farewell if words is None else words)
        self._close("protocol" if not opening else "handshake")

    def _close(self, why: str) -> None:
        """Close so that the last frame arrives: a close while the peer sends would reset it."""
        self._drop()
        self._hub.counters.cut_off[why] += 1
        self.closed = True
        self._farewell_at = self._hub.core.loop.time()
        if self._transport.can_write_eof():
            self._transport.write_eof()  # bytes that still arrive are dropped, see FAREWELL_S
        else:
            self._transport.close()

    def abandon(self, why: str) -> None:
        """Close without a last frame."""
        log.info("%s is closed: %s", self.address, why)
        self._drop()
        self._hub.counters.cut_off["superseded"] += 1
        self.closed = True
        self._transport.abort()

    def finish(self) -> None:
        """Write all pending answers, then close."""
        self.write_out()
        self._drop()
        self.closed = True
        self._transport.close()

    def look(self, now: float) -> None:
        """Cut the peer off if it exceeds a time limit. Called by ``Hub.sweep``."""
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
        unread = self._look_at_buffer()
        if not self.writable:
            if unread < self._unread:
                self._progress = now
            self._unread = unread
            if now - self._progress > settings.stall_timeout_us / 1e6:
                self.cut("does not read")
            return
        self._progress = now
        if self._reading:
            patience = 3 * settings.heartbeat_us / 1e6
            if now - self._heard > patience:
                self.cut("silent")
            elif self._unfinished and now - self.app_accounts.writing[self] > patience:
                self.cut("slow")

    def turn_away(self) -> None:
        """Close without a last frame: there is no room for a connection that has sent no HELLO."""
        self._drop()
        self._hub.counters.cut_off["handshake"] += 1
        self.closed = True
        self._transport.abort()

    def cut(self, why: str) -> None:
        """Close at once, with a warning in the log; answers that were not taken are dropped."""
        log.warning("%s (app %r) is cut off: %s", self.address, self.app, why)
        self._drop()
        self._hub.counters.cut_off[why] += 1
        self.closed = True
        # Else the kernel keeps the bytes that the peer does not take, megabytes, for many minutes.
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()
