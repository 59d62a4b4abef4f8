"""A coordinator in memory, for tests and the simulator: no clock, no thread, no randomness.

``Register`` is the store, plain synchronous code: the simulator decides when a request reaches it
and when the answer leaves. ``MemoryCoordinator`` is what one process sees of it, as the port.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from ternmq.cluster.coordination.port import (
    FIRST_VERSION,
    Announced,
    Outcome,
    Refused,
    Stored,
    Swapped,
    Unknown,
    check_key,
    check_value,
    check_version,
    stored,
)
from ternmq.model.specs import check_name

_LOST: Final = Unknown("the answer was lost")


class Register:
    """The state of a coordinator. Not thread-safe.

    Attributes:
        values: What is stored, by key. A test may put anything here.
    """

    def __init__(self) -> None:
        self.values: dict[str, Stored] = {}
        self._announced: dict[str, tuple[object, bytes]] = {}
        self._watches: dict[str, list[Callable[[], None]]] = {}

    def read(self, key: str) -> Stored | None:
        """Return what is stored under a key."""
        return self.values.get(key)

    def create(self, key: str, value: bytes) -> Swapped | Refused:
        """Store a value with version 1 if there is none."""
        if key in self.values:
            return Refused()
        return self._store(key, Stored(value, FIRST_VERSION))

    def swap(self, key: str, version: int, value: bytes) -> Swapped | Refused:
        """Replace a value if it has this version."""
        found = self.values.get(key)
        if found is None or found.version != version:
            return Refused()
        return self._store(key, Stored(value, version + 1))

    def watch(self, key: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Have a function called after each change of a key; return what ends this."""
        calls = self._watches.setdefault(key, [])
        calls.append(changed)

        def stop() -> None:
            if changed in calls:
                calls.remove(changed)

        return stop

    def announce(self, session: object, name: str, value: bytes) -> None:
        """Announce a name for as long as a session lives; another session's is replaced."""
        self._announced[name] = (session, value)

    def holder(self, name: str) -> object | None:
        """Return the session that announced a name."""
        found = self._announced.get(name)
        return None if found is None else found[0]

    def expire(self, session: object) -> None:
        """End a session: what it announced is gone."""
        gone = [name for name, (by, _) in self._announced.items() if by is session]
        for name in gone:
            del self._announced[name]

    def announced(self) -> dict[str, bytes]:
        """Return what is announced, by name."""
        return {name: value for name, (_, value) in sorted(self._announced.items())}

    def _store(self, key: str, new: Stored) -> Swapped:
        self.values[key] = new
        for call in tuple(self._watches.get(key, ())):
            call()
        return Swapped(new.version)


class Fate(enum.Enum):
    """What becomes of a create or swap whose answer is lost."""

    MADE = enum.auto()
    """It reached the register at once."""
    DROPPED = enum.auto()
    """It never reaches the register."""
    LATE = enum.auto()
    """It reaches the register at ``deliver``."""


class MemoryCoordinator:
    """One process's view of a register: a ``Coordinator``. Loop only.

    Args:
        register: The store that it shares with others.

    Attributes:
        fates: The next changes lose their answers, each with a fate; the test appends to it.
        cut: Every call is Unknown and has no effect.
        changes: Creates and swaps that were sent.
    """

    def __init__(self, register: Register) -> None:
        self._register = register
        self._session = object()
        self._names: dict[str, bytes] = {}
        self._stops: list[Callable[[], None]] = []
        self._late: list[Callable[[], Swapped | Refused]] = []
        self.fates: deque[Fate] = deque()
        self.cut = False
        self.changes = 0

    async def read(self, key: str) -> Stored | Unknown | None:
        """Return what is stored under a key. See ``Coordinator``."""
        check_key(key)
        if self.cut:
            return _LOST
        found = self._register.read(key)
        return None if found is None else stored(found.value, found.version)

    async def create(self, key: str, value: bytes) -> Outcome:
        """Store a value if there is none. See ``Coordinator``."""
        check_key(key)
        check_value(value)
        return self._sent(lambda: self._register.create(key, value))

    async def swap(self, key: str, version: int, value: bytes) -> Outcome:
        """Replace a value of this version. See ``Coordinator``."""
        check_key(key)
        check_version(version)
        check_value(value)
        return self._sent(lambda: self._register.swap(key, version, value))

    def watch(self, key: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Have a function called at each change, before the swap returns. See ``Coordinator``."""
        stop = self._register.watch(check_key(key), changed)
        self._stops.append(stop)
        return stop

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        """Show a name with a value. See ``Coordinator``."""
        self._names[check_name(name)] = check_value(value)
        if self.cut:
            return _LOST
        self._register.announce(self._session, name, value)
        return Announced()

    async def announced(self) -> Mapping[str, bytes] | Unknown:
        """Return the announcements. See ``Coordinator``."""
        return _LOST if self.cut else self._register.announced()

    async def close(self) -> None:
        """Withdraw the announcements and watches."""
        self.killed()

    def killed(self) -> None:
        """Do to the register what the end of the process does."""
        self._names.clear()
        self._register.expire(self._session)
        for stop in self._stops:
            stop()

    def expire(self) -> None:
        """End the session in the register. What was announced is gone until ``tend``."""
        self._register.expire(self._session)

    def tend(self) -> None:
        """Announce again what the register forgot; a name that another process has stays its."""
        for name, value in self._names.items():
            if self._register.holder(name) is None and not self.cut:
                self._register.announce(self._session, name, value)

    def deliver(self) -> list[Swapped | Refused]:
        """Have the changes that are late reach the register; return what it said."""
        late, self._late = self._late, []
        return [one() for one in late]

    def _sent(self, change: Callable[[], Swapped | Refused]) -> Outcome:
        self.changes += 1
        if self.cut:
            return _LOST
        if not self.fates:
            return change()
        match self.fates.popleft():
            case Fate.MADE:
                change()
            case Fate.LATE:
                self._late.append(change)
            case Fate.DROPPED:
                pass
        return _LOST
