"""State shared by all connections: the set of peers, the budgets of all apps, the end of a turn.

Three budgets limit the memory that clients can make the broker use. Each is ``memory_bytes``, and
each app has a fair share of it (``ledgers``). While a budget is exceeded, apps above their share
are held back, and no others:

* Requests without an answer: nothing more is read from such an app.
* Answers that are made and not taken yet: the app's pulls, reads and look-ups wait, since their
  answers are large; its sends and settles go on.
* Requests that are not received whole yet: the app's connection with the oldest such request is cut
  off as ``slow`` if that request is older than ``_PATIENCE_S``; above twice the budget it is cut
  off whatever its age, as ``memory``. If it is the only connection of all with such a request, it
  is never cut off for the size of it.

Work is shared as well. In one turn an app has at most ``ROUND`` units done; the rest waits for the
next turns. While several apps are active and not all of them are busy (``ledgers``), each app gets
a small portion, and further portions at the end of the turn for at most ``RUN_S``, so that a turn
stays short. Apps take turns, and so do the connections of an app. Reads of rows, look-ups and lists
run last in a turn, after its sync and its answers: a few at a time, apps taking turns again.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ternmq.model.errors import Busy
from ternmq.server.admission import Admission
from ternmq.server.audit import Audit
from ternmq.server.core import Core
from ternmq.server.counters import Counters
from ternmq.server.fairqueue import FairQueue
from ternmq.server.ledgers import PORTION, ROUND, Ledger, Ledgers, Places
from ternmq.server.sessions import Place
from ternmq.settings import Settings
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.session import Request

if TYPE_CHECKING:
    from ternmq.server.peer import Peer

log = logging.getLogger("ternmq.server")

READ_BYTES: Final = 256 * 1024
FEW_BYTES: Final = 16 * 1024
"""Bytes read at a time from a peer that sends small requests: 270 of the smallest take 0.5 ms to
parse."""
FEW_REQUESTS: Final = 16
"""A peer sends large requests if a read that filled its buffer brought at most this many."""

READS_S: Final = 0.0002
"""Once reads have taken this much of a turn, no more are begun in it: new requests go first."""
RUN_S: Final = 0.0003
"""Once the end of a turn has taken this long, no app has more than one portion of work done."""

SWEPT_A_TURN: Final = 200
"""Connections whose time limits are checked in one pass of the loop."""
_PATIENCE_S: Final = 5.0
"""Time that a request may take to arrive while unfinished requests exceed their budget."""

Handler = Callable[["Peer", Request], None]
"""Runs a request and answers it, now or later; may raise the error that refuses it."""


class _Late(NamedTuple):
    """A request that runs last in a turn."""

    request: Request
    go_on: Callable[[], None] | None


class Commands(Protocol):
    """What a connection needs of the dispatcher."""

    def greet(self, peer: Peer, hello: Hello) -> Place:
        """Authenticate a connection and return its session's place.

        Raises:
            TernMQError: The connection is refused.
        """
        ...

    def welcome(self, place: Place) -> Welcome:
        """Return the answer to HELLO."""
        ...

    def run(self, peer: Peer, request: Request) -> None:
        """Run a request; it is answered through the peer, now or later."""
        ...

    def read(self, peer: Peer, request: Request) -> None:
        """Run a request that ``Hub.read_late`` has queued."""
        ...

    def gone(self, peer: Peer) -> None:
        """Clean up after a lost connection."""
        ...

    def withdraw(self, peer: Peer) -> list[Request]:
        """Take the peer's parked requests back; they run again when the peer reads."""
        ...


