"""The broker's core: commands come in with the time, are decided, recorded and applied.

Synchronous and deterministic. Nothing here reads a clock, waits, or does I/O of its own: time and
randomness are arguments, bytes go to the journal, and what may block is a job that the shell runs.
A command that raises ``WouldBlock`` has changed nothing; the shell runs the job and repeats it.

Replies carry the position that they depend on. The shell holds each until that is committed
(`replies.Gate`), calls ``flush`` at the end of a turn, runs the sync jobs, and tells ``committed``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ternmq.broker.apps import check_app, check_counts
from ternmq.broker.catalog import Queue, Subscription, Topic, Waiter
from ternmq.broker.delivery import Delivery
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.lease import LEASE_BITS
from ternmq.broker.leases import ENDED_ROWS_A_TURN, Leases
from ternmq.broker.replies import DoneReply, PullReply, SendReply, SettleReply
from ternmq.broker.retry import Chance
from ternmq.broker.sending import Sending
from ternmq.broker.sessions import Session
from ternmq.broker.settling import Settling
from ternmq.broker.timers import Timer, TimerStore
from ternmq.broker.views import Views
from ternmq.journal.cold import WouldBlock
from ternmq.journal.index import Index
from ternmq.journal.journal import Journal
from ternmq.journal.state import StateWriter
from ternmq.journal.store import RecordStore
from ternmq.model.errors import (
    Busy,
    CorruptJournal,
    DiskFull,
    DiskReadError,
    GroupExists,
    GroupPaused,
    InvalidRequest,
    JournalError,
    JournalFull,
    LeaseExpired,
    ModeNotAllowed,
    RefusedError,
    StrictNeedsReplica,
    TopicExists,
    UnknownApp,
    UnknownQueue,
    UnknownSession,
)
from ternmq.model.specs import Limits, Mode, Start, SubscriptionSpec, TopicSpec, check_name
from ternmq.model.types import DAY_US, SECOND_US
from ternmq.record import control
from ternmq.record.facts import Cause, Move, Outcome, Span
from ternmq.record.header import HEADER_BYTES, Kind

_FOREVER: Final = 1 << 63
_HELD: Final = Outcome.HELD
_SWEPT_A_TURN: Final = 1024
_DUE_AGAIN_US: Final = SECOND_US
_HOUSEKEEPING_US: Final = SECOND_US
_LONGEST_US: Final = 2 * 366 * DAY_US
_FULL_RETRY_US: Final = SECOND_US // 10


class Woken(NamedTuple):
    """A parked pull that is over."""

    token: int
    reply: PullReply | None
    """None: its time is up, its session or group went, or its rows are not to be read."""


class Broker:
    """The core. Loop only.

    Args:
        journal: Open, its EPOCH durable.
        views: Filled from it.
        store: Reads records.
        chance: Randomness for jitter.
        now_us: Broker time of the start.
    """

    def __init__(
        self,
        journal: Journal,
        views: Views,
        store: RecordStore,
        chance: Chance,
        now_us: int,
        writer: StateWriter,
    ) -> None:
        self.journal = journal
        self.views = views
        self.store = store
        self.random = chance
        self.limits: Limits = views.limits
        self.index: Index = views.index
        self.writer = writer
        self.timers = TimerStore()
        self.delivery = Delivery(self)
        self.settling = Settling(self)
        self.leases = Leases(self, self.settling)
        self.sending = Sending(journal, views, store)
        self.suspect_below = views.suspect_below
        self._waiters: dict[int, Waiter] = {}
        self._deadlines: list[tuple[int, int]] = []  # (time, token) of parked pulls, a heap
        self._next_token = 1
        self._unseen: list[tuple[int, int, int, Queue]] = []
        """Watched queues whose newest rows are not durable yet: a heap by where these end."""
        self.rewinds = 0
        """How often a group was reset, or began: retention judges anew."""
        self._awake: dict[Subscription, None] = {}
        self._woken: deque[Woken] = deque()
        self.unreadable: dict[int, JournalError] = {}
        """Why parked pulls ended whose rows cannot be read, by token: for who answers them."""
        self.grown: list[Queue] = []
        """Followed queues that have new rows, or are gone: whoever follows takes them out."""
        self._start_timers(now_us)

    def _start_timers(self, now_us: int) -> None:
        """Derive the timers from the views; every session is given its grace anew."""
        for number in sorted(self.views.sessions.by_number):
            session = self.views.sessions.by_number[number]
            session.connections = 0
            session.gone_us = now_us + self.limits.session_grace_us
            self.timers.set(session.gone_us, Timer.SESSION, session)
        for key in sorted(self.views.held):
            held = self.views.held[key]
            if held.leases:
                self.arm_leases(held, min(lease.until_us for lease in held.leases.values()))
            due = held.next_due_us()
            if due is not None:
                self.arm_due(held, due)
        self.timers.set(now_us + _HOUSEKEEPING_US, Timer.HOUSEKEEPING)

    # -- what delivery needs
    # ------------------------------------------------------------------------

    @property
    def parked_pulls(self) -> int:
        """How many pulls wait for rows."""
        return len(self._waiters)

    def woken(self, queue: GroupQueue) -> None:
        """Rows of it may be available: parked pulls are to be looked at."""
        topic = self.views.catalog.topics.get(queue.topic)
        subscription = topic.subscriptions.get(queue.group) if topic is not None else None
        if subscription is not None and subscription.waiters:
            self._awake[subscription] = None

    def arm_leases(self, queue: GroupQueue, when_us: int) -> None:
        """Leases of it are to be looked at, at that time."""
        queue.lease_armed_us = when_us
        self.timers.set(when_us, Timer.LEASES, queue)

    def arm_due(self, queue: GroupQueue, when_us: int) -> None:
        """A waiting row of it comes due at that time."""
        queue.due_armed_us = when_us
        self.timers.set(when_us, Timer.DUE, queue)

    # -- settings
    # -----------------------------------------------------------------------------------

    def _config(self, now_us: int, change: control.Config, value: object = None) -> DoneReply:
        position = self.journal.append(Kind.CONFIG, control.pack(change), now_us)
        self.views.apply_config(position, change)
        return DoneReply(self.journal.end, value)

    def create_topic(self, now_us: int, spec: TopicSpec) -> DoneReply:
        """Create a topic; the reply's value is its number.

        Raises:
            InvalidRequest, TopicExists, Busy.
        """
        spec.check()
        catalog = self.views.catalog
        if spec.name in catalog.by_name:
            raise TopicExists(f"topic {spec.name!r} is there already")
        if len(catalog.topics) >= self.limits.topics:
            raise Busy(f"there are {self.limits.topics} topics")
        number = catalog.next_topic
        return self._config(now_us, control.TopicCreated(number, spec), number)

    def change_topic(self, now_us: int, spec: TopicSpec) -> DoneReply:
        """Change a topic's settings. It cannot lose queues or its order.

        Raises:
            InvalidRequest, UnknownTopic.
        """
        spec.check()
        topic = self.views.catalog.topic(spec.name)
        if spec.queues < len(topic.queues):
            raise InvalidRequest("a topic cannot have fewer queues than it has")
        if spec.ordered != topic.spec.ordered:
            raise InvalidRequest("whether a topic is ordered cannot be changed")
        if spec.ordered and spec.queues != len(topic.queues):
            raise InvalidRequest("an ordered topic keeps its queues, since keys keep theirs")
        self.rewinds += 1
        reply = self._config(now_us, control.TopicChanged(topic.number, spec))
        if any(one.waiters for one in topic.subscriptions.values()):
            for queue in topic.queues:
                queue.watched = True
        return reply

    def delete_topic(self, now_us: int, name: str) -> DoneReply:
        """Delete a topic with its messages and subscriptions.

        Raises:
            UnknownTopic.
        """
        topic = self.views.catalog.topic(name)
        for subscription in list(topic.subscriptions.values()):
            self._dismiss(subscription)
        self.grown += [queue for queue in topic.queues if queue.followed]
        return self._config(now_us, control.TopicDeleted(topic.number))

    def subscribe(
        self, now_us: int, topic_name: str, group: str, spec: SubscriptionSpec | None = None
    ) -> DoneReply:
        """Let a group consume a topic; the default mode is the topic's: ordered, or shared.

        Raises:
            InvalidRequest, ModeNotAllowed, UnknownTopic, GroupExists, Busy.
        """
        check_name(group)
        topic = self.views.catalog.topic(topic_name)
        if spec is None:
            spec = SubscriptionSpec(mode=Mode.ORDERED if topic.spec.ordered else Mode.SHARED)
        self._check_subscription(topic, spec)
        if group in topic.by_group:
            raise GroupExists(f"group {group!r} consumes {topic_name!r} already")
        if len(topic.subscriptions) >= self.limits.groups:
            raise Busy(f"there are {self.limits.groups} groups")
        cursors = [
            queue.next if spec.start is Start.LATEST else queue.first for queue in topic.queues
        ]
        self.rewinds += 1
        number = self.views.catalog.next_group
        return self._config(
            now_us, control.Subscribed(number, group, topic.number, spec, cursors), number
        )

    def _check_subscription(self, topic: Topic, spec: SubscriptionSpec) -> None:
        spec.check()
        if spec.mode is Mode.ORDERED and not topic.spec.ordered:
            raise ModeNotAllowed(f"topic {topic.name!r} is not ordered")
        if spec.mode is Mode.ORDERED and spec.tags.strip() not in {"", "*"}:
            raise InvalidRequest("ordered groups take no tag filter")
        Subscription(0, "check", topic, spec)

    def change_subscription(
        self, now_us: int, topic_name: str, group: str, spec: SubscriptionSpec
    ) -> DoneReply:
        """Change a group's settings on a topic (pause and resume are settings); not its mode.

        Raises:
            InvalidRequest, ModeNotAllowed, UnknownTopic, UnknownGroup.
        """
        subscription = self.views.catalog.subscription(topic_name, group)
        self._check_subscription(subscription.topic, spec)
        if spec.mode is not subscription.spec.mode:
            raise ModeNotAllowed("a group's mode cannot be changed; make another group")
        reply = self._config(
            now_us,
            control.SubscriptionChanged(subscription.group, subscription.topic.number, spec),
        )
        if subscription.waiters:
            self._awake[subscription] = None
        return reply

    def unsubscribe(self, now_us: int, topic_name: str, group: str) -> DoneReply:
        """End a group's subscription of a topic; what it was owed is forgotten.

        Raises:
            UnknownTopic, UnknownGroup.
        """
        subscription = self.views.catalog.subscription(topic_name, group)
        self._dismiss(subscription)
        return self._config(
            now_us, control.Unsubscribed(subscription.group, subscription.topic.number)
        )

    def put_app(self, now_us: int, app: control.App) -> DoneReply:
        """Make an app, or give it another token, other grants or another owner.

        Raises:
            InvalidName, InvalidRequest, Busy.
        """
        check_app(app)
        apps = self.views.catalog.apps
        if app.name not in apps and len(apps) >= self.limits.apps:
            raise Busy(f"there are {self.limits.apps} apps")
        return self._config(now_us, app)

    def delete_app(self, now_us: int, name: str) -> DoneReply:
        """Remove an app; its sessions are the shell's to close.

        Raises:
            UnknownApp.
        """
        if name not in self.views.catalog.apps:
            raise UnknownApp(f"no app {name[:40]!r}")
        return self._config(now_us, control.AppDeleted(name))

    def _dismiss(self, subscription: Subscription) -> None:
        while subscription.waiters:
            self._finish_waiter(subscription.waiters.popleft(), None)

    # -- sessions
    # -----------------------------------------------------------------------------------

    def join(
        self, now_us: int, app: str, client: str, address: str = "", pid: int = 0, version: str = ""
    ) -> DoneReply:
        """Open a session; the reply's value is its number.

        Raises:
            Busy: too many sessions.
        """
        sessions = self.views.sessions
        if len(sessions.by_number) >= self.limits.sessions:
            raise Busy(f"there are {self.limits.sessions} sessions")
        info = control.Joined(sessions.next_number, app, client, address, pid, version, now_us)
        position = self.journal.append(Kind.JOINED, control.pack(info), now_us)
        sessions.apply_joined(position, info)
        return DoneReply(self.journal.end, info.session)

    def resume(self, number: int, app: str, client: str) -> control.Joined:
        """One more connection of a session's client: back within its grace, or an auxiliary one.

        Raises:
            UnknownSession: the grace was over, or it is another client's.
        """
        session = self._session(number)
        if not session.belongs_to(app, client):
            raise UnknownSession(f"no session {number}")
        session.connections += 1
        return session.info

    def disconnected(self, now_us: int, session: int) -> None:
        """One of the session's connections is gone; with the last one its grace begins."""
        known = self.views.sessions.by_number.get(session)
        if known is None or known.connections == 0:
            return
        known.connections -= 1
        if known.connections == 0:
            known.gone_us = now_us + self.limits.session_grace_us
            self.timers.set(known.gone_us, Timer.SESSION, known)
            self._forget_waiters(session)

    def leave(self, now_us: int, session: int) -> DoneReply:
        """Close a session: what it holds is handed to others, uncounted.

        Raises:
            UnknownSession.
        """
        known = self._session(session)
        self._forget_waiters(session)
        for held in self.views.held.values():
            subscription = self._subscription_of(held) if held.leases else None
            if subscription is not None:
                self.leases.end(now_us, subscription, held, Cause.DRAIN, session, budget=_FOREVER)
        self._left(now_us, known, "closed")
        return DoneReply(self.journal.end)

    def keep(self, now_us: int, session: int, leases: Iterable[tuple[int, int]]) -> DoneReply:
        """End every lease of a session but these, uncounted.

        A client came back, and says what has reached it of all that was handed out to it.

        Args:
            now_us: Broker time.
            session: Of the client.
            leases: (epoch, number) of each that it knows of.

        Raises:
            UnknownSession.
        """
        self._session(session)
        kept = {epoch << LEASE_BITS | number for epoch, number in leases}
        for held in self.views.held.values():
            subscription = self._subscription_of(held) if held.leases else None
            if subscription is not None:
                self.leases.end(
                    now_us, subscription, held, Cause.DRAIN, session, budget=_FOREVER, kept=kept
                )
        return DoneReply(self.journal.end)

    def _left(self, now_us: int, session: Session, reason: str) -> None:
        left = control.Left(session.number, reason)
        position = self.journal.append(Kind.LEFT, control.pack(left), now_us)
        self.views.sessions.apply_left(position, session.number)

    def _session(self, number: int) -> Session:
        session = self.views.sessions.by_number.get(number)
        if session is None:
            raise UnknownSession(f"no session {number}")
        return session

    def report(
        self,
        now_us: int,
        session: int,
        topic: str,
        producer: int,
        entries: Sequence[control.Count],
    ) -> DoneReply:
        """Record what a producer has sent and given up, for the audit; no view rests on it.

        Raises:
            UnknownSession, UnknownTopic, InvalidRequest.
            DiskFull: the room that is left is not for reports.
        """
        self._session(session)
        counts = control.Counts(producer, self.views.catalog.topic(topic).number, tuple(entries))
        check_counts(counts)
        body = control.pack_counts(counts)
        if self.sending.blocked or self.journal.room() < len(body) + HEADER_BYTES:
            raise DiskFull("no room for reports")
        self.journal.append(Kind.COUNTS, body, now_us)
        return DoneReply(self.journal.end)

    # -- sends
    # --------------------------------------------------------------------------------------

    def send(self, now_us: int, topic: str, batch: bytes, queue: int | None = None) -> SendReply:
        """Store a batch; see ``Sending.send``. No session is needed."""
        found = self.views.catalog.topic(topic)
        reply = self.sending.send(now_us, found, batch, queue)
        stored = found.queues[reply.queue]
        if stored.watched:
            self._unseen_until_durable(stored)
        return reply

    # -- pulls
    # --------------------------------------------------------------------------------------

    def pull(
        self,
        now_us: int,
        session: int,
        topic: str,
        group: str,
        max_messages: int = 32,
        max_bytes: int | None = None,
        queue: int | None = None,
    ) -> PullReply | None:
        """Lease the next rows of a topic to a session; None when nothing is available now.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, UnknownSession, GroupPaused, InvalidRequest.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        subscription = self.views.catalog.subscription(topic, group)
        most = self._check_pull(session, max_messages, max_bytes)
        if subscription.spec.paused:
            raise GroupPaused(f"group {group!r} is paused on {topic!r}")
        if queue is not None:
            if not 0 <= queue < len(subscription.queues):
                raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
            return self.delivery.pull(
                now_us,
                session,
                subscription,
                subscription.topic.queues[queue],
                subscription.queues[queue],
                max_messages,
                most,
            )
        return self._pull_any(now_us, session, subscription, max_messages, most)

    def _check_pull(self, session: int, max_messages: int, max_bytes: int | None) -> int:
        """Return how many bytes may be pulled, if the request makes sense."""
        if session not in self.views.sessions.by_number:
            raise UnknownSession(f"no session {session}")
        limits = self.limits
        if not 1 <= max_messages <= limits.pull_messages:
            raise InvalidRequest(f"max_messages must be 1 to {limits.pull_messages}")
        if max_bytes is None:
            return limits.pull_bytes
        if max_bytes < 1:
            raise InvalidRequest("max_bytes must be at least 1")
        return min(max_bytes, limits.pull_bytes)

    def _pull_any(
        self, now_us: int, session: int, subscription: Subscription, messages: int, most: int
    ) -> PullReply | None:
        queues = subscription.topic.queues
        count = len(queues)
        if count == 1:
            return self.delivery.pull(
                now_us, session, subscription, queues[0], subscription.queues[0], messages, most
            )
        for step in range(count):
            at = (subscription.turn + step) % count
            reply = self.delivery.pull(
                now_us, session, subscription, queues[at], subscription.queues[at], messages, most
            )
            if reply is not None:
                subscription.turn = (at + 1) % count
                return reply
        return None

    def park(
        self,
        session: int,
        topic: str,
        group: str,
        max_messages: int,
        max_bytes: int,
        deadline_us: int,
    ) -> int:
        """Let a pull that found nothing wait; return its token. ``woken_pulls`` answers it.

        Raises:
            UnknownTopic, UnknownGroup, UnknownSession, InvalidRequest.
            Busy: too many parked pulls.
        """
        subscription = self.views.catalog.subscription(topic, group)
        most = self._check_pull(session, max_messages, max_bytes)
        if len(self._waiters) >= self.limits.waiters:
            raise Busy(f"there are {self.limits.waiters} waiting pulls")
        token = self._next_token
        self._next_token += 1
        waiter = Waiter(token, session, subscription, max_messages, most, deadline_us)
        self._waiters[token] = waiter
        heappush(self._deadlines, (deadline_us, token))
        subscription.waiters.append(waiter)
        if subscription.filter is not None:
            self._awake[subscription] = None  # what it has not scanned yet may match
        durable = self.journal.durable
        for queue in subscription.topic.queues:
            queue.watched = True
            if queue.end > durable:
                self._unseen_until_durable(queue)
        return token

    def _unseen_until_durable(self, queue: Queue) -> None:
        heappush(self._unseen, (queue.end, queue.topic.number, queue.number, queue))

    def cancel(self, token: int) -> None:
        """Give up a parked pull; no answer comes."""
        waiter = self._waiters.get(token)
        if waiter is not None:
            self._forget_waiter(waiter)

    def _forget_waiter(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter.token, None)
        waiter.subscription.waiters.remove(waiter)

    def _forget_waiters(self, session: int) -> None:
        for waiter in [one for one in self._waiters.values() if one.session == session]:
            self._forget_waiter(waiter)

    def _finish_waiter(self, waiter: Waiter, reply: PullReply | None) -> None:
        self._waiters.pop(waiter.token, None)
        self._woken.append(Woken(waiter.token, reply))

    def follow(self, queue: Queue) -> None:
        """Have a queue listed in ``grown`` when its next rows are durable; once."""
        queue.followed = queue.watched = True
        if queue.end > self.journal.durable:
            self._unseen_until_durable(queue)

    def committed(self) -> None:
        """The durable mark moved: rows below it may wake parked pulls."""
        durable = self.journal.durable
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

    def woken_pulls(self, now_us: int) -> list[Woken]:
        """Return the parked pulls that are over, oldest first of each group.

        Raises:
            WouldBlock: none is, and a group has to wait for a read: run the job and call again. No
                group waits for another's read, and none loses its turn.
        """
        waiting: WouldBlock | None = None
        for subscription in list(self._awake):
            del self._awake[subscription]  # a scan that is not at its end wakes it again
            try:
                self._serve_waiters(now_us, subscription)
            except WouldBlock as blocked:
                self._awake[subscription] = None
                waiting = waiting or blocked
            except (DiskReadError, CorruptJournal) as error:
                self.unreadable.update({one.token: error for one in subscription.waiters})
                self._dismiss(subscription)
            except JournalFull:
                # No segment is ready: nothing was recorded. No other event would wake it.
                for held in subscription.queues:
                    if now_us + _FULL_RETRY_US < held.due_armed_us:
                        self.arm_due(held, now_us + _FULL_RETRY_US)
        while self._deadlines and self._deadlines[0][0] <= now_us:
            waiter = self._waiters.get(heappop(self._deadlines)[1])
            if waiter is not None:
                waiter.subscription.waiters.remove(waiter)
                self._finish_waiter(waiter, None)
        if waiting is not None and not self._woken:
            raise waiting
        over = list(self._woken)
        self._woken.clear()
        return over

    # -- settles
    # ------------------------------------------------------------------------------------

    def _serve_waiters(self, now_us: int, subscription: Subscription) -> None:
        while subscription.waiters and not subscription.spec.paused:
            waiter = subscription.waiters[0]
            reply = self._pull_any(
                now_us, waiter.session, subscription, waiter.max_messages, waiter.max_bytes
            )
            if reply is None:
                return
            subscription.waiters.popleft()
            self._finish_waiter(waiter, reply)

    def settle(
        self,
        now_us: int,
        session: int,
        topic: str,
        group: str,
        queue: int,
        epoch: int,
        lease: int,
        outcome: Outcome,
        spans: Sequence[Span] | None = None,
        *,
        delay_us: int | None = None,
        reason: str = "",
    ) -> SettleReply:
        """Record what became of rows; see ``Delivery.settle``.

        Raises:
            LeaseExpired, UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        subscription = self.views.catalog.subscription(topic, group)
        if not 0 <= queue < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        if outcome is _HELD:
            raise InvalidRequest("a consumer cannot hold rows")
        if spans is not None and not all(0 <= start < stop for start, stop in spans):
            raise InvalidRequest("a span is (start, stop) with 0 <= start < stop")
        if delay_us is not None and not 0 <= delay_us <= _LONGEST_US:
            raise InvalidRequest("a delay is at most two years and not negative")
        return self.settling.settle(
            now_us,
            session,
            subscription,
            subscription.topic.queues[queue],
            subscription.queues[queue],
            epoch,
            lease,
            outcome,
            spans,
            delay=delay_us,
            reason=reason,
        )

    def extend(
        self,
        now_us: int,
        session: int,
        topic: str,
        group: str,
        queue: int,
        epoch: int,
        lease: int,
        seconds_us: int,
    ) -> DoneReply:
        """Let a lease last until ``seconds_us`` from now.

        Raises:
            LeaseExpired, UnknownTopic, UnknownGroup, UnknownQueue.
        """
        subscription = self.views.catalog.subscription(topic, group)
        if not 0 <= queue < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        if not 0 <= seconds_us <= _LONGEST_US:
            raise InvalidRequest("a lease lasts at most two years")
        return DoneReply(
            self.leases.extend(
                now_us, session, subscription.queues[queue], epoch, lease, now_us + seconds_us
            )
        )

    # -- time
    # ---------------------------------------------------------------------------------------

    def next_deadline_us(self) -> int | None:
        """Return when ``tick`` or ``woken_pulls`` has something to do, or None; 0 means now."""
        if self._awake:
            return 0
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._waiters:
            heappop(deadlines)
        timer = self.timers.next_us()
        if not deadlines:
            return timer
        return deadlines[0][0] if timer is None else min(timer, deadlines[0][0])

    def refusal_rests_on(self, error: RefusedError) -> int:
        """Return the position that a refusal depends on; 0 if it may go out at once.

        What a command was refused for may be a fact that is not durable yet (a lease that ended, a
        topic that was deleted), so the refusal waits for everything decided so far, unless it
        follows from the request alone or from a limit.
        """
        if isinstance(error, InvalidRequest | Busy | DiskFull | StrictNeedsReplica):
            return 0
        return self.journal.end

    def tick(self, now_us: int) -> bool:
        """Do what the time has come for, a bounded piece of it; return whether more is due now."""
        rows = 0
        while rows < ENDED_ROWS_A_TURN:
            fired = self.timers.pop(now_us)
            if fired is None:
                return False
            when_us, kind, owner = fired
            try:
                rows += self._fire(now_us, when_us, kind, owner)
            except JournalFull:
                # No segment is ready: nothing was recorded, and what has come due stays due.
                if isinstance(owner, GroupQueue):
                    self.arm_leases(owner, now_us + _FULL_RETRY_US)
                else:
                    self.timers.set(now_us + _FULL_RETRY_US, kind, owner)
                return False
        return True

    def _fire(
        self, now_us: int, when_us: int, kind: Timer, owner: GroupQueue | Session | None
    ) -> int:
        """Do what one timer is for; return how many rows (and other things) were looked at."""
        if kind is Timer.LEASES:
            assert isinstance(owner, GroupQueue)
            return self._end_by_time(now_us, when_us, owner)
        if kind is Timer.SESSION:
            assert isinstance(owner, Session)
            return self._end_session(now_us, owner)
        if kind is Timer.DUE:
            assert isinstance(owner, GroupQueue)
            if when_us == owner.due_armed_us:
                owner.due_armed_us = _FOREVER
                self.woken(owner)
                looked = owner.look_for_due(now_us)
                later = owner.next_timer_us()
                if later is not None:
                    if later <= now_us and owner.lines is None:
                        later = now_us + _DUE_AGAIN_US  # many are known; pulls find the others
                    self.arm_due(owner, later)
                return looked // 16  # to find one is that much quicker than to end its lease
            return 0
        self.views.dedup.sweep(now_us, _SWEPT_A_TURN)
        rows = self._expire_dead(now_us)
        self.timers.set(now_us + _HOUSEKEEPING_US, Timer.HOUSEKEEPING)
        return rows

    def _subscription_of(self, held: GroupQueue) -> Subscription | None:
        topic = self.views.catalog.topics.get(held.topic)
        return topic.subscriptions.get(held.group) if topic is not None else None

    def _end_by_time(self, now_us: int, when_us: int, held: GroupQueue) -> int:
        if when_us != held.lease_armed_us:
            return 0  # armed again for an earlier time
        held.lease_armed_us = _FOREVER
        subscription = self._subscription_of(held)
        if subscription is None:
            return 0
        ended = self.leases.end(now_us, subscription, held, Cause.TIME)
        if held.leases:
            self.arm_leases(
                held,
                now_us if ended.more else min(one.until_us for one in held.leases.values()),
            )
        return ended.rows + 1

    def _end_session(self, now_us: int, session: Session) -> int:
        if session.connected or session.gone_us > now_us:
            return 0
        if self.views.sessions.by_number.get(session.number) is not session:
            return 0
        rows = 0
        for held in self.views.held.values():
            if not held.leases:
                continue
            subscription = self._subscription_of(held)
            if subscription is None:
                continue
            ended = self.leases.end(
                now_us, subscription, held, Cause.SESSION, session.number, ENDED_ROWS_A_TURN - rows
            )
            rows += ended.rows
            if ended.more or rows >= ENDED_ROWS_A_TURN:
                self.timers.set(now_us, Timer.SESSION, session)
                return rows
        self._forget_waiters(session.number)
        self._left(now_us, session, "gone")
        return rows + 1

    def _expire_dead(self, now_us: int) -> int:
        """Give up dead letters that are older than they are kept."""
        rows = 0
        before = now_us - self.limits.dead_letter_us
        for held in self.views.held.values():
            if held.dead_rows and rows < ENDED_ROWS_A_TURN:
                old = held.dead_before(before, ENDED_ROWS_A_TURN - rows)
                if old:
                    self.settling.operate(
                        now_us, held, [row.offset for row in old], Outcome.DONE, Cause.EXPIRED
                    )
                    rows += len(old)
        return rows

    # -- positions
    # ----------------------------------------------------------------------------------

    def reset(self, now_us: int, topic: str, group: str, queue: int, offset: int) -> DoneReply:
        """Make everything from an offset on unread.

        What is leased, ready or waiting is forgotten; dead letters below the offset stay.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        _, found, held = self._place(topic, group, queue)
        if not found.first <= offset <= found.next:
            raise InvalidRequest(f"offset must be {found.first} to {found.next}")
        end = self.delivery.move_cursor(now_us, held, Move.RESET, offset)
        self.rewinds += 1
        self.woken(held)
        self.arm_again(held)
        return DoneReply(end)

    def skip(self, now_us: int, topic: str, group: str, queue: int, offset: int) -> DoneReply:
        """Pass over what is unread below an offset; what is owed stays owed.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        _, found, held = self._place(topic, group, queue)
        if not held.cursor <= offset <= found.next:
            raise InvalidRequest(f"offset must be {held.cursor} to {found.next}")
        return DoneReply(self.delivery.move_cursor(now_us, held, Move.SKIP, offset))

    def arm_again(self, held: GroupQueue) -> None:
        """Set the timer of waiting rows anew after they changed wholesale."""
        due = held.next_due_us()
        if due is not None and due < held.due_armed_us:
            self.arm_due(held, due)

    def _place(self, topic: str, group: str, queue: int) -> tuple[Subscription, Queue, GroupQueue]:
        subscription = self.views.catalog.subscription(topic, group)
        if not 0 <= queue < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        return subscription, subscription.topic.queues[queue], subscription.queues[queue]

    # -- failures
    # -----------------------------------------------------------------------------------

    def retry_now(
        self, now_us: int, topic: str, group: str, queue: int, offsets: Sequence[int]
    ) -> SettleReply:
        """Let rows that wait for a retry (or are held) come at once; attempts stay as they are.

        Raises:
            LeaseExpired: none of them waits.
            UnknownTopic, UnknownGroup, UnknownQueue.
        """
        _, _, held = self._place(topic, group, queue)
        self._check_offsets(offsets)
        return self.settling.operate(now_us, held, offsets, Outcome.RETRY)

    def delete_failures(
        self, now_us: int, topic: str, group: str, queue: int, offsets: Sequence[int]
    ) -> SettleReply:
        """Give up rows that wait for a retry or are dead: they are done.

        Raises:
            LeaseExpired: none of them waits or is dead.
            UnknownTopic, UnknownGroup, UnknownQueue.
        """
        _, _, held = self._place(topic, group, queue)
        self._check_offsets(offsets)
        return self.settling.operate(now_us, held, offsets, Outcome.DONE)

    def _check_offsets(self, offsets: Sequence[int]) -> None:
        if len(offsets) > self.limits.pull_messages:
            raise InvalidRequest(f"at most {self.limits.pull_messages} offsets at once")

    # -- the journal's own business
    # -------------------------------------------------------------------

    def keep_state(
        self, now_us: int, may_go_on: Callable[[], bool], refresh_below: int = 0
    ) -> bool:
        """Begin a STATE set when one is due, and write a piece of the one begun.

        Returns:
            Whether a set ended in this call.
        """
        writer = self.writer
        if not writer.active:
            if not writer.due():
                return False
            writer.begin(now_us, refresh_below)
        return writer.step(now_us, may_go_on)

    def close(self, now_us: int) -> None:
        """Stop cleanly: a whole STATE set if there is room, then a MARK; blocks on the disk."""
        try:
            if not self.writer.active:
                self.writer.begin(now_us)
            self.writer.step(now_us, lambda: True)
        except JournalFull:
            pass  # the disk is full: the next start replays from an older set
        self.journal.close(now_us)


__all__ = ["Broker", "LeaseExpired", "Woken"]
