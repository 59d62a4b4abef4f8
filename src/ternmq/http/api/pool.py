"""Sessions at the broker, one for each credential.

The server has no right of its own: each request is carried to the broker over a session that was
opened with the caller's own credential. A session that nobody used for ``IDLE_S`` is closed; beyond
``MOST`` the one that was used longest ago. A credential that the broker refused is refused again
for ``REFUSED_S`` without asking.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ternmq.client.client import Client, session_of
from ternmq.client.connection.connecting import options_of
from ternmq.http.api.credentials import Credential
from ternmq.http.api.detached import Detached
from ternmq.model.errors import Busy, ShuttingDown, Unauthenticated

MOST: Final = 900
"""A broker takes 1,024 connections of one address."""
IDLE_S: Final = 60.0
REFUSED_S: Final = 10.0
_REFUSED_MOST: Final = 10_000
_CLOSING_S: Final = 5.0


class Entry:
    """The session of one credential.

    Attributes:
        client: A client with it.
        detached: Its pulls.
        users: Number of requests that use it now.
        used: When the last one ended, in the loop's time.
    """

    __slots__ = ("client", "detached", "gone", "used", "users")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.detached = Detached(session_of(client), client.codecs)
        self.users = 0
        self.used = 0.0
        self.gone = False


class Pool:
    """All sessions of a server. Not thread-safe: use it in one loop.

    Args:
        url: The broker.
        timeout: Seconds for a request to the broker in all.
    """

    def __init__(self, url: str | None, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, Unauthenticated]] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def session(self, credential: Credential) -> AsyncIterator[Entry]:
        """Lend the session of a credential.

        Raises:
            Unauthenticated: The broker refused it, now or a moment ago.
            Busy: All sessions are in use.
            ShuttingDown: The server ends.
        """
        key = _key(credential)
        entry = self._entry(key, credential)
        entry.users += 1
        try:
            yield entry
        except Unauthenticated as error:
            self._refuse(key, entry, error)
            raise
        finally:
            entry.users -= 1
            entry.used = asyncio.get_running_loop().time()
            if entry.gone and not entry.users:
                self._close(entry)

    def _entry(self, key: bytes, credential: Credential) -> Entry:
        if self._closed:
            raise ShuttingDown("this server is about to end")
        now = asyncio.get_running_loop().time()
        known = self._refused.get(key)
        if known is not None:
            if now < known[0]:
                raise Unauthenticated(str(known[1].args[0]))
            del self._refused[key]
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            return entry
        if len(self._entries) >= MOST:
            self._make_room()
        # Both are stated, so that neither comes from this process's environment.
        options = options_of(self._url, credential.app, credential.token, self._timeout, 600.0)
        entry = self._entries[key] = Entry(Client(options))
        return entry

    def _make_room(self) -> None:
        for key, entry in self._entries.items():
            if not entry.users:
                del self._entries[key]
                self._close(entry)
                return
        raise Busy(f"{MOST} credentials are in use at this server")

    def _refuse(self, key: bytes, entry: Entry, error: Unauthenticated) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
            entry.gone = True
        now = asyncio.get_running_loop().time()
        self._refused[key] = (now + REFUSED_S, error)
        if len(self._refused) > _REFUSED_MOST:
            self._refused.popitem(last=False)

    def sweep(self) -> None:
        """Close sessions that nobody used for ``IDLE_S``. Call it every few seconds."""
        now = asyncio.get_running_loop().time()
        idle = [
            key
            for key, entry in self._entries.items()
            if not entry.users and entry.used and now - entry.used > IDLE_S
        ]
        for key in idle:
            self._close(self._entries.pop(key))

    def _close(self, entry: Entry) -> None:
        task = asyncio.get_running_loop().create_task(entry.client.close(_CLOSING_S))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all sessions; none is lent any more."""
        self._closed = True
        for entry in self._entries.values():
            self._close(entry)
        self._entries.clear()
        if self._closing:
            await asyncio.wait(list(self._closing), timeout=2 * _CLOSING_S)


def _key(credential: Credential) -> bytes:
    """Return what stands for a credential: no token is kept as a key."""
    return hashlib.sha256("\0".join(credential).encode()).digest()
