"""Decides pulls, settles, extensions and the ends of leases: the one keyed delivery machine.

A decision reads the views, becomes one record, and is applied by the view that will replay it
(`groupqueue`). Nothing is changed before the record stands in the journal, so a decision that needs
bytes that are not in memory may raise ``WouldBlock`` at any point before and be made again.

Shared groups hand out rows in order of offset, whoever asks. Ordered groups hand out at most one
stretch of each key at a time: while rows of a key are leased, or its head waits for a retry, its
later rows are parked in their line (`lines`) and other keys flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ternmq.broker.catalog import Queue, Subscription
from ternmq.broker.failures import Failure
from ternmq.broker.groupqueue import LEASE_BITS, GroupQueue, Lease
from ternmq.broker.lines import Line
from ternmq.broker.replies import PullReply, SettleReply
from ternmq.broker.retry import Chance, delay_us
from ternmq.broker.runs import merge, split
from ternmq.journal.index import Index
from ternmq.journal.journal import Journal
from ternmq.journal.store import RecordStore
from ternmq.journal.tail import Places
from ternmq.model.errors import CorruptJournal, LeaseExpired
from ternmq.model.specs import Exhausted, Limits, RetryPolicy
from ternmq.record import facts, messages
from ternmq.record.batch import Batch
from ternmq.record.facts import (
    MAX_REASON_BYTES,
    ONE_PULLED,
    ONE_SETTLED,
    Cause,
    CursorMoved,
    Extended,
    LeasedRun,
    Move,
    Outcome,
    Pulled,
    Settled,
    Span,
)
from ternmq.record.header import HEADER_BYTES, Kind

LEASE_LIMIT: Final = 1 << LEASE_BITS
ENDED_ROWS_A_TURN: Final = 512
"""Rows whose leases may end in one turn, so that a lost session does not stop the loop."""
ROWS_PER_KEY: Final = 64
"""Most rows of one key in one pull."""


class Ended(NamedTuple):
    """What a look at the leases of a group queue did."""

    rows: int
    more: bool


class DeliveryContext(Protocol):
    """What the machine needs of the broker."""

    journal: Journal
    index: Index
    store: RecordStore
    random: Chance
    limits: Limits
    suspect_below: int

    def woken(self, queue: GroupQueue) -> None:
        """Rows of it may be available: parked pulls are to be looked at."""
        ...

    def arm_leases(self, queue: GroupQueue, when_us: int) -> None:
        """Leases of it are to be looked at, at that time."""
        ...

    def arm_due(self, queue: GroupQueue, when_us: int) -> None:
        """A waiting row of it comes due at that time."""
        ...


class Delivery:
    """The machine. Loop only."""

    __slots__ = ("_context", "_lease")

    def __init__(self, context: DeliveryContext) -> None:
        self._context = context
        self._lease = 0

    # -- pull -------------------------------------------------------------------------------------

    def pull(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        queue: Queue,
        held: GroupQueue,
        max_messages: int,
        max_bytes: int,
    ) -> PullReply | None:
        """Lease the next rows of one queue to a consumer.

        Returns:
            None when nothing is available.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        context = self._context
        spec = subscription.spec
        room = min(max_messages, spec.window - held.leased_rows)
        if room <= 0 or held.crowded(context.limits.intervals):
            return None
        journal = context.journal
        if queue.end <= journal.durable:
            visible = queue.next
        else:
            visible = context.index.visible(queue.topic.number, queue.number, journal.durable)
        plan = _Plan(held.cursor)
        if subscription.ordered:
            self._plan_ordered(now_us, queue, held, visible, room, max_bytes, plan)
        else:
            self._plan_shared(now_us, subscription, queue, held, visible, room, max_bytes, plan)
        if not plan.runs and not plan.parked:
            if plan.cursor > held.cursor:
                self._pass_over(now_us, held, plan.cursor)
            return None
        return self._hand_out(now_us, session, subscription, queue, held, plan)

    def _hand_out(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        queue: Queue,
        held: GroupQueue,
        plan: _Plan,
    ) -> PullReply | None:
        context = self._context
        journal = context.journal
        lease = self._lease + 1
        until_us = now_us + subscription.spec.lease_us
        topic = queue.topic.number
        runs = plan.runs
        fact = Pulled(
            held.group,
            topic,
            queue.number,
            session,
            lease,
            until_us,
            plan.cursor,
            runs,
            plan.skipped,
            plan.parked,
            plan.hashes,
        )
        if len(runs) == 1 and not plan.skipped and not plan.parked and not plan.hashes:
            start, stop, attempt, deliveries = runs[0]
            body = ONE_PULLED.pack(
                1, 0, held.group, topic, queue.number, session, lease, until_us, plan.cursor,
                1, 0, 0, 0, start, stop - start, attempt, deliveries,
            )  # fmt: skip
        else:
            body = facts.pack_pulled((fact,))
        position = journal.append(Kind.PULLED, body, now_us)
        self._lease = lease
        held.apply_pulled(position, journal.epoch, fact)
        held.scan = 0
        if not runs:
            return None
        if until_us < held.lease_armed_us:
            context.arm_leases(held, until_us)
        return PullReply(
            topic,
            queue.number,
            journal.epoch,
            lease,
            until_us,
            runs,
            plan.places,
            journal.end if subscription.ordered else 0,
            context.suspect_below,
        )

    def _pass_over(self, now_us: int, held: GroupQueue, cursor: int) -> None:
        """Record that rows without a match (or expired) are behind the group."""
        context = self._context
        due = held.scan_since_us + context.limits.filter_cursor_us
        if cursor - held.cursor < context.limits.filter_scan_rows and (
            held.scan_since_us == 0 or now_us < due
        ):
            if held.scan_since_us == 0:
                held.scan_since_us = now_us
            held.scan = cursor
            return
        self.move_cursor(now_us, held, Move.FILTERED, cursor)

    def move_cursor(self, now_us: int, held: GroupQueue, move: Move, cursor: int) -> int:
        """Record a cursor that moves without a pull; return the end of the record."""
        journal = self._context.journal
        round_ = held.round + (1 if move is Move.RESET else 0)
        fact = CursorMoved(held.group, held.topic, held.queue, move, cursor, round_)
        position = journal.append(Kind.CURSOR, facts.pack_cursor(fact), now_us)
        held.apply_cursor(position, fact)
        held.scan_since_us = 0
        return journal.end

    # -- shared -----------------------------------------------------------------------------------

    def _plan_shared(
        self,
        now_us: int,
        subscription: Subscription,
        queue: Queue,
        held: GroupQueue,
        visible: int,
        room: int,
        max_bytes: int,
        plan: _Plan,
    ) -> None:
        fresh = held.cursor < visible
        if held.ready or held.waiting_rows:
            # Half of a pull at most comes again while there is new; single pulls take turns.
            again = room if not fresh else (room + 1) // 2
            if fresh and room == 1 and held.turn_to_fresh:
                again = 0
            held.turn_to_fresh = not held.turn_to_fresh
            room, max_bytes = self._plan_again(now_us, held, again, room, max_bytes, plan)
        if not fresh or room <= 0 or max_bytes <= 0 or self._failures_full(held):
            return
        if subscription.filter is not None:
            self._plan_filtered(subscription, queue, held, visible, room, max_bytes, plan)
            return
        index = self._context.index
        topic, number = queue.topic.number, queue.number
        cursor = held.cursor
        if cursor < queue.first:
            plan.skipped.append((cursor, queue.first))
            cursor = queue.first
        ahead = held.ahead
        while room > 0 and max_bytes > 0 and cursor < visible:
            stop = min(cursor + room, visible)
            if ahead:
                cursor = ahead.covering_end(cursor)
                stop = ahead.next_start(cursor, min(cursor + room, visible))
                if cursor >= visible:
                    break
            places = index.locate(topic, number, cursor, stop, max_bytes)
            if places.stop <= cursor:
                break
            stop = min(stop, places.stop)
            plan.runs.append((cursor, stop, 1, 1))
            plan.places.append(places)
            room -= stop - cursor
            max_bytes -= sum(places.lengths)
            cursor = stop
        plan.cursor = max(plan.cursor, cursor)

    def _plan_again(
        self, now_us: int, held: GroupQueue, again: int, room: int, max_bytes: int, plan: _Plan
    ) -> tuple[int, int]:
        candidates: list[LeasedRun] = []
        left = again
        for start, stop, attempt, deliveries in held.ready.runs:
            if left <= 0:
                break
            stop = min(stop, start + left)
            candidates.append((start, stop, attempt, deliveries + 1))
            left -= stop - start
        if left > 0 and held.waiting_rows:
            candidates += [_again(row) for row in held.due(now_us, left)]
        for start, stop, attempt, deliveries in merge(candidates):
            while start < stop and max_bytes > 0:
                places = self._places(held, start, stop, max_bytes)
                end = min(stop, places.stop)
                plan.runs.append((start, end, attempt, deliveries))
                plan.places.append(places)
                room -= end - start
                max_bytes -= sum(places.lengths)
                start = end
        return room, max_bytes

    def _places(self, held: GroupQueue, start: int, stop: int, max_bytes: int) -> Places:
        """Return where rows that are owed stand: in order, or copied forward."""
        index = self._context.index
        places = index.locate(held.topic, held.queue, start, stop, max_bytes)
        if places.positions:
            return places
        copy = index.moved(held.topic, held.queue, start)
        if copy is None:
            raise CorruptJournal(
                f"offset {start} of queue {held.queue} of topic {held.topic} is owed to group "
                f"{held.group} and kept nowhere"
            )
        return Places((start,), (copy.position,), (0,), start + 1)

    def _failures_full(self, held: GroupQueue) -> bool:
        return held.waiting_rows + held.dead_rows >= self._context.limits.failures

    def _plan_filtered(
        self,
        subscription: Subscription,
        queue: Queue,
        held: GroupQueue,
        visible: int,
        room: int,
        max_bytes: int,
        plan: _Plan,
    ) -> None:
        context = self._context
        wanted = subscription.filter
        assert wanted is not None
        cursor = max(held.cursor, held.scan, queue.first)
        budget = context.limits.filter_scan_rows
        while room > 0 and max_bytes > 0 and budget > 0 and cursor < visible:
            cursor = held.ahead.covering_end(cursor)
            stop = held.ahead.next_start(cursor, min(cursor + budget, visible))
            if cursor >= stop:
                break
            places = context.index.locate(
                queue.topic.number, queue.number, cursor, stop, context.limits.pull_bytes
            )
            if places.stop <= cursor:
                break
            stop = min(stop, places.stop)
            budget -= stop - cursor
            for at, first in enumerate(places.first_offsets):
                end = stop
                if at + 1 < len(places.first_offsets):
                    end = min(stop, places.first_offsets[at + 1])
                if places.masks is not None and places.masks[at] & wanted.mask:
                    stored = messages.of_record(
                        context.store.get(places.positions[at], places.lengths[at])
                    )
                    matching = wanted.matching(Batch(stored.batch))
                    for offset in range(max(cursor, first), end):
                        if matching is True or (
                            matching is not False and matching[stored.row_of(offset)]
                        ):
                            if room <= 0 or max_bytes <= 0:
                                end = stop = offset
                                break
                            room -= 1
                            plan.lease_row(offset, 1, 1)
                    if plan.runs and plan.runs[-1][1] > max(cursor, first):
                        plan.places.append(_one_place(places, at, end))
                        max_bytes -= places.lengths[at]
                if end >= stop:
                    break
            cursor = stop
        if plan.runs:
            plan.skip_between(held.cursor, cursor)
        plan.cursor = max(plan.cursor, cursor)

    # -- ordered ----------------------------------------------------------------------------------

    def _plan_ordered(
        self,
        now_us: int,
        queue: Queue,
        held: GroupQueue,
        visible: int,
        room: int,
        max_bytes: int,
        plan: _Plan,
    ) -> None:
        lines = held.lines
        assert lines is not None
        held.due(now_us, 0)
        rows: list[tuple[int, int, int, int]] = []  # offset, attempt, deliveries, hash
        taken: list[tuple[int, int]] = []
        parked: list[tuple[int, int]] = []
        try:
            while room > 0 and (free := lines.pop_free()) is not None:
                head, hash_, line = free
                taken.append((head, hash_))
                found = self._available(now_us, held, line, hash_, min(room, ROWS_PER_KEY))
                if not found:
                    taken.pop()  # its head waits for a due time, which offers the line again
                rows += found
                room -= len(found)
            cursor = held.cursor
            mine = {hash_ for _, hash_ in taken}
            if cursor < queue.first:
                plan.skipped.append((cursor, queue.first))
                cursor = queue.first
            if room > 0 and not self._failures_full(held):
                cursor = self._scan_ordered(queue, held, cursor, visible, room, rows, parked, mine)
            plan.cursor = max(plan.cursor, cursor)
            self._locate_rows(held, rows, max_bytes, plan)
        finally:
            for head, hash_ in taken:
                lines.put_free(head, hash_)  # stale, and dropped, once its rows are leased
        plan.park(parked)

    def _available(
        self, now_us: int, held: GroupQueue, line: Line, hash_: int, limit: int
    ) -> list[tuple[int, int, int, int]]:
        found: list[tuple[int, int, int, int]] = []
        for offset in line.offsets[:limit]:
            failure = held.failure(offset)
            if failure is not None:
                if failure.when_us > now_us:
                    break
                _, _, attempt, deliveries = _again(failure)
            else:
                ready = held.ready.find(offset)
                if ready is None:
                    break
                attempt, deliveries = ready[2], ready[3] + 1
            found.append((offset, attempt, deliveries, hash_))
        return found

    def _scan_ordered(
        self,
        queue: Queue,
        held: GroupQueue,
        cursor: int,
        visible: int,
        room: int,
        rows: list[tuple[int, int, int, int]],
        parked: list[tuple[int, int]],
        mine: set[int],
    ) -> int:
        """Walk new rows: lease those of idle keys (and of keys leased here), park the others."""
        context = self._context
        lines = held.lines
        assert lines is not None
        ahead = held.ahead
        may_park = context.limits.parked - held.ready.rows
        known = lines.by_hash
        stopped = {hash_ for hash_ in mine if len(known[hash_].offsets) > ROWS_PER_KEY}
        while room > 0 and cursor < visible:
            cursor = ahead.covering_end(cursor)
            stop = ahead.next_start(cursor, visible)
            if cursor >= stop:
                break
            places = context.index.locate(
                queue.topic.number, queue.number, cursor, stop, context.limits.pull_bytes
            )
            if places.stop <= cursor:
                break
            stop = min(stop, places.stop)
            for at, first in enumerate(places.first_offsets):
                stored = messages.of_record(
                    context.store.get(places.positions[at], places.lengths[at])
                )
                hashes = Batch(stored.batch).ordering_hashes()
                for offset in range(max(cursor, first), min(stop, first + stored.count)):
                    hash_ = hashes[stored.row_of(offset)] if stored.runs else hashes[offset - first]
                    if hash_ in known and (hash_ not in mine or hash_ in stopped):
                        if len(parked) >= may_park:
                            return offset
                        parked.append((offset, hash_))
                    elif hash_ in mine and self._line_has_more(known, hash_, rows):
                        if len(parked) >= may_park:
                            return offset
                        parked.append((offset, hash_))
                    else:
                        if room <= 0:
                            return offset
                        mine.add(hash_)
                        rows.append((offset, 1, 1, hash_))
                        room -= 1
            cursor = stop
        return cursor

    @staticmethod
    def _line_has_more(
        known: dict[int, Line], hash_: int, rows: Sequence[tuple[int, int, int, int]]
    ) -> bool:
        """Return whether rows of the line stay behind in this pull, so that later ones must wait."""
        line = known.get(hash_)
        if line is None:
            return False
        taken = sum([1 for row in rows if row[3] == hash_])
        return taken < len(line.offsets)

    def _locate_rows(
        self, held: GroupQueue, rows: list[tuple[int, int, int, int]], max_bytes: int, plan: _Plan
    ) -> None:
        rows.sort()
        hashes = dict.fromkeys([row[0] for row in rows], 0)
        for offset, _, _, hash_ in rows:
            hashes[offset] = hash_
        for start, stop, attempt, deliveries in merge(
            [(offset, offset + 1, attempt, count) for offset, attempt, count, _ in rows]
        ):
            at = start
            while at < stop:
                places = self._places(held, at, stop, max_bytes)
                end = min(stop, places.stop)
                plan.runs.append((at, end, attempt, deliveries))
                plan.places.append(places)
                plan.hashes += [hashes[offset] for offset in range(at, end)]
                at = end

    # -- settle -----------------------------------------------------------------------------------

    def settle(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        queue: Queue,
        held: GroupQueue,
        lease_epoch: int,
        lease_number: int,
        outcome: Outcome,
        spans: Sequence[Span] | None = None,
        *,
        delay: int | None = None,
        reason: str = "",
    ) -> SettleReply:
        """Record what a consumer says of rows it holds; ``spans`` None means the whole lease.

        Args:
            outcome: DONE, RETRY (by policy: it may become DEAD or HELD), DEAD (rejected), RELEASED.
            delay: of RETRY, microseconds, instead of the policy's.
            reason: of RETRY and DEAD; what does not fit 4 KiB is cut.

        Raises:
            LeaseExpired: none of the rows is held under the lease.
        """
        context = self._context
        journal = context.journal
        lease = held.leases.get(lease_epoch << LEASE_BITS | lease_number)
        if lease is None:
            taken, refused = self._of_lost_lease(queue, held, lease_epoch, spans)
        elif spans is None:
            taken, refused = lease.runs, []
        else:
            taken, refused = _held_of(lease, spans)
        if not taken:
            raise LeaseExpired(
                f"lease {lease_epoch}.{lease_number} of {subscription.name} is over"
            )
        if outcome is Outcome.DONE and len(taken) == 1:
            start, stop, attempt, deliveries = taken[0]
            fact = Settled(
                held.group, held.topic, held.queue, session, lease_number, lease_epoch, held.round,
                Outcome.DONE, Cause.CONSUMER, 0, taken,
            )  # fmt: skip
            position = journal.append(
                Kind.SETTLED,
                ONE_SETTLED.pack(
                    1, 0, held.group, held.topic, held.queue, session, lease_number, lease_epoch,
                    held.round, 0, 1, 0, 0, 0, start, stop - start, attempt, deliveries,
                ),
                now_us,
            )  # fmt: skip
            held.apply_settled(position, fact)
        else:
            settled = self._settled(
                now_us, session, subscription, held, lease_epoch, lease_number, outcome, taken,
                delay, _cut(reason),
            )  # fmt: skip
            self._record(now_us, Kind.SETTLED, held, settled)
            if held.lines is not None and lease is not None and outcome is not Outcome.DONE:
                self._end_later(now_us, held, lease, settled)
        if held.lines is not None or outcome is not Outcome.DONE:
            context.woken(held)
        return SettleReply(taken, refused, journal.end)

    def _settled(
        self,
        now_us: int,
        session: int,
        subscription: Subscription,
        held: GroupQueue,
        lease_epoch: int,
        lease_number: int,
        outcome: Outcome,
        taken: Sequence[LeasedRun],
        delay: int | None,
        reason: bytes,
        cause: Cause = Cause.CONSUMER,
    ) -> list[Settled]:
        settled: list[Settled] = []
        if outcome is Outcome.DONE or outcome is Outcome.RELEASED:
            groups: list[tuple[Outcome, Cause, int, list[LeasedRun]]] = [
                (outcome, cause, 0, list(taken))
            ]
        else:
            if outcome is Outcome.DEAD:
                cause = Cause.REJECTED
            groups = []
            for run in taken:
                what, why, due_us = self._policy(
                    now_us, subscription.spec.retry, outcome, cause, run[2], delay,
                    ordered=subscription.ordered,
                )  # fmt: skip
                groups.append((what, why, due_us, [run]))
        for what, why, due_us, runs in groups:
            previous: list[int] = []
            if facts.failing(what):
                runs, previous = _with_history(held, runs)
            settled.append(
                Settled(
                    held.group, held.topic, held.queue, session, lease_number, lease_epoch,
                    held.round, what, why, due_us, runs, previous, reason,
                )  # fmt: skip
            )
        return settled

    def _policy(
        self,
        now_us: int,
        policy: RetryPolicy,
        outcome: Outcome,
        cause: Cause,
        attempt: int,
        delay: int | None,
        *,
        ordered: bool,
    ) -> tuple[Outcome, Cause, int]:
        """Return what a failure at this attempt becomes: (outcome, cause, due or dead time)."""
        if outcome is Outcome.DEAD:
            return Outcome.DEAD, cause, now_us
        if not policy.enabled or attempt >= policy.attempts:
            last = cause if cause in (Cause.TIME, Cause.SESSION) else Cause.EXHAUSTED
            if ordered and policy.exhausted is Exhausted.HOLD:
                return Outcome.HELD, last, now_us
            return Outcome.DEAD, last, now_us
        if delay is None:
            delay = delay_us(policy, attempt, self._context.random)
        return Outcome.RETRY, cause, now_us + delay

    def _record(
        self, now_us: int, kind: Kind, held: GroupQueue, settled: Sequence[Settled]
    ) -> int:
        context = self._context
        position = context.journal.append(kind, facts.pack_settled(settled), now_us)
        for fact in settled:
            held.apply_settled(position, fact)
            if fact.outcome is Outcome.RETRY and fact.due_us < held.due_armed_us:
                context.arm_due(held, fact.due_us)
        return position

    def _end_later(
        self, now_us: int, held: GroupQueue, lease: Lease, settled: Sequence[Settled]
    ) -> None:
        """Give back, uncounted, what the same lease holds of the failed rows' keys behind them."""
        lines = held.lines
        assert lines is not None
        first: dict[int, int] = {}
        for fact in settled:
            if fact.outcome is Outcome.DEAD:
                continue  # the key flows on
            for start, stop, _, _ in fact.runs:
                for offset in range(start, stop):
                    hash_ = lines.hash_of[offset]
                    first[hash_] = min(first.get(hash_, offset), offset)
        later: list[LeasedRun] = []
        for start, stop, attempt, deliveries in lease.runs:
            for offset in range(start, stop):
                if first.get(lines.hash_of[offset], offset) < offset:
                    later.append((offset, offset + 1, attempt, deliveries))
        if later:
            self._record(
                now_us, Kind.ENDED, held, [_released(held, lease, merge(later), Cause.KEY)]
            )

    def _of_lost_lease(
        self, queue: Queue, held: GroupQueue, lease_epoch: int, spans: Sequence[Span] | None
    ) -> tuple[list[LeasedRun], list[Span]]:
        """Judge a settle whose lease is not known: its hand-out may have been lost with a power cut.

        It counts only for rows that this journal has never handed out: at or above the cursor.
        """
        taken: list[LeasedRun] = []
        refused: list[Span] = []
        for start, stop in spans or ():
            if (
                lease_epoch < self._context.journal.epoch
                and held.lines is None
                and held.cursor <= start < stop <= queue.next
                and not held.ahead.overlaps(start, stop)
            ):
                taken.append((start, stop, 1, 1))
            else:
                refused.append((start, stop))
        return taken, refused

    def operate(
        self,
        now_us: int,
        held: GroupQueue,
        offsets: Sequence[int],
        outcome: Outcome,
        cause: Cause = Cause.OPERATOR,
    ) -> SettleReply:
        """Let waiting or held rows come now (RETRY), or give up waiting and dead ones (DONE).

        Raises:
            LeaseExpired: no such row is there.
        """
        settled: list[Settled] = []
        taken: list[LeasedRun] = []
        refused: list[Span] = []
        for offset in sorted(set(offsets)):
            row = held.failure(offset)
            if row is None and outcome is Outcome.DONE:
                row = held.dead_letter(offset)
            if row is None:
                refused.append((offset, offset + 1))
                continue
            run = (offset, offset + 1, row.attempt, row.deliveries)
            taken.append(run)
            settled.append(
                Settled(
                    held.group, held.topic, held.queue, 0, 0, 0, held.round, outcome, cause, now_us,
                    [run], [row.position] if outcome is Outcome.RETRY else [],
                )  # fmt: skip
            )
        if not settled:
            raise LeaseExpired("none of these rows waits for a retry")
        self._record(now_us, Kind.SETTLED, held, settled)
        self._context.woken(held)
        return SettleReply(taken, refused, self._context.journal.end)

    # -- leases -----------------------------------------------------------------------------------

    def extend(
        self, now_us: int, session: int, held: GroupQueue, epoch: int, number: int, until_us: int
    ) -> int:
        """Let a lease last until ``until_us`` (never less than it does); return the record's end.

        Raises:
            LeaseExpired: it is over.
        """
        lease = held.leases.get(epoch << LEASE_BITS | number)
        if lease is None:
            raise LeaseExpired(f"lease {epoch}.{number} is over")
        until_us = max(until_us, lease.until_us)
        journal = self._context.journal
        fact = Extended(held.group, held.topic, held.queue, session, number, epoch, until_us)
        position = journal.append(Kind.EXTENDED, facts.pack_extended((fact,)), now_us)
        held.apply_extended(position, fact)
        return journal.end

    def end_leases(
        self,
        now_us: int,
        subscription: Subscription,
        held: GroupQueue,
        cause: Cause,
        session: int | None = None,
        budget: int = ENDED_ROWS_A_TURN,
    ) -> Ended:
        """End the leases whose time is over, or all of a session, as far as the budget of rows goes.

        By TIME and SESSION the attempt counts, and the rows come again at once (or are dead after
        the last); of a key's rows only the first counts. By DRAIN nothing counts.
        """
        rows = 0
        settled: list[Settled] = []
        more = False
        for lease in list(held.leases.values()):
            if session is not None:
                if lease.session != session:
                    continue
            elif lease.until_us > now_us:
                continue
            if rows >= budget:
                more = True
                break
            runs = _first_rows(lease.runs, budget - rows)
            taken = sum([run[1] - run[0] for run in runs])
            more = more or taken < sum([run[1] - run[0] for run in lease.runs])
            rows += taken
            counted, free = runs, []
            if cause is Cause.DRAIN:
                counted, free = [], runs
            elif held.lines is not None:
                counted, free = _heads(held, lease, runs)
            if counted:
                settled += self._settled(
                    now_us, lease.session, subscription, held, lease.id >> LEASE_BITS,
                    lease.id & LEASE_LIMIT - 1, Outcome.RETRY, counted, 0, b"", cause,
                )  # fmt: skip
            if free:
                settled.append(
                    _released(held, lease, free, cause if cause is Cause.DRAIN else Cause.KEY)
                )
        if settled:
            self._record(now_us, Kind.ENDED, held, settled)
            self._context.woken(held)
        return Ended(rows, more)


