"""The client: one object for all that an application does with a broker."""

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

from ternmq.client.again import Replayed
from ternmq.client.blocking import BlockingDelivery, Portal
from ternmq.client.changes import Change
from ternmq.client.codecs import Codecs
from ternmq.client.composing import compose
from ternmq.client.connecting import why_not_yet
from ternmq.client.declarations import Declarations
from ternmq.client.delivery import Delivery
from ternmq.client.depends import Provider
from ternmq.client.draining import drain
from ternmq.client.forking import watch, watched
from ternmq.client.handlers import Handler
from ternmq.client.lease import Lease
from ternmq.client.lookup import FoundMessage
from ternmq.client.middleware import Lifespan
from ternmq.client.options import Options
from ternmq.client.policy import RetryPolicy
from ternmq.client.receiving import Receiving
from ternmq.client.running import Running
from ternmq.client.signals import Signals
from ternmq.client.signature import Function
from ternmq.client.source import Source
from ternmq.client.stats import ClientStats
from ternmq.client.topic import Topic
from ternmq.client.topology import Topology
from ternmq.client.transacting import Transacting
from ternmq.client.unawaited import looked_after
from ternmq.client.validation import flag, seconds_of
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

    Making it does no I/O, so that handlers can be declared when a module is imported. ``await``,
    ``async with``, ``run()``, or the first use connects. It connects again by itself, keeps its
    session, and sends again what was not answered.

    Attributes:
        options: What it was made with.
        codecs: How bodies are encoded and decoded; others can be registered.
        admin: Topics, groups, apps, and how the broker is.
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

    # -- its life ---------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connect().__await__()

    async def connect(self) -> Self:
        """Be connected; done by ``await client`` and ``async with client``.

        Raises:
            CannotConnect: There is no broker at the address.
            Unauthenticated: It does not know app and token.
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
                raise  # else the block's own error is what is raised; each message was logged

    async def close(self, timeout: float | timedelta | None = None) -> None:
        """Send what waits, tell the broker what was settled, and leave. Closing twice is allowed.

        Args:
            timeout: Seconds to wait for sends; None: the client's ``timeout``. Then the broker is
                told what was settled and sent, for 5 s at most, and 3 s to leave.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were not stored, or that is not known.
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
        """Return what the client did so far; costs nothing, asks nobody. Any thread.

        A client has one connection, which everything shares, and a second one while it holds
        messages whose leases need to be extended. Both are kept while nothing happens, and made
        anew when they are lost.
        """
        main, aside, producer = self._session.traffic, self._keeper.traffic, self._producer
        return ClientStats(
            connections_open=(self._session.link is not None) + self._keeper.connected,
            connections_opened=main.opened + aside.opened,
            reconnects=max(0, main.opened - 1) + max(0, aside.opened - 1),
            requests=main.requests + aside.requests,
            sends=producer.sent_count,
            batches=producer.batch_count,
            resends=producer.resending.count,
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

        It takes the body, decoded as its annotation says, and a second parameter, the delivery, if
        it has one: ``ternmq.Delivery`` in an ``async def``; ``ternmq.sync.Delivery`` in a ``def``,
        which runs in a thread. See ``pull`` for the other arguments.

        Args:
            topic: The topic: its name, or a ``Topic``, which is declared by it.
            group: The consumer group.
            tags: Filter; see ``declare`` for what is done about it.
            concurrency: How many messages are handled at one time.
            max_in_flight: Most messages that are here and not settled; None: ``concurrency``,
                and besides them as many as are done in 0.1 s, up to 1,024.
            mode: Mode of the group.
            start: Where a new group begins.
            retry: When failed messages come again; see ``declare``.
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
        """Declare topics that are to be there.

        ``run`` makes those that are missing and changes settings that differ, and does the same
        with the filters, retry policies and leases that handlers state, if the app may manage them.
        If it may not, or a mode or start differs, ``run`` ends with ``TopologyMismatch``.
        ``ternmq apply MODULE:CLIENT`` does it ahead of time, with ``--dry-run`` it only compares;
        ``apply`` does it from code.

        A topic that is missing when it is first sent to or consumed is made as declared, where the
        broker makes topics on the way (``dev``, tests) and the app may manage it. One that is there
        is taken as it is.

        Raises:
            InvalidRequest: A topic of that name is declared with other settings.
        """
        self._declarations.declare(topics)

    async def apply(self) -> list[Change]:
        """Make topics and groups what is declared; durable when it returns. Returns what was done.

        ``run`` does it by itself, save for groups that are not there, which it makes by joining.
        This is for whoever only sends, for tests, and for deployments.

        Raises:
            TopologyMismatch: Something cannot be changed, or this app may not manage it; the text
                names each difference. Nothing was changed then, unless the text says what was.
        """
        self._session.bind()
        return await self.topology.apply(self.admin)

    @property
    def topology(self) -> Topology:
        """What was declared, to be held against a broker: topics, and the groups of handlers."""
        return Topology(self._declarations)

    def handler_middleware(self, function: F) -> F:
        """Have a generator that yields once run around each call of a handler; a decorator.

        ::

            @client.handler_middleware
            async def timed(delivery: ternmq.Delivery) -> AsyncIterator[None]:
                began = time.monotonic()
                yield  # the handler runs
                print(delivery.topic, time.monotonic() - began)

        The first that is declared is the outermost; what handlers depend on is made inside all of
        them. An error of the handler is raised at the ``yield``; if the middleware raises another
        one, that counts, and if it swallows it, the message is done. A ``def`` runs where the
        handler runs and gets its kind of delivery: in the handler's thread, or in the loop. An
        ``async def`` runs in the loop, around a handler in a thread as well; if it gives up before
        the thread is through, as by ``asyncio.timeout``, its error counts when the thread has
        ended. A function that returns a context manager may stand in for the generator.

        Raises:
            InvalidHandler: It is none of these.
        """
        self._declarations.middlewares.around_handlers(function)
        return function

    def send_middleware(self, function: F) -> F:
        """Have a generator that yields once run around each message that is sent; a decorator.

        It is given an ``Outbound``: the topic, and the message, whose fields may be changed before
        the ``yield``. Behind it ``outbound.receipt`` says where the message is stored; an error of
        the send is raised at the ``yield``. It is a ``def``, and runs in the client's loop, so it
        must not wait. All ways to send pass through it but prepared batches.

        Raises:
            InvalidHandler: It is no such function.
        """
        self._declarations.middlewares.around_sends(function)
        return function

    def lifespan(self, function: F) -> F:
        """Have a generator that yields once run around ``run``; a decorator.

        What stands before the ``yield`` runs before ``run`` connects, and before any handler; what
        stands behind it when the last handler has ended, while the client can still send. It is
        given the client if it has a parameter.

        Raises:
            InvalidHandler: It is no such function.
        """
        self._declarations.middlewares.around_run(function)
        return function

    @property
    def overrides(self) -> dict[Provider, Provider]:
        """Providers that stand in for others from the next ``run`` on, as in tests."""
        return self._declarations.middlewares.overrides

    def _threaded(self, delivery: Delivery) -> BlockingDelivery:
        """Return a delivery for a handler in a thread. Loop only."""
        if self._portal is None:
            self._portal = Portal(self._session.loop, self.options.timeout)
        return BlockingDelivery(delivery, self._portal)

    async def run(self, *, signals: bool | None = None) -> None:
        """Call handlers with messages until ``stop()`` or a signal; then close.

        The signals are SIGTERM, SIGINT, and SIGHUP unless it is ignored; they are taken if this is
        the main thread, and SIGTERM is not handled already, as by a web server.

        A broker that is not there is waited for. On the way out nothing more is taken, and what was
        not begun is given back. Handlers that run have ``drain_timeout`` to finish; then they are
        cancelled, and those that cannot be (a thread, a coroutine that ignores it) are named in the
        log. Their messages are not handed out again while they run: the lease is extended until the
        handler ends. If this process ends first, the message comes again by the group's retry
        policy, and that was an attempt. A second SIGTERM or SIGINT waits for nobody, and ends the
        process.

        Args:
            signals: Take the signals, or leave them to whoever has them: then ``stop()`` ends it.
                None: take them unless somebody in this process handles SIGTERM already.

        Raises:
            InvalidRequest: There are no handlers.
            TopologyMismatch: Something is not as it is declared; see ``declare``.
            InvalidHandler: No body can be decoded to what a handler takes.
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
        """Do what ``run`` does, inside these lifespans; signals and the end are the caller's."""
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
                    except GroupSettingsMismatch:  # somebody made a group since, another way
                        await self.topology.settle(self.admin)  # says so of all that differs
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
        """Connect, waiting for the broker; return False when told to stop before."""
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
        """Have ``run`` come to its end: no handler is called any more. Any thread.

        Called before ``run``, it ends that as soon as it begins.

        Args:
            at_once: Do not wait for those that run: cancel them.
        """
        flag("at_once", at_once)
        self._stopping = True  # what begins to run in its loop meanwhile looks at this
        loop = self._session.known_loop
        if loop is None:
            return
        if loop is running_loop():
            self._stop_here(at_once=at_once)
            return
        with suppress(RuntimeError):  # the loop is closed: nothing runs
            loop.call_soon_threadsafe(partial(self._stop_here, at_once=at_once))

    def _stop_here(self, *, at_once: bool) -> None:
        """See ``stop``. Loop only."""
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
            queue: Of the offset; it may be left out where the topic has one.
            offset: The place in its queue.

        Raises:
            MessageNotFound: None is kept.
            InvalidRequest: Neither id nor offset is given, or both; the topic has several queues,
                and ``queue`` does not say which.
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
        """
        self._session.bind()
        return await self._lookup.find(topic, key, since, until, limit)

    # -- once more --------------------------------------------------------------------------------

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
        """Hand messages to a group again, whatever became of them; no other group gets them.

        They begin a new round: attempts count from 1, and whoever has one of them in hand no longer
        holds it. What the group has not read yet stays unread.

        Args:
            topic: The topic.
            group: The group.
            offsets: Of one queue: ``range(10, 20)``, or any offsets.
            since: Those stored at or after this time.
            until: Those stored before this time.
            ids: Those with these ids: the broker's, or your own. Of several messages with the same
                id of your own, the newest.
            queue: Of the offsets; it may be left out where the topic has one. Of times: only this
                queue, by default all.
            dry_run: Only say what would happen.

        Raises:
            InvalidRequest: Offsets are named, the topic has several queues, and ``queue`` does not
                say which.
            ReplayTooLarge: So many would wait to be handed out again that the broker takes no more.
                Where much was named, what was handed back before stays so.
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
        """See ``forking.Watched``: take another name, or be of no use if it was connected."""
        if self._session.used:
            self._session.leave_behind()
            self._keeper.leave_behind()
        else:
            self._session.renew()
            self._producer.renew()
            self._prepared_ids.renew()


async def _unless(told: asyncio.Future[Any], connecting: Coroutine[Any, Any, object]) -> bool:
    """Wait for a connection; return False when told to stop before. Raises as ``connecting``."""
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
    """Return the leases with rows left that clients of this process have of the broker at a port.

    For the testing kit. Any thread.
    """
    return [
        lease
        for client in watched(Client)
        if client.options.address.port == port
        for lease in client._settler.held()  # noqa: SLF001 - of a class of this module
    ]
