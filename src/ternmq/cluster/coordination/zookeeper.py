"""ZooKeeper as coordinator.

    PATH/leadership/GROUP     persistent node, the leadership record
    PATH/progress/GROUP       persistent node
    PATH/announced/BROKER     ephemeral node: it ends with the session of its broker

ZooKeeper counts versions of a node from 0; the port counts from 1.

A server of ZooKeeper answers reads from its own memory, which may be behind. So a read is a `sync`
and a `get` on the same connection: what was confirmed before is in the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.security import make_digest_acl

from ternmq.cluster.coordination.announcing import Announcements, read_announced
from ternmq.cluster.coordination.port import (
    DEADLINE_S,
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
from ternmq.cluster.coordination.requests import answer, asked
from ternmq.model.specs import check_name

SESSION_S: Final = 6.0
"""After this time without a word of a process, ZooKeeper ends its session."""

log = logging.getLogger("ternmq.cluster")

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Watch:
    """A function to be called when a node may have changed.

    Attributes:
        seen: ZooKeeper's number of the last change that was seen; None: the node was not there, -1:
            nobody has looked yet.
    """

    path: str
    changed: Callable[[], None]
    seen: int | None = -1


class ZooKeeperCoordinator:
    """A ``Coordinator`` in ZooKeeper. Loop only: make it in the running loop, and ``close`` it.

    Args:
        hosts: ``host:port,host:port`` of the servers.
        path: All nodes are below it; it is made if it is missing. It begins with a slash.
        deadline_s: Longest time of a call.
        session_s: Timeout of the session.
        account: User and password for the scheme digest; then the nodes are that user's.
    """

    def __init__(
        self,
        hosts: str,
        path: str,
        *,
        deadline_s: float = DEADLINE_S,
        session_s: float = SESSION_S,
        account: tuple[str, str] | None = None,
    ) -> None:
        self._path = path
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._watches: list[_Watch] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._opened = asyncio.Event()
        """Set when there was a connection once."""
        self._patience_at = self._loop.time() + deadline_s
        """Until then, calls wait for the first connection."""
        acl = None if account is None else [make_digest_acl(*account, all=True)]
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_s,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 1.0},
            auth_data=None if account is None else [("digest", ":".join(account))],
            default_acl=acl,
            logger=logging.getLogger("ternmq.cluster.zookeeper"),
        )
        self._announcements = Announcements(self._client, path, deadline_s)
        self._client.add_listener(self._turned)
        self._client.start_async()

    async def read(self, key: str) -> Stored | Unknown | None:
        """Return what is stored under a key. See ``Coordinator``."""
        path = self._node(key)

        async def ask() -> tuple[bytes, int] | None:
            # Both are sent at once, so they go over one connection, or the first one fails.
            synced, got = self._client.sync_async(path), self._client.get_async(path)
            try:
                await answer(synced)
                value, stat = await answer(got)
            except NoNodeError:
                return None
            return value, stat.version

        found = await self._asked(ask)
        if found is None or isinstance(found, Unknown):
            return found
        value, version = found
        return stored(value, version + FIRST_VERSION)

    async def create(self, key: str, value: bytes) -> Outcome:
        """Store a value if there is none. See ``Coordinator``."""
        path = self._node(key)
        check_value(value)

        async def ask() -> Swapped | Refused:
            try:
                await answer(self._client.create_async(path, value, makepath=True))
            except NodeExistsError:
                return Refused()
            return Swapped(FIRST_VERSION)

        return await self._asked(ask)

    async def swap(self, key: str, version: int, value: bytes) -> Outcome:
        """Replace a value of this version. See ``Coordinator``."""
        path = self._node(key)
        check_version(version)
        check_value(value)

        async def ask() -> Swapped | Refused:
            try:
                await answer(self._client.set_async(path, value, version - FIRST_VERSION))
            except (BadVersionError, NoNodeError):
                return Refused()
            return Swapped(version + 1)

        return await self._asked(ask)

    def watch(self, key: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when a node may have changed. See ``Coordinator``."""
        watch = _Watch(self._node(key), changed)
        self._watches.append(watch)
        self._do(self._arm(watch))

        def stop() -> None:
            if watch in self._watches:
                self._watches.remove(watch)

        return stop

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        """Show a name with a value. See ``Coordinator``."""
        check_name(name)
        check_value(value)
        await self._first_connection()
        return await self._announcements.announce(name, value)

    async def announced(self) -> Mapping[str, bytes] | Unknown:
        """Return the announcements. See ``Coordinator``."""
        await self._first_connection()
        return await read_announced(self._client, self._path, self._deadline_s)

    async def close(self) -> None:
        """End the session, and with it the announcements. See ``Coordinator``."""
        self._closed = True
        self._watches.clear()
        await self._announcements.forget()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        ended = asyncio.Event()

        def end() -> None:
            self._client.remove_listener(self._turned)
            try:
                self._client.stop()
                self._client.close()
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                    self._loop.call_soon_threadsafe(ended.set)

        # A daemon, since kazoo waits for a server that hangs.
        threading.Thread(target=end, name="ternmq-zookeeper-end", daemon=True).start()
        with contextlib.suppress(TimeoutError):  # the session ends by its own timeout then
            async with asyncio.timeout(self._deadline_s):
                await ended.wait()

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T | Unknown:
        await self._first_connection()
        return await asked(self._client, self._deadline_s, ask)

    async def _first_connection(self) -> None:
        """Wait for the first connection, not longer than a call may take after the beginning.

        A command asks at once. Later, nobody waits: a broker goes on without the coordinator.
        """
        if not self._opened.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._patience_at):
                    await self._opened.wait()

    def _node(self, key: str) -> str:
        return f"{self._path}/{check_key(key)}"

    def _turned(self, state: str) -> None:
        """Hear of the connection's state. In a thread of kazoo, which must go on."""
        if state == KazooState.CONNECTED:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._connected)
        elif state == KazooState.LOST and not self._closed:
            log.warning("the session with ZooKeeper ended; a new one is opened")

    def _connected(self) -> None:
        """Make again what a session or a connection that ended took with it."""
        self._opened.set()
        if self._closed:
            return
        self._do(self._announcements.renew())
        for watch in tuple(self._watches):
            self._do(self._arm(watch))

    async def _arm(self, watch: _Watch) -> None:
        """Have ZooKeeper tell of the next change, and pass on that there was one meanwhile.

        A watch tells of one change only. Without a connection, `_connected` comes back to it.
        """

        def fired(event: WatchedEvent) -> None:  # in a thread of kazoo
            del event  # also when the connection ends
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._fired, watch)

        async def ask() -> int | None:
            stat = await answer(self._client.exists_async(watch.path, fired))
            return None if stat is None else int(stat.mzxid)

        now = await asked(self._client, self._deadline_s, ask)
        if now != watch.seen and watch in self._watches:
            watch.seen = -1 if isinstance(now, Unknown) else now
            self._loop.call_soon(watch.changed)

    def _fired(self, watch: _Watch) -> None:
        if not self._closed and watch in self._watches:
            self._do(self._arm(watch))

    def _do(self, work: Any) -> None:  # noqa: ANN401
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
