"""Choice of the lane of each message, and what waits for the facts about a topic. No I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple, cast

from ternmq.client.connection.options import Options
from ternmq.client.producer.lanes import TopicFacts, TopicLanes
from ternmq.client.producer.load import Lane, Load
from ternmq.client.producer.many import Many, Part
from ternmq.client.producer.outgoing import MESSAGE_BYTES, Outgoing
from ternmq.client.producer.singles import Singles, begin
from ternmq.model.errors import OrderingKeyRequired, RefusedError, TernMQError
from ternmq.model.specs import check_name

_SIZE: Final = attrgetter("size_bytes")
_QUEUE: Final = attrgetter("queue")
_DUE: Final = attrgetter("due")
_ORDERING_KEY: Final = attrgetter("ordering_key")
_PRIORITY: Final = attrgetter("priority")


class Refused(NamedTuple):
    """A load, in no lane, of messages that are not accepted, and why."""

    load: Load
    error: TernMQError


class Parts(NamedTuple):
    """Loads of a ``Many``, in no lane yet, and those that are not accepted."""

    good: list[Part]
    refused: list[Refused]


@dataclass(slots=True)
class Moves:
    """What became of loads that waited for the facts about a topic.

    Attributes:
        gone: Loads whose messages were moved to others.
        began: New loads, in their lanes.
        moved_bytes: Bytes by which loads in lanes grew, new ones included.
        refused: New loads of messages that are not accepted.
    """

    gone: list[Load] = field(default_factory=list)
    began: list[Load] = field(default_factory=list)
    moved_bytes: int = 0
    refused: list[Refused] = field(default_factory=list)


class Placing:
    """The topics of a producer, with what waits in their lanes. Not thread-safe.

    Attributes:
        topics: The topics by name.
    """

    __slots__ = ("_limits", "topics")

    def __init__(self, limits: Options) -> None:
        self.topics: dict[str, TopicLanes] = {}
        self._limits = limits

    def topic(self, name: str) -> TopicLanes:
        """Return a topic's lanes; made at first use.

        Raises:
            InvalidName: It is not a valid name.
        """
        topic = self.topics.get(name)
        if topic is None:
            topic = TopicLanes(check_name(name, "a topic's name"), self._limits)
            self.topics[name] = topic
        return topic

    def lanes(self) -> Iterator[Lane]:
        """Return every lane of every topic."""
        for topic in self.topics.values():
            yield topic.undecided
            yield from topic.lanes

    def outdated(self, name: str) -> None:
        """Have the facts of a topic requested again before its next load."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.facts = None

    # -- placing again

    def learned(self, topic: TopicLanes, facts: TopicFacts) -> Moves:
        """Store the facts of a topic; move the messages that waited for them to their lanes."""
        moves = Moves()
        for load in topic.learn(facts):
            if load.over:
                continue
            if isinstance(load, Part):
                self._move_part(topic, load, moves)
            else:
                assert isinstance(load, Singles)
                _move_singles(topic, load, moves)
        return moves

    def _move_part(self, topic: TopicLanes, load: Part, moves: Moves) -> None:
        many = load.many
        parts = self.parts(topic, many, load.rows, load.timeout)
        if len(parts.good) == 1 and len(parts.good[0].rows) == len(load.rows):
            many.open_parts -= 1
            load.lane = parts.good[0].lane
            take_part(load)
            return
        moves.gone.append(load)
        moves.refused += parts.refused
        for part in parts.good:
            part.deadline = load.deadline
            take_part(part)
            moves.began.append(part)
            moves.moved_bytes += part.size_bytes
        many.part_over()

    # -- many

    def parts(self, topic: TopicLanes, many: Many, rows: Sequence[int], timeout: float) -> Parts:
        """Split rows of a ``Many`` into loads; the topic's facts are known.

        Messages that the topic does not accept are in loads of their own, each with its error; they
        keep no others back. ``many`` counts all these loads.

        Args:
            topic: Their topic.
            many: The messages.
            rows: The rows of them to split.
            timeout: Seconds for each.
        """
        refused: list[Refused] = []
        placed = self._placed(topic, many, rows, refused)
        good = [
            part
            for lane, some in placed.items()
            for part in _cut(lane, many, some, _sizes(many, some), timeout)
        ]
        many.open_parts += len(good)
        return Parts(good, refused)

    def _placed(
        self,
        topic: TopicLanes,
        many: Many,
        rows: Sequence[int],
        refused: list[Refused],
    ) -> dict[Lane, Sequence[int]]:
        """Return rows by lane; append those that no lane accepts to ``refused``."""
        messages = many.messages
        if isinstance(messages[0], bytes):
            if topic.laid is not None and topic.laid.ordered:
                error = OrderingKeyRequired(f"topic {topic.name!r} is ordered")
                refused.append(self.refused(topic, many, rows, error))
                return {}
            try:
                return {topic.of_queue(many.queue): rows}
            except RefusedError as error:  # of another level, or the topic has fewer queues now
                refused.append(self.refused(topic, many, rows, error))
                return {}
        outgoing = cast("Sequence[Outgoing]", messages)
        if (
            topic.only is not None
            and set(map(_QUEUE, outgoing)) == {None}
            and not any(map(_ORDERING_KEY, outgoing))
            and not any(map(_DUE, outgoing))
            and not any(map(_PRIORITY, outgoing))
        ):
            return {topic.only: rows}
        by_lane: dict[Lane, list[int]] = {}
        for row in rows:
            try:
                lane = topic.lane_of(outgoing[row])
            except RefusedError as error:
                refused.append(self.refused(topic, many, [row], error))
                continue
            by_lane.setdefault(lane, []).append(row)
        if len(by_lane) == 1 and not refused:
            (lane,) = by_lane
            return {lane: rows}  # as a range, if it is one: later steps are faster
        return dict(by_lane)

    @staticmethod
    def refused(topic: TopicLanes, many: Many, rows: Sequence[int], error: TernMQError) -> Refused:
        """Return a load, which ``many`` counts, of messages that are not accepted."""
        many.open_parts += 1
        return Refused(_part(topic.undecided, many, rows, 0, 0.0), error)


