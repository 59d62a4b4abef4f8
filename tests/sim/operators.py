"""Operators: resets, skips, failures let go or given up, settings, topics made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ternmq.broker.gate.replies import DoneReply, SettleReply
from ternmq.broker.operation.groups import NextOffset
from ternmq.model.errors import (
    TernMQError,
)
from ternmq.model.specs import SubscriptionSpec
from ternmq.record.fact.control import BUCKET_US, App, Count, Grant
from tests.sim import filters
from tests.sim.history import GroupKey
from tests.sim.reference import LEASED, RefGroup

if TYPE_CHECKING:
    from tests.sim.world import World

_KIND_AT: Final = 13
LEASE_BITS: Final = 40


class Operator:
    """Now and then does what an operator does to one group."""

    def __init__(
        self,
        world: World,
        topic: str,
        group: str,
        *,
        every_us: int,
        acts: tuple[str, ...],
        back: int = 12,
    ) -> None:
        self.world = world
        self.topic = topic
        self.group = group
        self.every_us = every_us
        self.acts = acts
        self.back = back
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        act = self.world.chance.choice(self.acts)
        getattr(self, "_" + act)()

    def _do(self, name: str, command: Callable[[], DoneReply | SettleReply]) -> bool:
        world = self.world
        reply = world.command(command)
        if isinstance(reply, TernMQError):
            world.tell("operator refused", name, type(reply).__name__)
            return False
        world.reached(f"operator {name}")
        world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
        return True

    def _queue(self) -> tuple[GroupKey, RefGroup, int] | None:
        """Return a queue of the group: its key, the reference of it, its next offset."""
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        if topic is None or found is None:
            return None
        queue = world.chance.randrange(len(topic.queues))
        key = (found.group, topic.number, queue)
        group = world.reference.groups.get(key)
        return None if group is None else (key, group, topic.queues[queue].next)

    def _reset(self) -> None:
        at = self._queue()
        if at is None:
            return
        world = self.world
        key, group, next_ = at
        offset = world.chance.randint(max(0, group.cursor - self.back), next_)
        world.history.reset(key, offset)
        broker = world.broker
        self._do("reset", lambda: broker.operating.reset(
            world.now_us(), self.topic, self.group, key[2], offset))  # fmt: skip

    def _skip(self) -> None:
        at = self._queue()
        if at is None:
            return
        world = self.world
        key, group, next_ = at
        offset = min(next_, group.cursor + world.chance.randrange(4))
        broker = world.broker
        self._do("skip", lambda: broker.operating.skip(
            world.now_us(), self.topic, self.group, key[2], offset))  # fmt: skip

    def _retry_now(self) -> None:
        self._failed("retry_now")

    def _delete(self) -> None:
        self._failed("delete_failures")

    def _failed(self, name: str) -> None:
        at = self._queue()
        if at is None:
            return
        world = self.world
        key, group, _ = at
        failed = [one for one, row in group.rows.items() if row.state not in (LEASED, "ready")]
        if not failed:
            return
        chosen = [world.chance.choice(sorted(failed)) for _ in range(world.chance.randint(1, 3))]
        call = getattr(world.broker.operating, name)
        self._do(name, lambda: call(world.now_us(), self.topic, self.group, key[2], chosen))

    def _change(self, spec: SubscriptionSpec) -> DoneReply:
        world = self.world
        return world.broker.administration.change_subscription(
            world.now_us(), self.topic, self.group, spec
        )

    def _pause(self) -> None:
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        if found is None:
            return
        spec = found.spec
        changed = msgspec.structs.replace(spec, paused=not spec.paused)
        self._do("pause" if changed.paused else "resume", lambda: self._change(changed))

    def _policy(self) -> None:
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        if found is None:
            return
        retry = msgspec.structs.replace(found.spec.retry, attempts=world.chance.randint(1, 4))
        changed = msgspec.structs.replace(found.spec, retry=retry, paused=False)
        self._do("policy", lambda: self._change(changed))

    def _refilter(self) -> None:
        """Give the group another header filter."""
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        if found is None:
            return
        changed = msgspec.structs.replace(found.spec, filter=filters.made(world.chance))
        self._do("refilter", lambda: self._change(changed))

    def _recreate(self) -> None:
        """Drop the group, or the topic, and make it again under the same name."""
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        if topic is None or found is None:
            return
        broker, spec = world.broker, found.spec
        if world.chance.random() < 0.5:
            self._do("unsubscribe", lambda: broker.administration.unsubscribe(
                world.now_us(), self.topic, self.group))  # fmt: skip
        else:
            subscriptions = list(topic.subscriptions.values())
            self._do(
                "delete topic",
                lambda: broker.administration.delete_topic(world.now_us(), self.topic),
            )
            self._do(
                "create topic",
                lambda: broker.administration.create_topic(world.now_us(), topic.spec),
            )
            for one in subscriptions:
                if one.group != found.group:
                    self._do("subscribe", lambda one=one: broker.administration.subscribe(  # type: ignore[misc]
                        world.now_us(), self.topic, one.name, one.spec))  # fmt: skip
        self._do("subscribe", lambda: broker.administration.subscribe(
            world.now_us(), self.topic, self.group, spec))  # fmt: skip

    def _grow(self) -> None:
        """Give the topic one more queue."""
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.topic)
        if topic is None or topic.spec.ordered or topic.spec.queues >= 4:
            return
        spec = msgspec.structs.replace(topic.spec, queues=topic.spec.queues + 1)
        self._do(
            "grow topic", lambda: world.broker.administration.change_topic(world.now_us(), spec)
        )

    def _app(self) -> None:
        """Make an app, change it, or remove it."""
        world = self.world
        chance = world.chance
        name = chance.choice(("shop", "billing", "audit"))
        if chance.random() < 0.4:
            if world.broker.views.catalog.apps and chance.random() < 0.8:  # one that is there
                name = chance.choice(sorted(world.broker.views.catalog.apps))
            self._do(
                "delete app", lambda: world.broker.administration.delete_app(world.now_us(), name)
            )
            return
        grants = tuple(
            Grant(chance.choice(("consume", "manage")), chance.choice(("t", "u*")), "g", at == 1)
            for at in range(chance.randrange(3))
        )
        token = chance.randbytes(48)
        app = App(name, "sim", token[:16], token[16:], grants, world.now_us())
        self._do("put app", lambda: world.broker.administration.put_app(world.now_us(), app))

    def _commit(self) -> None:
        """Say how far a group has come that keeps its place itself: also what it said before."""
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.topic)
        if topic is None:
            return
        places = [
            NextOffset(queue.number, world.chance.randint(0, queue.next)) for queue in topic.queues
        ]
        self._do("commit", lambda: world.broker.operating.commit(
            world.now_us(), self.topic, "spark", places))  # fmt: skip

    def _hold(self) -> None:
        """Put a hold, move it on or back, or remove it."""
        world = self.world
        chance, journal = world.chance, world.broker.journal
        name = chance.choice(("archive", "audit"))
        if chance.random() < 0.2:
            self._do("delete hold", lambda: world.broker.holding.delete(world.now_us(), name))
            return
        position = chance.randint(journal.first, journal.end)
        back = chance.random() < 0.2
        self._do("put hold", lambda: (
            world.broker.holding.put(world.now_us(), name, position, back=back)))  # fmt: skip

    def _report(self) -> None:
        """Report counts in the name of some session."""
        world = self.world
        sessions = sorted(world.broker.views.sessions.by_number)
        if not sessions:
            return
        session = world.chance.choice(sessions)
        bucket = world.now_us() // BUCKET_US * BUCKET_US
        entries = [Count(bucket, world.chance.randrange(100), world.chance.randrange(3))]
        self._do("report", lambda: world.broker.clients.report(
            world.now_us(), session, self.topic, 11, entries))  # fmt: skip
