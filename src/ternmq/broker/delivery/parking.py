"""Parked pulls, which found no rows and wait for some, and readers that follow a queue.

An event that may bring rows *wakes* a subscription: a send became durable, rows came due or were
given back, or a scan is not at its end. Its oldest parked pull is then tried again, then the next
one, as long as rows are found. Nothing is answered at once: the server calls ``over`` at the end of
a turn and gets a few answers at a time. Groups take turns, so that none waits for all pulls of
another. All of this is volatile; after a restart of the broker, clients pull again.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Queue, Subscription, Topic, Waiter
from ternmq.broker.catalog.owners import Owners
from ternmq.broker.clock.timers import FULL_RETRY_US
from ternmq.broker.containers.deadlines import Deadlines
from ternmq.broker.containers.tokens import Tokens
from ternmq.broker.delivery.allowance import first_allowed
from ternmq.broker.delivery.pulls import Delivery
from ternmq.broker.gate.replies import PullReply
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskReadError,
    JournalError,
    JournalFull,
)

OVER: Final = 16
"""Parked pulls that one call of ``over`` returns: answering them takes the server 0.2 to 0.5 ms."""
SERVED: Final = 16
"""Parked pulls of one group that are tried before those of the next group."""


class Woken(NamedTuple):
    """A parked pull that is over."""

    token: int
    reply: PullReply | None
    """None: its time is up, its group is gone, or its rows cannot be read (``unreadable``)."""


class Parking:
    """All parked pulls.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = (
        "_awake",
        "_brief",
        "_by_session",
        "_deadlines",
        "_delivery",
        "_journal",
        "_limits",
        "_next_token",
        "_over",
        "_timers",
        "_unseen",
        "_views",
        "_wakes",
        "grown",
        "unreadable",
        "waiters",
    )

    def __init__(self, ledger: Ledger, delivery: Delivery) -> None:
        self._journal = ledger.journal
        self._limits = ledger.limits
        self._timers = ledger.timers
        self._awake = ledger.wakes.awake
        self._wakes = ledger.wakes
        self._views = ledger.views
        self._delivery = delivery
        self.waiters: Tokens[Waiter] = Tokens()
        self._by_session: dict[int, dict[int, Waiter]] = {}
        """The waiters of each session by token, so that its end does not search all waiters."""
        self._brief: dict[int, Waiter] = {}
        """Parked pulls that do not wait for rows, by token; see ``park``."""
        self._next_token = 1
        self._deadlines = Deadlines(self.waiters)
        self._unseen: list[tuple[int, int, int, Queue]] = []
        """Watched queues whose newest rows are not durable yet: a heap by the end of these rows."""
        self._over: dict[int, Woken] = {}
        """What ``over`` returns next, by token; oldest first."""
        self.unreadable: dict[int, JournalError] = {}
        """By token, why a parked pull's rows cannot be read; the server removes the entries."""
        self.grown: list[Queue] = []
        """Followed queues that have new rows or are gone; the follower removes the entries."""

    # -- adding and removing ----------------------------------------------------------------------

    def park(
        self,
        session: int,
        subscription: Subscription,
        max_messages: int,
        max_bytes: int,
        deadline_us: int,
        at_once: int = 0,
        detached_us: int = 0,
        *,
        brief: bool = False,
    ) -> int:
        """Park a pull that found nothing; return its token.

        A brief one does not wait for rows: it ends as soon as all rows that are there have been
        looked at, which one pull may not do (``Wakes.stopped``).

        Raises:
            Busy: too many parked pulls.
        """
        if len(self.waiters) >= self._limits.waiters:
            raise Busy(f"there are {self._limits.waiters} waiting pulls")
        token = self._next_token
        self._next_token += 1
        waiter = Waiter(
            token, session, subscription, max_messages, max_bytes, deadline_us, at_once, detached_us
        )
        self.waiters.add(token, waiter)
        if brief:
            self._brief[token] = waiter
            self._awake[subscription] = None
        self._by_session.setdefault(session, {})[token] = waiter
        self._deadlines.add(deadline_us, token)
        subscription.waiters.add(token, waiter)
        if subscription.filter is not None:
            self._awake[subscription] = None  # what it has not scanned yet may match
        committed = self._journal.committed
        for queue in subscription.topic.queues:
            queue.watched = True
            if queue.judged_below:  # there may be more expired rows than one pull passes over
                self._awake[subscription] = None
            if queue.end > committed:
                self.grew(queue)
        return token

    def cancel(self, token: int) -> Woken | None:
        """Remove a parked pull; ``over`` does not return it any more.

        Returns:
            What ``over`` would have returned, if the pull was over already. Its rows are leased:
            the caller must deliver them or give them back.
        """
        waiter = self.waiters.get(token)
        if waiter is not None:
            self._forget(waiter)
        self.unreadable.pop(token, None)
        return self._over.pop(token, None)

    def cancel_all(self, session: int) -> None:
        """Remove the parked pulls of a session; ``over`` does not return them."""
        for waiter in list(self._by_session.get(session, {}).values()):
            self._forget(waiter)

    def groups_of(self, session: int, most: int) -> list[int]:
        """Return the numbers of the groups that parked pulls of a session are for; of ``most``."""
        waiters = islice(self._by_session.get(session, {}).values(), most)
        return [one.subscription.group for one in waiters]

    def dismiss(self, subscription: Subscription) -> None:
        """End the parked pulls of a subscription without rows, because it ends or is unreadable."""
        for waiter in list(subscription.waiters.values()):
            self._finish(waiter, None)

    def dismiss_session(self, subscription: Subscription, session: int) -> None:
        """End the parked pulls of a session in a group without rows: it is no member any more."""
        for waiter in list(self._by_session.get(session, {}).values()):
            if waiter.subscription is subscription:
                self._finish(waiter, None)

    def _forget(self, waiter: Waiter) -> None:
        token = waiter.token
        self.waiters.pop(token)
        self._brief.pop(token, None)
        waiter.subscription.waiters.pop(token)
        tokens = self._by_session[waiter.session]
        del tokens[token]
        if not tokens:
            del self._by_session[waiter.session]

    def _finish(self, waiter: Waiter, reply: PullReply | None) -> None:
        self._forget(waiter)
        self._over[waiter.token] = Woken(waiter.token, reply)

    # -- waking -----------------------------------------------------------------------------------

    def grew(self, queue: Queue) -> None:
        """Note that a watched queue has rows not committed yet: ``committed`` wakes for them."""
        heappush(self._unseen, (queue.end, queue.topic.number, queue.number, queue))

    def follow(self, queue: Queue) -> None:
        """List a queue in ``grown`` when its next rows are committed; once."""
        queue.followed = queue.watched = True
        if queue.end > self._journal.committed:
            self.grew(queue)

    def gone(self, topic: Topic) -> None:
        """List the followed queues of a topic that ends: nothing will be added to them."""
        self.grown += [queue for queue in topic.queues if queue.followed]

    def committed(self) -> None:
        """Wake the parked pulls for rows below the commit mark, after it moved."""
        committed = self._journal.committed
        unseen = self._unseen
        while unseen and unseen[0][0] <= committed:
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
        """Return when ``over`` has something to do (0: now), or None."""
        if self._awake or self._over:
            return 0
        return self._deadlines.first_us()

    def stirs(self, now_us: int) -> bool:
        """Return whether ``over`` has something to do now. Called in every turn, so it is cheap."""
        if self._awake or self._over:
            return True
        return self._deadlines.due(now_us)

    def over(self, now_us: int) -> list[Woken]:
        """Return parked pulls that are over, at most ``OVER``; in each group, the oldest first.

        Call it again until it returns none.

        Raises:
            WouldBlock: no pull is over, nothing was recorded, and a group waits for a read: run the
                job and call again. A group does not wait for the read of another group, and none
                loses its turn.
        """
        waiting: WouldBlock | None = None
        begin = self._journal.end
        for subscription in list(self._awake):
            if len(self._over) >= OVER:
                break
            del self._awake[subscription]  # a scan that is not at its end adds it again
            try:
                self._serve(now_us, subscription)
            except WouldBlock as blocked:
                self._awake[subscription] = None
                waiting = waiting or blocked
            except (DiskReadError, CorruptJournal) as error:
                self.unreadable.update(dict.fromkeys(subscription.waiters, error))
                self.dismiss(subscription)
            except JournalFull:
                # No segment is ready: nothing was recorded. No other event would wake it.
                for progress in subscription.queues:
                    if now_us + FULL_RETRY_US < progress.due_armed_us:
                        self._timers.arm_due(progress, now_us + FULL_RETRY_US)
        while len(self._over) < OVER:
            token = self._deadlines.pop(now_us)
            if token is None:
                break
            waiter = self.waiters.get(token)
            assert waiter is not None
            self._finish(waiter, None)
        if waiting is not None and not self._over and self._journal.end == begin:
            raise waiting  # else the next call raises it; expired rows may have been recorded
        return [self._over.pop(token) for token in list(islice(self._over, OVER))]

    def _serve(self, now_us: int, subscription: Subscription) -> None:
        if subscription.owners is not None:
            self._serve_owners(now_us, subscription, subscription.owners)
            return
        for _ in range(SERVED):
            if not subscription.waiters or subscription.spec.paused:
                return
            if subscription.limited:
                waiter = first_allowed(self._views, subscription)
                if waiter is None:
                    return
            else:
                waiter = subscription.waiters.first()
            reply = self._delivery.pull_any(
                now_us, waiter.session, subscription, waiter.max_messages, waiter.max_bytes,
                waiter.at_once, waiter.detached_us,
            )  # fmt: skip
            if reply is None:
                if self._brief and subscription not in self._awake:
                    self._end_brief(subscription)
                return
            self._finish(waiter, reply)
        self._wakes.wake(subscription)  # behind the others

    def _end_brief(self, subscription: Subscription) -> None:
        """End the brief pulls of a subscription: all of its rows have been looked at."""
        for waiter in list(self._brief.values()):
            if waiter.subscription is subscription:
                self._finish(waiter, None)

    def _serve_owners(self, now_us: int, subscription: Subscription, owners: Owners) -> None:
        """Try the pulls of members that own queues; the oldest of each member first.

        O(parked pulls of the group). That one member finds nothing says nothing about the others.
        """
        if subscription.spec.paused:
            return
        members, found, empty = owners.members, 0, set[int]()
        for waiter in list(subscription.waiters.values()):
            session = waiter.session
            if session in empty or session not in members or not members[session].queues:
                continue
            if found == SERVED:
                self._wakes.wake(subscription)  # behind the others
                return
            reply = self._delivery.pull_any(
                now_us, session, subscription, waiter.max_messages, waiter.max_bytes,
                waiter.at_once,
            )  # fmt: skip
            if reply is None:
                empty.add(session)
                continue
            self._finish(waiter, reply)
            found += 1
        if self._brief and subscription not in self._awake:
            self._end_brief(subscription)
