"""Pushes to everybody who may know: so many connections a turn, in rounds.

To find out whether an app may see a topic takes some microseconds, and thousands may be connected:
told in one turn, a change of a topic that nobody uses would hold everybody up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ternmq.server.desk import Desk
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller

A_TURN: Final = 100
"""Connections that are looked at in a turn: below a millisecond, for apps of some grants."""


class _Change:
    __slots__ = ("body", "command", "may", "sees")

    def __init__(self, command: Command, body: bytes, sees: Callable[[str], bool]) -> None:
        self.command = command
        self.body = body
        self.sees = sees
        self.may: dict[str, bool] = {}
        """What was found out, by app."""


class Telling:
    """Loop only. What is told first arrives first, at every connection.

    Changes that come while others are told wait, each body once, and go round together: one
    that waits takes its body and no list of connections; a topic that changes again is told once.

    Args:
        desk: The callers.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: dict[bytes, _Change] = {}
        """The next round, by command and body."""
        self._changes: list[_Change] = []
        """Those of the round under way."""
        self._looks: Iterator[tuple[Caller, _Change]] | None = None

    def tell(self, command: Command, body: bytes, sees: Callable[[str], bool]) -> None:
        """Push something to every connection there is now whose app may see it."""
        key = bytes((command,)) + body
        self._waiting.pop(key, None)  # told once, behind what came before
        self._waiting[key] = _Change(command, body, sees)
        if self._looks is None:
            self._go_on()

    def _go_on(self) -> None:
        for _ in range(A_TURN):
            look = next(self._looks, None) if self._looks is not None else None
            if look is None:
                if not self._waiting:
                    self._looks = None
                    return
                changes, self._waiting = list(self._waiting.values()), {}
                peers = list(self._desk.callers)
                self._looks = ((caller, change) for caller in peers for change in changes)
                continue
            _push(look[1], look[0])
        self._desk.core.loop.call_soon(self._go_on)


def _push(change: _Change, caller: Caller) -> None:
    if not caller.session or caller.closed:
        return
    may = change.may.get(caller.app)
    if may is None:
        may = change.may[caller.app] = change.sees(caller.app)
    if may:
        caller.push(change.command, change.body)
