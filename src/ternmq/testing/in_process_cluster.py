"""A broker group in a thread, for as long as a ``with`` block."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy  # noqa: F401, ICN001 - not by a thread of the brokers, in the middle of a test that forks

from ternmq.client.content.broker_time import moved_clocks
from ternmq.client.content.validation import check_positive, choose, seconds_of, whole
from ternmq.client.declaration.topic import Topic
from ternmq.client.process import pickling
from ternmq.cluster.coordination.wishes import Failover
from ternmq.model.errors import InvalidRequest
from ternmq.model.words import counted
from ternmq.server.app import Server
from ternmq.server.engine.engine import Core
from ternmq.testing import groups
from ternmq.testing.brokers import BEAT_US, Brokers, Place
from ternmq.testing.clock import ManualClock
from ternmq.testing.passage import Passage, end_runs, tell_of_leases

MOST_REPLICAS: Final = 4
START_S: Final = 60.0
"""Most seconds that starting or ending all brokers may take."""
_LEASES_US: Final = 60_000_000
"""Most time that passes between the brokers in one ``advance``: whatever waits for the end of a
lease, or for silence, is over by then."""
_SYNCING_US: Final = 100_000
_SYNCING_BEATS: Final = 10
"""Steps in which a member that is to take over syncs what it has: a second, less than a lease."""
_LOOK_S: Final = 0.005
_SET_BY_THE_KIT: Final = ("data", "http", "listen", "name")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A broker of a cluster, as it was when it was asked for.

    Attributes:
        name: Its name: ``a``, ``b`` and so on.
        role: ``primary``: it serves the clients. ``member``: its copy counts, so it can take over.
            ``follower``: its copy does not count, or not yet. Empty: it does not run.
        url: Its own address; clients use the address of the cluster, which names all brokers.
        running: Whether it runs.
    """

    name: str
    role: str
    url: str
    running: bool


