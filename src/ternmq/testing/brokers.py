"""The brokers of one broker group, in one loop, with a coordinator in memory.

Broker time and the time of leases between brokers move only when the test moves the clock. What
needs no time runs by itself: to connect, to catch up, to become a member, to take over once a lease
is over. ``unsettled`` says whether something of that is under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.record import Leadership, Member, leadership_key, unpack
from ternmq.cluster.coordination.wishes import (
    Change,
    Failover,
    GroupSettings,
    Order,
    order_key,
    pack_order,
    pack_settings,
    settings_key,
)
from ternmq.cluster.replication.settings import CopySettings
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import InvalidRequest
from ternmq.model.secret import Secret
from ternmq.server.app import Server
from ternmq.server.node.node import Node
from ternmq.server.replication.primary import FollowerFigures
from ternmq.settings import Mode, Settings, load
from ternmq.testing.clock import ManualClock

GROUP: Final = "main"
SETTLING_S: Final = 30.0
"""Most seconds that brokers are given for what needs no time of the clock."""
LEASE_S: Final = CopySettings().lease_us // 1_000_000
SILENT_S: Final = CopySettings().silent_us // 1_000_000
BEAT_US: Final = 500_000
"""Largest step of the leases' clock: brokers hear of each other several times in a lease."""
_LOOK_S: Final = 0.005
_TURNS: Final = 10
"""Turns of the loop in which transports that were aborted are closed."""
_TOKEN: Final = "the brokers of a test trust each other"  # noqa: S105 - guards nothing
_BEGAN_US: Final = 1_000_000_000


@dataclass(slots=True, eq=False)
class Place:
    """A broker's name, disk and port; they outlive its processes.

    Attributes:
        name: Name of the broker.
        disk: Its disk.
        port: Its port; 0 before its first start.
        node: Its process; None: it does not run.
        running: The task of the process.
    """

    name: str
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    port: int = 0
    node: Node | None = None
    running: asyncio.Task[int] | None = None


