"""Decides about broadcast instances: how they come, which client they are, and when they are gone.

An instance is a group of mode broadcast on one topic. One with a name stays for the limit
``instance_kept_us`` after its client left; one without a name is named by the session of its
client, and goes with it. A client that joins takes the instance over, unless another client that
has it is connected.

When a client was last there is recorded when it joins, when it leaves, and once a day between.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.clock.timers import Timer
from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN, Leases
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.gate.replies import ValueReply
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation.administration import Administration
from ternmq.broker.operation.drains import Drains
from ternmq.model.errors import Busy, InstanceTaken, UnknownSession
from ternmq.model.specs import (
    INSTANCE_GROUPS,
    Expired,
    Instance,
    Mode,
    RetryPolicy,
    Start,
    SubscriptionSpec,
    TopicSpec,
    instance_group,
)
from ternmq.model.types import DAY_US
from ternmq.record.fact import control
from ternmq.record.fact.facts import Cause
from ternmq.wire.control.connection import short_name

LOOKS: Final = 500
"""Instances looked at in a second; so a round over all of them takes up to 20 seconds."""
_GONE_WORK: Final = 6
"""Work units of an instance that goes or leaves, besides its queues."""


class InstanceAsked(NamedTuple):
    """The settings that a client states for its instance; None: as they are, or the defaults."""

    tags: str | None = None
    filter: str | None = None
    lease_us: int | None = None


class JoinedInstance(NamedTuple):
    """An instance that a client has joined."""

    subscription: Subscription
    created: bool


class Broadcasting:
    """Decides about broadcast instances.

    Not thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and what is computed from it.
        leases: Ends the leases of a client that was replaced.
        drains: Ends those for which one turn does not suffice.
        administration: Makes, changes and removes groups.
        parking: Ends the pulls that wait for an instance that is removed.
        now_us: Broker time of the start.

    Attributes:
        removed: Instances with a name that were removed since the start, because their client had
            not been there for ``instance_kept_us``.
        work_a_turn: Work units of a join that ends the leases of a former client; a drain ends the
            rest.
    """

    __slots__ = (
        "_administration", "_drains", "_last", "_leases", "_leaving", "_ledger", "_limits",
        "_parking", "_spared_until_us", "_views", "removed", "work_a_turn",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger,
        leases: Leases,
        drains: Drains,
        administration: Administration,
        parking: Parking,
        now_us: int,
    ) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._limits = ledger.limits
        self._leases = leases
        self._drains = drains
        self._administration = administration
        self._parking = parking
        self._last = 0
        """The instance that ``step`` looked at last."""
        self._leaving: deque[int] = deque()
        """Volatile: groups whose client's session has ended."""
        self._spared_until_us = now_us + ledger.limits.session_grace_us
        """No instance is removed before: after a start its client may come back."""
        self.removed = 0
        self.work_a_turn = ENDED_ROWS_A_TURN

    # -- coming -----------------------------------------------------------------------------------

    def join(
        self, now_us: int, session: int, topic_name: str, instance: str, asked: InstanceAsked
    ) -> ValueReply[JoinedInstance]:
        """Let a client be an instance; it is made if it is missing, and begins at latest.

        Args:
            now_us: Broker time.
            session: The client's session.
            topic_name: The topic.
            instance: Name of the instance; empty: that of this session.
            asked: Settings of the instance. They replace those that it has.

        Raises:
            UnknownTopic, UnknownSession, InvalidRequest, InvalidFilter.
            InstanceTaken: Another client that is connected is the instance.
            Busy: There are too many instances.
        """
        topic = self._views.catalog.topic(topic_name)
        if session not in self._views.sessions.by_number:
            raise UnknownSession(f"no session {session}")
        group = instance_group(instance, session)
        known = topic.by_group.get(group)
        if known is not None:
            position = self._take(now_us, session, known, asked)
            return ValueReply(position, value=JoinedInstance(known, created=False))
        self._check_room()
        spec = _new(now_us, session, instance, asked)
        reply = self._administration.make_group(now_us, topic, group, spec)
        made = topic.by_group[group]
        return ValueReply(reply.position, value=JoinedInstance(made, created=True))

    def check_new(
        self, now_us: int, session: int, topic: TopicSpec, instance: str, asked: InstanceAsked
    ) -> None:
        """Refuse what ``join`` would refuse on a topic that does not exist yet.

        Args:
            now_us: Broker time.
            session: The client's session.
            topic: The settings that the topic would have.
            instance: Name of the instance; empty: that of this session.
            asked: Settings of the instance.

        Raises:
            InvalidRequest, InvalidFilter.
            Busy: There are too many instances, or the topic has more queues than there is room for.
        """
        self._check_room()
        spec = _new(now_us, session, instance, asked)
        self._administration.check_new_group(topic, instance_group(instance, session), spec)
        self._administration.check_places(1, topic.queue_count)

    def _check_room(self) -> None:
        if len(self._views.catalog.instances) >= self._limits.instances:
            raise Busy(
                f"there are {self._limits.instances} broadcast instances: `limits.instances`"
            )

    def _take(self, now_us: int, session: int, known: Subscription, asked: InstanceAsked) -> int:
        """Let a client be an instance that exists; return the position that this depends on."""
        has = known.spec.instance
        assert has is not None
        self.check_free(known, session)
        now = Instance(named=has.named, session=session, seen_us=now_us)
        spec = _with(msgspec.structs.replace(known.spec, instance=now), asked)
        if has.session == session and msgspec.structs.replace(spec, instance=has) == known.spec:
            return self._ledger.journal.end
        # Before the leases end: a refused join leaves the former client what it holds.
        self._administration.check_new_group(known.topic.spec, known.name, spec)
        # Of a session that has ended, what it held is given back in any case.
        if has.session != session and has.session in self._views.sessions.by_number:
            self._end_leases(now_us, known, has.session)
        return self._change(now_us, known, spec)

    def _end_leases(self, now_us: int, known: Subscription, session: int) -> None:
        """Give back what the former client of an instance holds: some now, the rest in pieces."""
        queues = [one for one in self._views.figures.leased_to(session) if one.group == known.group]
        left, budget = deque(queues), self.work_a_turn
        while left and budget > 0:
            ended = self._leases.end(now_us, known, left[0], Cause.SESSION, session, budget)
            budget -= ended.work
            if not ended.more:
                left.popleft()
        if left:
            self._drains.begin_of(now_us, session, left)

    def check_free(self, subscription: Subscription, session: int) -> None:
        """Refuse a client of an instance that another client is; O(1).

        Raises:
            InstanceTaken: Another client that is connected is the instance.
        """
        has = subscription.spec.instance
        if has is None or has.session == session:
            return
        other = self._views.sessions.by_number.get(has.session)
        if other is not None and other.connected:
            name, topic = shown_instance(subscription.name), subscription.topic.name
            client = short_name(other.info.client)
            raise InstanceTaken(
                f"instance {name!r} of topic {topic!r} is client {client!r}, which is connected"
            )

    def check_client(self, subscription: Subscription, session: int) -> None:
        """Refuse a pull of an instance by a session that is not its client.

        Raises:
            InstanceTaken: Another client has joined as the instance, or none.
        """
        has = subscription.spec.instance
        if has is not None and has.session != session:
            name, topic = shown_instance(subscription.name), subscription.topic.name
            raise InstanceTaken(f"another client is instance {name!r} of topic {topic!r}")

    # -- going ------------------------------------------------------------------------------------

    def session_ended(self, now_us: int, session: int) -> None:
        """Note that a session has ended: its instances leave, in pieces."""
        groups = self._views.catalog.instances.of_session(session)
        if groups:
            if not self._leaving:
                self._ledger.timers.set(now_us, Timer.INSTANCES)
            self._leaving += groups

    def leave_some(self, now_us: int, when_us: int, owner: None, budget: int) -> int:
        """Let some instances leave whose session has ended (timer INSTANCES)."""
        del when_us, owner
        work = 0
        while self._leaving and work < budget:
            work += self._look(now_us, self._leaving[0])  # first: it may find no room
            self._leaving.popleft()
        if self._leaving:
            self._ledger.timers.set(now_us, Timer.INSTANCES)
        return work

    def step(self, now_us: int) -> int:
        """Look at some instances, once a second; return the work units."""
        instances = self._views.catalog.instances
        if not len(instances):
            return 0
        some = list(islice(instances.behind(self._last), LOOKS))
        work = 0
        for group in some:
            work += self._look(now_us, group)
            self._last = group
        if len(some) < LOOKS:
            self._last = 0
        return work + (len(some) >> 5)

    def _look(self, now_us: int, group: int) -> int:
        """Record that a client is still there, or that it left; or remove the instance."""
        known = self._views.catalog.groups.get(group)
        has = None if known is None else known.spec.instance
        if known is None or has is None:
            return 0
        if has.session in self._views.sessions.by_number:
            if now_us - has.seen_us < DAY_US:
                return 0
            self._seen(now_us, known, has, has.session)
        elif not has.named:
            self._remove(now_us, known)
        elif has.session:
            self._seen(now_us, known, has, 0)
        elif (
            now_us - has.seen_us >= self._limits.instance_kept_us
            and now_us >= self._spared_until_us
        ):
            self._remove(now_us, known)
            self.removed += 1
        else:
            return 0
        return _GONE_WORK + len(known.queues)

    def _seen(self, now_us: int, known: Subscription, has: Instance, session: int) -> None:
        instance = Instance(named=has.named, session=session, seen_us=now_us)
        self._change(now_us, known, msgspec.structs.replace(known.spec, instance=instance))

    def _change(self, now_us: int, known: Subscription, spec: SubscriptionSpec) -> int:
        change = control.SubscriptionChanged(known.group, known.topic.number, spec)
        return self._administration.record(now_us, change).position

    def _remove(self, now_us: int, known: Subscription) -> None:
        self._parking.dismiss(known)
        self._administration.record(now_us, control.Unsubscribed(known.group, known.topic.number))


def _new(now_us: int, session: int, instance: str, asked: InstanceAsked) -> SubscriptionSpec:
    """Return the settings of a new instance: those that are stated, and defaults for the others."""
    spec = SubscriptionSpec(
        mode=Mode.BROADCAST,
        start=Start.LATEST,
        expired=Expired.DROP,
        retry=RetryPolicy(enabled=False),
        instance=Instance(named=bool(instance), session=session, seen_us=now_us),
    )
    return _with(spec, asked)


def _with(spec: SubscriptionSpec, asked: InstanceAsked) -> SubscriptionSpec:
    """Return settings with those that are stated."""
    stated = {name: value for name, value in asked._asdict().items() if value is not None}
    return msgspec.structs.replace(spec, **stated)


def shown_instance(group: str) -> str:
    """Return the name of the instance of a group, as users gave it."""
    return group[len(INSTANCE_GROUPS[0]) :]
