"""A native connection: its socket, its handshake, its requests and answers, its limits, its end.

* **Handshake.** Before HELLO a peer may send one frame of at most 4 KiB, within a few seconds.
* **In.** The number and the bytes of a connection's requests without an answer are limited. At the
  limit, and while its app exceeds its share of an exhausted budget for requests, nothing is read
  from it: TCP's flow control holds the peer back. A send that waits for the disk blocks the
  requests behind it, so that their order is kept. A pull or read that waits for messages counts as
  a request, but its bytes do not count: it may wait for long. The work that all connections of an
  app have done in one turn of the loop is limited as well.
* **Out.** When the peer does not read, answers pile up to a limit; then nothing more is read from
  it and its parked pulls are withdrawn. Answers that are made and not written yet count as well, so
  that a client that pipelines many large requests is served in pieces. While the answers of all
  apps exceed their budget, and those of this app its fair share, requests with large answers are
  set aside; the others go on.
* **End.** A peer that reads nothing for ``stall_timeout`` is cut off, and so is one that sends
  nothing, or does not complete a frame, for three heartbeats. A settle that arrived whole before
  its consumer was lost takes effect.

Bytes are counted per frame here, and passed on to the app's accounts once for each batch of
requests and each write; at once when they are many, and before each request when little of the
budget is left.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections import deque
from typing import Final, cast

from ternmq.model.errors import (
    Busy,
    Forbidden,
    HandshakeTimeout,
    InvalidRequest,
    NotPrimary,
    ProtocolError,
    TernMQError,
    Unauthenticated,
    UnknownCommand,
)
from ternmq.model.marks import Rests
from ternmq.server.desk.accounts import CONTROL_UNITS, UNIT_SHIFT, AppAccounts
from ternmq.server.native.costs import HELD_BACK, REQUEST_BYTES, UNITS
from ternmq.server.native.hub import FEW_BYTES, FEW_REQUESTS, Hub
from ternmq.server.native.mistaken import mistaken
from ternmq.wire import frames, session
from ternmq.wire.commands import Command
from ternmq.wire.session import Request, ServerSession, State, Unknown

log = logging.getLogger("ternmq.server.connection")

TOPICS: Final = 32
"""Most topics that are listed for a connection: those that it began to use last."""
_LARGE: Final = 16 * 1024
"""After a write of this many bytes the transport's buffer is measured; else once a second. Answers
of this size are counted before the write."""
FEW: Final = 2048
"""A connection whose requests and answers are smaller than this together counts as holding nothing:
the connection itself takes more memory, and lone requests need no accounting."""
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


class Connection(asyncio.BufferedProtocol):
    """A client's connection. The loop's server makes one for each socket that it accepts.

    Commands see it as their ``Caller``.
    """

    __slots__ = (
        "_aside",
        "_backlog",
        "_began",
        "_blocked",
        "_counted",
        "_early",
        "_farewell_at",
        "_heard",
        "_host",
        "_hub",
        "_kept",
        "_out",
        "_pending",
        "_pending_bytes",
        "_pending_counted",
        "_progress",
        "_reading",
        "_sends_large",
        "_session",
        "_transport",
        "_unfinished",
        "_unread",
        "_unwritten",
        "_unwritten_counted",
        "address",
        "app",
        "app_accounts",
        "closed",
        "counted",
        "language",
        "session",
        "topics",
        "waiting",
        "writable",
    )

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.app_accounts: AppAccounts = hub.accounts.strangers
        self._transport: asyncio.Transport
        self._out: list[bytes] = []
        self._backlog: deque[Request] = deque()
        self._aside: list[Request] = []
        """Requests that are counted but not begun, because the app has too many untaken answers."""
        self._pending = 0
        self._pending_bytes = 0
        self._blocked = False
        self._reading = True
        self._unwritten = 0  # bytes of answers that are made, or being made, and not written
        self._counted = False
        """The app's accounts include this connection, with the two numbers below."""
        self._pending_counted = 0
        self._unwritten_counted = 0
        self._kept = 0  # bytes that were written, and that the transport still had at a look
        self.address = ""
        self.app = ""
        self.language = ""
        self.session = 0
        self._early: list[bytes] | None = None
        """Pushes that wait for the answer to HELLO; None: it has left, or there was no HELLO."""
        self.topics: dict[str, None] = {}
        self.waiting: set[int] = set()
        """Ids of requests that wait for messages."""
        self.closed = False
        self.writable = True
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
            opening = self._session.state is State.OPENING
            known = mistaken(data, self._hub.http_address) if opening else None
            self._end(*(known or (error, None)))
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
        if hello is None:
            self._serve_a_broker()
            return
        try:
            if hub.desk.draining:
                raise Busy("the broker is stopping")
            if hub.desk.not_yet:
                raise NotPrimary(hub.desk.not_yet)
            joined = hub.commands.greet(self, hello)
        except TernMQError as error:
            log.info("%s was refused: %s", self.address, error)
            self._count_refusal(error)
            if isinstance(error, Unauthenticated):
                hub.audit.denied(hello.app, self.address, Command.HELLO, error)
            self._say(self._session.refuse(error))
            self._close("refused")
            return
        self.session = joined.session
        self.language = hello.language
        frame = self._session.welcome(hub.commands.welcome(joined))
        self._early = []
        self._unwritten += len(frame)
        hub.core.hold(_Welcome(self), frame, joined.position, Rests.DURABLE, 0)
        hub.core.touch()

    def _serve_a_broker(self) -> None:
        """Hand the connection over to what answers FOLLOW or SEGMENT_READ, or refuse it."""
        hub, session = self._hub, self._session
        take, lend = hub.take_follower, hub.take_segment_read
        if session.segment_read is not None and lend is not None:
            self._hand_over()
            lend(self._transport, session, self.address)
        elif session.follow is not None and take is not None:
            self._hand_over()
            take(self._transport, session.follow, session.hello_id, self.address)
        else:
            error = UnknownCommand("this broker is not the primary of a broker group")
            log.info("%s was refused: %s", self.address, error)
            self._count_refusal(error)
            self._transport.write(session.refuse(error))
            self._close("refused")

    def _hand_over(self) -> None:
        """Forget the connection, but do not close it."""
        hub = self._hub
        self.closed = True  # it is no client: none of the budgets and limits here hold for it
        self.counted = False
        hub.peers.discard(self)
        hub.admission.left(self, self._host)
        hub.counters.connections = len(hub.peers)
        self._drop()
        self._forget()

    def welcomed(self, frame: bytes) -> None:
        """Queue the answer to HELLO, and then the pushes that waited for it."""
        early, self._early = self._early, None
        self.put(frame, 0)
        for one in early or ():
            self._leave(one, 0)

    # -- its app -----------------------------------------------------------------------------------

    def enter(self, app: str) -> None:
        """Take the accounts of an app.

        Raises:
            Busy: The app has as many connections as it may.
        """
        self._hub.enter(self, app)

    @property
    def share(self) -> AppAccounts:
        """The accounts of its app."""
        return self.app_accounts

    # -- requests ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Run requests of the backlog while there is room for answers."""
        backlog, hub = self._backlog, self._hub
        if hub.stopped:
            return
        settings, app_accounts, core = hub.settings, self.app_accounts, hub.core
        pending, unwritten = app_accounts.pending, app_accounts.unwritten
        all_pending, all_unwritten = pending.budget, unwritten.budget
        if app_accounts.round != hub.round:
            app_accounts.begin(hub.round)
        if backlog:
            core.touch()  # what runs here after the turn's write needs a turn of its own
        most, most_bytes = settings.requests_per_connection, settings.sends_per_connection_bytes
        most_unwritten = settings.send_buffer_bytes
        scarce = all_pending.held + most_bytes > all_pending.limit
        crowded = all_unwritten.held + most_unwritten > all_unwritten.limit
        run = hub.commands.run
        while (
            backlog
            and not self._blocked
            and self.writable
            and not self.closed
            and self._pending < most
            and self._pending_bytes < most_bytes
            and self._unwritten < most_unwritten
        ):
            if app_accounts.units <= 0:
                hub.run_later(self)
                break
            if scarce:
                self._count()
                if pending.over:
                    all_pending.held_back += 1
                    hub.run_later(self)
                    break
            request = backlog.popleft()
            size = len(request.body) + REQUEST_BYTES
            app_accounts.units -= UNITS.get(request.command, CONTROL_UNITS) + (size >> UNIT_SHIFT)
            if not request.one_way:
                self._pending += 1
                self._pending_bytes += size
            if crowded and request.command in HELD_BACK and unwritten.over:
                self._set_aside(request)
                continue
            core.asked += 1
            run(self, request)
        self.regulate()

    def _count(self) -> None:
        """Update the app's accounts with this connection's bytes."""
        pending, unwritten = self._pending_bytes, self._unwritten
        self._counted = pending + unwritten >= FEW
        if not self._counted:
            pending = unwritten = 0
        app_accounts = self.app_accounts
        if pending != self._pending_counted:
            app_accounts.pending.take(pending - self._pending_counted)
            self._pending_counted = pending
        if unwritten != self._unwritten_counted:
            app_accounts.unwritten.take(unwritten - self._unwritten_counted)
            self._unwritten_counted = unwritten

    def regulate(self) -> None:
        """Resume reading only if the backlog is empty and the app is within its budget; else pause.

        Requests that were received but not begun are not counted: for an app above its share they
        are at most the bytes of one read.
        """
        if self._counted or self._pending_bytes + self._unwritten >= FEW:
            self._count()
        pending = self.app_accounts.pending
        all_ = pending.budget
        over = all_.held > all_.limit and pending.over
        read = not self._backlog and self.writable and not over and not self._hub.stopped
        if over and not self.closed:
            self._hub.run_later(self)
        if read != self._reading and not self.closed:
            self._reading = read
            if read:
                self._hub.counters.stalled -= 1
                self._transport.resume_reading()
            else:
                self._hub.counters.stalled += 1
                self._transport.pause_reading()

    def go_on(self) -> None:
        """Run waiting requests: the cause of their wait is over."""
        if not self.closed:
            self._pump()

    def go_on_later(self) -> None:
        """Go on in the next turn, when it is its app's turn."""
        self._hub.run_later(self)

    def block(self) -> None:
        """Stop running requests: a send waits for the disk, and later requests wait behind it."""
        self._blocked = True

    def unblock(self) -> None:
        """Allow requests to run again; the caller calls ``go_on`` afterwards."""
        self._blocked = False

    def park(self, request: Request) -> None:
        """Stop counting the bytes of a request, because it waits for messages now."""
        size = len(request.body) + REQUEST_BYTES
        self._pending_bytes -= size
        self._count()

    def unpark(self, request: Request) -> None:
        """Count a parked request's bytes again: it is about to be answered or run again."""
        size = len(request.body) + REQUEST_BYTES
        self._pending_bytes += size
        self._count()

    @property
    def roomy(self) -> bool:
        """Whether there is room for another answer."""
        room = self._unwritten < self._hub.settings.send_buffer_bytes
        return room and not self.app_accounts.unwritten.over

    def put_back(self, request: Request) -> None:
        """Make a request wait until there is room for its answer."""
        if self.app_accounts.unwritten.over:
            self._set_aside(request)
            return
        self._settled(len(request.body) + REQUEST_BYTES)
        self._backlog.appendleft(request)
        self.regulate()

    def _set_aside(self, request: Request) -> None:
        self._aside.append(request)
        self.app_accounts.unwritten.budget.held_back += 1
        self._hub.hold_back(self)

    def take_up(self) -> None:
        """Run the requests that were set aside: the app's answers have been taken."""
        aside, self._aside = self._aside, []
        if self.closed:
            return
        for request in aside:
            self._settled(len(request.body) + REQUEST_BYTES)
        self._backlog.extendleft(reversed(aside))
        self._pump()

    def uses(self, topic: str) -> None:
        """Add a topic to those that lists show for this connection; it is not among them yet."""
        topics = self.topics
        if len(topics) >= TOPICS:
            del topics[next(iter(topics))]
        topics[topic] = None
        self._hub.core.expect_messages()

    # -- answers ----------------------------------------------------------------------------------

    def answer(
        self,
        request: Request,
        body: bytes,
        position: int = 0,
        rests: Rests = Rests.DURABLE,
    ) -> None:
        """Answer a request once the record that the answer depends on is committed.

        Args:
            request: The request.
            body: Body of the answer.
            position: The answer leaves when the journal is durable up to here; 0: at once.
            rests: Whether the journal must be durable or only written up to ``position``.
        """
        size = len(request.body) + REQUEST_BYTES
        if request.one_way:
            return
        self._leave(session.answer(request, body), size, position, rests)

    def refuse(self, request: Request, error: TernMQError, position: int = 0) -> None:
        """Answer a request with an error."""
        self._count_refusal(error)
        if isinstance(error, Unauthenticated | Forbidden):
            self._hub.audit.denied(self.app, self.address, request.command, error)
        if request.one_way:
            log.debug("%s: a one-way request was refused: %s", self.address, error)
            return
        size = len(request.body) + REQUEST_BYTES
        self._leave(session.refusal(request.command, request.id, error), size, position)

    def push(self, command: int, body: bytes) -> None:
        """Send a push frame, not before the answer to HELLO, which may wait for its record."""
        frame = frames.pack(command, frames.PUSH, 0, body)
        if self._early is not None:
            self._early.append(frame)
        else:
            self._leave(frame, 0)

    def expect(self, size: int) -> None:
        """Count the bytes of an answer that is being made; negative: stop counting them."""
        if not self.closed:
            self._unwritten += size
            self._count()

    def _leave(
        self,
        frame: bytes,
        settled_bytes: int,
        position: int = 0,
        rests: Rests = Rests.DURABLE,
    ) -> None:
        """Let a frame leave once the record that it depends on is committed."""
        if self.closed:
            return
        size = len(frame)
        self._unwritten += size
        if self._unwritten - self._unwritten_counted >= _LARGE:
            self._count()
            if size >= _LARGE:
                self.app_accounts.units -= size >> UNIT_SHIFT
        if position:
            self._hub.core.hold(self, frame, position, rests, settled_bytes)
        else:
            self.put(frame, settled_bytes)

    def put(self, frame: bytes, settled_bytes: int) -> None:
        """Queue a frame for the next write; it answers requests of ``settled_bytes``."""
        if self.closed:
            return
        if settled_bytes:
            self._pending -= 1
            self._pending_bytes -= settled_bytes
        if not self._out:
            self._hub.dirty(self)
        self._out.append(frame)

    def write_out(self) -> None:
        """Write the queued frames to the transport."""
        out = self._out
        if not out or self.closed:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        size = len(data)
        self._unwritten -= size
        if self._counted or self._pending_bytes + self._unwritten >= FEW:
            self._count()
        self._hub.counters.bytes_out += size
        self._transport.write(data)
        if size >= _LARGE or self._kept:
            self._look_at_buffer()
        if self._backlog:
            self._pump()

    def _write_last(self) -> None:
        """Write the queued frames outside of a turn, if they may leave."""
        if self._hub.core.may_answer():
            self.write_out()

    def _say(self, frame: bytes) -> None:
        """Write a last frame, if it may leave."""
        if self._hub.core.may_answer():
            self._transport.write(frame)

    def _look_at_buffer(self) -> int:
        """Count the bytes in the transport's buffer, which the peer has not taken; return them."""
        size = self._transport.get_write_buffer_size()
        if size != self._kept:
            self.app_accounts.unwritten.take(size - self._kept)
            self._kept = size
        return size

    def _refuse_unknown(self, request: Unknown) -> None:
        error = UnknownCommand(f"command {request.command}")
        self._count_refusal(error)
        if not request.one_way:
            self._leave(session.refusal(request.command, request.id, error), 0)

    def _settled(self, size: int) -> None:
        self._pending -= 1
        self._pending_bytes -= size
        self._count()

    def _count_refusal(self, error: TernMQError) -> None:
        self._hub.counters.refusals[type(error).__name__] += 1

    def _forget(self) -> None:
        """Stop counting a lost connection, except the answers that it has not taken."""
        hub, app_accounts = self._hub, self.app_accounts
        hub.forget(self)
        self._count()
        app_accounts.pending.take(-self._pending_counted)
        untaken = self._unwritten_counted + self._kept
        if app_accounts is not hub.accounts.strangers:
            hub.accounts.leave(app_accounts, untaken, hub.core.loop.time())
        else:
            app_accounts.unwritten.take(-untaken)
        self._pending = self._pending_bytes = self._unwritten = self._kept = 0
        self._pending_counted = self._unwritten_counted = 0
        self._counted = False
        if not self._reading:
            self._reading = True
            hub.counters.stalled -= 1
        self._backlog.clear()
        self._aside.clear()
        self._out.clear()

    # -- ends -------------------------------------------------------------------------------------

    def _end(self, error: TernMQError, words: bytes | None = None) -> None:
        """Close a connection that broke the protocol; the last frame (or ``words``) tells why."""
        self._hub.counters.protocol_errors += 1
        self._count_refusal(error)
        log.info("%s broke the protocol: %s", self.address, error)
        opening = self._session.state is State.OPENING
        self._write_last()
        farewell = self._session.farewell(error)
        self._say(farewell if words is None else words)
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
        """Write all pending answers, if they may leave, then close."""
        self._write_last()
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


class _Welcome:
    """The outlet of a connection's answer to HELLO."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, frame: bytes, settled_bytes: int) -> None:
        """Pass the answer on; see ``Outlet``."""
        del settled_bytes
        self._connection.welcomed(frame)
