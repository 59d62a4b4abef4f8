"""Decides settles of consumers, operators and ended leases: what becomes of the rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.ages import Ages
from ternmq.broker.gate.replies import SettleReply
from ternmq.broker.group.lease import LEASE_BITS, LEASE_LIMIT, LENT_UNTIL_US, Lease
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.retry import delay_us
from ternmq.broker.group.runs import missing, parts_in, split_all, union
from ternmq.broker.ledger.factkinds import SETTLED, FactKind
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import InvalidRequest, LeaseExpired
from ternmq.model.specs import Exhausted
from ternmq.model.types import DAY_US
from ternmq.record.fact import facts
from ternmq.record.fact.facts import (
    MAX_REASON_BYTES,
    ONE_SETTLED,
    Cause,
    LeasedRun,
    Outcome,
    Settled,
    Span,
)
from ternmq.wire import bodies

# Members as module names: to look one up in its class takes 0.2 us (Python 3.11).
_DONE: Final = Outcome.DONE
_RETRY: Final = Outcome.RETRY
_DEAD: Final = Outcome.DEAD
_RELEASED: Final = Outcome.RELEASED
_HELD: Final = Outcome.HELD
_CONSUMER: Final = Cause.CONSUMER
_STATED: Final = {int(one): one for one in (_DONE, _RETRY, _DEAD, _RELEASED)}
"""Outcomes that a consumer may state."""

LONGEST_US: Final = 2 * 366 * DAY_US
"""Longest delay of a retry, and longest lease."""


def stated(asked: bodies.Settle) -> Outcome:
    """Check what a consumer states; return the outcome.

    Raises:
        InvalidRequest: A consumer may not state the outcome; a span is none; the delay is negative,
            or longer than two years.
    """
    outcome = _STATED.get(asked.outcome)
    if outcome is None:
        raise InvalidRequest(f"outcome {asked.outcome} is not one that a consumer may state")
    if asked.spans and not all(0 <= start < stop for start, stop in asked.spans):
        raise InvalidRequest("a span is (start, stop) with 0 <= start < stop")
    if asked.delay_us is not None and not 0 <= asked.delay_us <= LONGEST_US:
        raise InvalidRequest("a delay is at most two years and not negative")
    return outcome


class Disposition(NamedTuple):
    """What becomes of rows of a lease; not made for a plain ack, where it would take 0.6 us of 4.

    Attributes:
        session: the session that settles, or that lost the lease.
        epoch: epoch of the lease.
        lease: number of the lease.
        outcome: DONE, RETRY (by policy: it may become DEAD or HELD), DEAD (rejected), RELEASED.
        cause: why.
        delay_us: of RETRY: the delay instead of the policy's.
        reason: of RETRY and DEAD; cut to 4 KiB.
    """

    session: int
    epoch: int
    lease: int
    outcome: Outcome
    cause: Cause
    delay_us: int | None = None
    reason: str = ""


class Settling:
    """Decides settles, and builds their facts.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def settle(
        self, now_us: int, session: int, subscription: Subscription, asked: bodies.Settle
    ) -> SettleReply:
        """Record a consumer's settle of rows that it holds.

        Args:
            now_us: broker time.
            session: the session that settles.
            subscription: the group on the topic.
            asked: which rows, and their outcome: DONE, RETRY (by policy: it may become DEAD or
                HELD), DEAD (rejected), RELEASED. ``delay_us`` of RETRY: the delay instead of the
                policy's. ``reason`` of RETRY and DEAD; cut to 4 KiB.

        Raises:
            LeaseExpired: none of the rows is held under the lease.
            InvalidRequest: the outcome is not one of these; a span is none; the delay is negative
                or longer than two years.
        """
        ledger = self._ledger
        outcome, spans = stated(asked), asked.spans
        epoch, number, queue = asked.epoch, asked.lease, asked.queue
        progress = subscription.queues[queue]
        lease = progress.leases.get(epoch << LEASE_BITS | number)
        if lease is None:
            taken, refused = self._of_lost_lease(
                subscription.topic.queues[queue], progress, epoch, spans
            )
        elif not spans:
            taken, refused = lease.runs, []
        else:
            taken, refused = held_of(lease, spans)
        if progress.mode.blocks and outcome is not _RELEASED:
            taken, refused = self.open_rows(subscription, progress, outcome, taken, refused)
        if not taken:
            raise LeaseExpired(f"lease {epoch}.{number} of {subscription.name} has ended")
        if outcome is _DONE and len(taken) == 1:
            start, stop, attempt, deliveries = taken[0]
            fact = Settled(
                progress.group, progress.topic, progress.queue, session, number, epoch,
                progress.round, _DONE, _CONSUMER, 0, taken,
            )  # fmt: skip
            body = ONE_SETTLED.pack(
                1, 0, progress.group, progress.topic, progress.queue, session, number, epoch,
                progress.round, 0, 1, 0, 0, 0, start, stop - start, attempt, deliveries,
            )  # fmt: skip
            ledger.record_settled(now_us, body, progress, fact)
        else:
            order = progress.order
            first: Sequence[LeasedRun] = taken
            later: list[LeasedRun] = []
            if outcome is _RETRY or outcome is _RELEASED:
                first, later = order.handled(taken)
            settle = Disposition(
                session, epoch, number, outcome, _CONSUMER, asked.delay_us, asked.reason
            )
            settled = self.settled(now_us, subscription, progress, settle, first)
            if lease is not None and outcome is not _DONE:
                later = order.behind(lease, settled, later, taken)
                if later:
                    # In the same record: a consumer must never hold rows that wait for a failed
                    # one.
                    settled.append(released(progress, lease, later, Cause.KEY))
            settled += lent_behind(progress, settled)
            self.record(now_us, SETTLED, progress, settled)
        if subscription.waiters.count:
            ledger.wakes.wake_for(progress)
        return SettleReply(taken, refused, ledger.journal.end)

    def settled(
        self,
        now_us: int,
        subscription: Subscription,
        progress: Progress,
        settle: Disposition,
        taken: Sequence[LeasedRun],
    ) -> list[Settled]:
        """Build the facts for a settle of some rows: the policy judges rows by their attempt.

        Rows with the same attempt share one fact, so that a reason is stored once.
        """
        session, epoch, number, outcome, cause, _, reason = settle
        kept_reason = stored_reason(reason)
        settled: list[Settled] = []
        if outcome is Outcome.DONE or outcome is Outcome.RELEASED:
            groups: list[tuple[Outcome, Cause, int, list[LeasedRun]]] = [
                (outcome, cause, 0, list(taken))
            ]
        elif not progress.mode.retries:
            groups = [(Outcome.DONE, Cause.FAILED, 0, list(taken))]
        else:
            if outcome is Outcome.DEAD:
                cause = Cause.REJECTED
            by_attempt: dict[int, list[LeasedRun]] = {}
            for run in taken:
                _, _, attempt, _ = run
                by_attempt.setdefault(attempt, []).append(run)
            groups = []
            for attempt, alike in by_attempt.items():
                what, why, due_us = self._policy(now_us, subscription, settle, cause, attempt)
                if what is _RETRY and subscription.spec.retry.expires_us:
                    again, last = self._last_by_age(subscription, progress, alike, due_us)
                    ends = _HELD if holds(subscription) else _DEAD
                    some = [(ends, Cause.EXPIRED, now_us, last), (what, why, due_us, again)]
                    groups += [one for one in some if one[3]]
                else:
                    groups.append((what, why, due_us, alike))
        for what, why, due_us, group in groups:
            runs, previous = group, list[int]()
            if facts.failing(what):
                runs, previous = _with_history(progress, group)
            settled.append(
                Settled(
                    progress.group,
                    progress.topic,
                    progress.queue,
                    session,
                    number,
                    epoch,
                    progress.round,
                    what,
                    why,
                    due_us,
                    runs,
                    previous,
                    kept_reason,
                )
            )
        return settled

    def open_rows(
        self,
        subscription: Subscription,
        progress: Progress,
        outcome: Outcome,
        taken: list[LeasedRun],
        refused: list[Span],
        transaction: int = 0,
    ) -> tuple[list[LeasedRun], list[Span]]:
        """Leave out rows behind one of their key that an undecided transaction settles.

        It may be rolled back, and then that row comes again: the rows behind it must not be done
        or dead before. A row that is retried comes again itself, except after its last attempt. For
        ordered groups; O(1) while no transaction settles rows of the queue.

        Args:
            subscription: The group on the topic.
            progress: The group queue.
            outcome: What becomes of the rows: DONE, RETRY or DEAD.
            taken: The rows to settle.
            refused: Rows that are left out already.
            transaction: Number of the transaction that settles them, whose own rows do not count.

        Returns:
            The rows that may be settled, and those left out.
        """
        if not progress.page.figures.lends(progress):
            return taken, refused
        waiting = _behind_lent(progress, taken, transaction)
        if waiting and outcome is _RETRY:
            waiting = self._last_tries(subscription, progress, taken, waiting)
        if not waiting:
            return taken, refused
        spans = union([(offset, offset + 1) for offset in waiting])
        return split_all(taken, spans)[0], union([*refused, *spans])

    def _last_tries(
        self,
        subscription: Subscription,
        progress: Progress,
        taken: list[LeasedRun],
        waiting: list[int],
    ) -> list[int]:
        """Return those of some rows that would be dead if they fail, and the rows behind them."""
        order = progress.order
        _, named = split_all(taken, union([(offset, offset + 1) for offset in waiting]))
        dead = {
            order.hash_of(offset)
            for start, stop, attempt, _ in order.handled(named)[0]
            if not self.surely_comes_again(subscription, attempt)
            for offset in range(start, stop)
        }
        return [offset for offset in waiting if order.hash_of(offset) in dead]

    def _last_by_age(
        self,
        subscription: Subscription,
        progress: Progress,
        runs: Sequence[LeasedRun],
        due_us: int,
    ) -> tuple[list[LeasedRun], list[LeasedRun]]:
        """Split rows that fail: those that are tried again, and those that are too old for it.

        A row of which the time of storage must be read from the disk first is tried again: the end
        of a lease cannot wait for a read. Its next failure finds it. So is a row that cannot be
        read at all: its attempts end its retries.
        """
        oldest_us = due_us - subscription.spec.retry.expires_us
        again: list[LeasedRun] = []
        last: list[LeasedRun] = []
        ages = Ages(self._ledger, progress, max(run[1] for run in runs))
        for start, stop, attempt, deliveries in runs:
            at = start
            while at < stop:
                end, stored_us = ages.stored(at, stop)
                rows = last if stored_us < oldest_us else again
                rows.append((at, end, attempt, deliveries))
                at = end
        return again, last

    def may_come_again(self, subscription: Subscription, attempt: int) -> bool:
        """Return whether a row that fails at this attempt may block its key: waiting, or held.

        If the policy ends retries by age, that decides too, and the row may be dead instead.
        """
        policy = subscription.spec.retry
        return (policy.enabled and attempt < policy.attempts) or holds(subscription)

    def surely_comes_again(self, subscription: Subscription, attempt: int) -> bool:
        """Return whether a row that fails at this attempt blocks its key, whatever its age."""
        if subscription.spec.retry.expires_us:
            return holds(subscription)
        return self.may_come_again(subscription, attempt)

    def _policy(
        self,
        now_us: int,
        subscription: Subscription,
        settle: Disposition,
        cause: Cause,
        attempt: int,
    ) -> tuple[Outcome, Cause, int]:
        """Return what a failure at this attempt becomes: (outcome, cause, due or dead time)."""
        policy = subscription.spec.retry
        if settle.outcome is Outcome.DEAD:
            return Outcome.DEAD, cause, now_us
        if not policy.enabled or attempt >= policy.attempts:
            last = cause if cause in (Cause.TIME, Cause.SESSION) else Cause.EXHAUSTED
            if holds(subscription):
                return Outcome.HELD, last, now_us
            return Outcome.DEAD, last, now_us
        delay = settle.delay_us
        if delay is None:
            delay = delay_us(policy, attempt, self._ledger.chance)
        return Outcome.RETRY, cause, now_us + delay

    def record(
        self,
        now_us: int,
        what: FactKind[Sequence[Settled]],
        progress: Progress,
        settled: Sequence[Settled],
    ) -> None:
        """Record SETTLED or ENDED facts of one queue, and arm the timer for rows that come due."""
        ledger = self._ledger
        ledger.record(now_us, what, settled)
        for fact in settled:
            if fact.outcome is _RETRY and fact.due_us < progress.due_armed_us:
                ledger.timers.arm_due(progress, fact.due_us)

    def _of_lost_lease(
        self, queue: Queue, progress: Progress, lease_epoch: int, spans: Sequence[Span]
    ) -> tuple[list[LeasedRun], list[Span]]:
        """Judge a settle whose lease is not known: its PULLED may have been lost in a power cut.

        Accepted only for rows at or above the cursor, which were never delivered according to this
        journal, and which were stored when this epoch began. Where a pull is answered when its
        PULLED is durable, no lease can be lost: nothing is accepted. Nor is it for rows that were
        removed before the group read them: a release would let them come again from nowhere.
        """
        first = max(progress.cursor, queue.first)
        taken: list[LeasedRun] = []
        refused: list[Span] = []
        for start, stop in spans:
            if (
                lease_epoch < self._ledger.journal.epoch
                and not progress.mode.confirmed
                and not progress.round  # after a reset, the round of the settle is not known
                and first <= start < stop <= queue.recovered
                and not progress.ahead.overlaps(start, stop)
            ):
                taken.append((start, stop, 1, 1))
            else:
                refused.append((start, stop))
        return taken, refused

    def operate(
        self,
        now_us: int,
        progress: Progress,
        offsets: Sequence[int],
        outcome: Outcome,
        cause: Cause = Cause.OPERATOR,
    ) -> SettleReply:
        """Make waiting or held rows due now (RETRY), or delete waiting and dead ones (DONE).

        Raises:
            LeaseExpired: none of the rows is in such a state.
        """
        taken: list[LeasedRun] = []
        previous: list[int] = []
        refused: list[Span] = []
        for offset in sorted(set(offsets)):
            row = progress.failures.failure(offset)
            if row is None and outcome is Outcome.DONE:
                row = progress.failures.dead_letter(offset)
            if row is None:
                refused.append((offset, offset + 1))
                continue
            taken.append((offset, offset + 1, row.attempt, row.deliveries))
            previous.append(row.position)
        if not taken:
            raise LeaseExpired("none of these messages waits for a retry")
        fact = Settled(
            progress.group,
            progress.topic,
            progress.queue,
            0,
            0,
            0,
            progress.round,
            outcome,
            cause,
            now_us,
            taken,
            previous if facts.failing(outcome) else [],
        )
        self.record(now_us, SETTLED, progress, [fact])
        self._ledger.wakes.wake_for(progress)
        return SettleReply(taken, refused, self._ledger.end)


