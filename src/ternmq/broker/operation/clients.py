"""Decides when sessions begin and end, and how long they outlive their connections.

A session that ends gives back its leases, in pieces; the end itself is a LEFT record. If the client
closed the session, LEFT comes first, so that the end is certain, and the records that end the
leases follow. If the grace of the session ran out, the leases end first and LEFT follows, since the
client may still come back meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ternmq.broker.catalog.apps import check_counts
from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.catalog.gone import Sort
from ternmq.broker.catalog.sessions import Session
from ternmq.broker.clock.timers import Timer
from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN, Leases
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.gate.replies import DoneReply, ValueReply
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.broker.ledger.factkinds import COUNTS, JOINED, LEFT
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation.broadcasting import Broadcasting
from ternmq.broker.operation.drains import Drain, Drains
from ternmq.broker.operation.membership import Membership
from ternmq.model.errors import Busy, DiskFull, UnknownSession, UnknownTopic
from ternmq.record.fact import control
from ternmq.record.fact.facts import Cause
from ternmq.record.fact.header import HEADER_BYTES

SESSION_WORK: Final = 4
"""Work units that the end of a session costs besides its leases, when many end in a turn."""


class Clients:
    """Decides about sessions (begin, grace, end) and about the reports of their clients.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = (
        "_broadcasting",
        "_drains",
        "_leases",
        "_ledger",
        "_limits",
        "_membership",
        "_parking",
        "_timers",
        "_views",
    )

    def __init__(
        self,
        ledger: Ledger,
        leases: Leases,
        drains: Drains,
        parking: Parking,
        membership: Membership,
        broadcasting: Broadcasting,
    ) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._limits = ledger.limits
        self._timers = ledger.timers
        self._leases = leases
        self._drains = drains
        self._parking = parking
        self._membership = membership
        self._broadcasting = broadcasting

    # -- coming -----------------------------------------------------------------------------------

    def join(
        self, now_us: int, app: str, client: str, address: str = "", pid: int = 0, version: str = ""
    ) -> ValueReply[int]:
        """Open a session; the reply's value is its number.

        Raises:
            Busy: there are too many sessions, or too many of this app.
        """
        sessions = self._views.sessions
        if not sessions.room(app, self._limits.sessions):
            raise Busy(
                f"there are {len(sessions.by_number)} of {self._limits.sessions} sessions,"
                f" {sessions.by_app.get(app, 0)} of this app"
            )
        info = control.Joined(sessions.next_number, app, client, address, pid, version, now_us)
        self._ledger.record(now_us, JOINED, info)
        return ValueReply(self._ledger.end, value=info.session)

    def resume(self, number: int, app: str, client: str) -> control.Joined:
        """Add a connection to a session: its client is back within the grace, or opens one more.

        Raises:
            UnknownSession: the grace is over, or the session is another client's.
        """
        session = self._session(number)
        if not session.belongs_to(app, client):
            raise UnknownSession(f"no session {number}")
        session.connections += 1
        return session.info

    def keep(
        self, now_us: int, number: int, leases: Iterable[tuple[int, int]]
    ) -> DoneReply | Drain:
        """End all leases of a session except ``leases``, without counting an attempt.

        A client that came back reports the leases that it received; the others never reached it.

        Args:
            now_us: Broker time.
            number: Number of the client's session.
            leases: (epoch, number) of each lease that the client received.

        Returns:
            A drain to wait for, if the session has leases: it is put into ``Drains.over`` once it
            is finished, with the position that the answer depends on.

        Raises:
            UnknownSession.
        """
        self._session(number)
        kept = {epoch << LEASE_BITS | lease for epoch, lease in leases}
        return self._drains.begin(now_us, number, kept) or DoneReply(self._ledger.end)

    # -- going ------------------------------------------------------------------------------------

    def disconnected(self, now_us: int, number: int) -> None:
        """Remove a connection from a session; its grace begins with the end of the last one."""
        session = self._views.sessions.by_number.get(number)
        if session is None or session.connections == 0:
            return
        session.connections -= 1
        if session.connections == 0:
            session.away_us = now_us
            self._begin_grace(now_us, session)
            self._parking.cancel_all(number)

    def leave(self, now_us: int, number: int) -> DoneReply | Drain:
        """Close a session at once; its rows are released without counting an attempt.

        Returns:
            A drain to wait for, as from ``keep``.

        Raises:
            UnknownSession.
        """
        session = self._session(number)
        self._left(now_us, session, "closed")
        self._parking.cancel_all(number)
        self._membership.session_over(now_us, session, clean=True)
        return self._drains.begin(now_us, number) or DoneReply(self._ledger.end)

    def grace_over(
        self, now_us: int, due_us: int, session: Session, budget: int = ENDED_ROWS_A_TURN
    ) -> int:
        """End a session whose grace is over, in pieces (timer SESSION); return the work units."""
        del due_us
        if session.connected or session.gone_us > now_us:
            return 0
        if self._views.sessions.by_number.get(session.number) is not session:
            return 0
        if self._leases.keeps_all:  # its client was not let in again
            self._begin_grace(now_us, session)
            return 0
        work = 0
        looked: set[Subscription] = set()
        for progress in self._views.figures.leased_to(session.number):
            subscription = self._views.catalog.consumer_of(progress)
            if subscription is None:
                continue
            if subscription not in looked:
                # First release the rows that were not begun, of all queues of the group. The end of
                # the remaining leases counts as an attempt.
                looked.add(subscription)
                work += self._leases.release_unbegun(
                    now_us, subscription.queues, session.number, budget - work
                )
            more = work >= budget
            if not more:
                ended = self._leases.end(
                    now_us, subscription, progress, Cause.SESSION, session.number, budget - work
                )
                work += ended.work
                more = ended.more or work >= budget
            if more:
                self._timers.set(now_us, Timer.SESSION, session)
                return work
        self._parking.cancel_all(session.number)
        self._left(now_us, session, "gone")
        self._membership.session_over(now_us, session, clean=False)
        return work + SESSION_WORK

    def after_start(self, now_us: int) -> None:
        """Begin the grace of every session (none is connected); continue unfinished drains."""
        sessions = self._views.sessions.by_number
        for number in sorted(sessions):
            sessions[number].connections = 0
            sessions[number].away_us = now_us
            self._begin_grace(now_us, sessions[number])
        self._drains.after_start(now_us)

    def renew_graces(self, now_us: int) -> None:
        """Begin the graces of absent sessions again: from now on their clients can connect."""
        for session in self._views.sessions.by_number.values():
            if not session.connected:
                self._begin_grace(now_us, session)
        self._leases.after_start(now_us)

    def _begin_grace(self, now_us: int, session: Session) -> None:
        session.gone_us = now_us + self._limits.session_grace_us
        self._timers.set(session.gone_us, Timer.SESSION, session)

    def _left(self, now_us: int, session: Session, reason: str) -> None:
        self._ledger.record(now_us, LEFT, control.Left(session.number, reason))
        self._broadcasting.session_ended(now_us, session.number)

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
        *,
        topic_number: int = 0,
    ) -> DoneReply:
        """Record how much a producer has sent and given up, for the audit; no view depends on it.

        Args:
            now_us: Broker time.
            number: Number of the client's session.
            topic: Name of the topic.
            producer: Id of the producer.
            entries: Its counts.
            topic_number: Number of the topic, which may be deleted; 0: that of this name.

        Raises:
            UnknownSession, UnknownTopic, InvalidRequest.
            DiskFull: the remaining room is not for reports.
        """
        self._session(number)
        topic_number = self._number_of(topic, topic_number)
        counts = control.Counts(producer, topic_number, tuple(entries))
        check_counts(counts)
        ledger = self._ledger
        if ledger.room.lacks(len(COUNTS.pack(counts)) + HEADER_BYTES):
            raise DiskFull("no room for reports")
        ledger.record(now_us, COUNTS, counts)
        return DoneReply(ledger.end)

    def _number_of(self, topic: str, number: int) -> int:
        """Return the number of the topic of a name; of a deleted one, if that number is given.

        Raises:
            UnknownTopic: There is none, or the journal no longer has its name.
        """
        gone = self._views.gone.entries.get((int(Sort.TOPIC), number)) if number else None
        if gone is not None and gone.name == topic:
            return number
        there = self._views.catalog.topic(topic).number
        if number not in {0, there}:
            raise UnknownTopic(f"no topic {topic!r} of number {number}")
        return there
