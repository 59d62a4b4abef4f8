"""A message as a consumer receives it."""

from __future__ import annotations

import asyncio
import logging
from asyncio import _get_running_loop as running_loop  # called for every message: raises nothing
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, TypeVar

from ternmq.client.consumer.chunk import Chunk, Origin
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.telling import fate_of, last_attempt, last_fate_of, where
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.message import message_id
from ternmq.client.content.reasons import error_text, reason_text
from ternmq.client.content.validation import seconds_of
from ternmq.model.errors import ClientError, InvalidRequest, LeaseExpired
from ternmq.record.fact.facts import Outcome

log: Final = logging.getLogger("ternmq")

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Identity = tuple[Origin, int]
MAX_DELAY: Final = 2 * 366 * 86_400
"""Seconds that a retry may wait: two years."""
MAX_REASON: Final = 1000
"""Characters of a failure's reason that are kept."""


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


class Delivery:
    """A message that is leased to this consumer until it is settled.

    Settle it once: with ``ack``, ``retry``, ``reject`` or ``release``, or by leaving ``process()``.
    A message that is not settled is delivered again when its lease ends.
    """

    __slots__ = ("_chunk", "_codecs", "_index", "_lease", "_topic", "offset")

    def __init__(
        self, topic: str, chunk: Chunk, index: int, lease: Lease | None, codecs: Codecs
    ) -> None:
        self._topic = topic
        self._chunk = chunk
        self._index = index
        self._lease = lease
        self._codecs = codecs
        self.offset = chunk.offset + index

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}/{self.queue}/{self.offset} attempt {self.attempt}>"

    # -- the message

    @property
    def id(self) -> str:
        """Its id, as in the receipt."""
        batch = self._chunk.batch
        row = self._chunk.row + self._index
        return message_id(batch.producer_id, batch.first_sequence + row)

    @property
    def application_id(self) -> str:
        """The id that the sender gave it."""
        return self._chunk.application_id(self._index)

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._topic

    @property
    def queue(self) -> int:
        """The number of its queue."""
        return self._chunk.queue

    @property
    def key(self) -> str:
        """Its key, "" without one."""
        return self._chunk.key(self._index)

    @property
    def ordering_key(self) -> str:
        """Its ordering key, "" without one."""
        return self._chunk.ordering_key(self._index)

    @property
    def tag(self) -> str:
        """Its tag, "" without one."""
        return self._chunk.tag(self._index)

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        return self._chunk.headers(self._index)

    @property
    def content_type(self) -> str:
        """Its content type, "" for bare bytes."""
        return self._chunk.content_type(self._index)

    @property
    def body(self) -> bytes:
        """Its body, as it was sent."""
        return self._chunk.bodies()[self._index]

    @property
    def value(self) -> Any:
        """Its body, decoded according to its content type; bare bytes stay bytes.

        Raises:
            DecodeError: The body cannot be decoded.
        """
        return self.decode(Any)

    def decode(self, kind: type[T]) -> T:
        """Return its body as a value of a type.

        Raises:
            DecodeError: The body cannot be decoded as that type.
            TypeError: No body can be: it is not a type, or no codec knows it.
        """
        place = self.topic, self.queue, self.offset
        return self._codecs.decode_at(place, self.body, self.content_type, kind)

    @property
    def born_at(self) -> datetime:
        """When its sender sent it."""
        return _EPOCH + timedelta(microseconds=self._chunk.batch.born_us)

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it."""
        return _EPOCH + timedelta(microseconds=self._chunk.stored_us)

    # -- the delivery

    @property
    def attempt(self) -> int:
        """Which attempt this is, of those that count; 1 is the first."""
        return self._chunk.attempt

    @property
    def deliveries(self) -> int:
        """Number of deliveries of this message, including this one."""
        return self._chunk.deliveries

    @property
    def last_reason(self) -> str:
        """Why the attempt before this one failed; "" if none did, or if the reason is not known.

        The reason its consumer gave, up to 1 KiB; or ``the lease ended``,
        ``the consumer was gone``. ``client.deadletters`` and ``client.admin`` list all failures of
        a message.
        """
        return "" if self._lease is None else self._lease.last_reason(self.offset)

    @property
    def maybe_redelivered(self) -> bool:
        """Whether it was delivered before, or may have been.

        A delivery is not synced to the disk before it is made. So after a crash of the broker, all
        messages that were stored then and not done are marked.
        """
        return self._chunk.suspect or self._chunk.deliveries > 1

    @property
    def group(self) -> str:
        """The group that it was delivered to; "" if it was read without one."""
        return self._lease.group if self._lease is not None else ""

    @property
    def lease_until(self) -> datetime | None:
        """When its lease ends; the client extends it by itself. None: read without a group."""
        if self._lease is None:
            return None
        return _EPOCH + timedelta(microseconds=self._lease.until_us)

    @property
    def settled(self) -> bool:
        """Whether it was acked, retried, rejected or released, and that was not refused."""
        lease, offset = self._lease, self.offset
        return lease is not None and offset in lease.settled and offset not in lease.gone

    @property
    def lost(self) -> bool:
        """Whether this consumer lost it without settling it: it is delivered again.

        Its lease ended; or, in a batch of an ordered group, an earlier message of its ordering key
        was retried or released.
        """
        return self._lease is not None and (self._lease.lost or self.offset in self._lease.gone)

    @property
    def lease(self) -> Lease:
        """Its lease.

        Raises:
            InvalidRequest: It was read without a group: there is nothing to settle.
        """
        if self._lease is None:
            raise InvalidRequest("a message that was read without a group cannot be settled")
        return self._lease

    # -- settling

    async def ack(self) -> None:
        """Report that it is processed; returns when that is durable.

        Raises:
            AlreadySettled: It was settled before.
            LeaseExpired: This consumer had lost it; it is delivered again.
            ConnectionLost: Whether the ack was stored is not known.
        """
        lease = self.lease
        told = lease.wait(self.offset, self.offset + 1)
        lease.ack(self.offset)
        await lease.settler.heard(told)

    async def retry(self, delay: float | timedelta | None = None, *, reason: object = "") -> None:
        """Have it delivered again after a delay, or by the retry policy. Raises as ``ack``.

        The reason is kept with the message, as text; see ``Retry``.
        """
        await self._settle(Outcome.RETRY, reason, delay)

    async def reject(self, reason: object = "") -> None:
        """Make it a dead letter at once. Raises as ``ack``; ``reason``: see ``Retry``."""
        await self._settle(Outcome.DEAD, reason)

    async def release(self) -> None:
        """Give it back: it is delivered again at once, without an attempt. Raises as ``ack``."""
        await self._settle(Outcome.RELEASED, "")

    async def extend(self, seconds: float | timedelta) -> None:
        """Make its lease last this long from now on.

        The client extends leases by itself, up to ``max_processing_time``; this goes beyond.

        Raises:
            AlreadySettled: It was settled before.
            LeaseExpired: This consumer lost it.
        """
        lease = self.lease
        lease.check(self.offset)
        try:
            await lease.settler.extend(lease, seconds)
        except LeaseExpired:
            lease.check(self.offset)  # it may have been settled meanwhile
            raise

    async def _settle(
        self, outcome: Outcome, reason: object, delay: float | timedelta | None = None
    ) -> None:
        delay_us(delay)
        lease = self.lease
        told = lease.wait(self.offset, self.offset + 1)
        self.settle_soon(outcome, reason, delay)
        await lease.settler.heard(told)

    def settle_soon(
        self, outcome: Outcome, reason: object = "", delay: float | timedelta | None = None
    ) -> None:
        """Settle it without waiting for the broker; a refusal is logged."""
        text = reason_text(reason)[:MAX_REASON]
        self.lease.settle(self.offset, self.offset + 1, outcome, delay_us(delay), text)

    def process(self, *, reraise: bool = False) -> Processing:
        """Return a context in which it is processed.

        Leaving it acks. An exception is logged and kept as the reason, and the message is delivered
        again by the group's retry policy; the exception goes no further, so that one bad message
        does not end the worker. ``Retry`` and ``Reject`` choose the outcome. Cancellation gives the
        message back without an attempt.

        Args:
            reraise: Raise exceptions after the message was settled, and do not log them.
        """
        return Processing(self, reraise=reraise)


def identity_of(delivery: Delivery) -> Identity:
    """Return a value that is equal for this message only: its place, producer and sequence.

    The place alone is not enough: a broker that lost its data has another message there.
    """
    return delivery._chunk.origin, delivery.offset  # noqa: SLF001 - of a class of this module


class Processing:
    """The context that ``Delivery.process`` returns."""

    __slots__ = ("_delivery", "_reraise")

    def __init__(self, delivery: Delivery, *, reraise: bool) -> None:
        self._delivery = delivery
        self._reraise = reraise

    async def __aenter__(self) -> Delivery:
        return self._delivery

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        delivery = self._delivery
        lease, offset = delivery._lease, delivery.offset  # noqa: SLF001 - of a class of this module
        if lease is None or running_loop() is not lease.loop:
            try:
                delivery.lease.settler.here()
            except ClientError:
                if error is None:
                    raise
                return False  # the block's own error is raised
        elif error is None and not lease.lost and offset not in lease.settled:
            lease.ack(offset)  # as ``conclude`` does
            return True
        return conclude(delivery, error, reraise=self._reraise)


def conclude(delivery: Delivery, error: BaseException | None, *, reraise: bool = False) -> bool:
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
        if delivery.lost:
            why = lease.gone.get(delivery.offset)
            log.warning(
                "%r was processed after %s; it is delivered again", delivery,
                f"it was taken back ({why})" if why else "its lease had ended",
            )  # fmt: skip
        if over and error is not None and not isinstance(error, Retry | Reject):
            log.error("%r failed after it was settled", delivery, exc_info=where(error))
        return over
    assert error is not None
    outcome, delay, reason = verdict_of(error)
    if isinstance(error, Reject):
        said = f": {reason}" if reason else ""
        log.warning("%r is a dead letter now: rejected%s", delivery, said)
    elif isinstance(error, Retry):
        said = f": {reason}" if reason else ""
        if last_attempt(lease.policy, delivery.attempt):
            fate = last_fate_of(lease.policy, delivery.attempt)
            log.warning("%r asked for a retry, but %s%s", delivery, fate, said)
        elif lease.policy is None:  # it may be a dead letter, and nothing else would show that
            log.warning(
                "%r asked for a retry: %s%s", delivery, fate_of(None, delivery.attempt), said
            )
    elif over:
        fate = fate_of(lease.policy, delivery.attempt)
        log.error("%r failed, %s", delivery, fate, exc_info=where(error))
    delivery.settle_soon(outcome, reason, delay)
    return over


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
