"""The coordinator: one register, asked over ways that are slow, late, lost or cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from ternmq.cluster.coordination.memory import Register
from ternmq.cluster.coordination.port import (
    Announced,
    Outcome,
    Stored,
    Unknown,
    check_key,
    check_value,
    check_version,
)
from tests.sim.group.heap import Future, Heap
from tests.sim.group.machine import Life

T = TypeVar("T")
DEADLINE_US: Final = 2_000_000
PACE_US: Final = (300, 1000, 5000)
_GAVE_UP: Final = Unknown("no answer within the deadline")


class Store:
    """The register, and how well it can be reached.

    Attributes:
        bad: How many of 100 requests or answers go wrong.
        away_until_us: Nobody reaches it before.
        cut: The machines that do not reach it, and until when.
    """

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.register = Register()
        self.bad = 0
        self.away_until_us = 0
        self.cut: dict[str, int] = {}
        self.next_late_us = 0
        """The next change arrives so late."""
        self.next_answer_us = 0
        """The answer to the next change comes so late."""

    def heal(self) -> None:
        """Let everybody reach it again."""
        self.bad = 0
        self.away_until_us = 0
        self.cut.clear()

    def reachable(self, machine: str) -> bool:
        """Return whether requests of a machine arrive and are answered."""
        return max(self.away_until_us, self.cut.get(machine, 0)) <= self.heap.time_us

    def goes_wrong(self) -> bool:
        """Return whether something goes wrong here."""
        return self.bad > 0 and self.heap.chance.randrange(100) < self.bad


class Client:
    """What a process sees of the coordinator; a ``Coordinator``."""

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life

    async def _ask(self, call: Callable[[], T], *, changes: bool = False) -> T | Unknown:
        store, life, heap = self._store, self._life, self._store.heap
        chance = heap.chance
        answer: Future[T | Unknown] = Future()
        life.after(DEADLINE_US, lambda: answer.set(_GAVE_UP))
        way_us, back_us = chance.choice(PACE_US), chance.choice(PACE_US)
        name = life.machine.name
        if changes and store.next_late_us:
            way_us, store.next_late_us = store.next_late_us, 0
            heap.reached("a change that arrives late")
        elif not store.reachable(name):
            if not changes or chance.random() < 0.7:
                return await answer
            way_us = chance.randrange(6_000_000)  # it arrives when it was given up, or not
            heap.reached("a change that arrives late")
        elif store.goes_wrong():
            if chance.random() < 0.3:
                heap.reached("a request that is lost")
                return await answer
            way_us = chance.randrange(5_000_000)
        if changes and store.next_answer_us:
            back_us, store.next_answer_us = store.next_answer_us, 0

        def arrive() -> None:
            if not store.reachable(name) and not changes:
                return
            result = call()
            if not store.reachable(name) or store.goes_wrong():
                heap.reached("an answer that is lost")
                return
            life.after(back_us, lambda: answer.set(result))

        heap.after(way_us, arrive)
        return await answer

    async def read(self, key: str) -> Stored | Unknown | None:
        """Return what is stored under a key."""
        check_key(key)
        return await self._ask(lambda: self._store.register.read(key))

    async def create(self, key: str, value: bytes) -> Outcome:
        """Store a value if there is none."""
        check_key(key)
        check_value(value)
        return await self._ask(lambda: self._store.register.create(key, value), changes=True)

    async def swap(self, key: str, version: int, value: bytes) -> Outcome:
        """Replace a value of this version."""
        check_key(key)
        check_version(version)
        check_value(value)
        return await self._ask(lambda: self._store.register.swap(key, version, value), changes=True)

    def watch(self, key: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Give hints, but not all of them."""
        store, life = self._store, self._life

        def hint() -> None:
            if life.over or not store.reachable(life.machine.name):
                return
            if store.heap.chance.random() < 0.3:
                store.heap.reached("a hint that is lost")
                return
            life.after(store.heap.chance.choice(PACE_US), changed)

        return store.register.watch(key, hint)

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        """Nothing: machines know each other here."""
        del name, value
        return Announced()

    async def announced(self) -> Mapping[str, bytes] | Unknown:
        """Nothing: machines know each other here."""
        return {}

    async def close(self) -> None:
        """Nothing to release."""