class _Plan:
    """What a pull will hand out; nothing is changed while it is made."""

    __slots__ = ("cursor", "hashes", "parked", "places", "runs", "skipped")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.runs: list[LeasedRun] = []
        self.places: list[Places] = []
        self.skipped: list[Span] = []
        self.parked: list[Span] = []
        self.hashes: list[int] = []

    def lease_row(self, offset: int, attempt: int, deliveries: int) -> None:
        """Add one row behind the others."""
        if self.runs:
            start, stop, *rest = self.runs[-1]
            if stop == offset and rest == [attempt, deliveries]:
                self.runs[-1] = (start, offset + 1, attempt, deliveries)
                return
        self.runs.append((offset, offset + 1, attempt, deliveries))

    def skip_between(self, start: int, stop: int) -> None:
        """Name what lies between the fresh runs in ``[start, stop)`` as skipped."""
        at = start
        for low, high, _, _ in sorted(self.runs):
            if low < start:
                continue
            if at < low:
                self.skipped.append((at, low))
            at = high
        if at < stop:
            self.skipped.append((at, stop))

    def park(self, rows: Sequence[tuple[int, int]]) -> None:
        """Name rows that wait behind their keys."""
        for offset, hash_ in rows:
            if self.parked and self.parked[-1][1] == offset:
                self.parked[-1] = (self.parked[-1][0], offset + 1)
            else:
                self.parked.append((offset, offset + 1))
            self.hashes.append(hash_)


