"""QUEUE_RANGES: what many queues hold, a piece at a time, so that no turn of the loop is long.

What was found is kept while a thread reads what the next queue needs: a question about very many
queues must not begin anew with every block of the index, of which the cache might not hold all.
Loop only.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, NamedTuple

from ternmq.access import Authoriser
from ternmq.broker.catalog import Topic
from ternmq.broker.queries import Queries
from ternmq.broker.ranges import Ranges, Wanted
from ternmq.journal.cold import WouldBlock
from ternmq.model.errors import CorruptJournal, DiskReadError, InvalidRequest, UnknownQueue
from ternmq.server.hub import Hub
from ternmq.server.peer import Peer
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control.bulk import MAX_QUEUES
from ternmq.wire.session import Request

TURN_S: Final = 0.002
"""Longest that one question takes of a turn."""


class _Ask(NamedTuple):
    """One queue that is asked about."""

    into: list[control.QueueRange]
    topic: Topic
    number: int
    time_us: int | None
    wanted: Wanted | None


class _Work(NamedTuple):
    """A question that is being answered."""

    told: list[control.TopicRanges]
    left: list[_Ask]
    """The next one last."""


class RangeReads:
    """Handler of QUEUE_RANGES."""

    def __init__(self, hub: Hub, authoriser: Authoriser, queries: Queries) -> None:
        self._hub = hub
        self._core = hub.core
        self._catalog = hub.core.broker.views.catalog
        self._authoriser = authoriser
        self._ranges = Ranges(hub.core.broker.ledger, queries)

    def ranges(self, peer: Peer, request: Request) -> None:
        """QUEUE_RANGES: what the queues of many topics hold."""
        asked = control.decode(request.body, control.QueueRanges)
        for one in asked.topics:
            self._authoriser.check(peer.app, Command.QUEUE_RANGES, one.topic)
        self._go_on(peer, request, self._begin(asked))

    def _begin(self, asked: control.QueueRanges) -> _Work:
        wanted = [self._catalog.by_name.get(one.topic) for one in asked.topics]
        if sum([len(topic.queues) for topic in wanted if topic is not None]) > MAX_QUEUES:
            raise InvalidRequest(f"these topics have more than {MAX_QUEUES} queues: ask for fewer")
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

    def _go_on(self, peer: Peer, request: Request, work: _Work) -> None:
        """Answer some; the rest in the next turn, or when the disk was read."""
        until = time.perf_counter() + TURN_S
        left = work.left
        while left:
            into, topic, number, time_us, wanted = left[-1]
            try:
                found = self._ranges.of_queue(topic, number, time_us, wanted)
            except WouldBlock as blocked:
                self._core.read_first(blocked, partial(self._again, peer, request, work), peer)
                return
            into.append(control.QueueRange(**found._asdict()))
            left.pop()
            if left and time.perf_counter() > until:
                self._hub.read_late(peer, request, partial(self._again, peer, request, work))
                return
        answer = control.RangesFound(topics=work.told, now_us=self._core.now_us())
        peer.answer(request, control.encode(answer))

    def _again(self, peer: Peer, request: Request, work: _Work) -> None:
        if peer.closed:
            return
        self._core.touch()
        if not peer.roomy:
            peer.put_back(request)
            return
        try:
            self._go_on(peer, request, work)
        except (DiskReadError, CorruptJournal) as error:
            peer.refuse(request, self._core.unreadable(error))


def _starts(asked: control.RangesAsk, topic: Topic) -> dict[int, Wanted]:
    starts = {one.queue: Wanted(one.offset, one.max_bytes) for one in asked.starts}
    if len(starts) < len(asked.starts):
        raise InvalidRequest(f"a queue of topic {asked.topic!r} is named twice")
    unknown = [number for number in starts if number >= len(topic.queues)]
    if unknown:
        raise UnknownQueue(f"topic {asked.topic!r} has no queue {unknown[0]}")
    return starts