def holds(subscription: Subscription) -> bool:
    """Return whether a row that failed for good blocks its key until an operator acts."""
    return subscription.mode.holds and subscription.spec.retry.exhausted is Exhausted.HOLD


def held_of(lease: Lease, spans: Sequence[Span]) -> tuple[list[LeasedRun], list[Span]]:
    """Return (runs of the lease that are in the spans, parts of the spans not in the lease)."""
    wanted = union(spans)
    taken = parts_in(lease.runs, wanted)
    return taken, missing(wanted, taken)


def others_lend(progress: Progress, transaction: int) -> bool:
    """Return whether rows of a group queue are leased to another transaction. O(leases)."""
    return progress.page.figures.lends(progress) and any(
        lease.until_us >= LENT_UNTIL_US and id_ != transaction
        for id_, lease in progress.leases.items()
    )


def _behind_lent(progress: Progress, taken: Sequence[LeasedRun], transaction: int) -> list[int]:
    """Return those of some leased rows that are behind one of another transaction in their key."""
    order = progress.order
    late = [
        offset
        for start, stop, _, _ in taken
        for offset in range(start, stop)
        if order.first_before(progress, offset) is not None
    ]
    lent = [
        lease.runs
        for lease in progress.leases.values()
        if lease.until_us >= LENT_UNTIL_US and lease.id != transaction
    ]
    if not late or not lent:
        return []
    first: dict[int | None, int] = {}
    for offset in sorted(late, reverse=True):  # the last row of a key finds it for the others
        hash_ = order.hash_of(offset)
        if hash_ not in first:
            earlier = order.before(progress, offset)
            first[hash_] = next((one for one in earlier if _lent(lent, one)), offset)
    return [offset for offset in late if first[order.hash_of(offset)] < offset]


