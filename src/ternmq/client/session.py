"""A client's session: one connection after the other, under one number.

A connection that is lost is replaced, with a backoff, until the session is closed; the broker keeps
the session (and what was leased in it) for a grace. Members (producer, settler, consumers) are told
of every connection that opens and of every one that is lost, and ask again what was not answered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random
import secrets
from typing import Final, TypeVar

import msgspec

import ternmq
from ternmq.client.link import Link, Waiting
from ternmq.client.options import Options
from ternmq.client.stats import Traffic
from ternmq.model.errors import (
    CannotConnect,
    ClientClosed,
    ClientError,
    ClientForked,
    ConnectionLost,
    TernMQError,
)
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

T = TypeVar("T", bound=msgspec.Struct)

LIBRARY: Final = "ternmq-python"


class Member:
    """A part of the client that is told when connections come and go. Loop only."""

    __slots__ = ()

    def opened(self, link: Link, *, resumed: bool) -> None:
        """A connection is open; ``resumed``: under the session of before, with its leases."""

    def lost(self) -> None:
        """The connection is over; askers of requests on it are told as well."""

    def refused(self, error: TernMQError) -> None:
        """No connection will come: the broker does not want this client."""

    def pushed(self, push: Push) -> None:
        """The broker says something of itself."""

    def writable(self) -> None:
        """More may be written."""

    def asking(self) -> None:
        """Something is about to be asked: what happened before should be told before."""

    def closing(self) -> None:
        """The client is about to close: take no more."""


class Session:
    """See the module. Loop only.

    Attributes:
        number: The session's number; 0 before the first connection.
        library: Name and version of this library.
        language: What it is written in, with the version that runs.
        forked: This is the child of the process that used the session.
        closed: No requests are taken any more.
        traffic: What went over its connections.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.client = secrets.token_hex(16)
        self.number = 0
        self.closed = False
        self.forked = False
        self.draining = False
        self.traffic = Traffic()
        self.members: list[Member] = []
        self.library = f"{LIBRARY} {ternmq.__version__}"
        self.language = f"python {platform.python_version()}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: Link | None = None
        self._welcome: control.Welcome | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._opening: asyncio.Future[Link] | None = None
        self._waiters: set[asyncio.Future[Link]] = set()
        self.failure: TernMQError | None = None
        """Why the last attempt to connect failed."""

    # -- the loop

    @property
    def used(self) -> bool:
        """A loop was bound: there are, or were, connections."""
        return self._loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the client lives in: the one it was used in first.

        Raises:
            ClientError: Nobody used it yet.
        """
        if self._loop is None:
            self.bind()
        loop = self._loop
        assert loop is not None
        return loop

    def bind(self) -> None:
        """Belong to the running loop.

        Raises:
            ClientForked, ClientClosed: It is of no use any more.
            ClientError: It belongs to another loop.
        """
        if self.forked:
            raise ClientForked("this client was connected before the process forked")
        if self.closed:
            raise ClientClosed("the client is closed")
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            raise ClientError("a client belongs to the event loop that it was first used in")

    def renew(self) -> None:
        """Take another name, in a process that was forked before the client was used."""
        self.client = secrets.token_hex(16)

    # -- connections

    @property
    def link(self) -> Link | None:
        """The connection, while there is one that is open."""
        link = self._link
        return link if link is not None and link.usable else None

    @property
    def welcome(self) -> control.Welcome | None:
        """What the broker said of itself last; None before the first connection."""
        return self._welcome

    async def connect(self) -> None:
        """Be connected: one attempt, if there is no connection and none is being made.

        Raises:
            CannotConnect: There is no broker, or it does not answer.
            Unauthenticated: It does not know the app and token; and whatever else it refuses.
        """
        self.bind()
        if self.link is not None:
            return
        if self._connecting is not None:
            await self.opened(self.options.connect_timeout)
            return
        # As a task, so that nobody else begins another one meanwhile.
        self._connecting = attempt = self.loop.create_task(self._attempt())
        try:
            await attempt
        finally:
            self._connecting = None
            if self._waiters and not self.closed:
                self.wake()

    def wake(self) -> None:
        """See that there will be a connection, unless the client is closed."""
        if self.closed or self.forked:
            return
        if self.link is None and self._connecting is None:
            self.bind()
            self._connecting = self.loop.create_task(self._reconnect())

    async def opened(self, timeout: float | None = None, *, to_pull: bool = False) -> Link:
        """Wait for a connection; ``to_pull``: to a broker that is not about to stop.

        Raises:
            CannotConnect: None came in time.
            TernMQError: The broker refused it.
        """
        link = self.link
        if link is not None and not (to_pull and self.draining):
            return link
        self.bind()
        self.wake()
        waiter: asyncio.Future[Link] = self.loop.create_future()
        self._waiters.add(waiter)
        try:
            return await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            why = f": {self.failure.args[0]}" if self.failure else ""
            raise CannotConnect(f"no connection to {self.options.address}{why}") from self.failure
        finally:
            self._waiters.discard(waiter)

    async def _reconnect(self) -> None:
        backoff = self.options.first_backoff
        try:
            while not self.closed:
                try:
                    await self._attempt()
                    return
                except TernMQError as error:
                    if not error.retriable:
                        self._give_up(error)
                        return
                    log.debug("%s; again in %.2f s", error, backoff)
                # Spread, so that a thousand clients do not come back in the same millisecond.
                await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311
                backoff = min(backoff * 2, self.options.longest_backoff)
        finally:
            self._connecting = None

    async def _attempt(self) -> None:
        options, loop = self.options, self.loop
        hello = control.Hello(
            app=options.app,
            token=options.token,
            client=self.client,
            session=self.number,
            library=self.library,
            language=self.language,
            pid=os.getpid(),
        )
        link = Link(loop, self, hello, self.traffic)
        opening: asyncio.Future[Link] = loop.create_future()
        self._link, self._opening = link, opening
        address = options.address
        try:
            async with asyncio.timeout(options.connect_timeout):
                await loop.create_connection(
                    lambda: link, address.host, address.port, ssl=address.ssl_context()
                )
                await opening
        except TimeoutError:
            self._drop(link)
            self.failure = CannotConnect(f"{address} does not answer")
            raise self.failure from None
        except OSError as error:
            self.failure = CannotConnect(f"no broker at {address}: {error}")
            raise self.failure from error
        except TernMQError as error:
            self.failure = error
            raise
        except asyncio.CancelledError:
            self._drop(link)
            raise
        finally:
            self._opening = None

    def _drop(self, link: Link) -> None:
        """End an attempt: that its connection is over means nothing any more."""
        if self._link is link:
            self._link = None
        link.abort()

    def _give_up(self, error: TernMQError) -> None:
        log.error("%s refuses this client: %s", self.options.address, error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        for member in self.members:
            member.refused(error)

    # -- what the link tells

    def link_opened(self, link: Link) -> None:
        """See ``link.Owner``."""
        self._welcome = welcome = link.welcome
        resumed = welcome.resumed
        if self.number and not resumed:
            log.warning("the broker no longer has session %d; what it held is delivered again",
                        self.number)  # fmt: skip
        self.number = welcome.session
        self.traffic.opened += 1
        self.draining = False
        self.failure = None
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(link)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(link)
        for member in self.members:
            member.opened(link, resumed=resumed)
        link.flush()

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """See ``link.Owner``."""
        if link is not self._link:
            return
        self._link = None
        opening = self._opening
        if opening is not None and not opening.done():
            known = error if isinstance(error, TernMQError) else None
            address = self.options.address
            opening.set_exception(
                known or CannotConnect(f"{address} closed the connection at once: {error or ''}")
            )
            return
        for member in self.members:
            member.lost()
        if not self.closed:
            log.info("the connection to %s is lost: %s", self.options.address, error or "closed")
            self.wake()

    def link_pushed(self, link: Link, push: Push) -> None:
        """See ``link.Owner``."""
        if push.command is Command.DRAIN:
            self.draining = True
        for member in self.members:
            member.pushed(push)

    def link_writable(self, link: Link) -> None:
        """See ``link.Owner``."""
        for member in self.members:
            member.writable()

    # -- requests

    async def ask(self, command: Command, body: bytes, timeout: float | None = None) -> bytes:
        """Send a request and return the body of its answer; asked again after a lost connection.

        Raises:
            CannotConnect: There was no connection in time; nothing was asked.
            ConnectionLost: There was no answer in time.
            TernMQError: The broker's refusal; one that may pass later is raised after the timeout.
        """
        self.bind()
        timeout = self.options.timeout if timeout is None else timeout
        until = self.loop.time() + timeout
        backoff = self.options.first_backoff
        while True:
            left = until - self.loop.time()
            link = await self.opened(max(0.0, left))
            waiting = Waiting(self.loop)
            for member in self.members:
                member.asking()
            link.ask(command, body, waiting)
            try:
                async with asyncio.timeout_at(until):
                    return await waiting.future
            except TimeoutError:
                raise ConnectionLost(f"no answer to {command.name} within {timeout:g} s") from None
            except ConnectionLost:
                if self.closed or self.loop.time() >= until:
                    raise
            except TernMQError as error:
                if not error.retriable or self.loop.time() + backoff >= until:
                    raise
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, self.options.longest_backoff)

    async def control(
        self,
        command: Command,
        request: msgspec.Struct,
        answer: type[T],
        timeout: float | None = None,
    ) -> T:
        """Send a control request and return its answer; raises as ``ask`` does."""
        body = await self.ask(command, control.encode(request), timeout)
        return control.decode_answer(body, answer)

    # -- the end

    def closing(self) -> None:
        """Have the members take no more."""
        for member in list(self.members):
            member.closing()

    async def close(self) -> None:
        """Leave: the broker ends the session at once."""
        link = self.link
        self.closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ClientClosed("the client was closed"))
        if link is None:
            return
        waiting = Waiting(self.loop)
        link.ask(Command.BYE, b"", waiting)
        try:
            async with asyncio.timeout(1.0):
                await waiting.future
        except (TimeoutError, TernMQError):
            log.debug("the broker did not answer BYE")
        link.close()
        # Over TLS the broker has a word in it; a loop that ends before would leave the socket open.
        await asyncio.wait([link.over], timeout=1.0)
        if not link.over.done():
            link.abort()
            await asyncio.wait([link.over], timeout=1.0)
