"""The lanes of a topic, and which of them a message takes."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Final

from ternmq.client.connection.options import Options
from ternmq.client.producer.load import Lane, Load
from ternmq.client.producer.outgoing import Choice, Outgoing
from ternmq.model.errors import (
    InvalidRequest,
    OrderingKeyRequired,
    TopicNotOrdered,
    UnknownQueue,
)
from ternmq.record.batch.batch import topic_seed
from ternmq.record.batch.hashes import key_hash

_ANY_QUEUE: Final = None


@dataclass(slots=True, frozen=True)
class TopicFacts:
    """Facts about a topic that a producer needs.

    Attributes:
        ordered: Whether every message needs an ordering key.
        queues: Number of queues, those of all levels.
        ignores_keys: Whether it is not ordered, and accepts messages with ordering keys all the
            same.
        there: False: the broker has none, or does not show it. A first message may create it.
        levels: Number of levels of priority. Queue ``n`` is of level ``n % levels``.
    """

    ordered: bool = False
    queues: int = 1
    ignores_keys: bool = False
    there: bool = True
    levels: int = 1

    def of_level(self, level: int) -> range:
        """Return the numbers of the queues of a level."""
        return range(level, self.queues, self.levels)


class TopicLanes:
    """The lanes of a topic. Not thread-safe: call it from the client's loop.

    Attributes:
        facts: The facts; None: not known yet, or to be requested again.
        laid: The facts for which ``lanes`` were made.
        placings: Number of times that facts came after which a message may belong to another lane.
        only: The lane of all messages without queue and ordering key, if there is only one.
        asking: Whether the facts are being requested, or will be after a pause.
        tries: Number of refused requests for the facts.
        absent: Whether the topic did not exist at the last request.
        undecided: Lane of messages whose place is not known until the facts are.
        lanes: All other lanes.
    """

    __slots__ = (
        "_by_queue", "_keyed", "_limits", "absent", "asking", "facts", "laid", "lanes", "name",
        "only", "placings", "seed", "tries", "undecided",
    )  # fmt: skip

    def __init__(self, name: str, limits: Options) -> None:
        self.name = name
        self.seed = topic_seed(name)
        self._limits = limits
        self.facts: TopicFacts | None = None
        self.laid: TopicFacts | None = None
        self.placings = 0
        self.absent = False
        self.asking = False
        self.tries = 0
        self.only: Lane | None = None
        self.undecided = self._lane(_ANY_QUEUE)
        self.lanes: list[Lane] = []
        self._by_queue: dict[int, Lane] = {}
        self._keyed: Lane | None = None
        """For a topic that does not exist: lane of messages with ordering keys, which make it
        ordered."""

    def _lane(self, queue: int | None) -> Lane:
        return Lane(self.name, self.seed, queue, self._limits)

    def every(self) -> list[Lane]:
        """Return all lanes."""
        return [self.undecided, *self.lanes]

    def lane_of(self, message: Outgoing) -> Lane:
        """Return the lane of a message.

        On ordered topics the ordering key decides, else ``queue``, else the key; for a message
        without them the broker chooses: the queues in turn. On topics with levels, only the queues
        of its level count.

        Raises:
            UnknownQueue: There is no such queue.
            InvalidRequest: The topic is ordered and the ordering key belongs to another queue, the
                topic has no such level or the queue is of another one, or the selector failed.
            OrderingKeyRequired: The topic is ordered, and the message has no ordering key.
            TopicNotOrdered: The topic is not ordered, and the message has an ordering key.
        """
        lane = self.only
        if lane is None or message.queue is not None or message.ordering_key or message.priority:
            lane = self._lane_of(message)
        return lane if message.due is None else self._later(lane)

    def _later(self, lane: Lane) -> Lane:
        """Return the lane of messages with due times beside one; it is made at first use.

        Messages with and without due times never share a batch, and need not keep an order: the
        former take their places when they are due.
        """
        if lane is self.undecided:
            return lane
        if lane.later is None:
            lane.later = later = self._lane(lane.queue)
            later.scheduled = True
            later.keyed, later.alone, later.level = lane.keyed, lane.alone, lane.level
            self.lanes.append(later)
        return lane.later

    def _lane_of(self, message: Outgoing) -> Lane:
        choice = message.queue
        facts = self.laid
        if facts is None:
            return self.undecided
        level = message.priority
        if level >= facts.levels:
            return self._absent_level(level, choice) if self.absent else self._no_level(level)
        if message.ordering_key and not (facts.ordered or facts.ignores_keys):
            return self._keyed_lane(choice)
        if facts.ordered:
            if not message.ordering_key:
                raise OrderingKeyRequired(f"topic {self.name!r} is ordered")
            # The broker finds the queue of a key in the same way.
            home = key_hash(message.ordering_key.encode()) % facts.queues
            if choice is not None:
                chosen = _chosen(choice, range(facts.queues))
                if chosen != home and 0 <= chosen < facts.queues:
                    raise InvalidRequest(
                        f"topic {self.name!r} is ordered: ordering key {message.ordering_key!r} "
                        f"belongs to queue {home}, not {chosen}; leave out queue="
                    )
                if chosen != home:
                    return self.of_queue(chosen)
            return self.of_queue(home)
        if choice is not None:
            return self.of_queue(_chosen(choice, facts.of_level(level)), level)
        if message.key:
            queues = facts.of_level(level)
            return self.of_queue(queues[key_hash(message.key.encode()) % len(queues)], level)
        return self.lanes[level]

    def _absent_level(self, level: int, choice: Choice) -> Lane:
        """Return the lane of a level of a topic that did not exist: the broker refuses its batches.

        Unless the topic has been made meanwhile, with levels.
        """
        if self.facts is None:
            return self.undecided
        if choice is not None:
            raise InvalidRequest(
                f"topic {self.name!r} does not exist yet, so the queues of priority {level} are "
                "not known; leave out queue="
            )
        for lane in self.lanes:
            if lane.level == level and lane.queue is None and not lane.scheduled:
                return lane
        lane = self._lane(_ANY_QUEUE)
        lane.level = level
        self.lanes.append(lane)
        return lane

    def _no_level(self, level: int) -> Lane:
        """Return the lane of a message of a level that the topic does not have, or raise."""
        if self.facts is None:
            return self.undecided  # it may just have been made anew, with levels
        levels = self.facts.levels
        if levels == 1:
            raise InvalidRequest(
                f"topic {self.name!r} has no levels, so leave priority={level} out; levels are "
                "set when a topic is created"
            )
        raise InvalidRequest(
            f"topic {self.name!r} has {levels} levels: priority is 0 to {levels - 1}, not {level}"
        )

    def _keyed_lane(self, choice: Choice) -> Lane:
        """Return the lane of a message with an ordering key, for a topic that is not ordered."""
        if self.facts is None:
            return self.undecided  # it may just have been created, or accept such messages now
        if self._keyed is None:
            raise TopicNotOrdered(f"topic {self.name!r} is not ordered")
        if choice is not None:
            raise InvalidRequest(
                f"topic {self.name!r} does not exist yet, and a first message with an ordering "
                f"key makes it ordered: the key chooses the queue; leave out queue="
            )
        return self._keyed

    def of_queue(self, queue: int | None, level: int | None = 0) -> Lane:
        """Return the lane of a queue; for None, that of any queue of the level.

        Args:
            queue: Number of the queue.
            level: Priority of the messages; None: the queue may be of any level.

        Raises:
            UnknownQueue: There is no queue of that number.
            InvalidRequest: The queue is of another level.
        """
        facts = self.laid
        if facts is None:
            return self.undecided
        if queue is None:
            return self.lanes[level or 0]
        if not 0 <= queue < facts.queues:
            if self.facts is None:
                return self.undecided  # it may just have been created
            last = facts.queues - 1
            there = f"queues 0 to {last}" if last else "queue 0 only"
            raise UnknownQueue(f"topic {self.name!r} has {there}, not {queue}")
        if level is not None and queue % facts.levels != level:
            if self.facts is None:
                return self.undecided
            raise InvalidRequest(
                f"queue {queue} of topic {self.name!r} is of level {queue % facts.levels}, and the "
                f"message has priority {level}; leave out queue="
            )
        lane = self._by_queue.get(queue)
        if lane is None:
            lane = self._by_queue[queue] = self._lane(queue)
            lane.level = queue % facts.levels
            self.lanes.append(lane)
        return lane

    def learn(self, facts: TopicFacts) -> list[Load]:
        """Store new facts; return the loads that waited for them and must be placed again."""
        self.asking = False
        self.tries = 0
        if facts == self.facts and not self.undecided.loads:
            return []
        self.placings += 1
        self.facts = facts
        # Lanes made for the same facts stay: loads under way in them still keep the order.
        changed = facts != self.laid
        emptied = self.every() if changed else [self.undecided]
        before = [load for lane in emptied for load in lane.loads]
        for lane in emptied:
            lane.loads.clear()
            lane.open = None
        if changed:
            self._lay(facts)
        return before

    def _lay(self, facts: TopicFacts) -> None:
        """Make lanes for a topic with these facts."""
        self.laid = facts
        self.absent = not facts.there
        self._by_queue = {}
        self._keyed = None
        self.only = None
        if facts.ordered and facts.queues > 1:
            self.lanes = [self._lane(queue) for queue in range(facts.queues)]
        else:
            self.lanes = [self._lane(_ANY_QUEUE) for _ in range(facts.levels)]
            for level, lane in enumerate(self.lanes):
                lane.level = level
            if facts.queues == 1 and not facts.ordered:
                self.only = self.lanes[0]
        if facts.ordered:
            # One lane per queue, however it was chosen: within it nothing is overtaken.
            self._by_queue = dict(enumerate(self.lanes))
        for lane in self.lanes:
            lane.keyed = facts.ordered
        if not facts.there:
            self._keyed = lane = self._lane(_ANY_QUEUE)
            lane.keyed = lane.alone = True
            self.lanes.append(lane)


def _chosen(choice: Choice, queues: range) -> int:
    """Return the number of the queue of a message; it may not exist, or be of another level.

    Args:
        choice: The queue, or a function that chooses it.
        queues: The queues among which it may choose.

    Raises:
        InvalidRequest: The selector failed, or returned something else.
    """
    if not callable(choice):
        assert choice is not None
        return choice
    try:
        chosen = choice(queues)
    except Exception as error:  # in the application's own code
        raise InvalidRequest(f"the function queue= failed: {error!r}") from error
    try:
        # A bool is a whole number for ``index``; None is not.
        return index(chosen if chosen.__class__ is not bool else None)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidRequest(
            f"the function queue= returned {chosen!r}, not the number of a queue"
        ) from None