def _lent(lent: Sequence[list[LeasedRun]], offset: int) -> bool:
    """Return whether one of the leases, whose runs are sorted, has a row."""
    for runs in lent:
        at = bisect_right(runs, (offset, 1 << 63)) - 1
        if at >= 0 and offset < runs[at][1]:
            return True
    return False


def _with_history(
    progress: Progress, runs: Sequence[LeasedRun]
) -> tuple[list[LeasedRun], list[int]]:
    """Return the runs, each with one earlier failure, and where that is described (0: none)."""
    if not progress.failures.history:
        return list(runs), [0] * len(runs)
    cut: list[LeasedRun] = []
    previous: list[int] = []
    for start, stop, attempt, deliveries in runs:
        for offset in range(start, stop):
            before = progress.failures.history.get(offset, 0)
            if cut and cut[-1][1:] == (offset, attempt, deliveries) and previous[-1] == before:
                cut[-1] = (cut[-1][0], offset + 1, attempt, deliveries)
            else:
                cut.append((offset, offset + 1, attempt, deliveries))
                previous.append(before)
    return cut, previous


def released(progress: Progress, lease: Lease, runs: Sequence[LeasedRun], cause: Cause) -> Settled:
    """Return the fact that rows of a lease are given back; no attempt is counted."""
    return Settled(
        progress.group,
        progress.topic,
        progress.queue,
        lease.session,
        lease.id & LEASE_LIMIT - 1,
        lease.id >> LEASE_BITS,
        progress.round,
        Outcome.RELEASED,
        cause,
        0,
        runs,
    )


