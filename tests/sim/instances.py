"""Broadcast instances: each gets every row stored since it came, and nothing of it comes again.

B1: what fails in an instance is done; a lease that ends gives its rows back, and counts nothing.
B2: only the client that has joined as an instance gets its rows. B3: one begins at latest; one with
a name stays until its client was gone for ``instance_kept_us``, one without goes with its session.
B4: no instance keeps the journal. No row of one is passed over while the journal has it: that is
checked for all groups alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ternmq.record.fact import control
from ternmq.record.fact.facts import Cause, Outcome, Settled
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from ternmq.journal.log.scan import RawRecord
    from tests.sim.reference import Reference

LATE_US: Final = 3_000_000
"""How much later than it may be an instance is removed: it is looked at once a second."""


class RefInstances:
    """What the journal says of broadcast instances."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self.instance_kept_us = 0
        """How long one with a name is kept."""
        self.ended_us: dict[int, int] = {}
        """When sessions ended."""

    def config(self, record: RawRecord, change: object) -> None:
        """An instance comes, has another client, or goes.

        Raises:
            Violation: It must not.
        """
        reference = self._reference
        where = f"CONFIG at {record.position}"
        if isinstance(change, control.Subscribed) and change.spec.instance is not None:
            queues = reference.topics[change.topic].queues
            if change.cursors != [len(queue) for queue in queues]:
                raise Violation(f"{where}: {change.group_name} begins at {change.cursors}")
            reference.count("instance made")
        elif isinstance(change, control.SubscriptionChanged) and change.spec.instance is not None:
            if change.spec.instance.session not in {0, *reference.sessions}:
                raise Violation(f"{where}: an instance of a session that has ended")
        elif isinstance(change, control.Unsubscribed):
            self._gone(where, record, change)

    def _gone(self, where: str, record: RawRecord, change: control.Unsubscribed) -> None:
        one = self._reference.topics[change.topic].subscriptions[change.group]
        has = one.spec.instance
        if has is None:
            return
        if has.session in self._reference.sessions:
            raise Violation(f"{where}: {one.name} goes, and session {has.session} is there")
        if not has.named:
            self._reference.count("instance gone with its session")
            return
        if has.session:
            raise Violation(f"{where}: {one.name} goes, nobody said that its client left")
        if record.time_us - has.seen_us < self.instance_kept_us:
            raise Violation(f"{where}: {one.name} goes early")
        self._reference.count("forgotten instance removed")

    def settled(self, where: str, fact: Settled, *, ended: bool) -> None:
        """Rows were settled, or their lease ended.

        Raises:
            Violation: It may not have that outcome.
        """
        one = self._reference.topics[fact.topic].subscriptions[fact.group]
        if one.spec.instance is None:
            if fact.cause is Cause.FAILED:
                raise Violation(f"{where}: cause FAILED in a group")
            return
        if fact.outcome not in (Outcome.DONE, Outcome.RELEASED):
            raise Violation(f"{where}: a row of an instance is {fact.outcome.name}")
        if ended and fact.outcome is not Outcome.RELEASED:
            raise Violation(f"{where}: a lease of an instance ends, and its rows are done")
        if fact.cause is Cause.FAILED:
            if not fact.reason or fact.outcome is not Outcome.DONE:
                raise Violation(f"{where}: a failure of an instance without its reason")
            self._reference.count("failure of an instance")
        elif ended:
            self._reference.count("rows of an instance given back")

    def pulled(self, where: str, group: int, topic: int, session: int) -> None:
        """Rows were handed out.

        Raises:
            Violation: The session is not the instance's client.
        """
        has = self._reference.topics[topic].subscriptions[group].spec.instance
        if has is not None and has.session != session:
            raise Violation(f"{where}: session {session} has an instance of {has.session}")

    def known(self) -> list[int]:
        """Return the numbers of all instances."""
        return sorted(
            group
            for topic in self._reference.topics.values()
            for group, one in topic.subscriptions.items()
            if one.spec.instance is not None
        )

    def check_late(self, now_us: int, leapt_us: int) -> None:
        """No instance is there long after it should be gone.

        Args:
            now_us: Broker time.
            leapt_us: When it last leapt: until then, no broker ran.

        Raises:
            Violation: One is.
        """
        for topic in self._reference.topics.values():
            for one in topic.subscriptions.values():
                has = one.spec.instance
                if has is None or has.session in self._reference.sessions:
                    continue
                kept_us = self.instance_kept_us if has.named else 0
                last_us = max(has.seen_us, self.ended_us.get(has.session, 0), leapt_us)
                if now_us - last_us > kept_us + LATE_US:
                    raise Violation(f"instance {one.name} is there {now_us - last_us} us later")
