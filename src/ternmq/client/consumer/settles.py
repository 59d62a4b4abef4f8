"""Requests about leases: SETTLE, EXTEND and KEEP."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final, Protocol

from ternmq.client.consumer.lease import Lease, RowSettle, Span
from ternmq.client.content.validation import seconds_us
from ternmq.model.errors import TernMQError
from ternmq.wire import bodies

log: Final = logging.getLogger("ternmq")


class AskOwner(Protocol):
    """Receives the broker's answer to a SETTLE: the client's settler."""

    def answered(self, ask: Ask, body: bytes) -> None:
        """Handle the answer."""

    def wants_again(self, ask: Ask, error: TernMQError) -> None:
        """Handle a refusal: the settle is to be sent again, or given up."""


class Ask:
    """A SETTLE, as ``link.Asker``.

    Attributes:
        lease: The lease of its rows.
        verdict: What it says of them.
        spans: The rows.
        waiters: Callers that wait for the answer, each with its rows: (start, stop, future).
        body: Body of the request, once it was made.
        asked: Whether an answer is due on the current connection.
        uncertain: Whether it may have counted: a connection was lost before its answer.
    """

    __slots__ = (
        "_owner", "_whole", "asked", "body", "lease", "spans", "uncertain", "verdict", "waiters",
    )  # fmt: skip

    def __init__(
        self, owner: AskOwner, lease: Lease, verdict: RowSettle, spans: list[Span], *, whole: bool
    ) -> None:
        self._owner = owner
        self._whole = whole
        self.lease = lease
        self.verdict = verdict
        self.spans = spans
        self.waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self.body = b""
        self.asked = False
        self.uncertain = False

    def encode(self) -> None:
        """Make the body of the request.

        Raises:
            InvalidRequest: Delay or reason cannot be encoded.
        """
        lease = self.lease
        outcome, delay_us, reason = self.verdict
        self.body = bodies.pack_settle(
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
        """Pass the answer on to the owner."""
        self._owner.answered(self, body)

    def refused(self, error: TernMQError) -> None:
        """Pass the refusal on to the owner, which sends it again or gives it up."""
        self._owner.wants_again(self, error)

    def lost(self) -> None:
        """Do nothing: ``SettleCore.lost`` handles all settles of a connection at once."""


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


def extended(lease: Lease, body: bytes, asked: float) -> None:
    """Store the new end of a lease from the answer to an EXTEND. Callable from any thread.

    Args:
        lease: The lease.
        body: The answer.
        asked: Monotonic time of the request.
    """
    lease.extended(*bodies.unpack_extended(body), asked)
