"""The network: connections whose bytes arrive in order, or not at all; directions that are cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from tests.sim.group.heap import Heap
from tests.sim.group.machine import Life

PACE_US: Final = (50, 100, 300, 1000)
"""How long a message is on its way, one of these, unless the link is slow."""


class Side(Protocol):
    """One end of a connection, as its process sees it."""

    def received(self, message: object) -> None:
        """Take a message."""
        ...

    def lost(self) -> None:
        """Note that the connection is over."""
        ...


class End:
    """One end of a connection.

    Attributes:
        life: Its process.
        open: It is not over.
    """

    def __init__(self, net: Net, life: Life) -> None:
        self.net = net
        self.life = life
        self.peer: End
        self.open = True
        self._side: Side | None = None
        self._coming: deque[object] = deque()
        self._early = 0
        """Messages that are here, while nobody takes them yet."""
        self._due_us = 0

    @property
    def side(self) -> Side | None:
        """Who gets what comes here. What came before it was set is taken then."""
        return self._side

    @side.setter
    def side(self, side: Side) -> None:
        self._side = side
        early, self._early = self._early, 0
        for _ in range(early):
            self.life.after(0, self._take)

    def send(self, message: object) -> None:
        """Send a message; it is lost if the connection is over."""
        if self.open:
            self.peer._expect(message, self.life.machine.name)

    def close(self) -> None:
        """End the connection; the other side notices, unless the way there is cut."""
        if self.open:
            self.open = False
            self.peer._expect(None, self.life.machine.name)

    def cut(self) -> None:
        """Break the connection for both sides, at once; what is on its way is lost."""
        for one in (self, self.peer):
            if one.open:
                one.open = False
                one._coming.clear()
                if one._side is not None:
                    one.life.after(0, one._side.lost)

    def _expect(self, message: object, sender: str) -> None:
        """Let a message arrive after those before it. None: the other side has closed."""
        net = self.net
        self._coming.append(message)
        now_us = net.heap.time_us
        self._due_us = max(self._due_us, now_us + net.delay_us(sender, self.life.machine.name))
        net.heap.after(self._due_us - now_us, lambda: self._arrive(sender))

    def _arrive(self, sender: str) -> None:
        if not self._coming or not self.open:
            return
        if self.net.is_cut(sender, self.life.machine.name):  # it is sent again until it gets there
            self.net.heap.after(40_000, lambda: self._arrive(sender))
            return
        if self.life.over:
            # Its process is gone: whoever sends is told, unless the machine is, too.
            self._coming.clear()
            if self.life.machine.life is not None and self.open:
                self.open = False
                self.close_peer()
            return
        self.life.after(0, self._take)

    def close_peer(self) -> None:
        """Tell the other side that nobody is here any more."""
        peer = self.peer
        if peer.open:
            peer._expect(None, self.life.machine.name)

    def _take(self) -> None:
        if not self._coming or not self.open:
            return
        if self._side is None:  # the answer to the client's call is still on its way
            self._early += 1
            return
        message = self._coming.popleft()
        if message is None:
            self.open = False
            self._side.lost()
        else:
            self._side.received(message)


class Net:
    """See the module."""

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.slow: dict[tuple[str, str], int] = {}
        """Longest delay of a direction, where it is not the usual one."""
        self._cut: dict[tuple[str, str], int] = {}
        self._connections: list[tuple[End, End]] = []

    def delay_us(self, sender: str, receiver: str) -> int:
        """Return how long a message is on its way."""
        chance = self.heap.chance
        slow_us = self.slow.get((sender, receiver))
        return chance.choice(PACE_US) if slow_us is None else chance.randrange(slow_us)

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Return whether nothing gets through in this direction."""
        return self._cut.get((sender, receiver), 0) > self.heap.time_us

    def cut(self, sender: str, receiver: str, for_us: int) -> None:
        """Let nothing through in a direction for a while."""
        self._cut[sender, receiver] = self.heap.time_us + for_us

    def heal(self) -> None:
        """Let everything through again, as fast as usual."""
        self._cut.clear()
        self.slow.clear()

    def connect(self, client: Life, server: Life) -> End:
        """Return the client's end of a connection between two processes."""
        one, other = End(self, client), End(self, server)
        one.peer, other.peer = other, one
        self._connections = [pair for pair in self._connections if pair[0].open or pair[1].open]
        self._connections.append((one, other))
        return one

    def break_between(self, one: str, other: str) -> None:
        """Break the connections between two machines."""
        for pair in self._connections:
            if {end.life.machine.name for end in pair} == {one, other}:
                pair[0].cut()

    def kill(self, life: Life) -> None:
        """The kernel closes the connections of a process that was killed."""
        for pair in self._connections:
            for end in pair:
                if end.life is life and end.open:
                    end.close()

    def reach(self, sender: Life, machine: str, call: Callable[[], None]) -> None:
        """Have something happen at another machine, if it can be reached now."""
        if not self.is_cut(sender.machine.name, machine):
            self.heap.after(self.delay_us(sender.machine.name, machine), call)
