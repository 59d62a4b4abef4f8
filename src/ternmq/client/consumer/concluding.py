"""How the processing of a delivery ends: its outcome, the settle, and the log line.

What is logged is true when it is logged: a delivery that was lost is not settled, and the fate of
one whose lease is past its end depends on the broker's answer.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from ternmq.client.consumer.telling import (
    DONE_ALL_HERE,
    DONE_HERE,
    fate_of,
    last_attempt,
    last_fate_of,
    over_by_time,
    where,
)
from ternmq.client.content.reasons import error_text, reason_text
from ternmq.client.content.validation import seconds_of
from ternmq.model.errors import InvalidRequest, OutcomeUnknown
from ternmq.record.fact.facts import Outcome

if TYPE_CHECKING:
    from ternmq.client.consumer.lease import Lease

log: Final = logging.getLogger("ternmq")

MAX_DELAY: Final = 2 * 366 * 86_400
"""Seconds that a retry may wait: two years."""
MAX_REASON: Final = 1000
"""Characters of a failure's reason that are kept."""


class Processed(Protocol):
    """What is settled and logged: a delivery."""

    offset: int

    @property
    def attempt(self) -> int:
        """Which attempt it is."""

    @property
    def lease(self) -> Lease:
        """Its lease."""

    @property
    def lost(self) -> bool:
        """Whether it was lost without a settle."""

    def settle_soon(
        self, outcome: Outcome, reason: object = "", delay: float | timedelta | None = None
    ) -> None:
        """Settle it without waiting for the broker."""


class Retry(Exception):
    """Raise it while a message is processed to have it tried again, without an error in the log.

    Args:
        after: Seconds, or a timedelta; None: according to the group's retry policy.
        reason: Kept with the message, as text: an exception with its type, anything else as ``str``
            returns it.

    Raises:
        InvalidRequest: ``after`` is negative, or more than two years.
    """

    reason: str = ""
    after: float | timedelta | None = None

    def __init__(self, reason: object = "", *, after: float | timedelta | None = None) -> None:
        self.reason = reason_text(reason)
        super().__init__(self.reason)
        self.after = after
        delay_us(after, "after")


class Reject(Exception):
    """Raise it while a message is processed to make it a dead letter at once.

    Args:
        reason: Kept with the message, as text; see ``Retry``.
    """

    reason: str = ""

    def __init__(self, reason: object = "") -> None:
        self.reason = reason_text(reason)
        super().__init__(self.reason)


def conclude(delivery: Processed, error: BaseException | None, *, reraise: bool = False) -> bool:
    """Settle a delivery after its processing; return whether the error goes no further.

    In that case it is logged here; otherwise logging is up to the code that catches it.
    """
    lease = delivery.lease
    held = not (lease.lost or delivery.offset in lease.settled)
    if held and error is None:
        lease.ack(delivery.offset)
        return True
    over = isinstance(error, Exception) and not reraise
    if not held:
        _tell_not_held(delivery, error, over=over)
        return over
    assert error is not None
    outcome, delay, reason = verdict_of(error)
    said = f": {reason}" if reason else ""
    unless = ", unless its lease has ended" if over_by_time(lease) else ""
    if isinstance(error, Reject) and lease.broadcast:
        log.warning("%s is rejected, %s%s%s", repr(delivery), DONE_HERE, unless, said)
    elif isinstance(error, Reject):
        log.warning("%s is a dead letter now%s: rejected%s", repr(delivery), unless, said)
    elif isinstance(error, Retry):
        if lease.broadcast or last_attempt(lease.policy, delivery.attempt):
            fate = last_fate_of(lease, delivery.attempt)
            log.warning("%s asked for a retry, but %s%s%s", repr(delivery), fate, unless, said)
        elif lease.policy is None:  # it may be a dead letter, and nothing else would show that
            log.warning(
                "%s asked for a retry: %s%s", repr(delivery), fate_of(lease, delivery.attempt), said
            )
    elif over:
        fate = fate_of(lease, delivery.attempt)
        log.error("%s failed, %s%s", repr(delivery), fate, unless, exc_info=where(error))
    delivery.settle_soon(outcome, reason, delay)
    return over


def _tell_not_held(delivery: Processed, error: BaseException | None, *, over: bool) -> None:
    """Log how the processing of a delivery ended that was settled or lost before this end."""
    if delivery.lost:
        why = delivery.lease.gone.get(delivery.offset)
        after = f"it was taken back ({why})" if why else "its lease had ended"
        if error is None:
            log.warning(
                "%s was processed after %s; it is delivered again, unless it was the last attempt",
                repr(delivery),
                after,
            )
        else:
            _tell_nothing_settled(delivery, error, after, over=over)
    elif error is not None and over and not isinstance(error, Retry | Reject):
        if isinstance(error, OutcomeUnknown):
            after = "and whether its transaction was committed is not known"
        else:
            after = "after it was settled"
        log.error("%s failed %s", repr(delivery), after, exc_info=where(error))


