"""Decides how clients come and go: sessions begin, outlive their connections, and end.

A session that ends gives back what it holds, in pieces. That it ended is a LEFT record. If its
client closed it, that comes first, so that the end is certain, and the leases end by records behind
it; if its grace ran out, the leases end before it: the client may still come back meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ternmq.broker.apps import check_counts
from ternmq.broker.catalog import Subscription
from ternmq.broker.drains import Drain, Drains
from ternmq.broker.factkinds import COUNTS, JOINED, LEFT
from ternmq.broker.lease import LEASE_BITS
from ternmq.broker.leases import ENDED_ROWS_A_TURN, Leases
from ternmq.broker.ledger import Ledger
from ternmq.broker.parking import Parking
from ternmq.broker.replies import DoneReply
from ternmq.broker.sessions import Session
from ternmq.broker.timers import Timer
from ternmq.model.errors import Busy, DiskFull, UnknownSession
from ternmq.record import control
from ternmq.record.facts import Cause
from ternmq.record.header import HEADER_BYTES

SESSION_WORK: Final = 4
"""What the end of a session counts for besides its leases, when many end in a turn."""


class Clients:
    """Decides about sessions: begin, grace, end, and what their clients report.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_drains", "_leases", "_ledger", "_limits", "_parking", "_timers", "_views")

    def __init__(self, ledger: Ledger, leases: Leases, drains: Drains, parking: Parking) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._limits = ledger.limits
        self._timers = ledger.timers
        self._leases = leases
        self._drains = drains
        self._parking = parking

    # -- coming -----------------------------------------------------------------------------------

    def join(
        self, now_us: int, app: str, client: str, address: str = "", pid: int = 0, version: str = ""
    ) -> DoneReply:
        """Open a session; the reply's value is its number.

        Raises:
            Busy: too many sessions, or too many of this app.
        """
        sessions = self._views.sessions
        if not sessions.room(app, self._limits.sessions):
            raise Busy(
                f"there are {len(sessions.by_number)} of {self._limits.sessions} sessions,"
                f" {sessions.by_app.get(app, 0)} of this app"
            )
        info = control.Joined(sessions.next_number, app, client, address, pid, version, now_us)
        self._ledger.record(now_us, JOINED, info)
        return DoneReply(self._ledger.end, info.session)

    def resume(self, number: int, app: str, client: str) -> control.Joined:
        """One more connection of a session's client: back within its grace, or an auxiliary one.

        Raises:
            UnknownSession: the grace was over, or it is another client's.
        """
        session = self._session(number)
        if not session.belongs_to(app, client):
            raise UnknownSession(f"no session {number}")
        session.connections += 1
        return session.info

    def keep(
        self, now_us: int, number: int, leases: Iterable[tuple[int, int]]
    ) -> DoneReply | Drain:
        """End every lease of a session but these, uncounted.

        A client came back, and says what has reached it of all that was handed out to it.

        Args:
            now_us: Broker time.
            number: Of the client's session.
            leases: (epoch, number) of each that it knows of.

        Returns:
            Something to wait for, if the session has leases: it is among ``Drains.over`` once it
            is done, with the position that the answer rests on.

        Raises:
            UnknownSession.
        """
        self._session(number)
        kept = {epoch << LEASE_BITS | lease for epoch, lease in leases}
        return self._drains.begin(now_us, number, kept) or DoneReply(self._ledger.end)

    # -- going ------------------------------------------------------------------------------------

    def disconnected(self, now_us: int, number: int) -> None:
        """One of the session's connections is gone; with the last one its grace begins."""
        session = self._views.sessions.by_number.get(number)
        if session is None or session.connections == 0:
            return
        session.connections -= 1
        if session.connections == 0:
            self._begin_grace(now_us, session)
            self._parking.cancel_all(number)

    def leave(self, now_us: int, number: int) -> DoneReply | Drain:
        """Close a session: it is gone at once, and what it holds is handed to others, uncounted.

        Returns:
            Something to wait for, as from ``keep``.

        Raises:
            UnknownSession.
        """
        self._left(now_us, self._session(number), "closed")
        self._parking.cancel_all(number)
        return self._drains.begin(now_us, number) or DoneReply(self._ledger.end)

    def grace_over(self, now_us: int, session: Session, budget: int = ENDED_ROWS_A_TURN) -> int:
        """End a session that did not come back, in pieces; return how much work this one was."""
        if session.connected or session.gone_us > now_us:
            return 0
        if self._views.sessions.by_number.get(session.number) is not session:
            return 0
        work = 0
        looked: set[Subscription] = set()
        for held in self._views.figures.leased_to(session.number):
            subscription = self._views.catalog.consumer_of(held)
            if subscription is None:
                continue
            if subscription not in looked:
                # What was not begun first, of all its queues: what is left then counts.
                looked.add(subscription)
                work += self._leases.release_unbegun(
                    now_us, subscription.queues, session.number, budget - work
                )
            more = work >= budget
            if not more:
                ended = self._leases.end(
                    now_us, subscription, held, Cause.SESSION, session.number, budget - work
                )
                work += ended.work
                more = ended.more or work >= budget
            if more:
                self._timers.set(now_us, Timer.SESSION, session)
                return work
        self._parking.cancel_all(session.number)
        self._left(now_us, session, "gone")
        return work + SESSION_WORK

    def after_start(self, now_us: int) -> None:
        """Give every session its grace anew: nobody is connected. Go on where one had left."""
        sessions = self._views.sessions.by_number
        for number in sorted(sessions):
            sessions[number].connections = 0
            self._begin_grace(now_us, sessions[number])
        self._drains.after_start(now_us)

    def _begin_grace(self, now_us: int, session: Session) -> None:
        session.gone_us = now_us + self._limits.session_grace_us
        self._timers.set(session.gone_us, Timer.SESSION, session)

    def _left(self, now_us: int, session: Session, reason: str) -> None:
        self._ledger.record(now_us, LEFT, control.Left(session.number, reason))

    def _session(self, number: int) -> Session:
        session = self._views.sessions.by_number.get(number)
        if session is None:
            raise UnknownSession(f"no session {number}")
        return session

    # -- reports ----------------------------------------------------------------------------------

    def report(
        self,
        now_us: int,
        number: int,
        topic: str,
        producer: int,
        entries: Sequence[control.Count],
    ) -> DoneReply:
        """Record what a producer has sent and given up, for the audit; no view depends on it.

        Raises:
            UnknownSession, UnknownTopic, InvalidRequest.
            DiskFull: the room that is left is not for reports.
        """
        self._session(number)
        counts = control.Counts(producer, self._views.catalog.topic(topic).number, tuple(entries))
        check_counts(counts)
        ledger = self._ledger
        if ledger.room.lacks(len(COUNTS.pack(counts)) + HEADER_BYTES):
            raise DiskFull("no room for reports")
        ledger.record(now_us, COUNTS, counts)
        return DoneReply(ledger.end)