def _again(row: Failure) -> LeasedRun:
    return row.offset, row.offset + 1, row.attempt + 1, row.deliveries + 1


def _one_place(places: Places, at: int, stop: int) -> Places:
    return Places(
        places.first_offsets[at : at + 1],
        places.positions[at : at + 1],
        places.lengths[at : at + 1],
        stop,
        None if places.masks is None else places.masks[at : at + 1],
    )


def _held_of(lease: Lease, spans: Sequence[Span]) -> tuple[list[LeasedRun], list[Span]]:
    """Return (runs of the lease that the spans name, spans that are not wholly in the lease)."""
    left = list(lease.runs)
    taken: list[LeasedRun] = []
    refused: list[Span] = []
    for start, stop in spans:
        left, inside = split(left, start, stop)
        taken += inside
        if sum([run[1] - run[0] for run in inside]) != stop - start:
            at = start
            for low, high, _, _ in sorted(inside):
                if at < low:
                    refused.append((at, low))
                at = high
            if at < stop:
                refused.append((at, stop))
    return taken, refused


def _with_history(
    held: GroupQueue, runs: Sequence[LeasedRun]
) -> tuple[list[LeasedRun], list[int]]:
    """Return the runs cut so that each has one failure before, and where that is told (0: none)."""
    if not held.history:
        return list(runs), [0] * len(runs)
    cut: list[LeasedRun] = []
    previous: list[int] = []
    for start, stop, attempt, deliveries in runs:
        for offset in range(start, stop):
            before = held.history.get(offset, 0)
            if cut and cut[-1][1:] == (offset, attempt, deliveries) and previous[-1] == before:
                cut[-1] = (cut[-1][0], offset + 1, attempt, deliveries)
            else:
                cut.append((offset, offset + 1, attempt, deliveries))
                previous.append(before)
    return cut, previous


