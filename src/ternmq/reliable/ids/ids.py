"""Numbers that are unique for a topic, one by one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, overload

from ternmq.client.client import Client as AsyncClient
from ternmq.client.connection.raising import own
from ternmq.client.content.validation import seconds_of
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.numbers import NumberSource
from ternmq.client.process import pickling
from ternmq.client.process.steady import steady_ns
from ternmq.model.errors import (
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    InvalidRequest,
    TernMQError,
)
from ternmq.model.specs import check_name
from ternmq.reliable.ids.supply import SECOND_NS, Ask, Supply
from ternmq.sync.client import Client as SyncClient
from ternmq.sync.loop_thread import LoopThread

C = TypeVar("C", AsyncClient, SyncClient)

_PATIENCE: Final = 0.05


@dataclass(slots=True, frozen=True)
class IdsStats:
    """Counts of an ``Ids`` object in this process.

    Attributes:
        taken: Numbers that were taken, those of the reserve included.
        fallbacks: Numbers that came from the reserve, because the broker did not answer.
        blocks: Blocks that were used.
        stale: Blocks that the broker gave too late to be used.
        away: Whether numbers come from the reserve now.
    """

    taken: int
    fallbacks: int
    blocks: int
    stale: int
    away: bool


class _Life:
    """The numbers of one process, and the requests for more.

    Args:
        topic: Name of the topic.
        source: Asks the broker.
        patience_ns: How long a caller waits before it falls back.
        timeout_ns: How long one waits that cannot fall back.

    Attributes:
        pid: The process.
        lock: Held for the use of ``supply``.
        posted: ``begin`` is about to be called in the loop.
    """

    __slots__ = (
        "_patience_ns", "_source", "_tasks", "_timeout_ns", "_topic", "_waiting", "lock", "pid",
        "posted", "supply",
    )  # fmt: skip

    def __init__(self, topic: str, source: NumberSource, patience_ns: int, timeout_ns: int) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.supply = Supply(topic, source.reserve)
        self.posted = False
        self._topic = topic
        self._source = source
        self._patience_ns = patience_ns
        self._timeout_ns = timeout_ns
        self._waiting: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Ask for a block, if one is wanted. Call it in the client's loop."""
        self.posted = False
        with self.lock:
            ask = self.supply.ask(steady_ns())
        if ask is not None:
            task = asyncio.get_running_loop().create_task(self._carry_out(ask))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, ask: Ask) -> None:
        try:
            taken = await self._source.take(self._topic, ask.count)
        except TernMQError as error:
            with self.lock:
                self.supply.failed(ask, own(error), steady_ns())
        else:
            with self.lock:
                self.supply.answered(ask, taken.first, taken.count, steady_ns())
        finally:
            if not ask.done:  # the loop ends, and cancels this
                with self.lock:
                    self.supply.failed(ask, ClientClosed("the client was closed"), steady_ns())
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def next(self) -> int:
        """Return the next number; wait for it if there is none. Call it in the client's loop."""
        began = steady_ns()
        seen: Ask | None = None
        while True:
            now = steady_ns()
            with self.lock:
                supply = self.supply
                number = supply.take(now)
                if number is None:
                    self._raise_error(seen)
                    if now - began >= self._patience_ns:
                        number = self._late(now - began)
                away = supply.away
            self.begin()
            if number is not None:
                if away:  # a caller that never waits would keep the loop from hearing the answer
                    await asyncio.sleep(0)
                return number
            seen = supply.asking
            can_fall_back = self._source.reserve.there or not self._source.reached
            most = self._patience_ns if can_fall_back else self._timeout_ns
            await self._wait(seen, began + most - now)

    async def start(self) -> None:
        """Wait until the broker has answered once. Call it in the client's loop."""
        began = steady_ns()
        while not self.supply.answers:
            self.begin()
            seen = self.supply.asking
            before = seen is None or seen.done  # its error is of an earlier call
            await self._wait(seen, began + self._timeout_ns - steady_ns())
            if not before:
                self._raise_error(seen)
            if steady_ns() - began >= self._timeout_ns:
                raise self._unanswered()

    def _late(self, waited_ns: int) -> int | None:
        """Return a number for a caller whose patience is over; None: it has to wait on.

        Raises:
            CannotConnect: The client never reached a broker.
            ConnectionLost: The caller has waited for the client's timeout.
        """
        number = self.supply.fall_back()
        if number is not None:
            return number
        if not self._source.reached:
            raise CannotConnect(
                f"no broker was reached within {self._patience_ns / SECOND_NS:g} s, and this "
                f"process has no numbers of topic {self._topic!r} yet"
            )
        if waited_ns >= self._timeout_ns:
            raise self._unanswered()
        return None

    def _unanswered(self) -> ConnectionLost:
        return ConnectionLost(
            f"no usable numbers of topic {self._topic!r} within {self._timeout_ns / SECOND_NS:g} s"
        )

    def _raise_error(self, seen: Ask | None) -> None:
        """Raise why the request that the caller waited for failed."""
        if seen is not None and seen.error is not None:
            raise own(seen.error)

    async def _wait(self, seen: Ask | None, most_ns: int) -> None:
        """Wait until a request ends, for a while at most."""
        if seen is None or seen.done:  # another thread took what came, or it is not asked for yet
            await asyncio.sleep(0.001)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout(max(0, most_ns) / SECOND_NS):
                await waiter
        except TimeoutError:
            pass  # the caller looks what it does now
        finally:
            self._waiting.discard(waiter)


