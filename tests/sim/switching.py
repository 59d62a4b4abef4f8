"""Operators who change the mode of a group while it is consumed, and its limits for clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import msgspec

from ternmq.model.errors import GroupBusy, TernMQError
from ternmq.model.specs import Mode, SubscriptionSpec
from ternmq.record.fact.control import Joined
from ternmq.record.fact.facts import Pulled
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from ternmq.broker.catalog.catalog import Subscription
    from tests.sim.reference import RefGroup
    from tests.sim.world import World

_OFFLINE: Final[tuple[tuple[str, ...], ...]] = ((), (), ("c0",), ("c*",), ("sim/c1", "none*"))


class Switcher:
    """Changes the mode of a group, its limit for each session, and which clients are off."""

    def __init__(
        self, world: World, topic: str, group: str, *, every_us: int, members: bool = False
    ) -> None:
        self.world = world
        self.topic = topic
        self.group = group
        self.every_us = every_us
        self.members = members
        """Whether its queues may belong to members."""
        self.wanted: Mode | None = None
        """The group is to become ordered, and is owed rows until now."""
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        topic = self.world.broker.views.catalog.by_name.get(self.topic)
        found = topic.by_group.get(self.group) if topic is not None else None
        if found is None:
            return
        chance = self.world.chance
        if self.wanted is None and chance.random() < 0.3:
            self._limit(found.spec)
            return
        modes = [Mode.SHARED, Mode.QUEUE_LOCK]
        if self.members:
            modes += [Mode.OWNED, Mode.EXCLUSIVE]
        if found.topic.spec.ordered:
            modes += [Mode.ORDERED] * 2
        mode = self.wanted or chance.choice([one for one in modes if one is not found.spec.mode])
        changed = msgspec.structs.replace(found.spec, mode=mode, paused=False)
        error = self._change(changed, "switch")
        if isinstance(error, GroupBusy):
            self._wait(found, mode)
        elif error is None:
            self.wanted = None

    def _wait(self, found: Subscription, mode: Mode) -> None:
        """Pause the group until what it has is settled; let go what waits."""
        self.world.reached("switch refused: the group is owed rows")
        stuck = any(one.ready.rows or one.failures.waiting_rows for one in found.queues)
        self.wanted = mode if self.world.chance.random() < 0.9 else None
        paused = not stuck and self.wanted is not None
        self._change(msgspec.structs.replace(found.spec, paused=paused), "pause for a switch")

    def _limit(self, spec: SubscriptionSpec) -> None:
        chance = self.world.chance
        changed = msgspec.structs.replace(
            spec, concurrency=chance.choice((0, 0, 1, 3)), offline=chance.choice(_OFFLINE)
        )
        self._change(changed, "limit")

    def _change(self, spec: SubscriptionSpec, name: str) -> TernMQError | None:
        world = self.world
        reply = world.command(
            lambda: world.broker.administration.change_subscription(
                world.now_us(), self.topic, self.group, spec
            )
        )
        if isinstance(reply, TernMQError):
            return reply
        world.reached(f"operator {name}")
        world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
        return None


def check_allowance(
    where: str,
    fact: Pulled,
    spec: SubscriptionSpec,
    joined: Joined | None,
    groups: Iterable[RefGroup],
    count: Callable[[str], None],
) -> None:
    """No client that is switched off gets rows, and no session more than the limit.

    Args:
        where: Of the record.
        fact: A pull that is not applied yet.
        spec: The settings of the group.
        joined: The session; None: its lease is detached, and the record does not say whose it was.
        groups: The queues of the group.
        count: Counts what was reached.

    Raises:
        Violation: One does.
    """
    if not fact.leased:
        return
    entries = () if joined is None else spec.offline
    for entry in entries:
        assert joined is not None
        app, slash, client = entry.rpartition("/")
        if fnmatchcase(joined.client, client) and (not slash or fnmatchcase(joined.app, app)):
            raise Violation(f"{where}: {joined.client} is switched off by {entry}")
    if spec.offline and joined is not None:
        count("delivered beside a client that is switched off")
    if not spec.concurrency:
        return
    held = sum(
        len(lease.rows)
        for group in groups
        for lease in group.leases.values()
        if lease.session == fact.session
    )
    rows = sum(stop - start for start, stop, _, _ in fact.leased)
    if held + rows > spec.concurrency:
        raise Violation(f"{where}: {held} + {rows} rows of a session, {spec.concurrency} may be")
    if held + rows == spec.concurrency:
        count("a session has as many rows as it may")
