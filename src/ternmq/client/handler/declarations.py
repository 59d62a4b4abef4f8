"""Declared handlers and topics, before there is a connection, a loop or a thread.

Every error in a declaration is raised here, for ``ternmq`` and ``ternmq.sync`` alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ternmq.client.content.validation import check_positive, whole
from ternmq.client.declaration.source import Source
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.injection import plan_of
from ternmq.client.handler.middleware import Middlewares
from ternmq.client.handler.signature import Function, Signature, place_of, signature_of
from ternmq.model.errors import InvalidHandler, InvalidRequest
from ternmq.model.words import article

_MOST_CONCURRENT: Final = 10_000


@dataclass(slots=True, frozen=True)
class Declaration:
    """A function, and the messages it handles.

    Attributes:
        function: The function, as it was written.
        signature: How it is called.
        source: Topic and group.
        concurrency: Number of messages it handles at one time.
        max_in_flight: Most messages that the client holds unsettled; None: ``concurrency``, plus as
            many as are processed in a moment.
    """

    function: Function
    signature: Signature
    source: Source
    concurrency: int
    max_in_flight: int | None


class Declarations:
    """The handlers of one client, in the order of declaration; one for each topic and group.

    Attributes:
        topics: Declared topics, by name.
        middlewares: Code that runs around handlers, sends and the run.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.middlewares = Middlewares()
        self._by_place: dict[tuple[str, str], Declaration] = {}

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self._by_place.values())

    def __len__(self) -> int:
        return len(self._by_place)

    @property
    def sources(self) -> list[Source]:
        """Topics and groups of the handlers."""
        return [one.source for one in self]

    def declare(self, topics: Iterable[object]) -> None:
        """Declare topics.

        Raises:
            InvalidRequest: A topic of that name is declared with other settings.
        """
        for topic in topics:
            if not isinstance(topic, Topic):
                kind = type(topic).__name__
                raise InvalidRequest(f"only a ternmq.Topic can be declared, not {article(kind)}")
            if self.topics.setdefault(topic.name, topic) != topic:
                raise InvalidRequest(f"topic {topic.name!r} is declared twice, and differently")

    def name_of(self, topic: str | Topic) -> str:
        """Return a topic's name; a ``Topic`` is declared as well.

        Raises:
            InvalidName: It is neither a ``Topic`` nor a valid name.
            InvalidRequest: A topic of that name is declared with other settings.
        """
        if isinstance(topic, Topic):
            self.declare([topic])
        return name_of(topic)

    def add(
        self, function: Function, source: Source, concurrency: int, max_in_flight: int | None
    ) -> Declaration:
        """Declare a handler.

        Raises:
            InvalidHandler: It cannot be called with a message, or there is another handler for that
                topic and group.
            InvalidRequest: ``concurrency`` is out of its bounds.
        """
        if not 1 <= whole("concurrency", concurrency) <= _MOST_CONCURRENT:
            raise InvalidRequest(f"concurrency must be 1 to {_MOST_CONCURRENT}, not {concurrency}")
        if max_in_flight is not None:
            check_positive("max_in_flight", max_in_flight)
        signature = signature_of(function)
        # Its dependencies are checked here, and planned when it runs, with the overrides of that
        # time.
        plan_of(signature.name, signature.injected, is_async=signature.is_async, overrides={})
        declared = Declaration(function, signature, source, concurrency, max_in_flight)
        place = (source.topic, source.group)
        other = self._by_place.get(place)
        if other is not None:
            raise InvalidHandler(
                f"topic {source.topic!r} has a handler for group {source.group!r}: "
                f"{place_of(other.function)}; with {place_of(function)} each would get a share of "
                "the messages. Call both from one handler, or give the second a group of its own"
            )
        self._by_place[place] = declared
        return declared
