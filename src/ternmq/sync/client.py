"""The blocking client."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Literal, Self, TypeVar, overload

from ternmq.client import client as engine
from ternmq.client.connection.options import Options
from ternmq.client.connection.signals import Signals
from ternmq.client.connection.stats import ClientStats
from ternmq.client.consumer.consuming import engine_of
from ternmq.client.consumer.deliveries import Deliveries as EngineDeliveries
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.membership import OnAssigned
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.message import Message, Queue, Receipt
from ternmq.client.content.validation import drain_of, flag, seconds_of
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.declaration.source import Source
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.handler.declarations import Declarations
from ternmq.client.handler.depends import Provider
from ternmq.client.handler.signature import Function
from ternmq.client.process import pickling
from ternmq.client.process.exiting import at_end_of_child
from ternmq.client.process.forking import watch, watched
from ternmq.client.producer.heard import PassOn, SentSoon
from ternmq.client.sending import copied, items_of
from ternmq.client.topology import Topology
from ternmq.model.errors import ClientClosed, TernMQError
from ternmq.model.specs import Mode, Start
from ternmq.sync.admin import Admin, DeadLetters
from ternmq.sync.consumer import Consumer
from ternmq.sync.deliveries import Deliveries
from ternmq.sync.facade import blocking
from ternmq.sync.loop_thread import LoopThread
from ternmq.sync.transactions import Transaction
from ternmq.sync.writing import sending

F = TypeVar("F", bound=Function)
A = TypeVar("A", bound=OnAssigned)
Part = TypeVar("Part")


@dataclass(slots=True, frozen=True)
class _Stopped:
    """A call of ``stop``: in which process, and its argument."""

    pid: int
    at_once: bool


@dataclass(slots=True, frozen=True)
class Life:
    """The parts of a client in one process; never changed, only replaced as a whole.

    Attributes:
        pid: The process.
        thread: Runs the event loop.
        engine: The client in that loop.
    """

    pid: int
    thread: LoopThread
    engine: engine.Client

    def end(self, timeout: float | None) -> None:
        """Close the client, then end the loop; raises as ``Client.close``."""
        try:
            self.thread.call(self.engine.close(timeout))
        finally:
            self.thread.stop()


class Client(pickling.NotPickled):
    """``ternmq.Client`` for threads; its methods are described there. Callable from any thread.

    Attributes:
        admin: Manages topics, groups and apps, and shows the state of the broker.
        deadletters: Messages that failed for good.
        stores: Databases in which its messages may be written down; see ``ternmq.reliable``.
    """

    _not_pickled = pickling.CLIENT

    def __init__(self, options: Options) -> None:
        self._options = options
        self._codecs = Codecs()
        self.admin = Admin(lambda: self._part(lambda client: client.admin))
        self.deadletters = DeadLetters(lambda: self._part(lambda client: client.deadletters))
        self._life: Life | None = None
        self._stopped: _Stopped | None = None
        self._locks: dict[int, threading.RLock] = {}
        self._closed = False
        self._declarations = Declarations()
        self.stores = self._declarations.stores
        self._left_behind: list[Life] = []
        self._ended: engine.Client | None = None
        """The client in the loop that ``close`` ended: its counts stay."""
        watch(self)

    @property
    def options(self) -> Options:
        """Its settings; those of a client do not change."""
        return self._options

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def codecs(self) -> Codecs:
        """How bodies are encoded and decoded; others can be registered."""
        return self._codecs

    def __repr__(self) -> str:
        return f"<blocking Client of {self.options.url}, app {self.options.app!r}>"

    # -- start and end ----------------------------------------------------------------------------

    def reach(self) -> tuple[LoopThread, engine.Client]:
        """Return the loop's thread and the client in that loop; made at first use.

        Raises:
            ClientClosed: The client was closed.
        """
        life = self._life
        if life is None or life.pid != os.getpid():
            life = self._begin()
        return life.thread, life.engine

    def _begin(self) -> Life:
        """Return this process's life; the first thread makes it."""
        pid = os.getpid()
        with self._lock(pid):
            if self._closed:
                raise ClientClosed("the client is closed")
            life = self._life
            if life is None or life.pid != pid:
                client = engine.Client(self.options, self.codecs, self._declarations, served=True)
                self._life = life = Life(pid, LoopThread(self.options.timeout), client)
                at_end_of_child(_close_all, priority=1)
            return life

    def _lock(self, pid: int) -> threading.RLock:
        """Return the lock of a process: another thread may have held the parent's at the fork."""
        return self._locks.setdefault(pid, threading.RLock())

    def after_fork(self) -> None:
        """Start over in the child, at the next use."""
        life, self._life = self._life, None
        if life is not None:
            # Kept, since the end of a loop or transport would reach into the parent.
            self._left_behind.append(life)
        self._locks = {}

    def _part(self, choose: Callable[[engine.Client], Part]) -> tuple[LoopThread, Part]:
        thread, client = self.reach()
        return thread, choose(client)

    def connect(self) -> Self:
        """Connect. Entering the client, or its first use, does the same."""
        thread, client = self.reach()
        thread.call(client.connect())
        return self

    def __enter__(self) -> Self:
        pid = os.getpid()
        unused = self._life is None
        try:
            return self.connect()
        except BaseException:
            # There is no ``__exit__`` then, and the thread would go on trying to connect.
            if unused:
                self._end_use(pid)
            raise

    def _end_use(self, pid: int) -> None:
        """End what the first use began; another use begins anew."""
        with self._lock(pid):
            life, self._life = self._life, None
        if life is not None and life.pid == pid:
            with contextlib.suppress(TernMQError):
                life.end(0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(TernMQError):  # the block's own error is raised
                self.close()

    def close(self, timeout: float | timedelta | None = None) -> None:
        """Send what waits, report what was settled to the broker, and leave.

        Raises:
            UnsentMessages: Messages of ``send_soon`` were not stored, or their outcome is unknown.
            ClientError: A handler of this client called it, and would wait for its own end.
        """
        if timeout is not None:
            timeout = seconds_of("timeout", timeout)
        pid = os.getpid()
        open_life = self._life
        if open_life is not None and open_life.pid == pid:
            open_life.engine.serving.check_may_close()
        with self._lock(pid):
            self._closed = True
            life, self._life = self._life, None
            if life is not None:
                self._ended = life.engine
        if life is None:
            return
        if life.pid != pid:
            self._left_behind.append(life)
            return
        life.end(timeout)

    def stats(self) -> ClientStats:
        """Return counts of the client's work so far, also after ``close``."""
        try:
            client = self.reach()[1]
        except ClientClosed:  # perhaps before its first use
            client = self._ended or engine.Client(self.options, served=True)
        return client.stats()

    # -- sending ----------------------------------------------------------------------------------

    send = sending(blocking(engine.Client.send))
    flush = blocking(engine.Client.flush)
    prepare = blocking(engine.Client.prepare)
    commit_prepared = blocking(engine.Client.commit_prepared)
    abort_prepared = blocking(engine.Client.abort_prepared)

    @overload
    def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        return_errors: Literal[False] = False,
        within: object = None,
    ) -> list[Receipt]: ...

    @overload
    def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        return_errors: Literal[True],
        within: object = None,
    ) -> list[Receipt | Exception]: ...

    def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        return_errors: bool = False,
        within: object = None,
    ) -> list[Receipt] | list[Receipt | Exception]:
        """Send many messages; returns when the outcome of each is known."""
        thread, client = self.reach()
        flag("return_errors", return_errors)
        if within is not None or self.stores:
            topic, place = client.writing.place(topic, within)
            within = False  # in the loop the block of the caller would be found again
            if place is not None:
                writing, items = client.writing, items_of(messages)
                given = writing.defaults(queue, deliver_after, deliver_at, priority, expires_after)
                return writing.many(place, topic, items, given)
        if return_errors:
            return thread.call(
                client.send_many(
                    topic,
                    messages,
                    queue=queue,
                    deliver_after=deliver_after,
                    deliver_at=deliver_at,
                    priority=priority,
                    expires_after=expires_after,
                    return_errors=True,
                    within=within,
                )
            )
        return thread.call(
            client.send_many(
                topic,
                messages,
                queue=queue,
                deliver_after=deliver_after,
                deliver_at=deliver_at,
                priority=priority,
                expires_after=expires_after,
                within=within,
            )
        )

    def send_soon(
        self,
        topic: str | Topic,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        id: str | None = None,  # noqa: A002
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
    ) -> Future[Receipt]:
        """Send a message without waiting; the future returns its receipt.

        In a block that is bound to a transaction, the message is written at once and the future is
        done.
        """
        thread, client = self.reach()
        if self.stores:
            topic, place = client.writing.place(topic, None)
            if place is not None:
                message = Message(
                    body, key, ordering_key, tag, copied(headers), content_type, id, queue,
                    deliver_after, deliver_at, priority, expires_after,
                )  # fmt: skip
                done: Future[Receipt] = Future()
                done.set_result(client.writing.one(place, topic, message))
                return done
        told = thread.promise(SentSoon())

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
                    deliver_after=deliver_after,
                    deliver_at=deliver_at,
                    priority=priority,
                    expires_after=expires_after,
                )
            except Exception as error:  # noqa: BLE001 - a middleware's own, too: set in the future
                message = Message(
                    body, key, ordering_key, tag, headers or {}, content_type, id, queue,
                    deliver_after, deliver_at, priority, expires_after,
                )  # fmt: skip
                client.refused_soon(topic, message, error, told)
            else:
                asked.add_done_callback(PassOn(told))

        thread.post(send)
        return told

    def send_oneway(
        self,
        topic: str | Topic,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        queue: Queue | None = None,
        priority: int = 0,
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
                priority=priority,
            )

        thread.call(send())

    # -- transactions -----------------------------------------------------------------------------

    def transaction(
        self,
        group: str,
        *,
        query_id: str = "",
        on_error: Literal["rollback", "check"] = "rollback",
        check_after: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
    ) -> Transaction:
        """Return a transaction: a context manager; see ``ternmq.Client.transaction``."""
        thread, client = self.reach()
        made = client.transaction(
            group, query_id=query_id, on_error=on_error, check_after=check_after, timeout=timeout
        )
        return Transaction(made, thread)

    transaction_outcome = blocking(engine.Client.transaction_outcome)

    def checker(self, group: str) -> Callable[[F], F]:
        """Declare the function that decides about transactions whose client is gone.

        A decorator; see ``ternmq.Client.checker``.

        Raises:
            InvalidHandler: It cannot be called with a transaction; or there is one for the group.
            InvalidName: The name of the group is not valid.
        """

        def declare(function: F) -> F:
            self._declarations.add_checker(function, group)
            life = self._life
            if life is not None and life.pid == os.getpid():
                life.engine.offer(group)
            return function

        return declare

    # -- receiving --------------------------------------------------------------------------------

    def pull(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        max_messages: int = 500,
        wait: float | timedelta = 10.0,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> Deliveries:
        """Return messages for a group, at most ``max_messages``; waits until there is one."""
        thread, client = self.reach()
        found = thread.call(
            client.pull(
                topic,
                group=group,
                max_messages=max_messages,
                wait=wait,
                tags=tags,
                filter=filter,
                mode=mode,
                start=start,
                broadcast=broadcast,
                instance=instance,
            )
        )
        return Deliveries(found, thread)

    def consume(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        max_in_flight: int | None = None,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> Consumer:
        """Return deliveries one by one: a context manager around an iterator."""
        thread, client = self.reach()
        consumer = client.consume(
            topic,
            group=group,
            max_in_flight=max_in_flight,
            tags=tags,
            filter=filter,
            mode=mode,
            start=start,
            broadcast=broadcast,
            instance=instance,
        )
        return Consumer(engine_of(consumer), thread)

    def consume_batches(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        max_messages: int = 500,
        max_wait: float | timedelta = 2.0,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> Iterator[Deliveries]:
        """Return deliveries in batches: ``max_messages``, or all within ``max_wait``."""
        thread, client = self.reach()
        batches = client.consume_batches(
            topic,
            group=group,
            max_messages=max_messages,
            max_wait=max_wait,
            tags=tags,
            filter=filter,
            mode=mode,
            start=start,
            broadcast=broadcast,
            instance=instance,
        )
        found: Iterator[EngineDeliveries] = thread.iterate(batches)
        return (Deliveries(one, thread) for one in found)

    leave = blocking(engine.Client.leave)

    def on_assigned(self, function: A) -> A:
        """Call a function with the queues that this client owns, in the client's own thread.

        It must not call this client, whose calls would wait for themselves: hand what it is given
        to another thread, by a ``queue.SimpleQueue`` for example. See
        ``ternmq.Client.on_assigned``.

        Raises:
            InvalidHandler: It is no function of one argument, or an ``async def``.
        """
        self._declarations.add_on_assigned(function)
        return function

    def read(
        self,
        topic: str | Topic,
        *,
        start: int | datetime | Literal["earliest", "latest"] = "earliest",
        stop: int | datetime | None = None,
        queue: int | None = None,
        follow: bool = False,
        from_: Literal["primary", "replica"] = "primary",
    ) -> Iterator[BlockingDelivery]:
        """Read messages without a group: nothing is leased, nothing can be settled."""
        thread, client = self.reach()

        async def begin() -> object:
            return client.read(
                topic, start=start, stop=stop, queue=queue, follow=follow, from_=from_
            )

        found: Iterator[Delivery] = thread.iterate(thread.call(begin()))  # type: ignore[arg-type]
        return (BlockingDelivery(one, thread) for one in found)

    def behind(self) -> timedelta | None:
        """Return how far the replica was behind with its last answer to ``from_="replica"``.

        See ``ternmq.Client.behind``.
        """
        return self.reach()[1].behind()

    # -- handlers ---------------------------------------------------------------------------------

    def handler(
        self,
        topic: str | Topic,
        *,
        group: str | None = None,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        concurrency: int = 16,
        max_in_flight: int | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        retry: RetryPolicy | None = None,
        lease: float | timedelta | None = None,
        broadcast: bool | None = None,
        instance: str | None = None,
    ) -> Callable[[F], F]:
        """Declare that a function handles the messages of a group; ``run`` calls it, in threads."""
        name = self._declarations.name_of(topic)
        source = Source(
            name, group, tags, mode, start, retry, lease, filter,
            broadcast=broadcast, instance=instance, own_instance=self.options.instance,
        )  # fmt: skip

        def declare(function: F) -> F:
            self._declarations.add(function, source, concurrency, max_in_flight)
            return function

        return declare

    def declare(self, *topics: Topic) -> None:
        """Declare topics that must exist; ``run`` creates them. See ``ternmq.Client.declare``.

        Raises:
            InvalidRequest: A topic of that name is already declared with other settings.
        """
        self._declarations.declare(topics)

    apply = blocking(engine.Client.apply)

    def handler_middleware(self, function: F) -> F:
        """Run a generator around each call of a handler; see ``ternmq.Client``."""
        self._declarations.middlewares.around_handlers(function)
        return function

    def send_middleware(self, function: F) -> F:
        """Run a generator around each send, in the loop; see ``ternmq.Client``."""
        self._declarations.middlewares.around_sends(function)
        return function

    def lifespan(self, function: F) -> F:
        """Run a generator around ``run``, in the thread that calls it; a decorator.

        See ``ternmq.Client.lifespan``. An ``async def`` runs in the client's loop.
        """
        self._declarations.middlewares.around_run(function)
        return function

    @property
    def overrides(self) -> dict[Provider, Provider]:
        """Providers that replace others from the next ``run`` on, as in tests."""
        return self._declarations.middlewares.overrides

    @property
    def topology(self) -> Topology:
        """The declared topics and groups; see ``ternmq.Client.topology``."""
        return Topology(self._declarations)

    def run(
        self, *, signals: bool | None = None, drain_timeout: float | timedelta | None = None
    ) -> None:
        """Call handlers with messages until ``stop()`` or a signal; then close.

        See ``ternmq.Client.run``.
        """
        if drain_timeout is not None:
            drain_timeout = drain_of(drain_timeout)
        thread, client = self.reach()
        if self._stopped is not None and self._stopped.pid == os.getpid():
            thread.post(partial(client.stop, at_once=self._stopped.at_once))
        client.serving.begin_run()
        try:
            with Signals(thread.post, lambda now: client.stop(at_once=now), wanted=signals):
                try:
                    with contextlib.ExitStack() as stack:
                        awaited = self._declarations.middlewares.enter_blocking(stack, self)
                        thread.call(client.serve(awaited, drain_timeout))
                finally:
                    self.close()
        finally:
            client.serving.end_run()

    def stop(self, *, at_once: bool = False) -> None:
        """End ``run``. Callable from any thread."""
        flag("at_once", at_once)
        # Noted before it looks for a life, and ``run`` looks for the note after it has one: so
        # one of the two sees the other.
        self._stopped = _Stopped(os.getpid(), at_once)
        life = self._life
        if life is not None and life.pid == os.getpid():
            life.thread.post(lambda: life.engine.stop(at_once=at_once))

    # -- looking up -------------------------------------------------------------------------------

    cancel = blocking(engine.Client.cancel)
    get = blocking(engine.Client.get)
    find = blocking(engine.Client.find)
    replay = blocking(engine.Client.replay)


def _close_all() -> None:
    """Close the clients that are still open, while the interpreter can wait for them.

    Each has its own timeout, from now on: those that are closed later go on sending meanwhile.
    """
    began = time.monotonic()
    for client in watched(Client):
        with contextlib.suppress(TernMQError):
            client.close(max(0.0, client.options.timeout - (time.monotonic() - began)))


atexit.register(_close_all)
