"""Sessions of clients: which are connected, and when the grace of the others ends.

A session belongs to one client instance of one app. It outlives its connections by a grace period,
also over a restart of the broker. When it ends, its leased rows are delivered to other consumers.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.record.fact.control import Joined

PAGE_BITS: Final = 6


class Session:
    """A session of a client instance."""

    __slots__ = ("away_us", "connections", "gone_us", "info", "memberships", "number")

    def __init__(self, info: Joined) -> None:
        self.number = info.session
        self.info = info
        self.connections = 1
        """Volatile: after a start there are none, and every session gets its grace period."""
        self.gone_us = 0
        """Volatile: when the grace period ends, if not connected."""
        self.away_us = 0
        """Volatile: when its last connection ended, or the broker started; if not connected."""

        self.memberships: dict[int, None] = {}
        """Volatile: numbers of the groups that it is a member of; some may be gone."""

    @property
    def connected(self) -> bool:
        """Whether the session has a connection."""
        return self.connections > 0

    def belongs_to(self, app: str, client: str) -> bool:
        """Return whether this client instance owns it; in constant time, as its name is secret."""
        same = compare_digest(self.info.client.encode(), client.encode())
        return same and self.info.app == app


class Sessions:
    """All sessions, by number; ``by_app``: the number of sessions of each app."""

    __slots__ = ("by_app", "by_number", "next_number", "numbers", "pages")

    def __init__(self) -> None:
        self.by_number: dict[int, Session] = {}
        self.numbers: SortedKeys[int] = SortedKeys()
        """The session numbers in order."""
        self.by_app: dict[str, int] = {}
        self.next_number = 1
        self.pages: dict[int, int] = {}

    def apply_joined(self, position: int, info: Joined) -> Session:
        """Add a session."""
        session = Session(info)
        if info.session not in self.by_number:
            self.by_app[info.app] = self.by_app.get(info.app, 0) + 1
        self.by_number[info.session] = session
        self.numbers.add(info.session)
        self.next_number = max(self.next_number, info.session + 1)
        self.pages[info.session >> PAGE_BITS] = position
        return session

    def room(self, app: str, limit: int) -> bool:
        """Return whether an app may add one: the last eighth is for apps with few sessions."""
        free = limit - len(self.by_number)
        return free > 0 and (free > limit >> 3 or self.by_app.get(app, 0) < free)

    def apply_left(self, position: int, number: int) -> None:
        """Remove a session."""
        self.numbers.discard(number)
        session = self.by_number.pop(number, None)
        if session is not None:
            app = session.info.app
            rest = self.by_app[app] - 1
            if rest:
                self.by_app[app] = rest
            else:
                del self.by_app[app]
        self.pages[number >> PAGE_BITS] = position
