"""Choice of the lane of each message, from the broker's facts about topics."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Session
from ternmq.client.declaration.making import Making
from ternmq.client.producer.lanes import Lane, TopicFacts, TopicLanes
from ternmq.client.producer.load import MESSAGE_BYTES, Load, Outgoing
from ternmq.client.producer.many import Many, Part
from ternmq.client.producer.singles import Singles
from ternmq.model.errors import (
    CannotConnect,
    ConnectionLost,
    OrderingKeyRequired,
    RefusedError,
    TernMQError,
)
from ternmq.model.specs import check_name
from ternmq.wire import control
from ternmq.wire.commands import Command

if TYPE_CHECKING:
    from ternmq.client.producer.producer import Producer

_SIZE: Final = attrgetter("size_bytes")
_QUEUE: Final = attrgetter("queue")
_ORDERING_KEY: Final = attrgetter("ordering_key")


class Placing:
    """The topics of a producer. Not thread-safe: call it from the client's loop.

    Attributes:
        topics: The topics by name.
    """

    __slots__ = ("_making", "_producer", "_session", "topics")

    def __init__(self, producer: Producer, session: Session, making: Making) -> None:
        self.topics: dict[str, TopicLanes] = {}
        self._producer = producer
        self._session = session
        self._making = making

    def topic(self, name: str) -> TopicLanes:
        """Return a topic's lanes; made at first use.

        Raises:
            InvalidName: It is not a valid name.
        """
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicLanes(
                self._producer, check_name(name, "a topic's name")
            )
        return topic

    def lanes(self) -> Iterator[Lane]:
        """Return every lane of every topic."""
        for topic in self.topics.values():
            yield topic.undecided
            yield from topic.lanes

    def changed(self, name: str) -> None:
        """Have the facts of a changed topic requested again before its next load."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.facts = None

    # -- facts from the broker

    async def known(self, topic: TopicLanes) -> None:
        """Make sure that the facts of a topic are known.

        Raises:
            TernMQError: The broker does not report them.
        """
        if topic.facts is None:
            self.learned(topic, await self._making.found(topic.name))

    def ask(self, topic: TopicLanes, link: Link) -> None:
        """Request the facts of a topic, unless a request is under way."""
        if not topic.asking:
            topic.asking = True
            body = control.encode(control.TopicList(names=[topic.name]))
            link.ask(Command.TOPIC_LIST, body, _Facts(self, topic, link))

    def told(self, topic: TopicLanes, found: control.Topics, link: Link) -> None:
        """Handle the facts of a topic; one that is declared and missing is created first."""
        spec = self._making.lacking(topic.name, found)
        if spec is None:
            self.learned(topic, found)
            return
        if not link.usable:  # it ends
            self.lost(topic)
            return
        body = control.encode(control.TopicCreate(topic=topic.name, spec=spec))
        link.ask(Command.TOPIC_CREATE, body, _Created(self, topic, link))

    def made(self, topic: TopicLanes, link: Link, error: TernMQError | None) -> None:
        """Request the facts of a declared topic after the attempt to create it."""
        if error is None:
            self._making.made(topic.name)
        else:
            self._making.refused(topic.name, error)
        self.lost(topic)  # the answer that came before
        if link.usable:
            self.ask(topic, link)

    def learned(self, topic: TopicLanes, found: control.Topics) -> None:
        """Store the facts of a topic. It is absent if the broker has none, or does not show it."""
        facts = TopicFacts(there=False)
        for info in found.topics:
            if info.spec.name == topic.name:
                spec = info.spec
                facts = TopicFacts(spec.ordered, len(info.queues), spec.ignore_ordering_keys)
        for load in topic.learn(facts):
            self._lay_anew(topic, load)
        for lane in topic.lanes:
            if lane.loads:
                self._producer.touch(lane)

    def failed(self, topic: TopicLanes, error: TernMQError) -> None:
        """Handle the refusal of a request for facts: try again later, or fail the loads."""
        lanes = topic.every()
        if error.retriable:
            for lane in lanes:
                for load in lane.loads:
                    load.last_error = error
            topic.tries += 1
            pause = self._producer.options.backoff.pause(topic.tries)
            self._session.loop.call_later(pause, self._again, topic)
            return
        topic.asking = False
        for lane in lanes:
            while lane.loads:
                self._producer.finish(lane.loads.popleft(), error)
            lane.open = None

    def _again(self, topic: TopicLanes) -> None:
        topic.asking = False
        for lane in topic.every():
            self._producer.touch(lane)

    def lost(self, topic: TopicLanes) -> None:
        """Handle the end of the connection before the answer."""
        topic.asking = False
        for lane in topic.every():
            self._producer.hold(lane)

    # -- placing again

    def _lay_anew(self, topic: TopicLanes, load: Load) -> None:
        """Move the messages of a load that waited for the facts to their lanes."""
        if load.over:
            return
        producer = self._producer
        if isinstance(load, Part):
            many = load.many
            parts = self.parts(topic, many, load.rows, load.lane.queue, load.timeout)
            if len(parts) == 1 and len(parts[0].rows) == len(load.rows):
                load.lane = parts[0].lane
                load.lane.loads.append(load)
                return
            producer.uncount(load)
            many.open_parts += len(parts)
            for part in parts:
                part.deadline = load.deadline
                producer.take_part(part)
            many.part_over()
            return
        assert isinstance(load, Singles)
        producer.uncount(load)
        for message in load.messages:
            try:
                lane = topic.lane_of(message)
            except RefusedError as error:
                lacking = Singles(topic.undecided, load.deadline, load.timeout)
                lacking.add(message)
                producer.count(lacking)
                producer.finish(lacking, error)
                continue
            producer.put_in(lane, message, load.deadline, load.timeout, one_way=load.one_way)

    # -- many

    def parts(
        self, topic: TopicLanes, many: Many, rows: Sequence[int], queue: int | None, timeout: float
    ) -> list[Part]:
        """Split rows of a ``Many`` into loads; the topic's facts are known.

        Messages that the topic does not accept become failures; they keep no others back.

        Args:
            topic: Their topic.
            many: The messages.
            rows: The rows of them to split.
            queue: Queue of bare bodies; other messages have their own choice.
            timeout: Seconds for each.

        Raises:
            UnknownQueue: The queue of bare bodies does not exist.
        """
        placed = self._placed(topic, many, rows, queue)
        return [
            part
            for lane, some in placed.items()
            for part in _cut(lane, many, some, _sizes(many, some), timeout)
        ]

    def _placed(
        self, topic: TopicLanes, many: Many, rows: Sequence[int], queue: int | None
    ) -> dict[Lane, Sequence[int]]:
        """Return rows by lane."""
        messages = many.messages
        if isinstance(messages[0], bytes):
            if topic.laid is not None and topic.laid.ordered:
                self.refuse(
                    topic, many, rows, OrderingKeyRequired(f"topic {topic.name!r} is ordered")
                )
                return {}
            return {topic.of_queue(queue): rows}
        outgoing = cast("Sequence[Outgoing]", messages)
        if (
            topic.only is not None
            and set(map(_QUEUE, outgoing)) == {None}
            and not any(map(_ORDERING_KEY, outgoing))
        ):
            return {topic.only: rows}
        by_lane: dict[Lane, list[int]] = {}
        refused = False
        for row in rows:
            try:
                lane = topic.lane_of(outgoing[row])
            except RefusedError as error:
                self.refuse(topic, many, [row], error)
                refused = True
                continue
            by_lane.setdefault(lane, []).append(row)
        if len(by_lane) == 1 and not refused:
            (lane,) = by_lane
            return {lane: rows}  # as a range, if it is one: later steps are faster
        return dict(by_lane)

    def refuse(
        self, topic: TopicLanes, many: Many, rows: Sequence[int], error: TernMQError
    ) -> None:
        """Fail messages that no lane accepts."""
        part = _part(topic.undecided, many, rows, 0, 0.0)
        many.open_parts += 1
        self._producer.count(part)
        self._producer.finish(part, error)


