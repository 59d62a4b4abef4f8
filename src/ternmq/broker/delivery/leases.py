"""Decides extensions and ends of leases.

A lease that ends by time, or with a session that did not come back, costs its rows an attempt,
since one of them may have ended the consumer. Rows that the consumer cannot have begun are exempt:
a consumer that reports how many it works on at one time (``at_once``) begins them in the order of
hand-out, so only the first ``at_once`` rows that it has not settled may have been begun. The others
are released first; the remaining rows count. So no state has to store which rows count: in one
piece or in many, and with a restart in between, no row that was begun is released uncounted, and no
row is delivered again for ever.

A consumer cannot extend a lease while the broker is down, and a broker that stops accepts no new
connections. So no lease ends by time while the broker stops, and no lease from before a start ends
by time until the grace of its session is over.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.delivery.settles import Disposition, Settling, lent_behind, released
from ternmq.broker.group.lease import LEASE_BITS, LEASE_LIMIT, Lease
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import last_rows, row_count
from ternmq.broker.ledger.factkinds import ENDED, EXTENDED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import LeaseExpired
from ternmq.record.fact.facts import Cause, Extended, LeasedRun, Outcome, Settled

ENDED_ROWS_A_TURN: Final = 512
"""Work units that the ends of leases may take in one turn, so that no session blocks the loop: one
unit for each row, and those below."""
LEASE_WORK: Final = 3
"""Work units of a lease that ends, besides its rows."""
QUEUE_WORK: Final = 6
"""Work units of a group queue with leases that end: these are one record."""
_LOOKED_SHIFT: Final = 7
"""Number of examined leases that take one work unit, as a power of two."""
_NEVER: Final = 1 << 63


class Ended(NamedTuple):
    """Work units of one call for the leases of a group queue, and whether more is left to do."""

    work: int
    more: bool


class Leases:
    """Decides how leases are extended, and how they end by time, by session and by drain.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_kept_epoch", "_kept_until_us", "_ledger", "_settling")

    def __init__(self, ledger: Ledger, settling: Settling) -> None:
        self._ledger = ledger
        self._settling = settling
        self._kept_until_us = 0
        """No lease of ``_kept_epoch``, or of an earlier epoch, ends by time before this."""
        self._kept_epoch = 0

    def after_start(self, now_us: int) -> None:
        """Keep the leases from before the start until the grace of their sessions is over."""
        self._kept_epoch = self._ledger.journal.epoch - 1
        self._kept_until_us = now_us + self._ledger.limits.session_grace_us

    def keep_all(self) -> None:
        """Let no lease end by time any more: the broker stops."""
        self._kept_epoch = self._ledger.journal.epoch
        self._kept_until_us = _NEVER

    @property
    def keeps_all(self) -> bool:
        """Whether the broker stops: no client can come back to it."""
        return self._kept_until_us == _NEVER

    def _kept(self, now_us: int) -> int:
        """Return the epoch up to which leases do not end by time now; -1: all leases may end."""
        return self._kept_epoch if now_us < self._kept_until_us else -1

    def next_end_us(self, now_us: int, progress: Progress) -> int:
        """Return when the next lease of a group queue may end by time; it must have leases."""
        first = min([lease.until_us for lease in progress.leases.values()])
        kept = self._kept(now_us)
        if kept >= 0 and first < self._kept_until_us:
            until = self._kept_until_us
            first = min(
                [
                    max(one.until_us, until) if one.id >> LEASE_BITS <= kept else one.until_us
                    for one in progress.leases.values()
                ]
            )
        return first

    def extend(
        self, now_us: int, session: int, progress: Progress, epoch: int, number: int, until_us: int
    ) -> int:
        """Extend a lease to ``until_us``, never shorten it; return the end of the record.

        Raises:
            LeaseExpired: the lease is over.
        """
        lease = progress.leases.get(epoch << LEASE_BITS | number)
        if lease is None:
            raise LeaseExpired(f"lease {epoch}.{number} has ended")
        until_us = max(until_us, lease.until_us)
        fact = Extended(
            progress.group, progress.topic, progress.queue, session, number, epoch, until_us
        )
        self._ledger.record(now_us, EXTENDED, (fact,))
        return self._ledger.end

    def release_unbegun(
        self, now_us: int, views: Sequence[Progress], session: int, budget: int
    ) -> int:
        """Release the rows that a gone session's client cannot have begun; return the work units.

        Args:
            now_us: Broker time.
            views: All queues of one group on one topic of which the session has leases.
            session: Number of the session.
            budget: Work units at most. If all are used, there may be more to release.
        """
        leases = [
            (lease.id, lease, progress)
            for progress in views
            for lease in progress.leases.values()
            if lease.session == session and lease.at_once
        ]
        leases.sort(key=itemgetter(0))
        return self._release(now_us, _unbegun(leases), Cause.SESSION, budget)

    def _release(self, now_us: int, unbegun: Iterable[_Unbegun], cause: Cause, budget: int) -> int:
        """Release rows within a budget, with a record for each queue; return the work units."""
        work = 0
        settled: dict[Progress, list[Settled]] = {}
        for lease, progress, rows in unbegun:
            if work >= budget:
                break
            runs = last_rows(rows, budget - work)
            work += row_count(runs) + LEASE_WORK
            if progress not in settled:
                settled[progress] = []
                work += QUEUE_WORK
            settled[progress].append(released(progress, lease, runs, cause))
        for progress, some in settled.items():
            self._settling.record(now_us, ENDED, progress, [*some, *lent_behind(progress, some)])
            self._ledger.wakes.wake_for(progress)
        return work

    def end(
        self,
        now_us: int,
        subscription: Subscription,
        progress: Progress,
        cause: Cause,
        session: int,
        budget: int = ENDED_ROWS_A_TURN,
        kept: Container[int] = (),
        newest: int = _NEVER,
    ) -> Ended:
        """End the leases of a session, within a budget of work units.

        Leases in ``kept``, and those newer than the lease ``newest``, do not end.

        With cause SESSION the attempt counts, and the rows are delivered again at once (or are dead
        after the last attempt); of the rows of a key only the first counts. The caller must first
        release the rows that were not begun, since this depends on the group's other queues. With
        cause DRAIN no attempt counts.

        If the budget does not suffice for all rows of a lease, those that end first are chosen by
        the group's order, so that no row is delivered again while one that waits for it is leased.
        """
        leases = (  # not a list: of thousands, the budget takes some
            lease
            for lease in progress.leases.values()
            if lease.session == session and lease.id not in kept and lease.id <= newest
        )
        ending = _Ending(self._settling, now_us, subscription, progress, cause, budget)
        ending.end(leases)
        return self._ended(ending)

    def end_overdue(
        self,
        now_us: int,
        subscription: Subscription,
        progress: Progress,
        budget: int = ENDED_ROWS_A_TURN,
    ) -> Ended:
        """End the leases whose time is over, within a budget; the attempt counts as with SESSION.

        For each session in turn, the rows that were not begun are released first. Only this queue
        is considered: if the session has leases of several queues, too many rows may count.
        """
        leases: dict[int, list[Lease]] = {}
        over: dict[int, list[Lease]] = {}
        kept = self._kept(now_us)
        for lease in progress.leases.values():
            leases.setdefault(lease.session, []).append(lease)
            if _over(lease, now_us, kept):
                over.setdefault(lease.session, []).append(lease)
        ending = _Ending(self._settling, now_us, subscription, progress, Cause.TIME, budget)
        for session, overdue in over.items():
            if ending.work >= budget:
                ending.more = True
                break
            unbegun = _unbegun([(one.id, one, progress) for one in leases[session] if one.at_once])
            ending.work += self._release(
                now_us,
                (one for one in unbegun if _over(one.lease, now_us, kept)),
                Cause.TIME,
                budget - ending.work,
            )
            ending.end([one for one in overdue if one.runs])
        return self._ended(ending)

    def _ended(self, ending: _Ending) -> Ended:
        """Record the decided ends."""
        progress, work = (
            ending.progress,
            ending.work + (len(ending.progress.leases) >> _LOOKED_SHIFT),
        )
        if ending.settled:
            ending.settled += lent_behind(progress, ending.settled)
            self._settling.record(ending.now_us, ENDED, progress, ending.settled)
            self._ledger.wakes.wake_for(progress)
            work += QUEUE_WORK
        return Ended(work, ending.more)