def lent_behind(progress: Progress, settled: Sequence[Settled]) -> list[Settled]:
    """Return the releases of rows that transactions settle, behind rows of their key.

    Those come again by ``settled``, so no commit may make the rows behind them done. For ordered
    groups; O(1) while no transaction settles rows of the queue.
    """
    if not progress.mode.blocks or not progress.page.figures.lends(progress):
        return []
    again = [
        run
        for fact in settled
        if fact.outcome is not _DONE and fact.outcome is not _DEAD
        for run in fact.runs
    ]
    lent = [lease for lease in progress.leases.values() if lease.until_us >= LENT_UNTIL_US]
    return behind(progress, lent, again)


def behind(
    progress: Progress, leases: Sequence[Lease], again: Sequence[LeasedRun]
) -> list[Settled]:
    """Return the releases of rows of some leases behind rows of their key that come again."""
    runs = sorted(again)
    hashes = [
        progress.order.hash_of(offset) or 0
        for start, stop, _, _ in runs
        for offset in range(start, stop)
    ]
    return [
        released(progress, lease, rows, Cause.KEY)
        for lease, rows in progress.order.behind_replayed(leases, runs, hashes)
    ]


def stored_reason(reason: str) -> bytes:
    """Return the bytes of a reason that are stored: at most 4 KiB."""
    data = reason.encode("utf-8", "replace")
    if len(data) <= MAX_REASON_BYTES:
        return data
    return data[:MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
