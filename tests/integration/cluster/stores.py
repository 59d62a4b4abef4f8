"""What the tests of a coordinator need of one: views of it, and a way to put anything into it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import kazoo.client
import sqlalchemy as sa

from ternmq.cluster.coordination.database import DatabaseCoordinator
from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Coordinator, Stored, Unknown
from ternmq.cluster.coordination.zookeeper import ZooKeeperCoordinator
from tests.asynchronous import until_true
from tests.coordinators import SESSION_S

DEADLINE_S = 10.0
"""Of calls that are to be answered: a machine with other work may be slow."""
BEAT_S = 0.05
ALIVE_S = 2.0


class Store(Protocol):
    """A coordinator that several processes, or views of one, may use."""

    url: str

    def view(self, *, url: str = "", deadline_s: float = DEADLINE_S) -> Coordinator:
        """Open it as a process of its own would, perhaps by another address."""
        ...

    def plant(self, key: str, value: bytes) -> None:
        """Put a value there, past all checks, where there is none."""
        ...


class MemoryStore:
    """A register."""

    url = ""

    def __init__(self) -> None:
        self.register = Register()

    def view(self, *, url: str = "", deadline_s: float = DEADLINE_S) -> Coordinator:
        return MemoryCoordinator(self.register)

    def plant(self, key: str, value: bytes) -> None:
        self.register.values[key] = Stored(value, 1)


class DatabaseStore:
    """A database; its tables are emptied first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)
        for table in ("ternmq_leadership", "ternmq_announced"):
            if sa.inspect(self._engine).has_table(table):
                self.do(f"DELETE FROM {table}")

    def view(self, *, url: str = "", deadline_s: float = DEADLINE_S) -> DatabaseCoordinator:
        return DatabaseCoordinator(
            sa.make_url(url or self.url), deadline_s=deadline_s, beat_s=BEAT_S, alive_s=ALIVE_S
        )

    def plant(self, key: str, value: bytes) -> None:
        self.do(
            "INSERT INTO ternmq_leadership (name, version, value) VALUES (:key, 1, :value)",
            key=key, value=value,
        )  # fmt: skip

    def do(self, statement: str, **parameters: object) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.text(statement), parameters)


class ZooKeeperStore:
    """A ZooKeeper; its nodes are removed first."""

    def __init__(self, url: str) -> None:
        self.url = url
        with suppress(kazoo.exceptions.NoNodeError):
            self.do(lambda client: client.delete("/ternmq", recursive=True))

    def view(self, *, url: str = "", deadline_s: float = DEADLINE_S) -> ZooKeeperCoordinator:
        parts = urlsplit(url or self.url)
        return ZooKeeperCoordinator(
            parts.netloc, parts.path, deadline_s=deadline_s, session_s=SESSION_S
        )

    def plant(self, key: str, value: bytes) -> None:
        self.do(lambda client: client.create(f"/ternmq/{key}", value, makepath=True))

    def do(self, work: Any) -> None:
        client = kazoo.client.KazooClient(urlsplit(self.url).netloc)
        client.start()
        try:
            work(client)
        finally:
            client.stop()
            client.close()


async def ready(coordinator: Coordinator) -> None:
    """Wait until it answers."""

    async def answers() -> bool:
        return not isinstance(await coordinator.read("leadership/none"), Unknown)

    await until_true(answers, "the coordinator answers")


async def shows(coordinator: Coordinator, announced: dict[str, bytes]) -> None:
    """Wait until a view shows these announcements, and no others."""

    async def seen() -> bool:
        return await coordinator.announced() == announced

    await until_true(seen, f"{announced} is announced")


@asynccontextmanager
async def views(
    store: Store, count: int, *, url: str = "", deadline_s: float = DEADLINE_S
) -> AsyncIterator[list[Any]]:
    """Open some views of a coordinator that answer; close them."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(one := store.view(url=url, deadline_s=deadline_s))
            stack.push_async_callback(one.close)
        for one in made:
            await ready(one)
        yield made


class Ticker:
    """Measures how long the loop was blocked, at most, in seconds."""

    async def __aenter__(self) -> Self:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - last)
            last = now
