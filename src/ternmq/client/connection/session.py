"""A client's session: one connection after the other, under one number.

A lost connection is replaced, with a backoff, until the session is closed; the broker keeps the
session (and what was leased in it) for a grace. Members (producer, settler, consumers) are notified
of every connection that opens and of every one that is lost, and repeat unanswered requests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
from asyncio import get_running_loop
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from ternmq.client.connection.address import Address
from ternmq.client.connection.connecting import none_in_time
from ternmq.client.connection.known import Known
from ternmq.client.connection.link import Link, Waiting
from ternmq.client.connection.options import Options
from ternmq.client.connection.racing import Race
from ternmq.client.connection.raising import own
from ternmq.client.connection.requests import encoded
from ternmq.client.connection.stats import Traffic
from ternmq.client.content.broker_time import BrokerTime
from ternmq.client.content.validation import seconds_of
from ternmq.model.errors import (
    CannotConnect,
    ClientClosed,
    ClientForked,
    ConnectionLost,
    InvalidRequest,
    NotPrimary,
    TernMQError,
    WrongEventLoop,
)
from ternmq.model.version import __version__
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.frames import HEADER_BYTES
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

_chance: Final = random.SystemRandom()
"""Not ``random`` itself: an application that seeds it wants its own numbers, in its own order."""

T = TypeVar("T", bound=msgspec.Struct)

LIBRARY: Final = "ternmq-python"
_ROUTES_SPREAD_S: Final = 0.5
"""Longest time from the push that the routes have changed to the request for them."""


class Member:
    """A part of the client that is notified of connections. Called in the client's loop."""

    __slots__ = ()

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Handle a new connection; ``resumed``: the session continues, with its leases."""

    def lost(self) -> None:
        """Handle the end of the connection; the askers of its requests are called as well."""

    def refused(self, error: TernMQError) -> None:
        """Handle that no connection will come: the broker refuses this client."""

    def pushed(self, push: Push) -> None:
        """Handle a message that the broker sends on its own."""

    def writable(self) -> None:
        """Handle that more may be written."""

    def asking(self) -> None:
        """Prepare for a request: send first what happened before it."""

    def closing(self) -> None:
        """Take no more: the client is about to close."""


class _RoutesAsker:
    """The asker of ROUTES. Nobody waits for the answer."""

    __slots__ = ("_address", "_known")

    def __init__(self, known: Known, address: Address) -> None:
        self._known = known
        self._address = address

    def answered(self, body: bytes) -> None:
        """Learn from it."""
        self._known.answered(self._address, body)

    def refused(self, error: TernMQError) -> None:
        """Go on with what is known."""
        log.debug("the broker at %s does not tell its routes: %s", self._address, error)

    def lost(self) -> None:
        """Do nothing: the next connection asks again."""


class BeganAnew(Exception):
    """The broker lost its data, and with it the requested object. Never leaves the client."""


class Session:
    """The session of a client. Not thread-safe: call it from the client's loop, unless noted.

    Attributes:
        number: The session's number; 0 before the first connection.
        address: Address of the broker of the last connection; before the first, that of the
            options. Readable from any thread.
        library: Name and version of this library.
        language: Its language, with the running version.
        closed: Whether requests are no longer accepted.
        traffic: Counts the traffic of its connections.
        broker_time: The broker's clock.
        known: The addresses of the broker group. Callable from any thread.
    """

    only_reads = False
    """Whether it may be served by a broker that follows, which may lack what another one had."""

    def __init__(self, options: Options, *, served: bool = False) -> None:
        self._served = served
        self.options = options
        self.client = os.urandom(16).hex()
        self.number = 0
        self.address: Address = options.address
        self.closed = False
        self.draining = False
        self.traffic = Traffic()
        self.broker_time = BrokerTime(options.address.port)
        self.known = Known(options.addresses)
        self.members: list[Member] = []
        self.library = f"{LIBRARY} {__version__}"
        self.language = f"python {sys.version.split()[0]}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0  # process of the loop
        self.home: int | None = None
        """Thread of the loop, once bound; None for the client in ``ternmq.sync``, used by any
        thread."""
        self._link: Link | None = None
        self._welcome: control.Welcome | None = None
        self.anew = 0
        """Number of times that the broker was found restarted without its data."""
        self._connecting: asyncio.Task[None] | None = None
        self._race: Race | None = None
        """The attempt to connect that is under way."""
        self._waiters: set[asyncio.Future[Link]] = set()
        self._trying: set[asyncio.Future[bool]] = set()
        """Futures of callers that wait for one attempt; see ``_tried``."""
        self._hurry = asyncio.Event()
        """Set if a caller waits for the next attempt: it is made without a pause."""
        self._lost_at: float | None = None
        self._opened_at = 0.0
        self._stepped_down = False
        """Whether the last broker was no longer the primary: it is tried last."""
        self._short = 0
        """Number of connections in a row that ended so soon after they were opened."""
        self._routes_due: asyncio.TimerHandle | None = None
        """Asks for the routes again."""
        self.failure: TernMQError | None = None
        """Why the last attempt to connect failed."""

    # -- the loop

    @property
    def used(self) -> bool:
        """Whether a loop was bound: there are, or were, connections."""
        return self._loop is not None

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the session's process. Callable from any thread."""
        return self._loop is not None and self._pid != os.getpid()

    @property
    def known_loop(self) -> asyncio.AbstractEventLoop | None:
        """The client's loop; None: it was not used yet. Callable from any thread."""
        return self._loop

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The client's loop: the one in which it was used first.

        Raises:
            WrongEventLoop: It was not used yet, and no loop runs here.
        """
        if self._loop is None:
            self.bind()
        loop = self._loop
        assert loop is not None
        return loop

    def bind(self) -> asyncio.AbstractEventLoop:
        """Bind to the running loop, and return it.

        Raises:
            ClientForked, ClientClosed: The client is no longer usable.
            WrongEventLoop: It is bound to another loop, or none runs here.
        """
        loop = self._loop
        if loop is not None and not self.closed:  # the rule; asked for every message
            try:
                if get_running_loop() is loop:
                    return loop
            except RuntimeError:
                pass  # none runs in this thread: raised below
        if self.closed and not self.forked:
            raise ClientClosed("the client is closed")
        if loop is None:
            self._loop = _running()
            if not self._served:
                self.home = threading.get_ident()
            self._pid = os.getpid()
            return self._loop
        return self.here()

    def here(self) -> asyncio.AbstractEventLoop:
        """Return the client's loop; it is the one that runs here.

        Raises:
            ClientForked: The client belongs to another process.
            WrongEventLoop: It belongs to another loop, or none runs here.
        """
        try:
            running = asyncio.get_running_loop()
            if running is self._loop:  # checked for every message
                return running
        except RuntimeError:
            pass  # none runs in this thread: raised below
        if self.forked:
            raise ClientForked("this client was connected before the process forked")
        _running()
        loop = self._loop
        if loop is None:
            raise WrongEventLoop("the client was not used in an event loop yet")
        state = "has ended" if loop.is_closed() else "is not this one"
        raise WrongEventLoop(f"the event loop that the client was first used in {state}")

    def renew(self) -> None:
        """Take a new client id, in a process that was forked before the client was used."""
        self.client = os.urandom(16).hex()

    def leave_behind(self) -> None:
        """Become unusable: this process was forked from the one that used the client."""
        self._pid = -1  # no process: process numbers are reused
        if self._link is not None:
            self._link.leave_behind()
        if self._race is not None:
            self._race.leave_behind()

    # -- connections

    @property
    def link(self) -> Link | None:
        """The connection, if one is open."""
        link = self._link
        return link if link is not None and link.usable else None

    @property
    def welcome(self) -> control.Welcome | None:
        """The broker's last WELCOME; None before the first connection."""
        return self._welcome

    async def connect(self) -> None:
        """Connect, if there is no connection: one attempt, or the one that is under way.

        An attempt that waits for its backoff is made at once. If brokers answer, but none is the
        primary now, the client goes on trying until its timeout: one may be about to take over.

        Raises:
            CannotConnect: There is no broker, or it does not answer.
            Unauthenticated: The broker does not accept the app and token; or another refusal.
            ClientClosed: The client was closed, before or meanwhile.
        """
        try:
            await self._connect()
        except NotPrimary:
            pass  # an error raised here would refer to this one: see ``raising``
        else:
            return
        await self.opened(self.options.timeout)

    async def _connect(self) -> None:
        """Connect, with one attempt; raises as ``connect``, and NotPrimary."""
        self.bind()
        while self._connecting is not None and not self._connecting.done():
            if self.link is not None or await self._tried():
                return
        if self.link is not None:
            return
        # As a task, so that no other caller begins another one meanwhile.
        self._connecting = attempt = self.loop.create_task(self._attempt())
        lost_again = False
        try:
            await attempt
            lost_again = self.link is None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not self.closed or caller is None or caller.cancelling():
                raise
            raise ClientClosed("the client was closed") from None  # only the attempt was cancelled
        finally:
            if self._connecting is attempt:
                self._connecting = None
                if (self._waiters or lost_again) and not self.closed:
                    self.wake()
            del attempt  # see ``raising``

    async def _tried(self) -> bool:
        """Wait for the attempt that is under way or due; False: it was cancelled.

        Raises:
            TernMQError: Why it failed.
        """
        told: asyncio.Future[bool] = self.loop.create_future()
        self._trying.add(told)
        self._hurry.set()
        try:
            return await told
        finally:
            self._trying.discard(told)
            del told  # see ``raising``

    def wake(self) -> None:
        """Begin to connect, if there is no connection and the client is open."""
        if self.closed or self.forked:
            return
        if self.link is None and self._connecting is None:
            self.bind()
            self._connecting = self.loop.create_task(self._reconnect())

    async def opened(self, timeout: float | None = None, *, to_pull: bool = False) -> Link:
        """Wait for a connection; with ``to_pull``, to a broker that is not about to stop.

        Raises:
            CannotConnect: There was none in time.
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
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError:
            pass  # an error raised here would refer to this one: see ``raising``
        finally:
            self._waiters.discard(waiter)
            del waiter
        failure = self.obstacle
        # The error of the last attempt would say the same once more: its cause is shown.
        cause = None if failure is None else failure.__cause__
        raise none_in_time(self.options.addresses, failure) from cause

    @property
    def obstacle(self) -> TernMQError | None:
        """Why there is no connection: the last failure, or what the attempt under way waits for."""
        if self.failure is None and self._race is not None:
            return self._race.obstacle()
        return self.failure

    async def _reconnect(self) -> None:
        backoff = self.options.backoff
        try:
            # It accepts HELLO and refuses requests: not to be tried hundreds of times a second.
            if self._short:
                await self._rest(backoff.pause(self._short))
            for pause in backoff.pauses():
                if self.closed:
                    return
                try:
                    await self._attempt()
                    if self.link is not None:  # else it was lost again meanwhile
                        return
                except TernMQError as error:
                    if not error.retriable:
                        self._give_up(error)
                        return
                    log.debug("%s; again in %.2f s", error, pause)
                await self._rest(pause)
        finally:
            self._connecting = None

    async def _rest(self, pause: float) -> None:
        """Wait before an attempt; a caller that waits for one ends the pause."""
        # Randomized, so that a thousand clients do not return in the same millisecond.
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause * _chance.uniform(0.5, 1.0)):
                await self._hurry.wait()

    async def _attempt(self) -> None:
        try:
            await self._open()
        except asyncio.CancelledError:
            self._tell_tried(False)
            raise
        except Exception as error:
            self._tell_tried(error)
            raise
        self._tell_tried(True)

    def _tell_tried(self, outcome: bool | Exception) -> None:
        for told in self._trying:
            if told.done():
                continue
            if isinstance(outcome, Exception):
                told.set_exception(own(outcome))
            else:
                told.set_result(outcome)

    async def _open(self) -> None:
        race = Race(self.loop, self.options, self.in_order(), self._new_link, self.known)
        self._race = race
        try:
            await race.run()
        except TernMQError as error:
            self.failure = own(error)
            raise
        finally:
            self._race = None

    def in_order(self) -> Sequence[Address]:
        """Return the addresses in the order in which they are tried. Callable from any thread."""
        return self.known.in_order(self.address, stepped_down=self._stepped_down)

    def _new_link(self) -> Link:
        return Link(self.loop, self, self._hello(), self.traffic)

    def _hello(self) -> control.Hello:
        options = self.options
        return control.Hello(
            app=options.app,
            token=options.token,
            client=self.client,
            session=self.number,
            library=self.library,
            language=self.language,
            pid=os.getpid(),
            routes=True,
        )

    def _give_up(self, error: TernMQError) -> None:
        # At DEBUG: waiting callers get the error, later ones get it from their own attempt.
        log.debug("%s refuses this client: %s", self.options.url, error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(own(error))
        for member in self.members:
            member.refused(error)

    # -- events of the link

    def link_opened(self, link: Link) -> None:
        """Start to use a connection: notify members and waiting callers."""
        address = self._accepted(link)
        if address is None:  # another broker was faster, or it was too late
            link.abort()
            return
        self._link = link
        last, self.address = self.address, address
        self._opened_at = self.loop.time()
        self._stepped_down = False
        before, self._welcome = self._welcome, link.welcome
        welcome = link.welcome
        greeted_us = link.greeted_us
        if address != last:
            greeted_us = self.broker_time.follow(address.port, greeted_us)
        self.broker_time.told(welcome.now_us, greeted_us)
        resumed = welcome.resumed
        if self._lost_at is not None:
            before_it = "it was at" if self.only_reads else "the primary was"
            log.info(
                "connected to %s%s after %.1f s%s%s", address,
                " again" if address == last else "",
                self._opened_at - self._lost_at,
                "" if address == last else f"; {before_it} {last}",
                "" if resumed or self.only_reads else
                ", with a new session: the broker no longer has the old one",
            )  # fmt: skip
            if before is not None and before.software != welcome.software:
                log.info("the broker runs %s now", welcome.software or "an older version")
            self._lost_at = None
        if before is not None and _is_another(before, welcome):
            self.anew += 1
            log.warning("the broker at %s has a new journal: all that was stored before is gone",
                        address)  # fmt: skip
        self.number = welcome.session
        self.traffic.opened += 1
        self.draining = False
        self.failure = None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(link)
        for member in self.members:
            member.opened(link, resumed=resumed)
        if welcome.routes:
            self._ask_routes(link)  # behind what the members have to say
        link.flush()

    def _accepted(self, link: Link) -> Address | None:
        """Return the address of a link that is to be used from now on; None: it is not."""
        race = self._race
        address = None if race is None else race.address_of(link)
        if race is None or address is None:
            return None
        try:
            self.known.check(address, link.welcome)
        except CannotConnect as error:
            race.lost(link, error)
            return None
        if race.accepts(link) is None:
            return None
        self.known.serves(address, link.welcome)
        return address

    def _ask_routes(self, link: Link) -> None:
        """Ask the broker for the routes, if the link is still in use."""
        self._routes_due = None
        if link is self.link:
            asker = _RoutesAsker(self.known, self.address)
            link.ask(Command.ROUTES, control.encode(control.RoutesAsk()), asker)

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """Report the end of a connection, and begin to connect again."""
        if link is not self._link:
            if self._race is not None:
                self._race.lost(link, error)
            return
        self._link = None
        if self._routes_due is not None:
            self._routes_due.cancel()
            self._routes_due = None
        self._stepped_down = isinstance(error, NotPrimary)
        soon = self.loop.time() - self._opened_at < self.options.longest_backoff
        self._short = self._short + 1 if self._stepped_down and soon else 0
        for member in self.members:
            member.lost()
        if not self.closed:
            self._lost_at = self.loop.time()
            log.info("the connection to %s is lost: %s; connecting again", self.address,
                     error or "the broker closed it")  # fmt: skip
            self.wake()

    def link_pushed(self, link: Link, push: Push) -> None:
        """Pass a message of the broker on to the members."""
        if link is not self._link:  # HELLO is about to be refused
            address = None if self._race is None else self._race.address_of(link)
            if address is not None:
                self.known.pushed(address, push)
            return
        if push.command is Command.ROUTES_CHANGED:
            # Not at once: a thousand clients are told in the same moment.
            if self._routes_due is None:
                pause = _chance.uniform(0.0, _ROUTES_SPREAD_S)
                self._routes_due = self.loop.call_later(pause, self._ask_routes, link)
        elif push.command is Command.DRAIN:
            self.draining = True
            log.info("the broker at %s is about to stop", self.address)
        elif push.command is Command.CLOCK_MOVED:
            moved = control.decode_answer(push.body, control.ClockMoved)
            log.info("the time of the broker at %s jumped", self.address)
            self.broker_time.moved(moved.now_us)
            link.ping()
        for member in self.members:
            member.pushed(push)

    def link_writable(self, link: Link) -> None:
        """Notify the members that more may be written."""
        for member in self.members:
            member.writable()

    # -- requests

    async def ready(self) -> None:
        """Prepare for a read; see ``ReplicaSession``."""

    async def elsewhere(self) -> bool:
        """Return whether another broker is asked from now on: this one lacks what was there."""
        return False

    async def ask(
        self,
        command: Command,
        body: bytes,
        timeout: float | timedelta | None = None,
        *,
        anew: int | None = None,
        definite: bool = False,
    ) -> bytes:
        """Send a request and return the body of its answer; repeat it after a lost connection.

        Args:
            command: The command.
            body: Body of the request.
            timeout: Seconds in all; None: as in the options.
            anew: ``Session.anew`` when the object of the request was found, if the request would be
                meaningless at a broker that lost its data since; None: it may be sent there too.
            definite: Whether any error but ``ConnectionLost`` must mean that nothing was done: once
                the request was sent, what prevents a new connection is raised as its cause.

        Raises:
            BeganAnew: The broker has lost its data since.
            InvalidRequest: It is larger than the broker takes; nothing was sent.
            CannotConnect: There was no connection in time; nothing was sent.
            ConnectionLost: There was no answer in time.
            TernMQError: The broker refused it; a temporary refusal is raised after the timeout.
        """
        self.bind()
        timeout = self.options.timeout if timeout is None else seconds_of("timeout", timeout)
        until = self.loop.time() + timeout
        pauses = self.options.backoff.pauses()
        lost = sent = False
        while True:
            left = until - self.loop.time()
            try:
                link = await self.opened(max(0.0, left))
            except TernMQError as error:
                if not (definite and sent):
                    raise
                raise ConnectionLost(f"no answer to {command.name}: {error.args[0]}") from error
            _check_size(command, body, link.welcome.frame_bytes)
            if anew is not None and anew != self.anew:
                raise BeganAnew("the broker has new data: nothing that was stored before is there")
            waiting = Waiting(self.loop)
            for member in self.members:
                member.asking()
            link.ask(command, body, waiting)
            sent, asked_at = True, self.loop.time()
            try:
                async with asyncio.timeout_at(until):
                    return await waiting.future
            except TimeoutError:
                break  # an error raised here would refer to this one: see ``raising``
            except ConnectionLost:
                # The first loss costs no time; a request that ends each connection must not make
                # the client connect hundreds of times a second.
                pause = next(pauses) if lost else 0.0
                lost = True
                if self.closed or self.loop.time() + pause >= until:
                    raise
                await asyncio.sleep(pause)
            except TernMQError as error:
                sent = lost
                # Not asked again if the answer would hardly come in time: the outcome of a request
                # without an answer is not known, and this refusal is better than that.
                pause = next(pauses)
                now = self.loop.time()
                if not error.retriable or now + pause + 2 * (now - asked_at) >= until:
                    raise
                await asyncio.sleep(pause)
            finally:
                del waiting  # see ``raising``
        raise ConnectionLost(f"no answer to {command.name} within {round(timeout, 3):g} s")

    async def control(
        self,
        command: Command,
        request: msgspec.Struct,
        answer: type[T],
        timeout: float | timedelta | None = None,
        *,
        definite: bool = False,
    ) -> T:
        """Send a control request and return its answer; arguments and errors as of ``ask``."""
        body = await self.ask(command, encoded(request), timeout, definite=definite)
        return control.decode_answer(body, answer)

    # -- the end

    def closing(self) -> None:
        """Notify the members that the client is about to close."""
        for member in list(self.members):
            member.closing()

    async def close(self, *, leave: bool = True) -> None:
        """End the connection, and the session with it.

        Args:
            leave: False: the session goes on, over an auxiliary connection.
        """
        link = self.link
        self.closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ClientClosed("the client was closed"))
        self._tell_tried(ClientClosed("the client was closed"))
        if link is None:
            return
        if leave:
            await self._say_bye(link)
        link.close()
        # TLS closes only after the broker's answer; a loop that ends first leaves the socket open.
        await asyncio.wait([link.over], timeout=1.0)
        if not link.over.done():
            link.abort()
            await asyncio.wait([link.over], timeout=1.0)

    async def _say_bye(self, link: Link) -> None:
        waiting = Waiting(self.loop)
        link.ask(Command.BYE, b"", waiting)
        try:
            async with asyncio.timeout(1.0):
                await waiting.future
        except (TimeoutError, TernMQError):
            log.debug("the broker did not answer BYE")


def _running() -> asyncio.AbstractEventLoop:
    """Return the loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise WrongEventLoop(
            "no event loop runs in this thread; use ternmq.sync in code without an event loop"
        ) from None


def _is_another(before: control.Welcome, now: control.Welcome) -> bool:
    """Return whether the broker lost its data since the previous connection.

    A broker with durable data never does: what a client does not find there, an operator has
    deleted.
    """
    return (before.forgets or now.forgets) and before.epoch != now.epoch


def _check_size(command: Command, body: bytes, most: int) -> None:
    """Refuse a request that is too large: the broker would end the connection."""
    size = HEADER_BYTES + len(body)
    if size > most:
        raise InvalidRequest(
            f"{command.name} is a request of {size:,} bytes; the broker takes at most {most:,}"
        )