def _over(lease: Lease, now_us: int, kept: int) -> bool:
    """Return whether a lease's time is over, and its epoch above ``kept``."""
    return lease.until_us <= now_us and lease.id >> LEASE_BITS > kept


class _Ending:
    """Leases of one queue that end in one record; see ``Leases.end``."""

    __slots__ = ("budget", "cause", "progress", "more", "now_us", "settled", "subscription", "work",
                 "_settling")  # fmt: skip

    def __init__(
        self,
        settling: Settling,
        now_us: int,
        subscription: Subscription,
        progress: Progress,
        cause: Cause,
        budget: int,
    ) -> None:
        self._settling = settling
        self.now_us = now_us
        self.subscription = subscription
        self.progress = progress
        self.cause = cause
        self.budget = budget
        self.work = 0
        self.more = False
        self.settled: list[Settled] = []

    def end(self, leases: Iterable[Lease]) -> None:
        """Decide the ends of some leases, as far as the budget goes."""
        progress, cause = self.progress, self.cause
        order = progress.order
        for lease in leases:
            if self.work >= self.budget:
                self.more = True
                break
            runs = order.end_first(lease.runs, self.budget - self.work)
            taken = row_count(runs)
            self.more = self.more or taken < row_count(lease.runs)
            self.work += taken + LEASE_WORK
            counts = cause is not Cause.DRAIN and progress.mode.retries
            counted, free = order.begun(progress, runs) if counts else ([], runs)
            if counted:
                settle = Disposition(
                    lease.session,
                    lease.id >> LEASE_BITS,
                    lease.id & LEASE_LIMIT - 1,
                    Outcome.RETRY,
                    cause,
                    delay_us=0,
                )
                self.settled += self._settling.settled(
                    self.now_us, self.subscription, progress, settle, counted
                )
            if free:
                why = Cause.KEY if counts else cause
                self.settled.append(released(progress, lease, free, why))


class _Unbegun(NamedTuple):
    """Rows of a lease that its consumer cannot have begun."""

    lease: Lease
    progress: Progress
    runs: list[LeasedRun]


def _unbegun(leases: Sequence[tuple[int, Lease, Progress]]) -> Iterator[_Unbegun]:
    """Yield the rows that a session's consumer cannot have begun.

    The consumer begins rows in the order of leases and, within a lease, of offsets, and none that
    waits for another row (`order`).

    Args:
        leases: The session's leases, by id, with their ids and group queues.
    """
    left = max([lease.at_once for _, lease, _ in leases], default=0)
    for _, lease, progress in leases:
        first, others = progress.order.begun(progress, sorted(lease.runs))
        for start, stop, attempt, deliveries in first:
            begun = min(left, stop - start)
            left -= begun
            if start + begun < stop:
                others.append((start + begun, stop, attempt, deliveries))
        if others:
            yield _Unbegun(lease, progress, others)
