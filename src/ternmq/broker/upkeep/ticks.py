"""Does what is due: leases end, rows come due, sessions end, old data is removed.

A tick does a bounded piece. It uses the same decisions as the commands (`leases`, `clients`,
`delivery.settles`), so that everything that ends by time ends by a record.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ternmq.broker.catalog.sessions import Session
from ternmq.broker.clock.timers import FULL_RETRY_US, Timer
from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN, Leases
from ternmq.broker.delivery.pulls import Delivery
from ternmq.broker.delivery.settles import Settling
from ternmq.broker.group.progress import GroupQueue
from ternmq.broker.intake.commits import Transactions
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation.clients import Clients
from ternmq.broker.operation.drains import Drain, Drains
from ternmq.model.errors import JournalFull
from ternmq.model.types import SECOND_US
from ternmq.record.fact.facts import Cause, Outcome

_NEVER: Final = 1 << 63
_SWEPT_A_TURN: Final = 1024
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
        "_clients",
        "_delivery",
        "_drains",
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
        delivery: Delivery,
        settling: Settling,
        leases: Leases,
        clients: Clients,
        drains: Drains,
        transactions: Transactions,
    ) -> None:
        self._views = ledger.views
        self._timers = ledger.timers
        self._wakes = ledger.wakes
        self._delivery = delivery
        self._settling = settling
        self._leases = leases
        self._clients = clients
        self._drains = drains
        self._transactions = transactions
        self.work_a_turn = ENDED_ROWS_A_TURN
        """Work after which a tick stops; a small number makes many pieces."""

    def start(self, now_us: int) -> None:
        """Derive the timers from the views; every session gets a new grace period."""
        self._clients.after_start(now_us)
        self._leases.after_start(now_us)
        for key in sorted(self._views.held):
            held = self._views.held[key]
            if held.leases:
                self._timers.arm_leases(held, self._leases.next_end_us(now_us, held))
            self._timers.arm_again(held)
        self._timers.set(now_us + _HOUSEKEEPING_US, Timer.HOUSEKEEPING)

    def tick(self, now_us: int) -> bool:
        """Do a bounded piece of what is due; return whether more is due now."""
        work = 0
        while work < self.work_a_turn:
            fired = self._timers.pop(now_us)
            if fired is None:
                return False
            when_us, kind, owner = fired
            try:
                budget = self.work_a_turn - work
                work += FIRED_WORK + self._fire(now_us, when_us, kind, owner, budget)
            except JournalFull:
                # No segment is ready: nothing was recorded, and what is due stays due.
                if kind is Timer.LEASES:
                    assert isinstance(owner, GroupQueue)
                    self._timers.arm_leases(owner, now_us + FULL_RETRY_US)
                else:
                    self._timers.set(now_us + FULL_RETRY_US, kind, owner)
                return False
        return True

    def _fire(
        self,
        now_us: int,
        when_us: int,
        kind: Timer,
        owner: GroupQueue | Session | Drain | None,
        budget: int,
    ) -> int:
        """Do what one timer is for, within a budget of work; return how much work it was."""
        if kind is Timer.LEASES:
            assert isinstance(owner, GroupQueue)
            return self._end_leases(now_us, when_us, owner, budget)
        if kind is Timer.SESSION:
            assert isinstance(owner, Session)
            return self._clients.grace_over(now_us, owner, budget)
        if kind is Timer.DRAIN:
            assert isinstance(owner, Drain)
            return self._drains.step(now_us, owner, budget)
        if kind is Timer.FREE:
            return self._free(now_us)
        if kind is Timer.DUE:
            assert isinstance(owner, GroupQueue)
            return self._look_for_due(now_us, when_us, owner)
        if kind is Timer.PASSED:
            assert isinstance(owner, GroupQueue)
            if self._views.catalog.consumer_of(owner) is not None:
                self._delivery.record_passed(now_us, owner)
            return 1
        return self._keep_house(now_us)

    def _end_leases(self, now_us: int, when_us: int, held: GroupQueue, budget: int) -> int:
        if when_us != held.lease_armed_us:
            return 0  # armed again for an earlier time
        held.lease_armed_us = _NEVER
        subscription = self._views.catalog.consumer_of(held)
        if subscription is None:
            return 0
        ended = self._leases.end_overdue(now_us, subscription, held, budget)
        if held.leases:
            self._timers.arm_leases(
                held, now_us if ended.more else self._leases.next_end_us(now_us, held)
            )
        return ended.work + 1

    def _look_for_due(self, now_us: int, when_us: int, held: GroupQueue) -> int:
        if when_us != held.due_armed_us:
            return 0
        held.due_armed_us = _NEVER
        self._wakes.wake_for(held)
        looked = held.look_for_due(now_us)
        later = held.failures.next_timer_us()
        if later is not None:
            if later <= now_us and held.lines is None:
                later = now_us + _DUE_AGAIN_US  # many are known; pulls find the others
            self._timers.arm_due(held, later)
        return looked // 16  # finding a row is about that much cheaper than ending its lease

    def _free(self, now_us: int) -> int:
        if self._views.discarded.free(FREED_A_TURN):
            self._timers.set(now_us, Timer.FREE)
        return FREED_A_TURN >> 2  # freeing an object is that much cheaper than ending a lease

    def _keep_house(self, now_us: int) -> int:
        self._views.dedup.sweep(now_us, _SWEPT_A_TURN)
        if self._views.discarded:
            self._timers.set(now_us, Timer.FREE)
        rows = self._expire_dead(now_us)
        rows += self._transactions.expire(now_us, ENDED_ROWS_A_TURN)
        self._timers.set(now_us + _HOUSEKEEPING_US, Timer.HOUSEKEEPING)
        return rows

    def _expire_dead(self, now_us: int) -> int:
        """Delete dead letters that have expired, in some group queues at a time."""
        rows = 0
        before = now_us - self._views.limits.dead_letter_us
        with_dead = self._views.figures.with_dead
        for held in list(islice(with_dead, EXPIRY_LOOKS)):
            if rows >= ENDED_ROWS_A_TURN:
                break
            with_dead[held] = with_dead.pop(held)  # moved behind the others, for the next round
            old = held.failures.dead_before(before, ENDED_ROWS_A_TURN - rows)
            if old:
                self._settling.operate(
                    now_us, held, [row.offset for row in old], Outcome.DONE, Cause.EXPIRED
                )
                rows += len(old)
        return rows
