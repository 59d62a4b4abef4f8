"""The blocking client."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, Self, TypeVar, overload

from ternmq.client import client as engine
from ternmq.client.blocking import BlockingDelivery
from ternmq.client.codecs import Codecs
from ternmq.client.deliveries import Deliveries as EngineDeliveries
from ternmq.client.delivery import Delivery
from ternmq.client.handlers import Function
from ternmq.client.message import Queue, Receipt
from ternmq.client.options import Options
from ternmq.client.stats import ClientStats
from ternmq.model.errors import ClientClosed, TernMQError
from ternmq.model.specs import Mode, Start
from ternmq.sync.admin import Admin, DeadLetters
from ternmq.sync.consumer import Consumer
from ternmq.sync.deliveries import Deliveries
from ternmq.sync.facade import blocking
from ternmq.sync.loop_thread import LoopThread

F = TypeVar("F", bound=Function)
Part = TypeVar("Part")

_AT_EXIT_TIMEOUT: Final = 5.0


class Client:
    """``ternmq.Client`` for threads; see there for what its methods do. Any thread.

    Attributes:
        options: What it was made with.
        codecs: How bodies are encoded and decoded.
        admin: Topics, groups, apps, and how the broker is.
        deadletters: Messages that failed for good.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.codecs = Codecs()
        self.admin = Admin(lambda: self._part(lambda client: client.admin))
        self.deadletters = DeadLetters(lambda: self._part(lambda client: client.deadletters))
        self._lock = threading.Lock()
        self._pid = 0
        self._closed = False
        self._thread: LoopThread | None = None
        self._engine: engine.Client | None = None
        self._declared: list[Callable[[engine.Client], object]] = []
        _at_exit(weakref.ref(self))

    def __repr__(self) -> str:
        return f"<blocking Client of {self.options.address}, app {self.options.app!r}>"

    # -- its life ---------------------------------------------------------------------------------

    def reach(self) -> tuple[LoopThread, engine.Client]:
        """Return the loop's thread and the client that lives in it; made at first use.

        Raises:
            ClientClosed: It was closed.
        """
        thread, client = self._thread, self._engine
        if thread is not None and client is not None and self._pid == os.getpid():
            return thread, client
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._pid != os.getpid():
            self._lock = threading.Lock()  # that of the parent may have been held by another thread
        with self._lock:
            if self._thread is None or self._engine is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = LoopThread()
                self._engine = engine.Client(self.options, self.codecs)
                for declare in self._declared:
                    declare(self._engine)
            return self._thread, self._engine

    def _part(self, choose: Callable[[engine.Client], Part]) -> tuple[LoopThread, Part]:
        thread, client = self.reach()
        return thread, choose(client)

    def connect(self) -> Self:
        """Be connected; done by entering it, and by its first use."""
        thread, client = self.reach()
        thread.call(client.connect())
        return self

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(TernMQError):  # the block's own error is what is raised
                self.close()

    def close(self, timeout: float | None = None) -> None:
        """Send what waits, tell the broker what was settled, and leave.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were not stored, or that is not known.
        """
        self._closed = True
        thread, client = self._thread, self._engine
        self._thread = self._engine = None
        if thread is None or client is None or self._pid != os.getpid():
            return
        try:
            thread.call(client.close(timeout))
        finally:
            thread.stop()

    def stats(self) -> ClientStats:
        """Return what the client did so far."""
        return self.reach()[1].stats()

    # -- sending ----------------------------------------------------------------------------------

    send = blocking(engine.Client.send)
    flush = blocking(engine.Client.flush)
    prepare = blocking(engine.Client.prepare)
    commit_prepared = blocking(engine.Client.commit_prepared)
    abort_prepared = blocking(engine.Client.abort_prepared)

    @overload
    def send_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: Literal[False] = False,
    ) -> list[Receipt]: ...

    @overload
    def send_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: Literal[True],
    ) -> list[Receipt | Exception]: ...

    def send_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        return_errors: bool = False,
    ) -> list[Receipt] | list[Receipt | Exception]:
        """Send many messages; returns when it is known what became of each."""
        thread, client = self.reach()
        if return_errors:
            return thread.call(client.send_many(topic, messages, queue=queue, return_errors=True))
        return thread.call(client.send_many(topic, messages, queue=queue))

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
        queue: Queue | None = None,
    ) -> Future[Receipt]:
        """Send a message without waiting; the future is its receipt."""
        thread, client = self.reach()
        told: Future[Receipt] = Future()

        def send() -> None:
            try:
                asked = client.send_soon(
                    topic,
                    body,
                    key=key,
                    ordering_key=ordering_key,
                    tag=tag,
                    headers=headers,
                    content_type=content_type,
                    id=id,
                    queue=queue,
                )
            except TernMQError as error:
                told.set_exception(error)
            else:
                asked.add_done_callback(lambda one: _pass_on(one, told))

        thread.post(send)
        return told

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
        queue: Queue | None = None,
    ) -> None:
        """Send a message that may be lost."""
        thread, client = self.reach()

        async def send() -> None:
            client.send_oneway(
                topic,
                body,
                key=key,
                ordering_key=ordering_key,
                tag=tag,
                headers=headers,
                content_type=content_type,
                queue=queue,
            )

        thread.call(send())

    # -- receiving --------------------------------------------------------------------------------

    def pull(
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
        """Return messages for a group, at most so many; waits until there is one."""
        thread, client = self.reach()
        found = thread.call(
            client.pull(
                topic,
                group=group,
                max_messages=max_messages,
                wait=wait,
                tags=tags,
                mode=mode,
                start=start,
            )
        )
        return Deliveries(found, thread)

    def consume(
        self,
        topic: str,
        *,
        group: str,
        max_in_flight: int | None = None,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Consumer:
        """Return deliveries one by one: a context manager around an iterator."""
        thread, client = self.reach()
        consumer = client.consume(
            topic, group=group, max_in_flight=max_in_flight, tags=tags, mode=mode, start=start
        )
        return Consumer(consumer, thread)

    def consume_batches(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 500,
        max_wait: float = 2.0,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> Iterator[Deliveries]:
        """Return deliveries in batches: of ``max_messages``, or what came within ``max_wait``."""
        thread, client = self.reach()
        batches = client.consume_batches(
            topic,
            group=group,
            max_messages=max_messages,
            max_wait=max_wait,
            tags=tags,
            mode=mode,
            start=start,
        )
        found: Iterator[EngineDeliveries] = thread.iterate(batches)
        return (Deliveries(one, thread) for one in found)

    def read(
        self,
        topic: str,
        *,
        start: int | datetime | Literal["earliest", "latest"] = "earliest",
        stop: int | datetime | None = None,
        queue: int | None = None,
        follow: bool = False,
    ) -> Iterator[BlockingDelivery]:
        """Read messages without a group: nothing is leased, nothing can be settled."""
        thread, client = self.reach()

        async def begin() -> object:
            return client.read(topic, start=start, stop=stop, queue=queue, follow=follow)

        found: Iterator[Delivery] = thread.iterate(thread.call(begin()))  # type: ignore[arg-type]
        return (BlockingDelivery(one, thread) for one in found)

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
        """Declare that a function handles the messages of a group; ``run`` calls it, in threads."""

        def declare(function: F) -> F:
            def to(client: engine.Client) -> object:
                return client.handler(
                    topic,
                    group=group,
                    tags=tags,
                    concurrency=concurrency,
                    max_in_flight=max_in_flight,
                    mode=mode,
                    start=start,
                )(function)

            if self._engine is not None:
                to(self._engine)
            self._declared.append(to)
            return function

        return declare

    def run(self) -> None:
        """Call handlers with messages until ``stop()``, SIGTERM or SIGINT; then close."""
        thread, client = self.reach()
        undo = _on_signals(lambda: thread.post(client.stop))
        try:
            thread.call(client.run())
        finally:
            undo()
            self.close()

    def stop(self) -> None:
        """Have ``run`` come to its end. Any thread."""
        thread, client = self._thread, self._engine
        if thread is not None and client is not None:
            thread.post(client.stop)

    # -- looking up -------------------------------------------------------------------------------

    get = blocking(engine.Client.get)
    find = blocking(engine.Client.find)
    replay = blocking(engine.Client.replay)


def _pass_on(asked: asyncio.Future[Receipt], told: Future[Receipt]) -> None:
    if asked.cancelled():
        told.cancel()
        return
    error = asked.exception()
    if error is not None:
        told.set_exception(error)
    else:
        told.set_result(asked.result())


def _on_signals(told: Callable[[], None]) -> Callable[[], None]:
    """Call ``told`` on SIGTERM and SIGINT, in the main thread; return what undoes it."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: told()) for number in numbers}

    def undo() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return undo


def _at_exit(reference: weakref.ref[Client]) -> None:
    """Close a client that nobody closed, while the interpreter can still wait for it."""

    def close() -> None:
        client = reference()
        if client is not None:
            with contextlib.suppress(TernMQError):
                client.close(_AT_EXIT_TIMEOUT)

    atexit.register(close)
