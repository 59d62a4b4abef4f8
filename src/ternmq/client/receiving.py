"""How a client receives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, Final, Literal

from ternmq.client import reading
from ternmq.client.consumer import Consumer
from ternmq.client.deliveries import Deliveries, Leased
from ternmq.client.delivery import Delivery
from ternmq.client.parts import Parts
from ternmq.client.puller import Source, give_back
from ternmq.client.validation import check_positive, check_topic
from ternmq.model.specs import Mode, Start

_LONG_WAIT: Final = 60.0


class Receiving(Parts):
    """Messages for a group one by one, in batches, or on request; and without a group."""

    async def pull(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 500,
        wait: float = 10.0,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Deliveries:
        """Return messages for a group, at most so many; waits until there is one.

        Args:
            topic: The topic.
            group: The consumer group; it is made at first use.
            max_messages: Most that are returned.
            wait: Seconds to wait for the first.
            tags: Filter, such as ``paid || refunded``; None: as the group has it.
            mode: ``shared`` or ``ordered``; None: as the group has it.
            start: Where a new group begins, ``earliest`` or ``latest``; None: as the group has it.

        Returns:
            The deliveries; empty, and false, when none came in time.

        Raises:
            UnknownTopic, Forbidden, GroupSettingsMismatch, CannotConnect.
        """
        source = Source(topic, group, tags, mode, start)
        check_positive("max_messages", max_messages)
        self._consume()
        await self._puller.join(source)
        leased = await self._puller.pull(source, max_messages, wait)
        return Deliveries(topic, [] if leased is None else [leased], self.codecs)

    def consume(
        self,
        topic: str,
        *,
        group: str,
        max_in_flight: int | None = None,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Consumer:
        """Return deliveries one by one: an async context manager around an async iterator.

        At most ``max_in_flight`` are unsettled at one time; None: 64, and up to 1,024 while they
        are worked off quickly. Leaving gives back what is not settled. See ``pull`` for the other
        arguments.
        """
        source = Source(topic, group, tags, mode, start)
        return _Consuming(self._consume, self._puller, source, self.codecs, max_in_flight)

    async def consume_batches(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 500,
        max_wait: float = 2.0,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> AsyncIterator[Deliveries]:
        """Return deliveries in batches: of ``max_messages``, or what came within ``max_wait``.

        A batch is returned as soon as it is full, or ``max_wait`` seconds after its first message
        came. Leaving gives back what is not settled. See ``pull`` for the other arguments.
        """
        source = Source(topic, group, tags, mode, start)
        check_positive("max_messages", max_messages)
        self._consume()
        await self._puller.join(source)
        handed: list[Leased] = []
        try:
            while True:
                parts = await self._gather(source, max_messages, max_wait)
                handed = [one for one in handed if one.lease.left and not one.lease.lost]
                handed += parts
                if parts:
                    yield Deliveries(topic, parts, self.codecs)
        finally:
            for one in handed:
                give_back(one.lease)

    async def _gather(self, source: Source, max_messages: int, max_wait: float) -> list[Leased]:
        """Return a batch; what was gathered is given back if this is cancelled."""
        loop = self._session.loop
        parts: list[Leased] = []
        count, until = 0, None
        try:
            while count < max_messages:
                wait = _LONG_WAIT if until is None else until - loop.time()
                if wait <= 0:
                    break
                leased = await self._puller.pull(source, max_messages - count, wait)
                if leased is None:
                    break
                parts.append(leased)
                count += leased.lease.rows
                until = until or loop.time() + max_wait
        except BaseException:
            for part in parts:
                give_back(part.lease)
            raise
        return parts

    def read(
        self,
        topic: str,
        *,
        start: int | datetime | Literal["earliest", "latest"] = "earliest",
        stop: int | datetime | None = None,
        queue: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Delivery]:
        """Read messages without a group: nothing is leased, nothing can be settled.

        Args:
            topic: The topic.
            start: An offset, a time, ``earliest`` or ``latest``.
            stop: An offset or a time to stop before; None: after what was there at the beginning.
            queue: The queue; None: all, one after the other (with ``follow``: the topic must have
                but one).
            follow: Go on, waiting for new messages.

        Raises:
            UnknownTopic, UnknownQueue, Forbidden, OffsetExpired.
        """
        self._session.bind()
        span = reading.Span(start, stop, follow=follow)
        return reading.read(self._session, self.codecs, check_topic(topic), queue, span)


class _Consuming(Consumer):
    """A consumer that starts its client's keeper when it is entered, not when it is made."""

    def __init__(self, begin: Callable[[], None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begin = begin

    async def start(self) -> None:
        self._begin()
        await super().start()
