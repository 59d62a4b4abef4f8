"""Messages that a group failed to process: dead letters, and those that wait for a retry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from math import inf
from typing import Final, TypeVar

from msgspec.structs import replace

from ternmq.client.admin.failedmessage import FailedMessage, FailedOutcome
from ternmq.client.admin.failedquery import STATES, FailedQuery, FailedState, check_query
from ternmq.client.admin.failedsearch import MOST_NEWEST, FailedSearch
from ternmq.client.admin.lookup import found_message, of_us
from ternmq.client.admin.places import by_queue, queue_count, queue_meant
from ternmq.client.admin.redriving import Redriven, Send, Target, find_target, redrive_to
from ternmq.client.connection.session import Session
from ternmq.client.content.causes import in_words
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.validation import check_positive, flag, real, whole
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.process import pickling
from ternmq.model.errors import InvalidName, InvalidRequest, LeaseExpired
from ternmq.model.specs import check_failing
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import FailedCounts, RowStanding

_PAGE: Final = 500
_LONGEST_PAUSE: Final = 86400.0
"""Seconds; uvloop cannot wait for an infinite time, which the lowest rates would ask for."""
_LAST_OFFSET: Final = 2**63 - 1
_DETAILS: Final = 250
"""Most failed messages whose content is requested at once."""
_NEWEST: Final = 100
"""How many messages ``matching`` returns with ``newest_first``, if no limit is given."""
_REDRIVEN: Final = 250
"""Most dead letters per request: the answer has the outcome of each."""


Chosen = TypeVar("Chosen", int, FailedMessage)
"""A way to name a message: its offset, or the object that ``browse`` and ``waiting`` return."""


@looked_after("client.deadletters")
class DeadLetters(pickling.NotPickled):
    """The messages that a group failed to process: dead letters, and those waiting for a retry.

    An offset belongs to one queue. If a topic has several, ``queue`` is required; a
    ``FailedMessage`` has its own.
    """

    _not_pickled = pickling.PART.format("deadletters")

    def __init__(self, session: Session, codecs: Codecs, send: Send) -> None:
        self._session = session
        self._codecs = codecs
        self._send = send

    def browse(
        self, topic: str | Topic, group: str, *, queue: int | None = None
    ) -> AsyncIterator[FailedMessage]:
        """Iterate over a group's dead letters, by offset. Read-only."""
        return self._browse(name_of(topic), check_failing(group), queue, dead=True)

    def waiting(
        self, topic: str | Topic, group: str, *, queue: int | None = None
    ) -> AsyncIterator[FailedMessage]:
        """Iterate over the messages that wait for a retry, or are held, by offset."""
        return self._browse(name_of(topic), check_failing(group), queue, dead=False)

    async def get(
        self, topic: str | Topic, group: str, offset: int, *, queue: int | None = None
    ) -> FailedMessage | None:
        """Return a message if it is a dead letter, waits for a retry, or is held; else None.

        Raises:
            InvalidRequest: The topic has several queues, and ``queue`` is missing.
        """
        topic = name_of(topic)
        check_failing(group)
        offset = _offset(offset)
        queue = await queue_meant(self._session, topic, queue)
        for dead in (False, True):
            asked = control.FailedList(
                topic=topic, group=group, dead=dead, queue=queue, after=offset - 1, limit=1
            )
            page = await self._session.control(Command.FAILED_LIST, asked, control.FailedPage)
            for row in page.rows:
                if row.offset == offset:
                    return self._failed(row, dead=dead)
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
        check_failing(group)
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
                    yield self._failed(row, dead=dead)
                    after = row.offset
                more = page.more and bool(page.rows)

    async def _queues(self, topic: str, queue: int | None) -> Iterable[int]:
        if queue is not None:
            return (whole("queue", queue),)
        return range(await queue_count(self._session, topic))

    def _failed(self, row: control.FailedMessage, *, dead: bool) -> FailedMessage:
        """Return a row; a list of dead letters by an older broker does not say so of each."""
        return FailedMessage(
            row.queue,
            row.offset,
            row.attempts,
            row.deliveries,
            None if row.held else of_us(row.when_us),
            row.held,
            tuple(in_words(row.failures)),
            None if row.message is None else found_message(row.message, self._codecs),
            dead,
        )

    # -- queries ----------------------------------------------------------------------------------

    def matching(
        self,
        topic: str | Topic,
        group: str,
        query: FailedQuery | None = None,
        *,
        queue: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[FailedMessage]:
        """Iterate over the failed messages that match a query. Read-only.

        For a query by state and attempts, the broker reads no file. For a query by time, it reads
        the times of failures of waiting messages; for a query by key or id, it reads the messages.

        Args:
            topic: The topic.
            group: The group.
            query: Which messages; None: all that have failed.
            queue: Only this queue.
            newest_first: Sorted by the time of the last failure, newest first; otherwise by queue
                and offset.
            limit: Most messages. With ``newest_first`` at most 1,000, and 100 by default.

        Raises:
            InvalidRequest: The query or the limit is not valid.
        """
        topic = name_of(topic)
        search = self._search(topic, group, query, *STATES)
        if limit is not None:
            check_positive("limit", limit)
        if flag("newest_first", newest_first):
            most = _NEWEST if limit is None else limit
            if most > MOST_NEWEST:
                raise InvalidRequest(
                    f"limit must be at most {MOST_NEWEST:,} with newest_first, not {most:,}"
                )
            return self._newest(search, topic, queue, most)
        return self._in_order(search, topic, queue, limit)

    async def count(
        self,
        topic: str | Topic,
        group: str,
        query: FailedQuery | None = None,
        *,
        queue: int | None = None,
    ) -> FailedCounts:
        """Return the number of failed messages that match a query, by state: see ``matching``."""
        topic = name_of(topic)
        search = self._search(topic, group, query, *STATES)
        return await search.count(await self._queues(topic, queue))

    def _search(
        self, topic: str, group: str, query: FailedQuery | None, *of: FailedState
    ) -> FailedSearch:
        query = check_query(FailedQuery() if query is None else query)
        group = check_failing(group)
        return FailedSearch(self._session, topic, group, query, query.select(*of))

    async def _newest(
        self, search: FailedSearch, topic: str, queue: int | None, limit: int
    ) -> AsyncIterator[FailedMessage]:
        places = await search.newest(await self._queues(topic, queue), limit)
        for first in range(0, len(places), _DETAILS):
            some = places[first : first + _DETAILS]
            rows: dict[tuple[int, int], control.FailedMessage] = {}
            for number in {number for number, _ in some}:
                named = [offset for at, offset in some if at == number]
                for row in await search.rows(number, named):
                    rows[number, row.offset] = row
            for place in some:
                if place in rows:  # else it has not failed any more
                    yield self._failed(rows[place], dead=rows[place].dead)

    async def _in_order(
        self, search: FailedSearch, topic: str, queue: int | None, limit: int | None
    ) -> AsyncIterator[FailedMessage]:
        left = inf if limit is None else limit
        for number in await self._queues(topic, queue):
            async for offsets in search.offsets(number, int(min(left, _DETAILS))):
                for row in await search.rows(number, offsets):
                    yield self._failed(row, dead=row.dead)
                    left -= 1
                    if not left:
                        return

    async def retry_matching(
        self,
        topic: str | Topic,
        group: str,
        query: FailedQuery,
        *,
        queue: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> list[FailedOutcome]:
        """Retry at once the messages that match a query and wait for a retry or are held.

        The broker compares each message with the query again just before the retry. A message that
        no longer matches, because it failed again or is handled now, stays as it is.

        Args:
            topic: The topic.
            group: The group.
            query: Which messages.
            queue: Only this queue.
            rate: Most messages per second; None: no limit.
            dry_run: Only return what would happen.

        Returns:
            The outcome of each that was found.

        Raises:
            InvalidRequest: The query is not valid, or asks for dead letters.
        """
        return await self._act(
            control.FailedRetry, topic, group, query, queue, rate, "waiting", "held",
            dry_run=dry_run,
        )  # fmt: skip

    async def delete_matching(
        self,
        topic: str | Topic,
        group: str,
        query: FailedQuery,
        *,
        queue: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> list[FailedOutcome]:
        """Remove the failed messages that match a query from the group: see ``retry_matching``."""
        return await self._act(
            control.FailedDelete, topic, group, query, queue, rate, *STATES, dry_run=dry_run
        )

    async def redrive_matching(
        self,
        topic: str | Topic,
        group: str,
        query: FailedQuery,
        *,
        queue: int | None = None,
        to: str | Topic | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> list[Redriven]:
        """Deliver the dead letters that match a query to their group again, or to another topic.

        Args:
            topic: The topic.
            group: The group.
            query: Which dead letters.
            queue: Only this queue.
            to: The other topic: see ``redrive``.
            rate: Most messages per second; None: no limit.
            dry_run: Only return what would happen.

        Returns:
            The outcome of each that was found; its ``error`` says why the other topic did not take
            it.

        Raises:
            InvalidRequest: The query is not valid, or asks for messages that are not dead letters.
            UnknownTopic, ReplayTooLarge: As ``redrive``.
        """
        topic = name_of(topic)
        query = check_query(query)
        flag("dry_run", dry_run)
        name = None if to is None else _target(topic, to)
        search = self._search(topic, group, query, "dead")
        only = query.select("dead")
        most = _piece(rate, control.MAX_FAILED)
        target = None if name is None else await find_target(self._session, name)
        told: list[Redriven] = []
        for number in await self._queues(topic, queue):
            async for offsets in search.offsets(number, most):
                if told:
                    await _pause(len(offsets), rate, dry_run=dry_run)
                if target is None:
                    told += await self._redrive_named(
                        topic, group, number, offsets, most, rate, only, dry_run=dry_run
                    )
                else:
                    told += await self._redrive_to(
                        target, search, topic, group, number, offsets, dry_run=dry_run
                    )
        return told

    async def _act(
        self,
        kind: type[control.FailedRetry | control.FailedDelete],
        topic: str | Topic,
        group: str,
        query: FailedQuery,
        queue: int | None,
        rate: float | None,
        *of: FailedState,
        dry_run: bool,
    ) -> list[FailedOutcome]:
        topic = name_of(topic)
        query = check_query(query)
        flag("dry_run", dry_run)
        search = self._search(topic, group, query, *of)
        only = query.select(*of)
        told: list[FailedOutcome] = []
        for number in await self._queues(topic, queue):
            async for offsets in search.offsets(number, _piece(rate, control.MAX_FAILED)):
                if told:
                    await _pause(len(offsets), rate, dry_run=dry_run)
                asked = kind(
                    topic=topic, group=group, queue=number, offsets=offsets, only=only,
                    dry_run=dry_run,
                )  # fmt: skip
                missing = set(await self._missing(asked))
                told += [FailedOutcome(number, one, done=one not in missing) for one in offsets]
        return told

    # -- named messages ---------------------------------------------------------------------------

    async def retry(
        self,
        topic: str | Topic,
        group: str,
        offsets: Iterable[Chosen],
        *,
        queue: int | None = None,
    ) -> list[Chosen]:
        """Deliver messages at once that wait for a retry or are held.

        Args:
            topic: The topic.
            group: The group.
            offsets: Offsets of one queue, or messages as ``waiting`` returns them.
            queue: Queue of the offsets; it may be omitted if the topic has only one.

        Returns:
            The messages that neither waited nor were held: nothing happened to them.

        Raises:
            InvalidRequest: The topic has several queues, and ``queue`` is missing; or ``offsets``
                names more than 1,000,000 messages.
        """
        return await self._named(control.FailedRetry, topic, group, offsets, queue)

    async def delete(
        self,
        topic: str | Topic,
        group: str,
        offsets: Iterable[Chosen],
        *,
        queue: int | None = None,
    ) -> list[Chosen]:
        """Remove messages that wait, are held or are dead from the group.

        Args:
            topic: The topic.
            group: The group.
            offsets: Offsets of one queue, or messages as ``browse`` and ``waiting`` return them.
            queue: Queue of the offsets; it may be omitted if the topic has only one.

        Returns:
            The messages that had not failed: nothing happened to them.

        Raises:
            InvalidRequest: The topic has several queues, and ``queue`` is missing; or ``offsets``
                names more than 1,000,000 messages.
        """
        return await self._named(control.FailedDelete, topic, group, offsets, queue)

    async def _named(
        self,
        kind: type[control.FailedRetry | control.FailedDelete],
        topic: str | Topic,
        group: str,
        offsets: Iterable[Chosen],
        queue: int | None,
    ) -> list[Chosen]:
        """Send a command for the named messages; return those that it did not apply to."""
        topic = name_of(topic)
        check_failing(group)
        missing: list[Chosen] = []
        for at, named in (await by_queue(self._session, topic, offsets, queue)).items():
            rows = list(named)
            for first in range(0, len(rows), control.MAX_FAILED):
                some = rows[first : first + control.MAX_FAILED]
                asked = kind(topic=topic, group=group, queue=at, offsets=some)
                missing += [named[one] for one in await self._missing(asked)]
        return missing

    async def _missing(self, asked: control.FailedRetry | control.FailedDelete) -> list[int]:
        retry = isinstance(asked, control.FailedRetry)
        command = Command.FAILED_RETRY if retry else Command.FAILED_DELETE
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
        to: str | Topic | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> list[Redriven]:
        """Deliver dead letters to their group again: attempts count from 1, failures are kept.

        With ``to``, each is sent to another topic instead, with the header ``ternmq-redriven`` and
        an id that is made of the dead letter, and deleted when it is stored there. A redrive that
        is repeated after a crash sends no second message, as long as deduplication remembers the
        id (see the guide on sending). A message that the other topic does not take stays a dead
        letter, and its outcome has the error: ``TopicNotOrdered`` for a message with an ordering
        key if the topic neither is ordered nor ignores these keys, ``OrderingKeyRequired`` for one
        without if it is ordered, or any other error of a send.

        Args:
            topic: The topic.
            group: The group; other groups are unaffected.
            offsets: Offsets of one queue, or messages as ``browse`` returns them; None: all.
            queue: Queue of the offsets; it may be omitted if the topic has only one. Without
                offsets: only this queue, by default all.
            to: Another topic. Without it: to their group.
            rate: Most messages per second; None: no limit.
            dry_run: Only return what would happen. With ``to``, the settings of the topic count, if
                it exists already: errors of another cause, such as a full disk, are not foreseen.

        Returns:
            The outcome of each.

        Raises:
            UnknownTopic: There is no such topic; or there is no topic ``to``, and a send would not
                create it. Nothing was done; a dry run raises it, too.
            InvalidRequest: Offsets are given, the topic has several queues, and ``queue`` is
                missing; or they are more than 1,000,000.
            ReplayTooLarge: Too many messages wait for redelivery already. Those that were handed
                back before the error stay so. Let the group consume, then repeat.
        """
        topic = name_of(topic)
        check_failing(group)
        flag("dry_run", dry_run)
        most = _piece(rate, _REDRIVEN)
        if offsets is None and to is not None:  # checked there
            return await self.redrive_matching(
                topic, group, FailedQuery(), queue=queue, to=to, rate=rate, dry_run=dry_run
            )
        if offsets is None:
            told: list[Redriven] = []
            for number in await self._queues(topic, queue):
                told += await self._redrive_all(topic, group, number, most, rate, dry_run=dry_run)
            return told
        told = []
        before = 0
        target = None
        search = self._search(topic, group, None, *STATES)
        if to is not None:
            name = _target(topic, to)
            await search.check()
            target = await find_target(self._session, name)
        for at, named in (await by_queue(self._session, topic, offsets, queue)).items():
            await _pause(before, rate, dry_run=dry_run)
            rows = list(named)
            if target is None:
                told += await self._redrive_named(
                    topic, group, at, rows, most, rate, dry_run=dry_run
                )
            else:
                for first in range(0, len(rows), most):
                    some = rows[first : first + most]
                    await _pause(len(some) if first else 0, rate, dry_run=dry_run)
                    told += await self._redrive_to(
                        target, search, topic, group, at, some, dry_run=dry_run
                    )
            before = min(most, len(named))
        return told

    async def _redrive_to(
        self, target: Target, search: FailedSearch, topic: str, group: str, queue: int,
        offsets: list[int], *, dry_run: bool,
    ) -> list[Redriven]:  # fmt: skip
        async def delete(letters: Sequence[int], only: control.FailedSelect) -> list[int]:
            missing: list[int] = []
            for first in range(0, len(letters), control.MAX_FAILED):
                some = list(letters[first : first + control.MAX_FAILED])
                asked = control.FailedDelete(
                    topic=topic, group=group, queue=queue, offsets=some, only=only
                )
                missing += await self._missing(asked)
            return missing

        return await redrive_to(
            target,
            topic,
            group,
            queue,
            offsets,
            await search.rows(queue, offsets),
            send=self._send,
            delete=delete,
            dry_run=dry_run,
        )

    async def _redrive_named(
        self, topic: str, group: str, queue: int, named: list[int], most: int, rate: float | None,
        only: control.FailedSelect | None = None, *, dry_run: bool,
    ) -> list[Redriven]:  # fmt: skip
        told: list[Redriven] = []
        while named:
            asked = control.FailedRedrive(
                topic=topic, group=group, queue=queue, offsets=named[:most], dry_run=dry_run,
                only=only,
            )  # fmt: skip
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


def _target(topic: str, to: str | Topic) -> str:
    """Return the topic to which dead letters go.

    Raises:
        InvalidName, InvalidRequest: It is no other topic.
    """
    if not isinstance(to, str | Topic):
        raise InvalidName(f"to is a topic's name or a Topic, not {type(to).__name__}")
    target = name_of(to)
    if target == topic:
        raise InvalidRequest(
            f"{topic!r} is the topic of the dead letters: in it, every group would receive them "
            "again; without another topic, only their group does"
        )
    return target


def _piece(rate: float | None, most: int) -> int:
    """Return how many messages a request names, so that a rate is kept within a tenth of a second.

    Raises:
        InvalidRequest: The rate is none.
    """
    if rate is None:
        return most
    if not 0 < real("rate", rate) < inf:  # NaN is not
        raise InvalidRequest("rate is the number of messages a second: finite, more than 0")
    return max(1, min(most, int(rate / 10)))


async def _pause(count: int, rate: float | None, *, dry_run: bool) -> None:
    if rate is not None and not dry_run:
        await asyncio.sleep(min(count / rate, _LONGEST_PAUSE))


def _offset(offset: int) -> int:
    offset = whole("offset", offset)
    if not 0 <= offset <= _LAST_OFFSET:
        raise InvalidRequest(f"offset is a whole number from 0 to 2**63 - 1, not {offset}")
    return offset
