"""State shared by all connections: the set of peers, the budgets of all apps, the end of a turn.

Three budgets limit the memory that clients can make the broker use. Each is ``memory_bytes``, and
each app has a fair share of it (``accounts``). While a budget is exceeded, apps above their share
are held back, and no others:

* Requests without an answer: nothing more is read from such an app.
* Answers that are made and not taken yet: the app's pulls, reads and look-ups wait, since their
  answers are large; its sends and settles go on.
* Requests that are not received whole yet: the app's connection with the oldest such request is cut
  off as ``slow`` if that request is older than ``_PATIENCE_S``; above twice the budget it is cut
  off whatever its age, as ``memory``. If it is the only connection of all with such a request, it
  is never cut off for the size of it.

Work is shared as well. In one turn an app has at most ``ROUND`` units done; the rest waits for the
next turns. While several apps are active and not all of them are busy (``accounts``), each app gets
a small portion, and further portions at the end of the turn for at most ``RUN_S``, so that a turn
stays short. Apps take turns, and so do the connections of an app. Reads of rows, look-ups and lists
run last in a turn, after its sync and its answers: a few at a time, apps taking turns again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

from ternmq.model.errors import Busy
from ternmq.server.desk.accounts import MANY, PORTION, ROUND, AppAccounts, Connected
from ternmq.server.desk.desk import ReadingDesk
from ternmq.server.native.admission import Admission, Stranger
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller, Commands
from ternmq.wire.session import ServerSession

log = logging.getLogger("ternmq.server")

READ_BYTES: Final = 256 * 1024
FEW_BYTES: Final = 16 * 1024
"""Bytes read at a time from a peer that sends small requests: 270 of the smallest take 0.5 ms to
parse."""
FEW_REQUESTS: Final = 16
"""A peer sends large requests if a read that filled its buffer brought at most this many."""

RUN_S: Final = 0.0003
"""Once the end of a turn has taken this long, no app has more than one portion of work done."""

SWEPT_A_TURN: Final = 200
"""Connections whose time limits are checked in one pass of the loop."""
_PATIENCE_S: Final = 5.0
"""Time that a request may take to arrive while unfinished requests exceed their budget."""


class Member(Caller, Connected, Stranger, Protocol):
    """A connection, as this module needs it.

    Attributes:
        app_accounts: What its app holds.
    """

    app_accounts: AppAccounts

    def write_out(self) -> None:
        """Write the queued frames to the transport."""
        ...

    def regulate(self) -> None:
        """Read on, or pause."""
        ...

    def look(self, now: float) -> None:
        """Cut the peer off if it exceeds a time limit."""
        ...

    def finish(self) -> None:
        """Write all pending answers, then close."""
        ...


class Hub:
    """What all native connections share. Not thread-safe: call it from the broker's loop.

    Args:
        desk: What they share with all other callers; its commands are open.
    """

    def __init__(self, desk: ReadingDesk) -> None:
        core = desk.core
        self.desk = desk
        self.core = core
        self.settings = desk.settings
        self.counters = desk.counters
        self.accounts = desk.accounts
        self.audit = desk.audit
        self.commands: Commands = desk.commands
        self.peers: set[Member] = set()
        self.admission = Admission(desk.settings)
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Buffer of all connections' reads; its content is copied out at once."""
        self.small_buffer = self.buffer[:FEW_BYTES]
        """Beginning of ``buffer``, for peers that send small requests."""
        self.http_address = ""
        """Address of the HTTP port, for HTTP requests that arrive here; empty: there is none."""
        self.take_follower: Callable[[asyncio.Transport, control.Follow, int, str], None] | None
        self.take_follower = None
        """Takes over a connection that began with FOLLOW: its transport, FOLLOW and its id, and the
        address of the other side. None: this broker is not the primary of a broker group."""
        self.take_segment_read: Callable[[asyncio.Transport, ServerSession, str], None] | None
        self.take_segment_read = None
        """Takes over a connection that began with SEGMENT_READ: its transport, its session, and the
        address of the other side. None: this broker belongs to no broker group."""
        self.stopped = False
        """The broker runs its last turns: no request is run any more."""
        self._dirty: list[Member] = []
        self.round = 0
        """Number of the turn; ``AppAccounts.units`` holds for one turn."""
        self._runnable: OrderedDict[AppAccounts, None] = OrderedDict()
        """Apps with requests that wait for the next turn, or for memory."""
        self._held_back: dict[AppAccounts, None] = {}
        """Apps with requests that wait until their peers have taken answers."""
        self._late = desk.late
        self._until = 0.0
        """When the end of this turn has taken ``RUN_S``."""
        desk.doors.append(self)

    # -- coming and going -------------------------------------------------------------------------

    def enter(self, peer: Member, app: str) -> None:
        """Give a connection the accounts of its app.

        Raises:
            Busy: The app has as many connections as it may.
        """
        if not self.admission.introduced(peer, app):
            raise Busy(
                f"app {app!r} may have no more connections now (settings connections_per_app, "
                "connections)"
            )
        peer.app_accounts = self.accounts.enter(app)
        if peer.app_accounts.entered > MANY:
            self.desk.press()

    def forget(self, peer: Member) -> None:
        """Remove a lost connection from everything that waits."""
        app_accounts = peer.app_accounts
        app_accounts.runnable.pop(peer, None)
        app_accounts.held_back.pop(peer, None)
        if not app_accounts.runnable:
            self._runnable.pop(app_accounts, None)
        if not app_accounts.held_back:
            self._held_back.pop(app_accounts, None)

    # -- the end of a turn ------------------------------------------------------------------------

    def dirty(self, peer: Member) -> None:
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
            for app_accounts in list(self._held_back):
                if not app_accounts.unwritten.over:
                    del self._held_back[app_accounts]
                    some, app_accounts.held_back = list(app_accounts.held_back), {}
                    for peer in some:
                        peer.take_up()
        return busy

    def write_out(self) -> None:
        """Write what connections have to write; see ``Door``."""
        if self.core.copies is not None:
            self._write_while_allowed()
            return
        while self._dirty:
            some, self._dirty = self._dirty, []
            for peer in some:
                peer.write_out()

    def _write_while_allowed(self) -> None:
        """Write what connections have to write, as long as it may leave.

        The lease is asked before each connection: the process may be stopped between two of them.
        What is left leaves in the turn after the lease was renewed.
        """
        dirty, may_answer = self._dirty, self.core.may_answer
        at = 0
        while at < len(dirty) and may_answer():
            dirty[at].write_out()  # may append to the list
            at += 1
        del dirty[:at]

    # -- what apps have to wait for ---------------------------------------------------------------

    def run_later(self, peer: Member) -> None:
        """Let a connection go on in the next turn, or once its app is within the budget again."""
        app_accounts = peer.app_accounts
        app_accounts.runnable[peer] = None
        self._runnable[app_accounts] = None
        if not app_accounts.pending.over:
            self.core.touch()

    def _run_some(self, until: float) -> None:
        """Run requests that had to wait: apps take turns, a portion of units each.

        An app's first portion in a turn is that of ``AppAccounts.begin``; it may be used up.
        While ``Accounts.mixed``, apps get further portions until ``until``.
        """
        accounts, runnable = self.accounts, self._runnable
        mixed, units, each = accounts.mixed, ROUND - PORTION, len(runnable)
        full: list[AppAccounts] = []
        while runnable and (mixed or each):
            each -= 1
            app_accounts, _ = runnable.popitem(last=False)
            account, waiting = app_accounts.pending, app_accounts.runnable
            if account.over:
                full.append(app_accounts)
                continue
            app_accounts.begin(self.round)
            over = units <= 0 or (mixed and time.perf_counter() > until)
            if app_accounts.units <= 0 and mixed and not over:
                app_accounts.units = PORTION
            before = app_accounts.units
            while waiting and app_accounts.units > 0 and not account.over:
                waiting.popitem(last=False)[0].go_on()  # if it has to wait again: behind the others
            if waiting:
                runnable[app_accounts] = None
                app_accounts.left_over()
            if over:
                break
            units -= before - app_accounts.units
        if runnable:
            self.core.touch()
        runnable.update(dict.fromkeys(full))

    def hold_back(self, peer: Member) -> None:
        """Let a connection run its set-aside requests once its app's answers have been taken."""
        peer.app_accounts.held_back[peer] = None
        self._held_back[peer.app_accounts] = None

    def relieve(self, app_accounts: AppAccounts, now: float) -> None:
        """Cut off the app's connections with the oldest unfinished requests.

        Only while the unfinished requests exceed their budget, and the app its fair share. The
        app's last such connection stays if no other app has one: its frame is within the limits.
        """
        account = app_accounts.unfinished
        budget = account.budget
        while account.over and (len(app_accounts.writing) > 1 or budget.holders > 1):
            peer, began = next(iter(app_accounts.writing.items()))
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
        self.accounts.cool_down(now)
        self._sweep_some(now, iter(list(self.peers)))

    def _sweep_some(self, now: float, peers: Iterator[Member]) -> None:
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
        if self.accounts.unfinished.held > self.accounts.unfinished.limit:
            for app_accounts in [*self.accounts.by_app.values(), self.accounts.strangers]:
                self.relieve(app_accounts, now)

    # -- the end of the broker, see ``Door`` -------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether all connections are closed."""
        return not self.peers

    def drain(self) -> None:
        """Notify the clients that the broker stops; close the connections without a HELLO."""
        push = control.encode(control.Drain())
        for peer in list(self.peers):
            if peer.session:
                peer.push(Command.DRAIN, push)
            else:
                peer.finish()

    def stop(self) -> None:
        """Run no more requests: clients send unanswered ones again to the next broker."""
        self.stopped = True
        for peer in self.peers:
            peer.regulate()

    def finish(self) -> None:
        """Write all pending answers, then close all connections."""
        for peer in list(self.peers):
            peer.finish()

    def abandon(self, why: str) -> None:
        """Close all connections without a last frame."""
        for peer in list(self.peers):
            peer.abandon(why)
