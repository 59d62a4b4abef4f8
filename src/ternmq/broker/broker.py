"""The broker's core: commands come in with the time, are decided, recorded and applied.

Synchronous and deterministic. Nothing here reads a clock, waits, or does I/O of its own: time and
randomness are arguments, bytes go to the journal, and work that may block is a job that the shell
runs. A command that raises ``WouldBlock`` has changed nothing; the shell runs the job and repeats
the command.

Replies carry the position that they depend on. The shell holds each until that is committed
(`replies.Gate`), flushes the journal at the end of a turn, runs the sync jobs, and calls
``committed``.

``Broker`` is the surface for messages and for time: it checks what can be wrong with a request by
itself, and finds the objects that the request names. Its parts decide: `intake` for sends and
transactions, `delivery` for pulls, settles and leases, `parking` for pulls that wait,
`upkeep.ticks` for what ends by time. Three parts take commands themselves, all in `operation`:
`administration` for settings, `clients` for sessions, `groups` for positions and failures.
"""

from __future__ import annotations

from collections.abc import Sequence

from ternmq.broker.checkback.checking import Checking
from ternmq.broker.clock.timers import Timer
from ternmq.broker.delivery.expiry import Expiry
from ternmq.broker.delivery.leases import Leases
from ternmq.broker.delivery.lifetimes import Lifetimes
from ternmq.broker.delivery.parking import Parking, Woken
from ternmq.broker.delivery.planning import Planning
from ternmq.broker.delivery.pulls import Delivery
from ternmq.broker.delivery.replays import Replaying
from ternmq.broker.delivery.settles import LONGEST_US, Settling
from ternmq.broker.gate.replies import (
    DoneReply,
    NumbersReply,
    PrepareReply,
    PullReply,
    ResolveReply,
    SendReply,
    SettleReply,
)
from ternmq.broker.intake.commits import Transactions
from ternmq.broker.intake.numbers import Numbering
from ternmq.broker.intake.prepares import Preparing
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.alarms import Alarms
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation.administration import Administration
from ternmq.broker.operation.broadcasting import Broadcasting
from ternmq.broker.operation.clients import Clients
from ternmq.broker.operation.drains import Drains
from ternmq.broker.operation.groups import Operating
from ternmq.broker.operation.holds import Holding
from ternmq.broker.operation.membership import Membership
from ternmq.broker.upkeep.alarming import Alarming
from ternmq.broker.upkeep.expiring import Expiring
from ternmq.broker.upkeep.fulfilling import Fulfilling
from ternmq.broker.upkeep.statesets import StateSets
from ternmq.broker.upkeep.ticks import Ticking
from ternmq.journal.state.sets import StateWriter
from ternmq.model.errors import (
    Busy,
    DiskFull,
    GroupPaused,
    InvalidRequest,
    LeaseExpired,
    ReadOnly,
    RefusedError,
    StrictNeedsReplica,
    UnknownQueue,
    UnknownSession,
)
from ternmq.wire import bodies


