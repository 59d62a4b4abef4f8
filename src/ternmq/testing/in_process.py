"""The broker in a thread, for as long as a ``with`` block."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import numpy  # noqa: F401, ICN001 - not by a thread of the broker, in the middle of a test that forks

from ternmq.broker.group.lease import LEASE_BITS, LEASE_LIMIT
from ternmq.client.client import Client, leases_of
from ternmq.client.content.broker_time import moved_clocks
from ternmq.client.content.validation import check_positive, seconds_of
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.process import pickling
from ternmq.client.process.forking import watched
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import INSTANCE_GROUPS, check_group
from ternmq.model.types import HOUR_US
from ternmq.model.words import article
from ternmq.server.app import Server
from ternmq.server.engine.engine import Core
from ternmq.settings import Mode, load
from ternmq.sync.client import Client as BlockingClient
from ternmq.testing import groups
from ternmq.testing.clock import ManualClock

START_S: Final = 30.0
"""Most seconds that starting or stopping may take."""
HANDLING_S: Final = 2.0
"""Most seconds that ``advance`` waits for consumers."""
CONNECTING_S: Final = 5.0
"""Most seconds to wait for consumers that were connected before a start."""
BEFORE_S: Final = 0.2
"""Most seconds that ``advance`` waits for consumers to settle what they had before time moved, and
to pull again."""
_LOOK_S: Final = 0.002
_STRIDES: Final = 64
"""Approximate number of stops of the clock on its way if nothing is due."""
_LAST_US: Final = 10_000_000
"""The clock moves this last part second by second: every periodic check has run by its end."""
_LAST_STRIDE_US: Final = 1_000_000
_NEVER: Final = 1 << 62


class InProcessBroker(pickling.NotPickled):
    """A real broker that a test controls; a context manager.

    Args:
        clock: Its time; None: the machine's clocks.
        settings: Settings of the broker by name, such as ``{"create_topics": False}``.
        disk: Disk of its journal; None: in memory. A second broker on the same disk continues where
            the first ended.

    Attributes:
        clock: The clock; with the machine's clocks it cannot be advanced.
        disk: The disk.
    """

    _not_pickled = "a broker of the testing kit cannot be pickled or copied: pass its url"

    def __init__(
        self,
        *,
        clock: ManualClock | None,
        settings: Mapping[str, object] | None = None,
        disk: Disk | None = None,
    ) -> None:
        if disk is not None and not callable(getattr(disk, "lock", None)):
            kind = article(type(disk).__name__)
            raise InvalidRequest(f"disk is a MemoryDisk, a RealDisk or another disk, not {kind}")
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        self._clock = clock
        if not isinstance(settings, Mapping | None):
            raise InvalidRequest(
                "settings are a mapping from names to values, such as {'create_topics': False}, "
                f"not of type {type(settings).__name__}"
            )
        self._settings = dict(settings or {})
        for name in self._settings:
            if not isinstance(name, str):
                raise InvalidRequest(
                    f"settings: the name of a setting is a str, and {name!r:.80} is "
                    f"{article(type(name).__name__)}"
                )
        if "data" in self._settings:
            raise InvalidRequest(
                "settings: 'data' cannot be set: this broker has no folder; disk=RealDisk(folder) "
                "gives it one"
            )
        self._loop: asyncio.AbstractEventLoop
        self._server: Server
        self._thread: threading.Thread | None = None
        self._began = threading.Event()
        self._error: BaseException | None = None
        self._end: asyncio.Event
        self._clean = True
        self._waited_for = -1
        """Count of pulls and questions when ``advance`` last waited for consumers and checkers in
        vain."""
        self._listened = 0
        """Number of pulls that waited when it was stopped: those consumers come back."""
        self._offered = 0
        """Number of clients with checkers when it was stopped."""

    @property
    def clock(self) -> ManualClock:
        """The clock that the test moves.

        Raises:
            RuntimeError: The broker was made with the machine's clocks.
        """
        if self._clock is None:
            raise RuntimeError("this broker runs on the machine's clocks: broker(manual=True)")
        return self._clock

    @property
    def port(self) -> int:
        """The port that it listens on, on 127.0.0.1."""
        return self._server.port

    @property
    def http_port(self) -> int:
        """The port of /metrics and others; 0 if they are off, as by default."""
        return self._server.http_port

    @property
    def url(self) -> str:
        """The address to connect to."""
        return f"ternmq://127.0.0.1:{self.port}"

    # -- start and stop ---------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it; returns when it listens. After a stop: on its disk, at the same port.

        Raises:
            TernMQError: It cannot open its journal.
            TimeoutError: It did not start in time.
            RuntimeError: It runs already.
        """
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("the broker runs already: stop() or restart() it")
        self._began.clear()
        self._error = None
        self._thread = threading.Thread(target=self._work, name="ternmq-broker", daemon=True)
        self._thread.start()
        if not self._began.wait(START_S):
            raise TimeoutError(f"the broker did not start within {START_S:.0f} s")
        try:
            self._raise()
        except BaseException:
            self._thread.join(START_S)
            self._thread = None  # there is nothing to stop
            raise
        return self

    def stop(self, *, clean: bool = True) -> None:
        """Stop it: cleanly, or (``clean=False``) as if it was killed: only its disk is kept.

        Raises:
            TimeoutError: It did not end in time.
        """
        thread = self._thread
        if thread is None:
            return
        self._clean = clean
        self._listened = self._server.core.broker.parked_pulls
        self._offered = len(self._server.hub.desk.checkers)
        self._loop.call_soon_threadsafe(self._end.set)
        thread.join(START_S)
        if thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {START_S:.0f} s")
        self._thread = None
        # Clients that were connected find it at the same port when it starts again.
        self._settings["listen"] = f"127.0.0.1:{self.port}"
        if self.http_port:
            self._settings["http"] = f"127.0.0.1:{self.http_port}"
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def restart(self, *, clean: bool = True) -> None:
        """Stop it and start it again on its disk, at the same port."""
        self.stop(clean=clean)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_runs()
        self.stop()
        moved_clocks.pop(self.port, None)  # not earlier: its clients may wait for a restart

    def _end_runs(self) -> None:
        """End ``run`` of all its clients: else the thread of a worker would wait for it for ever.

        A test that failed did not stop its worker.
        """
        clients: list[BlockingClient | Client] = [*watched(BlockingClient), *watched(Client)]
        for client in clients:
            if self.port in {address.port for address in client.options.addresses}:
                client.stop(at_once=True)

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
        flags: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "http": "off",
            "drain_timeout": "0s",
            **self._settings,
        }
        self._server = Server(
            load(environ={}, flags=flags, mode=Mode.TESTING), disk=self.disk, clocks=self._clock
        )
        await self._server.start()
        if self._clock is not None:
            self._clock.settle_with(self._advance)
            moved_clocks[self.port] = self._clock.monotonic_us
        else:
            moved_clocks.pop(self.port, None)
        self._began.set()
        await self._end.wait()
        if self._clean:
            await self._server.close()
        else:
            await self._server.abandon()

    # -- groups -----------------------------------------------------------------------------------

    def wait_idle(
        self, topic: str | Topic, group: str, *, timeout: float | timedelta = 10.0
    ) -> None:
        """Wait until a group has nothing to do: all sent messages were delivered and settled.

        It also waits for the group to exist: a starting worker creates it. It does not wait for
        failed messages that wait for a retry or are held, nor, on an ordered topic, for those
        behind them: use ``clock.advance`` for those. Do not call it in the client's own event loop:
        ``await asyncio.to_thread(broker.wait_idle, "orders", "g")``.

        Args:
            topic: The topic, by name or as declared.
            group: The group; ``$b.web-1`` for the broadcast instance ``web-1``.
            timeout: In the machine's time: seconds, or a timedelta.

        Raises:
            TimeoutError: It is not idle by then; the text has its state.
            RuntimeError: The broker does not run.
            InvalidName: A name is not valid.
            InvalidRequest: ``timeout`` is not a time.
        """
        name, patience = name_of(topic), seconds_of("timeout", timeout)
        check_group(group)
        self._wait(lambda core: groups.wait_idle(core, name, group, patience))

    def wait_failed(
        self,
        topic: str | Topic,
        group: str,
        *,
        messages: int = 1,
        timeout: float | timedelta = 10.0,
    ) -> None:
        """Wait until a group has failed on this many messages.

        They wait for a retry, are held, or are dead letters. A message that is tried again at once
        (a policy with ``first=0``) counts when it is a dead letter. Do not call it in the client's
        own event loop, as ``wait_idle``.

        Args:
            topic: The topic, by name or as declared.
            group: The group.
            messages: Number of messages, at least.
            timeout: In the machine's time: seconds, or a timedelta.

        Raises:
            TimeoutError: There are fewer by then; the text has the group's state.
            RuntimeError: The broker does not run.
            InvalidName: A name is not valid.
            InvalidRequest: ``timeout`` is not a time, ``messages`` is not a number above 0, or the
                group is a broadcast instance, in which a failed message is done at once.
        """
        name, patience = name_of(topic), seconds_of("timeout", timeout)
        if check_group(group).startswith(INSTANCE_GROUPS):
            raise InvalidRequest(
                f"{group!r} is a broadcast instance, where a message that fails is done at once: "
                "wait_idle waits for it"
            )
        check_positive("messages", messages)
        self._wait(lambda core: groups.wait_failed(core, name, group, messages, patience))

    def _wait(self, wait: Callable[[Core], Coroutine[object, object, None]]) -> None:
        """Wait for a coroutine in the broker's loop. Callable from any thread but the loop's."""
        if self._thread is None or not self._thread.is_alive():
            raise RuntimeError("the broker does not run in this process: it was stopped or forked")
        asyncio.run_coroutine_threadsafe(wait(self._server.core), self._loop).result()

    # -- time -------------------------------------------------------------------------------------

    def _advance(self, target_us: int) -> None:
        """Move the clock, and run what comes due. Callable from any thread but the loop's."""
        if self._thread is None:
            while self.clock.step(target_us) is not None:
                pass
            return
        if not self._thread.is_alive():
            raise RuntimeError(
                "the broker does not run in this process: it was forked, or it ended"
            )
        asyncio.run_coroutine_threadsafe(self._move(target_us), self._loop).result()

    async def _move(self, target_us: int) -> None:
        clock, core = self.clock, self._server.core
        # A handler that ended just now may not have settled yet.
        await self._quiet(0, BEFORE_S)
        held = self._server.leased_rows()
        listening, self._listened = max(core.broker.parked_pulls, self._listened), 0
        if listening > core.broker.parked_pulls:
            listening = await self._back(listening, CONNECTING_S)
        await self._offered_again()
        stride_us = max(_LAST_STRIDE_US, (target_us - clock.monotonic_us()) // _STRIDES)
        while True:
            calls = clock.leap(self._stop_us(target_us, stride_us))
            core.clock_moved()
            for due in calls:
                due()
            core.touch()
            await self._quiet(held)
            listening = await self._back(listening)
            if clock.monotonic_us() >= target_us and self._event_us() > target_us:
                break
        await self._tell_of_leases()

    def _event_us(self) -> int:
        """Return the clock's time of the next timed event.

        That is a retry, the end of a lease, a scheduled message that is due; or the beginning of an
        hour in which some are due, for which the broker has no timers yet.
        """
        core = self._server.core
        event_us = core.broker.timers.next_event_us()
        far_us = self._far_us()
        if event_us is None or far_us < event_us:
            event_us = far_us
        if event_us >= _NEVER:
            return _NEVER
        return self.clock.monotonic_us() + max(0, event_us - core.now_us())

    def _far_us(self) -> int:
        """Return when scheduled messages beyond the broker's horizon are to be put in order."""
        broker = self._server.core.broker
        schedule = broker.views.schedule
        horizon = schedule.horizon_us // HOUR_US
        hours = [hour for one in schedule.topics.values() for hour in one.hours if hour >= horizon]
        return max(min(hours) * HOUR_US, broker.fulfilling.load_us) if hours else _NEVER

    def _stop_us(self, target_us: int, stride_us: int) -> int:
        """Return where the clock stops next.

        At every event, and just before it: pulls whose wait ended meanwhile are repeated first, so
        that what comes due finds them. Otherwise after a stride; near the end after a second.
        """
        now_us, event_us = self.clock.monotonic_us(), self._event_us()
        last_us = max(now_us, target_us - _LAST_US)
        if now_us < last_us:
            idle_us = min(now_us + stride_us, last_us)
        else:
            idle_us = min(now_us + _LAST_STRIDE_US, target_us)
        if event_us - 1 > now_us:
            return min(idle_us, event_us - 1)
        return min(event_us, target_us)

    async def _tell_of_leases(self) -> None:
        """Notify the clients of this process of their ended leases: they use other clocks.

        Without a manual clock, a client notices this when it extends the lease.
        """
        core = self._server.core
        there = {
            (lease.id >> LEASE_BITS, lease.id & (LEASE_LIMIT - 1))
            for progress in core.broker.views.progress.values()
            for lease in progress.leases.values()
        }
        ended = [
            lease
            for lease in leases_of(self._server.port)
            if (lease.epoch, lease.number) not in there
        ]
        for lease in ended:
            lease.settler.lose_soon(lease)
        until = time.monotonic() + BEFORE_S
        while time.monotonic() < until:
            if all(lease.lost for lease in ended):
                return
            await asyncio.sleep(_LOOK_S)

    async def _back(self, listening: int, patience_s: float = BEFORE_S) -> int:
        """Wait for consumers whose pull ended to pull again; return how many wait for messages.

        A pull whose wait ended is answered empty and repeated by its consumer: what comes due in
        between would find no waiting pull.
        """
        core = self._server.core
        until = time.monotonic() + patience_s
        while core.broker.parked_pulls < listening and time.monotonic() < until:
            await asyncio.sleep(_LOOK_S)
            await core.settle_down()
        return min(listening, core.broker.parked_pulls)

    async def _offered_again(self) -> None:
        """Wait for the checkers that there were before a restart: the broker asks those it has."""
        offered, self._offered = self._offered, 0
        checkers = self._server.hub.desk.checkers
        until = time.monotonic() + CONNECTING_S
        while len(checkers) < offered and time.monotonic() < until:
            await asyncio.sleep(_LOOK_S)
            await self._server.core.settle_down()

    async def _quiet(self, held: int, patience_s: float = HANDLING_S) -> None:
        """Wait until the broker has nothing to do, and all that it handed out is done.

        Args:
            held: Rows that were leased before time moved: their settles are not waited for.
            patience_s: Most seconds to wait for those that got something.
        """
        core, server = self._server.core, self._server
        checkers = server.hub.desk.checkers
        handed = -1
        until = 0.0
        while True:
            await core.settle_down()
            due = core.broker.next_deadline_us()
            if due is not None and due <= core.now_us():
                core.touch()
            elif core.broker.fulfilling.reads:
                core.touch()  # which submits a read that still waits
                await asyncio.sleep(_LOOK_S)
            elif server.leased_rows() <= held and not checkers.open:
                return
            elif server.hub.counters.pulls + checkers.asked != handed:
                handed = server.hub.counters.pulls + checkers.asked
                until = time.monotonic() + patience_s
            elif time.monotonic() > until:
                self._waited_for = handed
                return
            elif handed == self._waited_for:
                return  # they had their time before
            else:
                await asyncio.sleep(_LOOK_S)


@contextmanager
def broker(
    *,
    manual: bool = True,
    settings: Mapping[str, object] | None = None,
    disk: Disk | None = None,
) -> Iterator[InProcessBroker]:
    """Run a real broker for the length of a ``with`` block.

    Args:
        manual: Whether time moves by ``clock.advance`` only; False: with the machine's clocks.
        settings: Settings of the broker by name.
        disk: Disk of its journal; None: in memory.

    Yields:
        The broker: ``url``, ``clock``, ``restart()``. At the end of the block, ``run`` of clients
        in this process that are connected to it ends, too.
    """
    one = InProcessBroker(clock=ManualClock() if manual else None, settings=settings, disk=disk)
    with one:
        yield one
