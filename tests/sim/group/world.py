"""The brokers of a group, their machines, the network, the coordinator, and the clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from google_crc32c import value as crc32c

from ternmq.cluster.coordination.loss import loss_of
from ternmq.cluster.coordination.wishes import Change, Order
from ternmq.cluster.replication.settings import CopySettings
from ternmq.record.fact.header import CRC, HEADER_BYTES, KIND_AT, Kind, length_of
from tests.sim.group.broker import CONNECT_US, Broker
from tests.sim.group.heap import Future, Heap
from tests.sim.group.machine import START_US, Life, Machine
from tests.sim.group.net import End, Net
from tests.sim.group.oracle import Oracle
from tests.sim.group.store import Store

NAMES: Final = ("a", "b", "c")
PACE_US: Final = 60_000
"""Longest time between two messages of clients, usually."""
SIZES: Final = (20, 60, 200, 900)


class World:
    """See the module.

    Attributes:
        armed: What is to be done when something happens next, by its name.
        crashes: How many processes died so far.
        synced: Followers acknowledge what their disks have, and stay members over restarts.
        order: By which a broker leads although it may lack what was answered.
        applies: Followers keep views, and messages are facts that change them.
        settings: Those of the group, as the coordinator has them.
        pace_us: Longest time between two messages of clients; 0: none comes.
    """

    def __init__(
        self, seed: str, count: int, *, synced: bool = False, applies: bool = False
    ) -> None:
        self.synced = synced
        self.applies = applies
        self.heap = Heap(seed)
        self.settings = CopySettings()
        self.net = Net(self.heap)
        self.store = Store(self.heap)
        self.machines = {name: Machine(name, self.heap) for name in NAMES[:count]}
        self.oracle = Oracle(self)
        self.brokers: dict[str, Broker] = {}
        self.armed: dict[str, Callable[[Life], None]] = {}
        self.crashes = 0
        self.order: Order | None = None
        self.pace_us = PACE_US
        self.lies = 0
        """How many of 1000 pieces of a stream are changed on their way."""
        self.misleads = 0
        """How many of 100 connections lead to another broker that thinks that it leads."""
        self._number = 0
        for machine in self.machines.values():
            machine.on_death = partial(self._died, machine)
            machine.on_look = partial(self.oracle.image, machine)

    # -- processes --------------------------------------------------------------------------------

    def boot(self, name: str) -> None:
        """Begin a process of a broker, if none runs."""
        machine = self.machines[name]
        if machine.life is None:
            life = machine.boot()
            self.heap.tell("boot", name, life.incarnation)
            self.brokers[name] = Broker(self, machine, life)

    def crash(self, name: str, *, power: bool, again_us: int) -> None:
        """Kill a process, or cut the power of its machine; it comes back after a while."""
        machine = self.machines[name]
        life = machine.life
        if life is None:
            return
        machine.crash(power=power)
        if not power:
            self.net.kill(life)
        self._count(name, power=power)
        self.heap.after(again_us, lambda: self.boot(name))

    def _died(self, machine: Machine) -> None:
        """A process died in the middle of what it did."""
        self._count(machine.name, power=machine.dies_by_power)
        self.heap.after(
            self.heap.chance.choice((1000, 300_000, 4_000_000)), lambda: self.boot(machine.name)
        )

    def _count(self, name: str, *, power: bool) -> None:
        broker = self.brokers.pop(name, None)
        self.crashes += 1
        role = "a primary" if broker is not None and broker.reigning is not None else "a follower"
        self.heap.reached(f"{role} {'lost power' if power else 'was killed'}")
        self.heap.tell("crash", name, power)

    def failed(self, broker: Broker, error: Exception) -> None:
        """A process ends because its disk has failed."""
        self.heap.reached(f"a process ended: {type(error).__name__}")
        life = broker.life
        self.heap.after(0, lambda: self._end(broker.name, life))

    def _end(self, name: str, life: Life) -> None:
        if self.machines[name].life is life:
            self.crash(name, power=False, again_us=500_000)

    def broker_time_us(self, machine: Machine) -> int:
        """Return the time that records get: where views forget by it, one that never goes back."""
        return START_US + self.heap.time_us if self.applies else machine.wall_us()

    def fired(self, what: str, life: Life) -> None:
        """Let what waits for something happen now that it does."""
        call = self.armed.pop(what, None)
        if call is not None:
            call(life)

    def running(self) -> dict[str, int]:
        """Return the incarnations of the brokers that the coordinator shows, by name."""
        return {
            name: broker.life.incarnation
            for name, broker in self.brokers.items()
            if self.store.reachable(name) and self.heap.time_us >= broker.machine.stopped_until_us
        }

    def accept_loss(self, name: str) -> None:
        """Order a broker to lead, and accept what its copy lacks."""
        record, broker = self.oracle.record, self.brokers.get(name)
        copy = None if broker is None or broker.replica is None else broker.replica.copy
        if record is None or copy is None or copy.last is None:
            return
        loss = loss_of(record)
        if loss is not None and copy.last_epoch < loss.epoch and copy.first > loss.cut_below:
            return  # it has nothing of what the group has: the truth could not be told any more
        self.heap.tell("loss accepted", name, record.epoch, copy.end)
        self.order = Order(
            change=Change.PROMOTE, broker=name, epoch=record.epoch, accepted=copy.end
        )

    # -- connections ------------------------------------------------------------------------------

    async def connect(self, life: Life, name: str) -> End | None:
        """Return a connection to a broker that leads; None if it cannot be reached or refuses."""
        answer: Future[End | None] = Future()
        machine = self.machines[self._misled(life.machine.name, name)]
        name = machine.name
        here = life.machine.name
        life.after(CONNECT_US, lambda: answer.set(None))

        def arrive() -> None:
            there = machine.life
            if there is None:
                self._back(name, life, lambda: answer.set(None))
            else:
                there.after(0, lambda: accept(there))

        def accept(there: Life) -> None:
            mine = self.net.connect(life, there)
            broker = self.brokers.get(name)
            if broker is None or broker.life is not there or not broker.accepts(mine.peer):
                mine.open = mine.peer.open = False
                self._back(name, life, lambda: answer.set(None))
            else:
                self._back(name, life, lambda: connected(mine))

        def connected(mine: End) -> None:
            if answer.done:
                mine.close()  # it came too late
            else:
                answer.set(mine)

        if not self.net.is_cut(here, name):
            self.heap.after(self.net.delay_us(here, name), arrive)
        return await answer

    def _misled(self, here: str, name: str) -> str:
        """Return whom an address leads to: sometimes another broker that thinks that it leads."""
        others = [
            one.name
            for one in self.brokers.values()
            if one.name not in (here, name) and one.reigning is not None
        ]
        if not others or self.heap.chance.randrange(100) >= self.misleads:
            return name
        self.heap.reached("a follower came to another primary")
        return self.heap.chance.choice(others)

    def _back(self, sender: str, life: Life, call: Callable[[], None]) -> None:
        """Have something happen at a process, if the way back is there."""
        if not self.net.is_cut(sender, life.machine.name):
            self.heap.after(
                self.net.delay_us(sender, life.machine.name), lambda: life.after(0, call)
            )

    def on_the_way(self, data: bytes) -> bytes:
        """Return a piece of a stream as it will arrive."""
        chance = self.heap.chance
        if not self.lies or chance.randrange(1000) >= self.lies or not data:
            return data
        changed = bytearray(data)
        if chance.random() < 0.5:
            self.heap.reached("bytes of another history on their way")
            return _of_another(changed)
        self.heap.reached("a damaged byte on its way")
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        return bytes(changed)

    # -- clients ----------------------------------------------------------------------------------

    def begin_load(self) -> None:
        """Let clients send."""
        chance = self.heap.chance
        for broker in list(self.brokers.values()):
            reigning, life = broker.reigning, broker.life
            if reigning is not None and self.heap.time_us >= broker.machine.stopped_until_us:
                for _ in range(chance.choice((1, 1, 1, 3))):
                    self._number += 1
                    if not life.over and reigning.send(self._number, chance.choice(SIZES)):
                        self.heap.reached("sends taken")
        self.heap.after(1 + chance.randrange(self.pace_us), self.begin_load)


def _of_another(data: bytearray) -> bytes:
    """Return the first record as another history may have it: valid, behind another one."""
    kind, size = data[KIND_AT], length_of(bytes(data))
    size = HEADER_BYTES if kind == Kind.PAD else size
    data[HEADER_BYTES - 4] ^= 1  # the CRC of the record before
    CRC.pack_into(data, 0, crc32c(bytes(data[4:size])))
    return bytes(data[:size])
