"""The client: one object through which an application uses a broker."""

from __future__ import annotations

import asyncio
import logging
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

from ternmq.client.admin.lookup import FoundMessage
from ternmq.client.admin.replay import Replayed
from ternmq.client.connection.connecting import why_not_yet
from ternmq.client.connection.options import Options
from ternmq.client.connection.signals import Signals
from ternmq.client.connection.stats import ClientStats
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.running import Running
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.validation import flag, seconds_of
from ternmq.client.declaration.changes import Change
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.declaration.source import Source
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.blocking import BlockingDelivery, Portal
from ternmq.client.handler.composing import compose
from ternmq.client.handler.declarations import Declarations
from ternmq.client.handler.depends import Provider
from ternmq.client.handler.draining import drain
from ternmq.client.handler.handlers import Handler
from ternmq.client.handler.middleware import Lifespan
from ternmq.client.handler.signature import Function
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.process.forking import watch, watched
from ternmq.client.receiving import Receiving
from ternmq.client.topology import Topology
from ternmq.client.transacting import Transacting
from ternmq.model.errors import (
    CannotConnect,
    GroupSettingsMismatch,
    InvalidRequest,
    UnsentMessages,
)
from ternmq.model.specs import Mode, Start

log: Final = logging.getLogger("ternmq")

F = TypeVar("F", bound=Function)

_CLOSE_TIMEOUT: Final = 5.0
_HURRIED_TIMEOUT: Final = 0.5