class Ids(pickling.NotPickled, Generic[C]):
    """Numbers that are unique for a topic, in all processes that use its numbers.

    ::

        ids = Ids(client, "orders")
        order_id = await ids.next()  # with a client of ``ternmq.sync``: ids.next()

    A number is a positive int of at most 63 bits. In a process each number is larger than the one
    before. A number that is taken more than a second after another one, in any process, is larger.
    Numbers have gaps.

    The broker gives numbers in blocks, which are durable before they are used. If it does not
    answer within ``patience``, numbers come from a reserve that only this client has, at once,
    until it answers again. These are unique, too, but larger than all others (2^62 or more): the
    order is kept again once the broker answers. ``stats`` counts them.

    The app needs the right *produce* on the topic. The numbers of a topic are deleted with it; a
    topic that is created again repeats none.

    With a client of ``ternmq.sync``, any thread may call it; a forked child begins anew. With an
    asyncio client, it is used in the client's loop.

    Args:
        client: The client, of ``ternmq`` or of ``ternmq.sync``. Making ``Ids`` does no I/O.
        topic: The topic: its name, or a ``Topic``.
        patience: How long ``next`` waits for the broker before it takes from the reserve, in
            seconds or as a timedelta.

    Raises:
        InvalidName, InvalidRequest: A value is not valid.
    """

    _not_pickled = (
        "an Ids object belongs to a process: make one in each, with that process's client"
    )

    def __init__(
        self, client: C, topic: str | Topic, *, patience: float | timedelta = _PATIENCE
    ) -> None:
        self._front: _Blocking | _Awaited
        given: object = client
        if not isinstance(given, AsyncClient | SyncClient):
            raise InvalidRequest(
                "a client is made by ternmq.connect or ternmq.sync.connect; this is of type "
                f"{type(given).__name__}"
            )
        patience_ns = int(seconds_of("patience", patience) * SECOND_NS)
        name = check_name(name_of(topic))
        if isinstance(client, SyncClient):
            self._front = _Blocking(client, name, patience_ns)
        else:
            self._front = _Awaited(client, name, patience_ns)
        self._next: Callable[[], Coroutine[Any, Any, int] | int] = self._front.next
        self._topic = name

    def __repr__(self) -> str:
        return f"<Ids of topic {self._topic!r}>"

    @overload
    def next(self: Ids[AsyncClient]) -> Coroutine[Any, Any, int]: ...
    @overload
    def next(self: Ids[SyncClient]) -> int: ...
    def next(self) -> Coroutine[Any, Any, int] | int:
        """Return the next number; to be awaited with an asyncio client.

        It waits only if no number is there, for ``patience`` at most; in a process that has no
        reserve yet, but reached the broker, for the client's timeout.

        Raises:
            CannotConnect: The client never reached a broker. ``start`` waits for it.
            ConnectionLost: The broker did not answer in time, and there is no reserve.
            UnknownTopic, Forbidden: There is no such topic, or the app may not send to it.
            TernMQError: The broker refused it otherwise, as a send; or the client cannot be used.
        """
        return self._next()

    @overload
    def start(self: Ids[AsyncClient]) -> Coroutine[Any, Any, None]: ...
    @overload
    def start(self: Ids[SyncClient]) -> None: ...
    def start(self) -> Coroutine[Any, Any, None] | None:
        """Get the first block and the reserve; to be awaited with an asyncio client.

        It waits for the broker, for the client's timeout at most. A program that calls it at its
        start has numbers from then on, also while the broker is away.

        Raises:
            TernMQError: As from ``next``.
        """
        return self._front.start()

    def stats(self) -> IdsStats:
        """Return counts of this process. No I/O; callable from any thread."""
        supply = self._front.supply
        if supply is None:
            return IdsStats(0, 0, 0, 0, away=False)
        return IdsStats(
            supply.taken, supply.fallbacks, supply.blocks, supply.stale, away=supply.away
        )


