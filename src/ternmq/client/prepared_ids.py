"""The message ids of what a client prepares."""

from __future__ import annotations

import secrets


class PreparedIds:
    """The ids of the messages of one client that are prepared. Loop only."""

    __slots__ = ("next", "producer")

    def __init__(self) -> None:
        self.producer = secrets.randbits(64)
        self.next = 0

    def renew(self) -> None:
        """Begin anew, in a process that was forked before any was used."""
        self.producer = secrets.randbits(64)

    def take(self, count: int) -> int:
        """Return the first of so many sequences that nobody has."""
        first = self.next
        self.next += count
        return first
