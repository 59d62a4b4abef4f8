"""Topics that a client declared, made by their first use: as they are declared.

Where a broker makes topics on the way (``dev``, tests), the first send or join would make them with
the broker's own settings, and whoever declared others could never run. So a client that finds one
of its declared topics missing asks for it first. Of a topic that is there nothing more is asked
than whoever uses it must know anyway. A broker that makes no topics on the way refuses the use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from ternmq.client.redeclaring import Redeclaring
from ternmq.client.session import Session
from ternmq.client.topic import Topic, spec_of
from ternmq.model.errors import TernMQError, TopicExists
from ternmq.model.specs import TopicSpec
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")


class Making:
    """Knows which topics are to be made, and asks for them. Loop only.

    Args:
        session: Asks.
        declared: The topics that are declared, by name.
        redeclaring: Is told what was used, for a broker that begins anew.
    """

    __slots__ = ("_declared", "_redeclaring", "_refused", "_session", "_used")

    def __init__(
        self, session: Session, declared: Mapping[str, Topic], redeclaring: Redeclaring
    ) -> None:
        self._session = session
        self._declared = declared
        self._redeclaring = redeclaring
        self._refused: set[str] = set()
        """Not asked for again before they were seen."""
        self._used: dict[str, int] = {}
        """With ``Session.anew`` of when they were seen last."""

    async def found(self, name: str) -> control.Topics:
        """Return what the broker says of a topic; one that is declared and missing is made first.

        Raises:
            TernMQError: The broker does not say.
        """
        while True:
            asked = control.TopicList(names=[name])
            found = await self._session.control(Command.TOPIC_LIST, asked, control.Topics)
            spec = self.lacking(name, found)
            if spec is None:
                return found
            create = control.TopicCreate(topic=name, spec=spec)
            try:
                await self._session.control(Command.TOPIC_CREATE, create, control.Nothing)
            except TernMQError as error:
                if error.retriable:
                    raise
                self.refused(name, error)
            else:
                self.made(name)

    async def before_join(self, name: str) -> None:
        """See that a declared topic is there as declared, before a group makes it; asked once.

        What is being declared again is waited for: it changes settings of a group that others made,
        with which joining as declared would be refused.
        """
        await self._redeclaring.through()
        if name in self._declared and self._used.get(name) != self._session.anew:
            await self.found(name)

    def lacking(self, name: str, found: control.Topics) -> TopicSpec | None:
        """Return as what a topic is to be made, or None; ``found`` is what the broker has."""
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
        """The broker made a topic."""
        log.info("topic %s: created, as declared", name)
        self._seen(name)

    def refused(self, name: str, error: TernMQError) -> None:
        """The broker did not make a topic: it is used as it is, or as the broker makes it."""
        self._refused.add(name)
        if not isinstance(error, TopicExists):  # somebody was faster
            log.warning("topic %s is not created as declared: %s", name, error)

    def _seen(self, name: str) -> None:
        self._refused.discard(name)
        self._used[name] = self._session.anew
        self._redeclaring.begin(id(self._declared), self)

    # -- at a broker that began anew, see ``redeclaring.Declared``

    def specs(self) -> Iterable[TopicSpec]:
        """Return the topics that were used."""
        topics = self._declared
        return [spec_of(topics[name]) for name in self._used]

    async def again(self) -> None:
        """Nothing more: who only uses a topic takes it as it is."""
