"""Repeats an application's declarations at a broker that lost its data.

``ternmq dev`` keeps no topics and groups when it ends. The first send or join at the next one would
create them with the broker's default settings. So the topics are created first: their requests are
written before any other request of this client over the new connection. Whether another client
created them before, and how, is compared afterwards, as at the first declaration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Member, Session
from ternmq.model.errors import TernMQError
from ternmq.model.specs import TopicSpec
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")


class Declared(Protocol):
    """Something that was applied, or compared, once."""

    def specs(self) -> Iterable[TopicSpec]:
        """Return the topics that must exist."""

    async def again(self) -> None:
        """Apply, or compare, once more."""


class Redeclaring(Member):
    """Repeats the declarations of a session. Not thread-safe: call it from the client's loop."""

    __slots__ = ("_declared", "_failed", "_seen", "_session", "_task")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._declared: dict[int, Declared] = {}
        self._seen = 0
        """``Session.anew`` of the broker where everything is declared."""
        self._task: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] | None = None

    @property
    def anew(self) -> int:
        """Number of times that the broker was found restarted without its data."""
        return self._session.anew

    @property
    def makes_topics(self) -> bool:
        """Whether the broker creates topics at their first use."""
        welcome = self._session.welcome
        return welcome is not None and welcome.create_topics

    def keep(self, key: int, declared: Declared) -> None:
        """Repeat something from now on, in place of what was kept under the same key."""
        if not self._declared:
            self._seen = self._session.anew
            self._session.members.insert(0, self)  # before the members that send
        self._declared[key] = declared

    def begin(self, key: int, declared: Declared) -> None:
        """Do what ``keep`` does, unless something is kept under the key."""
        if key not in self._declared:
            self.keep(key, declared)

    async def through(self) -> None:
        """Wait until the declarations are repeated, or fail.

        At most the timeout of a request: temporary refusals are retried until they pass.
        """
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._session.options.timeout)

    def failed(self) -> asyncio.Future[None]:
        """Return a future that gets the error if a declaration fails; without one it is logged.

        The last caller gets it, unless its future is cancelled.
        """
        self._failed = self._session.loop.create_future()
        return self._failed

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Create the topics first, over a new connection to a broker that lost its data."""
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
            failed.exception()  # marks it as retrieved: its caller may end for another reason
        elif not self._session.closed:
            log.error("what was declared cannot be declared again: %s", error)

    def closing(self) -> None:
        """Stop repeating."""
        if self._task is not None:
            self._task.cancel()


class _Made:
    """Logs that a topic was created again; refusals are left to the comparison."""

    __slots__ = ("_spec",)

    def __init__(self, spec: TopicSpec) -> None:
        self._spec = spec

    def answered(self, body: bytes) -> None:
        """Log the creation."""
        del body
        log.info("topic %s: created again, as declared", self._spec.name)

    def refused(self, error: TernMQError) -> None:
        """Log the refusal."""
        log.debug("topic %s was not created again: %s", self._spec.name, error)

    def lost(self) -> None:
        """Do nothing: the next connection sends the request again."""