@looked_after("client")
class Client(Transacting, Receiving):
    """A client of a broker, made by ``ternmq.connect``. It lives in one event loop of one process.

    Making it does no I/O, so handlers can be declared when a module is imported. ``await``,
    ``async with``, ``run()``, or the first use connects. It reconnects by itself, keeps its
    session, and sends again what was not answered.

    Attributes:
        options: Its settings.
        codecs: How bodies are encoded and decoded; others can be registered.
        admin: Manages topics, groups and apps, and shows the state of the broker.
        deadletters: Messages that failed for good.
    """

    def __init__(
        self,
        options: Options,
        codecs: Codecs | None = None,
        declarations: Declarations | None = None,
        *,
        served: bool = False,
    ) -> None:
        super().__init__(options, codecs, declarations, served=served)
        self._handlers: list[Handler] = []
        self._stop: asyncio.Event | None = None
        self._hurry: asyncio.Event | None = None
        self._stopping = False
        self._left: list[Running] | None = None
        self._portal: Portal | None = None
        watch(self)

    def __repr__(self) -> str:
        return f"<Client of {self.options.address}, app {self.options.app!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: make one in each process")

    # -- start and end ----------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connect().__await__()

    async def connect(self) -> Self:
        """Connect. ``await client`` and ``async with client`` do the same.

        Raises:
            CannotConnect: There is no broker at the address.
            Unauthenticated: The broker does not accept app and token.
        """
        await self._session.connect()
        return self

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except UnsentMessages:
            if error is None:
                raise  # else the block's own error is raised; each message was logged

    async def close(self, timeout: float | timedelta | None = None) -> None:
        """Send what waits, report what was settled to the broker, and leave. May be repeated.

        Args:
            timeout: Seconds to wait for sends; None: the client's ``timeout``. After that,
                reporting settles and sends to the broker takes at most 5 s, and leaving 3 s.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were not stored, or their outcome is unknown.
        """
        if timeout is not None:
            timeout = seconds_of("timeout", timeout)
        session = self._session
        if session.closed:
            return
        if not session.used or session.forked:
            session.closed = True
            return
        loop = session.bind()
        self._reporter.stop()
        self._hurry = hurry = self._hurry or asyncio.Event()
        left = await self._drain()
        session.closing()
        if timeout is None:
            timeout = _HURRIED_TIMEOUT if hurry.is_set() else self.options.timeout
        await self._producer.drained(timeout)
        self._producer.give_up()
        close_timeout = _HURRIED_TIMEOUT if hurry.is_set() else _CLOSE_TIMEOUT
        until = loop.time() + close_timeout
        await self._settler.drained(close_timeout)
        if session.link is not None:
            await self._reporter.last(max(0.0, until - loop.time()))
        most = max(0.0, until - loop.time())
        await self._keeper.stop(most, left)
        await session.close(leave=not left)
        self._settler.give_up()
        self._raise_unsent()

    def stats(self) -> ClientStats:
        """Return counts of the client's work so far. No I/O; callable from any thread.

        A client has one connection, which everything shares, and a second one while it holds
        messages whose leases need to be extended. Both stay open while idle, and are opened again
        after they are lost.
        """
        main, aside, producer = self._session.traffic, self._keeper.traffic, self._producer.core
        return ClientStats(
            connections_open=(self._session.link is not None) + self._keeper.connected,
            connections_opened=main.opened + aside.opened,
            reconnects=max(0, main.opened - 1) + max(0, aside.opened - 1),
            requests=main.requests + aside.requests,
            sends=producer.sent_count,
            batches=producer.batch_count,
            resends=producer.resent_count,
            stored=producer.stored_count,
            failed=producer.failed_count,
            bytes_sent=main.bytes_sent + aside.bytes_sent,
            bytes_received=main.bytes_received + aside.bytes_received,
        )

    # -- handlers ---------------------------------------------------------------------------------

    def handler(
        self,
        topic: str | Topic,
        *,
        group: str,
        tags: str | None = None,
        concurrency: int = 16,
        max_in_flight: int | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        retry: RetryPolicy | None = None,
        lease: float | timedelta | None = None,
    ) -> Callable[[F], F]:
        """Declare that a function handles the messages of a group; ``run`` calls it.

        It takes the body, decoded according to its annotation, and optionally a second parameter,
        the delivery: ``ternmq.Delivery`` in an ``async def``; ``ternmq.sync.Delivery`` in a
        ``def``, which runs in a thread. ``pull`` describes the other arguments.

        Args:
            topic: The topic: its name, or a ``Topic``, which this call also declares.
            group: The consumer group.
            tags: Filter; ``declare`` describes how it is applied.
            concurrency: Number of messages handled at one time.
            max_in_flight: Most messages that the client holds unsettled; None: ``concurrency``,
                plus as many as are processed in 0.1 s, up to 1,024.
            mode: Mode of the group.
            start: Where a new group begins.
            retry: When failed messages are delivered again; see ``declare``.
            lease: How long messages are leased, in seconds or as a timedelta, 0.1 s to a day; it is
                extended while they are handled.

        Raises:
            InvalidHandler: The function cannot be called with a message: it has other parameters,
                or an annotation that cannot be resolved. Or the topic and group have a handler.
        """
        name = self._declarations.name_of(topic)
        source = Source(name, group, tags, mode, start, retry, lease)

        def declare(function: F) -> F:
            self._declarations.add(function, source, concurrency, max_in_flight)
            return function

        return declare

    def declare(self, *topics: Topic) -> None:
        """Declare topics that must exist.

        ``run`` creates the missing ones and changes settings that differ. It does the same with the
        filters, retry policies and leases of handlers, if the app may manage them. If the app may
        not, or a mode or start differs, ``run`` ends with ``TopologyMismatch``.
        ``ternmq apply MODULE:CLIENT`` does this ahead of time, or only compares with ``--dry-run``;
        ``apply`` does it from code.

        A topic that is missing at the first send or consume is created as declared, if the broker
        creates topics on first use (``dev``, tests) and the app may manage it. An existing topic is
        used as it is.

        Raises:
            InvalidRequest: A topic of that name is already declared with other settings.
        """
        self._declarations.declare(topics)

    async def apply(self) -> list[Change]:
        """Bring topics and groups to their declared settings, durably; return the changes.

        ``run`` does this by itself, except for missing groups, which it creates by joining them.
        Call this in programs that only send, in tests, and in deployments.

        Raises:
            TopologyMismatch: Something cannot be changed, or this app may not manage it; the text
                names each difference. Nothing was changed, unless the text lists it.
        """
        self._session.bind()
        return await self.topology.apply(self.admin)

    @property
    def topology(self) -> Topology:
        """The declared topics, and the groups of the handlers, for comparison with a broker."""
        return Topology(self._declarations)

    def handler_middleware(self, function: F) -> F:
        """Run a generator that yields once around each call of a handler; a decorator.

        ::

            @client.handler_middleware
            async def timed(delivery: ternmq.Delivery) -> AsyncIterator[None]:
                began = time.monotonic()
                yield  # the handler runs
                print(delivery.topic, time.monotonic() - began)

        The first that is declared is the outermost; a handler's dependencies are made inside all of
        them. An error of the handler is raised at the ``yield``. If the middleware raises another
        one, that one counts; if it catches the error, the message is done. A ``def`` runs where the
        handler runs, in its thread or in the loop, and gets the same kind of delivery. An
        ``async def`` runs in the loop, also around a handler in a thread; if it stops before the
        thread ends, as by ``asyncio.timeout``, its error counts when the thread has ended. A
        function that returns a context manager may be used in place of the generator.

        Raises:
            InvalidHandler: The function is none of these.
        """
        self._declarations.middlewares.around_handlers(function)
        return function

    def send_middleware(self, function: F) -> F:
        """Run a generator that yields once around each message that is sent; a decorator.

        It receives an ``Outbound``: the topic, and the message, whose fields it may change before
        the ``yield``. After the ``yield``, ``outbound.receipt`` has the place of the stored
        message; an error of the send is raised at the ``yield``. It is a ``def`` and runs in the
        client's loop, so it must not block. All sends pass through it except prepared batches.

        Raises:
            InvalidHandler: The function is not such a generator.
        """
        self._declarations.middlewares.around_sends(function)
        return function

    def lifespan(self, function: F) -> F:
        """Run a generator that yields once around ``run``; a decorator.

        The code before the ``yield`` runs before ``run`` connects, and before any handler. The code
        after it runs when the last handler has ended, while the client can still send. It receives
        the client if it has a parameter.

        Raises:
            InvalidHandler: The function is not such a generator.
        """
        self._declarations.middlewares.around_run(function)
        return function

    @property
    def overrides(self) -> dict[Provider, Provider]:
        """Providers that replace others from the next ``run`` on, as in tests."""
        return self._declarations.middlewares.overrides

    def _threaded(self, delivery: Delivery) -> BlockingDelivery:
        """Return a delivery for a handler in a thread. Call it from the client's loop."""
        if self._portal is None:
            self._portal = Portal(self._session.loop, self.options.timeout)
        return BlockingDelivery(delivery, self._portal)

    async def run(self, *, signals: bool | None = None) -> None:
        """Call handlers with messages until ``stop()`` or a signal; then close.

        The signals are SIGTERM, SIGINT, and SIGHUP unless it is ignored. They are taken only in the
        main thread, and not if SIGTERM already has a handler, such as a web server's.

        ``run`` waits for a broker that is not there. On stopping, no more messages are taken, and
        those that were not begun are given back. Running handlers have ``drain_timeout`` to finish;
        then they are cancelled, and those that cannot be (a thread, a coroutine that ignores it)
        are named in the log. Their messages are not delivered again while they run: the lease is
        extended until the handler ends. If this process ends first, the message is delivered again
        by the group's retry policy, and the attempt counts. A second SIGTERM or SIGINT ends the
        process without waiting.

        Args:
            signals: True: take the signals. False: leave them to their handlers; ``stop()`` ends
                ``run``. None: take them unless SIGTERM already has a handler in this process.

        Raises:
            InvalidRequest: There are no handlers.
            TopologyMismatch: A topic or group differs from its declaration; see ``declare``.
            InvalidHandler: No body can be decoded to the type that a handler takes.
            TernMQError: A group cannot be consumed.
        """
        loop = self._session.bind()
        post = loop.call_soon_threadsafe
        with Signals(post, lambda now: self.stop(at_once=now), wanted=signals):
            try:
                await self.serve(self._declarations.middlewares.lifespans)
            finally:
                await self.close()

    async def serve(self, lifespans: Sequence[Lifespan]) -> None:
        """Do what ``run`` does, inside these lifespans; the caller takes signals and closes."""
        if not self._declarations:
            raise InvalidRequest("no handlers are declared: use @client.handler(...)")
        middlewares = self._declarations.middlewares
        composed = [compose(one, middlewares) for one in self._declarations]
        self._handlers = [Handler(one, self.codecs, self._threaded) for one in composed]
        for handler in self._handlers:
            handler.check()
        self._session.bind()
        self._stop = stop = asyncio.Event()
        if self._stopping:
            stop.set()
        self._hurry = self._hurry or asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                await middlewares.enter(stack, lifespans, self)
                stack.push_async_callback(self._drain)
                if await self._arrive(stop):
                    await self.topology.settle(self.admin)
                    try:
                        await self._run_handlers(stop)
                    except GroupSettingsMismatch:  # made meanwhile with other settings
                        await self.topology.settle(self.admin)  # its error names all that differs
                        raise
        finally:
            self._stop = None

    async def _drain(self) -> list[Running]:
        """Stop the handlers, once; return the calls that do not end."""
        if self._left is None:
            self._hurry = self._hurry or asyncio.Event()
            self._left = await drain(self._handlers, self.options.drain_timeout, self._hurry)
        return self._left

    async def _arrive(self, stop: asyncio.Event) -> bool:
        """Connect, waiting for the broker; return False if ``stop`` is set first."""
        told = asyncio.ensure_future(stop.wait())
        try:
            try:
                return await _unless(told, self._session.connect())
            except CannotConnect as error:
                log.warning("no broker at %s yet: waiting for it (%s)", self.options.address,
                            why_not_yet(error))  # fmt: skip
            return await _unless(told, self._session.opened())
        finally:
            told.cancel()

    async def _run_handlers(self, stop: asyncio.Event) -> None:
        welcome = self._session.welcome
        software = "" if welcome is None or not welcome.software else f" ({welcome.software})"
        log.info(
            "connected to broker %s%s at %s%s", "?" if welcome is None else welcome.broker,
            software, self.options.address,
            f" as app {self.options.app}" if self.options.app else "",
        )  # fmt: skip
        for handler in self._handlers:
            await handler.start(self._puller)
        told = asyncio.ensure_future(stop.wait())
        failed = self.admin.redeclaring.failed()
        workers = [task for handler in self._handlers for task in handler.tasks]
        try:
            ends: set[asyncio.Future[Any]] = {told, failed, *workers}
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {told}:
                task.result()
        finally:
            told.cancel()
            failed.cancel()

    def stop(self, *, at_once: bool = False) -> None:
        """End ``run``: no handler is called any more. Callable from any thread.

        If called before ``run``, it ends ``run`` as soon as that begins.

        Args:
            at_once: Do not wait for running handlers: cancel them.
        """
        flag("at_once", at_once)
        self._stopping = True  # a ``serve`` that begins meanwhile checks this
        loop = self._session.known_loop
        if loop is None:
            return
        if loop is running_loop():
            self._stop_here(at_once=at_once)
            return
        with suppress(RuntimeError):  # the loop is closed: nothing runs
            loop.call_soon_threadsafe(partial(self._stop_here, at_once=at_once))

    def _stop_here(self, *, at_once: bool) -> None:
        """Do what ``stop`` does. Call it from the client's loop."""
        for handler in self._handlers:
            handler.take_no_more()
        if self._stop is not None:
            self._stop.set()
        if at_once and self._hurry is not None:
            self._hurry.set()

    # -- looking up -------------------------------------------------------------------------------

    async def get(
        self,
        topic: str | Topic,
        id: str = "",  # noqa: A002
        *,
        queue: int | None = None,
        offset: int | None = None,
    ) -> FoundMessage:
        """Return the message with an id (the broker's, or the application's own), or at an offset.

        Args:
            topic: The topic.
            id: The id.
            queue: Queue of the offset; it may be omitted if the topic has only one.
            offset: Offset in the queue.

        Raises:
            MessageNotFound: There is no such message, or it is no longer kept.
            InvalidRequest: Neither id nor offset is given, or both; or the topic has several queues
                and ``queue`` is missing.
        """
        self._session.bind()
        return await self._lookup.get(topic, id, queue, offset)

    async def find(
        self,
        topic: str | Topic,
        *,
        key: str,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 32,
    ) -> list[FoundMessage]:
        """Return the messages with a key, newest first.

        Args:
            topic: The topic.
            key: The key that they were sent with.
            since: Only those stored at or after this time.
            until: Only those stored before this time.
            limit: Most that are returned.

        Raises:
            InvalidRequest: ``since`` is not before ``until``.
        """
        self._session.bind()
        return await self._lookup.find(topic, key, since, until, limit)

    # -- replay -----------------------------------------------------------------------------------

    async def replay(
        self,
        topic: str | Topic,
        group: str,
        *,
        offsets: range | Iterable[int] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ids: Iterable[str] | None = None,
        queue: int | None = None,
        dry_run: bool = False,
    ) -> Replayed:
        """Deliver messages to a group again, whatever their state; other groups are unaffected.

        They begin a new round: attempts count from 1, and a consumer that holds one of them loses
        it. Messages that the group has not read yet stay unread.

        Args:
            topic: The topic.
            group: The group.
            offsets: Offsets of one queue: ``range(10, 20)``, or any others.
            since: Only messages stored at or after this time.
            until: Only messages stored before this time.
            ids: Only messages with these ids: the broker's, or your own. If several messages have
                the same id of your own, the newest.
            queue: Queue of the offsets; it may be omitted if the topic has only one. With times:
                only this queue, by default all.
            dry_run: Only return what would happen.

        Raises:
            InvalidRequest: Offsets are given, the topic has several queues, and ``queue`` is
                missing.
            ReplayTooLarge: More messages would wait for redelivery than the broker allows. A large
                replay is done in parts: those done before the error stay done.
        """
        self._session.bind()
        return await self._replay.replay(
            topic,
            group,
            offsets=offsets,
            since=since,
            until=until,
            ids=ids,
            queue=queue,
            dry_run=dry_run,
        )

    # -- forks ------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Take a new identity, or become unusable if it was connected. For ``forking``."""
        if self._session.used:
            self._session.leave_behind()
        else:
            self._session.renew()
            self._producer.renew()
            self._prepared_ids.renew()


async def _unless(told: asyncio.Future[Any], connecting: Coroutine[Any, Any, object]) -> bool:
    """Wait for a connection; return False if ``told`` is done first. Raises as ``connecting``."""
    attempt = asyncio.ensure_future(connecting)
    try:
        await asyncio.wait({told, attempt}, return_when=asyncio.FIRST_COMPLETED)
        if not attempt.done():
            return False
        attempt.result()
        return True
    finally:
        attempt.cancel()


def leases_of(port: int) -> list[Lease]:
    """Return the unfinished leases of this process's clients of the broker at a port.

    For the testing kit. Callable from any thread.
    """
    return [
        lease
        for client in watched(Client)
        if client.options.address.port == port
        for lease in client._settler.held()  # noqa: SLF001 - of a class of this module
    ]
