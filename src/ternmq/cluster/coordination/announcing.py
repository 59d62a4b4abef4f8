"""Announcements in ZooKeeper: an ephemeral node for each, which ends with its session.

A process that starts again finds the node of its former life, and replaces it. After a session
that expired, the node is made again, unless another process has the name by then.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from ternmq.cluster.coordination.port import Announced, Unknown, announcement
from ternmq.cluster.coordination.requests import answer, asked

MOST_ANNOUNCED: Final = 1000
"""Most announcements that are read."""
_ROUNDS: Final = 5
"""How often a node that another process changes meanwhile is tried again."""

log = logging.getLogger("ternmq.cluster")


@dataclass(slots=True, eq=False)
class _Mine:
    """An announcement of this process."""

    value: bytes
    made: bool = False


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

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        """Make the node, or replace it, whoever made it. After Unknown, ``renew`` makes it."""
        mine = self._mine[name] = _Mine(value)
        return await self._make(name, mine)

    async def renew(self) -> None:
        """Make the nodes again that are missing. Call it after each connect."""
        for name, mine in list(self._mine.items()):
            if self._mine.get(name) is mine:
                await self._make(name, mine)

    def forget(self) -> None:
        """Make no node again."""
        self._mine.clear()

    async def _make(self, name: str, mine: _Mine) -> Announced | Unknown:
        path = f"{self._path}/announced/{name}"

        async def ask() -> bool | Unknown:
            async with self._turn:
                for _ in range(_ROUNDS):
                    done = await self._try(path, mine)
                    if done is not None:
                        return done
                return Unknown(f"another process announces the name {name} at the same time")

        done = await asked(self._client, self._limit_s, ask)
        if isinstance(done, Unknown):
            return done
        if done:
            mine.made = True
        elif self._mine.get(name) is mine:
            del self._mine[name]
            log.warning("another process announced the name %s after this one", name)
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
        try:
            if client.client_id is not None and stat.ephemeralOwner == client.client_id[0]:
                await answer(client.set_async(path, mine.value, stat.version))
                return True
            if mine.made:
                return False
            await answer(client.delete_async(path, stat.version))
        except (BadVersionError, NoNodeError):
            pass  # it changed between the two requests
        return None


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
