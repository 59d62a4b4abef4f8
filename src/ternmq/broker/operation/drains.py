"""Gives back leases of a session in pieces, without counting an attempt.

A drain ends all leases of a session that left, or those that never reached its client, or those of
a broadcast instance that another client is now. A session
may have leases of tens of thousands of group queues, so each turn ends some of them. Drains of
sessions that left need no state of their own: their leases are those whose session does not exist.
So a start finds them and continues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import Final

from ternmq.broker.clock.timers import Timer
from ternmq.broker.delivery.leases import Leases
from ternmq.broker.delivery.pulls import Delivery
from ternmq.broker.group.lease import DETACHED
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger
from ternmq.record.fact.facts import Cause

_LOOK_WORK: Final = 1


class Drain:
    """Leases of one session that are being given back.

    Attributes:
        session: Number of the session.
        kept: Ids of leases that do not end.
        newest: Id of the newest lease when the drain began; later leases do not end.
        position: Position that the answer depends on, once the drain is over; 0 before.
    """

    __slots__ = ("kept", "newest", "position", "queues", "session")

    def __init__(
        self, session: int, queues: deque[Progress], kept: Container[int], newest: int
    ) -> None:
        self.session = session
        self.queues = queues
        """Group queues whose leases are still to be ended."""
        self.kept = kept
        self.newest = newest
        self.position = 0


class Drains:
    """Begins drains and continues them.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_delivery", "_leases", "_ledger", "_timers", "_views", "over")

    def __init__(self, ledger: Ledger, leases: Leases, delivery: Delivery) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._timers = ledger.timers
        self._leases = leases
        self._delivery = delivery
        self.over: list[Drain] = []
        """Drains that are over; the shell removes them when it answers their requests."""

    def begin(self, now_us: int, session: int, kept: Container[int] = ()) -> Drain | None:
        """Begin to give back a session's leases except ``kept``; None: the session has no lease.

        Ticks do the work, from this moment on. Later leases of the session are not given back.
        """
        queues = self._views.figures.leased_to(session)
        if not queues:
            return None
        drain = Drain(session, deque(queues), kept, self._delivery.newest_lease)
        self._timers.set(now_us, Timer.DRAIN, drain)
        return drain

    def begin_of(self, now_us: int, session: int, queues: Iterable[Progress]) -> None:
        """Begin to give back the leases that a session has of some group queues only."""
        drain = Drain(session, deque(queues), (), self._delivery.newest_lease)
        self._timers.set(now_us, Timer.DRAIN, drain)

    def after_start(self, now_us: int) -> None:
        """Continue with the sessions that had left when the broker stopped.

        0 is no session: such leases belong to transactions, and end with their decisions only.
        Detached leases end by time.
        """
        sessions = self._views.sessions.by_number
        for number in sorted(self._views.figures.by_session):
            if number not in {0, DETACHED} and number not in sessions:
                self.begin(now_us, number)

    def step(self, now_us: int, due_us: int, drain: Drain, budget: int) -> int:
        """Give back some messages of a client that left (timer DRAIN); return the work units.

        Raises:
            JournalFull: no segment is ready; the rest is still to be done.
        """
        del due_us
        work = 0
        queues, catalog = drain.queues, self._views.catalog
        while queues:
            if work >= budget:
                self._timers.set(now_us, Timer.DRAIN, drain)
                return work
            progress = queues[0]
            subscription = catalog.consumer_of(progress)
            more = False
            if subscription is not None:
                ended = self._leases.end(
                    now_us, subscription, progress, Cause.DRAIN, drain.session,
                    budget - work, drain.kept, drain.newest,
                )  # fmt: skip
                work += ended.work
                more = ended.more
            if not more:
                queues.popleft()
                work += _LOOK_WORK
        drain.position = self._ledger.end
        self.over.append(drain)
        return work
