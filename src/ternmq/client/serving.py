"""The serving of handlers: from their start until they are stopped and drained."""

from __future__ import annotations

import asyncio
import logging
import threading
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from ternmq.client.admin.admin import Admin
from ternmq.client.connection.connecting import why_not_yet
from ternmq.client.connection.session import Session
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.puller import Puller
from ternmq.client.consumer.running import Running
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.validation import drain_of
from ternmq.client.handler.blocking import BlockingDelivery, Portal
from ternmq.client.handler.composing import compose
from ternmq.client.handler.counts import HandlerCounts
from ternmq.client.handler.declarations import Declarations
from ternmq.client.handler.draining import drain
from ternmq.client.handler.handlers import Handler
from ternmq.client.handler.middleware import Lifespan
from ternmq.client.topology import Topology, with_grants
from ternmq.client.transaction.checking import Checking
from ternmq.model.errors import (
    CannotConnect,
    ClientError,
    ConnectionLost,
    Forbidden,
    GroupSettingsMismatch,
    InvalidRequest,
    NotPrimary,
    ShuttingDown,
    TernMQError,
)

log: Final = logging.getLogger("ternmq")

_AWAY: Final = (CannotConnect, ConnectionLost, NotPrimary, ShuttingDown)
"""The broker went away, or did not answer."""


