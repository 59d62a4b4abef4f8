"""Decides pulls.

A decision reads the views, becomes one record, and is applied by the view that will replay it
(`group.progress`). Nothing is changed before the record is in the journal, so a decision that needs
bytes that are not in memory may raise ``WouldBlock`` at any point before, and is then repeated.
The planner of the group's mode (`modes`) plans which rows a pull may hand out; settles and the ends
of leases are decided in `settles` and `leases`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.clock.timers import Timer
from ternmq.broker.delivery.expiry import Expiry
from ternmq.broker.delivery.modes import MODES
from ternmq.broker.delivery.plan import Plan
from ternmq.broker.delivery.planner import Planner
from ternmq.broker.gate.replies import ANEW_RUNS, PullReply
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import row_count, split_all, union, without
from ternmq.broker.ledger.factkinds import CURSOR
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.index.tail import Places
from ternmq.record.fact import facts
from ternmq.record.fact.facts import ONE_PULLED, CursorMoved, LeasedRun, Move, Pulled, Span

_FIRST_LOOK: Final = 16
EXPIRED_A_PULL: Final = 1024
"""Expired rows that one pull records, about, in all of its queues: the next turn goes on."""
_RECORD_COST: Final = 16
"""Rows for which a record counts."""
_SCANNED_A_ROW: Final = 16
"""Rows looked at by a sweep that count as one that is recorded; more with a filter of headers."""


class Delivery:
    """Decides pulls, and moves cursors.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_expiry", "_expiry_left", "_lease", "_ledger", "_planners")

    def __init__(self, ledger: Ledger, expiry: Expiry) -> None:
        self._ledger = ledger
        self._expiry = expiry
        self._expiry_left = 0
        """Expired rows that this pull may still record."""
        self._lease = 0
        self._planners: dict[GroupMode, Planner] = {mode: mode.planner(ledger) for mode in MODES}

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

        Returns:
            The leased rows; None when nothing is available.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        self._expiry_left = EXPIRED_A_PULL
        return self._pull(
            now_us, session, subscription, queue, progress, max_messages, max_bytes, at_once
        )

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
        elif queue.end <= journal.durable:
            visible = queue.next
        else:
            visible = ledger.index.visible(queue.topic.number, queue.number, journal.durable)
        if subscription.straight and not (
            ready
            or failures.waiting_rows
            or ahead
            or progress.cursor < queue.first
            or progress.cursor >= visible
            or failures.dead_rows >= limits.failures
            or progress.cursor < progress.given.stop
            or progress.cursor < queue.judged_below
        ):
            # The usual pull: no row is delivered again, also not after a reset, and none is passed
            # over. It gets the next rows, if one lookup finds all of them.
            cursor = progress.cursor
            stop = min(cursor + room, visible)
            places = ledger.index.locate(queue.topic.number, queue.number, cursor, stop, max_bytes)
            if places.stop >= stop:
                return self._hand_out(
                    now_us, session, subscription, queue, progress,
                    stop, [(cursor, stop, 1, 1)], [places], (), (), (), at_once,
                )  # fmt: skip
        plan = self._plan(now_us, subscription, queue, progress, visible, room, max_bytes)
        if queue.judged_below and plan.runs:
            plan = self._living(
                now_us, subscription, queue, progress, visible, room, max_bytes, plan
            )
        if not plan.runs and not plan.parked:
            if plan.cursor > progress.cursor:
                self._pass_over(now_us, progress, plan.cursor)
                if plan.cursor < visible:
                    ledger.wakes.wake_for(progress)  # the scan goes on in the next turn
            return None
        return self._hand_out(
            now_us, session, subscription, queue, progress,
            plan.cursor, plan.runs, plan.places, plan.skipped, plan.parked, plan.hashes, at_once,
            _anew(progress, plan.runs),
        )  # fmt: skip

    def _plan(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
    ) -> Plan:
        plan = Plan(progress.cursor)
        planner = self._planners[subscription.mode]
        planner.plan(now_us, subscription, queue, progress, visible, room, max_bytes, plan)
        if plan.skipped and progress.ahead:
            plan.skipped = without(plan.skipped, progress.ahead)  # they are settled
        return plan

    def _living(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
        room: int,
        max_bytes: int,
        plan: Plan,
    ) -> Plan:
        """Return a plan without expired rows: these are recorded, and the pull is planned again.

        Only rows that the pull passes are recorded, and those up to the next row that lives: else
        one that is redriven would overtake rows that were never handed out. If there are too many
        for one pull, it gets what is before the next one, and waiting pulls are tried again.
        """
        recorded = False
        try:
            while plan.runs:
                expired = self._expiry.expired(now_us, queue, progress, plan.runs)
                if not expired:
                    return plan
                if self._expiry_left <= 0:
                    self._ledger.wakes.wake_for(progress)
                    return self._before(
                        now_us, subscription, queue, progress, room, max_bytes, expired
                    )
                self._record_expired(now_us, subscription, progress, expired)
                recorded = True
                if row_count(expired) == row_count(plan.runs):
                    # Many may follow: a pull of one row must not take a record for each of them.
                    self._record_following(now_us, subscription, queue, progress, visible)
                plan = self._plan(now_us, subscription, queue, progress, visible, room, max_bytes)
            return plan
        except WouldBlock:
            if not recorded:
                raise  # else the next attempt raises it: nothing may be changed by a command before
        self._ledger.wakes.wake_for(progress)
        return Plan(progress.cursor)

    def _before(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        room: int,
        max_bytes: int,
        expired: Sequence[LeasedRun],
    ) -> Plan:
        """Return a plan of what comes before the first expired row; empty if an owed one has."""
        first = min([run[0] for run in expired])
        if first > progress.cursor:
            plan = self._plan(now_us, subscription, queue, progress, first, room, max_bytes)
            if not self._expiry.expired(now_us, queue, progress, plan.runs):
                return plan
        return Plan(progress.cursor)

    def _record_expired(
        self,
        now_us: int,
        subscription: Subscription,
        progress: Progress,
        expired: list[LeasedRun],
    ) -> None:
        self._expiry.record(now_us, subscription, progress, expired)
        self._expiry_left -= _RECORD_COST + row_count(expired)

    def _record_following(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        progress: Progress,
        visible: int,
    ) -> None:
        """Record expired rows that are owed, and those up to the next new row that lives."""
        max_bytes = self._ledger.limits.pull_bytes
        while (room := self._expiry_left) > 0:
            plan = self._plan(now_us, subscription, queue, progress, visible, room, max_bytes)
            expired, reach, _ = self._judge(now_us, queue, progress, plan)
            first = [run for run in expired if run[1] <= reach]
            if not first:
                return
            self._record_expired(now_us, subscription, progress, first)

    def _judge(
        self, now_us: int, queue: Queue, progress: Progress, plan: Plan
    ) -> tuple[list[LeasedRun], int, bool]:
        """Return the expired rows of a plan, and where the first new row that lives is.

        Also whether there is one in the plan; one that waits behind its key counts as well.
        """
        expired = self._expiry.expired(now_us, queue, progress, plan.runs)
        living, _ = split_all(plan.runs, union([run[:2] for run in expired]))
        stops = [run[0] for run in living if run[0] >= progress.cursor]
        stops += [start for start, _ in plan.parked]
        return expired, min([plan.cursor, *stops]), bool(stops)

    def sweep(
        self, now_us: int, subscription: Subscription, queue: Queue, progress: Progress, most: int
    ) -> int:
        """Record the expired rows at the cursor of a group queue that nobody may ever pull.

        Rows that the filter does not pass, or that are settled, are passed over. Only up to the
        first row that has not expired: what is behind it does not keep the journal
        any longer than that row does.

        Args:
            now_us: Broker time.
            subscription: The group on the topic.
            queue: The queue.
            progress: The group's view of it.
            most: Most work, about: rows that are recorded, and part of those that are looked at.

        Returns:
            How much work it was.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
            JournalFull: no segment is ready.
        """
        visible, max_bytes = self._visible(queue), self._ledger.limits.pull_bytes
        header_cost = 1 if subscription.filter is None else subscription.filter.header_cost
        work, room = 0, min(most, _FIRST_LOOK)  # usually the first row has not expired
        while work < most and progress.cursor < min(visible, queue.judged_below):
            begin = max(progress.cursor, progress.scan)
            plan = self._plan(now_us, subscription, queue, progress, visible, room, max_bytes)
            expired, reach, stopped = self._judge(now_us, queue, progress, plan)
            work += max(0, plan.cursor - begin) * header_cost // _SCANNED_A_ROW
            first = [run for run in expired if progress.cursor <= run[0] and run[1] <= reach]
            if first:
                self._expiry.record(now_us, subscription, progress, first)
                work += row_count(first)
            if reach > progress.cursor:
                self.move_cursor(now_us, progress, Move.FILTERED, reach)
            elif not first:
                break
            if stopped:
                break
            room = most
        return work

    def _visible(self, queue: Queue) -> int:
        """Return the offset below which the rows of a queue are durable."""
        ledger = self._ledger
        if queue.end <= ledger.journal.durable:
            return queue.next
        return ledger.index.visible(queue.topic.number, queue.number, ledger.journal.durable)

    def pull_any(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        max_messages: int,
        max_bytes: int,
        at_once: int = 0,
    ) -> PullReply | None:
        """Lease the next rows of a queue of a topic that has some; the queues take turns.

        On a topic with levels, those of the highest level that has rows come first (`LevelTurns`).
        Where queues belong to members, only those of the session are tried.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        self._expiry_left = EXPIRED_A_PULL
        queues, views = subscription.topic.queues, subscription.queues
        count, turns, turn = len(queues), subscription.level_turns, subscription.turn
        order: Iterable[int]
        order = range(turn, turn + count) if turns is None else turns.queues(count)
        owners = subscription.owners
        if owners is not None:
            order = owners.order(session, None if turns is None else list(order))
        try:
            for step in order:
                at = step % count
                reply = self._pull(
                    now_us, session, subscription, queues[at], views[at], max_messages, max_bytes,
                    at_once,
                )  # fmt: skip
                if reply is not None:
                    if turns is not None:
                        turns.took(at)
                    elif owners is not None:
                        owners.took(session, at)
                    else:
                        subscription.turn = (at + 1) % count
                    return reply
                if self._expiry_left <= 0:
                    break  # waiting pulls are tried again
        except WouldBlock:
            if self._expiry_left == EXPIRED_A_PULL:
                raise
            ledger = self._ledger
            ledger.wakes.wake(subscription)  # expired rows were recorded: something has changed
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
        anew: int = 0,
    ) -> PullReply | None:
        ledger = self._ledger
        epoch = ledger.journal.epoch
        lease = self._lease + 1
        until_us = now_us + subscription.spec.lease_us
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
        self.move_cursor(now_us, progress, Move.FILTERED, cursor)

    def record_passed(self, now_us: int, due_us: int, progress: Progress, budget: int) -> int:
        """Record which rows a filter passed over, if it is not recorded yet (timer PASSED).

        Raises:
            JournalFull: no segment is ready; the call must be repeated.
        """
        del due_us, budget
        if self._ledger.views.catalog.consumer_of(progress) is not None:
            if progress.scan > progress.cursor:
                self.move_cursor(now_us, progress, Move.FILTERED, progress.scan)
            progress.scan_since_us = 0
        return 1

    def move_cursor(self, now_us: int, progress: Progress, move: Move, cursor: int) -> int:
        """Move a cursor without a pull; return the end of the record."""
        round_ = progress.round + (1 if move is Move.RESET else 0)
        fact = CursorMoved(progress.group, progress.topic, progress.queue, move, cursor, round_)
        self._ledger.record(now_us, CURSOR, fact)
        progress.scan_since_us = 0
        return self._ledger.end


def _anew(progress: Progress, runs: Sequence[LeasedRun]) -> int:
    """Return ``PullReply.anew`` of a plan that is not recorded yet."""
    given, anew = progress.given, 0
    if runs and min(runs)[0] < given.stop:
        for at, (start, stop, attempt, deliveries) in enumerate(runs[:ANEW_RUNS]):
            if (attempt, deliveries) == (1, 2) and given.part(start, stop) == (stop, 2):
                known = [count for _, _, _, count in progress.ready.inside(start, stop) if count]
                anew |= 0 if known else 1 << at
    return anew
