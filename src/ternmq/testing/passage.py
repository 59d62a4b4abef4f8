"""The passage of time at a broker: what is due is done, and consumers have their part in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Final

from ternmq.broker.group.lease import LEASE_BITS, LEASE_LIMIT
from ternmq.client.client import Client, leases_of
from ternmq.client.process.forking import watched
from ternmq.model.types import HOUR_US
from ternmq.server.app import Server
from ternmq.server.engine.engine import Core
from ternmq.sync.client import Client as BlockingClient
from ternmq.testing.clock import ManualClock

HANDLING_S: Final = 2.0
"""Most seconds that ``advance`` waits for consumers."""
CONNECTING_S: Final = 5.0
"""Most seconds to wait for consumers that were connected before a start."""
BEFORE_S: Final = 0.2
"""Most seconds that ``advance`` waits for consumers to settle what they had before time moved, and
to pull again."""
_LOOK_S: Final = 0.002
_BLOCKED_S: Final = 0.01
"""Time that a broker has for what it can do while a copy is missing."""
_STRIDES: Final = 64
"""Approximate number of stops of the clock on its way if nothing is due."""
_LAST_US: Final = 10_000_000
"""The clock moves this last part second by second: every periodic check has run by its end."""
_LAST_STRIDE_US: Final = 1_000_000
_NEVER: Final = 1 << 62


class Passage:
    """Moves a clock, and runs a broker until all that came due is done. In the broker's loop.

    Args:
        clock: The clock of the broker.
        blocked: Whether nothing can be answered before more time has passed: a copy that counts is
            lost, and is not taken out of the members yet.
    """

    def __init__(self, clock: ManualClock, blocked: Callable[[], bool] = lambda: False) -> None:
        self._clock = clock
        self._blocked = blocked
        self._waited_for = -1
        """Count of pulls and questions when ``advance`` last waited for consumers and checkers in
        vain."""
        self._listened = 0
        """Number of pulls that waited when the broker ended: those consumers come back."""
        self._offered = 0
        """Number of clients with checkers when it ended."""
        self._held = 0
        """Rows that were leased before time moved: their settles are not waited for."""
        self._listening = 0

    def ends(self, server: Server) -> None:
        """Note who is connected to a broker that ends now. Callable from any thread."""
        self._listened = max(server.core.broker.parked_pulls, self._listened)
        self._offered = max(len(server.desk.checkers), self._offered)

    async def begin(self, server: Server) -> None:
        """Wait for what was begun before time moves, and for clients of a broker before it."""
        core = server.core
        # A handler that ended just now may not have settled yet.
        await self._quiet(server, 0, BEFORE_S)
        self._held = server.leased_rows()
        self._listening, self._listened = max(core.broker.parked_pulls, self._listened), 0
        if self._listening > core.broker.parked_pulls:
            self._listening = await self._back(core, self._listening, CONNECTING_S)
        await self._offered_again(server)

    async def go(self, server: Server, target_us: int) -> None:
        """Move the clock to a time, by way of all that comes due; after ``begin``.

        It ends early, wherever the clock is then, if the broker or a copy that counts ends.
        """
        clock, core = self._clock, server.core
        blocked = self._blocked()
        stride_us = max(_LAST_STRIDE_US, (target_us - clock.monotonic_us()) // _STRIDES)
        while core.works:
            calls = clock.leap(self._stop_us(core, target_us, stride_us))
            core.clock_moved()
            for due in calls:
                due()
            core.touch()
            await self._quiet(server, self._held)
            self._listening = await self._back(core, self._listening)
            if self._blocked() and not blocked:
                return
            there = clock.monotonic_us() >= target_us
            if there and (blocked or self._event_us(core) > target_us):
                return

    def _event_us(self, core: Core) -> int:
        """Return the clock's time of the next timed event.

        That is a retry, the end of a lease, a scheduled message that is due; or the beginning of an
        hour in which some are due, for which the broker has no timers yet.
        """
        event_us = core.broker.timers.next_event_us()
        far_us = _far_us(core)
        if event_us is None or far_us < event_us:
            event_us = far_us
        if event_us >= _NEVER:
            return _NEVER
        return self._clock.monotonic_us() + max(0, event_us - core.now_us())

    def _stop_us(self, core: Core, target_us: int, stride_us: int) -> int:
        """Return where the clock stops next.

        At every event, and just before it: pulls whose wait ended meanwhile are repeated first, so
        that what comes due finds them. Otherwise after a stride; near the end after a second.
        """
        now_us, event_us = self._clock.monotonic_us(), self._event_us(core)
        last_us = max(now_us, target_us - _LAST_US)
        if now_us < last_us:
            idle_us = min(now_us + stride_us, last_us)
        else:
            idle_us = min(now_us + _LAST_STRIDE_US, target_us)
        if event_us - 1 > now_us:
            return min(idle_us, event_us - 1)
        return min(event_us, target_us)

    async def _back(self, core: Core, listening: int, patience_s: float = BEFORE_S) -> int:
        """Wait for consumers whose pull ended to pull again; return how many wait for messages.

        A pull whose wait ended is answered empty and repeated by its consumer: what comes due in
        between would find no waiting pull.
        """
        until = time.monotonic() + patience_s
        while core.works and core.broker.parked_pulls < listening and time.monotonic() < until:
            if self._blocked():
                return listening
            await asyncio.sleep(_LOOK_S)
            await self._settle(core)
        return min(listening, core.broker.parked_pulls)

    async def _offered_again(self, server: Server) -> None:
        """Wait for the checkers that there were before a restart: the broker asks those it has."""
        offered, self._offered = self._offered, 0
        core, checkers = server.core, server.desk.checkers
        until = time.monotonic() + CONNECTING_S
        while core.works and len(checkers) < offered and time.monotonic() < until:
            await asyncio.sleep(_LOOK_S)
            await self._settle(core)

    async def _quiet(self, server: Server, held: int, patience_s: float = HANDLING_S) -> None:
        """Wait until the broker has nothing to do, and all that it handed out is done.

        Args:
            server: The broker.
            held: Rows that were leased before time moved: their settles are not waited for.
            patience_s: Most seconds to wait for those that got something.
        """
        core = server.core
        checkers = server.desk.checkers
        handed = -1
        until = 0.0
        while core.works:
            await self._settle(core)
            if self._blocked():
                return
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

    async def _settle(self, core: Core) -> None:
        """Wait until the broker has done what it can do without time passing."""
        while core.works:
            until = time.monotonic() + _BLOCKED_S
            await core.settle_down(_BLOCKED_S)
            if time.monotonic() < until or self._blocked():
                return


def _far_us(core: Core) -> int:
    """Return when scheduled messages beyond the broker's horizon are to be put in order."""
    broker = core.broker
    schedule = broker.views.schedule
    horizon = schedule.horizon_us // HOUR_US
    hours = [hour for one in schedule.topics.values() for hour in one.hours if hour >= horizon]
    return max(min(hours) * HOUR_US, broker.fulfilling.load_us) if hours else _NEVER


async def tell_of_leases(server: Server) -> None:
    """Notify the clients of this process of their ended leases: they use other clocks.

    Without a manual clock, a client notices this when it extends the lease.
    """
    there = {
        (lease.id >> LEASE_BITS, lease.id & (LEASE_LIMIT - 1))
        for progress in server.core.broker.views.progress.values()
        for lease in progress.leases.values()
    }
    ended = [lease for lease in leases_of(server.port) if (lease.epoch, lease.number) not in there]
    for lease in ended:
        lease.settler.lose_soon(lease)
    until = time.monotonic() + BEFORE_S
    while time.monotonic() < until:
        if all(lease.lost for lease in ended):
            return
        await asyncio.sleep(_LOOK_S)


def end_runs(ports: Collection[int]) -> None:
    """End ``run`` of all clients of brokers at some ports, as the brokers end for good.

    Else the thread of a worker would wait for them for ever: a test that failed did not stop its
    worker. Callable from any thread.
    """
    clients: list[BlockingClient | Client] = [*watched(BlockingClient), *watched(Client)]
    for client in clients:
        if any(address.port in ports for address in client.options.addresses):
            client.stop(at_once=True)
