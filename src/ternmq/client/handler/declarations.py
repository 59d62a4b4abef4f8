"""Declared handlers and topics, before there is a connection, a loop or a thread.

Every error in a declaration is raised here, for ``ternmq`` and ``ternmq.sync`` alike.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ternmq.client.consumer.membership import OnAssigned
from ternmq.client.content.validation import check_in_flight, whole
from ternmq.client.declaration.source import Source
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.injection import plan_of
from ternmq.client.handler.middleware import Middlewares
from ternmq.client.handler.signature import (
    Function,
    Signature,
    parameters_of,
    place_of,
    signature_of,
)
from ternmq.client.handler.signature import name_of as name_of_function
from ternmq.client.handler.unawaited import makes_coroutines
from ternmq.client.producer.within import Stores
from ternmq.model.errors import InvalidHandler, InvalidRequest
from ternmq.model.specs import check_name
from ternmq.model.words import article

_MOST_CONCURRENT: Final = 10_000
_BY_PLACE: Final = {
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
}


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


@dataclass(slots=True, frozen=True)
class Checker:
    """A function that answers questions about the transactions of a producer group.

    Attributes:
        function: The function, as it was written.
        is_async: Whether it is awaited in the client's loop; else it runs in a thread.
    """

    function: Function
    is_async: bool


class Declarations:
    """The handlers of one client, in the order of declaration; one for each ``Source.place``.

    Attributes:
        topics: Declared topics, by name.
        middlewares: Code that runs around handlers, sends and the run.
        checkers: Checkers of transactions, by producer group.
        on_assigned: What is called when queues are assigned to the client.
        stores: Databases in which its messages may be written down.
        served: Whether ``run`` has begun; it calls the handlers that were declared before.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.middlewares = Middlewares()
        self.checkers: dict[str, Checker] = {}
        self.on_assigned: list[OnAssigned] = []
        self.stores = Stores()
        self.served = False
        self._by_place: dict[tuple[str, str, str], Declaration] = {}
        key, forget = id(self), _all.pop
        _all[key] = weakref.ref(self, lambda _: forget(key, None))

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
            InvalidHandler: It cannot be called with a message, ``run`` has begun, or there is
                another handler for that topic and group, or broadcast instance.
            InvalidRequest: ``concurrency`` or ``max_in_flight`` is out of its bounds.
        """
        if not 1 <= whole("concurrency", concurrency) <= _MOST_CONCURRENT:
            raise InvalidRequest(f"concurrency must be 1 to {_MOST_CONCURRENT}, not {concurrency}")
        if max_in_flight is not None:
            check_in_flight(max_in_flight)
        signature = signature_of(function)
        # Its dependencies are checked here, and planned when it runs, with the overrides of that
        # time.
        plan_of(signature.name, signature.injected, is_async=signature.is_async, overrides={})
        declared = Declaration(function, signature, source, concurrency, max_in_flight)
        if self.served:
            raise InvalidHandler(
                f"run() has begun, and would not call {place_of(function)}: declare handlers before"
            )
        other = self._by_place.get(source.place)
        if other is not None and source.broadcast:
            name = f"instance {source.instance!r}" if source.instance else "the instance"
            raise InvalidHandler(
                f"topic {source.topic!r} has a broadcast handler for {name} of this client: "
                f"{place_of(other.function)}; {place_of(function)} would be the same instance, and "
                "each message goes to one of them. Call both from one handler, or give the second "
                "an instance= of its own"
            )
        if other is not None:
            raise InvalidHandler(
                f"topic {source.topic!r} has a handler for group {source.group!r}: "
                f"{place_of(other.function)}; with {place_of(function)} each would get a share of "
                "the messages. Call both from one handler, or give the second a group of its own"
            )
        self._by_place[source.place] = declared
        return declared

    def add_checker(self, function: Function, group: str) -> None:
        """Declare the checker of a producer group.

        Raises:
            InvalidHandler: It cannot be called with a transaction, or the group has a checker.
            InvalidName: The group has no valid name.
        """
        check_name(group, "a producer group's name")
        name = f"checker {name_of_function(function)}"
        if not callable(function):
            raise InvalidHandler(f"a checker is a function, not {article(type(function).__name__)}")
        if not _take_one(parameters_of(function, name)):
            raise InvalidHandler(
                f"{name} is called with one argument, the transaction: its parameters do not fit"
            )
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise InvalidHandler(f"{name} is a generator: a checker returns its decision")
        other = self.checkers.get(group)
        if other is not None:
            raise InvalidHandler(
                f"producer group {group!r} has a checker: {place_of(other.function)}; a client has "
                "one for each group"
            )
        self.checkers[group] = Checker(function, _is_async(function))

    def add_on_assigned(self, function: Function) -> None:
        """Declare a function that is called when queues are assigned to the client.

        Raises:
            InvalidHandler: It cannot be called with the queues, or it would have to be awaited.
        """
        name = f"on_assigned function {name_of_function(function)}"
        if not callable(function):
            raise InvalidHandler(
                f"on_assigned takes a function, not {article(type(function).__name__)}"
            )
        if _is_async(function):
            raise InvalidHandler(
                f"{name} is an `async def`, and would not be awaited: make it a `def`; it is "
                "called in the client's event loop and may start a task there: "
                "asyncio.create_task(...)"
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidHandler(f"{name} is a generator, which would not run: make it a `def`")
        try:
            fits = _take_one(inspect.signature(function).parameters.values())
        except (NameError, TypeError, ValueError):
            fits = True  # of a function in C, or with annotations that nobody needs here
        if not fits:
            raise InvalidHandler(
                f"{name} is called with one argument, the AssignedQueues: its parameters do not fit"
            )
        self.on_assigned.append(function)


_all: dict[int, weakref.ref[Declarations]] = {}
"""Those of all clients, by id. A dict is copied in one step, so threads do not interfere."""


def declared_as(function: Function) -> Declaration | None:
    """Return a handler that a function, or one that it wraps, is of any client; None: of none."""
    seen: list[object] = []
    one: object = function
    while one is not None and not any(one is other for other in seen):
        seen.append(one)
        one = getattr(one, "__wrapped__", None)
    for found in [made for ref in list(_all.values()) if (made := ref()) is not None]:
        for declared in list(found._by_place.values()):  # noqa: SLF001 - of this module
            if any(declared.function is one or declared.function == one for one in seen):
                return declared
    return None


def _take_one(parameters: Iterable[inspect.Parameter]) -> bool:
    """Return whether a function with these parameters can be called with one argument."""
    found = list(parameters)
    places = [one for one in found if one.kind in _BY_PLACE]
    needed = [
        one
        for one in found
        if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
    ]
    starred = any(one.kind is one.VAR_POSITIONAL for one in found)
    if not (places or starred) or len(needed) > 1:
        return False
    return not needed or needed[0] in places


def _is_async(function: Function) -> bool:
    """Return whether a call returns a coroutine; also of an object that can be called."""
    called = getattr(function, "__call__", function)  # noqa: B004 - of an instance
    return makes_coroutines(function) or makes_coroutines(called)
