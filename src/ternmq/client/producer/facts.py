"""Requests for the broker's facts about topics."""

from __future__ import annotations

from typing import Protocol

from ternmq.client.connection.link import Link
from ternmq.client.declaration.making import Making
from ternmq.client.producer.lanes import TopicFacts, TopicLanes
from ternmq.model.errors import CannotConnect, ConnectionLost, TernMQError
from ternmq.wire import control
from ternmq.wire.commands import Command


class FactsOwner(Protocol):
    """Receives the outcome of requests for facts: the producer."""

    def learned(self, topic: TopicLanes, facts: TopicFacts) -> None:
        """Handle the facts."""

    def not_learned(self, topic: TopicLanes, error: TernMQError) -> None:
        """Handle a refusal."""

    def not_asked(self, topic: TopicLanes) -> None:
        """Handle the end of a connection before the answer."""


class FactsRequests:
    """Requests facts, and creates declared topics that are missing. Call it in the client's loop.

    Args:
        owner: Receives the outcome.
        making: The declared topics.
    """

    __slots__ = ("_making", "_owner")

    def __init__(self, owner: FactsOwner, making: Making) -> None:
        self._owner = owner
        self._making = making

    async def known(self, topic: TopicLanes, timeout: float | None = None) -> None:
        """Make sure that the facts of a topic are known, within so many seconds.

        Raises:
            TernMQError: The broker does not report them.
        """
        if topic.facts is None:
            found = await self._making.found(topic.name, timeout)
            self._owner.learned(topic, _facts(topic, found))

    def ask(self, topic: TopicLanes, link: Link) -> None:
        """Request the facts of a topic."""
        topic.asking = True
        body = control.encode(control.TopicList(names=[topic.name]))
        link.ask(Command.TOPIC_LIST, body, _Facts(self, topic, link))

    def told(self, topic: TopicLanes, found: control.Topics, link: Link) -> None:
        """Handle the facts of a topic; one that is declared and missing is created first."""
        spec = self._making.lacking(topic.name, found)
        if spec is None:
            self._owner.learned(topic, _facts(topic, found))
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

    def refused(self, topic: TopicLanes, error: TernMQError) -> None:
        """Pass a refusal on."""
        self._owner.not_learned(topic, error)

    def lost(self, topic: TopicLanes) -> None:
        """Pass the end of the connection before the answer on."""
        self._owner.not_asked(topic)


def _facts(topic: TopicLanes, found: control.Topics) -> TopicFacts:
    """Return the facts of a topic. It is absent if the broker has none, or does not show it."""
    facts = TopicFacts(there=False)
    for info in found.topics:
        if info.spec.name == topic.name:
            spec = info.spec
            facts = TopicFacts(
                spec.ordered, len(info.queues), spec.ignore_ordering_keys, levels=spec.levels
            )
    return facts


class _Facts:
    """Receives the facts of a topic, as ``link.Asker``."""

    __slots__ = ("_link", "_requests", "_topic")

    def __init__(self, requests: FactsRequests, topic: TopicLanes, link: Link) -> None:
        self._requests = requests
        self._topic = topic
        self._link = link

    def answered(self, body: bytes) -> None:
        """Pass the facts on."""
        found = control.decode_answer(body, control.Topics)
        self._requests.told(self._topic, found, self._link)

    def refused(self, error: TernMQError) -> None:
        """Pass the refusal on."""
        self._requests.refused(self._topic, error)

    def lost(self) -> None:
        """Pass the end of the connection on."""
        self._requests.lost(self._topic)


class _Created(_Facts):
    """Receives the answer to the creation of a declared topic."""

    __slots__ = ()

    def answered(self, body: bytes) -> None:
        """Report that the topic was created."""
        del body
        self._requests.made(self._topic, self._link, None)

    def refused(self, error: TernMQError) -> None:
        """Report the refusal."""
        if error.retriable:
            super().refused(error)
        else:
            self._requests.made(self._topic, self._link, error)


def not_asked(topic_name: str, error: TernMQError) -> TernMQError:
    """Return the error for messages whose topic's facts could not be requested.

    Without an answer the outcome of a request is unknown, but these messages were not sent.
    """
    if not isinstance(error, ConnectionLost):
        return error
    return CannotConnect(f"nothing was sent to {topic_name!r}: {error.args[0]}")
