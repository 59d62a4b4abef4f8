"""Clients: who is here, and who has been gone for how long.

A session outlives its connection by a grace, also over a restart of the broker. When it ends, what
it held is handed to others.
"""

from __future__ import annotations

from typing import Final

from ternmq.record.control import Joined

PAGE_BITS: Final = 6


class Session:
    """A connected library instance."""

    __slots__ = ("connected", "gone_us", "info", "number")

    def __init__(self, info: Joined) -> None:
        self.number = info.session
        self.info = info
        self.connected = True
        """Volatile: after a start every session is given its grace."""
        self.gone_us = 0
        """Volatile: when the grace ends, if not connected."""


class Sessions:
    """All sessions, by number."""

    __slots__ = ("by_number", "next_number", "pages")

    def __init__(self) -> None:
        self.by_number: dict[int, Session] = {}
        self.next_number = 1
        self.pages: dict[int, int] = {}

    def apply_joined(self, position: int, info: Joined) -> Session:
        """A client came."""
        session = Session(info)
        self.by_number[info.session] = session
        self.next_number = max(self.next_number, info.session + 1)
        self.pages[info.session >> PAGE_BITS] = position
        return session

    def apply_left(self, position: int, number: int) -> None:
        """A client went."""
        self.by_number.pop(number, None)
        self.pages[number >> PAGE_BITS] = position
