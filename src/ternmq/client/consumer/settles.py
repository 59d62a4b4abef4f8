"""Requests about leases: SETTLE, EXTEND and KEEP."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import Final, Protocol

from ternmq.client.consumer.lease import Lease, RowSettle, Span
from ternmq.client.content.validation import seconds_us
from ternmq.model.errors import (
    ClientClosed,
    ConnectionLost,
    LeaseExpired,
    TernMQError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.model.words import counted, verb
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies

log: Final = logging.getLogger("ternmq")

_UNKNOWN: Final = "whether this was settled is not known: the connection was lost before the answer"

_LOSING: Final = (LeaseExpired, UnknownGroup, UnknownTopic, ClientClosed)
"""Errors after which rows are certainly not settled, and no longer held."""


class AskOwner(Protocol):
    """Is notified of the outcome of a SETTLE: the client's settler."""

    def told(self, ask: Ask) -> None:
        """Remove a settle that is finished."""

    def again(self, ask: Ask) -> None:
        """Repeat a settle that was refused for now, or fail it if its lease has ended."""


class Ask:
    """A SETTLE without an answer, as ``link.Asker``."""

    __slots__ = (
        "_owner",
        "_verdict",
        "_whole",
        "asked",
        "lease",
        "spans",
        "uncertain",
        "waiters",
    )

    def __init__(
        self, owner: AskOwner, lease: Lease, verdict: RowSettle, spans: list[Span], *, whole: bool
    ) -> None:
        self._owner = owner
        self._verdict = verdict
        self._whole = whole
        self.lease = lease
        self.spans = spans
        self.waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self.asked = False
        self.uncertain = False

    def body(self) -> bytes:
        """Return the body of the request."""
        lease = self.lease
        outcome, delay_us, reason = self._verdict
        return bodies.pack_settle(
            bodies.Settle(
                lease.topic,
                lease.group,
                lease.queue,
                lease.epoch,
                lease.number,
                outcome,
                () if self._whole else tuple(self.spans),
                delay_us,
                reason,
            )
        )

    def answered(self, body: bytes) -> None:
        """Give the answer to the waiting callers; mark the refused rows as lost."""
        self.asked = False
        refused = bodies.unpack_settled(body).refused
        self._owner.told(self)
        if not refused:
            for _, _, waiter in self.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            return
        if not self.uncertain:
            self.lease.lose_rows(refused)
        heard = 0
        for start, stop, waiter in self.waiters:
            hit = any(start < high and low < stop for low, high in refused)
            heard += hit
            if waiter.done():
                continue
            if hit:
                waiter.set_exception(self._expired(start))
            else:
                waiter.set_result(None)
        count = sum([stop - start for start, stop in refused])
        if count > heard and not self.uncertain and self._verdict[0] != Outcome.RELEASED:
            self._log(
                LeaseExpired(
                    f"{counted(count, 'message')} {verb(count, 'was', 'were')} no longer held"
                )
            )

    def _expired(self, offset: int) -> TernMQError:
        if self.uncertain:  # the first request may have been carried out
            return ConnectionLost(_UNKNOWN)
        return LeaseExpired(f"offset {offset} of {self.lease.topic!r} was no longer held")

    def refused(self, error: TernMQError) -> None:
        """Repeat the settle later, or fail it."""
        self.asked = False
        if error.retriable:
            self._owner.again(self)
        else:
            self.fail(error)

    def lost(self) -> None:
        """Note that it may have been carried out."""
        self.asked = False
        self.uncertain = True

    def fail(self, error: TernMQError) -> None:
        """Fail the waiting callers: it was not settled, or may have been."""
        self._owner.told(self)
        if self.uncertain and not isinstance(error, ConnectionLost):
            # A repeated settle is refused like one that is too late: the first may have counted.
            error = ConnectionLost(f"{_UNKNOWN}: {error.args[0] if error.args else error}")
        if isinstance(error, _LOSING):
            self.lease.lose_rows(self.spans)
        for _, _, waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(type(error)(*error.args))
        if not self.waiters:
            self._log(error)

    def _log(self, error: TernMQError) -> None:
        outcome = Outcome(self._verdict[0]).name.lower()
        # Rows to release that are no longer held need nothing more.
        gone = self._verdict[0] == Outcome.RELEASED and isinstance(error, LeaseExpired)
        log.log(
            logging.DEBUG if gone or self.uncertain else logging.WARNING,
            "%s as %s: topic=%s group=%s queue=%d offsets=%s: %s",
            "perhaps settled" if self.uncertain else "not settled", outcome,
            self.lease.topic, self.lease.group, self.lease.queue,
            ", ".join([f"{start}-{stop - 1}" for start, stop in self.spans[:5]]), error,
        )  # fmt: skip


class Kept:
    """The reply handler of KEEP: a refusal is logged."""

    __slots__ = ()

    def answered(self, body: bytes) -> None:
        """Ignore the answer."""

    def refused(self, error: TernMQError) -> None:
        """Log the refusal."""
        log.debug("KEEP was refused: %s", error)

    def lost(self) -> None:
        """Do nothing: the next connection sends another KEEP."""


def extension(lease: Lease, seconds: float | timedelta) -> bytes:
    """Return the body of an EXTEND.

    Raises:
        InvalidRequest: ``seconds`` is not a valid time.
    """
    us = seconds_us("seconds", seconds)
    return bodies.pack_extend(
        bodies.Extend(lease.topic, lease.group, lease.queue, lease.epoch, lease.number, us)
    )


def extended(lease: Lease, body: bytes) -> None:
    """Store the new end of a lease from the answer to an EXTEND. Callable from any thread."""
    lease.until_us, now_us = bodies.unpack_extended(body)
    lease.until = time.monotonic() + (lease.until_us - now_us) / 1e6
