"""The client: one object for all that an application does with a broker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ternmq.client.again import Replayed
from ternmq.client.blocking import BlockingDelivery, Portal
from ternmq.client.codecs import Codecs
from ternmq.client.delivery import Delivery
from ternmq.client.handlers import Function, Handler
from ternmq.client.lookup import FoundMessage
from ternmq.client.options import Options
from ternmq.client.puller import Source
from ternmq.client.receiving import Receiving
from ternmq.client.stats import ClientStats
from ternmq.client.transacting import Transacting
from ternmq.model.errors import CannotConnect, InvalidRequest, UnsentMessages
from ternmq.model.specs import Mode, Start

log: Final = logging.getLogger("ternmq")

F = TypeVar("F", bound=Function)

_CLOSE_TIMEOUT: Final = 5.0

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client(Transacting, Receiving):
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

    def __init__(self, options: Options, codecs: Codecs | None = None) -> None:
        super().__init__(options, codecs)
        self._handlers: list[Handler] = []
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
        self._reporter.stop()
        for handler in self._handlers:
            await handler.stop(self.options.drain_timeout)
        session.closing()
        await self._producer.drained(self.options.timeout if timeout is None else timeout)
        self._producer.give_up()
        await self._settler.drained(_CLOSE_TIMEOUT)
        if session.link is not None:
            await self._reporter.last(_CLOSE_TIMEOUT)
        try:
            await asyncio.to_thread(self._keeper.stop)
        except RuntimeError:  # the interpreter ends: it begins no more threads
            self._keeper.stop()
        await session.close()
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
        topic: str,
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
            ids: Those with these ids (the broker's).
            queue: Of the offsets, by default 0. Of times: only this queue, by default all.
            dry_run: Only say what would happen.

        Raises:
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
        """This is the child of a fork: take another name, or be of no use if it was connected."""
        if self._session.used:
            self._session.forked = True
        else:
            self._session.renew()
            self._producer.renew()
            self._prepared_ids.renew()


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
