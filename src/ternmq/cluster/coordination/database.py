"""A database as coordinator: SQLite, MySQL, MariaDB or PostgreSQL.

A change is one UPDATE that names the version which it replaces. A process is alive as long as it
renews its row; others see a process that was killed for ``ALIVE_S`` more. Watches ask for the
versions once a second.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ternmq.cluster.coordination.port import (
    DEADLINE_S,
    FIRST_VERSION,
    Announced,
    Outcome,
    Refused,
    Stored,
    Swapped,
    Unknown,
    announcement,
    check_key,
    check_value,
    check_version,
    stored,
)
from ternmq.cluster.coordination.record import BadRecord
from ternmq.cluster.coordination.tables import Database, DatabaseSession, Unfit
from ternmq.cluster.coordination.threads import OutOfTime, Threads
from ternmq.model.printing import printable
from ternmq.model.specs import check_name

BEAT_S: Final = 1.0
"""How often a process renews its announcements, and asks for the versions that it watches."""
ALIVE_S: Final = 5.0
"""How long after its last renewal a process counts as alive."""
_MOST_THREADS: Final = 4
_MOST_WHY: Final = 200

log = logging.getLogger("ternmq.cluster")

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Mine:
    """An announcement of this process.

    Attributes:
        made: It was made once; from then on a later process of the same name goes first.
        aside: Another living process has the name.
    """

    value: bytes
    owner: str
    made: bool = False
    aside: bool = False


@dataclass(slots=True, eq=False)
class _Watch:
    """A function to be called when a key's version is not the one that was seen last."""

    key: str
    changed: Callable[[], None]
    seen: object = field(default_factory=object)  # equal to no version


