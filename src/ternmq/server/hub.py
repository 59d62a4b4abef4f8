"""What all connections share: who there is, the budgets of all together, the end of a turn.

Three budgets bound what clients can make the broker hold; each is ``memory_bytes``. Requests
without an answer: beyond, nothing more is read from anybody. Answers that are made and not taken
yet: beyond, whatever makes large answers (pulls, reads, look-ups) waits, sends and settles go on.
Requests that are not whole yet: beyond, whoever has been at one for longest is cut off, if that is
seconds; beyond twice as much, in any case.

Reads of rows come last in a turn: behind its sync and its answers, a few at a time.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from ternmq.server.admission import Admission
from ternmq.server.audit import Audit
from ternmq.server.core import Core
from ternmq.server.counters import Counters
from ternmq.server.sessions import Place
from ternmq.settings import Settings
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.session import Request

if TYPE_CHECKING:
    from ternmq.server.peer import Peer

log = logging.getLogger("ternmq.server")

READ_BYTES: Final = 256 * 1024

READS_S: Final = 0.0002
"""Once reads took so much of a turn, no more are begun in it: who came meanwhile is first."""

_PATIENCE_S: Final = 5.0
"""How long a request may take to come when too many are on their way."""

Handler = Callable[["Peer", Request], None]
"""Carries a request out and answers it, now or later; may raise what refuses it."""


class Commands(Protocol):
    """What a connection asks to carry out requests."""

    def greet(self, peer: Peer, hello: Hello) -> Place:
        """Say who it is; raises a TernMQError that refuses it."""
        ...

    def welcome(self, place: Place) -> Welcome:
        """Return the answer to HELLO."""
        ...

    def run(self, peer: Peer, request: Request) -> None:
        """Carry a request out; it is answered through the peer, now or later."""
        ...

    def read(self, peer: Peer, request: Request) -> None:
        """Carry a request out that had been handed to ``Hub.read_late``."""
        ...

    def gone(self, peer: Peer) -> None:
        """Its connection is lost."""
        ...

    def withdraw(self, peer: Peer) -> list[Request]:
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
        self.peers: set[Peer] = set()
        self.admission = Admission(settings)
        self.audit = Audit(counters, core.loop.time)
        self.buffer = bytearray(READ_BYTES)
        """Where bytes are read into; copied out before the loop does anything else."""
        self.draining = False
        self.stopped = False
        """The last turns are made: no request is carried out any more."""
        self._dirty: list[Peer] = []
        self._stalled: dict[Peer, None] = {}
        self._held_back: dict[Peer, None] = {}
        self._late: OrderedDict[tuple[Peer, int], Request] = OrderedDict()
        """By connection and request id, oldest first."""
        self._reading_late = False
        core.on_turn = self.flush

    def dirty(self, peer: Peer) -> None:
        """Note that a connection has something to write when the turn ends."""
        self._dirty.append(peer)
        if not self.core.in_turn and not self._reading_late:  # its flush is still to come
            self.core.touch()

    def flush(self) -> None:
        """Write what the turn's answers are; read on where there is room again."""
        self._write_out()
        if self._late:
            self._read_some()
        if self._stalled and not self.overloaded:
            some_stalled, self._stalled = list(self._stalled), {}
            for peer in some_stalled:
                peer.go_on()
        if self._held_back and not self.crowded:
            some_held, self._held_back = list(self._held_back), {}
            for peer in some_held:
                peer.take_up()

    def _write_out(self) -> None:
        while self._dirty:
            some, self._dirty = self._dirty, []
            for peer in some:
                peer.write_out()

    # -- reads come last --------------------------------------------------------------------------

    def read_late(self, peer: Peer, request: Request) -> None:
        """Have a read made behind the turn's sync and answers, a few in each turn.

        However many read at full speed: who sends waits for one read, not for all of them.
        """
        key = peer, request.id
        if key in self._late:  # an id twice at a time: its client's mistake, and no news
            self.commands.read(peer, request)
            return
        self._late[key] = request
        self.core.touch()

    def hurry(self, peer: Peer, id_: int | None = None) -> None:
        """Have a read of a connection (None: all) wait for nothing when its turn comes."""
        late = self._late
        keys = [key for key in late if key[0] is peer] if id_ is None else [(peer, id_)]
        for key in keys:
            if key in late:
                late[key] = late[key]._replace(until_us=1)

    def _read_some(self) -> None:
        late, until = self._late, time.perf_counter() + READS_S
        self._reading_late = True
        try:
            while late:
                (peer, _), request = late.popitem(last=False)
                if peer.closed:
                    continue
                if not (peer.writable and peer.roomy):
                    peer.put_back(request)
                    continue
                try:
                    self.commands.read(peer, request)
                except Exception:  # of no concern to the turn, and to others who read
                    log.exception("%s: a read failed", peer.address)
                    peer.abandon("a read failed")
                if time.perf_counter() > until:
                    break
            self.core.release()  # a refusal may rest on something
        finally:
            self._reading_late = False
        self._write_out()
        if late:
            self.core.touch()

    @property
    def overloaded(self) -> bool:
        """Whether requests without an answer fill the broker's memory for them."""
        return self.counters.pending_bytes > self.settings.memory_bytes

    @property
    def crowded(self) -> bool:
        """Whether answers that nobody has taken yet fill the broker's memory for them."""
        return self.counters.unwritten_bytes > self.settings.memory_bytes

    def stall(self, peer: Peer) -> None:
        """Have a connection go on when there is memory again."""
        self._stalled[peer] = None

    def hold_back(self, peer: Peer) -> None:
        """Have a connection take up what it set aside when peers have taken their answers."""
        self._held_back[peer] = None

    def relieve(self, now: float) -> None:
        """Cut off who has been at a request for longest: there are too many that are not whole."""
        counters, memory = self.counters, self.settings.memory_bytes
        began = [(peer.unfinished_since, peer) for peer in self.peers]
        slow = sorted([(at, n) for n, (at, _) in enumerate(began) if at is not None])
        for at, n in slow:
            over = counters.unfinished_bytes - memory
            if over <= 0 or (now - at < _PATIENCE_S and over <= memory):
                return
            began[n][1].cut("slow")

    def sweep(self, now: float) -> None:
        """Cut off who is late: with HELLO, with reading, with any sign of life. Once a second."""
        for peer in list(self.peers):
            peer.look(now)
        if self._held_back:
            self.core.touch()

    def stop(self) -> None:
        """Carry out nothing more: what is not answered is asked again of the next broker."""
        self.stopped = True
        for peer in self.peers:
            peer.regulate()
