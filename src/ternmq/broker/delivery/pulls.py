"""Decides pulls.

A decision reads the views, becomes one record, and is applied by the view that will replay it
(`group.progress`). Nothing is changed before the record is in the journal, so a decision that needs
bytes that are not in memory may raise ``WouldBlock`` at any point before, and is then repeated.
`planning` plans which rows a pull may hand out, `lifetimes` takes those out that have expired;
settles and the ends of leases are decided in `settles` and `leases`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.catalog.levels import LevelTurns
from ternmq.broker.clock.timers import Timer
from ternmq.broker.delivery.allowance import allowance
from ternmq.broker.delivery.cursors import move_cursor
from ternmq.broker.delivery.lifetimes import EXPIRED_A_PULL, Lifetimes
from ternmq.broker.delivery.planning import Planning
from ternmq.broker.gate.replies import ANEW_RUNS, PullReply
from ternmq.broker.group.lease import DETACHED, LEASE_BITS
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.index.tail import Places
from ternmq.model.errors import CorruptJournal, DiskReadError
from ternmq.record.fact import facts
from ternmq.record.fact.facts import ONE_PULLED, LeasedRun, Move, Pulled, Span


class Delivery:
    """Decides pulls.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_lease", "_ledger", "_lifetimes", "_planning")

    def __init__(self, ledger: Ledger, planning: Planning, lifetimes: Lifetimes) -> None:
        self._ledger = ledger
        self._planning = planning
        self._lifetimes = lifetimes
        self._lease = 0

    @property
    def newest_lease(self) -> int:
        """The id of the newest lease."""
        return self._ledger.journal.epoch << LEASE_BITS | self._lease

    def pull(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        max_messages: int,
        max_bytes: int,
        at_once: int = 0,
        detached_us: int = 0,
    ) -> PullReply | None:
        """Lease the next rows of one queue to a consumer.

        Args:
            now_us: Broker time.
            session: The consumer's session.
            subscription: The group on the topic.
            queue: The queue.
            progress: The group's view of it.
            max_messages: Maximum number of rows.
            max_bytes: Approximate maximum of bytes; the first row is returned whatever its size.
            at_once: Number of rows that the consumer works on at one time; 0: unknown.
            detached_us: Length of a lease that belongs to no session (``DETACHED``); 0: it belongs
                to the consumer's, and is as long as the group says.

        Returns:
            The leased rows; None when nothing is available.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        self._lifetimes.left = EXPIRED_A_PULL
        if subscription.limited:
            max_messages = allowance(
                self._ledger.views, subscription, session, max_messages, detached=bool(detached_us)
            )
        return self._pull(
            now_us, session, subscription, queue, progress, max_messages, max_bytes, at_once,
            detached_us,
        )  # fmt: skip

    def _pull(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        max_messages: int,
        max_bytes: int,
        at_once: int,
        detached_us: int,
    ) -> PullReply | None:
        ledger = self._ledger
        spec = subscription.spec
        room = min(max_messages, spec.window - progress.leased_rows)
        if room <= 0:
            return None
        journal = ledger.journal
        limits, failures = ledger.limits, progress.failures
        ready, ahead = progress.ready.runs, progress.ahead.starts
        if len(progress.leases) + len(ready) + len(ahead) >= limits.intervals:  # see `open_runs`
            visible = progress.cursor  # owed rows only: otherwise the runs could never become fewer
        elif queue.end <= journal.committed:
            visible = queue.next
        else:
            visible = ledger.index.visible(queue.topic.number, queue.number, journal.committed)
        if subscription.straight and not (
            ready
            or failures.waiting_rows
            or ahead
            or progress.cursor < queue.first
            or progress.cursor >= visible
            or failures.dead_rows >= limits.failures
            or progress.cursor < progress.given.stop
            or progress.cursor < queue.judged_below
            or (subscription.locks and progress.leases)
        ):
            # The usual pull: no row is delivered again, also not after a reset, none is passed
            # over, and the queue is not locked. It gets the next rows, if one lookup finds them.
            cursor = progress.cursor
            stop = min(cursor + room, visible)
            places = ledger.index.locate(queue.topic.number, queue.number, cursor, stop, max_bytes)
            if places.stop >= stop:
                return self._hand_out(
                    now_us, session, subscription, queue, progress,
                    stop, [(cursor, stop, 1, 1)], [places], (), (), (), at_once, detached_us,
                )  # fmt: skip
        plan = self._planning.plan(now_us, subscription, queue, progress, visible, room, max_bytes)
        if queue.judged_below and plan.runs:
            plan = self._lifetimes.living(
                now_us, subscription, queue, progress, visible, room, max_bytes, plan
            )
        if not plan.runs and not plan.parked:
            if plan.cursor > progress.cursor:
                self._pass_over(now_us, progress, plan.cursor)
                if plan.cursor < visible:
                    ledger.wakes.go_on(subscription)  # the scan goes on in the next turn
            return None
        return self._hand_out(
            now_us, session, subscription, queue, progress,
            plan.cursor, plan.runs, plan.places, plan.skipped, plan.parked, plan.hashes, at_once,
            detached_us, _anew(progress, plan.runs),
        )  # fmt: skip

    def pull_any(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        max_messages: int,
        max_bytes: int,
        at_once: int = 0,
        detached_us: int = 0,
    ) -> PullReply | None:
        """Lease the next rows of a queue of a topic that has some; the queues take turns.

        On a topic with levels, those of the highest level that has rows come first (`LevelTurns`).
        Where queues belong to members, only those of the session are tried.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        self._lifetimes.left = EXPIRED_A_PULL
        if subscription.limited:
            max_messages = allowance(
                self._ledger.views, subscription, session, max_messages, detached=bool(detached_us)
            )
            if not max_messages:
                return None
        queues, views = subscription.topic.queues, subscription.queues
        count, turns, turn = len(queues), subscription.level_turns, subscription.turn
        owners = subscription.owners
        if owners is not None and turns is not None:
            turns = owners.turns(session, subscription.topic.spec.levels)
        order: Iterable[int]
        order = range(turn, turn + count) if turns is None else turns.queues(count)
        at = turn
        if owners is not None:
            order = owners.order(session, None if turns is None else list(order))
        try:
            for step in order:
                at = step % count
                reply = self._pull(
                    now_us, session, subscription, queues[at], views[at], max_messages, max_bytes,
                    at_once, detached_us,
                )  # fmt: skip
                if reply is not None:
                    if turns is not None:
                        turns.took(at)
                    elif owners is not None:
                        owners.took(session, at)
                    else:
                        subscription.turn = (at + 1) % count
                    return reply
                if self._lifetimes.left <= 0:
                    break  # waiting pulls are tried again
        except WouldBlock:
            if self._lifetimes.left == EXPIRED_A_PULL:
                raise
            ledger = self._ledger
            ledger.wakes.go_on(subscription)  # expired rows were recorded: something has changed
        except (CorruptJournal, DiskReadError):
            _passed(subscription, turns, session, at)
            raise
        return None

    def _hand_out(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        cursor: int,
        runs: Sequence[LeasedRun],
        places: Sequence[Places],
        skipped: Sequence[Span] = (),
        parked: Sequence[Span] = (),
        hashes: Sequence[int] = (),
        at_once: int = 0,
        detached_us: int = 0,
        anew: int = 0,
    ) -> PullReply | None:
        ledger = self._ledger
        epoch = ledger.journal.epoch
        lease = self._lease + 1
        until_us = now_us + subscription.spec.lease_us
        if detached_us:
            session, at_once = DETACHED, 0
            until_us = now_us + detached_us
        topic = queue.topic.number
        fact = Pulled(
            progress.group, topic, queue.number, session, lease, until_us, cursor,
            runs, skipped, parked, hashes,
        )  # fmt: skip
        if len(runs) == 1 and not skipped and not parked and not hashes:
            start, stop, attempt, deliveries = runs[0]
            body = ONE_PULLED.pack(
                1, 0, progress.group, topic, queue.number, session, lease, until_us, cursor,
                1, 0, 0, 0, start, stop - start, attempt, deliveries,
            )  # fmt: skip
        else:
            body = facts.pack_pulled((fact,))
        ledger.record_pulled(now_us, body, progress, fact)
        self._lease = lease
        progress.scan = 0
        if not runs:
            return None
        if at_once:
            progress.leases[epoch << LEASE_BITS | lease].at_once = at_once
        if until_us < progress.lease_armed_us:
            ledger.timers.arm_leases(progress, until_us)
        return PullReply(
            topic,
            queue.number,
            epoch,
            lease,
            until_us,
            runs,
            places,
            ledger.journal.end if subscription.confirmed else 0,
            ledger.suspect_below,
            anew,
        )

    def _pass_over(self, now_us: int, progress: Progress, cursor: int) -> None:
        """Pass over rows that do not match the filter or have expired; record it now or later."""
        ledger = self._ledger
        due = progress.scan_since_us + ledger.limits.filter_cursor_us
        if cursor - progress.cursor < ledger.limits.filter_scan_rows and (
            progress.scan_since_us == 0 or now_us < due
        ):
            if progress.scan_since_us == 0:
                progress.scan_since_us = now_us
                # No other pull may follow, so a timer has to record it.
                ledger.timers.set(now_us + ledger.limits.filter_cursor_us, Timer.PASSED, progress)
            progress.scan = cursor
            return
        move_cursor(self._ledger, now_us, progress, Move.FILTERED, cursor)

    def record_passed(self, now_us: int, due_us: int, progress: Progress, budget: int) -> int:
        """Record which rows a filter passed over, if it is not recorded yet (timer PASSED).

        Raises:
            JournalFull: no segment is ready; the call must be repeated.
        """
        del due_us, budget
        if self._ledger.views.catalog.consumer_of(progress) is not None:
            if progress.scan > progress.cursor:
                move_cursor(self._ledger, now_us, progress, Move.FILTERED, progress.scan)
            progress.scan_since_us = 0
        return 1


def _passed(subscription: Subscription, turns: LevelTurns | None, session: int, queue: int) -> None:
    """Let the other queues come before one that cannot be read, at the next attempt."""
    if turns is not None:
        turns.passed(queue)
    elif subscription.owners is not None:
        subscription.owners.took(session, queue)
    else:
        subscription.turn = (queue + 1) % len(subscription.queues)


def _anew(progress: Progress, runs: Sequence[LeasedRun]) -> int:
    """Return ``PullReply.anew`` of a plan that is not recorded yet."""
    given, anew = progress.given, 0
    if runs and min(runs)[0] < given.stop:
        for at, (start, stop, attempt, deliveries) in enumerate(runs[:ANEW_RUNS]):
            if (attempt, deliveries) == (1, 2) and given.part(start, stop) == (stop, 2):
                known = [count for _, _, _, count in progress.ready.inside(start, stop) if count]
                anew |= 0 if known else 1 << at
    return anew
