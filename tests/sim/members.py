"""Members of groups whose queues belong to members, and what must hold of the owners at each step.

What members were told is kept here, and nothing of the broker's: no two members hold the same
queue, a pull gets rows of a queue that its member holds, the shares are equal and in time, and no
more queues change hands than must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ternmq.broker.gate.replies import PullReply, Reply
from ternmq.broker.operation.membership import Assigned
from ternmq.model.errors import NotOwner, TernMQError
from ternmq.model.specs import Mode
from tests.sim.consumers import Consumer
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

ALLOWED_US = 15_000
"""Longest time from a change of the members until the queues are theirs."""
LATE_US = 20_000
"""Time in which what is due happens."""


class Members:
    """The members of one group of a topic, in the order in which they joined."""

    def __init__(self, world: World, topic: str, group: str, queues: int, mode: Mode) -> None:
        self.world = world
        self.topic = topic
        self.group = group
        self.queues = queues
        self.mode = mode
        self.told: dict[int, set[int]] = {}
        self.owners = [0] * queues
        """What was told before the last change, by queue; 0 also where its owner has left."""
        self.changed_us: int | None = None
        """Since when the members are others than those that own the queues."""
        world.restart_hooks.insert(0, self.restarted)
        world.wake_hooks.append(self.look)

    def restarted(self) -> None:
        """Nobody is a member of a broker that has just started."""
        self.told.clear()
        self.owners = [0] * self.queues
        self.changed_us = None
        self._tells = self.world.broker.membership.tell
        self.world.broker.membership.tell = self.tell

    def tell(self, assigned: Assigned) -> None:
        """Take what a member is told."""
        self._tells(assigned)  # that of another group
        if (assigned.topic, assigned.group) != (self.topic, self.group):
            return
        if assigned.session not in self.told:
            raise Violation(f"session {assigned.session} was told its queues, and is no member")
        self._forget_the_gone()
        self.told[assigned.session] = set(assigned.queues)
        if sum(map(len, self.told.values())) == self.queues and self.balanced():
            now = self._owners()  # the last one that is told of this assignment
            self._check_moves(now)
            self.owners = now

    def joined(self, session: int) -> None:
        """Note a member that joins; it may be told its queues at once."""
        if session not in self.told:
            self.told[session] = set()
            self._note_change()

    def left(self, session: int) -> None:
        """Note that a member left, and is not one any more."""
        if session in self.told:
            del self.told[session]
            self.owners = [0 if one == session else one for one in self.owners]
            self._note_change()

    def _note_change(self) -> None:
        if self.changed_us is None:
            self.changed_us = self.world.now_us()

    def look(self) -> None:
        """Check what holds at each moment, and what must have happened by now.

        Raises:
            Violation: It does not.
        """
        self._forget_the_gone()
        now = self.owners = self._owners()
        if self.balanced():
            self.changed_us = None
        elif self.changed_us is not None:
            late = self.world.now_us() - max(self.changed_us, self.world.leapt_us)
            if late > ALLOWED_US + LATE_US:
                raise Violation(f"after {late} us the owners are {now} of {list(self.told)}")
        else:
            self.changed_us = self.world.now_us()

    def _forget_the_gone(self) -> None:
        sessions = self.world.broker.views.sessions.by_number
        for session in [one for one in self.told if one not in sessions]:
            self.left(session)

    def _owners(self) -> list[int]:
        owners = [0] * self.queues
        for session, queues in self.told.items():
            for queue in queues:
                if owners[queue]:
                    raise Violation(f"queue {queue} belongs to {owners[queue]} and {session}")
                owners[queue] = session
        return owners

    def _on(self) -> list[int]:
        """Return the members that are not switched off, in the order in which they joined."""
        broker = self.world.broker
        off = broker.views.catalog.subscription(self.topic, self.group).spec.offline
        sessions = broker.views.sessions.by_number
        return [
            one for one in self.told if one in sessions and sessions[one].info.client not in off
        ]

    @property
    def anyone(self) -> bool:
        """Whether a member is not switched off."""
        return bool(self._on())

    def balanced(self) -> bool:
        """Return whether all queues belong to members that are on, to each as many as is right."""
        there = self._on()
        if any(queues for one, queues in self.told.items() if one not in there):
            return False
        if not there:
            return True
        shares = sorted(len(self.told[one]) for one in there)
        if self.mode is Mode.EXCLUSIVE:
            return self.told[there[0]] == set(range(self.queues))
        return sum(shares) == self.queues and shares[-1] - shares[0] <= 1

    def _check_moves(self, now: list[int]) -> None:
        """No more queues left members that are still there than their new share is smaller."""
        there = self._on()
        if self.mode is Mode.EXCLUSIVE or not there:
            return
        had = sorted([self.owners.count(one) for one in there], reverse=True)
        quota, extra = divmod(self.queues, len(there))
        must = sum(max(0, held - quota - (at < extra)) for at, held in enumerate(had))
        moved = sum(
            before in there and before != after
            for before, after in zip(self.owners, now, strict=True)
        )
        if moved > must:
            raise Violation(f"{moved} queues changed hands: {self.owners} to {now}, not {must}")
        if moved:
            self.world.reached("a queue changed hands")

    def check_pull(self, session: int, reply: PullReply) -> None:
        """Check that a pull got rows of a queue of its member.

        Raises:
            Violation: It did not.
        """
        if reply.queue not in self.told.get(session, ()):
            raise Violation(
                f"session {session} got rows of queue {reply.queue}, and owns "
                f"{self.told.get(session)}"
            )


class Switch:
    """An operator who switches members off, and on again."""

    def __init__(self, world: World, members: Members, *, every_us: int) -> None:
        self.world = world
        self.members = members
        self.every_us = every_us
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        world, members = self.world, self.members
        broker = world.broker
        spec = broker.views.catalog.subscription(members.topic, members.group).spec
        sessions = broker.views.sessions.by_number
        names = sorted({sessions[one].info.client for one in members.told if one in sessions})
        off = () if spec.offline or not names else (world.chance.choice(names),)
        changed = msgspec.structs.replace(spec, offline=off)
        reply = world.command(
            lambda: broker.administration.change_subscription(
                world.now_us(), members.topic, members.group, changed
            )
        )
        if isinstance(reply, TernMQError):
            return
        world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
        members.look()
        if not members.balanced():
            raise Violation(f"{off} is switched off, the owners are {members.owners}")
        world.reached("a member was switched off" if off else "a member was switched on")


class MemberConsumer(Consumer):
    """A consumer that is a member of its group, leaves it now and then, and joins again."""

    def __init__(self, world: World, members: Members, name: str, **more: float) -> None:
        super().__init__(world, members.topic, members.group, name, **more)  # type: ignore[arg-type]
        self.members = members

    def _joined(self, reply: Reply) -> None:
        super()._joined(reply)
        self._become_member()

    def _become_member(self) -> None:
        world, session = self.world, self.session
        found = world.broker.views.catalog.subscription(self.topic, self.group)
        if session is None or session not in world.broker.views.sessions.by_number:
            return
        self.members.joined(session)
        world.command(lambda: world.broker.membership.join(world.now_us(), session, found))
        self.members.look()

    def _pull(self) -> None:
        world, session = self.world, self.session
        assert session is not None
        if world.chance.random() < 0.06:
            found = world.broker.views.catalog.subscription(self.topic, self.group)
            if session in world.broker.views.sessions.by_number:
                member = session in self.members.told
                self.members.left(session)
                world.command(lambda: world.broker.membership.leave(world.now_us(), session, found))
                if self.token is not None and self.token in world.broker.parking.waiters:
                    raise Violation(f"session {session} left, and a pull of it waits")
                self.members.look()
                if member and self.members.anyone and 0 in self.members.owners:
                    raise Violation(f"a member left: nobody owns all of {self.members.owners}")
                world.reached("a member left its group")
        elif session not in self.members.told:
            refused = world.command(
                lambda: world.broker.pull(world.now_us(), session, self.topic, self.group)
            )
            if isinstance(refused, TernMQError):
                if isinstance(refused, NotOwner):
                    world.reached("pull of one that is no member")
                    self._become_member()
                else:
                    self._forget()
            else:
                raise Violation(f"session {session} is no member, and its pull is not refused")
        else:
            super()._pull()

    def _handed(self, reply: PullReply) -> None:
        assert self.session is not None
        self.members.check_pull(self.session, reply)
        super()._handed(reply)


class Joiner(Consumer):
    """A consumer that becomes a member whenever the queues of its group belong to members."""

    def _pull(self) -> None:
        world, session = self.world, self.session
        assert session is not None
        broker = world.broker
        found = broker.views.catalog.subscription(self.topic, self.group)
        there = session in broker.views.sessions.by_number
        if there and found.owners is not None and session not in found.owners.members:
            world.command(lambda: broker.membership.join(world.now_us(), session, found))
        super()._pull()
