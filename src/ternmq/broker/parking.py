"""Who waits for rows: parked pulls, which found nothing, and readers that follow a queue.

What may bring rows *wakes* a subscription: a send that became durable, rows that came due or were
given back, a scan that is not at its end. Its oldest parked pull is then tried again, and the next
one as long as rows are found. Nothing is answered at once: the shell asks at the end of a turn.
All of this is volatile; a client whose broker restarted pulls again.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import NamedTuple

from ternmq.broker.catalog import Catalog, Queue, Subscription, Topic, Waiter
from ternmq.broker.delivery import Delivery
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.replies import PullReply
from ternmq.broker.timers import FULL_RETRY_US, TimerStore
from ternmq.journal.cold import WouldBlock
from ternmq.journal.journal import Journal
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskReadError,
    JournalError,
    JournalFull,
)
from ternmq.model.specs import Limits


class Woken(NamedTuple):
    """A parked pull that is over."""

    token: int
    reply: PullReply | None
    """None: its time is up, its session or group went, or its rows are not to be read."""


class Parking:
    """All parked pulls. Loop only."""

    __slots__ = (
        "_awake",
        "_catalog",
        "_deadlines",
        "_delivery",
        "_journal",
        "_limits",
        "_next_token",
        "_over",
        "_timers",
        "_unseen",
        "grown",
        "unreadable",
        "waiters",
    )

    def __init__(
        self,
        journal: Journal,
        catalog: Catalog,
        limits: Limits,
        timers: TimerStore,
        delivery: Delivery,
    ) -> None:
        self._journal = journal
        self._catalog = catalog
        self._limits = limits
        self._timers = timers
        self._delivery = delivery
        self.waiters: dict[int, Waiter] = {}
        """By token."""
        self._next_token = 1
        self._deadlines: list[tuple[int, int]] = []  # (time, token), a heap; over ones are stale
        self._unseen: list[tuple[int, int, int, Queue]] = []
        """Watched queues whose newest rows are not durable yet: a heap by where these end."""
        self._awake: dict[Subscription, None] = {}
        self._over: deque[Woken] = deque()
        self.unreadable: dict[int, JournalError] = {}
        """Why parked pulls ended whose rows cannot be read, by token: for who answers them."""
        self.grown: list[Queue] = []
        """Followed queues that have new rows, or are gone: whoever follows takes them out."""

    # -- coming and going -------------------------------------------------------------------------

    def park(
        self,
        session: int,
        subscription: Subscription,
        max_messages: int,
        max_bytes: int,
        deadline_us: int,
    ) -> int:
        """Let a pull that found nothing wait; return its token.

        Raises:
            Busy: too many parked pulls.
        """
        if len(self.waiters) >= self._limits.waiters:
            raise Busy(f"there are {self._limits.waiters} waiting pulls")
        token = self._next_token
        self._next_token += 1
        waiter = Waiter(token, session, subscription, max_messages, max_bytes, deadline_us)
        self.waiters[token] = waiter
        heappush(self._deadlines, (deadline_us, token))
        subscription.waiters.append(waiter)
        if subscription.filter is not None:
            self._awake[subscription] = None  # what it has not scanned yet may match
        durable = self._journal.durable
        for queue in subscription.topic.queues:
            queue.watched = True
            if queue.end > durable:
                self.grew(queue)
        return token

    def cancel(self, token: int) -> None:
        """Give up a parked pull; no answer comes."""
        waiter = self.waiters.get(token)
        if waiter is not None:
            self._forget(waiter)

    def cancel_all(self, session: int) -> None:
        """Give up the parked pulls of a session; no answers come."""
        for waiter in [one for one in self.waiters.values() if one.session == session]:
            self._forget(waiter)

    def dismiss(self, subscription: Subscription) -> None:
        """Answer the parked pulls of a subscription that goes: there was nothing for them."""
        while subscription.waiters:
            self._finish(subscription.waiters.pop(0), None)

    def _forget(self, waiter: Waiter) -> None:
        self.waiters.pop(waiter.token, None)
        waiter.subscription.waiters.remove(waiter)

    def _finish(self, waiter: Waiter, reply: PullReply | None) -> None:
        self.waiters.pop(waiter.token, None)
        self._over.append(Woken(waiter.token, reply))

    # -- waking -----------------------------------------------------------------------------------

    def wake(self, subscription: Subscription) -> None:
        """Rows may be available to it: its parked pulls are to be looked at."""
        if subscription.waiters:
            self._awake[subscription] = None

    def wake_for(self, held: GroupQueue) -> None:
        """Rows of a group queue may be available."""
        subscription = self._catalog.consumer_of(held)
        if subscription is not None:
            self.wake(subscription)

    def grew(self, queue: Queue) -> None:
        """A watched queue has rows that are not durable yet: ``committed`` wakes for them."""
        heappush(self._unseen, (queue.end, queue.topic.number, queue.number, queue))

    def follow(self, queue: Queue) -> None:
        """Have a queue listed in ``grown`` when its next rows are durable; once."""
        queue.followed = queue.watched = True
        if queue.end > self._journal.durable:
            self.grew(queue)

    def gone(self, topic: Topic) -> None:
        """A topic goes: those who follow its queues have nothing to wait for."""
        self.grown += [queue for queue in topic.queues if queue.followed]

    def committed(self) -> None:
        """The durable mark moved: rows below it may wake parked pulls."""
        durable = self._journal.durable
        unseen = self._unseen
        while unseen and unseen[0][0] <= durable:
            queue = heappop(unseen)[3]
            if queue.followed:
                queue.followed = False
                self.grown.append(queue)
            watched = False
            for subscription in queue.topic.subscriptions.values():
                if subscription.waiters:
                    watched = True
                    self._awake[subscription] = None
            queue.watched = watched

    # -- answering --------------------------------------------------------------------------------

    def next_us(self) -> int | None:
        """Return when ``over`` has something to do, or None; 0 means now."""
        if self._awake:
            return 0
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self.waiters:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def over(self, now_us: int) -> list[Woken]:
        """Return the parked pulls that are over, oldest first of each group.

        Raises:
            WouldBlock: none is, and a group has to wait for a read: run the job and call again. No
                group waits for another's read, and none loses its turn.
        """
        waiting: WouldBlock | None = None
        for subscription in list(self._awake):
            del self._awake[subscription]  # a scan that is not at its end wakes it again
            try:
                self._serve(now_us, subscription)
            except WouldBlock as blocked:
                self._awake[subscription] = None
                waiting = waiting or blocked
            except (DiskReadError, CorruptJournal) as error:
                self.unreadable.update({one.token: error for one in subscription.waiters})
                self.dismiss(subscription)
            except JournalFull:
                # No segment is ready: nothing was recorded. No other event would wake it.
                for held in subscription.queues:
                    if now_us + FULL_RETRY_US < held.due_armed_us:
                        self._timers.arm_due(held, now_us + FULL_RETRY_US)
        while self._deadlines and self._deadlines[0][0] <= now_us:
            waiter = self.waiters.get(heappop(self._deadlines)[1])
            if waiter is not None:
                waiter.subscription.waiters.remove(waiter)
                self._finish(waiter, None)
        if waiting is not None and not self._over:
            raise waiting
        over = list(self._over)
        self._over.clear()
        return over

    def _serve(self, now_us: int, subscription: Subscription) -> None:
        while subscription.waiters and not subscription.spec.paused:
            waiter = subscription.waiters[0]
            reply = self._delivery.pull_any(
                now_us, waiter.session, subscription, waiter.max_messages, waiter.max_bytes
            )
            if reply is None:
                return
            subscription.waiters.pop(0)
            self._finish(waiter, reply)
