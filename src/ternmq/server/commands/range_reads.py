"""QUEUE_RANGES: what many queues hold, answered in pieces, so that no turn of the loop is long.

Results are kept while a thread reads what the next queue needs. A request for very many queues must
not start again at each block of the index, since the cache may not hold all those blocks at once.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, NamedTuple

from ternmq.access import Authoriser
from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.query.messages import Queries
from ternmq.broker.query.ranges import Ranges, Wanted
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import CorruptJournal, DiskReadError, InvalidRequest, UnknownQueue
from ternmq.server.desk.desk import ReadingDesk
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control.bulk import MAX_QUEUES
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

TURN_S: Final = 0.002
"""Longest time that one request takes of a turn, in seconds."""


class _Ask(NamedTuple):
    """One queue of a request."""

    into: list[control.QueueRange]
    topic: Topic
    number: int
    time_us: int | None
    wanted: Wanted | None


class _Work(NamedTuple):
    """A request that is being answered."""

    told: list[control.TopicRanges]
    left: list[_Ask]
    """Queues that are not read yet; the next one is the last."""


class RangeReads:
    """Handler of QUEUE_RANGES. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: ReadingDesk, authoriser: Authoriser, queries: Queries) -> None:
        self._desk = desk
        self._core = desk.core
        self._catalog = desk.core.broker.views.catalog
        self._authoriser = authoriser
        self._ranges = Ranges(desk.core.broker, queries)

    def ranges(self, caller: Caller, request: Request) -> None:
        """QUEUE_RANGES: what the queues of many topics hold."""
        asked = control.decode(request.body, control.QueueRanges)
        for one in asked.topics:
            self._authoriser.check(caller.app, Command.QUEUE_RANGES, one.topic)
        self._go_on(caller, request, self._begin(asked))

    def _begin(self, asked: control.QueueRanges) -> _Work:
        wanted = [self._catalog.by_name.get(one.topic) for one in asked.topics]
        if sum([len(topic.queues) for topic in wanted if topic is not None]) > MAX_QUEUES:
            raise InvalidRequest(f"these topics have more than {MAX_QUEUES} queues: request fewer")
        told: list[control.TopicRanges] = []
        left: list[_Ask] = []
        for one, topic in zip(asked.topics, wanted, strict=True):
            number = 0 if topic is None else topic.number
            ranges = control.TopicRanges(topic=one.topic, number=number, queues=[])
            told.append(ranges)
            if topic is not None:
                starts = _starts(one, topic)
                left += [
                    _Ask(ranges.queues, topic, queue, one.time_us, starts.get(queue))
                    for queue in range(len(topic.queues))
                ]
        left.reverse()
        return _Work(told, left)

    def _go_on(self, caller: Caller, request: Request, work: _Work) -> None:
        """Read some queues; go on in the next turn or after a read; answer at the end."""
        until = time.perf_counter() + TURN_S
        left = work.left
        while left:
            into, topic, number, time_us, wanted = left[-1]
            try:
                found = self._ranges.of_queue(topic, number, time_us, wanted)
            except WouldBlock as blocked:
                self._core.cold_reads.read(
                    blocked, partial(self._again, caller, request, work), caller
                )
                return
            into.append(control.QueueRange(**found._asdict()))
            left.pop()
            if left and time.perf_counter() > until:
                self._desk.late.put(caller, request, partial(self._again, caller, request, work))
                return
        answer = control.RangesFound(topics=work.told, now_us=self._core.now_us())
        caller.answer(request, control.encode(answer))

    def _again(self, caller: Caller, request: Request, work: _Work) -> None:
        if caller.closed:
            return
        self._core.touch()
        if not caller.roomy:
            caller.put_back(request)
            return
        try:
            self._go_on(caller, request, work)
        except (DiskReadError, CorruptJournal) as error:
            caller.refuse(request, self._core.unreadable(error))


def _starts(asked: control.RangesAsk, topic: Topic) -> dict[int, Wanted]:
    starts = {one.queue: Wanted(one.offset, one.max_bytes) for one in asked.starts}
    if len(starts) < len(asked.starts):
        raise InvalidRequest(f"a queue of topic {asked.topic!r} is named twice")
    unknown = [number for number in starts if number >= len(topic.queues)]
    if unknown:
        raise UnknownQueue(f"topic {asked.topic!r} has no queue {unknown[0]}")
    return starts
