"""Receives of a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final, Literal

from ternmq.client.consumer import reading
from ternmq.client.consumer.consumer import Consumer
from ternmq.client.consumer.deliveries import Deliveries, Leased
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.puller import give_back
from ternmq.client.content.validation import check_positive, flag, wait_of, whole
from ternmq.client.declaration.source import Source
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.parts import Parts
from ternmq.model.specs import Mode, Start

_LONG_WAIT: Final = 60.0


@looked_after("client")
class Receiving(Parts):
    """Messages for a group one by one, in batches, or on request; and without a group."""

    async def pull(
        self,
        topic: str | Topic,
        *,
        group: str,
        max_messages: int = 500,
        wait: float | timedelta = 10.0,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Deliveries:
        """Return messages for a group, at most ``max_messages``; waits until there is one.

        They are of one queue. If a topic has several, the next call returns those of another.

        Args:
            topic: The topic.
            group: The consumer group; it is created at first use.
            max_messages: Most messages that are returned.
            wait: Seconds to wait for the first.
            tags: Filter, such as ``paid || refunded``; None: the group's.
            mode: ``shared`` or ``ordered``; None: the group's.
            start: Where a new group begins, ``earliest`` or ``latest``; None: the group's.

        Returns:
            The deliveries; empty, and false, if none came in time.

        Raises:
            UnknownTopic, Forbidden, GroupSettingsMismatch, CannotConnect.
        """
        topic = self._declarations.name_of(topic)
        source = Source(topic, group, tags, mode, start)
        check_positive("max_messages", max_messages)
        wait = wait_of("wait", wait)
        self._session.bind()
        await self._puller.join(source)
        leased = await self._puller.pull(source, max_messages, wait)
        return Deliveries(topic, [] if leased is None else [leased], self.codecs)

    def consume(
        self,
        topic: str | Topic,
        *,
        group: str,
        max_in_flight: int | None = None,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Consumer:
        """Return deliveries one by one: an async context manager around an async iterator.

        At most ``max_in_flight`` are unsettled at one time; None: one for each task that iterates,
        and ahead of them as many as are processed in 0.1 s, up to 1,024; slow consumers hold none
        that they have not begun. No more are requested while 64 that were taken are not settled.
        Leaving gives back what is not settled. See ``pull`` for the other arguments.
        """
        topic = self._declarations.name_of(topic)
        source = Source(topic, group, tags, mode, start)
        return Consumer(self._puller, source, self.codecs, max_in_flight)

    async def consume_batches(
        self,
        topic: str | Topic,
        *,
        group: str,
        max_messages: int = 500,
        max_wait: float | timedelta = 2.0,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> AsyncIterator[Deliveries]:
        """Return deliveries in batches: of ``max_messages``, or what came within ``max_wait``.

        A batch is returned when it is full, or ``max_wait`` seconds after its first message came.
        Leaving gives back what is not settled. See ``pull`` for the other arguments.
        """
        topic = self._declarations.name_of(topic)
        source = Source(topic, group, tags, mode, start)
        check_positive("max_messages", max_messages)
        max_wait = wait_of("max_wait", max_wait)
        self._session.bind()
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
        """Return a batch; if this is cancelled, what was gathered is given back."""
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
        topic: str | Topic,
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
            stop: An offset or a time to stop before; None: the end when reading begins.
            queue: The queue; None: all, one after the other (``follow`` allows only one).
            follow: Continue, waiting for new messages.

        Raises:
            UnknownTopic, UnknownQueue, Forbidden, OffsetExpired.
        """
        self._session.bind()
        if queue is not None:
            whole("queue", queue)
        flag("follow", follow)
        span = reading.ReadRange(start, stop, follow=follow)
        return reading.read(self._session, self.codecs, name_of(topic), queue, span)