class DatabaseCoordinator:
    """A ``Coordinator`` in a database. Loop only: make it in the running loop, and ``close`` it.

    Args:
        url: Of a database that ``tables.DIALECTS`` has.
        deadline_s: Longest time of a call.
        beat_s: How often announcements are renewed and watched versions are asked for.
        alive_s: How long a process that is silent counts as alive; the same in all processes.
    """

    def __init__(
        self,
        url: sa.URL,
        *,
        deadline_s: float = DEADLINE_S,
        beat_s: float = BEAT_S,
        alive_s: float = ALIVE_S,
    ) -> None:
        self._deadline_s = deadline_s
        self._beat_s = beat_s
        self._alive_us = round(alive_s * 1_000_000)
        database = Database(url, deadline_s)
        self._threads: Threads[DatabaseSession] = Threads(
            "ternmq-database", database.session, _MOST_THREADS
        )
        self._mine: dict[str, _Mine] = {}
        self._watches: list[_Watch] = []
        self._silent = False
        self._turn = asyncio.Lock()
        self._tending: asyncio.Task[None] = asyncio.create_task(self._tend())

    async def read(self, key: str) -> Stored | Unknown | None:
        """Return what is stored under a key. See ``Coordinator``."""
        check_key(key)
        row = await self._run(lambda session: session.read(key))
        if row is None or isinstance(row, Unknown):
            return row
        if row.value is None:
            raise BadRecord(f"the coordinator holds {row.size} bytes under {key}")
        return stored(row.value, row.version)

    async def create(self, key: str, value: bytes) -> Outcome:
        """Store a value if there is none. See ``Coordinator``."""
        check_key(key)
        check_value(value)
        made = await self._run(lambda session: session.create(key, FIRST_VERSION, value))
        return _outcome(made, FIRST_VERSION)

    async def swap(self, key: str, version: int, value: bytes) -> Outcome:
        """Replace a value of this version. See ``Coordinator``."""
        check_key(key)
        check_version(version)
        check_value(value)
        made = await self._run(lambda session: session.swap(key, version, value))
        return _outcome(made, version + 1)

    def watch(self, key: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Have a function called within about a second of a change. See ``Coordinator``."""
        watch = _Watch(check_key(key), changed)
        self._watches.append(watch)

        def stop() -> None:
            if watch in self._watches:
                self._watches.remove(watch)

        return stop

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        """Show a name with a value. See ``Coordinator``."""
        check_name(name)
        check_value(value)
        mine = self._mine[name] = _Mine(value, secrets.token_hex(16))
        try:
            # Not while it is renewed: the two could arrive in the other order.
            async with asyncio.timeout(self._deadline_s), self._turn:
                return await self._take(name, mine)
        except TimeoutError:
            return Unknown(f"no answer within {self._deadline_s:g} s")

    async def announced(self) -> Mapping[str, bytes] | Unknown:
        """Return the announcements. See ``Coordinator``."""
        rows = await self._run(lambda session: session.announced(self._alive_us))
        if isinstance(rows, Unknown):
            return rows
        found: dict[str, bytes] = {}
        for name, value in rows:
            wrong = announcement(name, value)
            if wrong is not None:
                log.warning("an announcement in the database is left out: %s", wrong)
            else:
                assert isinstance(name, str)
                assert isinstance(value, bytes)
                found[name] = value
        return found

    async def close(self) -> None:
        """Withdraw the announcements and end the connections. See ``Coordinator``."""
        self._tending.cancel()
        await asyncio.wait([self._tending])
        mine, self._mine = self._mine, {}

        def withdraw(session: DatabaseSession) -> None:
            for name, one in mine.items():
                session.withdraw(name, one.owner)

        if mine:
            await self._run(withdraw)
        self._threads.close()
        if not self._tending.cancelled():
            self._tending.result()  # raises what ended it

    async def _take(self, name: str, mine: _Mine) -> Announced | Unknown:
        done = await self._run(lambda session: session.take(name, mine.owner, mine.value))
        if isinstance(done, Unknown):
            return done
        if not done:
            return Unknown(f"another process announced the name {name} at the same time")
        mine.made = True
        return Announced()

    async def _tend(self) -> None:
        """Renew the announcements and look at the watched versions, until this is cancelled."""
        while True:
            await asyncio.sleep(self._beat_s)
            async with self._turn:
                for name, mine in list(self._mine.items()):
                    if self._mine.get(name) is mine:
                        await self._renew(name, mine)
            if self._watches:
                await self._look()

    async def _renew(self, name: str, mine: _Mine) -> None:
        if not mine.made:
            self._heard(await self._take(name, mine))
            return
        there = await self._run(
            lambda session: session.beat(name, mine.owner, mine.value, self._alive_us)
        )
        self._heard(there)
        if isinstance(there, Unknown):
            return
        if not there and not mine.aside:
            log.warning("another process announced the name %s after this one", name)
        mine.aside = not there

    async def _look(self) -> None:
        names = sorted({one.key for one in self._watches})
        versions = await self._run(lambda session: session.versions(names))
        self._heard(versions)
        if isinstance(versions, Unknown):
            return
        for watch in tuple(self._watches):
            version = versions.get(watch.key)
            if version != watch.seen:
                watch.seen = version
                asyncio.get_running_loop().call_soon(watch.changed)

    def _heard(self, answer: object) -> None:
        """Log when the database falls silent, and when it is back."""
        silent = isinstance(answer, Unknown)
        if silent and not self._silent:
            log.warning("the coordinator's database does not answer: %s", answer)
        elif self._silent and not silent:
            log.warning("the coordinator's database answers again")
        self._silent = silent

    async def _run(self, work: Callable[[DatabaseSession], T]) -> T | Unknown:
        try:
            return await self._threads.run(work, self._deadline_s)
        except OutOfTime as error:
            return Unknown(str(error))
        except (Unfit, SQLAlchemyError, OSError) as error:
            return Unknown(_why(error))


def _outcome(made: bool | Unknown, version: int) -> Outcome:
    if isinstance(made, Unknown):
        return made
    return Swapped(version) if made else Refused()


def _why(error: Exception) -> str:
    """Return an error as one line; SQLAlchemy's own text would have the statement."""
    told = getattr(error, "orig", None) or error
    line = printable(" ".join(str(told).split()))
    return f"{type(told).__name__}: {line[:_MOST_WHY]}"
