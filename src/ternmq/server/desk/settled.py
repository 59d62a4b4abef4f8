"""Answers to recent settles, for clients that repeat a settle because they got no answer.

If a connection is lost, so is the answer. The client sends the same bytes over the next connection
of its session, and by then the lease is over. Without this the repeated settle would fail with
LeaseExpired, although the first one succeeded. A restart forgets the answers; then the client
reports that the outcome is not known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.model.marks import Rests

KEPT: Final = 1024
"""Number of remembered answers: a client has a few settles open when its connection is lost."""
MOST_BYTES: Final = 1024
"""Longest request whose answer is remembered."""


class Answered(NamedTuple):
    """The answer to a settle, and the record that it depends on."""

    body: bytes
    position: int
    rests: Rests


class SettledLately:
    """The newest answers, by session and bytes of the request. Not thread-safe."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, bytes], Answered] = {}

    def note(self, session: int, request: bytes, told: Answered) -> None:
        """Remember an answer, unless its request is very long."""
        if len(request) > MOST_BYTES:
            return
        self._told[session, request] = told
        if len(self._told) > KEPT:
            del self._told[next(iter(self._told))]

    def told(self, session: int, request: bytes) -> Answered | None:
        """Return the answer to the same request of the same session; None if not remembered."""
        return self._told.get((session, request))