def take_part(part: Part) -> None:
    """Put a load into its lane."""
    part.note_expiring()
    part.lane.open = None
    part.lane.loads.append(part)


def _move_singles(topic: TopicLanes, load: Singles, moves: Moves) -> None:
    moves.gone.append(load)
    for message in load.messages:
        try:
            lane = topic.lane_of(message)
        except RefusedError as error:
            lacking = Singles(topic.undecided, load.deadline, load.timeout)
            lacking.add(message)
            moves.refused.append(Refused(lacking, error))
            continue
        moves.moved_bytes += message.size_bytes + MESSAGE_BYTES
        how = message, load.deadline, load.timeout
        if lane.open is None or not lane.open.join(*how, one_way=load.one_way):
            moves.began.append(begin(lane, *how, one_way=load.one_way))


def _sizes(many: Many, rows: Sequence[int]) -> list[int]:
    messages = many.messages
    some = messages if len(rows) == len(messages) else [messages[row] for row in rows]
    if some and not isinstance(some[0], bytes):  # then all of them are
        return list(map(_SIZE, some))
    return list(map(len, cast("Sequence[bytes]", some)))


def _cut(
    lane: Lane, many: Many, rows: Sequence[int], sizes: Sequence[int], timeout: float
) -> list[Part]:
    """Split rows into loads of at most ``batch_bytes`` and ``batch_rows``, one row at least.

    In a lane with ``alone``, the first load has one row: the rest is split again once the broker
    has answered it.
    """
    limits = lane.limits
    parts: list[Part] = []
    ends = list(accumulate(sizes))
    start = begun = 0
    while start < len(ends):
        stop = bisect_right(ends, begun + limits.batch_bytes, start)
        most = 1 if lane.alone and not parts else limits.batch_rows
        stop = max(start + 1, min(stop, start + most))
        parts.append(_part(lane, many, rows[start:stop], ends[stop - 1] - begun, timeout))
        start, begun = stop, ends[stop - 1]
    return parts


def _part(lane: Lane, many: Many, rows: Sequence[int], size_bytes: int, timeout: float) -> Part:
    part = Part(lane, 0.0, timeout, many, rows)  # its timeout begins when it is taken
    part.size_bytes = size_bytes + MESSAGE_BYTES * len(rows)
    return part
