"""Announcements in ZooKeeper: an ephemeral node for each, which ends with its session.

A process that starts again finds the node of its former life, and replaces it, in one transaction.
From then on a later process of the same name goes first. The node is watched: if it is gone, with
its session or because the later process ended, it is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from ternmq.cluster.coordination.port import Announced, Unknown, announcement
from ternmq.cluster.coordination.requests import answer, asked

MOST_ANNOUNCED: Final = 1000
"""Most announcements that are read."""
_ROUNDS: Final = 5
"""How often a node that another process changes meanwhile is tried again."""

log = logging.getLogger("ternmq.cluster")


@dataclass(slots=True, eq=False)
class _Mine:
    """An announcement of this process.

    Attributes:
        made: It was made once; from then on a later process of the same name goes first.
        aside: Another process has the name.
    """

    value: bytes
    made: bool = False
    aside: bool = False


class Announcements:
    """What this process announces. Loop only.

    Args:
        client: Of kazoo.
        path: The nodes are in its folder ``announced``.
        limit_s: Longest time of a call.
    """

    def __init__(self, client: KazooClient, path: str, limit_s: float) -> None:
        self._client = client
        self._path = path
        self._limit_s = limit_s
        self._mine: dict[str, _Mine] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Announced | Unknown]] = set()

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        """Make the node, or replace it, whoever made it. After Unknown, ``renew`` makes it."""
        mine = self._mine[name] = _Mine(value)
        return await self._make(name, mine)

    async def renew(self) -> None:
        """Make the nodes again that are missing. Call it after each connect."""
        for name, mine in list(self._mine.items()):
            await self._make(name, mine)

    async def forget(self) -> None:
        """Make no node again."""
        self._mine.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, name: str, mine: _Mine) -> Announced | Unknown:
        path = f"{self._path}/announced/{name}"

        async def ask() -> bool | Unknown:
            async with self._turn:
                if self._mine.get(name) is not mine:
                    return True  # it was replaced by this process, or withdrawn
                for _ in range(_ROUNDS):
                    done = await self._try(path, mine)
                    if done is not None and await self._watched(path, name, mine):
                        return done
                return Unknown(f"another process announces the name {name} at the same time")

        done = await asked(self._client, self._limit_s, ask)
        if isinstance(done, Unknown):
            return done
        if not done and not mine.aside:
            log.warning("another process announced the name %s after this one", name)
        mine.made = True
        mine.aside = not done
        return Announced()

    async def _try(self, path: str, mine: _Mine) -> bool | None:
        """Make the node; None: it changed meanwhile, False: it is another process's."""
        client = self._client
        try:
            await answer(client.create_async(path, mine.value, ephemeral=True, makepath=True))
        except NodeExistsError:
            stat = await answer(client.exists_async(path))
        else:
            return True
        if stat is None:
            return None
        if client.client_id is not None and stat.ephemeralOwner == client.client_id[0]:
            with contextlib.suppress(BadVersionError, NoNodeError):  # it changed meanwhile
                await answer(client.set_async(path, mine.value, stat.version))
                return True
            return None
        if mine.made:
            return False
        both = client.transaction()
        both.delete(path, stat.version)
        both.create(path, mine.value, ephemeral=True)
        results = await answer(both.commit_async())
        return None if any(isinstance(one, Exception) for one in results) else True

    async def _watched(self, path: str, name: str, mine: _Mine) -> bool:
        """Watch the node, to make it again when it is gone; return whether it is there."""
        loop = asyncio.get_running_loop()

        def fired(event: WatchedEvent) -> None:  # in a thread of kazoo
            # If the connection ended, `renew` is called at the next one.
            if event.type == EventType.DELETED:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(gone)

        def gone() -> None:
            task = loop.create_task(self._make(name, mine))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return await answer(self._client.exists_async(path, fired)) is not None


async def read_announced(
    client: KazooClient, path: str, limit_s: float
) -> dict[str, bytes] | Unknown:
    """Return what is announced, by name; what no broker can have made is left out and logged."""
    folder = f"{path}/announced"

    async def value(name: str) -> Any:  # noqa: ANN401  # whatever is there
        try:
            return (await answer(client.get_async(f"{folder}/{name}")))[0]
        except NoNodeError:
            return None  # it ended meanwhile

    async def ask() -> list[tuple[str, Any]]:
        try:
            names = await answer(client.get_children_async(folder))
        except NoNodeError:
            return []
        names = sorted(names)[:MOST_ANNOUNCED]
        return list(zip(names, await asyncio.gather(*map(value, names)), strict=True))

    rows = await asked(client, limit_s, ask)
    if isinstance(rows, Unknown):
        return rows
    found: dict[str, bytes] = {}
    for name, held in rows:
        if held is None:
            continue
        wrong = announcement(name, held)
        if wrong is None:
            found[name] = held
        else:
            log.warning("an announcement in ZooKeeper is left out: %s", wrong)
    return found
