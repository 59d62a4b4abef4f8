"""Where sends of a topic queue up: a lane for each queue whose order matters, else one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ternmq.client.options import Options
from ternmq.client.outgoing import Load, OneWay, Outgoing, Singles
from ternmq.model.errors import OrderingKeyRequired
from ternmq.record.batch import topic_seed
from ternmq.record.hashes import key_hash
from ternmq.wire import bodies

if TYPE_CHECKING:
    from ternmq.client.producer import Producer

_ANY_QUEUE: Final = None
_APART: Final = 0.5
"""Seconds of its time that a message may lose by going along with one that came before."""


@dataclass(slots=True, frozen=True)
class TopicFacts:
    """What a producer must know of a topic."""

    ordered: bool = False
    queues: int = 1


class Lane:
    """Loads to one topic (and queue), in order. Loop only.

    Attributes:
        keyed: The topic is ordered: a load leaves when the one before it was answered, so that a
            load that is refused for now is not overtaken.
        under_way: Loads that left and are not over.
    """

    __slots__ = (
        "dirty", "keyed", "limits", "loads", "open", "prefix", "producer", "topic", "under_way",
    )  # fmt: skip

    def __init__(self, producer: Producer, topic: TopicLanes, queue: int | None) -> None:
        self.producer = producer
        self.topic = topic
        self.limits: Options = producer.options
        self.prefix = bodies.send_prefix(topic.name, queue)
        self.loads: deque[Load] = deque()
        self.open: Singles | None = None
        self.keyed = False
        self.under_way = 0
        self.dirty = False

    def put(self, message: Outgoing, deadline: float, *, one_way: bool = False) -> int:
        """Take a message into the last load, or a new one; return what it counts for."""
        load = self.open
        if (
            load is None
            or load.one_way is not one_way
            or deadline - load.deadline > _APART
            or not load.takes(message)
        ):
            load = self.open = (OneWay if one_way else Singles)(self, deadline)
            self.loads.append(load)
            self.producer.began(load)
        before = load.size_bytes
        load.add(message)
        return load.size_bytes - before


class TopicLanes:
    """The lanes of a topic. Loop only.

    Attributes:
        facts: None until the broker was asked, and when it is to be asked again.
        laid: What ``lanes`` were made for.
        only: The one lane, when there is no choice; all loads wait there before ``facts`` are
            known.
    """

    __slots__ = ("asking", "facts", "laid", "lanes", "name", "only", "producer", "seed")

    def __init__(self, producer: Producer, name: str) -> None:
        self.name = name
        self.seed = topic_seed(name)
        self.producer = producer
        self.facts: TopicFacts | None = None
        self.laid: TopicFacts | None = None
        self.asking = False
        self.only: Lane | None = Lane(producer, self, _ANY_QUEUE)
        self.lanes: list[Lane] = [self.only]

    def lane_of(self, ordering_key: str) -> Lane:
        """Return the lane of an ordering key."""
        if self.only is not None:
            return self.only
        # The broker finds the queue of a key in the same way.
        return self.lanes[key_hash(ordering_key.encode()) % len(self.lanes)]

    def check(self, ordering_key: str) -> None:
        """Refuse a message that the topic cannot take.

        Raises:
            OrderingKeyRequired: It has no ordering key, and the topic is ordered.
        """
        facts = self.facts or self.laid
        if not ordering_key and facts is not None and facts.ordered:
            raise OrderingKeyRequired(f"topic {self.name!r} is ordered")

    def learn(self, facts: TopicFacts) -> list[Load]:
        """Keep what the broker said; return the loads that waited for it and must be laid anew."""
        self.asking = False
        if facts == self.facts:
            return []
        self.facts = facts
        if facts == self.laid:
            return []  # what is under way in its lanes still keeps the order
        self.laid = facts
        before = [load for lane in self.lanes for load in lane.loads]
        for lane in self.lanes:
            lane.loads.clear()
            lane.open = None
        if facts.ordered and facts.queues > 1:
            self.lanes = [Lane(self.producer, self, queue) for queue in range(facts.queues)]
            self.only = None
        else:
            lane = self.only or Lane(self.producer, self, _ANY_QUEUE)
            self.only, self.lanes = lane, [lane]
        for lane in self.lanes:
            lane.keyed = facts.ordered
        return before
