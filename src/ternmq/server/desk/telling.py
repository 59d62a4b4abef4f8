"""Pushes of changes to all connections that may see them: some connections in each turn.

To find out whether an app may see a topic takes some microseconds, and thousands may be connected:
pushed in a single turn, a change of even an unused topic would delay all requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from ternmq.server.desk.desk import ReadingDesk
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller

A_TURN: Final = 100
"""Most pushes that are tried in one turn: below a millisecond, for apps with some grants."""


class _Change:
    __slots__ = ("body", "command", "may", "sees")

    def __init__(self, command: Command, body: bytes, sees: Callable[[str], bool]) -> None:
        self.command = command
        self.body = body
        self.sees = sees
        self.may: dict[str, bool] = {}
        """App -> whether it may see the change, as far as known."""


class Telling:
    """Pushes changes in rounds; every caller gets them in order.

    Not thread-safe: call it from the broker's loop.

    Changes that arrive during a round wait for the next one, each body once. So a waiting change
    takes the memory of its body but no list of callers, and a topic that changes several times is
    pushed once.

    Args:
        desk: State shared by all callers.
        among: The callers that changes are pushed to; None: all.
    """

    def __init__(self, desk: ReadingDesk, among: Collection[Caller] | None = None) -> None:
        self._desk = desk
        self._among = among
        self._waiting: dict[bytes, _Change] = {}
        """Changes of the next round, by command and body."""
        self._looks: Iterator[tuple[Caller, _Change]] | None = None

    def tell(self, command: Command, body: bytes, sees: Callable[[str], bool]) -> None:
        """Push a change to every present connection whose app may see it.

        Args:
            command: Command number of the push.
            body: Body of the push.
            sees: Returns whether an app may see it.
        """
        key = bytes((command,)) + body
        self._waiting.pop(key, None)  # told once, behind what came before
        self._waiting[key] = _Change(command, body, sees)
        if self._looks is None:
            self._go_on()

    def tell_now(self, command: Command, body: bytes, sees: Callable[[str], bool]) -> None:
        """Push a change in this turn, before anything that follows from it. O(connections)."""
        change = _Change(command, body, sees)
        for caller in self._callers():
            _push(change, caller)

    def _callers(self) -> list[Caller]:
        return list(self._desk.callers if self._among is None else self._among)

    def _go_on(self) -> None:
        for _ in range(A_TURN):
            look = next(self._looks, None) if self._looks is not None else None
            if look is None:
                if not self._waiting:
                    self._looks = None
                    return
                changes, self._waiting = list(self._waiting.values()), {}
                peers = self._callers()
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