class Broker:
    """The core.

    Not thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and the views computed from it.
        now_us: Broker time of the start.
        writer: Writes STATE sets of the views.

    Attributes:
        journal, views, store, index, limits, timers: Those of the ledger.
        state_sets: Writes the state into the journal.
        alarms: Raises and clears alarms.
        alarming: Finds reasons for alarms; the shell tells it the gap of the clock.
        administration: Takes the commands for topics, groups and apps.
        broadcasting: Takes the joins of broadcast instances.
        expiry: Judges which rows have expired, and counts them.
        checking: Takes the commands for transactions with check-back.
        clients: Takes the commands for sessions.
        expiring: Sweeps groups that nobody pulls.
        membership: Takes the commands of members of groups; says which queues they own.
        fulfilling: Makes messages of scheduled rows; has jobs, which read them.
        drains: Gives back the leases of a session in pieces; lists the drains that are finished.
        operating: Takes the commands of operators for a group.
        parking: Parked pulls; lists the followed queues that grew, and the pulls whose rows cannot
            be read.
    """

    def __init__(self, ledger: Ledger, now_us: int, writer: StateWriter) -> None:
        self.ledger = ledger
        self.journal = ledger.journal
        self.views = ledger.views
        self.store = ledger.store
        self.index = ledger.index
        self.limits = ledger.limits
        self.timers = ledger.timers
        self.writer = writer
        self.state_sets = StateSets(ledger.journal, writer)
        self.settling = Settling(ledger)
        self.expiry = Expiry(ledger, self.settling)
        planning = Planning(ledger, self.settling)
        lifetimes = Lifetimes(ledger, self.expiry, planning)
        self.delivery = Delivery(ledger, planning, lifetimes)
        self.leases = Leases(ledger, self.settling)
        self.sending = Sending(ledger)
        self.numbering = Numbering(ledger)
        self.preparing = Preparing(ledger, self.sending)
        self.transactions = Transactions(ledger, self.sending.scheduling)
        self.parking = Parking(ledger, self.delivery)
        self.membership = Membership(ledger, self.parking)
        self.administration = Administration(ledger, self.parking, self.membership)
        self.holding = Holding(ledger)
        self.replaying = Replaying(ledger, self.settling)
        self.operating = Operating(ledger, self.settling, self.administration, self.replaying)
        self.drains = Drains(ledger, self.leases, self.delivery)
        self.broadcasting = Broadcasting(
            ledger, self.leases, self.drains, self.administration, self.parking, now_us
        )
        self.clients = Clients(
            ledger, self.leases, self.drains, self.parking, self.membership, self.broadcasting
        )
        self.fulfilling = Fulfilling(ledger, self.sending, self.parking)
        self.checking = Checking(ledger, self.sending, self.settling, self.parking)
        self.expiring = Expiring(ledger, lifetimes)
        self.alarms = Alarms(ledger)
        self.alarming = Alarming(ledger, self.fulfilling, self.checking.asking)
        self.ticking = Ticking(
            ledger, self.settling, self.leases, self.clients, self.transactions, self.alarming,
            self.broadcasting,
        )  # fmt: skip
        self._register_timers()
        ledger.views.gone.forget_below(ledger.journal.first)
        self.ticking.start(now_us)
        self.fulfilling.start(now_us)
        self.checking.asking.start(now_us)

    def _register_timers(self) -> None:
        """Fill the table of timers: one line for each kind."""
        timers, ticking = self.timers, self.ticking
        timers.on(Timer.LEASES, ticking.end_leases, timers.arm_leases)
        timers.on(Timer.DUE, ticking.look_for_due)
        timers.on(Timer.SESSION, self.clients.grace_over)
        timers.on(Timer.HOUSEKEEPING, ticking.keep_house)
        timers.on(Timer.PASSED, self.delivery.record_passed)
        timers.on(Timer.DRAIN, self.drains.step)
        timers.on(Timer.FREE, ticking.free)
        timers.on(Timer.FULFIL, self.fulfilling.fulfil, timers.arm_scheduled)
        timers.on(Timer.LOAD, self.fulfilling.load)
        timers.on(Timer.CHECK, self.checking.asking.check)
        timers.on(Timer.ASSIGN, self.membership.assign)
        timers.on(Timer.INSTANCES, self.broadcasting.leave_some)

    @property
    def parked_pulls(self) -> int:
        """Number of pulls that wait for rows."""
        return len(self.parking.waiters)

    # -- sends ------------------------------------------------------------------------------------

    def send(self, now_us: int, topic: str, batch: bytes, queue: int | None = None) -> SendReply:
        """Store a batch; see ``Sending.send``. No session is needed."""
        found = self.views.catalog.topic(topic)
        reply = self.sending.send(now_us, found, batch, queue)
        stored = found.queues[reply.queue]
        if stored.watched and not reply.scheduled:
            self.parking.grew(stored)
        return reply

    def cancel_scheduled(
        self, now_us: int, topic: str, producer: int, sequence: int, *, operator: bool = False
    ) -> DoneReply:
        """Cancel a scheduled message by its message id; see ``Scheduling.cancel``."""
        found = self.views.catalog.topic(topic)
        return self.sending.scheduling.cancel(now_us, found, producer, sequence, operator=operator)

    def cancel_scheduled_id(
        self, now_us: int, topic: str, application_id: str, *, operator: bool = False
    ) -> DoneReply:
        """Cancel a scheduled message by its application id; see ``Scheduling.cancel_id``."""
        found = self.views.catalog.topic(topic)
        return self.sending.scheduling.cancel_id(now_us, found, application_id, operator=operator)

    def take_numbers(
        self, now_us: int, topic: str, count: int, *, reserve: bool = False
    ) -> NumbersReply:
        """Give the next numbers of a topic; see ``Numbering.take``. No session is needed."""
        found = self.views.catalog.topic(topic)
        return self.numbering.take(now_us, found, count, reserve=reserve)

    # -- transactions -----------------------------------------------------------------------------

    def prepare(
        self,
        now_us: int,
        app: str,
        topic: str,
        batch: bytes,
        writer: str,
        batch_id: int,
        part: str = "",
        queue: int | None = None,
    ) -> PrepareReply:
        """Store an invisible batch for a transaction; see ``Preparing.prepare``."""
        found = self.views.catalog.topic(topic)
        return self.preparing.prepare(now_us, app, found, batch, writer, batch_id, part, queue)

    def commit_transaction(
        self, now_us: int, app: str, writer: str, batch_id: int, ids: Sequence[int], digest: int
    ) -> ResolveReply:
        """Make the prepared rows messages; see ``Transactions.commit``."""
        reply = self.transactions.commit(now_us, app, writer, batch_id, ids, digest)
        if not reply.repeated:
            for queue in self.transactions.touched:
                if queue.watched:
                    self.parking.grew(queue)
        return reply

    def abort_transaction(
        self, now_us: int, app: str, writer: str, batch_id: int, *, operator: bool = False
    ) -> ResolveReply:
        """Discard the prepared rows; see ``Transactions.abort``."""
        return self.transactions.abort(now_us, app, writer, batch_id, operator=operator)

    # -- pulls ------------------------------------------------------------------------------------

    def pull(
        self,
        now_us: int,
        session: int,
        topic: str,
        group: str,
        max_messages: int = 32,
        max_bytes: int | None = None,
        queue: int | None = None,
        at_once: int = 0,
        detached_us: int = 0,
    ) -> PullReply | None:
        """Lease the next rows of a topic to a session; None when nothing is available now.

        ``at_once``: number of the group's rows that the session works on at one time; 0: unknown.
        ``detached_us``: length of a lease that belongs to no session: it ends by time or by its
        settles only. 0: the lease belongs to the session, and is as long as the group says.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, UnknownSession, GroupPaused, NotOwner,
            InvalidRequest.
            ModeNotAllowed: the lease is to be detached, and the group's queues belong to members.
            InstanceTaken: the group is a broadcast instance, and the session is not its client.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        subscription = self.views.catalog.subscription(topic, group)
        most = self._check_pull(session, max_messages, max_bytes)
        if subscription.guarded:
            if subscription.spec.paused:
                raise GroupPaused(f"group {group!r} is paused on {topic!r}")
            self.broadcasting.check_client(subscription, session)
            self.membership.check_pull(session, subscription, queue, detached=detached_us > 0)
        queues = subscription.queues
        if queue is None:
            if len(queues) > 1 or subscription.owners is not None:
                return self.delivery.pull_any(
                    now_us, session, subscription, max_messages, most, at_once, detached_us
                )
            queue = 0
        elif not 0 <= queue < len(queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        return self.delivery.pull(
            now_us,
            session,
            subscription,
            subscription.topic.queues[queue],
            queues[queue],
            max_messages,
            most,
            at_once,
            detached_us,
        )

    def _check_pull(self, session: int, max_messages: int, max_bytes: int | None) -> int:
        """Check a pull; return how many bytes it may get."""
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

    def park(
        self,
        session: int,
        topic: str,
        group: str,
        max_messages: int,
        max_bytes: int,
        deadline_us: int,
        at_once: int = 0,
        detached_us: int = 0,
        *,
        brief: bool = False,
    ) -> int:
        """Let a pull that found nothing wait; return its token. ``woken_pulls`` answers it.

        A brief one does not wait for new rows: see ``Parking.park``.

        Raises:
            UnknownTopic, UnknownGroup, UnknownSession, InvalidRequest.
            Busy: too many parked pulls.
        """
        subscription = self.views.catalog.subscription(topic, group)
        most = self._check_pull(session, max_messages, max_bytes)
        return self.parking.park(
            session,
            subscription,
            max_messages,
            most,
            deadline_us,
            at_once,
            detached_us,
            brief=brief,
        )

    def pull_stopped(self) -> bool:
        """Return whether a pull ended before it had looked at all rows, since the last call."""
        wakes = self.ledger.wakes
        stopped, wakes.stopped = wakes.stopped, False
        return stopped

    def cancel(self, token: int) -> Woken | None:
        """Give up a parked pull; see ``Parking.cancel``."""
        return self.parking.cancel(token)

    def committed(self) -> None:
        """Wake parked pulls for the rows below the commit mark, which has moved.

        Questions to checkers whose records are below it leave, too.
        """
        self.parking.committed()
        if self.checking.asking.unsent:
            self.checking.committed()

    def woken_pulls(self, now_us: int) -> list[Woken]:
        """Return the parked pulls that are over, the oldest of each group first.

        Raises:
            WouldBlock: see ``Parking.over``.
        """
        return self.parking.over(now_us)

    # -- settles ----------------------------------------------------------------------------------

    def settle(self, now_us: int, session: int, asked: bodies.Settle) -> SettleReply:
        """Record the outcome of rows; see ``Settling.settle``.

        Raises:
            LeaseExpired, UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        subscription = self.views.catalog.subscription(asked.topic, asked.group)
        if not 0 <= asked.queue < len(subscription.queues):
            raise UnknownQueue(f"topic {asked.topic!r} has no queue {asked.queue}")
        if not asked.epoch:  # the rows of a transaction: only its decision ends that
            raise LeaseExpired(f"lease 0.{asked.lease} of {asked.group} is no lease of a consumer")
        return self.settling.settle(now_us, session, subscription, asked)

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
        """Extend a lease to ``seconds_us`` from now; never shorten it.

        Raises:
            LeaseExpired, UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        subscription = self.views.catalog.subscription(topic, group)
        if not 0 <= queue < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        if not epoch:
            raise LeaseExpired(f"lease 0.{lease} of {group} is no lease of a consumer")
        if not 0 <= seconds_us <= LONGEST_US:
            raise InvalidRequest("a lease lasts at most two years")
        return DoneReply(
            self.leases.extend(
                now_us, session, subscription.queues[queue], epoch, lease, now_us + seconds_us
            )
        )

    # -- time and the journal ---------------------------------------------------------------------

    def next_deadline_us(self) -> int | None:
        """Return when ``tick`` or ``woken_pulls`` has something to do, or None; 0 means now."""
        pulls, timer = self.parking.next_us(), self.timers.next_us()
        if pulls is None or timer is None:
            return timer if pulls is None else pulls
        return min(pulls, timer)

    def tick(self, now_us: int) -> bool:
        """Do a bounded piece of what is due; return whether more is due now.

        The figures of all groups are brought up to date.
        """
        self.views.figures.settle()
        return self.ticking.tick(now_us)

    def refusal_rests_on(self, error: RefusedError) -> int:
        """Return the position that a refusal depends on; 0 if it may go out at once.

        The reason of a refusal may be a fact that is not durable yet (a lease that ended, a topic
        that was deleted), so the refusal waits for everything decided so far, unless it follows
        from the request alone or from a limit.
        """
        if isinstance(error, InvalidRequest | Busy | DiskFull | ReadOnly | StrictNeedsReplica):
            return 0
        return self.journal.end

    def close(self, now_us: int) -> None:
        """Stop cleanly; blocks on the disk. See ``StateSets.close``."""
        self.state_sets.close(now_us)


__all__ = ["Broker", "LeaseExpired", "Woken"]