def _heads(
    held: GroupQueue, lease: Lease, runs: Sequence[LeasedRun]
) -> tuple[list[LeasedRun], list[LeasedRun]]:
    """Return (each key's first row of the lease, its other rows)."""
    lines = held.lines
    assert lines is not None
    first: dict[int, int] = {}
    for start, stop, _, _ in lease.runs:
        for offset in range(start, stop):
            hash_ = lines.hash_of[offset]
            first[hash_] = min(first.get(hash_, offset), offset)
    heads: list[LeasedRun] = []
    others: list[LeasedRun] = []
    for start, stop, attempt, deliveries in runs:
        for offset in range(start, stop):
            row = (offset, offset + 1, attempt, deliveries)
            (heads if first[lines.hash_of[offset]] == offset else others).append(row)
    return merge(heads), merge(others)


def _released(
    held: GroupQueue, lease: Lease, runs: Sequence[LeasedRun], cause: Cause
) -> Settled:
    return Settled(
        held.group,
        held.topic,
        held.queue,
        lease.session,
        lease.id & LEASE_LIMIT - 1,
        lease.id >> LEASE_BITS,
        held.round,
        Outcome.RELEASED,
        cause,
        0,
        runs,
    )


def _first_rows(runs: Sequence[LeasedRun], limit: int) -> list[LeasedRun]:
    found: list[LeasedRun] = []
    for start, stop, attempt, deliveries in sorted(runs):
        if limit <= 0:
            break
        stop = min(stop, start + limit)
        found.append((start, stop, attempt, deliveries))
        limit -= stop - start
    return found


def _cut(reason: str) -> bytes:
    data = reason.encode("utf-8", "replace")
    if len(data) <= MAX_REASON_BYTES:
        return data
    return data[:MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
