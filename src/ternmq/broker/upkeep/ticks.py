"""Does what is due: leases end, rows come due, sessions end, old data is removed.

A tick does a bounded piece. What a kind of timer does is in the table of `clock.timers`; here are
the tick, and the handlers for leases, waiting rows and housekeeping. All use the same decisions as
the commands (`leases`, `clients`, `settles`), so that everything that ends by time ends by a
record.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ternmq.broker.clock.timers import FULL_RETRY_US, Timer
from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN, Leases
from ternmq.broker.delivery.settles import Settling
from ternmq.broker.group.progress import Progress
from ternmq.broker.intake.commits import Transactions
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation.broadcasting import Broadcasting
from ternmq.broker.operation.clients import Clients
from ternmq.broker.upkeep.alarming import Alarming
from ternmq.model.errors import JournalFull
from ternmq.model.types import SECOND_US
from ternmq.record.fact.facts import Cause, Outcome

_NEVER: Final = 1 << 63
_SWEPT_A_TURN: Final = 1024
_SWEPT_PAGES: Final = 32
FREED_A_TURN: Final = 1024
"""Unused objects that one turn frees; some contain a few others."""
_DUE_AGAIN_US: Final = SECOND_US
_HOUSEKEEPING_US: Final = SECOND_US
FIRED_WORK: Final = 3
"""Work that a timer counts for besides its own: rows of thousands of groups may come due at one
time."""
EXPIRY_LOOKS: Final = 500
"""Group queues with dead letters that are searched for expired ones in a second: below 1 ms. Dead
letters are kept for days, so it does not matter how long a round over all group queues takes."""


class Ticking:
    """Does what is due: ends leases and sessions, wakes groups for retries, removes old data.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = (
        "_alarming",
        "_broadcasting",
        "_clients",
        "_leases",
        "_settling",
        "_timers",
        "_transactions",
        "_views",
        "_wakes",
        "work_a_turn",
    )

    def __init__(
        self,
        ledger: Ledger,
        settling: Settling,
        leases: Leases,
        clients: Clients,
        transactions: Transactions,
        alarming: Alarming,
        broadcasting: Broadcasting,
    ) -> None:
        self._views = ledger.views
        self._timers = ledger.timers
        self._wakes = ledger.wakes
        self._settling = settling
        self._leases = leases
        self._clients = clients
        self._transactions = transactions
        self._alarming = alarming
        self._broadcasting = broadcasting
        self.work_a_turn = ENDED_ROWS_A_TURN
        """Work after which a tick stops; a small number makes many pieces."""

    def start(self, now_us: int) -> None:
        """Derive the timers from the views; every session gets a new grace period."""
        self._clients.after_start(now_us)
        self._leases.after_start(now_us)
        for key in sorted(self._views.progress):
            progress = self._views.progress[key]
            if progress.leases:
                self._timers.arm_leases(progress, self._leases.next_end_us(now_us, progress))
            self._timers.arm_again(progress)
        self._timers.set(now_us + _HOUSEKEEPING_US, Timer.HOUSEKEEPING)

    def tick(self, now_us: int) -> bool:
        """Do a bounded piece of what is due; return whether more is due now."""
        work, table = 0, self._timers.table
        while work < self.work_a_turn:
            fired = self._timers.pop(now_us)
            if fired is None:
                return False
            when_us, kind, owner = fired
            try:
                budget = self.work_a_turn - work
                work += FIRED_WORK + table[kind].fire(now_us, when_us, owner, budget)
            except JournalFull:
                # No segment is ready: nothing was recorded, and what is due stays due.
                table[kind].again(owner, now_us + FULL_RETRY_US)
                return False
        return True

    # -- handlers ---------------------------------------------------------------------------------

    def end_leases(self, now_us: int, when_us: int, progress: Progress, budget: int) -> int:
        """End those leases of a group queue whose time is over (timer LEASES)."""
        if when_us != progress.lease_armed_us:
            return 0  # armed again for an earlier time
        progress.lease_armed_us = _NEVER
        subscription = self._views.catalog.consumer_of(progress)
        if subscription is None:
            return 0
        ended = self._leases.end_overdue(now_us, subscription, progress, budget)
        if progress.leases:
            self._timers.arm_leases(
                progress, now_us if ended.more else self._leases.next_end_us(now_us, progress)
            )
        return ended.work + 1

    def look_for_due(self, now_us: int, when_us: int, progress: Progress, budget: int) -> int:
        """Wake the waiting pulls of a group whose retries have come due (timer DUE)."""
        del budget
        if when_us != progress.due_armed_us:
            return 0
        progress.due_armed_us = _NEVER
        self._wakes.wake_for(progress)
        looked = progress.look_for_due(now_us)
        later = progress.failures.next_timer_us()
        if later is not None:
            if later <= now_us and progress.failures.due_rows:
                later = now_us + _DUE_AGAIN_US  # many are known; pulls find the others
            self._timers.arm_due(progress, later)
        return looked // 16  # finding a row is about that much cheaper than ending its lease

    def free(self, now_us: int, when_us: int, owner: None, budget: int) -> int:
        """Free some unused memory (timer FREE)."""
        del when_us, owner, budget
        if self._views.discarded.free(FREED_A_TURN):
            self._timers.set(now_us, Timer.FREE)
        return FREED_A_TURN >> 2  # freeing an object is that much cheaper than ending a lease

    def keep_house(self, now_us: int, when_us: int, owner: None, budget: int) -> int:
        """Delete expired entries and rows, raise and clear alarms (timer HOUSEKEEPING)."""
        del when_us, owner, budget
        self._views.dedup.sweep(now_us, _SWEPT_A_TURN)
        self._views.schedule.pages.sweep(_SWEPT_PAGES)
        if self._views.discarded:
            self._timers.set(now_us, Timer.FREE)
        rows = self._expire_dead(now_us)
        rows += self._transactions.expire(now_us, ENDED_ROWS_A_TURN)
        rows += self._alarming.step(now_us)
        rows += self._broadcasting.step(now_us)
        self._timers.set(now_us + _HOUSEKEEPING_US, Timer.HOUSEKEEPING)
        return rows

    def _expire_dead(self, now_us: int) -> int:
        """Delete dead letters that have expired, in some group queues at a time."""
        rows = 0
        before = now_us - self._views.limits.dead_letter_us
        with_dead = self._views.figures.with_dead
        for progress in list(islice(with_dead, EXPIRY_LOOKS)):
            if rows >= ENDED_ROWS_A_TURN:
                break
            with_dead[progress] = with_dead.pop(
                progress
            )  # moved behind the others, for the next round
            old = progress.failures.dead_before(before, ENDED_ROWS_A_TURN - rows)
            if old:
                self._settling.operate(
                    now_us, progress, [row.offset for row in old], Outcome.DONE, Cause.EXPIRED
                )
                rows += len(old)
        return rows
