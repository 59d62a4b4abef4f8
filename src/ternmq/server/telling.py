"""Pushes to everybody who may know: so many connections a turn, in rounds.

To find out whether an app may see a topic takes some microseconds, and thousands may be connected:
told in one turn, a change of a topic that nobody uses would hold everybody up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ternmq.server.hub import Hub
from ternmq.wire.commands import Command

if TYPE_CHECKING:
    from ternmq.server.peer import Peer

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
        hub: Who is connected.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waiting: dict[bytes, _Change] = {}
        """The next round, by command and body."""
        self._changes: list[_Change] = []
        """Those of the round under way."""
        self._looks: Iterator[tuple[Peer, _Change]] | None = None

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
                peers = list(self._hub.peers)
                self._looks = ((peer, change) for peer in peers for change in changes)
                continue
            _push(look[1], look[0])
        self._hub.core.loop.call_soon(self._go_on)


def _push(change: _Change, peer: Peer) -> None:
    if not peer.session or peer.closed:
        return
    may = change.may.get(peer.app)
    if may is None:
        may = change.may[peer.app] = change.sees(peer.app)
    if may:
        peer.push(change.command, change.body)
