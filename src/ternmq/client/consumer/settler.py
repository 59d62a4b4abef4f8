"""Reports the outcome of deliveries to the broker.

Rows settled in one turn of the loop under one lease leave as one SETTLE for each outcome, with the
rows as spans: at once if a caller waits for it, else with the next pull, or after a moment. A
settle that a lost connection left unanswered is sent again while the session lasts. A refusal is
raised in the callers that wait, and logged if there are none.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Member, Session
from ternmq.client.consumer.learning import Policies
from ternmq.client.consumer.lease import Lease, RowSettle, Span
from ternmq.client.consumer.settles import Ask, Kept, extended, extension
from ternmq.model.errors import (
    ClientClosed,
    ConnectionLost,
    InvalidRequest,
    LeaseExpired,
    TernMQError,
)
from ternmq.model.words import counted, verb
from ternmq.record.fact.facts import Outcome
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

_DONE: Final[RowSettle] = (int(Outcome.DONE), None, "")
_COME_AGAIN: Final = (Outcome.RETRY, Outcome.RELEASED)
_MOST_KEPT: Final = 10_000
_MOST_SPANS: Final = 4096
_PAUSE: Final = 0.2
_LINGER: Final = 0.001
"""Seconds that a settle without a waiting caller is kept for the next pull to carry: a write costs
more than processing ten messages."""


class Settler(Member):
    """Sends the settles of a client. Not thread-safe: call it from the client's loop.

    Attributes:
        here: ``Session.here``.
        on_lease: Called with every lease that arrives.
        policies: The retry policies of the joined groups.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.here = session.here
        self.on_lease: Callable[[Lease], None] | None = None
        self.policies = Policies(session)
        self._dirty: list[Lease] = []
        self._soon = False
        self._later: asyncio.TimerHandle | None = None
        self._asks: dict[Ask, None] = {}
        self._idle: list[asyncio.Future[None]] = []
        self._leases: dict[tuple[int, int], weakref.ref[Lease]] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The client's loop."""
        return self._session.loop

    # -- leases

    def began(self, lease: Lease) -> None:
        """Register a lease that arrived; it is known while referenced and with unsettled rows."""
        key = (lease.epoch, lease.number)
        self._leases[key] = weakref.ref(lease, lambda _: self._leases.pop(key, None))
        if self.on_lease is not None:
            self.on_lease(lease)

    def over(self, lease: Lease) -> None:
        """Forget a lease without unsettled rows."""
        self._leases.pop((lease.epoch, lease.number), None)

    def held(self) -> list[Lease]:
        """Return the leases with unsettled rows. Callable from any thread."""
        return [lease for ref in list(self._leases.values()) if (lease := ref()) is not None]

    # -- settling

    def dirty(self, lease: Lease) -> None:
        """Schedule the settles of a lease."""
        lease.dirty = True
        self._dirty.append(lease)
        if self._later is None:
            self._later = self._session.loop.call_later(_LINGER, self._flush)

    def hurry(self) -> None:
        """Send the settles of this turn at its end: a caller waits for them."""
        if not self._soon:
            self._soon = True
            self._session.loop.call_soon(self._flush)

    def flush(self) -> None:
        """Send the recorded settles; they leave with the other frames of this turn."""
        dirty, self._dirty = self._dirty, []
        for lease in dirty:
            lease.dirty = False
            self._tell(lease)

    def tell(self) -> None:
        """Send the recorded settles, if any, before this turn continues."""
        if self._dirty:
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

    def _tell(self, lease: Lease) -> None:
        acked = lease.acked
        verdicts = lease.verdicts
        whole = not verdicts and len(acked) == lease.rows
        if acked:
            lease.acked = []
            verdicts.setdefault(_DONE, []).extend(_spans(acked))
        elif len(verdicts) == 1 and not lease.left:
            (spans,) = verdicts.values()
            whole = sum([stop - start for start, stop in spans]) == lease.rows
        lease.verdicts = {}
        waiters, lease.waiters = lease.waiters, []
        if not lease.left:
            self.over(lease)
        for verdict, spans in _in_order(verdicts):
            for at in range(0, len(spans), _MOST_SPANS):
                some = spans if len(spans) <= _MOST_SPANS else spans[at : at + _MOST_SPANS]
                ask = Ask(self, lease, verdict, some, whole=whole)
                if waiters:
                    ask.waiters = [
                        one for one in waiters
                        if any(start <= one[0] < stop for start, stop in some)
                    ]  # fmt: skip
                self._asks[ask] = None
                self._ask(ask)

    def _ask(self, ask: Ask) -> None:
        session = self._session
        if session.closed:
            ask.fail(ClientClosed("the client was closed before this was settled"))
            return
        link = session.link
        if link is None:
            session.wake()
            return
        try:
            body = ask.body()
        except InvalidRequest as error:
            ask.fail(error)
            return
        ask.asked = True
        link.ask(Command.SETTLE, body, ask)

    def told(self, ask: Ask) -> None:
        """Remove a settle that is finished."""
        self._asks.pop(ask, None)
        if not self._asks:
            for idle in self._idle:
                if not idle.done():
                    idle.set_result(None)
            self._idle.clear()

    def again(self, ask: Ask) -> None:
        """Repeat a settle that was refused for now, or fail it if its lease has ended."""
        if time.monotonic() > ask.lease.until or self._session.closed:
            ask.fail(LeaseExpired("the lease ended before the broker accepted the settle"))
        else:
            self._session.loop.call_later(_PAUSE, self._once_more, ask)

    def _once_more(self, ask: Ask) -> None:
        if ask in self._asks and not ask.asked:
            self._ask(ask)

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
                await told
        except TimeoutError:
            raise ConnectionLost(
                f"no answer to SETTLE within {timeout:g} s: whether it was carried out is not known"
            ) from None

    async def extend(self, lease: Lease, seconds: float | timedelta) -> None:
        """Make a lease last this long from now on.

        Raises:
            LeaseExpired: It has ended.
        """
        body = await self._session.ask(Command.EXTEND, extension(lease, seconds))
        extended(lease, body)

    # -- connections

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Keep the known leases over the new connection, or lose them; send settles again."""
        if resumed:
            held = self.held()
            held += [ask.lease for ask in self._asks]
            held += self._dirty
            keys = dict.fromkeys([(one.epoch, one.number) for one in held if not one.lost])
            kept = [control.KeptLease(epoch=epoch, lease=number) for epoch, number in keys]
            # The broker gives back leases that KEEP does not list: their answer was lost with the
            # connection, so no consumer would ever settle them. KEEP is sent before the next pull.
            if len(kept) <= _MOST_KEPT:
                keep = control.encode(control.Keep(leases=kept))
                link.ask(Command.KEEP, keep, Kept())
        else:
            for lease in self.held():
                self.lose(lease)
        for ask in list(self._asks):
            if not resumed:
                known = "the session ended before the broker accepted the settle"
                ask.fail(ConnectionLost("whether this was settled is not known")
                         if ask.uncertain else LeaseExpired(known))  # fmt: skip
            elif not ask.asked:
                self._ask(ask)

    def lose(self, lease: Lease) -> None:
        """Mark a lease that ended without a settle. Call it from the client's loop."""
        if lease.lost:
            return
        lease.lost = True
        self.over(lease)
        if lease.left:
            log.warning("a lease of %s of %s for group %s ended; %s delivered again",
                        counted(lease.left, "message"), lease.topic, lease.group,
                        verb(lease.left, "it is", "they are"))  # fmt: skip
        if lease.owner is not None:
            lease.owner.settled(lease, 0, 0, Outcome.RELEASED)

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
        if self._dirty:
            self.flush()

    def refused(self, error: TernMQError) -> None:
        """Fail all settles: no connection will come."""
        for ask in list(self._asks):
            ask.fail(error)

    def give_up(self) -> None:
        """Fail all settles: the client is closed."""
        self._flush()
        for ask in list(self._asks):
            ask.fail(
                ConnectionLost("the client was closed: whether this was settled is not known")
                if ask.asked or ask.uncertain
                else ClientClosed("the client was closed before this was settled")
            )

    async def drained(self, timeout: float) -> bool:
        """Wait until the broker answered every settle; return False if that takes too long."""
        self._flush()
        if not self._asks:
            return True
        idle = self._session.loop.create_future()
        self._idle.append(idle)
        try:
            async with asyncio.timeout(timeout):
                await idle
        except TimeoutError:
            return False
        return True


def _in_order(verdicts: dict[RowSettle, list[Span]]) -> Iterable[tuple[RowSettle, list[Span]]]:
    """Return verdicts in the order in which they are sent.

    Acks and rejects come first: in an ordered group, the broker takes back the rows behind a row
    that is retried or released, and refuses later settles of them.
    """
    return verdicts.items() if len(verdicts) < 2 else sorted(verdicts.items(), key=_comes_again)


def _comes_again(told: tuple[RowSettle, list[Span]]) -> bool:
    return told[0][0] in _COME_AGAIN


def _spans(offsets: list[int]) -> list[Span]:
    """Return offsets as spans."""
    offsets.sort()
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return [(first, last + 1)]
    spans: list[Span] = []
    start = previous = first
    for offset in offsets[1:]:
        if offset != previous + 1:
            spans.append((start, previous + 1))
            start = offset
        previous = offset
    spans.append((start, previous + 1))
    return spans
