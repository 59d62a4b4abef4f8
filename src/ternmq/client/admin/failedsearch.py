"""Finds failed messages: asks the broker piece by piece, so that no answer takes it long."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from ternmq.client.admin.failedquery import FailedQuery
from ternmq.client.connection.session import Session
from ternmq.wire import control
from ternmq.wire.commands import Command

MOST_NEWEST: Final = 1000
"""Most messages that are returned newest first: a broker returns no more of a piece."""


class _Row(NamedTuple):
    """A row that was found; the newest is the largest."""

    failed_us: int
    queue: int
    offset: int


class FailedSearch:
    """Asks for the failed rows that match a selection.

    Not thread-safe: call it from the client's loop.

    Args:
        session: The client's session.
        topic: The topic.
        group: The group.
        query: Names the key or id.
        select: The rest of the query.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        group: str,
        query: FailedQuery,
        select: control.FailedSelect,
    ) -> None:
        self._session = session
        self._topic = topic
        self._group = group
        self._select = select
        self._first = control.FailedQuery(
            topic=topic, group=group, select=select, key=query.key, id=query.id
        )

    async def check(self) -> None:
        """Ask for a number. An older broker does not know the request, and refuses it.

        It would not refuse a field of another request that it does not know.
        """
        await self._ask(replace(self._first, count=True))

    async def count(self, queues: Iterable[int]) -> control.FailedCounts:
        """Count the rows of queues that match."""
        counts = control.FailedCounts()
        for queue in queues:
            async for found in self._pieces(replace(self._first, queue=queue, count=True)):
                one = found.counts
                counts = control.FailedCounts(
                    waiting=counts.waiting + one.waiting,
                    held=counts.held + one.held,
                    dead=counts.dead + one.dead,
                )
        return counts

    async def offsets(self, queue: int, limit: int) -> AsyncIterator[list[int]]:
        """Iterate over the offsets of a queue that match, ascending, at most ``limit`` at a time.

        Rows may be changed between two pieces: every row comes once.
        """
        asked = replace(self._first, queue=queue, limit=limit)
        if asked.key is None:
            async for found in self._pieces(asked):
                if found.offsets:
                    yield found.offsets
            return
        offsets: list[int] = []  # a broker finds the newest messages of a key first
        async for found in self._pieces(asked):
            offsets += found.offsets
        offsets.sort()
        for at in range(0, len(offsets), limit):
            yield offsets[at : at + limit]

    async def newest(self, queues: Iterable[int], limit: int) -> list[tuple[int, int]]:
        """Return (queue, offset) of the rows that failed last, newest first."""
        best: list[_Row] = []
        for queue in queues:
            asked = replace(self._first, queue=queue, newest=True, limit=limit)
            more = True
            while more:
                if len(best) == limit:  # what failed before the oldest of them does not matter
                    since_us = max(self._select.since_us, best[0].failed_us)
                    if since_us >= self._select.until_us:
                        break
                    asked = replace(asked, select=replace(self._select, since_us=since_us))
                found = await self._ask(asked)
                for failed_us, offset in zip(found.failed_us, found.offsets, strict=True):
                    row = _Row(failed_us, queue, offset)
                    if len(best) < limit:
                        heapq.heappush(best, row)
                    else:
                        heapq.heappushpop(best, row)
                more = bool(found.next)
                asked = replace(asked, after=found.next)
        return [(row.queue, row.offset) for row in sorted(best, reverse=True)]

    async def rows(self, queue: int, offsets: Sequence[int]) -> list[control.FailedMessage]:
        """Return rows with their content, in order; those that have not failed are left out."""
        left = list(offsets)
        rows: list[control.FailedMessage] = []
        while left:
            asked = control.FailedList(
                topic=self._topic,
                group=self._group,
                dead=False,
                queue=queue,
                offsets=left[: control.MAX_FAILED],
            )
            page = await self._session.control(Command.FAILED_LIST, asked, control.FailedPage)
            rows += page.rows
            if page.more and page.rows:
                left = left[left.index(page.rows[-1].offset) + 1 :]
            else:
                left = left[control.MAX_FAILED :]
        return rows

    async def _pieces(self, asked: control.FailedQuery) -> AsyncIterator[control.FailedFound]:
        more = True
        while more:
            found = await self._ask(asked)
            yield found
            more = bool(found.next)
            asked = replace(asked, after=found.next)

    async def _ask(self, asked: control.FailedQuery) -> control.FailedFound:
        return await self._session.control(Command.FAILED_QUERY, asked, control.FailedFound)
