"""What all connections share: who there is, the budgets of all apps, the end of a turn.

Three budgets bound what clients can make the broker hold; each is ``memory_bytes``, and each app
has its fair share of it (``ledgers``). When the whole is above a budget, apps above their share are
held back, and no others. Requests without an answer: nothing more is read from such an app. Answers
that are made and not taken yet: what makes large answers (pulls, reads, look-ups) waits, sends and
settles go on. Requests that are not whole yet: the connection that has been at one for longest is
cut off as ``slow``, if that is seconds; when the whole is above twice the budget, in any case, as
``memory``. One that is alone with its request, of all connections, is never cut off for its size.

Work is shared out as well. In one turn an app has so many units done (``ROUND``), the rest in the
next ones. While some ask for much and others for little, it is a small portion each, and at the
turn's end portions for a time, so that a turn stays short. Apps take turns, and the connections of
an app. Reads of rows, look-ups and lists come last in a turn: behind its sync and its answers, a
few at a time, in turns as well.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from ternmq.model.errors import Busy
from ternmq.server.admission import Admission
from ternmq.server.desk import Desk
from ternmq.server.ledgers import PORTION, ROUND, Ledger
from ternmq.wire.port import Commands

if TYPE_CHECKING:
    from ternmq.server.peer import Peer

log = logging.getLogger("ternmq.server")

READ_BYTES: Final = 256 * 1024
FEW_BYTES: Final = 16 * 1024
"""What is read at a time of who sends small requests: 270 of the smallest take 0.5 ms to parse."""
FEW_REQUESTS: Final = 16
"""Who sent no more in as many bytes as were read at a time sends large ones."""

RUN_S: Final = 0.0003
"""Once the end of a turn took so long, no app has more than one portion of work done in it."""

SWEPT_A_TURN: Final = 200
"""Connections that are looked at in one pass of the loop, whether they are late."""
_PATIENCE_S: Final = 5.0
"""How long a request may take to come when too many are on their way."""


class Hub:
    """What all native connections share. Not thread-safe: call it from the broker's loop.

    Args:
        desk: What they share with all other callers.
    """

    def __init__(self, desk: Desk) -> None:
        core = desk.core
        self.desk = desk
        self.core = core
        self.settings = desk.settings
        self.counters = desk.counters
        self.ledgers = desk.ledgers
        self.audit = desk.audit
        self.peers: set[Peer] = set()
        self.admission = Admission(desk.settings)
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Where bytes are read into; copied out before the loop does anything else."""
        self.small_buffer = self.buffer[:FEW_BYTES]
        """Its beginning."""
        self.http_address = ""
        """Where HTTP is spoken, for those who ask here; empty: nowhere."""
        self.draining = False
        self.stopped = False
        """The last turns are made: no request is carried out any more."""
        self._dirty: list[Peer] = []
        self.round = 0
        """Counts turns: ``Ledger.units`` are for one of them."""
        self._runnable: OrderedDict[Ledger, None] = OrderedDict()
        """Apps with requests that wait for the next turn, or for memory."""
        self._held_back: dict[Ledger, None] = {}
        """Apps with requests that wait until answers were taken."""
        self._late = desk.late
        self._until = 0.0
        """When the end of this turn has taken ``RUN_S``."""
        desk.doors.append(self)

    @property
    def commands(self) -> Commands:
        """What carries requests out."""
        return self.desk.commands

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
        """A connection is gone: nothing of it waits any more."""
        ledger = peer.ledger
        ledger.runnable.pop(peer, None)
        ledger.held_back.pop(peer, None)
        if not ledger.runnable:
            self._runnable.pop(ledger, None)
        if not ledger.held_back:
            self._held_back.pop(ledger, None)
        self._late.drop(peer)
        self.core.forget(peer)

    # -- the end of a turn ------------------------------------------------------------------------

    def dirty(self, peer: Peer) -> None:
        """Note that a connection has something to write when the turn ends."""
        self._dirty.append(peer)
        if not self.core.in_turn and not self._late.running:  # its flush is still to come
            self.core.touch()

    def flush(self) -> None:
        """Write the answers of a turn; see ``Door``."""
        self.round += 1
        self._until = time.perf_counter() + RUN_S if self._runnable else 0.0
        self.write_out()

    def go_on(self) -> bool:
        """Run what had to wait, read on where there is room again; see ``Door``."""
        if self._runnable:
            self._run_some(self._until)
        busy = bool(self._runnable)
        if self._held_back:
            for ledger in list(self._held_back):
                if not ledger.unwritten.over:
                    del self._held_back[ledger]
                    some, ledger.held_back = list(ledger.held_back), {}
                    for peer in some:
                        peer.take_up()
        return busy

    def write_out(self) -> None:
        """Write what connections have to write; see ``Door``."""
        while self._dirty:
            some, self._dirty = self._dirty, []
            for peer in some:
                peer.write_out()

    # -- what apps have to wait for ---------------------------------------------------------------

    def run_later(self, peer: Peer) -> None:
        """Have a connection go on in the next turn, or when there is memory again."""
        ledger = peer.ledger
        ledger.runnable[peer] = None
        self._runnable[ledger] = None
        if not ledger.pending.over:
            self.core.touch()

    def _run_some(self, until: float) -> None:
        """Run requests that had to wait: apps take turns, a portion of units each.

        Each app's first portion in a turn is that of ``Ledger.begin``, which may be used up. While
        there are apps that ask for little the others have more of them, until the time is over.
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
                waiting.popitem(last=False)[0].go_on()  # if it has to wait again: behind the others
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
        """Have a connection take up what it set aside when its app's answers have been taken."""
        peer.ledger.held_back[peer] = None
        self._held_back[peer.ledger] = None

    def relieve(self, ledger: Ledger, now: float) -> None:
        """Cut an app's connections off that have been at a request for longest.

        Only while there is too much that is not whole, and more of the app than its fair share. The
        last connection stays if no other app holds anything: a frame is as large as it may be.
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
        """Cut off who is late: with HELLO, with reading, with any sign of life. Once a second.

        Some in each pass of the loop: to look at thousands takes some milliseconds.
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
        """Cut off what is not whole for too long, and too much, of apps above their share."""
        if self.ledgers.unfinished.held > self.ledgers.unfinished.limit:
            for ledger in [*self.ledgers.by_app.values(), self.ledgers.strangers]:
                self.relieve(ledger, now)

    def stop(self) -> None:
        """Carry out nothing more: what is not answered is asked again of the next broker."""
        self.stopped = True
        for peer in self.peers:
            peer.regulate()