class _Front(Generic[C]):
    """What both kinds of ``Ids`` have: the life of this process."""

    __slots__ = ("_client", "_life", "_lives", "_patience_ns", "_topic")

    def __init__(self, client: C, topic: str, patience_ns: int) -> None:
        self._client: C = client
        self._topic = topic
        self._patience_ns = patience_ns
        self._life: _Life | None = None
        self._lives: dict[tuple[int, int], _Life] = {}
        """By process and source. Of threads that make one at the same time, one is faster."""

    @property
    def supply(self) -> Supply | None:
        """The numbers of this process; None: it asked for none."""
        life = self._life
        return None if life is None or life.pid != os.getpid() else life.supply

    def _live(self, source: NumberSource) -> _Life:
        """Return the life of this process with these numbers."""
        timeout_ns = int(self._client.options.timeout * SECOND_NS)
        made = _Life(self._topic, source, self._patience_ns, timeout_ns)
        self._life = life = self._lives.setdefault((made.pid, id(source)), made)
        return life


class _Awaited(_Front[AsyncClient]):
    """``Ids`` of an asyncio client."""

    __slots__ = ()

    async def next(self) -> int:
        """Return the next number."""
        life = self._life
        if life is None or life.pid != os.getpid():
            life = self._begin()
        supply = life.supply
        with life.lock:
            at = steady_ns()
            number = None if supply.away else supply.take(at)
            wants = supply.wants and supply.due(at)
        if number is None:
            return await life.next()
        if wants:
            life.begin()
            for _ in range(2):  # the request leaves, also if the caller never waits
                await asyncio.sleep(0)
        return number

    async def start(self) -> None:
        """Get the first block and the reserve."""
        await self._begin().start()

    def _begin(self) -> _Life:
        source = self._client.numbers
        source.bind()
        return self._live(source)


class _Blocking(_Front[SyncClient]):
    """``Ids`` of a client for threads."""

    __slots__ = ("_thread",)

    def __init__(self, client: SyncClient, topic: str, patience_ns: int) -> None:
        super().__init__(client, topic, patience_ns)
        self._thread: LoopThread

    def next(self) -> int:
        """Return the next number."""
        life = self._life
        if life is None or life.pid != os.getpid():
            life = self._begin()
        supply = life.supply
        with life.lock:
            at = steady_ns()
            number = supply.take(at)
            wants = supply.wants and supply.due(at)
        if number is None:
            return self._thread.call(life.next())
        if wants and not life.posted:
            life.posted = True
            self._thread.post(life.begin)
        return number

    def start(self) -> None:
        """Get the first block and the reserve."""
        life = self._begin()
        self._thread.call(life.start())

    def _begin(self) -> _Life:
        thread, engine = self._client.reach()
        self._thread = thread
        return self._live(engine.numbers)
