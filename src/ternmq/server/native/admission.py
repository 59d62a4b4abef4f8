"""Limits on the number of connections: in all, from one address, of one app.

A process has a limited number of descriptors. If connections took the last one, the journal could
not make its next file, and all sends would be refused; so some descriptors are kept free. When
there is no room for a new connection, the oldest one that has not sent HELLO is closed, so that
clients are not kept out by connections that only connect. Nor are they by an app with many
connections: see ``accounts.Places``.
"""

from __future__ import annotations

import sys
from typing import Final, Protocol

from ternmq.server.desk.accounts import Places
from ternmq.settings import Settings

RESERVED: Final = 64
"""Descriptors for the journal, its index, health, and connections that are being refused."""
LEAST: Final = 8
"""Connections that are admitted even if the process has very few descriptors."""


class Stranger(Protocol):
    """A connection, as this module needs it."""

    def turn_away(self) -> None:
        """Close at once: another connection needs the place."""
        ...


class Admission:
    """Counts and limits connections. Not thread-safe: call it from the broker's loop.

    Args:
        settings: Limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._count = 0
        self._by_address: dict[str, int] = {}
        self.apps = Places(settings.connections)
        """Connections that have sent HELLO, by app."""
        self._app_of: dict[Stranger, str] = {}
        self._strangers: dict[Stranger, None] = {}
        """Connections that have not sent HELLO yet, oldest first."""

    def admit(self, peer: Stranger, host: str) -> bool:
        """Return whether a connection from this address may stay; if so, count it."""
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
        """Note that a connection has sent HELLO; return whether its app may have one more."""
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
    """Return the number of connections that the process has descriptors for; it may change."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(LEAST, limit - RESERVED)
