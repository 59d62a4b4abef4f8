"""What goes wrong: at random, and by templates that aim at windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ternmq.cluster.replication.settings import CopySettings
from tests.sim.group.machine import Life
from tests.sim.group.rot import Rot
from tests.sim.group.world import PACE_US, World

PAUSES_US: Final = (20_000, 300_000, 1_000_000, 3_000_000, 6_000_000)
DOWN_US: Final = (5_000, 100_000, 1_000_000, 4_000_000, 8_000_000)
PACES_US: Final = (
    (20_000, 300_000, 1_500_000, 2_500_000),
    (20_000, 300_000, 1_500_000, 2_500_000),
    (1_000_000, 6_000_000),
    (12_000_000,),
)
LONG_US: Final = (40_000_000,)
"""Longest times between two harms, one of these for a case: what needs a while must have it."""
LONG: Final = CopySettings(lease_us=9_000_000, silent_us=6_000_000)
SHORT: Final = CopySettings(lease_us=1_000_000, silent_us=600_000)
LEASES: Final = (SHORT, CopySettings(), LONG)
BLOCKING: Final = (
    "opening a copy", "making a copy", "comparing and cutting", "a sync of the copy", "a sync",
    "the sync before standing", "a promotion", "removing a segment", "a spare",
    "removing segments of a copy", "emptying a copy",
)  # fmt: skip


class Nemesis:
    """Does harm to a group until it is told to stop.

    Args:
        world: The group.
        losses: Mostly have an operator accept losses.
        rots: Mostly damage bytes of disks, which are mended.
        leases: Change the lease, again and again.

    Attributes:
        done: What it did, for people.
    """

    def __init__(
        self, world: World, *, losses: bool = False, rots: bool = False, leases: bool = False
    ) -> None:
        self.done: list[str] = []
        self._world = world
        self._heap = world.heap
        self._chance = world.heap.chance
        self._over = False
        self._losses = losses
        self._waits_us: tuple[int, ...] = self._chance.choice(PACES_US)
        self._harms: list[Callable[[], None]] = [
            self._crash, self._crash, self._crash, self._crash, self._crash_both, self._stop,
            self._resign, self._cut, self._cut, self._break, self._slow, self._store_away,
            self._store_bad, self._die_in, self._die_in, self._cut_at_ack, self._cut_at_ack,
            self._power_member_then_kill, self._pause_primary, self._at, self._at, self._flap,
            self._write_back, self._disk, self._rush, self._leave_behind, self._late_change,
            self._late_change, self._late_answer, self._split, self._split_member,
            self._switch, self._switch, self._zombie, self._accept_loss, self._accept_loss,
            self._stray_order,
        ]  # fmt: skip
        if losses:
            self._waits_us = PACES_US[-1]
            self._harms = [
                self._accept_loss, self._accept_loss, self._accept_loss, self._stray_order,
                self._write_back, self._switch, self._store_bad, self._die_in, self._crash,
            ]  # fmt: skip
        if world.applies:
            self._waits_us = LONG_US  # what is planned takes some 15 s, and must not be disturbed
            self._harms += [self._loss_beside_a_member] * 9
        if rots:
            self._rot = Rot(world)
            self._harms = [
                *[self._damage] * 8, self._crash, self._switch, self._rush, self._leave_behind,
                self._write_back, self._cut,
            ]  # fmt: skip
        if leases:
            self._waits_us = (6_000_000,)
            self._harms = [
                self._other_lease, self._other_lease, self._shorter_lease, self._shorter_lease,
                self._longer_lease, self._longer_lease, self._pause_primary, self._cut, self._crash,
                self._power_member_then_kill, self._switch, self._store_away, self._split_member,
            ]  # fmt: skip

    def run(self) -> None:
        """Begin."""
        # Of a copy that is made anew, nothing is before the first record, so a lie is not noticed.
        self._world.lies = 0 if self._losses else self._chance.choice((0, 0, 0, 10))
        self._world.oracle.lies = bool(self._world.lies)
        self._world.misleads = self._chance.choice((0, 0, 30))
        self._world.store.bad = self._chance.choice((0, 0, 5, 20))
        self._next()

    def end(self) -> None:
        """Stop, and let everything be well again."""
        world = self._world
        self._over = True
        self.done.append("all is well")
        world.net.heal()
        world.store.heal()
        world.lies = world.misleads = 0
        world.armed.clear()
        world.order = None
        world.pace_us = PACE_US
        world.settings = CopySettings()
        for name, machine in world.machines.items():
            machine.dies_in = ""
            machine.faults.plan(self._chance, on=False)
            machine.stopped_until_us = 0
            world.boot(name)

    def _next(self) -> None:
        if self._over:
            return
        self._chance.choice(self._harms)()
        wait_us = self._chance.choice(self._waits_us)
        self._heap.after(self._chance.randrange(wait_us), self._next)

    def _note(self, what: str) -> None:
        self.done.append(f"{self._heap.time_us}: {what}")
        self._heap.tell(what)

    # -- who --------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return list(self._world.machines)

    def _any(self) -> str:
        return self._chance.choice(self._names())

    def _primary(self) -> str:
        record = self._world.oracle.record
        return self._any() if record is None else record.primary

    def _member(self) -> str:
        primary = self._primary()
        record = self._world.oracle.record
        members = [] if record is None else [one.broker for one in record.members]
        others = [name for name in members if name != primary]
        return self._chance.choice(others or [n for n in self._names() if n != primary])

    def _down_us(self) -> int:
        return self._chance.choice(DOWN_US)

    def kill(self, name: str, *, power: bool, again_us: int | None = None) -> None:
        """End a process, or a machine."""
        if self._over:
            return
        self._note(f"{'power' if power else 'kill'} {name}")
        self._world.crash(
            name, power=power, again_us=self._down_us() if again_us is None else again_us
        )

    # -- at random --------------------------------------------------------------------------------

    def _crash(self) -> None:
        name = self._chance.choice((self._primary(), self._member()))
        self.kill(name, power=self._chance.random() < 0.5)

    def _crash_both(self) -> None:
        """All machines at one moment, or within a second; they come back in any order."""
        self._heap.reached("two crashes within a second")
        within_us = self._chance.choice((1, 1000, 100_000, 1_000_000))
        for name in self._names():
            power = self._chance.random() < 0.7
            self._heap.after(
                self._chance.randrange(within_us),
                lambda name=name, power=power: self.kill(name, power=power),  # type: ignore[misc]
            )

    def _stop(self) -> None:
        machine = self._world.machines[self._chance.choice((self._primary(), self._any()))]
        pause_us = self._chance.choice(PAUSES_US)
        self._note(f"stop {machine.name} for {pause_us}")
        machine.stopped_until_us = self._heap.time_us + pause_us
        self._heap.reached("a process stopped and continued")

    def _resign(self) -> None:
        broker = self._world.brokers.get(self._primary())
        if broker is not None:
            self._note(f"resign {broker.name}")
            broker.stop()
            self.kill(broker.name, power=False)

    def _cut(self) -> None:
        one, other = self._any(), self._any()
        if one == other:
            return
        for_us = self._chance.choice((50_000, 1_000_000, 3_000_000, 8_000_000))
        both = self._chance.random() < 0.5
        self._note(f"cut {one} {'and' if both else 'to'} {other} for {for_us}")
        self._world.net.cut(one, other, for_us)
        if both:
            self._world.net.cut(other, one, for_us)
        self._heap.reached("a partition" if both else "a one-way cut")
        if self._chance.random() < 0.3:
            self._world.store.cut[self._chance.choice((one, other))] = self._heap.time_us + for_us

    def _break(self) -> None:
        one, other = self._any(), self._any()
        if one != other:
            self._note(f"break {one} {other}")
            self._world.net.break_between(one, other)

    def _slow(self) -> None:
        one, other = self._any(), self._any()
        slow_us = self._chance.choice((0, 20_000, 400_000, 2_500_000))
        self._note(f"slow {one} to {other}: {slow_us}")
        if slow_us:
            self._world.net.slow[one, other] = slow_us
        else:
            self._world.net.slow.clear()

    def _store_away(self) -> None:
        for_us = self._chance.choice((500_000, 3_000_000, 8_000_000))
        self._note(f"the coordinator is away for {for_us}")
        self._heap.reached("the coordinator away")
        self._world.store.away_until_us = self._heap.time_us + for_us

    def _store_bad(self) -> None:
        self._world.store.bad = self._chance.choice((0, 10, 40))
        self._note(f"the coordinator is bad by {self._world.store.bad}")

    def _write_back(self) -> None:
        self._world.machines[self._any()].write_back()

    def _disk(self) -> None:
        """A disk that fails or is full; once in a while."""
        if self._chance.random() < 0.3:
            machine = self._world.machines[self._any()]
            self._note(f"disk of {machine.name}")
            machine.faults.plan(self._chance, on=True)

    def _rush(self) -> None:
        self._load(self._chance.choice((4000, 20_000, 300_000)), 1_500_000)

    def _load(self, pace_us: int, for_us: int) -> None:
        """Have clients send more, or less, for a while."""
        self._world.pace_us = pace_us
        self._heap.after(for_us, self._usual)

    def _usual(self) -> None:
        self._world.pace_us = PACE_US if not self._over else self._world.pace_us

    # -- templates --------------------------------------------------------------------------------

    def _die_in(self) -> None:
        """Die in the middle of what blocks."""
        machine = self._world.machines[self._any()]
        machine.dies_in = self._chance.choice(BLOCKING)
        machine.dies_by_power = self._chance.random() < 0.7
        self._note(f"{machine.name} dies in {machine.dies_in}")
        if machine.dies_in in ("opening a copy", "a promotion", "comparing and cutting"):
            self.kill(machine.name, power=self._chance.random() < 0.5, again_us=10_000)

    def _cut_at_ack(self) -> None:
        """Cut the link within 5 ms of an acknowledgement or answer, then kill the primary."""
        primary, member = self._primary(), self._member()
        what = self._chance.choice(("ack", "answer"))

        def cut(life: Life) -> None:
            del life
            self._heap.after(self._chance.randrange(5000), both)

        def both() -> None:
            self._heap.reached("cut at an ack, then a kill")
            for_us = self._chance.choice((300_000, 4_000_000))
            self._note(f"cut {primary} and {member} at an {what}")
            self._world.net.cut(primary, member, for_us)
            self._world.net.cut(member, primary, for_us)
            self._heap.after(
                self._chance.choice((0, 5000, 2_000_000, 3_500_000)),
                lambda: self.kill(primary, power=self._chance.random() < 0.5),
            )

        self._world.armed[what] = cut

    def _power_member_then_kill(self) -> None:
        """The member loses what it had acknowledged, then the primary goes."""
        self._heap.reached("power of the member, then the primary")
        primary = self._primary()
        self.kill(self._member(), power=True, again_us=self._chance.choice((1000, 100_000)))
        self._heap.after(
            self._chance.choice((1, 1000, 100_000, 2_500_000)),
            lambda: self.kill(primary, power=self._chance.random() < 0.5),
        )

    def _pause_primary(self) -> None:
        """Stop the primary beyond the lease; it wakes up with answers to give."""
        pause_us = self._chance.randrange(2_500_000, 9_000_000)
        delay_us = self._chance.choice((0, 100, 500, 3000))

        def pause(life: Life) -> None:
            self._heap.after(delay_us, lambda: stop(life))

        def stop(life: Life) -> None:
            self._note(f"pause {life.machine.name} for {pause_us}")
            self._heap.reached("the primary stopped beyond the lease")
            life.machine.stopped_until_us = self._heap.time_us + pause_us

        self._world.armed["sent"] = pause

    # -- the lease --------------------------------------------------------------------------------

    def _set_lease(self, settings: CopySettings) -> None:
        self._note(f"the lease is to be {settings.lease_us}")
        self._world.settings = settings

    def _other_lease(self) -> None:
        """Change the lease; the brokers read it one after the other."""
        self._set_lease(self._chance.choice(LEASES))

    def _shorter_lease(self) -> None:
        """Shorten the lease, then stop the primary while it may rely on a longer promise.

        The member may die, too: when it is back, it must not stand earlier either.
        """
        self._set_lease(LONG)
        kills = self._chance.random() < 0.5

        def shorten() -> None:
            if not self._over:
                self._set_lease(SHORT)
                self._heap.after(1_500_000, aim)

        def aim() -> None:
            self._world.armed["sent"] = lambda life: self._heap.after(20_000, lambda: stop(life))

        def stop(life: Life) -> None:
            if self._over or life.machine.life is not life:
                return
            self._heap.reached("the primary stopped after the lease was shortened")
            life.machine.stopped_until_us = self._heap.time_us + self._chance.randrange(
                1_500_000, 5_500_000
            )
            if kills:
                member = self._member()
                if member != life.machine.name:
                    self.kill(member, power=self._chance.random() < 0.5, again_us=5000)

        self._heap.after(3_000_000, shorten)

    def _longer_lease(self) -> None:
        """Lengthen the lease, and stop the primary before a member can know it."""
        self._set_lease(SHORT)

        def aim() -> None:
            self._world.armed["sent"] = lengthen

        def lengthen(life: Life) -> None:
            broker = self._world.brokers.get(life.machine.name)
            if self._over or broker is None or broker.life is not life:
                return
            self._set_lease(LONG)
            broker.heed()
            self._heap.reached("the primary stopped after the lease was lengthened")
            life.machine.stopped_until_us = self._heap.time_us + self._chance.randrange(
                1_500_000, 7_000_000
            )

        self._heap.after(3_000_000, aim)

    def _at(self) -> None:
        """Crash who stands, joins, takes out or begins to serve, just then."""
        what = self._chance.choice(("stands", "stand sent", "grow", "shrink", "served"))
        delay_us = self._chance.choice((0, 500, 2000, 20_000, 300_000))
        power = self._chance.random() < 0.6
        victim = self._chance.choice(("who", "other"))

        def crash(life: Life) -> None:
            name = life.machine.name
            if victim == "other":
                name = next(one for one in self._names() if one != name)
            self._heap.reached(f"a crash: {what}")
            self._heap.after(delay_us, lambda: self.kill(name, power=power))

        self._world.armed[what] = crash

    def _late_change(self) -> None:
        """A change arrives when it was given up, and the broker that it names is away by then."""
        what = self._chance.choice(("grow", "shrink", "stand sent", "stand sent"))

        def late(life: Life) -> None:
            name = life.machine.name
            self._note(f"{what} of {name} arrives late")
            self._world.store.next_late_us = self._chance.randrange(1_000_000, 7_000_000)
            if self._chance.random() < 0.5:
                self._world.store.cut[name] = self._heap.time_us + 8_000_000
            for other in self._names():
                if other != name:
                    self._world.net.cut(name, other, 7_000_000)
                    self._world.net.cut(other, name, 7_000_000)

        self._world.armed[what] = late

    def _split(self) -> None:
        """Part the primary from everybody but its clients, for long; it writes and answers none."""
        primary = self._primary()
        for_us = self._chance.choice((4_000_000, 8_000_000))
        self._note(f"split {primary} off for {for_us}")
        self._heap.reached("the primary split off, with clients")
        self._load(12_000, for_us)
        self._world.store.cut[primary] = self._heap.time_us + for_us
        for other in self._names():
            if other != primary:
                self._world.net.cut(primary, other, for_us)
                self._world.net.cut(other, primary, for_us)

    def _switch(self) -> None:
        """Hand over in order; sometimes one of the two dies in it, or the change comes late."""
        broker = self._world.brokers.get(self._primary())
        if broker is None:
            return
        self._note(f"switch from {broker.name}")
        broker.hand_over()
        what = self._chance.randrange(4)
        if what == 0:
            self._world.armed["hand over"] = lambda life: self._heap.after(
                self._chance.choice((0, 500, 5000, 300_000)),
                lambda: self.kill(self._any(), power=self._chance.random() < 0.6),
            )
        elif what == 1:
            self._world.store.next_late_us = self._chance.randrange(1_000_000, 6_000_000)

    def _split_member(self) -> None:
        """Part a member from everybody, so that it stands without knowing that it is out."""
        name, for_us = self._member(), self._chance.choice((4_000_000, 6_000_000))
        self._note(f"split {name} off for {for_us}")
        self._world.store.cut[name] = self._heap.time_us + for_us
        for other in self._names():
            self._world.net.cut(name, other, for_us)
            self._world.net.cut(other, name, for_us)

    def _zombie(self) -> None:
        """Let a primary be deposed without knowing it, and lead followers to it again."""
        world, primary = self._world, self._primary()
        others = [name for name in self._names() if name != primary]
        self._note(f"{primary} is to be deposed unknowingly")
        world.store.cut[primary] = self._heap.time_us + 12_000_000
        for other in others:
            world.net.cut(primary, other, 3_800_000)
            world.net.cut(other, primary, 3_800_000)
        misleads, world.misleads = world.misleads, 70

        def again() -> None:
            for one in others:
                for other in others:
                    if one < other:
                        world.net.break_between(one, other)

        def ends() -> None:
            world.misleads = 0 if self._over else misleads

        for after_us in range(4_500_000, 12_000_000, 500_000):
            self._heap.after(after_us, again)
        self._heap.after(12_000_000, ends)

    def _accept_loss(self) -> None:
        """Have a broker fall out, the others answer more and go, and an operator promote it."""
        world, chance, primary = self._world, self._chance, self._primary()
        name = chance.choice([one for one in self._names() if one != primary])
        others = [one for one in self._names() if one != name]
        how = chance.choice(("kill", "power", "split", "split", "split"))
        self._note(f"{name} falls out, and leads with a loss: {how}")
        self.kill(name, power=chance.random() < 0.5, again_us=chance.choice((5_500_000, 6_500_000)))
        # Much, so that segments go; or little, so that the histories have something in common.
        self._load(
            *chance.choice(((8000, 4_500_000), (2_000_000, 18_000_000), (2_000_000, 18_000_000)))
        )

        def gone() -> None:
            for one in [] if self._over else others:
                if how == "split":  # it goes on, and answers whoever reaches it
                    for_us = chance.choice((8_000_000, 8_000_000, 20_000_000))
                    world.store.cut[one] = self._heap.time_us + for_us
                    world.net.cut(one, name, for_us)
                    world.net.cut(name, one, for_us)
                else:
                    self.kill(one, power=how == "power", again_us=12_000_000)

        self._heap.after(chance.choice((3_500_000, 4_500_000)), gone)
        for after_us in (7_000_000, 9_000_000, 11_000_000):
            self._heap.after(after_us, lambda: None if self._over else world.accept_loss(name))

    def _loss_beside_a_member(self) -> None:
        """A broker leads with a loss while a member is out of sight, which follows it then.

        The member goes on in the same life, with views of what it has to cut.
        """
        world, chance, primary = self._world, self._chance, self._primary()
        others = [one for one in self._names() if one != primary]
        if len(others) < 2:
            return
        name, member = chance.sample(others, 2)
        self._note(f"{name} falls out, and leads with a loss that {member} does not see")
        self.kill(name, power=chance.random() < 0.5, again_us=4_500_000)
        self._load(60_000, 12_000_000)

        def apart() -> None:
            for one in [] if self._over else (primary, member):
                world.net.cut(one, name, 4_800_000 if one == member else 12_000_000)
                world.net.cut(name, one, 4_800_000 if one == member else 12_000_000)

        def unseen() -> None:
            if self._over:
                return
            world.store.cut[primary] = self._heap.time_us + 12_000_000
            world.store.cut[member] = self._heap.time_us + 900_000
            world.net.cut(primary, member, 12_000_000)
            world.net.cut(member, primary, 12_000_000)
            for after_us in (10_000, 200_000, 400_000):
                self._heap.after(after_us, lambda: None if self._over else world.accept_loss(name))

        self._heap.after(4_000_000, apart)
        self._heap.after(8_000_000, unseen)

    def _stray_order(self) -> None:
        """An operator accepts a loss where there is none to accept."""
        name = self._any()
        self._note(f"{name} is to lead with a loss, whatever there is")
        self._world.accept_loss(name)

    def _late_answer(self) -> None:
        """A reign begins, and the coordinator takes its time to say that it knows."""

        def late(life: Life) -> None:
            self._note(f"a late answer for {life.machine.name}")
            self._world.store.next_answer_us = self._chance.randrange(300_000, 3_000_000)
            self._load(5000, 2_000_000)

        self._world.armed["served"] = late

    def _damage(self) -> None:
        """A disk damages bytes that were committed, and the broker mends them."""
        self._note(self._rot.harm(self._any()))

    def _flap(self) -> None:
        """The same broker again and again, every 3 s."""
        name = self._any()
        self._heap.reached("flapping")
        for turn in range(3):
            self._heap.after(
                3_000_000 * turn,
                lambda: self.kill(name, power=self._chance.random() < 0.3, again_us=500_000),
            )

    def _leave_behind(self) -> None:
        """Keep a broker away while much is written and the oldest segments go."""
        name = self._member()
        self._note(f"leave {name} behind")
        self._load(4000, 2_000_000)
        self.kill(name, power=self._chance.random() < 0.5, again_us=4_000_000)
