"""Pulls whose leases belong to no session: for a front that consumes for its own callers.

A front (HTTP) is asked to pull by one request and to settle by another, maybe at another process,
after this one was killed. So its leases are detached: they end by time or by their settles only,
and any session of an app with the right ``consume`` settles them. Nothing is extended by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from ternmq.client.connection.session import Session
from ternmq.client.consumer.chunk import chunks_of
from ternmq.client.consumer.deliveries import runs_of
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.content.causes import UNSAID
from ternmq.client.content.codecs import Codecs
from ternmq.client.declaration.source import Source
from ternmq.model.errors import (
    ConnectionLost,
    LeaseExpired,
    TernMQError,
    UnknownCommand,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.model.specs import SubscriptionSpec
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.bodies import LastFailure
from ternmq.wire.commands import Command

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN_S: Final = 30.0
"""Seconds for which the settings of a group, its lease above all, are taken as known."""
_PATIENCE_S: Final = 5.0
"""Seconds beyond the wait of a pull until its answer must be there."""


class Place(NamedTuple):
    """The place of a leased row: all that a settle needs beside topic and group."""

    topic: int
    queue: int
    epoch: int
    lease: int
    offset: int


class Held(NamedTuple):
    """A message under a detached lease.

    Attributes:
        message: The message; it has no lease that the client knows: it cannot be settled by itself.
        place: How it is settled.
        until: When its lease ends, by the broker's clock.
        last_reason: Why the attempt before this one failed; "" if none did, or it is not known.
    """

    message: Delivery
    place: Place
    until: datetime
    last_reason: str


class Detached:
    """Pulls, settles and extends for callers of a front. Not thread-safe: use it in one loop."""

    def __init__(self, session: Session, codecs: Codecs) -> None:
        self._session = session
        self._codecs = codecs
        self._joined: dict[tuple[str, str], tuple[SubscriptionSpec, float]] = {}
        """The settings of groups, and until when they are taken as known."""

    async def pull(
        self, topic: str, group: str, most: int, wait: float, lease: float | None = None
    ) -> list[Held]:
        """Lease messages of a group on a topic; the group is made at its first pull.

        Args:
            topic: The topic.
            group: The group.
            most: Most messages, at least 1.
            wait: Seconds to wait for the first message; 0: not at all.
            lease: Seconds until their lease ends, at most a day; None: as the group says.

        Returns:
            The messages, all of one queue and under one lease; none: there was none in time.

        Raises:
            Forbidden: The app may not consume there.
            ModeNotAllowed: Queues of the group belong to members.
            UnknownCommand: The broker is older than detached leases.
            ConnectionLost: There was no answer: messages may be leased until the lease ends.
            TernMQError: The broker refused it.
        """
        try:
            return await self._pull(topic, group, most, wait, lease)
        except (UnknownGroup, UnknownTopic):  # it was deleted since
            if self._joined.pop((topic, group), None) is None:
                raise
            return await self._pull(topic, group, most, wait, lease)

    async def _join(self, topic: str, group: str) -> SubscriptionSpec:
        """Return the settings of a group; it is asked again after ``_KNOWN_S``."""
        now = self._session.bind().time()
        spec, until = self._joined.get((topic, group), (None, 0.0))
        if spec is None or now >= until:
            asked = Source(topic, group).join()
            joined = await self._session.control(Command.GROUP_JOIN, asked, control.GroupJoined)
            spec = joined.spec
            self._joined[topic, group] = spec, now + _KNOWN_S
        return spec

    async def _pull(
        self, topic: str, group: str, most: int, wait: float, lease: float | None
    ) -> list[Held]:
        spec = await self._join(topic, group)
        lease_us = spec.lease_us if lease is None else int(lease * 1_000_000)
        link = await self._session.opened(None, to_pull=True)
        if not link.welcome.pull_detached:
            raise UnknownCommand("this broker is older than detached leases: start a newer version")
        asked = bodies.Pull(
            topic, group, None, min(most, link.welcome.pull_messages), 0, int(wait * 1000), 0,
            max(1, lease_us // 1000),
        )  # fmt: skip
        waiting = _Pull(self, topic, group, self._session.loop)
        id_ = link.ask(Command.PULL, bodies.pack_pull(asked), waiting)
        try:
            async with asyncio.timeout(wait + _PATIENCE_S):
                told = await waiting.future
        except BaseException as error:
            if waiting.gone() and link.usable:
                link.tell(Command.CANCEL, bodies.pack_cancel(id_))
            if isinstance(error, TimeoutError):
                seconds = wait + _PATIENCE_S
                raise ConnectionLost(f"no answer to PULL within {seconds:g} s") from None
            raise
        return self._held(topic, told)

    def _held(self, topic: str, told: bodies.Delivery) -> list[Held]:
        if not told.lease:
            return []
        until = _EPOCH + timedelta(microseconds=told.lease_until_us)
        found: list[Held] = []
        for chunk in chunks_of(told.queue, told.records, told.runs, told.suspect_below, told.anew):
            for index in range(chunk.count):
                message = Delivery(topic, chunk, index, None, self._codecs)
                place = Place(told.topic, told.queue, told.epoch, told.lease, message.offset)
                reason = _reason(told.failures, message.offset)
                found.append(Held(message, place, until, reason))
        return found

    async def settle(
        self,
        topic: str,
        group: str,
        places: Sequence[Place],
        outcome: Outcome,
        delay: float | None = None,
        reason: str = "",
    ) -> list[bool]:
        """Settle leased rows; return for each whether it was held until now.

        Args:
            topic: Their topic.
            group: Their group.
            places: The rows; of any leases.
            outcome: What becomes of them.
            delay: With RETRY, seconds until the next attempt; None: as the group's policy says.
            reason: Why, as ``delivery.last_reason`` returns it.

        Raises:
            TernMQError: The broker refused a request, or did not answer: rows before may be
                settled.
        """
        delay_us = None if delay is None else int(delay * 1_000_000)
        leases: dict[tuple[int, int, int], list[int]] = {}
        for place in places:
            leases.setdefault((place.queue, place.epoch, place.lease), []).append(place.offset)
        over: set[tuple[int, int, int, int]] = set()
        for (queue, epoch, lease), offsets in leases.items():
            spans = tuple(runs_of(sorted(set(offsets))))
            asked = bodies.Settle(
                topic, group, queue, epoch, lease, outcome, spans, delay_us, reason
            )
            try:
                body = await self._session.ask(Command.SETTLE, bodies.pack_settle(asked))
                refused = bodies.unpack_settled(body).refused
            except LeaseExpired:  # all of them
                refused = spans
            for start, stop in refused:
                over.update((queue, epoch, lease, one) for one in range(start, stop))
        return [place[1:] not in over for place in places]

    async def extend(self, topic: str, group: str, place: Place, lease: float) -> datetime:
        """Let the lease of a row, and of all rows that were pulled with it, last from now on.

        A lease is never shortened. Return when it ends, by the broker's clock.

        Raises:
            LeaseExpired: It is over.
            TernMQError: The broker refused it, or did not answer.
        """
        asked = bodies.Extend(
            topic, group, place.queue, place.epoch, place.lease, int(lease * 1_000_000)
        )
        body = await self._session.ask(Command.EXTEND, bodies.pack_extend(asked))
        until_us, _ = bodies.unpack_extended(body)
        return _EPOCH + timedelta(microseconds=until_us)

    def give_back(self, topic: str, group: str, queue: int, epoch: int, lease: int) -> None:
        """Release a lease whose caller is gone, without an answer; no attempt counts."""
        link = self._session.link
        if link is None or not link.usable:
            return  # the lease ends by its time
        asked = bodies.Settle(topic, group, queue, epoch, lease, Outcome.RELEASED)
        link.tell(Command.SETTLE, bodies.pack_settle(asked))


class _Pull:
    """A PULL that a caller waits for."""

    __slots__ = ("_detached", "_group", "_topic", "future")

    def __init__(
        self, detached: Detached, topic: str, group: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._detached = detached
        self._topic = topic
        self._group = group
        self.future: asyncio.Future[bodies.Delivery] = loop.create_future()

    def answered(self, body: bytes) -> None:
        """Return the rows to the caller; give them back if it is gone."""
        told = bodies.unpack_delivery(body)
        if not self.future.done():
            self.future.set_result(told)
        else:
            self._give_back(told)

    def refused(self, error: TernMQError) -> None:
        """Raise the refusal in the caller."""
        if not self.future.done():
            self.future.set_exception(error)

    def lost(self) -> None:
        """Raise the loss of the connection in the caller."""
        if not self.future.done():
            self.future.set_exception(ConnectionLost("the connection was lost during a pull"))

    def gone(self) -> bool:
        """Give up: the caller is gone; return whether the broker must be told.

        What came in the same moment is given back.
        """
        future = self.future
        if future.done() and not future.cancelled():
            if future.exception() is None:
                self._give_back(future.result())
            return False
        future.cancel()
        return True

    def _give_back(self, told: bodies.Delivery) -> None:
        if told.lease:
            place = told.queue, told.epoch, told.lease
            self._detached.give_back(self._topic, self._group, *place)


def _reason(failures: Sequence[LastFailure], offset: int) -> str:
    for one in failures:
        if one.start <= offset < one.start + one.rows:
            return one.reason or UNSAID.get(one.cause, "")
    return ""
