"""What is sent to one follower, and when: from memory, or from segments; never beyond its window.

    acknowledged         sent                    end of the journal
         |  in flight      |  not sent yet           |
         |<-- window ----->|

A follower that keeps up is sent what a turn wrote, from the tail. One that is behind what the tail
holds is sent what a thread reads from the segments, a piece at a time, until the tail has the rest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ternmq.cluster.replication.tail import PIECE_BYTES, Portion, Tail
from ternmq.model.types import Position

WINDOW_BYTES: Final = 16 << 20
MARKS_EVERY_US: Final = 250_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A piece that has to be read from the segments.

    Attributes:
        position: Where it begins.
        most: Most bytes, unless its first record is larger.
    """

    position: Position
    most: int


class Outgoing:
    """The stream to one follower. Not thread-safe; no clock, no I/O.

    Args:
        tail: The newest bytes of the journal.
        start: Where the stream begins.
        window_bytes: Most bytes that are sent and not acknowledged, unless it is one record that is
            larger: then it is sent alone.

    Attributes:
        sent: Position up to which was sent.
        in_flight: Bytes that were sent and not acknowledged.
    """

    def __init__(self, tail: Tail, start: Position, window_bytes: int = WINDOW_BYTES) -> None:
        self.sent = start
        self.in_flight = 0
        self._tail = tail
        self._window = window_bytes
        self._most = min(PIECE_BYTES, max(1, window_bytes // 4))
        self._flying: deque[tuple[Position, int]] = deque()
        self._reading = False
        self._read: Portion | None = None
        self._marked_us: int | None = None

    # -- bytes ------------------------------------------------------------------------------------

    def next(self) -> Portion | Wanted | None:
        """Return what to do next; call it again until it returns None.

        Returns:
            A portion that is to be sent now; or what is to be read, which ends by ``was_read`` or
            with the stream. None: everything was sent, the window is full, or a read is on its way.
        """
        if self._reading:
            return None
        portion = self._read
        if portion is None:
            if self.sent >= self._tail.end or self._full:
                return None
            portion = self._tail.piece(self.sent, self._most)
            if portion is None:
                self._reading = True
                return Wanted(self.sent, self._most)
        if self.in_flight and self.in_flight + len(portion.data) > self._window:
            return None
        self._read = None
        self.sent = portion.end
        self.in_flight += len(portion.data)
        self._flying.append((portion.end, len(portion.data)))
        return portion

    def was_read(self, portion: Portion) -> None:
        """Take what was read; ``next`` returns it as soon as the window allows."""
        if not self._reading or portion.position != self.sent:
            raise ValueError(f"{portion.position} was not wanted")
        self._reading = False
        self._read = portion

    def acknowledged(self, written: Position) -> None:
        """Free the window of what the follower has; ``written`` is at most ``sent``."""
        flying = self._flying
        while flying and flying[0][0] <= written:
            self.in_flight -= flying.popleft()[1]

    @property
    def _full(self) -> bool:
        """Whether there is not surely room for one more piece: so none is made in vain."""
        return bool(self.in_flight) and self.in_flight + self._most > self._window

    # -- marks ------------------------------------------------------------------------------------

    def marks_due(self, now_us: int) -> bool:
        """Return whether MARKS are to be sent, although nothing else is."""
        return self._marked_us is None or now_us - self._marked_us >= MARKS_EVERY_US

    def marked(self, now_us: int) -> None:
        """Note that MARKS were sent."""
        self._marked_us = now_us
