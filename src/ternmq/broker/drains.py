"""Gives leases of a session back, uncounted: all of one that left, or those that never reached it.

A session may have leases of tens of thousands of group queues, so a turn ends some of them, the
next turn others. That a session has left and still holds rows needs no mark of its own: these are
the leases whose session is not there. So a start finds them, and goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final

from ternmq.broker.delivery import Delivery
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.leases import Leases
from ternmq.broker.ledger import Ledger
from ternmq.broker.timers import Timer
from ternmq.record.facts import Cause

_LOOK_WORK: Final = 1


class Drain:
    """Leases of one session that are being given back.

    Attributes:
        session: Its number.
        kept: Ids of leases that go on.
        newest: Id of the newest lease there was at the beginning: later ones go on.
        position: Once it is over, what its answer rests on; 0 before.
    """

    __slots__ = ("kept", "newest", "position", "queues", "session")

    def __init__(
        self, session: int, queues: deque[GroupQueue], kept: Container[int], newest: int
    ) -> None:
        self.session = session
        self.queues = queues
        """Group queues that are still to be looked at."""
        self.kept = kept
        self.newest = newest
        self.position = 0


class Drains:
    """All drains.

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
        """Those that ended: whoever answers for them takes them out."""

    def begin(self, now_us: int, session: int, kept: Container[int] = ()) -> Drain | None:
        """Have a session's leases given back, but those in ``kept``; None: it has no lease.

        Ticks do it, from this moment on. A later lease of the session is none of these.
        """
        queues = self._views.figures.leased_to(session)
        if not queues:
            return None
        drain = Drain(session, deque(queues), kept, self._delivery.newest_lease)
        self._timers.set(now_us, Timer.DRAIN, drain)
        return drain

    def after_start(self, now_us: int) -> None:
        """Go on with the sessions that had left when the broker stopped."""
        sessions = self._views.sessions.by_number
        for number in sorted(self._views.figures.by_session):
            if number not in sessions:
                self.begin(now_us, number)

    def step(self, now_us: int, drain: Drain, budget: int) -> int:
        """Give back a piece; return how much work it was, see ``Leases.end``.

        Raises:
            JournalFull: no segment is ready; what is left is still to be done.
        """
        work = 0
        queues, catalog = drain.queues, self._views.catalog
        while queues:
            if work >= budget:
                self._timers.set(now_us, Timer.DRAIN, drain)
                return work
            held = queues[0]
            subscription = catalog.consumer_of(held)
            more = False
            if subscription is not None:
                ended = self._leases.end(
                    now_us, subscription, held, Cause.DRAIN, drain.session,
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
