"""Messages that a group failed to process: dead letters, and those that wait for a retry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final, TypeVar

from msgspec.structs import replace

from ternmq.client.admin.lookup import FoundMessage, found_message, of_us
from ternmq.client.admin.places import by_queue, queue_count, queue_meant
from ternmq.client.connection.session import Session
from ternmq.client.consumer.causes import in_words
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.validation import real, whole
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.process import pickling
from ternmq.model.errors import InvalidRequest, LeaseExpired
from ternmq.model.specs import check_name
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import FailureInfo, RowStanding

_PAGE: Final = 500
_LONGEST_PAUSE: Final = 86400.0
"""Seconds; uvloop cannot wait for an infinite time, which the lowest rates would ask for."""
_LAST_OFFSET: Final = 2**63 - 1
_REDRIVEN: Final = 500
"""Most dead letters per request: the answer has the outcome of each."""


@dataclass(slots=True, frozen=True)
class FailedMessage:
    """A message that failed.

    Attributes:
        queue: Number of its queue.
        offset: Its offset there.
        attempts: Number of attempts.
        deliveries: Number of deliveries.
        when: When it is delivered again, or when it became a dead letter. None: it is held.
        held: Whether it waits for an operator, and the later messages of its ordering key with it.
        failures: Its failures, oldest first. If the consumer gave no reason, ``reason`` is
            ``the lease ended`` or ``the consumer was gone``.
        message: Its content; None if it is no longer kept.
    """

    queue: int
    offset: int
    attempts: int
    deliveries: int
    when: datetime | None
    held: bool
    failures: tuple[FailureInfo, ...]
    message: FoundMessage | None

    @property
    def reason(self) -> str:
        """Why it failed the last time: the ``reason`` of the last of ``failures``."""
        return self.failures[-1].reason if self.failures else ""


@dataclass(slots=True, frozen=True)
class Redriven:
    """The outcome of a redrive for one message.

    Attributes:
        queue: Number of its queue.
        offset: Its offset there.
        done: Whether it is delivered again (or, dry, would be); False: it is no dead letter.
    """

    queue: int
    offset: int
    done: bool


Chosen = TypeVar("Chosen", int, FailedMessage)
"""A way to name a message: its offset, or the object that ``browse`` and ``waiting`` return."""


@looked_after("client.deadletters")
class DeadLetters(pickling.NotPickled):
    """The messages that a group failed to process: dead letters, and those waiting for a retry.

    An offset belongs to one queue. If a topic has several, ``queue`` is required; a
    ``FailedMessage`` has its own.
    """

    _not_pickled = pickling.PART.format("deadletters")

    def __init__(self, session: Session, codecs: Codecs) -> None:
        self._session = session
        self._codecs = codecs

    def browse(
        self, topic: str | Topic, group: str, *, queue: int | None = None
    ) -> AsyncIterator[FailedMessage]:
        """Iterate over a group's dead letters, by offset. Read-only."""
        return self._browse(name_of(topic), check_name(group, "group"), queue, dead=True)

    def waiting(
        self, topic: str | Topic, group: str, *, queue: int | None = None
    ) -> AsyncIterator[FailedMessage]:
        """Iterate over the messages that wait for a retry, or are held, by offset."""
        return self._browse(name_of(topic), check_name(group, "group"), queue, dead=False)

    async def get(
        self, topic: str | Topic, group: str, offset: int, *, queue: int | None = None
    ) -> FailedMessage | None:
        """Return a message if it is a dead letter, waits for a retry, or is held; else None.

        Raises:
            InvalidRequest: The topic has several queues, and ``queue`` is missing.
        """
        topic = name_of(topic)
        check_name(group, "group")
        offset = _offset(offset)
        queue = await queue_meant(self._session, topic, queue)
        for dead in (False, True):
            asked = control.FailedList(
                topic=topic, group=group, dead=dead, queue=queue, after=offset - 1, limit=1
            )
            page = await self._session.control(Command.FAILED_LIST, asked, control.FailedPage)
            for row in page.rows:
                if row.offset == offset:
                    return self._failed(row)
        return None

    async def standing(
        self, topic: str | Topic, group: str, offset: int, *, queue: int | None = None
    ) -> RowStanding | None:
        """Return the state of a message in a group, whether it failed or not.

        Its ``state`` is ``unread``, ``leased`` (a consumer has it), ``ready`` (it waits for one,
        given back or ``behind`` another offset of its ordering key), ``waiting`` (for its
        retry, or, if ``due``, for a consumer), ``held``, ``dead`` or ``not_owed`` (done or skipped:
        the group does not receive it any more). None: the broker is too old for this request.

        Raises:
            InvalidRequest: The topic has several queues, and ``queue`` is missing.
            UnknownGroup: The group does not consume it.
            MessageNotFound: The queue has no message at this offset, and never had one.
        """
        topic = name_of(topic)
        check_name(group, "group")
        offset = _offset(offset)
        queue = await queue_meant(self._session, topic, queue)
        asked = control.FailedList(
            topic=topic, group=group, dead=False, queue=queue, limit=1, offset=offset
        )
        page = await self._session.control(Command.FAILED_LIST, asked, control.FailedPage)
        found = page.standing
        return None if found is None else replace(found, failures=in_words(found.failures))

    async def _browse(
        self, topic: str, group: str, queue: int | None, *, dead: bool
    ) -> AsyncIterator[FailedMessage]:
        for number in await self._queues(topic, queue):
            after, more = -1, True
            while more:
                asked = control.FailedList(
                    topic=topic, group=group, dead=dead, queue=number, after=after, limit=_PAGE
                )
                page = await self._session.control(Command.FAILED_LIST, asked, control.FailedPage)
                for row in page.rows:
                    yield self._failed(row)
                    after = row.offset
                more = page.more and bool(page.rows)

    async def _queues(self, topic: str, queue: int | None) -> Iterable[int]:
        if queue is not None:
            return (whole("queue", queue),)
        return range(await queue_count(self._session, topic))

    def _failed(self, row: control.FailedMessage) -> FailedMessage:
        return FailedMessage(
            row.queue,
            row.offset,
            row.attempts,
            row.deliveries,
            None if row.held else of_us(row.when_us),
            row.held,
            tuple(in_words(row.failures)),
            None if row.message is None else found_message(row.message, self._codecs),
        )

    async def retry(
        self,
        topic: str | Topic,
        group: str,
        offsets: Iterable[Chosen],
        *,
        queue: int | None = None,
    ) -> list[Chosen]:
        """Deliver messages at once that wait for a retry or are held; return the others.

        The others neither waited nor were held, so nothing happened to them.

        Args:
            topic: The topic.
            group: The group.
            offsets: Offsets of one queue, or messages as ``waiting`` returns them.
            queue: Queue of the offsets; it may be omitted if the topic has only one.

        Raises:
            InvalidRequest: The topic has several queues, and ``queue`` is missing; or ``offsets``
                names more than 1,000,000 messages.
        """
        return await self._named(
            Command.FAILED_RETRY, control.FailedRetry, topic, group, offsets, queue
        )

    async def delete(
        self,
        topic: str | Topic,
        group: str,
        offsets: Iterable[Chosen],
        *,
        queue: int | None = None,
    ) -> list[Chosen]:
        """Remove messages that wait or are dead from the group; return those that were neither.

        Args:
            topic: The topic.
            group: The group.
            offsets: Offsets of one queue, or messages as ``browse`` and ``waiting`` return them.
            queue: Queue of the offsets; it may be omitted if the topic has only one.

        Raises:
            InvalidRequest: The topic has several queues, and ``queue`` is missing; or ``offsets``
                names more than 1,000,000 messages.
        """
        return await self._named(
            Command.FAILED_DELETE, control.FailedDelete, topic, group, offsets, queue
        )

    async def _named(
        self,
        command: Command,
        kind: type[control.FailedRetry | control.FailedDelete],
        topic: str | Topic,
        group: str,
        offsets: Iterable[Chosen],
        queue: int | None,
    ) -> list[Chosen]:
        """Send a command for the named messages; return those that it did not apply to."""
        topic = name_of(topic)
        check_name(group, "group")
        missing: list[Chosen] = []
        for at, named in (await by_queue(self._session, topic, offsets, queue)).items():
            rows = list(named)
            for first in range(0, len(rows), control.MAX_FAILED):
                some = rows[first : first + control.MAX_FAILED]
                asked = kind(topic=topic, group=group, queue=at, offsets=some)
                missing += [named[one] for one in await self._missing(command, asked)]
        return missing

    async def _missing(
        self, command: Command, asked: control.FailedRetry | control.FailedDelete
    ) -> list[int]:
        try:
            return (await self._session.control(command, asked, control.FailedDone)).missing
        except LeaseExpired:  # the broker's answer if it applied to none of them
            return list(asked.offsets)

    async def redrive(
        self,
        topic: str | Topic,
        group: str,
        offsets: Iterable[Chosen] | None = None,
        *,
        queue: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> list[Redriven]:
        """Deliver dead letters to their group again: attempts count from 1, failures are kept.

        Args:
            topic: The topic.
            group: The group; other groups are unaffected.
            offsets: Offsets of one queue, or messages as ``browse`` returns them; None: all.
            queue: Queue of the offsets; it may be omitted if the topic has only one. Without
                offsets: only this queue, by default all.
            rate: Most messages per second; None: no limit.
            dry_run: Only return what would happen.

        Returns:
            The outcome of each.

        Raises:
            InvalidRequest: Offsets are given, the topic has several queues, and ``queue`` is
                missing; or they are more than 1,000,000.
            ReplayTooLarge: Too many messages wait for redelivery already. Those that were handed
                back before the error stay so. Let the group consume, then repeat.
        """
        topic = name_of(topic)
        check_name(group, "group")
        if rate is not None and not 0 < real("rate", rate) < inf:  # NaN is not
            raise InvalidRequest("rate is the number of messages a second: finite, more than 0")
        most = _REDRIVEN if rate is None else max(1, min(_REDRIVEN, int(rate / 10)))
        if offsets is None:
            told: list[Redriven] = []
            for number in await self._queues(topic, queue):
                told += await self._redrive_all(topic, group, number, most, rate, dry_run=dry_run)
            return told
        told = []
        before = 0
        for at, named in (await by_queue(self._session, topic, offsets, queue)).items():
            await _pause(before, rate, dry_run=dry_run)
            told += await self._redrive_named(
                topic, group, at, list(named), most, rate, dry_run=dry_run
            )
            before = min(most, len(named))
        return told

    async def _redrive_named(
        self, topic: str, group: str, queue: int, named: list[int], most: int, rate: float | None,
        *, dry_run: bool,
    ) -> list[Redriven]:  # fmt: skip
        told: list[Redriven] = []
        while named:
            asked = control.FailedRedrive(
                topic=topic, group=group, queue=queue, offsets=named[:most], dry_run=dry_run
            )
            done = await self._ask_redrive(asked)
            told += _told(queue, done)
            named = sorted([*done.rest, *named[most:]])
            if named:
                await _pause(len(done.done), rate, dry_run=dry_run)
        return told

    async def _redrive_all(
        self, topic: str, group: str, queue: int, most: int, rate: float | None, *, dry_run: bool
    ) -> list[Redriven]:
        told: list[Redriven] = []
        after = -1
        while True:
            asked = control.FailedRedrive(
                topic=topic, group=group, queue=queue, after=after, limit=most, dry_run=dry_run
            )
            done = await self._ask_redrive(asked)
            told += _told(queue, done)
            if done.done:
                after = done.done[-1]
            if not done.more and not done.rest:
                return told
            await _pause(len(done.done), rate, dry_run=dry_run)

    async def _ask_redrive(self, asked: control.FailedRedrive) -> control.FailedRedriven:
        return await self._session.control(Command.FAILED_REDRIVE, asked, control.FailedRedriven)


def _told(queue: int, done: control.FailedRedriven) -> list[Redriven]:
    rows = [Redriven(queue, offset, done=True) for offset in done.done]
    rows += [Redriven(queue, offset, done=False) for offset in done.missing]
    return sorted(rows, key=lambda row: row.offset)


async def _pause(count: int, rate: float | None, *, dry_run: bool) -> None:
    if rate is not None and not dry_run:
        await asyncio.sleep(min(count / rate, _LONGEST_PAUSE))


def _offset(offset: int) -> int:
    offset = whole("offset", offset)
    if not 0 <= offset <= _LAST_OFFSET:
        raise InvalidRequest(f"offset is a whole number from 0 to 2**63 - 1, not {offset}")
    return offset
