"""A message as a consumer receives it."""

from __future__ import annotations

import logging
from asyncio import _get_running_loop as running_loop  # called for every message: raises nothing
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, TypeVar

from ternmq.client.consumer.chunk import Chunk, Origin, StoredMessage
from ternmq.client.consumer.concluding import MAX_REASON, conclude, delay_us
from ternmq.client.consumer.lease import Lease
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.reasons import reason_text
from ternmq.client.process import pickling
from ternmq.model.errors import ClientError, InvalidRequest, LeaseExpired
from ternmq.record.fact.facts import Outcome

log: Final = logging.getLogger("ternmq")

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Identity = tuple[Origin, int]


class Delivery(StoredMessage):
    """A message that is leased to this consumer until it is settled.

    Settle it once: with ``ack``, ``retry``, ``reject`` or ``release``, or by leaving ``process()``.
    A message that is not settled is delivered again when its lease ends.
    """

    _not_pickled = pickling.DELIVERY

    __slots__ = ("_lease", "offset")

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
    def application_id(self) -> str:
        """The id that the sender gave it."""
        return self._chunk.application_id(self._index)

    def decode(self, kind: type[T]) -> T:
        """Return its body as a value of a type.

        Raises:
            DecodeError: The body cannot be decoded as that type.
            TypeError: No body can be: it is not a type, or no codec knows it.
        """
        place = self.topic, self.queue, self.offset
        return self._codecs.decode_at(place, self.body, self.content_type, kind)

    # -- the delivery

    @property
    def attempt(self) -> int:
        """Which attempt this is, of those that count; 1 is the first."""
        return self._chunk.attempt

    @property
    def deliveries(self) -> int:
        """Number of deliveries of this message to the group, including this one.

        After a replay or a reset, the number before it is not known for messages that the group
        had finished: they count from 2.
        """
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

        The broker may deliver a message before the record of the delivery is on the disk. So after
        a crash of the broker, all messages that were stored before the crash and are not done are
        marked. Messages that come again after a replay or a reset of the group are marked, too.
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

        Its lease ended; or, in a batch of a group that keeps an order, an earlier message of its
        ordering key (in a mode that locks queues: of its queue) was retried or released.
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
        try:
            await lease.settler.heard(told)
        finally:
            del told  # see ``raising``

    async def retry(self, delay: float | timedelta | None = None, *, reason: object = "") -> None:
        """Report a failure: it is delivered again after a delay, or as the retry policy says.

        Raises as ``ack``.

        The reason is kept with the message, as text; see ``Retry``.
        """
        await self._settle(Outcome.RETRY, reason, delay)

    async def reject(self, reason: object = "") -> None:
        """Make it a dead letter at once. Raises as ``ack``; ``reason``: see ``Retry``."""
        await self._settle(Outcome.DEAD, reason)

    async def release(self) -> None:
        """Give it back: it is delivered again at once. Raises as ``ack``.

        No attempt is counted.
        """
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
        try:
            await lease.settler.heard(told)
        finally:
            del told  # see ``raising``

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
        does not end the worker. ``Retry`` and ``Reject`` choose the outcome. If it is cancelled,
        the message is given back, and no attempt is counted. Entering it does not check the lease;
        iteration and ``consume`` check it before they return a delivery.

        Args:
            reraise: Raise exceptions after the message was settled, and do not log them.
        """
        return Processing(self, reraise=reraise)


def identity_of(delivery: Delivery) -> Identity:
    """Return a value that is equal for this message only: its place, producer and sequence.

    The place alone is not enough: a broker that lost its data has another message there.
    """
    return delivery._chunk.origin, delivery.offset  # noqa: SLF001 - of a class of this module


def begun_before(delivery: Delivery) -> bool:
    """Return whether it was delivered before; deliveries before a reset or replay do not count."""
    chunk = delivery._chunk  # noqa: SLF001 - of a class of this module
    return chunk.deliveries > 1 and not chunk.anew


def first_since_replay(delivery: Delivery) -> bool:
    """Return whether this is its first delivery since a replay, or a reset of the group."""
    return delivery._chunk.anew  # noqa: SLF001 - of a class of this module


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
