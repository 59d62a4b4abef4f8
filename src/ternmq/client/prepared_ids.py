"""Message ids of prepared messages, and names of transactions."""

from __future__ import annotations

import secrets


class PreparedIds:
    """Ids of a client's prepared messages. Not thread-safe: call it from the client's loop."""

    __slots__ = ("named", "next", "producer")

    def __init__(self) -> None:
        self.producer = secrets.randbits(64)
        self.next = 0
        self.named = 0

    def renew(self) -> None:
        """Take a new producer id, in a process that was forked before any id was used."""
        self.producer = secrets.randbits(64)

    def take(self, count: int) -> int:
        """Return the first of ``count`` unused sequences."""
        first = self.next
        self.next += count
        return first

    def name(self) -> int:
        """Return the counter of another transaction: with ``producer`` it is its name."""
        self.named += 1
        return self.named