class Serving:
    """Starts a client's handlers, stops them, and waits for them; once in a client's life.

    Not thread-safe, except ``stop``: call it from the client's loop.

    Args:
        session: The client's session, with its options.
        declarations: The handlers, and what is around them.
        codecs: How bodies are decoded.
        admin: Creates and changes what is declared.
        puller: Gets messages.
        checking: Offers the checkers.

    Attributes:
        handlers: Those that were started.
        hurry: Set when nothing is waited for any more; None before anything can be waited for.
        counted: Whether the messages of handlers are counted; set it before ``serve``.
    """

    def __init__(
        self,
        session: Session,
        declarations: Declarations,
        codecs: Codecs,
        admin: Admin,
        puller: Puller,
        checking: Checking,
    ) -> None:
        self.handlers: list[Handler] = []
        self.hurry: asyncio.Event | None = None
        self.counted = False
        self._session = session
        self._options = session.options
        self._drain_timeout = session.options.drain_timeout
        self._declarations = declarations
        self._codecs = codecs
        self._admin = admin
        self._puller = puller
        self._checking = checking
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._begun = False  # the handlers
        self._left: list[Running] | None = None
        self._portal: Portal | None = None
        self._run_begun = threading.Lock()

    def begin_run(self) -> None:
        """Refuse a second ``run`` beside the first, which it would close. Callable by any thread.

        Raises:
            ClientError: One runs.
        """
        if not self._run_begun.acquire(blocking=False):
            raise ClientError(
                "this client runs its handlers already: call run() once; how many calls of a "
                "handler run at a time is its concurrency"
            )

    def end_run(self) -> None:
        """Allow the next ``run``. Callable from any thread."""
        self._run_begun.release()

    def check_may_close(self) -> None:
        """Refuse to close the client in a call of one of its handlers. Callable from any thread.

        Raises:
            ClientError: The caller is one, and would wait for its own end.
        """
        for handler in self.handlers:
            if handler.calls_caller():
                raise ClientError(
                    f"handler {handler.name} cannot close the client that calls it: close() would "
                    "wait for the handler's end; call stop(), which ends run()"
                )

    def _threaded(self, delivery: Delivery) -> BlockingDelivery:
        """Return a delivery for a handler in a thread. Call it from the client's loop."""
        if self._portal is None:
            self._portal = Portal(self._session.loop, self._options.timeout)
        return BlockingDelivery(delivery, self._portal)

    async def serve(
        self, client: object, lifespans: Sequence[Lifespan], drain_timeout: float | timedelta | None
    ) -> None:
        """Connect, and call handlers until ``stop``, inside these lifespans; see ``Client.run``.

        ``client`` is given to lifespans. ``drain_timeout`` counts in place of the
        client's, if it is given.
        """
        if drain_timeout is not None:
            self._drain_timeout = drain_of(drain_timeout)
        if not (self._declarations or self._declarations.checkers):
            raise InvalidRequest("no handlers are declared: use @client.handler(...)")
        middlewares = self._declarations.middlewares
        composed = [compose(one, middlewares) for one in self._declarations]
        self.handlers = [
            Handler(one, self._codecs, self._threaded, counted=self.counted) for one in composed
        ]
        for handler in self.handlers:
            handler.check()
        self._session.bind()
        self._declarations.served = True
        self._stop = stop = asyncio.Event()
        if self._stopping:
            stop.set()
        self.hurry = self.hurry or asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                await middlewares.enter(stack, lifespans, client)
                stack.push_async_callback(self.drain)
                self._checking.hold()
                if await self._arrive(stop) and await self._with_broker(stop, self._settle):
                    self._tell_connected()
                    try:
                        if not await self._with_broker(stop, self._join):
                            return
                        self._checking.release()
                        if self._declarations.checkers:
                            await self._checking.ready(self._options.timeout)
                        if await self._with_broker(stop, self._start_handlers):
                            self._begun = True
                            await self._run_handlers(stop)
                    except GroupSettingsMismatch:  # made meanwhile with other settings
                        await self._settle()  # its error names all that differs
                        raise
        finally:
            self._stop = None
            self._declarations.served = False

    async def _settle(self) -> None:
        """Create and change what is declared, or check it; see ``Topology.settle``."""
        try:
            await Topology(self._declarations).settle(self._admin)
        except Forbidden as error:
            await self._name_grants(error)
            raise

    async def _join(self) -> None:
        """Join the groups of all handlers: a start that is refused offers no checker."""
        try:
            for handler in self.handlers:
                await self._puller.join(handler.source)
        except Forbidden as error:
            await self._name_grants(error)
            raise

    async def _name_grants(self, error: Forbidden) -> None:
        """Let the hint of a refused start name all grants that the handlers need, if several."""
        with suppress(TernMQError):
            grants = await Topology(self._declarations).lacking(self._admin)
            if len(grants) > 1:
                error.hint = (
                    f"{with_grants(self._options.app, grants)} gives all rights that the handlers "
                    "of this program need"
                )

    async def drain(self) -> list[Running]:
        """Stop the handlers, once; return the calls that do not end."""
        if self._left is None:
            self.hurry = self.hurry or asyncio.Event()
            self._left = await drain(self.handlers, self._drain_timeout, self.hurry)
        return self._left

    async def _arrive(self, stop: asyncio.Event) -> bool:
        """Connect, waiting for the broker; return False if ``stop`` is set first."""
        told = asyncio.ensure_future(stop.wait())
        try:
            try:
                return await _unless(told, self._session.connect())
            except CannotConnect as error:
                log.warning("no broker at %s yet: waiting for it (%s)", self._options.url,
                            why_not_yet(error))  # fmt: skip
            return await _unless(told, self._session.opened())
        finally:
            told.cancel()

    async def _with_broker(
        self, stop: asyncio.Event, step: Callable[[], Coroutine[Any, Any, None]]
    ) -> bool:
        """Do a step of the start; when the broker is lost, wait for it and repeat the step.

        Each step can be repeated: it asks first, and does what is not done yet. Returns False if
        ``stop`` is set first.
        """
        told = asyncio.ensure_future(stop.wait())
        try:
            for pause in self._options.backoff.pauses():
                try:
                    return await _unless(told, step())
                except _AWAY as error:
                    log.warning("the broker was lost during the start: waiting for it (%s)",
                                why_not_yet(error))  # fmt: skip
                await asyncio.wait({told}, timeout=pause)
                if not await _unless(told, self._session.opened(to_pull=True)):
                    break
            return False
        finally:
            told.cancel()

    def _tell_connected(self) -> None:
        welcome = self._session.welcome
        software = "" if welcome is None or not welcome.software else f" ({welcome.software})"
        log.info(
            "connected to broker %s%s at %s%s", "?" if welcome is None else welcome.broker,
            software, self._session.address,
            f" as app {self._options.app}" if self._options.app else "",
        )  # fmt: skip

    async def _start_handlers(self) -> None:
        for handler in self.handlers:
            await handler.start(self._puller)

    async def _run_handlers(self, stop: asyncio.Event) -> None:
        told = asyncio.ensure_future(stop.wait())
        failed = self._admin.redeclaring.failed()
        refused = self._checking.failed()  # handlers raise it themselves; checkers wait for nothing
        workers = [task for handler in self.handlers for task in handler.tasks]
        try:
            ends: set[asyncio.Future[Any]] = {told, failed, refused, *workers}
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {told}:
                task.result()
        finally:
            told.cancel()
            failed.cancel()
            if not refused.cancel() and not refused.cancelled():
                refused.exception()  # a handler may have raised the same

    # -- its state

    def not_ready(self) -> str:
        """Return why a handler or checker gets nothing now; else "". Call it from the loop."""
        session = self._session
        if self._stopping or self._left is not None:
            return "stopping"
        if session.link is None:
            return f"no connection to the broker at {self._options.url}"
        if session.draining:
            return f"the broker at {self._session.address} is about to stop"
        return self._checking.not_offered() if self._begun else "starting"

    def counts(self) -> list[HandlerCounts]:
        """Return what each handler did, if they are counted. Call it from the loop."""
        return [one.counts for one in self.handlers]

    # -- its end

    def stop(self, *, at_once: bool) -> None:
        """End ``serve``, or the next one; callable from any thread."""
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
        for handler in self.handlers:
            handler.take_no_more()
        if self._stop is not None:
            self._stop.set()
        if at_once and self.hurry is not None:
            self.hurry.set()


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
