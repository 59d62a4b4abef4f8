"""Answers to settles of a moment ago, for clients that ask again because no answer came.

A connection that is cut takes the answer with it. The client sends the same bytes over the next
connection of its session, and by then the lease is over: without this it would be told that it came
too late for what it did itself. After a restart nobody can tell any more, and the client says so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.model.marks import Rests

KEPT: Final = 1024
"""Answers that are remembered: a client has a few settles under way when its connection is cut."""
MOST_BYTES: Final = 1024
"""Of a request that is remembered."""


class Told(NamedTuple):
    """What a settle was answered."""

    body: bytes
    position: int
    rests: Rests


class SettledLately:
    """The newest answers, by session and the bytes of the request. Loop only."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, bytes], Told] = {}

    def note(self, session: int, request: bytes, told: Told) -> None:
        """Remember an answer; not to a request that is very long."""
        if len(request) > MOST_BYTES:
            return
        self._told[session, request] = told
        if len(self._told) > KEPT:
            del self._told[next(iter(self._told))]

    def told(self, session: int, request: bytes) -> Told | None:
        """Return what the same request of the same session was answered, if that is remembered."""
        return self._told.get((session, request))
