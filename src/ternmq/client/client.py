"""The client: one object for all that an application does with a broker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, overload

from ternmq.client import reading, tracing
from ternmq.client.admin import Admin
from ternmq.client.blocking import BlockingDelivery, Portal
from ternmq.client.codecs import Codecs
from ternmq.client.consumer import Consumer
from ternmq.client.deadletters import DeadLetters
from ternmq.client.deliveries import Deliveries, Leased
from ternmq.client.delivery import Delivery
from ternmq.client.handlers import Function, Handler
from ternmq.client.keeper import Keeper
from ternmq.client.lookup import FoundMessage, Lookup
from ternmq.client.message import Failure, Message, Receipt
from ternmq.client.options import Options
from ternmq.client.outgoing import Outgoing, ready_bodies
from ternmq.client.producer import Producer
from ternmq.client.puller import Puller, Source, give_back
from ternmq.client.reports import BEAT
from ternmq.client.session import Session
from ternmq.client.settler import Settler
from ternmq.client.validation import check_message, check_positive, check_topic
from ternmq.model.errors import (
    CannotConnect,
    EncodeError,
    InvalidRequest,
    MessageTooLarge,
    SendTimeout,
    TernMQError,
    UnsentMessages,
)
from ternmq.model.specs import Mode, Start
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

F = TypeVar("F", bound=Function)

_NO_HEADERS: Final[Mapping[str, str]] = {}
_CLOSE_TIMEOUT: Final = 5.0
_LONG_WAIT: Final = 60.0
_UNKNOWN_BYTES: Final = 16 * 1024 * 1024
"""Largest body while the broker has not said what it takes: the most it can be set to."""

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client:
    """A client of a broker, made by ``ternmq.connect``. It lives in one event loop.

    Making it does no I/O, so that handlers can be declared when a module is imported. ``await``,
    ``async with``, ``run()``, or the first use connects. It connects again by itself, keeps its
    session, and sends again what was not answered.

    Attributes:
        options: What it was made with.
        codecs: How bodies are encoded and decoded; others can be registered.
        admin: Topics, groups, apps, and how the broker is.
        deadletters: Messages that failed for good.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.codecs = Codecs()
        self._session = Session(options)
        self._producer = Producer(self._session)
        self._settler = Settler(self._session)
        self._puller = Puller(self._session, self._settler)
        self._keeper = Keeper(self._session, self._settler)
        self._session.members += [self._settler, self._producer]
        self._lookup = Lookup(self._session, self.codecs)
        self.admin = Admin(self._session)
        self.deadletters = DeadLetters(self._session, self.codecs)
        self._handlers: list[Handler] = []
        self._reporter: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self._portal: Portal | None = None
        _clients.add(self)

    def __repr__(self) -> str:
        return f"<Client of {self.options.address}, app {self.options.app!r}>"

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
        self._begin()
        return self

    def _begin(self) -> None:
        if self._reporter is None:
            self._reporter = self._session.loop.create_task(self._report(), name="ternmq-report")

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
                raise
            log.exception("messages were not sent")  # the block's own error is what is raised

    async def close(self, timeout: float | None = None) -> None:
        """Send what waits, tell the broker what was settled, and leave. Closing twice is allowed.

        Args:
            timeout: Seconds to wait for sends; None: their own timeout.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were not stored, or that is not known.
        """
        session = self._session
        if session.closed:
            return
        if not session.used or session.forked:
            session.closed = True
            return
        session.bind()
        if self._reporter is not None:
            self._reporter.cancel()
        for handler in self._handlers:
            await handler.stop(self.options.drain_timeout)
        session.closing()
        await self._producer.drained(self.options.timeout if timeout is None else timeout)
        self._producer.give_up()
        await self._settler.drained(_CLOSE_TIMEOUT)
        if session.link is not None:
            with suppress(TernMQError):
                await self._send_reports(_CLOSE_TIMEOUT)
        await asyncio.to_thread(self._keeper.stop)
        await session.close()
        self._raise_unsent()

    # -- sending ----------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        id: str = "",  # noqa: A002
        timeout: float | None = None,
    ) -> Receipt:
        """Send a message; returns when it is stored durably.

        Messages sent at the same time (by other tasks) travel and are stored together.

        Args:
            topic: Where to.
            body: Bytes, str, or what a codec can encode.
            key: What it can be looked up by.
            ordering_key: What order is kept by, on ordered topics.
            tag: Second-level kind, for filters.
            headers: Properties.
            content_type: What the body is; by default as its type says.
            id: An identifier of the application's own: a second message with it is not stored
                again, its receipt is marked ``duplicate``.
            timeout: Seconds in all; at most (and by default) the client's ``timeout``.

        Raises:
            InvalidName, EncodeError, MessageTooLarge, OrderingKeyRequired: Nothing was sent.
            CannotConnect: Nothing was sent: there was no connection in time.
            SendTimeout: No answer came in time: whether it is stored is not known.
            TernMQError: The broker's refusal; nothing was stored.
        """
        producer = self._producer
        if producer.full:
            await producer.room()
        loop = self._session.loop
        future: asyncio.Future[Receipt] = loop.create_future()
        producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, id, future),
        )
        if timeout is None or timeout >= self.options.timeout:
            return await future
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise SendTimeout(
                f"no answer within {timeout:g} s: stored or not, that is not known"
            ) from None

    def send_soon(
        self,
        topic: str,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        id: str = "",  # noqa: A002
    ) -> asyncio.Future[Receipt]:
        """Send a message without waiting; the future is its receipt. See ``send``.

        A failure that nobody waits for is logged, and ``flush`` or closing the client raises
        ``UnsentMessages``.

        Raises:
            BufferFull: Too many wait already.
            InvalidName, EncodeError, MessageTooLarge, OrderingKeyRequired: Nothing was sent.
        """
        producer = self._producer
        producer.refuse_when_full()
        future: asyncio.Future[Receipt] = self._session.loop.create_future()
        producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, id, future),
        )
        return future

    def send_oneway(
        self,
        topic: str,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> None:
        """Send a message that may be lost: the broker does not answer. See ``send``.

        Raises:
            BufferFull: Too many wait already.
            InvalidName, EncodeError, MessageTooLarge, OrderingKeyRequired: Nothing was sent.
        """
        self._producer.refuse_when_full()
        self._producer.put(
            topic,
            self._outgoing(body, key, ordering_key, tag, headers, content_type, "", None),
            one_way=True,
        )

    @overload
    async def send_many(
        self, topic: str, messages: Iterable[object], *, return_errors: Literal[False] = False
    ) -> list[Receipt]: ...

    @overload
    async def send_many(
        self, topic: str, messages: Iterable[object], *, return_errors: Literal[True]
    ) -> list[Receipt | Exception]: ...

    async def send_many(
        self, topic: str, messages: Iterable[object], *, return_errors: bool = False
    ) -> list[Receipt] | list[Receipt | Exception]:
        """Send many messages; returns when it is known what became of each.

        A message that cannot be sent (its body is too large, or cannot be encoded) does not keep
        the others back: it is one of the failures.

        Args:
            topic: Where to.
            messages: ``Message``, or bare bodies.
            return_errors: Return an exception in the place of each message that was not stored,
                instead of raising.

        Raises:
            PartialSendError: Some were not stored: ``receipts``, ``failures``.
            InvalidName, OrderingKeyRequired, CannotConnect: Nothing was sent.
        """
        check_topic(topic)
        items: Sequence[object] = messages if isinstance(messages, list | tuple) else [*messages]
        if not items:
            return []
        ready = None if tracing.enabled else ready_bodies(items)
        if ready is not None and max(map(len, ready)) <= self._most_bytes():
            many = await self._producer.put_many(topic, items, ready)
            return many.outcomes() if return_errors else many.outcome()
        encoded, failures = self._encoded(items)
        if failures:
            bad = {failure.row for failure in failures}
            rows = [row for row in range(len(items)) if row not in bad]
            good = await self._producer.put_many(topic, [items[row] for row in rows], encoded)
            many = good.among(items, rows, failures)
        else:
            many = await self._producer.put_many(topic, items, encoded)
        return many.outcomes() if return_errors else many.outcome()

    def _encoded(self, items: Sequence[object]) -> tuple[list[Outgoing], list[Failure]]:
        """Return the messages that can be sent, and those that cannot."""
        encoded: list[Outgoing] = []
        failures: list[Failure] = []
        for row, item in enumerate(items):
            try:
                encoded.append(self._of_item(item))
            except (EncodeError, InvalidRequest) as error:
                failures.append(Failure(item, row, error))
        return encoded, failures

    def _of_item(self, item: object) -> Outgoing:
        if not isinstance(item, Message):
            return self._outgoing(item, "", "", "", None, "", "", None)
        return self._outgoing(
            item.body,
            item.key,
            item.ordering_key,
            item.tag,
            item.headers,
            item.content_type,
            item.id,
            None,
        )

    def _outgoing(
        self,
        body: object,
        key: str,
        ordering_key: str,
        tag: str,
        headers: Mapping[str, str] | None,
        content_type: str,
        application_id: str,
        future: asyncio.Future[Receipt] | None,
    ) -> Outgoing:
        if type(body) is not bytes:
            body, content_type = self.codecs.encode(body, content_type)
        if headers is None:
            headers = _NO_HEADERS
        if tracing.enabled:
            headers = tracing.sent(headers)
        message = Outgoing(
            body, key, ordering_key, tag, headers, content_type, application_id, future
        )
        if len(body) > self._most_bytes():
            self._check_size(len(body))
        if key or ordering_key or tag or headers or content_type or application_id:
            check_message(message)
        return message

    def _most_bytes(self) -> int:
        welcome = self._session.welcome
        return welcome.body_bytes if welcome is not None else _UNKNOWN_BYTES

    def _check_size(self, size: int) -> None:
        most = self._most_bytes()
        if size > most:
            raise MessageTooLarge(f"a body of {size} bytes; the broker takes {most}")

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until what was sent is answered.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were given up since the last flush, and
                nobody waited for them; or they are not answered within ``timeout`` seconds.
        """
        if not self._session.used:
            return
        if not await self._producer.drained(timeout):
            raise UnsentMessages(f"messages are still on their way after {timeout:g} s")
        self._raise_unsent()

    def _raise_unsent(self) -> None:
        unheard: list[Failure] = []
        for failure in self._producer.take_failures():
            future = failure.message
            if isinstance(future, asyncio.Future):
                # Whoever looked at the future in the meantime knows already.
                if not getattr(future, "_log_traceback", True):
                    continue
                future.exception()
            unheard.append(failure)
        if unheard:
            raise UnsentMessages(
                f"{len(unheard)} messages were not sent; the first: {unheard[0].error}",
                failures=unheard,
            )

    # -- receiving --------------------------------------------------------------------------------

    async def pull(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 500,
        wait: float = 10.0,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Deliveries:
        """Return messages for a group, at most so many; waits until there is one.

        Args:
            topic: The topic.
            group: The consumer group; it is made at first use.
            max_messages: Most that are returned.
            wait: Seconds to wait for the first.
            tags: Filter, such as ``paid || refunded``; None: as the group has it.
            mode: ``shared`` or ``ordered``; None: as the group has it.
            start: Where a new group begins, ``earliest`` or ``latest``; None: as the group has it.

        Returns:
            The deliveries; empty, and false, when none came in time.

        Raises:
            UnknownTopic, Forbidden, GroupSettingsMismatch, CannotConnect.
        """
        source = Source(topic, group, tags, mode, start)
        check_positive("max_messages", max_messages)
        self._consume()
        await self._puller.join(source)
        leased = await self._puller.pull(source, max_messages, wait)
        return Deliveries(topic, [] if leased is None else [leased], self.codecs)

    def consume(
        self,
        topic: str,
        *,
        group: str,
        max_in_flight: int = 64,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Consumer:
        """Return deliveries one by one: an async context manager around an async iterator.

        At most ``max_in_flight`` are unsettled at one time. Leaving gives back what is not settled.
        See ``pull`` for the other arguments.
        """
        source = Source(topic, group, tags, mode, start)
        return _Consuming(self._consume, self._puller, source, self.codecs, max_in_flight)

    async def consume_batches(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 500,
        max_wait: float = 2.0,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> AsyncIterator[Deliveries]:
        """Return deliveries in batches: of ``max_messages``, or what came within ``max_wait``.

        A batch is returned as soon as it is full, or ``max_wait`` seconds after its first message
        came. Leaving gives back what is not settled. See ``pull`` for the other arguments.
        """
        source = Source(topic, group, tags, mode, start)
        check_positive("max_messages", max_messages)
        self._consume()
        await self._puller.join(source)
        handed: list[Leased] = []
        try:
            while True:
                parts = await self._gather(source, max_messages, max_wait)
                handed = [one for one in handed if one.lease.left and not one.lease.lost]
                handed += parts
                if parts:
                    yield Deliveries(topic, parts, self.codecs)
        finally:
            for one in handed:
                give_back(one.lease)

    async def _gather(self, source: Source, max_messages: int, max_wait: float) -> list[Leased]:
        """Return a batch; what was gathered is given back if this is cancelled."""
        loop = self._session.loop
        parts: list[Leased] = []
        count, until = 0, None
        try:
            while count < max_messages:
                wait = _LONG_WAIT if until is None else until - loop.time()
                if wait <= 0:
                    break
                leased = await self._puller.pull(source, max_messages - count, wait)
                if leased is None:
                    break
                parts.append(leased)
                count += leased.lease.rows
                until = until or loop.time() + max_wait
        except BaseException:
            for part in parts:
                give_back(part.lease)
            raise
        return parts

    def read(
        self,
        topic: str,
        *,
        start: int | datetime | Literal["earliest", "latest"] = "earliest",
        stop: int | datetime | None = None,
        queue: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Delivery]:
        """Read messages without a group: nothing is leased, nothing can be settled.

        Args:
            topic: The topic.
            start: An offset, a time, ``earliest`` or ``latest``.
            stop: An offset or a time to stop before; None: after what was there at the beginning.
            queue: The queue; None: all, one after the other (with ``follow``: the topic must have
                but one).
            follow: Go on, waiting for new messages.

        Raises:
            UnknownTopic, UnknownQueue, Forbidden, OffsetExpired.
        """
        self._session.bind()
        self._begin()
        span = reading.Span(start, stop, follow=follow)
        return reading.read(self._session, self.codecs, check_topic(topic), queue, span)

    def _consume(self) -> None:
        """Deliveries will come: see that their leases are kept."""
        self._session.bind()
        self._begin()
        self._keeper.start()

    # -- handlers ---------------------------------------------------------------------------------

    def handler(
        self,
        topic: str,
        *,
        group: str,
        tags: str | None = None,
        concurrency: int = 16,
        max_in_flight: int | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Callable[[F], F]:
        """Declare that a function handles the messages of a group; ``run`` calls it.

        See ``handlers`` for what it may look like, and ``pull`` for the other arguments.

        Args:
            topic: The topic.
            group: The consumer group.
            tags: Filter.
            concurrency: How many messages are handled at one time.
            max_in_flight: Most messages that are here and not settled; None: twice ``concurrency``,
                64 at least, and up to 1,024 while they are worked off quickly.
            mode: Mode of the group.
            start: Where a new group begins.
        """
        source = Source(topic, group, tags, mode, start)

        def declare(function: F) -> F:
            self._handlers.append(
                Handler(
                    function,
                    source,
                    concurrency=concurrency,
                    max_in_flight=max_in_flight,
                    codecs=self.codecs,
                    threaded=self._threaded,
                )
            )
            return function

        return declare

    def _threaded(self, delivery: Delivery) -> BlockingDelivery:
        """Return a delivery for a handler in a thread. Loop only."""
        if self._portal is None:
            self._portal = Portal(self._session.loop)
        return BlockingDelivery(delivery, self._portal)

    async def run(self) -> None:
        """Call handlers with messages until ``stop()``, SIGTERM or SIGINT; then close.

        A broker that is not there is waited for. On the way out nothing more is taken, running
        handlers finish (or are cancelled after ``drain_timeout``), and what was not begun is given
        back.

        Raises:
            InvalidRequest: There are no handlers.
            TernMQError: A group cannot be consumed.
        """
        if not self._handlers:
            raise InvalidRequest("no handlers are declared: use @client.handler(...)")
        session = self._session
        session.bind()
        self._stop = stop = asyncio.Event()
        undo = _on_signals(session.loop, self.stop)
        try:
            if await self._arrive(stop):
                self._consume()
                await self._run_handlers(stop)
        finally:
            undo()
            self._stop = None
            await self.close()

    async def _arrive(self, stop: asyncio.Event) -> bool:
        """Connect, waiting for the broker; return False when told to stop before."""
        told = asyncio.ensure_future(stop.wait())
        try:
            with suppress(CannotConnect):
                await self._session.connect()
                return True
            log.warning("no broker at %s yet; waiting for it", self.options.address)
            opened = asyncio.ensure_future(self._session.opened())
            await asyncio.wait({told, opened}, return_when=asyncio.FIRST_COMPLETED)
            if opened.done():
                opened.result()
                return True
            opened.cancel()
            return False
        finally:
            told.cancel()

    async def _run_handlers(self, stop: asyncio.Event) -> None:
        for handler in self._handlers:
            await handler.start(self._puller)
        told = asyncio.ensure_future(stop.wait())
        workers = [task for handler in self._handlers for task in handler.tasks]
        try:
            done, _ = await asyncio.wait({told, *workers}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {told}:
                task.result()
        finally:
            told.cancel()
            await asyncio.gather(
                *[handler.stop(self.options.drain_timeout) for handler in self._handlers]
            )

    def stop(self) -> None:
        """Have ``run`` come to its end: no handler is called any more. Loop only."""
        for handler in self._handlers:
            handler.take_no_more()
        if self._stop is not None:
            self._stop.set()

    # -- looking up -------------------------------------------------------------------------------

    async def get(
        self,
        topic: str,
        id: str = "",  # noqa: A002
        *,
        queue: int = 0,
        offset: int | None = None,
    ) -> FoundMessage:
        """Return the message with an id (the broker's, or the application's own), or at an offset.

        Raises:
            MessageNotFound: None is kept.
            InvalidRequest: Neither id nor offset is given, or both.
        """
        self._session.bind()
        return await self._lookup.get(topic, id, queue, offset)

    async def find(
        self,
        topic: str,
        *,
        key: str,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
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

    # -- reports ----------------------------------------------------------------------------------

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            try:
                await self._send_reports(BEAT)
            except TernMQError as error:
                log.debug("counts were not reported: %s", error)

    async def _send_reports(self, timeout: float) -> None:
        producer = self._producer
        for report in producer.counts.reports(producer.id):
            await self._session.control(Command.REPORT, report, control.Nothing, timeout)

    # -- forks ------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """This is the child of a fork: take another name, or be of no use if it was connected."""
        if self._session.used:
            self._session.forked = True
        else:
            self._session.renew()
            self._producer.renew()


class _Consuming(Consumer):
    """A consumer that starts its client's keeper when it is entered, not when it is made."""

    def __init__(self, begin: Callable[[], None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begin = begin

    async def start(self) -> None:
        self._begin()
        await super().start()


def _on_signals(loop: asyncio.AbstractEventLoop, told: Callable[[], None]) -> Callable[[], None]:
    """Call ``told`` on SIGTERM and SIGINT, in the main thread; return what undoes it."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, told)

    def undo() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    return undo


def _after_fork() -> None:
    for client in list(_clients):
        client.after_fork()


os.register_at_fork(after_in_child=_after_fork)
