"""Topics that a client declared, created with their declared settings at their first use.

Where a broker creates topics on first use (``dev``, tests), the first send or join would create
them with the broker's own settings, and a client that declared others could never run. So a client
that finds one of its declared topics missing creates it first. An existing topic is
used as it is, without a comparison. A broker that does not create topics on first use refuses the
use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from ternmq.client.connection.session import Session
from ternmq.client.declaration.redeclaring import Redeclaring
from ternmq.client.declaration.topic import Topic, spec_of
from ternmq.model.errors import TernMQError, TopicExists
from ternmq.model.specs import TopicSpec
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")


class Making:
    """Creates declared topics that are missing. Not thread-safe: call it from the client's loop.

    Args:
        session: Sends the requests.
        declared: The declared topics, by name.
        redeclaring: Gets the used topics, for a broker that loses its data.
    """

    __slots__ = ("_declared", "_redeclaring", "_refused", "_session", "_used")

    def __init__(
        self, session: Session, declared: Mapping[str, Topic], redeclaring: Redeclaring
    ) -> None:
        self._session = session
        self._declared = declared
        self._redeclaring = redeclaring
        self._refused: set[str] = set()
        """Topics not to create again until they are seen."""
        self._used: dict[str, int] = {}
        """By topic: ``Session.anew`` when it was seen last."""

    async def found(self, name: str, timeout: float | None = None) -> control.Topics:
        """Return the broker's data on a topic; create it first if it is declared and missing.

        Args:
            name: Of the topic.
            timeout: Seconds in all; None: the client's for each request.

        Raises:
            TernMQError: The broker does not answer.
        """
        loop = self._session.loop
        until = None if timeout is None else loop.time() + timeout

        def left() -> float | None:
            return None if until is None else max(0.0, until - loop.time())

        while True:
            asked = control.TopicList(names=[name])
            found = await self._session.control(Command.TOPIC_LIST, asked, control.Topics, left())
            spec = self.lacking(name, found)
            if spec is None:
                return found
            create = control.TopicCreate(topic=name, spec=spec)
            try:
                await self._session.control(Command.TOPIC_CREATE, create, control.Nothing, left())
            except TernMQError as error:
                if error.retriable:
                    raise
                self.refused(name, error)
            else:
                self.made(name)

    async def before_join(self, name: str) -> None:
        """Create a missing declared topic before a join would create it; one request each.

        Redeclaration is waited for: it changes settings of groups that other clients made, which
        would refuse a join with the declared settings.
        """
        await self._redeclaring.through()
        if name in self._declared and self._used.get(name) != self._session.anew:
            await self.found(name)

    def lacking(self, name: str, found: control.Topics) -> TopicSpec | None:
        """Return the settings for creating a topic, or None; ``found`` is the broker's answer."""
        topic = self._declared.get(name)
        if topic is None:
            return None
        if any(info.spec.name == name for info in found.topics):
            self._seen(name)
            return None
        welcome = self._session.welcome
        if name in self._refused or welcome is None or not welcome.create_topics:
            return None
        return spec_of(topic)

    def made(self, name: str) -> None:
        """Note that the broker created a topic."""
        log.info("topic %s: created, as declared", name)
        self._seen(name)

    def refused(self, name: str, error: TernMQError) -> None:
        """Note that the broker did not create a topic: it will be used as the broker has it."""
        self._refused.add(name)
        if not isinstance(error, TopicExists):  # another client was faster
            log.warning("topic %s is not created as declared: %s", name, error)

    def _seen(self, name: str) -> None:
        self._refused.discard(name)
        self._used[name] = self._session.anew
        self._redeclaring.begin(id(self._declared), self)

    # -- ``redeclaring.Declared``, for a broker that lost its data

    def specs(self) -> Iterable[TopicSpec]:
        """Return the settings of the topics that were used."""
        topics = self._declared
        return [spec_of(topics[name]) for name in self._used]

    async def again(self) -> None:
        """Do nothing more: an existing topic is used as it is."""
