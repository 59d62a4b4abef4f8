"""Messages that a group failed on: those that wait for a retry, and those that failed for good."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ternmq.client.codecs import Codecs
from ternmq.client.lookup import FoundMessage, found_message, of_us
from ternmq.client.session import Session
from ternmq.client.validation import check_topic
from ternmq.model.specs import check_name
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import FailureInfo

_PAGE: Final = 500


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