class Cluster(pickling.NotPickled):
    """A primary and its replicas that a test controls; a context manager.

    The real brokers, each with a journal on a disk in memory, and a coordinator in memory. All
    methods may be called from any thread, and block: in a coroutine, call them by
    ``asyncio.to_thread``.

    Args:
        replicas: Number of brokers beside the primary.
        failover: What happens when the primary is gone: ``automatic``, a member takes over;
            ``reads``, and it takes no new messages before two copies exist again; ``operator``,
            nothing before ``promote``.
        settings: Settings of all brokers by name, such as ``{"create_topics": False}``.

    Attributes:
        clock: The clock of all brokers. Retries, delays and leases of messages count by it, and so
            do the leases between the brokers: after a kill no broker takes over, however long the
            test takes, before the clock was advanced.
    """

    _not_pickled = "a cluster of the testing kit cannot be pickled or copied: pass its url"

    def __init__(
        self,
        replicas: int = 1,
        *,
        failover: str = "automatic",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if not 0 <= whole("replicas", replicas) <= MOST_REPLICAS:
            raise InvalidRequest(f"replicas must be 0 to {MOST_REPLICAS}, not {replicas}")
        if not isinstance(settings, Mapping | None):
            raise InvalidRequest(
                "settings are a mapping from names to values, such as {'create_topics': False}, "
                f"not of type {type(settings).__name__}"
            )
        for name in settings or {}:
            if name in _SET_BY_THE_KIT:
                raise InvalidRequest(f"settings: {name!r} cannot be set: the cluster sets it")
        self.clock = ManualClock()
        names = [chr(ord("a") + number) for number in range(replicas + 1)]
        policy = choose("failover", Failover, failover)
        self._brokers = Brokers(names, settings or {}, self.clock, policy)
        self._passage = Passage(self.clock, lambda: bool(self._brokers.lost()))
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None
        self._began = threading.Event()
        self._error: BaseException | None = None
        self._end: asyncio.Event
        self._moving: asyncio.Lock
        self._changing: asyncio.Lock

    # -- what there is ----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address to connect to; it names all brokers."""
        ports = [one.port for one in self._brokers.places.values()]
        return "ternmq://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def brokers(self) -> list[ClusterBroker]:
        """The brokers, by name.

        Raises:
            RuntimeError: The cluster has ended.
        """
        return self._do(self._listed())

    @property
    def primary(self) -> ClusterBroker:
        """The broker that serves the clients.

        Raises:
            RuntimeError: None does; the text says what has to happen. The cluster has ended.
        """
        return self._do(self._primary())

    async def _listed(self) -> list[ClusterBroker]:
        return [self._shown(one) for one in self._brokers.places.values()]

    async def _primary(self) -> ClusterBroker:
        return self._shown(self._leader())

    def _leader(self) -> Place:
        place = self._brokers.serving()
        if place is None:
            raise RuntimeError(self._brokers.standing())
        return place

    def _shown(self, place: Place) -> ClusterBroker:
        return ClusterBroker(
            name=place.name,
            role=self._brokers.role(place),
            url=f"ternmq://127.0.0.1:{place.port}",
            running=place.node is not None,
        )

    # -- start and end ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a cluster is used once: make another one")
        self._thread = threading.Thread(target=self._work, name="ternmq-cluster", daemon=True)
        self._thread.start()
        if not self._began.wait(START_S):
            raise TimeoutError(f"the cluster did not start within {START_S:.0f} s")
        if self._error is not None:
            self._thread.join(START_S)
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ports = {one.port for one in self._brokers.places.values()}
        end_runs(ports)
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join(START_S)
            if thread.is_alive():
                raise TimeoutError(f"the cluster did not end within {START_S:.0f} s")
        for port in ports:
            moved_clocks.pop(port, None)
        if self._error is not None and error is None:
            raise self._error

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._error = error
        finally:
            self._began.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._moving, self._changing = asyncio.Lock(), asyncio.Lock()
        brokers = self._brokers
        try:
            for place in brokers.places.values():
                await brokers.start(place)
                await brokers.settle()
                moved_clocks[place.port] = self.clock.monotonic_us
            self.clock.settle_with(self._advance)
            self._began.set()
            await self._end.wait()
        finally:
            failed = await brokers.end_all()
        if failed:
            raise failed[0]

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the brokers, and return its result."""
        if self._thread is None or not self._thread.is_alive() or self._end.is_set():
            work.close()
            raise RuntimeError("the cluster does not run in this process: it has ended, or forked")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # -- changes ----------------------------------------------------------------------------------

    def kill(self, name: str | None = None) -> None:
        """End a broker like ``kill -9``; returns when it is gone, and its connections with it.

        What was answered is on a disk that counts. What was not answered may be lost. Nothing else
        changes before the clock is advanced: by two seconds, then the primary goes on without a
        replica; by three seconds, then a member takes over from the primary.

        Args:
            name: The broker; None: the primary.

        Raises:
            InvalidRequest: There is no broker of this name.
            RuntimeError: It does not run; or no broker is the primary, and the text says why.
        """
        self._do(self._ended(name, clean=False))

    def stop(self, name: str | None = None) -> None:
        """Stop a broker cleanly, as SIGTERM does; returns when another member leads.

        A primary without another member leaves nobody who leads.

        Args:
            name: The broker; None: the primary.

        Raises:
            InvalidRequest: There is no broker of this name.
            RuntimeError: It does not run; or no broker is the primary, and the text says why.
        """
        self._do(self._ended(name, clean=True))

    async def _ended(self, name: str | None, *, clean: bool) -> None:
        async with self._changing:
            place = self._leader() if name is None else self._brokers.place(name)
            self._note_end(place)
            await self._brokers.end(place, clean=clean)
            await self._brokers.settle()

    def _note_end(self, place: Place) -> None:
        if place.node is not None and place.node.server is not None:
            self._passage.ends(place.node.server)

    def start(self, name: str) -> None:
        """Start a broker again, with its disk and at its port.

        Returns when it leads, or when its copy counts; or when neither can be before another broker
        is started, or the clock is advanced. ``primary`` and ``brokers`` show what it is.

        Raises:
            InvalidRequest: There is no broker of this name.
            RuntimeError: It runs already.
            TernMQError: It cannot use its disk.
        """
        self._do(self._started(name))

    async def _started(self, name: str) -> None:
        async with self._changing:
            place = self._brokers.place(name)
            await self._brokers.start(place)
            await self._brokers.settle()

    def switch(self, *, to: str, timeout: float | timedelta = 30.0) -> None:
        """Have the primary hand over to a member, in order; returns when that one leads.

        Args:
            to: The broker that is to lead.
            timeout: In the machine's time: seconds, or a timedelta.

        Raises:
            InvalidRequest: There is no broker of this name, or ``timeout`` is not a time.
            RuntimeError: No broker leads, ``to`` leads already, or it is no running member.
            TimeoutError: It does not lead by then.
        """
        self._do(self._switched(to, seconds_of("timeout", timeout)))

    async def _switched(self, to: str, patience_s: float) -> None:
        async with self._changing:
            place = self._brokers.place(to)
            before = self._brokers.serving()
            if before is not None:
                self._note_end(before)
            await self._brokers.order_switch(place)
            until = time.monotonic() + patience_s
            beats = _SYNCING_BEATS
            while self._brokers.serving() is not place:
                if beats:  # a member syncs a moment after it was sent something, by the same clock
                    beats -= 1
                    await self._brokers.beat(_SYNCING_US)
                if time.monotonic() > until:
                    raise TimeoutError(
                        f"{to} does not lead after {patience_s:g} s: {self._brokers.standing()}"
                    )
                await asyncio.sleep(_LOOK_S)
            await self._brokers.settle()

    def promote(self, name: str) -> None:
        """Have a member lead in the place of a primary that is gone, as an operator does.

        Needed with ``failover="operator"``. When the lease of the primary is over, it leads at
        return; else as soon as the clock was advanced to the end of the lease.

        Args:
            name: The broker that is to lead.

        Raises:
            InvalidRequest: There is no broker of this name.
            RuntimeError: A broker leads, or this one is no running member.
        """
        self._do(self._promoted(name))

    async def _promoted(self, name: str) -> None:
        async with self._changing:
            await self._brokers.order_promotion(self._brokers.place(name))
            await self._brokers.settle()

    # -- waits ------------------------------------------------------------------------------------

    def wait_for_copies(self, copies: int, *, timeout: float | timedelta = 10.0) -> None:
        """Wait until this many running brokers have a copy that counts, the primary among them.

        Args:
            copies: Number of copies, at least.
            timeout: In the machine's time: seconds, or a timedelta.

        Raises:
            InvalidRequest: The cluster does not have so many brokers, or an argument is no number.
            TimeoutError: There are fewer by then; the text says what is missing.
            RuntimeError: The cluster has ended.
        """
        check_positive("copies", copies)
        most = len(self._brokers.places)
        if copies > most:
            raise InvalidRequest(f"copies: this cluster has {counted(most, 'broker')}")
        self._do(self._copied(copies, seconds_of("timeout", timeout)))

    async def _copied(self, copies: int, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        while len(found := self._brokers.copies()) < copies:
            if time.monotonic() > until:
                have = f"{len(found)} ({', '.join(found)})" if found else "none"
                raise TimeoutError(
                    f"copies that count after {patience_s:g} s: {have}, not {copies}; "
                    f"{self._brokers.standing()}"
                )
            await asyncio.sleep(_LOOK_S)

    def wait_idle(
        self, topic: str | Topic, group: str, *, timeout: float | timedelta = 10.0
    ) -> None:
        """Wait until a group has nothing to do, as ``InProcessBroker.wait_idle``.

        Raises:
            TimeoutError: It is not idle by then; the text has its state.
            RuntimeError: The cluster has ended.
            InvalidName: A name is not valid.
            InvalidRequest: ``timeout`` is not a time.
        """
        self._do(groups.wait_idle(self._core, topic, group, timeout))

    def wait_failed(
        self,
        topic: str | Topic,
        group: str,
        *,
        messages: int = 1,
        timeout: float | timedelta = 10.0,
    ) -> None:
        """Wait until a group has failed on this many messages, as ``InProcessBroker.wait_failed``.

        Raises:
            TimeoutError: There are fewer by then; the text has the group's state.
            RuntimeError: The cluster has ended.
            InvalidName: A name is not valid.
            InvalidRequest: ``timeout`` is not a time, ``messages`` is not a number above 0, or the
                group is a broadcast instance, in which a failed message is done at once.
        """
        self._do(groups.wait_failed(self._core, topic, group, messages, timeout))

    def _core(self) -> Core | None:
        server = self._brokers.server()
        return None if server is None else server.core

    # -- time -------------------------------------------------------------------------------------

    def _advance(self, target_us: int) -> None:
        """Move the clock, and run what comes due. Callable from any thread but the loop's."""
        self._do(self._move(target_us))

    async def _move(self, target_us: int) -> None:
        """Move the clock; in small steps at first, in which the brokers that run hear each other.

        After ``_LEASES_US`` no lease and no silence is left to wait for: the clock leaps, until a
        broker ends.
        """
        async with self._moving:
            clock, brokers = self.clock, self._brokers
            steps_until_us = min(target_us, clock.monotonic_us() + _LEASES_US)
            server = await self._arrived(None)
            calm = server is not None and not brokers.lost()
            while True:
                now_us = clock.monotonic_us()
                small = now_us < steps_until_us
                stop_us = min(now_us + BEAT_US, steps_until_us) if small else target_us
                if server is not None:
                    await self._passage.go(server, stop_us)
                else:
                    clock.leap(stop_us)  # whatever has timers has ended
                await brokers.beat(clock.monotonic_us() - now_us if small else 0)
                await brokers.settle()
                before, server = server, await self._arrived(server)
                calm, was_calm = server is not None and not brokers.lost(), calm
                if was_calm and not calm:
                    steps_until_us = min(target_us, clock.monotonic_us() + _LEASES_US)
                await asyncio.sleep(0)
                if clock.monotonic_us() >= target_us and server is before:
                    break
            if server is not None:
                await tell_of_leases(server)

    async def _arrived(self, before: Server | None) -> Server | None:
        """Return the server of the primary; if it is another one, its clients have come to it."""
        server = self._brokers.server()
        if server is not None and server is not before:
            await self._passage.begin(server)
        return server


@contextmanager
def cluster(
    replicas: int = 1,
    *,
    failover: str = "automatic",
    settings: Mapping[str, object] | None = None,
) -> Iterator[Cluster]:
    """Run a primary and its replicas for the length of a ``with`` block.

    Args:
        replicas: Number of brokers beside the primary: 0 to 4.
        failover: What happens when the primary is gone: ``automatic``, ``reads`` or ``operator``.
        settings: Settings of all brokers by name.

    Yields:
        The cluster: ``url``, ``clock``, ``primary``, ``brokers``, ``kill()``, ``start()``,
        ``switch()``. At the end of the block, ``run`` of clients in this process that are connected
        to it ends, too.
    """
    with Cluster(replicas, failover=failover, settings=settings) as one:
        yield one
