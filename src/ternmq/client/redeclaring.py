"""What an application declared, declared again at a broker that began anew.

``ternmq dev`` forgets its topics and groups when it ends. The first send or join at the next one
would make them with the settings that a broker gives by itself. So the topics are made first: their
requests are written before anything else that this client asks over the new connection. Whether
somebody else made them before, and how, is compared afterwards, as when they were declared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from ternmq.client.link import Link
from ternmq.client.session import Member, Session
from ternmq.model.errors import TernMQError
from ternmq.model.specs import TopicSpec
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")


class Declared(Protocol):
    """What was applied, or compared, once."""

    def specs(self) -> Iterable[TopicSpec]:
        """Return the topics that are to be there."""

    async def again(self) -> None:
        """Apply, or compare, once more."""


class Redeclaring(Member):
    """Declares again what was declared over a session. Loop only."""

    __slots__ = ("_declared", "_failed", "_seen", "_session", "_task")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._declared: dict[int, Declared] = {}
        self._seen = 0
        """``Session.anew`` of the broker at which all is declared."""
        self._task: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] | None = None

    @property
    def anew(self) -> int:
        """How often the broker was found to be another."""
        return self._session.anew

    @property
    def makes_topics(self) -> bool:
        """Whether the broker makes topics by their first use."""
        welcome = self._session.welcome
        return welcome is not None and welcome.create_topics

    def keep(self, key: int, declared: Declared) -> None:
        """Declare something again from now on, instead of what was kept under the same key."""
        if not self._declared:
            self._seen = self._session.anew
            self._session.members.insert(0, self)  # before those who send
        self._declared[key] = declared

    def begin(self, key: int, declared: Declared) -> None:
        """Do what ``keep`` does, unless something is kept under the key."""
        if key not in self._declared:
            self.keep(key, declared)

    async def through(self) -> None:
        """Wait until what is being declared again is declared, or cannot be.

        No longer than a request may take: what is refused for now is tried until it passes.
        """
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._session.options.timeout)

    def failed(self) -> asyncio.Future[None]:
        """Return what gets the error if something cannot be declared again; else it is logged.

        Whoever asks last gets it, unless the future is cancelled.
        """
        self._failed = self._session.loop.create_future()
        return self._failed

    def opened(self, link: Link, *, resumed: bool) -> None:
        """See ``Member``."""
        del resumed
        if self._seen == self._session.anew:
            return
        for declared in self._declared.values():
            for spec in declared.specs():
                asked = control.TopicCreate(topic=spec.name, spec=spec)
                link.ask(Command.TOPIC_CREATE, control.encode(asked), _Made(spec))
        if self._task is None:
            self._task = self._session.loop.create_task(self._again())

    async def _again(self) -> None:
        try:
            while self._seen != self._session.anew and not self._session.closed:
                anew = self._session.anew
                try:
                    for declared in list(self._declared.values()):
                        await declared.again()
                except TernMQError as error:
                    if not error.retriable and anew == self._session.anew:
                        self._fail(error)
                        self._seen = anew
                else:
                    self._seen = anew
        finally:
            self._task = None

    def _fail(self, error: TernMQError) -> None:
        failed = self._failed
        if failed is not None and not failed.done():
            failed.set_exception(error)
            failed.exception()  # as retrieved: its asker may end for another reason
        elif not self._session.closed:
            log.error("what was declared cannot be declared again: %s", error)

    def closing(self) -> None:
        """See ``Member``."""
        if self._task is not None:
            self._task.cancel()


class _Made:
    """Says that a topic was made again; what becomes of the others is found by comparing."""

    __slots__ = ("_spec",)

    def __init__(self, spec: TopicSpec) -> None:
        self._spec = spec

    def answered(self, body: bytes) -> None:
        """See ``link.Asker``."""
        del body
        log.info("topic %s: created again, as declared", self._spec.name)

    def refused(self, error: TernMQError) -> None:
        """See ``link.Asker``."""
        log.debug("topic %s was not created again: %s", self._spec.name, error)

    def lost(self) -> None:
        """See ``link.Asker``."""
