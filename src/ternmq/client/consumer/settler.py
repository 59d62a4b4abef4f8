"""Reports the outcome of deliveries to the broker.

Rows settled in one turn of the loop under one lease leave as one SETTLE for each outcome, with the
rows as spans: at once if a caller waits for it, else with the next pull, or after a moment. A
settle that a lost connection left unanswered is sent again while the session lasts. A refusal is
raised in the callers that wait, and logged if there are none. ``SettleCore`` decides all that; the
settler has the loop, the connection and the futures.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.raising import own
from ternmq.client.connection.session import Member, Session
from ternmq.client.consumer.awake import Awake
from ternmq.client.consumer.core import UNKNOWN, Ended, SettleCore
from ternmq.client.consumer.learning import Policies
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.settles import Ask, Kept, extended, extension
from ternmq.model.errors import ConnectionLost, LeaseExpired, TernMQError
from ternmq.model.words import counted, verb
from ternmq.record.fact.facts import Outcome
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

# A member of the enum under a module name: looking it up in its class takes 0.1 us (Python 3.11).
_SETTLE: Final = Command.SETTLE
_MOST_KEPT: Final = 10_000
_SHORTEST: Final = 0.001
"""Shortest time until what was refused for now is looked at again, in seconds."""
_LINGER: Final = 0.001
"""Seconds that a settle without a waiting caller is kept for the next pull to carry: a write costs
more than processing ten messages."""


class Settler(Member):
    """Sends the settles of a client. Not thread-safe: call it from the client's loop.

    Attributes:
        core: Decides what is held, sent, sent again and given up.
        here: ``Session.here``.
        awake: Notes freezes, from the first join on.
        on_lease: Called with every lease that arrives.
        policies: The retry policies of the joined groups.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.here = session.here
        self.on_lease: Callable[[Lease], None] | None = None
        self.policies = Policies(session)
        self.core = SettleCore(self)
        self.awake: Awake | None = None
        self._soon = False
        self._later: asyncio.TimerHandle | None = None
        self._rests: asyncio.TimerHandle | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The client's loop."""
        return self._session.loop

    # -- leases

    def began(self, lease: Lease) -> None:
        """Register a lease that arrived; it is known while referenced and with unsettled rows."""
        self.core.began(lease)
        if self.on_lease is not None:
            self.on_lease(lease)

    def held(self) -> list[Lease]:
        """Return the leases with unsettled rows. Callable from any thread."""
        return self.core.held()

    # -- settling

    def dirty(self, lease: Lease) -> None:
        """Schedule the settles of a lease."""
        lease.dirty = True
        self.core.recorded.append(lease)
        if self._later is None:
            self._later = self._session.loop.call_later(_LINGER, self._flush)

    def hurry(self) -> None:
        """Send the settles of this turn at its end: a caller waits for them."""
        if not self._soon:
            self._soon = True
            self._session.loop.call_soon(self._flush)

    def flush(self) -> None:
        """Send the recorded settles; they leave with the other frames of this turn."""
        core, session = self.core, self._session
        link = session.link
        asks = core.to_send(connected=link is not None, closed=session.closed)
        if link is None or core.outcomes:
            self._send(asks, link)
            return
        for ask in asks:
            link.ask(_SETTLE, ask.body, ask)

    def _send(self, asks: Iterable[Ask], link: Link | None) -> None:
        if link is None:
            if self.core.unfinished:
                self._session.wake()
        else:
            for ask in asks:
                link.ask(_SETTLE, ask.body, ask)
        if self.core.outcomes:
            self._react()

    def tell(self) -> None:
        """Send the recorded settles, if any, before this turn continues."""
        if self.core.recorded:
            self._flush()

    def _flush(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._soon = False
        link = self._session.link
        if link is None:
            self.flush()
            return
        link.gather()
        try:
            self.flush()
        finally:
            link.flush()

    # -- outcomes

    def answered(self, ask: Ask, body: bytes) -> None:
        """Handle the answer to a settle."""
        core = self.core
        core.answered(ask, body)
        if core.outcomes or self._idle:
            self._react()

    def wants_again(self, ask: Ask, error: TernMQError) -> None:
        """Handle the refusal of a settle: it is sent again later, or given up."""
        self.core.refused(ask, error, time.monotonic(), closed=self._session.closed)
        self._rest()
        self._react()

    def _react(self) -> None:
        """Report the outcomes."""
        core = self.core
        outcomes, core.outcomes = core.outcomes, []
        for ended in outcomes:
            _report(ended)
        if self._idle and not core.unfinished:
            for idle in self._idle:
                if not idle.done():
                    idle.set_result(None)
            self._idle.clear()

    def _rest(self) -> None:
        """Set the timer for the settles that were refused for now."""
        due = self.core.next_due()
        if self._rests is None and due < math.inf:
            pause = max(_SHORTEST, due - time.monotonic())
            self._rests = self._session.loop.call_later(pause, self._rested)

    def _rested(self) -> None:
        """Send the settles again that were refused for now."""
        self._rests = None
        self.core.rested(time.monotonic())
        self._send_again()
        self._rest()

    def _send_again(self) -> None:
        core, session = self.core, self._session
        link, closed = session.link, session.closed
        self._send(core.again(connected=link is not None, closed=closed), link)

    async def heard(self, told: asyncio.Future[None]) -> None:
        """Wait for the broker's answer to a settle, at most the client's ``timeout``.

        The settle is sent also after that, while the session lasts.

        Raises:
            ConnectionLost: There was no answer in time, or whether it counted is not known.
            TernMQError: The broker refused it.
        """
        timeout = self._session.options.timeout
        try:
            async with asyncio.timeout(timeout):
                return await told
        except TimeoutError:
            pass  # an error raised here would refer to this one: see ``raising``
        finally:
            del told
        raise ConnectionLost(
            f"no answer to SETTLE within {timeout:g} s: whether it was carried out is not known"
        )

    async def extend(self, lease: Lease, seconds: float | timedelta) -> None:
        """Make a lease last this long from now on.

        Raises:
            LeaseExpired: It has ended.
        """
        asked = time.monotonic()
        body = await self._session.ask(Command.EXTEND, extension(lease, seconds))
        extended(lease, body, asked)

    # -- connections

    def lost(self) -> None:
        """Note that unanswered settles may have counted."""
        self.core.lost()

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Keep the known leases over the new connection, or lose them; send settles again."""
        if resumed:
            keys = self.core.kept()
            kept = [control.KeptLease(epoch=epoch, lease=number) for epoch, number in keys]
            # The broker gives back leases that KEEP does not list: their answer was lost with the
            # connection, so no consumer would ever settle them. KEEP is sent before the next pull.
            if len(kept) <= _MOST_KEPT:
                keep = control.encode(control.Keep(leases=kept))
                link.ask(Command.KEEP, keep, Kept())
        lost = [] if resumed else self.held()
        # Before the leases: an owner that loses one may pull, and so send what is recorded. Those
        # settles go over the new connection, and are not among those whose answers were lost.
        self.core.opened(resumed=resumed)
        for lease in lost:
            self.lose(lease)
        self._send_again()

    def lose(self, lease: Lease) -> None:
        """Mark a lease that ended without a settle. Call it from the client's loop."""
        if lease.lost:
            return
        lease.end()
        lease.lost = True
        self.core.over(lease)
        if lease.left:
            log.warning("a lease of %s of %s for group %s ended; %s delivered again, unless that "
                        "was the last attempt", counted(lease.left, "message"), lease.topic,
                        lease.group, verb(lease.left, "it is", "they are"))  # fmt: skip
        if lease.owner is not None:
            lease.owner.settled(lease, 0, 0, Outcome.RELEASED)

    def doubts(self, lease: Lease) -> bool:
        """Return whether a lease may have ended in a freeze. Callable from any thread."""
        return self.awake is not None and self.awake.doubts(lease)

    def overdue(self, lease: Lease) -> None:
        """Notify the owner of a lease that lasts longer than ``max_processing_time``."""
        if lease.owner is not None and not lease.lost:
            lease.owner.overdue(lease)

    def lose_soon(self, lease: Lease) -> None:
        """Lose a lease, unless its own settles ended it. Callable from any thread."""

        def lose() -> None:
            if lease.left:
                self.lose(lease)

        with suppress(RuntimeError):  # the loop is closed: the lease has no holder
            self._session.loop.call_soon_threadsafe(lose)

    def asking(self) -> None:
        """Send recorded settles before another request."""
        if self.core.recorded:
            self.flush()

    def refused(self, error: TernMQError) -> None:
        """Give up all settles: no connection will come."""
        self.core.give_up_all(error)
        self._react()

    def give_up(self) -> None:
        """Give up all settles: the client is closed."""
        self._flush()
        if self._rests is not None:
            self._rests.cancel()
            self._rests = None
        self.core.end()
        self._react()

    async def drained(self, timeout: float) -> bool:
        """Wait until the broker answered every settle; return False if that takes too long."""
        self._flush()
        if not self.core.unfinished:
            return True
        idle = self._session.loop.create_future()
        self._idle.append(idle)
        try:
            async with asyncio.timeout(timeout):
                await idle
        except TimeoutError:
            return False
        return True


def _report(ended: Ended) -> None:
    """Give the outcome of a settle to the waiting callers; log a failure that none gets."""
    ask, refused, error = ended
    if error is not None:
        for _, _, waiter in ask.waiters:
            if not waiter.done():
                waiter.set_exception(own(error))
        if not ask.waiters:
            _log(ask, error)
        return
    if not refused:
        for _, _, waiter in ask.waiters:
            if not waiter.done():
                waiter.set_result(None)
        return
    heard = 0
    for start, stop, waiter in ask.waiters:
        hit = any(start < high and low < stop for low, high in refused)
        heard += hit
        if waiter.done():
            continue
        if hit:
            waiter.set_exception(_expired(ask, start))
        else:
            waiter.set_result(None)
    count = sum([stop - start for start, stop in refused])
    if count > heard and not ask.uncertain and ask.verdict[0] != Outcome.RELEASED:
        gone = f"{counted(count, 'message')} {verb(count, 'was', 'were')} no longer held"
        _log(ask, LeaseExpired(gone))


def _expired(ask: Ask, offset: int) -> TernMQError:
    if ask.uncertain:  # the first request may have been carried out
        return ConnectionLost(UNKNOWN)
    return LeaseExpired(f"offset {offset} of {ask.lease.topic!r} was no longer held")


def _log(ask: Ask, error: TernMQError) -> None:
    lease, outcome = ask.lease, Outcome(ask.verdict[0])
    # Rows to release that are no longer held need nothing more.
    gone = outcome is Outcome.RELEASED and isinstance(error, LeaseExpired)
    log.log(
        logging.DEBUG if gone or ask.uncertain else logging.WARNING,
        "%s as %s: topic=%s group=%s queue=%d offsets=%s: %s",
        "perhaps settled" if ask.uncertain else "not settled", outcome.name.lower(),
        lease.topic, lease.group, lease.queue,
        ", ".join([f"{start}-{stop - 1}" for start, stop in ask.spans[:5]]), error,
    )  # fmt: skip
