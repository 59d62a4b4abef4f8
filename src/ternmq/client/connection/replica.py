"""A session that only reads, from a replica if there is one.

A replica is a broker that follows the primary, and whose copy counts ("member" in the routes): it
has everything that was answered, and shows it a moment later. Without one, the primary is asked: it
knows the routes, so it is asked again every ``SEEK_S`` whether there is one now. A broker that
follows, and whose copy does not count, is asked only if no other broker answers.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from ternmq.client.connection.address import Address
from ternmq.client.connection.known import Known
from ternmq.client.connection.link import Link
from ternmq.client.connection.options import Options
from ternmq.client.connection.session import Session
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

SEEK_S: Final = 30.0
"""Seconds after which it is looked again whether there is a replica, or a better one."""
_chance: Final = random.SystemRandom()


class From(enum.Enum):
    """The broker that reads are answered by."""

    PRIMARY = "primary"
    REPLICA = "replica"


class ReplicaSession(Session):
    """The session for reads from a replica. Not thread-safe, as ``Session``.

    Args:
        options: As for ``Session``.
        served: As for ``Session``.
        known: What the client's other session knows of the brokers; None: there is none.
    """

    only_reads = True

    def __init__(
        self, options: Options, *, served: bool = False, known: Known | None = None
    ) -> None:
        super().__init__(options, served=served)
        self._others_known = known
        self._behind_us: int | None = None
        self._seeking = asyncio.Lock()
        self._sought_at = -math.inf
        """When it was looked last whether there is a replica."""
        self._told = False
        """It was logged that no replica answers."""
        self._not_before = -math.inf
        """Until then the primary is asked: a replica had not what was there."""

    @property
    def behind(self) -> timedelta | None:
        """How far the last answer was behind; None: it was not a replica's, or there was none."""
        return None if self._behind_us is None else timedelta(microseconds=self._behind_us)

    # -- which broker -----------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to a replica, or else to the primary; errors as of ``Session.connect``."""
        await self.ready()

    async def ready(self) -> None:
        """Find a replica, if that was not tried a moment ago. Raises as ``connect``."""
        self.bind()
        if not self._is_ready:
            async with self._seeking:
                if not self._is_ready:
                    await self._seek()

    @property
    def _is_ready(self) -> bool:
        return self.link is not None and self.loop.time() - self._sought_at < SEEK_S

    async def _seek(self) -> None:
        if self._others_known is not None:
            self.known.share(self._others_known)
        await super().connect()
        self._sought_at = self.loop.time()
        welcome = self.welcome
        if welcome is None or not welcome.routes:
            return
        await self._learn_routes()
        if self._is_at_a_replica or not (welcome.follows or self._replicas()):
            self._tell(welcome)
            return
        self._leave()
        await super().connect()
        if self.welcome is not None:
            self._tell(self.welcome)

    async def elsewhere(self) -> bool:
        """Go to the primary for a while: this broker lacks what another one had."""
        now = self.bind().time()
        if now < self._not_before:
            return False
        self._not_before, self._sought_at = now + SEEK_S, now
        log.info("the broker at %s has not got what was read before: the primary is asked",
                 self.address)  # fmt: skip
        self._leave()
        await super().connect()
        return True

    def in_order(self) -> Sequence[Address]:
        """Return the addresses in the order in which they are tried: replicas first."""
        ordered = super().in_order()
        if self.loop.time() < self._not_before:
            return ordered
        replicas = list(self._replicas())
        if self.address in replicas:
            replicas.remove(self.address)
            replicas.insert(0, self.address)
        return [*replicas, *[one for one in ordered if one not in replicas]]

    def _replicas(self) -> Sequence[Address]:
        found = list(self.known.replicas())
        _chance.shuffle(found)  # else all clients ask the same one
        return found

    @property
    def _is_at_a_replica(self) -> bool:
        welcome = self.welcome
        return (
            welcome is not None
            and welcome.follows
            and self.link is not None
            and self.known.is_replica(welcome.broker)
        )

    async def _learn_routes(self) -> None:
        body = await self.ask(Command.ROUTES, control.encode(control.RoutesAsk()))
        self.known.answered(self.address, body)

    def _leave(self) -> None:
        """End the connection; requests without an answer are sent again over the next one."""
        link, self._link = self._link, None
        if link is not None:
            link.abort()

    def _tell(self, welcome: control.Welcome) -> None:
        if not welcome.follows and not self._told:
            log.info("no replica answers reads now: they go to the primary at %s", self.address)
        self._told = not welcome.follows

    # -- events of the link -----------------------------------------------------------------------

    def _hello(self) -> control.Hello:
        hello = super()._hello()
        welcome = self.welcome
        if welcome is not None and welcome.follows:
            hello = msgspec.structs.replace(hello, session=0)  # no other broker knows it
        return msgspec.structs.replace(hello, reads=True)

    def link_opened(self, link: Link) -> None:
        """Start to use a connection."""
        super().link_opened(link)
        if link is self._link and not link.welcome.follows:
            self._behind_us = None

    def link_pushed(self, link: Link, push: Push) -> None:
        """Take how far the broker is behind; pass other pushes on."""
        if push.command is Command.BEHIND:
            self._behind_us = control.decode_answer(push.body, control.Behind).behind_us
            return
        super().link_pushed(link, push)
