"""Messages that a group failed on: those that wait for a retry, and those that failed for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ternmq.client.codecs import Codecs
from ternmq.client.lookup import FoundMessage, found_message, of_us
from ternmq.client.session import Session
from ternmq.client.validation import check_topic
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import check_name
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import FailureInfo

_PAGE: Final = 500
_REDRIVEN: Final = 500
"""Most dead letters of one request: their answer says what became of each."""


@dataclass(slots=True, frozen=True)
class FailedMessage:
    """A message that failed.

    Attributes:
        queue: Number of its queue.
        offset: Its place there.
        attempts: How often it was tried.
        deliveries: How often it was handed out.
        when: When it comes again, or when it was given up.
        held: It waits for an operator, and the later messages of its ordering key with it.
        failures: What went wrong, oldest first.
        message: Its content, while that is kept.
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
        """Why it failed the last time."""
        return self.failures[-1].reason if self.failures else ""


@dataclass(slots=True, frozen=True)
class Redriven:
    """What became of a dead letter.

    Attributes:
        queue: Number of its queue.
        offset: Its place there.
        done: It comes again (or, dry, would); False: there is no dead letter in that place.
    """

    queue: int
    offset: int
    done: bool


class DeadLetters:
    """The messages that a group failed on: the dead ones, and those that wait for a retry."""

    def __init__(self, session: Session, codecs: Codecs) -> None:
        self._session = session
        self._codecs = codecs

    def browse(
        self, topic: str, group: str, *, queue: int | None = None
    ) -> AsyncIterator[FailedMessage]:
        """Iterate over a group's dead letters, by offset; nothing is changed."""
        return self._browse(check_topic(topic), check_name(group), queue, dead=True)

    def waiting(
        self, topic: str, group: str, *, queue: int | None = None
    ) -> AsyncIterator[FailedMessage]:
        """Iterate over the messages that wait for a retry, or are held, by offset."""
        return self._browse(check_topic(topic), check_name(group), queue, dead=False)

    async def get(
        self, topic: str, group: str, offset: int, *, queue: int = 0
    ) -> FailedMessage | None:
        """Return a message if it is a dead letter, waits for a retry, or is held; else None."""
        check_topic(topic)
        check_name(group)
        for dead in (False, True):
            asked = control.FailedList(
                topic=topic, group=group, dead=dead, queue=queue, after=offset - 1, limit=1
            )
            page = await self._session.control(Command.FAILED_LIST, asked, control.FailedPage)
            for row in page.rows:
                if row.offset == offset:
                    return self._failed(row)
        return None

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
            return (queue,)
        asked = control.TopicList(names=[topic])
        found = await self._session.control(Command.TOPIC_LIST, asked, control.Topics)
        return range(len(found.topics[0].queues)) if found.topics else (0,)

    def _failed(self, row: control.FailedMessage) -> FailedMessage:
        return FailedMessage(
            row.queue,
            row.offset,
            row.attempts,
            row.deliveries,
            None if row.held else of_us(row.when_us),
            row.held,
            tuple(row.failures),
            None if row.message is None else found_message(row.message, self._codecs),
        )

    async def retry(
        self, topic: str, group: str, offsets: Iterable[int], *, queue: int = 0
    ) -> list[int]:
        """Let messages that wait or are held come again now; return the offsets that did not."""
        asked = control.FailedRetry(
            topic=check_topic(topic), group=check_name(group), queue=queue, offsets=[*offsets]
        )
        done = await self._session.control(Command.FAILED_RETRY, asked, control.FailedDone)
        return done.missing

    async def delete(
        self, topic: str, group: str, offsets: Iterable[int], *, queue: int = 0
    ) -> list[int]:
        """Forget messages that wait or are dead; return the offsets of those that were neither."""
        asked = control.FailedDelete(
            topic=check_topic(topic), group=check_name(group), queue=queue, offsets=[*offsets]
        )
        done = await self._session.control(Command.FAILED_DELETE, asked, control.FailedDone)
        return done.missing

    async def redrive(
        self,
        topic: str,
        group: str,
        offsets: Iterable[int] | None = None,
        *,
        queue: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> list[Redriven]:
        """Hand dead letters to their group again: attempts count from 1, failures stay known.

        Args:
            topic: The topic.
            group: The group; no other gets them.
            offsets: Which; None: all of them.
            queue: Of the offsets, by default 0. Without offsets: only this queue, by default all.
            rate: Most that are handed back in a second; None: as fast as it goes.
            dry_run: Only say what would happen.

        Returns:
            What became of each.

        Raises:
            ReplayTooLarge: So many wait to be handed out again that the broker takes no more; what
                was handed back before stays so. Let the group consume.
        """
        check_topic(topic)
        check_name(group)
        if rate is not None and not rate > 0:
            raise InvalidRequest("rate is the number of messages a second, more than 0")
        most = _REDRIVEN if rate is None else max(1, min(_REDRIVEN, int(rate / 10)))
        if offsets is None:
            told: list[Redriven] = []
            for number in await self._queues(topic, queue):
                told += await self._redrive_all(topic, group, number, most, rate, dry_run=dry_run)
            return told
        named = sorted(set(offsets))
        told = []
        at = queue or 0
        while named:
            asked = control.FailedRedrive(
                topic=topic, group=group, queue=at, offsets=named[:most], dry_run=dry_run
            )
            done = await self._ask_redrive(asked)
            told += _told(at, done)
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
        await asyncio.sleep(count / rate)