class Hub:
    """State shared by all connections. Not thread-safe: call it from the broker's loop.

    Args:
        core: The broker.
        settings: Limits.
        counters: Counters for the metrics.
    """

    def __init__(self, core: Core, settings: Settings, counters: Counters) -> None:
        self.core = core
        self.settings = settings
        self.counters = counters
        self.commands: Commands
        self.peers: set[Peer] = set()
        self.admission = Admission(settings)
        self.ledgers = Ledgers(settings.memory_bytes, settings.stall_timeout_us / 1e6)
        self.waiting = Places(settings.limits.waiters)
        """Pulls and reads that wait for messages."""
        self.audit = Audit(counters, core.loop.time)
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Buffer of all connections' reads; its content is copied out at once."""
        self.small_buffer = self.buffer[:FEW_BYTES]
        """Beginning of ``buffer``, for peers that send small requests."""
        self.http_address = ""
        """Address of the HTTP port, for HTTP requests that arrive here; empty: there is none."""
        self.draining = False
        self.stopped = False
        """The broker runs its last turns: no request is run any more."""
        self._dirty: list[Peer] = []
        self.round = 0
        """Number of the turn; ``Ledger.units`` holds for one turn."""
        self._runnable: OrderedDict[Ledger, None] = OrderedDict()
        """Apps with requests that wait for the next turn, or for memory."""
        self._held_back: dict[Ledger, None] = {}
        """Apps with requests that wait until their peers have taken answers."""
        self._late: FairQueue[Ledger, Peer, int, _Late] = FairQueue()
        self._reading_late = False
        self._twice = 0
        """Number of late requests whose id was in use."""
        core.on_turn = self.flush

    # -- coming and going -------------------------------------------------------------------------

    def enter(self, peer: Peer, app: str) -> None:
        """Give a connection the ledger of its app.

        Raises:
            Busy: The app has as many connections as it may.
        """
        if not self.admission.introduced(peer, app):
            raise Busy(f"app {app!r} has as many connections as it may have")
        peer.ledger = self.ledgers.enter(app)

    def forget(self, peer: Peer) -> None:
        """Remove a lost connection from everything that waits."""
        ledger = peer.ledger
        ledger.runnable.pop(peer, None)
        ledger.held_back.pop(peer, None)
        if not ledger.runnable:
            self._runnable.pop(ledger, None)
        if not ledger.held_back:
            self._held_back.pop(ledger, None)
        self._late.drop(ledger, peer)
        self.core.forget(peer)

    # -- the end of a turn ------------------------------------------------------------------------

    def dirty(self, peer: Peer) -> None:
        """Note that a connection has something to write when the turn ends."""
        self._dirty.append(peer)
        if not self.core.in_turn and not self._reading_late:  # its flush is still to come
            self.core.touch()

    def flush(self) -> None:
        """Write the turn's answers; run late reads, and requests that had to wait."""
        self.round += 1
        until = time.perf_counter() + RUN_S if self._runnable else 0.0
        self._write_out()
        if self._late:
            self._read_some()
        if self._runnable:
            self._run_some(until)
        self.core.pressed = bool(self._late or self._runnable) and self.ledgers.mixed
        if self._held_back:
            for ledger in list(self._held_back):
                if not ledger.unwritten.over:
                    del self._held_back[ledger]
                    some, ledger.held_back = list(ledger.held_back), {}
                    for peer in some:
                        peer.take_up()

    def _write_out(self) -> None:
        while self._dirty:
            some, self._dirty = self._dirty, []
            for peer in some:
                peer.write_out()

    # -- reads come last --------------------------------------------------------------------------

    def read_late(
        self, peer: Peer, request: Request, go_on: Callable[[], None] | None = None
    ) -> None:
        """Queue a read behind the turn's sync and answers; a few run in each turn.

        So a send waits for one read at most, and a read for one read of each app, however many
        clients read at full speed.

        Args:
            peer: The connection that requests it.
            request: The request.
            go_on: Continues a request that is answered in pieces; None: the request is run.
        """
        key = request.id
        if self._late.get(peer.ledger, peer, key) is not None:
            # The client uses one id twice, which is its mistake: this one waits too, and cannot be
            # cancelled.
            self._twice += 1
            key = -self._twice
        self._late.put(peer.ledger, peer, key, _Late(request, go_on))
        if not self.core.in_turn and not self._reading_late:  # its flush is still to come
            self.core.touch()

    def hurry(self, peer: Peer, id_: int | None = None) -> None:
        """End the waiting time of a connection's queued read (None: of all its reads)."""
        late, ledger = self._late, peer.ledger
        for key in late.keys_of(ledger, peer) if id_ is None else [id_]:
            one = late.get(ledger, peer, key)
            if one is not None:
                late.put(ledger, peer, key, one._replace(request=one.request.until(1)))

    def _read_some(self) -> None:
        late, until = self._late, time.perf_counter() + READS_S
        self._reading_late = True
        try:
            while late:
                peer, (request, go_on) = late.pop()
                if peer.closed:
                    continue
                if not (peer.writable and peer.roomy):
                    peer.put_back(request)
                    continue
                try:
                    if go_on is None:
                        self.commands.read(peer, request)
                    else:
                        go_on()
                except Exception:  # must not stop the turn or the reads of others
                    log.exception("%s: a read failed", peer.address)
                    peer.abandon("a read failed")
                if time.perf_counter() > until:
                    break
            self.core.release()  # a refusal may depend on a record
        finally:
            self._reading_late = False
        self._write_out()
        if late:
            self.core.touch()

    # -- work that has to wait --------------------------------------------------------------------

    def run_later(self, peer: Peer) -> None:
        """Let a connection go on in the next turn, or once its app is within the budget again."""
        ledger = peer.ledger
        ledger.runnable[peer] = None
        self._runnable[ledger] = None
        if not ledger.pending.over:
            self.core.touch()

    def _run_some(self, until: float) -> None:
        """Run requests that had to wait: apps take turns, a portion of units each.

        An app's first portion in a turn is that of ``Ledger.begin``; it may be used up already.
        While ``Ledgers.mixed``, apps get further portions until ``until``.
        """
        ledgers, runnable = self.ledgers, self._runnable
        mixed, units, each = ledgers.mixed, ROUND - PORTION, len(runnable)
        full: list[Ledger] = []
        while runnable and (mixed or each):
            each -= 1
            ledger, _ = runnable.popitem(last=False)
            account, waiting = ledger.pending, ledger.runnable
            if account.over:
                full.append(ledger)
                continue
            ledger.begin(self.round)
            over = units <= 0 or (mixed and time.perf_counter() > until)
            if ledger.units <= 0 and mixed and not over:
                ledger.units = PORTION
            before = ledger.units
            while waiting and ledger.units > 0 and not account.over:
                waiting.popitem(last=False)[0].go_on()  # may queue itself again, behind the others
            if waiting:
                runnable[ledger] = None
                ledger.left_over()
            if over:
                break
            units -= before - ledger.units
        if runnable:
            self.core.touch()
        runnable.update(dict.fromkeys(full))

    def hold_back(self, peer: Peer) -> None:
        """Let a connection run its set-aside requests once its app's answers have been taken."""
        peer.ledger.held_back[peer] = None
        self._held_back[peer.ledger] = None

    def relieve(self, ledger: Ledger, now: float) -> None:
        """Cut off the app's connections with the oldest unfinished requests.

        Only while the unfinished requests exceed their budget, and the app its fair share. The
        app's last such connection stays if no other app has one: its frame is within the limits.
        """
        account = ledger.unfinished
        budget = account.budget
        while account.over and (len(ledger.writing) > 1 or budget.holders > 1):
            peer, began = next(iter(ledger.writing.items()))
            slow = now - began >= _PATIENCE_S
            if not slow and budget.held <= 2 * budget.limit:
                return
            budget.held_back += 1
            peer.cut("slow" if slow else "memory")

    def sweep(self, now: float) -> None:
        """Cut off peers that are late with HELLO, reading or heartbeats. Called once a second.

        Checks ``SWEPT_A_TURN`` connections in each pass of the loop: thousands at once would take
        some milliseconds.
        """
        self.ledgers.cool_down(now)
        self._sweep_some(now, iter(list(self.peers)))

    def _sweep_some(self, now: float, peers: Iterator[Peer]) -> None:
        some = list(islice(peers, SWEPT_A_TURN))
        for peer in some:
            peer.look(now)
        self.make_room(now)
        if self._held_back:
            self.core.touch()
        if len(some) == SWEPT_A_TURN:
            self.core.loop.call_soon(self._sweep_some, now, peers)

    def make_room(self, now: float) -> None:
        """Call ``relieve`` for all apps if unfinished requests exceed their budget."""
        if self.ledgers.unfinished.held > self.ledgers.unfinished.limit:
            for ledger in [*self.ledgers.by_app.values(), self.ledgers.strangers]:
                self.relieve(ledger, now)

    def stop(self) -> None:
        """Run no more requests: clients send unanswered ones again to the next broker."""
        self.stopped = True
        for peer in self.peers:
            peer.regulate()
