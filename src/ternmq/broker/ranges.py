"""What queues hold, for many of them at once: ends, the offset at a time, how far one may read.

As every question it rests on what is durable, and may raise ``WouldBlock``: run the job, ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ternmq.broker.broker import Broker
from ternmq.broker.catalog import Topic
from ternmq.broker.queries import Queries
from ternmq.model.errors import UnknownQueue

_UNBOUNDED: Final = 1 << 62


class Wanted(NamedTuple):
    """From where a queue would be read, and how many bytes of it; 0: all."""

    offset: int
    max_bytes: int


class Range(NamedTuple):
    """What a queue holds; see ``wire.control.QueueRange``."""

    first: int
    next: int
    at: int | None
    start: int | None
    stop: int | None
    stop_bytes: int
    bytes: int


class Ranges:
    """Loop only."""

    __slots__ = ("_broker", "_queries")

    def __init__(self, broker: Broker, queries: Queries) -> None:
        self._broker = broker
        self._queries = queries

    def of_topic(
        self, topic: Topic, time_us: int | None, starts: Mapping[int, Wanted]
    ) -> list[Range]:
        """Return what each queue of a topic holds.

        Args:
            topic: The topic.
            time_us: None: no offset is looked for.
            starts: By queue.

        Raises:
            UnknownQueue: ``starts`` names one that is not there.
            WouldBlock: see the module.
        """
        unknown = [number for number in starts if number >= len(topic.queues)]
        if unknown:
            raise UnknownQueue(f"topic {topic.name!r} has no queue {unknown[0]}")
        return [
            self._of_queue(topic, number, time_us, starts.get(number))
            for number in range(len(topic.queues))
        ]

    def _of_queue(
        self, topic: Topic, number: int, time_us: int | None, wanted: Wanted | None
    ) -> Range:
        queue = topic.queues[number]
        end = self._queries.visible(topic, queue)
        first = min(queue.first, end)
        at = None if time_us is None else self._queries.offset_at(topic.name, number, time_us)
        if wanted is None:
            return Range(first, end, at, None, None, 0, 0)
        start = min(max(wanted.offset, first), end)
        found = self._broker.index.measure(
            topic.number, number, start, end, wanted.max_bytes or _UNBOUNDED
        )
        return Range(first, end, at, start, found.stop, found.stop_bytes, found.bytes)
