"""Batches of messages that are prepared for a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from ternmq.client.content.broker_time import BrokerTime
from ternmq.client.prepared_ids import PreparedIds
from ternmq.client.producer.lanes import TopicLanes
from ternmq.client.producer.load import Lane
from ternmq.client.producer.outgoing import MESSAGE_BYTES, Outgoing
from ternmq.client.producer.producer import Producer
from ternmq.record.batch.batch import Row, encode


class Batch(NamedTuple):
    """An encoded batch.

    Attributes:
        queue: Number of its queue; None: the broker chooses.
        data: Its bytes.
        messages: Its messages, in order.
        first_sequence: Sequence of the first one.
    """

    queue: int | None
    data: bytes
    messages: Sequence[Outgoing]
    first_sequence: int


class Batches:
    """Makes batches. Not thread-safe: call it from the client's loop.

    Args:
        ids: Sequences for the messages.
        producer: Knows the queues of topics.
        broker_time: The broker's clock, for due times.
    """

    def __init__(self, ids: PreparedIds, producer: Producer, broker_time: BrokerTime) -> None:
        self.ids = ids
        self._producer = producer
        self._broker_time = broker_time

    async def made_of(
        self, topic_name: str, messages: Sequence[Outgoing], timeout: float | None = None
    ) -> list[Batch]:
        """Return the batches of messages of one topic: one or more for each queue.

        Args:
            topic_name: The topic.
            messages: Its messages.
            timeout: Seconds to wait for the settings of the topic; None: the client's.

        Raises:
            UnknownQueue, OrderingKeyRequired, TopicNotOrdered, InvalidRequest: The topic does not
                take a message.
            TernMQError: The settings of the topic cannot be learned.
        """
        topic = await self._producer.known_topic(topic_name, timeout)
        by_lane: dict[Lane, list[Outgoing]] = {}
        for message in messages:
            by_lane.setdefault(topic.lane_of(message), []).append(message)
        return [
            self._encode(topic, lane, some)
            for lane, messages in by_lane.items()
            for some in _cut(lane, messages)
        ]

    def _encode(self, topic: TopicLanes, lane: Lane, messages: Sequence[Outgoing]) -> Batch:
        ids = self.ids
        for message in messages:
            message.set_times(self._broker_time)
        first = ids.take(len(messages))
        data = encode(
            cast("Sequence[Row]", messages),
            topic_seed=topic.seed,
            producer_id=ids.producer,
            first_sequence=first,
            born_us=time.time_ns() // 1000,
            keyed=lane.keyed,
        )
        return Batch(lane.queue, data, messages, first)


def _cut(lane: Lane, messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Yield messages in batches of at most ``batch_bytes`` and ``batch_rows``, one at least.

    While the queues of the keys are unknown, each batch has messages of one key only.
    """
    by_key: dict[str, list[Outgoing]] = {}
    for message in messages:
        by_key.setdefault(message.ordering_key if lane.alone else "", []).append(message)
    limits = lane.limits
    for same in by_key.values():
        some: list[Outgoing] = []
        size = 0
        for message in same:
            more = message.size_bytes + MESSAGE_BYTES
            if some and (size + more > limits.batch_bytes or len(some) >= limits.batch_rows):
                yield some
                some, size = [], 0
            some.append(message)
            size += more
        yield some