class Brokers:
    """The brokers of a group. Not thread-safe: call it from their loop.

    Args:
        names: Their names; the first one that is started begins the group.
        settings: Settings of each of them by name.
        clock: Their clock.
        failover: What happens when the primary is gone.
    """

    def __init__(
        self,
        names: list[str],
        settings: Mapping[str, object],
        clock: ManualClock,
        failover: Failover,
    ) -> None:
        self.places = {name: Place(name) for name in names}
        self.lease_us = _BEGAN_US
        """The time of promises and silence between the brokers."""
        self._settings = dict(settings)
        self._clock = clock
        self._failover = failover
        self._register = Register()
        self._register.create(settings_key(GROUP), pack_settings(GroupSettings(failover=failover)))

    # -- what there is ----------------------------------------------------------------------------

    def place(self, name: str) -> Place:
        """Return the place of a broker.

        Raises:
            InvalidRequest: There is no broker of this name.
        """
        given: object = name
        found = self.places.get(name) if isinstance(given, str) else None
        if found is None:
            names = ", ".join(self.places)
            raise InvalidRequest(f"this cluster has no broker {name!r}: it has {names}")
        return found

    @property
    def record(self) -> Leadership | None:
        """The leadership record; None: no broker has begun the group."""
        stored = self._register.read(leadership_key(GROUP))
        return None if stored is None else unpack(stored.value, stored.version)

    def serving(self) -> Place | None:
        """Return the broker that serves clients; None: none does."""
        record = self.record
        place = None if record is None else self.places[record.primary]
        node = None if place is None else place.node
        if record is None or node is None or node.server is None or node.reigning is None:
            return None
        return place if node.reigning.epoch == record.epoch else None

    def server(self) -> Server | None:
        """Return the server of the broker that serves; None: none does."""
        place = self.serving()
        return None if place is None or place.node is None else place.node.server

    def role(self, place: Place) -> str:
        """Return ``primary``, ``member`` or ``follower``; empty: the broker does not run."""
        record = self.record
        if place.node is None or record is None:
            return ""
        if place is self.serving():
            return "primary"
        return "member" if place.node.me in record.members else "follower"

    def copies(self) -> list[str]:
        """Return the names of the running brokers whose copies count; none while nobody serves."""
        record = self.record
        if record is None or self.serving() is None:
            return []
        return [one.broker for one in record.members if self._lives(one)]

    def lost(self) -> list[str]:
        """Return the brokers without which nothing is answered, and which do not run any more."""
        place = None if self.record is None else self.places[self.record.primary]
        reigning = None if place is None or place.node is None else place.node.reigning
        if reigning is None or reigning.primary is None:
            return []
        required = reigning.primary.reign.required()
        return sorted(one.broker for one in required if not self._lives(one))

    def _lives(self, member: Member) -> bool:
        node = self.places[member.broker].node
        return node is not None and node.me == member

    def standing(self) -> str:
        """Return the state of the group in one line, for errors."""
        said: list[str] = []
        serving = self.serving()
        if serving is not None:
            said.append(f"{serving.name} leads")
        elif not (moves := self.unsettled()):
            said.append(self._awaited())
        else:
            said.append(f"no broker leads: {moves}")
        if serving is not None and (lost := self.lost()):
            said.append(
                f"{_joined(lost)} counts until the clock has advanced by {SILENT_S} s: until then "
                "sends wait"
            )
        down = [one.name for one in self.places.values() if one.node is None]
        if down:
            said.append(f"{_joined(down)} does not run" if len(down) == 1 else
                        f"{_joined(down)} do not run")  # fmt: skip
        return "; ".join(said)

    def _awaited(self) -> str:
        """Return why no broker leads, when that does not change without time or the test."""
        record = self.record
        primary = "" if record is None else record.primary
        if record is not None and any(
            self._lives(one) for one in record.members if one.broker != primary
        ) and self.places[primary].node is None:  # fmt: skip
            if self._failover is Failover.OPERATOR:
                return f"no broker leads: {primary} was the primary, and no other was promoted"
            return (
                f"no broker leads: {primary} was the primary, and another member takes over when "
                f"the clock has advanced by {LEASE_S} s"
            )
        if record is not None and self.places[primary].node is not None:
            return (
                f"no broker leads: {primary} begins to lead when the clock has advanced by "
                f"{SILENT_S} s, without {_joined(self.lost())}"
            )
        return f"no broker leads: start {primary}, which has everything that was answered"

    # -- what is under way ------------------------------------------------------------------------

    def unsettled(self) -> str:
        """Return what is under way and needs no time of the clock; empty: nothing is.

        Raises:
            Exception: What a broker ended with.
        """
        self._check()
        record = self.record
        if record is None:
            return "no broker has begun the group" if self._running() else ""
        leader = self.places[record.primary]
        if leader.node is None:
            stands = [
                one.name for one in self._running() if one.node and one.node.candidate.may_stand()
            ]
            return f"{_joined(stands)} takes over" if stands else ""
        reigning = leader.node.reigning
        if reigning is None or reigning.primary is None or reigning.epoch != record.epoch:
            return f"{leader.name} begins to lead"
        if reigning.primary.reign.changes:
            return f"{leader.name} changes the members"
        if leader.node.server is None and not self.lost():
            return f"{leader.name} begins to lead"
        figures = {one.incarnation: one for one in reigning.primary.figures()}
        for one in self._running():
            if one is not leader and (why := self._apart(one, leader, figures)):
                return why
        return ""

    def _apart(self, place: Place, leader: Place, figures: Mapping[int, FollowerFigures]) -> str:
        """Return why a follower is not what it will be; empty: it is."""
        assert place.node is not None
        assert leader.node is not None
        found = figures.get(place.node.incarnation)
        if found is None:
            return f"{place.name} connects to {leader.name}"
        if not found.member and leader.node.server is not None:
            return f"{place.name} catches up with {leader.name}"
        return ""

    def _running(self) -> list[Place]:
        return [one for one in self.places.values() if one.node is not None]

    def _check(self) -> None:
        """Note the brokers that have ended by themselves.

        Raises:
            Exception: What one ended with; it is raised once.
        """
        for one in self._running():
            if one.running is not None and one.running.done():
                ended, one.running, one.node = one.running, None, None
                ended.result()

    async def settle(self, patience_s: float = SETTLING_S) -> None:
        """Wait until nothing is under way.

        Raises:
            TimeoutError: Something still is.
            Exception: What a broker ended with.
        """
        until = time.monotonic() + patience_s
        while moves := self.unsettled():
            if time.monotonic() > until:
                raise TimeoutError(f"the brokers have not settled after {patience_s:g} s: {moves}")
            self.tick()
            await asyncio.sleep(_LOOK_S)

    def tick(self) -> None:
        """Have the primary do now what it does a few times a second."""
        for one in self._running():
            reigning = None if one.node is None else one.node.reigning
            if reigning is not None and reigning.primary is not None:
                reigning.primary.tick()

    async def beat(self, step_us: int) -> None:
        """Let time pass between the brokers, ``BEAT_US`` at most; those that run hear each other.

        Raises:
            TimeoutError: A follower does not acknowledge.
        """
        self.lease_us += step_us
        self.tick()  # also without followers: it takes out those that are silent
        until = time.monotonic() + SETTLING_S
        while silent := self._unheard():
            if time.monotonic() > until:
                raise TimeoutError(f"{_joined(silent)} has not answered the primary")
            self.tick()
            await asyncio.sleep(0)

    def _unheard(self) -> list[str]:
        """Return the followers that have not acknowledged at this time of the leases' clock."""
        return [
            figures.broker
            for one in self._running()
            if one.node is not None
            and one.node.reigning is not None
            and one.node.reigning.primary is not None
            and not one.node.reigning.deposed.is_set()
            for figures in one.node.reigning.primary.figures()
            if figures.heard_us
        ]

    # -- changes ----------------------------------------------------------------------------------

    async def start(self, place: Place) -> None:
        """Start a broker; returns when it listens.

        Raises:
            SettingsError, OSError: It cannot start.
            RuntimeError: It runs already.
        """
        if place.node is not None:
            raise RuntimeError(f"{place.name} runs already: kill or stop it before")
        node = place.node = Node(
            self._settings_of(place),
            coordinator=MemoryCoordinator(self._register),
            disk=place.disk,
            clocks=self._clock,
            now_us=lambda: self.lease_us,
        )
        try:
            await node.start()
        except BaseException:
            place.node = None
            node.kill()
            await node.run()
            raise
        place.port = node.port
        place.running = asyncio.create_task(node.run())
        await self._look_around()

    def _settings_of(self, place: Place) -> Settings:
        flags: dict[str, object] = {
            "drain_timeout": "0s",
            **self._settings,
            "name": place.name,
            "listen": f"127.0.0.1:{place.port}",
            "http": "off",
        }
        return msgspec.structs.replace(
            load(environ={}, flags=flags, mode=Mode.TESTING),
            broker_group=GROUP,
            cluster=Secret("memory"),
            cluster_token=Secret(_TOKEN),
        )

    async def end(self, place: Place, *, clean: bool) -> None:
        """End a broker: cleanly, or as if it was killed.

        Raises:
            RuntimeError: It does not run.
            Exception: What it ended with.
        """
        node, running = place.node, place.running
        if node is None or running is None:
            raise RuntimeError(f"{place.name} does not run")
        if clean:
            node.stopping.set()
        else:
            node.kill()
        await asyncio.wait({running})
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if place.node is node:
            place.node = place.running = None
            running.result()
        await self._look_around()

    async def end_all(self) -> list[BaseException]:
        """Kill all brokers that run; return what they ended with."""
        running = self._running()
        for one in running:
            assert one.node is not None
            one.node.kill()
        tasks = [one.running for one in running if one.running is not None]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for one in running:
            one.node = one.running = None
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return [one for one in found if isinstance(one, BaseException)]

    async def order_switch(self, to: Place) -> None:
        """Ask the primary to hand over to a member.

        Raises:
            RuntimeError: That cannot be done as things are.
        """
        primary, record = self.serving(), self.record
        if primary is None or record is None:
            raise RuntimeError(f"nobody can hand over: {self.standing()}")
        if to is primary:
            raise RuntimeError(f"{to.name} is the primary already")
        if to.node is None:
            raise RuntimeError(f"{to.name} cannot take over: it does not run")
        if to.node.me not in record.members:
            raise RuntimeError(f"{to.name} cannot take over: its copy does not count yet")
        await self._order(Change.SWITCH, to, record)

    async def order_promotion(self, to: Place) -> None:
        """Ask a member to lead in the place of a primary that is gone.

        Raises:
            RuntimeError: That cannot be done as things are.
        """
        primary, record = self.serving(), self.record
        if primary is not None:
            raise RuntimeError(f"{to.name} is not promoted: {primary.name} leads; see switch")
        if to.node is None or record is None:
            raise RuntimeError(f"{to.name} is not promoted: it does not run")
        if to.node.me not in record.members:
            raise RuntimeError(
                f"{to.name} is not promoted: its copy does not count, and may lack what was "
                "answered"
            )
        await self._order(Change.PROMOTE, to, record)

    async def _order(self, change: Change, to: Place, record: Leadership) -> None:
        at_us = self._clock.wall_us()
        order = Order(change=change, broker=to.name, epoch=record.epoch, at_us=at_us)
        key, value = order_key(GROUP), pack_order(order)
        stored = self._register.read(key)
        if stored is None:
            self._register.create(key, value)
        else:
            self._register.swap(key, stored.version, value)
        await self._look_around()

    async def _look_around(self) -> None:
        """Have all brokers read now what they would read within a second."""
        for one in self._running():
            if one.node is not None:
                await one.node.sight.look()


def _joined(names: list[str]) -> str:
    return " and ".join(names)
