"""Which lane a message goes to: what the broker says of topics, and what follows from it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from ternmq.client.lanes import Lane, TopicFacts, TopicLanes
from ternmq.client.link import Link
from ternmq.client.making import Making
from ternmq.client.many import Many, Part
from ternmq.client.outgoing import MESSAGE_BYTES, Load, Outgoing
from ternmq.client.session import Session
from ternmq.client.singles import Singles
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
    from ternmq.client.producer import Producer

_MOST_DOUBLINGS: Final = 10
_SIZE: Final = attrgetter("size_bytes")
_QUEUE: Final = attrgetter("queue")
_ORDERING_KEY: Final = attrgetter("ordering_key")


class Placing:
    """The topics of a producer. Loop only.

    Attributes:
        topics: Them, by name.
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
            InvalidName: It is no name.
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
        """A topic is no longer what it was: it is asked for before the next load."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.facts = None

    # -- what the broker says

    async def known(self, topic: TopicLanes) -> None:
        """See that it is known what a topic is like.

        Raises:
            TernMQError: The broker does not say.
        """
        if topic.facts is None:
            self.learned(topic, await self._making.found(topic.name))

    def ask(self, topic: TopicLanes, link: Link) -> None:
        """Ask what a topic is like, unless that is under way."""
        if not topic.asking:
            topic.asking = True
            body = control.encode(control.TopicList(names=[topic.name]))
            link.ask(Command.TOPIC_LIST, body, _Facts(self, topic, link))

    def told(self, topic: TopicLanes, found: control.Topics, link: Link) -> None:
        """The broker said what a topic is like; one that is declared and missing is made first."""
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
        """The broker made a topic that is declared, or did not: ask what it is like now."""
        if error is None:
            self._making.made(topic.name)
        else:
            self._making.refused(topic.name, error)
        self.lost(topic)  # the answer of before
        if link.usable:
            self.ask(topic, link)

    def learned(self, topic: TopicLanes, found: control.Topics) -> None:
        """The broker said what a topic is like; nothing, if it is not there or not ours to see."""
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
        """The broker did not say what a topic is like."""
        lanes = topic.every()
        if error.retriable:
            for lane in lanes:
                for load in lane.loads:
                    load.last_error = error
            topic.tries += 1
            options = self._producer.options
            pause = options.first_backoff * 2 ** min(topic.tries - 1, _MOST_DOUBLINGS)
            self._session.loop.call_later(min(pause, options.longest_backoff), self._again, topic)
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
        """The connection ended before the broker said what a topic is like."""
        topic.asking = False
        for lane in topic.every():
            self._producer.hold(lane)

    # -- laying anew

    def _lay_anew(self, topic: TopicLanes, load: Load) -> None:
        """Put messages that waited for the facts where they belong."""
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
        """Cut rows of a ``Many`` into loads; of a topic that is known.

        Messages that the topic cannot take are failures from here on; they keep no others back.

        Args:
            topic: Where to.
            many: The messages.
            rows: Those of them that are meant.
            queue: Where bare bodies go; other messages say that themselves.
            timeout: Seconds for each.

        Raises:
            UnknownQueue: There is no queue of the number that bare bodies are to go to.
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
        """Return which rows go where."""
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
            return {lane: rows}  # as a range, if it is one: faster further on
        return dict(by_lane)

    def refuse(
        self, topic: TopicLanes, many: Many, rows: Sequence[int], error: TernMQError
    ) -> None:
        """Messages that no lane takes are not sent."""
        part = _part(topic.undecided, many, rows, 0, 0.0)
        many.open_parts += 1
        self._producer.count(part)
        self._producer.finish(part, error)


class _Facts:
    """Waits for what the broker says of a topic."""

    __slots__ = ("_link", "_placing", "_topic")

    def __init__(self, placing: Placing, topic: TopicLanes, link: Link) -> None:
        self._placing = placing
        self._topic = topic
        self._link = link

    def answered(self, body: bytes) -> None:
        """See ``link.Asker``."""
        found = control.decode_answer(body, control.Topics)
        self._placing.told(self._topic, found, self._link)

    def refused(self, error: TernMQError) -> None:
        """See ``link.Asker``."""
        self._placing.failed(self._topic, error)

    def lost(self) -> None:
        """See ``link.Asker``."""
        self._placing.lost(self._topic)


class _Created(_Facts):
    """Waits for a topic that is made as it is declared."""

    __slots__ = ()

    def answered(self, body: bytes) -> None:
        """See ``link.Asker``."""
        del body
        self._placing.made(self._topic, self._link, None)

    def refused(self, error: TernMQError) -> None:
        """See ``link.Asker``."""
        if error.retriable:
            super().refused(error)
        else:
            self._placing.made(self._topic, self._link, error)


def not_asked(topic_name: str, error: TernMQError) -> TernMQError:
    """Return what it means for messages that it is not known what their topic is like.

    That no answer came to the question leaves what became of a request unknown, but they were none.
    """
    if not isinstance(error, ConnectionLost):
        return error
    return CannotConnect(f"nothing was sent to {topic_name!r}: {error.args[0]}")


def _sizes(many: Many, rows: Sequence[int]) -> list[int]:
    messages = many.messages
    some = messages if len(rows) == len(messages) else [messages[row] for row in rows]
    if some and not isinstance(some[0], bytes):  # then none is
        return list(map(_SIZE, some))
    return list(map(len, cast("Sequence[bytes]", some)))


def _cut(
    lane: Lane, many: Many, rows: Sequence[int], sizes: Sequence[int], timeout: float
) -> list[Part]:
    """Cut rows into loads of at most ``batch_bytes`` and ``batch_rows``, one row at least.

    Of a lane whose loads go alone, the first has one row: what follows is cut anew once the broker
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
    part = Part(lane, 0.0, timeout, many, rows)  # the time begins when it is taken
    part.size_bytes = size_bytes + MESSAGE_BYTES * len(rows)
    return part
