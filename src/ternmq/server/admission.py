"""Who may connect: so many in all, from one address, of one app; descriptors are left for the disk.

A process has a limited number of descriptors. When connections take the last one, the journal
cannot make its next file, and every client's sends are refused; so some are kept free. Where there
is no room, whoever has not said HELLO yet makes room, the oldest first: strangers who only connect
keep no client out. Nor does an app that has many connections: see ``ledgers.Places``.
"""

from __future__ import annotations

import sys
from typing import Final, Protocol

from ternmq.server.ledgers import Places
from ternmq.settings import Settings

RESERVED: Final = 64
"""Descriptors for the journal, its index, health, and connections that are being refused."""
LEAST: Final = 8
"""Connections that are admitted however few descriptors there are."""


class Stranger(Protocol):
    """A connection, as far as it is known here."""

    def turn_away(self) -> None:
        """Close at once: others need the place."""
        ...


class Admission:
    """Counts connections. Loop only.

    Args:
        settings: Limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._count = 0
        self._by_address: dict[str, int] = {}
        self.apps = Places(settings.connections)
        """Connections that have said HELLO, by app."""
        self._app_of: dict[Stranger, str] = {}
        self._strangers: dict[Stranger, None] = {}
        """Those that have not said HELLO yet, oldest first."""

    def admit(self, peer: Stranger, host: str) -> bool:
        """Return whether a connection from this address may stay; then it is counted."""
        if self._by_address.get(host, 0) >= self._settings.connections_per_ip:
            return False
        if self._count >= min(self._settings.connections, _descriptors()):
            if not self._strangers:
                return False
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.turn_away()
        self._count += 1
        self._by_address[host] = self._by_address.get(host, 0) + 1
        self._strangers[peer] = None
        return True

    def introduced(self, peer: Stranger, app: str) -> bool:
        """Note that a connection has said who it is; return whether its app may have one more."""
        settings = self._settings
        self._strangers.pop(peer, None)
        self.apps.limit = min(settings.connections, _descriptors())
        if not self.apps.take(app, settings.connections_per_app):
            return False
        self._app_of[peer] = app
        return True

    def left(self, peer: Stranger, host: str) -> None:
        """Note that an admitted connection is gone."""
        self._strangers.pop(peer, None)
        app = self._app_of.pop(peer, None)
        if app is not None:
            self.apps.give(app)
        self._count -= 1
        rest = self._by_address[host] - 1
        if rest:
            self._by_address[host] = rest
        else:
            del self._by_address[host]


def _descriptors() -> int:
    """Return how many connections the process has descriptors for; the limit may change."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(LEAST, limit - RESERVED)
