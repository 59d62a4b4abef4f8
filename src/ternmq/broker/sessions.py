"""Clients: who is here, and who has been gone for how long.

A session belongs to one client instance of one app, and outlives its connections by a grace, also
over a restart of the broker. When it ends, what it held is handed to others.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from ternmq.broker.sortedkeys import SortedKeys
from ternmq.record.control import Joined

PAGE_BITS: Final = 6


class Session:
    """A connected library instance."""

    __slots__ = ("connections", "gone_us", "info", "number")

    def __init__(self, info: Joined) -> None:
        self.number = info.session
        self.info = info
        self.connections = 1
        """Volatile: after a start there are none, and every session is given its grace."""
        self.gone_us = 0
        """Volatile: when the grace ends, if not connected."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self.connections > 0

    def belongs_to(self, app: str, client: str) -> bool:
        """Whether it is this client instance's; its name is a secret, so time tells nothing."""
        same = compare_digest(self.info.client.encode(), client.encode())
        return same and self.info.app == app


class Sessions:
    """All sessions, by number; ``by_app`` is how many an app has."""

    __slots__ = ("by_app", "by_number", "next_number", "numbers", "pages")

    def __init__(self) -> None:
        self.by_number: dict[int, Session] = {}
        self.numbers: SortedKeys[int] = SortedKeys()
        """The same in order."""
        self.by_app: dict[str, int] = {}
        self.next_number = 1
        self.pages: dict[int, int] = {}

    def apply_joined(self, position: int, info: Joined) -> Session:
        """A client came."""
        session = Session(info)
        if info.session not in self.by_number:
            self.by_app[info.app] = self.by_app.get(info.app, 0) + 1
        self.by_number[info.session] = session
        self.numbers.add(info.session)
        self.next_number = max(self.next_number, info.session + 1)
        self.pages[info.session >> PAGE_BITS] = position
        return session

    def room(self, app: str, limit: int) -> bool:
        """Return whether an app may have one more: the last eighth is for apps with few."""
        free = limit - len(self.by_number)
        return free > 0 and (free > limit >> 3 or self.by_app.get(app, 0) < free)

    def apply_left(self, position: int, number: int) -> None:
        """A client went."""
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
