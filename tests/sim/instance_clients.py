"""Clients that are broadcast instances, and one that looks at all instances; see ``instances``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ternmq.broker.clock.timers import Timer
from ternmq.broker.gate.replies import Reply, ValueReply
from ternmq.broker.operation.broadcasting import InstanceAsked, JoinedInstance
from ternmq.journal.log.retention import Pin
from ternmq.model.errors import InstanceTaken, TernMQError, UnknownSession
from ternmq.model.specs import instance_group
from tests.sim.consumers import Consumer, Held
from tests.sim.tape import Violation

if TYPE_CHECKING:
    import random

    from tests.sim.world import World


class InstanceClient(Consumer):
    """A client that is an instance: the same after each restart, or a new one each time."""

    def __init__(
        self, world: World, topic: str, name: str, instance: str, *, rivals: dict[str, str],
        fail: float = 0.4, vanish: float = 0.12,
    ) -> None:  # fmt: skip
        super().__init__(world, topic, "", name, fail=fail, vanish=vanish)
        self.instance = instance
        self.rivals = rivals
        """Instance -> the client that is connected as it."""
        self.late: tuple[int, str] | None = None
        """Session and group of a client that comes back later, when another may be the instance."""

    def _joined(self, reply: Reply) -> None:
        super()._joined(reply)
        self.group = ""

    def _forget(self) -> None:
        super()._forget()
        self._let_go()

    def _let_go(self) -> None:
        if self.rivals.get(self.instance) == self.name:
            del self.rivals[self.instance]

    def restarted(self) -> None:
        self._let_go()
        self.group = ""
        super().restarted()

    def _go(self, chance: random.Random) -> None:
        self._let_go()
        session, group = self.session, self.group
        super()._go(chance)
        if self.session is None and session is not None and group:
            self.late = session, group
        self.group = ""

    def _settle(self, held: Held, *, by_name: bool = False, whole: bool = False) -> None:
        with self._group_of(held) as there:
            if there:
                super()._settle(held, by_name=by_name, whole=whole)

    def _extend(self, held: Held) -> None:
        with self._group_of(held) as there:
            if there:
                super()._extend(held)

    @contextlib.contextmanager
    def _group_of(self, held: Held) -> Iterator[bool]:
        """Be in the group that a lease is of, if it is there: it may be an earlier instance."""
        known = self.world.broker.views.catalog.groups.get(held.key[0])
        now, self.group = self.group, "" if known is None else known.name
        yield known is not None
        self.group = now

    def _join(self) -> None:
        late, self.late = self.late, None
        if late is not None and self.world.chance.random() < 0.9:
            session, group = late
            broker = self.world.broker
            back = self.world.command(lambda: broker.clients.resume(session, "sim", self.name))
            if not isinstance(back, TernMQError):
                self.session, self.group = session, group
                return
        super()._join()

    def _pull(self) -> None:
        if self.group:
            topic = self.world.broker.views.catalog.by_name.get(self.topic)
            known = None if topic is None else topic.by_group.get(self.group)
            if known is not None:
                super()._pull()
                has = known.spec.instance
                if has is not None and has.session != self.session:
                    self.world.reached("pull of a lost instance")
                    self.group = ""
                return
        world, session = self.world, self.session
        assert session is not None
        former = self._former(session)
        reply = world.command(
            lambda: world.broker.broadcasting.join(
                world.now_us(), session, self.topic, self.instance, InstanceAsked()
            )
        )
        if isinstance(reply, InstanceTaken):
            world.reached("instance taken")
            if not self.instance:
                raise Violation("an instance without a name is taken")
        elif isinstance(reply, UnknownSession):
            self._forget()
        elif not isinstance(reply, TernMQError):
            assert isinstance(reply, ValueReply)
            other = self.rivals.get(self.instance) if self.instance else None
            if other not in {None, self.name}:
                raise Violation(f"{self.name} is instance {self.instance}, and so is {other}")
            if self.instance:
                self.rivals[self.instance] = self.name
            found = reply.value
            assert isinstance(found, JoinedInstance)
            self.group = found.subscription.name
            if not found.created:
                world.reached("instance continued")
            if former and self._has_rows(former, found.subscription.group):
                self._check_drain(former)

    def _former(self, session: int) -> int:
        """Return the other session that is the instance now and has not ended; 0: there is none."""
        views = self.world.broker.views
        topic = views.catalog.by_name.get(self.topic)
        group = instance_group(self.instance, session)
        known = None if topic is None else topic.by_group.get(group)
        has = None if known is None else known.spec.instance
        if has is None or has.session == session or has.session not in views.sessions.by_number:
            return 0
        return has.session

    def _has_rows(self, session: int, group: int) -> bool:
        leased = self.world.broker.views.figures.leased_to(session)
        return any(progress.group == group for progress in leased)

    def _check_drain(self, session: int) -> None:
        """What a join did not take from a former client, a drain takes.

        Raises:
            Violation: There is none.
        """
        timers = self.world.broker.timers._heap
        if not any(one[2] is Timer.DRAIN and one[3].session == session for one in timers):
            raise Violation(f"rows of an instance stay with session {session}")
        self.world.reached("instance taken over in pieces")


class Watcher:
    """Looks at all instances now and then."""

    def __init__(self, world: World, topic: str, every_us: int = 10_000) -> None:
        self.world = world
        self.topic = topic
        self.every_us = every_us
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        world = self.world
        broker = world.broker
        if broker.journal.written != broker.journal.end:
            return
        instances = world.reference.instances
        known = list(broker.views.catalog.instances.behind(0))
        if known != instances.known():
            raise Violation(f"the instances are {known}; should be {instances.known()}")
        instances.check_late(world.now_us(), world.leapt_us)
        moving = world.started.upkeep.moving
        found = moving.judging.pinned
        topic = broker.views.catalog.by_name[self.topic].number
        if found.pin is Pin.GROUP and found.share is not None and found.share.topic == topic:
            raise Violation("an instance keeps the journal")


class Passer:
    """Comes now and then as an instance of a name of its own, and never again."""

    def __init__(self, world: World, topic: str, *, every_us: int) -> None:
        self.world = world
        self.topic = topic
        self.every_us = every_us
        self.count = 0
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        world = self.world
        if world.calm:
            return
        self.count += 1
        broker, name = world.broker, f"p{self.count}"
        session = world.command(lambda: broker.clients.join(world.now_us(), "sim", name))
        if isinstance(session, TernMQError):
            return
        number = session.value
        asked = InstanceAsked()
        world.command(
            lambda: broker.broadcasting.join(world.now_us(), number, self.topic, name, asked)
        )
        world.command(lambda: broker.clients.leave(world.now_us(), number))
        world.reached("instance forgotten")
