"""Who is a member of a group whose queues belong to members, and when they are assigned again.

A session becomes a member when it joins (GROUP_JOIN), and is one until it leaves (GROUP_LEAVE) or
ends, or its app may not consume any more. The queues are assigned again a second after the last
change of the members, at most three seconds after the first one; at once if a member leaves or no
queue has an owner. Times are those of the broker, so it is deterministic. No record is written: the
lock of a queue, which is recorded, keeps its order while it changes hands, and after a start of the
broker the clients join again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.catalog.owners import NEVER, GroupMember, Owners
from ternmq.broker.catalog.sessions import Session
from ternmq.broker.clock.timers import Timer
from ternmq.broker.delivery.allowance import switched_off
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation import assigner
from ternmq.model.errors import Busy, ModeNotAllowed, NotOwner, UnknownSession
from ternmq.model.specs import Mode
from ternmq.model.types import SECOND_US
from ternmq.wire.control.connection import short_name

SETTLED_US: Final = SECOND_US
LONGEST_US: Final = 3 * SECOND_US
MEMBERSHIPS: Final = 1000
"""Most groups that a session is a member of."""
_FEW: Final = 8
"""Groups of a session that ends whose queues are assigned at once; those of more, in pieces."""
_ASSIGN_WORK: Final = 16
"""Queues and members that count as one unit of work."""
_ASSIGN_BASE: Final = 8
"""Units of work of each group, whatever its size."""


class Assigned(NamedTuple):
    """A member that is to hear which queues it owns now."""

    session: int
    topic: str
    group: str
    queues: tuple[int, ...]


class Membership:
    """Members of groups whose queues belong to members.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        tell: Called with each member whose queues have changed; the shell sets it.
        settled_us: Time without a change of the members after which the queues are assigned.
        longest_us: Longest time from a change of the members until the queues are assigned.
    """

    __slots__ = (
        "_catalog",
        "_ledger",
        "_parking",
        "_sessions",
        "_timers",
        "longest_us",
        "settled_us",
        "tell",
    )

    def __init__(self, ledger: Ledger, parking: Parking) -> None:
        self._ledger = ledger
        self._catalog = ledger.views.catalog
        self._sessions = ledger.views.sessions
        self._timers = ledger.timers
        self._parking = parking
        self.settled_us, self.longest_us = SETTLED_US, LONGEST_US
        self.tell: Callable[[Assigned], None] = lambda _: None

    # -- coming and going -------------------------------------------------------------------------

    def join(self, now_us: int, number: int, subscription: Subscription, name: str = "") -> None:
        """Make a session a member of a group, if queues of the group belong to members.

        A session that is a member already is told its queues again. ``name`` is what configured
        assignments compare; empty: the beginning of the client's name.

        Raises:
            UnknownSession.
            Busy: The session is a member of too many groups.
        """
        owners = subscription.owners
        if owners is None:
            return
        if number in owners.members:
            self._tell(subscription, owners, number)
            return
        session = self._session(number)
        if len(session.memberships) >= MEMBERSHIPS:
            known = self._catalog.groups
            for group in [one for one in session.memberships if one not in known]:
                del session.memberships[group]
            if len(session.memberships) >= MEMBERSHIPS:
                raise Busy(f"this client is a member of {MEMBERSHIPS} groups")
        session.memberships[subscription.group] = None
        owners.members[number] = GroupMember(name, short_name(session.info.client))
        self._changed(now_us, subscription, owners, at_once=not owners.held)

    def leave(self, now_us: int, number: int, subscription: Subscription) -> None:
        """End a membership, if there is one: its queues are assigned to others at once.

        Pulls of the session that wait for the group end without rows. Its leases do not end: the
        client settles them, or gives them back.

        Raises:
            UnknownSession.
        """
        session = self._session(number)
        owners = subscription.owners
        session.memberships.pop(subscription.group, None)
        if owners is not None and owners.leave(number):
            self._parking.dismiss_session(subscription, number)
            self._changed(now_us, subscription, owners, at_once=True)

    def check_rights(self, now_us: int, app: str, may: Callable[[str, str], bool]) -> None:
        """End the memberships of an app's sessions in groups that it may not consume any more.

        O(sessions). ``may`` is called with the topic and the group.
        """
        for session in self._sessions.by_number.values():
            if not session.memberships or session.info.app != app:
                continue
            for group in list(session.memberships):
                known = self._catalog.groups.get(group)
                if known is not None and not may(known.topic.name, known.name):
                    self.leave(now_us, session.number, known)

    def session_over(self, now_us: int, session: Session, *, clean: bool) -> None:
        """End the memberships of a session that ends; ``clean``: its client said so.

        If these are many, the queues are assigned by the timers of the groups, in pieces.
        """
        few = len(session.memberships) <= _FEW
        for group in session.memberships:
            subscription = self._catalog.groups.get(group)
            if subscription is None or subscription.owners is None:
                continue
            owners = subscription.owners
            if owners.leave(session.number):
                at_once = clean or not owners.held
                if at_once and not few:
                    self._arm(now_us, subscription, owners, now_us)
                else:
                    self._changed(now_us, subscription, owners, at_once=at_once)
        session.memberships.clear()

    def group_changed(self, subscription: Subscription) -> None:
        """Assign the queues again: the settings of the group, or the queues of the topic, changed.

        If the group has no members, the pulls that wait end without rows: their clients join.
        """
        owners = subscription.owners
        if owners is not None:
            self._assign(subscription, owners)
            if not owners.members:
                self._parking.dismiss(subscription)

    def check_pull(
        self, number: int, subscription: Subscription, queue: int | None, *, detached: bool = False
    ) -> None:
        """Refuse a pull of a session that is no member, or of a queue that is another's.

        Raises:
            NotOwner.
            ModeNotAllowed: The lease would belong to no session (``detached``).
        """
        owners = subscription.owners
        name, topic = subscription.name, subscription.topic.name
        if detached and subscription.spec.instance is not None:
            raise ModeNotAllowed("a lease of a broadcast instance cannot be detached")
        if owners is None:
            return
        if detached:
            raise ModeNotAllowed(
                f"queues of topic {topic!r} belong to members of group {name!r}: a lease there "
                "belongs to a session, and cannot be detached"
            )
        if number not in owners.members:
            raise NotOwner(f"this client is no member of group {name!r} on topic {topic!r}")
        if queue is not None and owners.owner(queue) != number:
            raise NotOwner(
                f"queue {queue} of topic {topic!r} does not belong to this member of group {name!r}"
            )

    def _session(self, number: int) -> Session:
        session = self._sessions.by_number.get(number)
        if session is None:
            raise UnknownSession(f"no session {number}")
        return session

    # -- assigning --------------------------------------------------------------------------------

    def _changed(
        self, now_us: int, subscription: Subscription, owners: Owners, *, at_once: bool
    ) -> None:
        if at_once:
            self._assign(subscription, owners)
            return
        since_us = now_us if owners.since_us == NEVER else owners.since_us
        at_us = min(now_us + self.settled_us, since_us + self.longest_us)
        self._arm(now_us, subscription, owners, at_us)

    def _arm(self, now_us: int, subscription: Subscription, owners: Owners, at_us: int) -> None:
        """Have the queues of a group assigned at a time, because its members changed."""
        self._catalog.joined.note(subscription.group, owners)
        if owners.since_us == NEVER:
            owners.since_us = now_us
        owners.armed_us = at_us
        self._timers.set(at_us, Timer.ASSIGN, subscription)

    def assign(self, now_us: int, due_us: int, subscription: Subscription, budget: int) -> int:
        """Assign the queues of a group, if it is time (timer ASSIGN); return the work units."""
        del now_us, budget
        owners = subscription.owners
        if owners is None or due_us != owners.armed_us:
            return 0
        if self._catalog.groups.get(subscription.group) is not subscription:
            return 0
        self._assign(subscription, owners)
        return _ASSIGN_BASE + (len(owners.of) + len(owners.members)) // _ASSIGN_WORK

    def _assign(self, subscription: Subscription, owners: Owners) -> None:
        unsaid = owners.assign(self._owners(subscription, owners))
        self._catalog.joined.note(subscription.group, owners)
        for session in unsaid:
            self._tell(subscription, owners, session)
        self._ledger.wakes.wake(subscription)

    def _tell(self, subscription: Subscription, owners: Owners, session: int) -> None:
        queues = tuple(owners.members[session].queues)
        self.tell(Assigned(session, subscription.topic.name, subscription.name, queues))

    def _owners(self, subscription: Subscription, owners: Owners) -> list[int]:
        """Return the owner of each queue; a member that is switched off owns none."""
        count, spec, members = len(subscription.queues), subscription.spec, owners.members
        there = list(members)
        if spec.offline:
            there = [
                one for one in there if not switched_off(self._ledger.views, subscription, one)
            ]
        if spec.mode is Mode.EXCLUSIVE:
            return assigner.exclusive(count, there)
        if spec.assign:
            names = {number: members[number].name for number in there}
            return assigner.configured(count, names, spec.assign)
        return assigner.average(count, there, owners.of)