class _Facts:
    """Receives the facts of a topic, as ``link.Asker``."""

    __slots__ = ("_link", "_placing", "_topic")

    def __init__(self, placing: Placing, topic: TopicLanes, link: Link) -> None:
        self._placing = placing
        self._topic = topic
        self._link = link

    def answered(self, body: bytes) -> None:
        """Pass the facts on."""
        found = control.decode_answer(body, control.Topics)
        self._placing.told(self._topic, found, self._link)

    def refused(self, error: TernMQError) -> None:
        """Pass the refusal on."""
        self._placing.failed(self._topic, error)

    def lost(self) -> None:
        """Pass the end of the connection on."""
        self._placing.lost(self._topic)


class _Created(_Facts):
    """Receives the answer to the creation of a declared topic."""

    __slots__ = ()

    def answered(self, body: bytes) -> None:
        """Report that the topic was created."""
        del body
        self._placing.made(self._topic, self._link, None)

    def refused(self, error: TernMQError) -> None:
        """Report the refusal."""
        if error.retriable:
            super().refused(error)
        else:
            self._placing.made(self._topic, self._link, error)


def not_asked(topic_name: str, error: TernMQError) -> TernMQError:
    """Return the error for messages whose topic's facts could not be requested.

    Without an answer the outcome of a request is unknown, but these messages were not sent.
    """
    if not isinstance(error, ConnectionLost):
        return error
    return CannotConnect(f"nothing was sent to {topic_name!r}: {error.args[0]}")


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