def _tell_nothing_settled(what: object, error: BaseException, after: str, *, over: bool) -> None:
    """Log a failure after which nothing could be settled: there was nothing left to settle."""
    outcome, _, reason = verdict_of(error)
    if isinstance(error, Retry | Reject):
        how = "was rejected" if isinstance(error, Reject) else "asked for a retry"
        said = f": {reason}" if reason else ""
        log.warning("%s %s after %s; nothing was settled%s", repr(what), how, after, said)
    elif over:
        log.error(
            "%s failed after %s; nothing was settled", repr(what), after, exc_info=where(error)
        )
    elif outcome is not Outcome.RELEASED:  # one that is given back needs to be held no more
        log.warning("%s failed after %s; nothing was settled: %s", repr(what), after, reason)


@dataclass(slots=True, frozen=True)
class Rest:
    """What was not settled of a batch when its processing failed.

    Attributes:
        held: Number of messages that can be settled.
        lost: Number of those whose lease had ended.
        last: Number of those held for which it was the last attempt, as far as is known.
        unsure: Whether a lease of those held is past its end.
        broadcast: Whether they are those of a broadcast instance.
    """

    held: int
    lost: int
    last: int
    unsure: bool
    broadcast: bool = False

    @property
    def but(self) -> str:
        """The messages for which the fate in a log text is not certain, or not true."""
        if self.unsure:
            return ", except those whose lease has ended"
        return f", except {self.lost} whose lease had ended" if self.lost else ""


def tell_all(batch: object, rest: Rest, error: BaseException, *, over: bool) -> None:
    """Log how the processing of a batch failed, before the rest of it is settled.

    Args:
        batch: The batch, for the log.
        rest: What is left of it.
        error: What was raised.
        over: Whether the error goes no further.
    """
    reason = verdict_of(error)[2]
    said = f": {reason}" if reason else ""
    if not rest.held:
        if rest.lost:
            _tell_nothing_settled(batch, error, "their leases had ended", over=over)
        elif over and not isinstance(error, Retry | Reject):
            log.error("%s failed after all of them were settled or lost", repr(batch),
                      exc_info=where(error))  # fmt: skip
    elif rest.broadcast:
        _tell_done_here(batch, rest, error, said, over=over)
    elif isinstance(error, Reject):
        log.warning("%s are dead letters now%s: rejected%s", repr(batch), rest.but, said)
    elif isinstance(error, Retry):
        if rest.last:
            log.warning("%s asked for a retry, but it was the last attempt of %d of them%s%s",
                        repr(batch), rest.last, rest.but, said)  # fmt: skip
    elif over:
        log.error(
            "%s failed: they are retried by the retry policy, or are dead letters now if it was "
            "the last attempt%s", repr(batch), rest.but, exc_info=where(error),
        )  # fmt: skip


def _tell_done_here(
    batch: object, rest: Rest, error: BaseException, said: str, *, over: bool
) -> None:
    """Log how the processing of a batch of a broadcast instance failed."""
    if isinstance(error, Reject):
        log.warning("%s are rejected, and %s%s%s", repr(batch), DONE_ALL_HERE, rest.but, said)
    elif isinstance(error, Retry):
        log.warning("%s asked for a retry, but a broadcast instance has no retries: they %s%s%s",
                    repr(batch), DONE_ALL_HERE, rest.but, said)  # fmt: skip
    elif over:
        log.error(
            "%s failed: they %s%s", repr(batch), DONE_ALL_HERE, rest.but, exc_info=where(error)
        )


def verdict_of(error: BaseException) -> tuple[Outcome, float | timedelta | None, str]:
    """Return (outcome, delay, reason) for what a handler raised."""
    if isinstance(error, Retry):
        reason = reason_text(error.reason)
        try:
            delay_us(error.after, "after")  # ``after`` may have been changed since
        except InvalidRequest as wrong:
            return Outcome.RETRY, None, f"{reason}: {wrong}" if reason else str(wrong)
        return Outcome.RETRY, error.after, reason
    if isinstance(error, Reject):
        return Outcome.DEAD, None, reason_text(error.reason)
    if isinstance(error, asyncio.CancelledError | GeneratorExit) or not isinstance(
        error, Exception
    ):
        return Outcome.RELEASED, None, ""
    return Outcome.RETRY, None, error_text(error)


def delay_us(delay: float | timedelta | None, what: str = "delay") -> int | None:
    """Return a delay in µs; ``what`` is its name for users.

    Raises:
        InvalidRequest: It is negative, more than ``MAX_DELAY``, or not a number.
    """
    if delay is None:
        return None
    seconds = seconds_of(what, delay)
    if seconds > MAX_DELAY:
        raise InvalidRequest(f"{what} must be at most {MAX_DELAY} s (two years), not {seconds} s")
    return round(seconds * 1_000_000)
