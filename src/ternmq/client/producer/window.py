"""Limits unanswered sends, and holds back loads whose answer would come too late.

A broker that gets more than it can handle answers later and later. A load sent shortly before its
timeout is then stored, but answered too late: its sender does not know the outcome and sends it
again, so the broker works for nothing. So a load leaves only if its answer can be expected in time;
one that has waited too long for that is given up, known not to be sent. A load that is given up
while its answer is due still counts: the broker is still working on it.

The expected time is the number of unanswered bytes times the pace (seconds per byte): the better
one of the last two periods, so that one pause of the broker is not taken for its pace. Much less is
sent than could be answered in time: what waits here is known not to be sent, and the broker is not
faster with more of it.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ternmq.client.connection.options import Options
    from ternmq.client.producer.load import Load

_MARGIN: Final = 1.5
"""Factor on the expected time; that much time must be left."""
_PART: Final = 4
"""A load waits while the expected time is more than this part of its timeout: a quarter."""
_MEASURED_S: Final = 1.0
"""Length of a period for which a pace is measured."""


class When(Enum):
    """When a load is to leave."""

    NOW = auto()
    LATER = auto()
    NEVER = auto()


class Window:
    """Budget of unanswered bytes. Not thread-safe: call it from the client's loop.

    Attributes:
        taken_bytes: Bytes of sends that the broker has not answered.
    """

    __slots__ = ("_before", "_bytes", "_limit", "_since", "_took_s", "_whole", "taken_bytes")

    def __init__(self, options: Options) -> None:
        self.taken_bytes = 0
        self._limit = options.window_bytes
        self._whole = options.batch_bytes
        self._since = -math.inf
        # Sums over the answers since then: seconds that they took, bytes that they waited for.
        self._took_s = 0.0
        self._bytes = 1
        self._before = 0.0
        """Seconds per byte of the previous period; 0: not measured."""

    @property
    def full(self) -> bool:
        """Whether nothing more may leave."""
        return self.taken_bytes >= self._limit

    def leaves(self, load: Load, now: float) -> None:
        """Count a load that leaves now."""
        self.taken_bytes += load.size_bytes
        load.in_window = True
        load.left = now
        load.ahead_bytes = self.taken_bytes

    def ends(self, load: Load) -> None:
        """Stop counting a load: it was answered, or its connection was lost."""
        if load.in_window:
            load.in_window = False
            self.taken_bytes -= load.size_bytes

    def answered(self, load: Load, now: float) -> None:
        """Learn from the answer to a load that was sent once. A few bytes count as a batch."""
        if now - self._since >= _MEASURED_S:
            self._since = now
            self._before = self._took_s / self._bytes
            self._took_s, self._bytes = 0.0, 0
        self._took_s += now - load.left
        self._bytes += max(load.ahead_bytes, self._whole)

    def when(self, load: Load, now: float) -> When:
        """Return when a waiting load is to leave."""
        if not self.taken_bytes and load.deadline - now >= load.timeout / 2:
            return When.NOW  # the usual case, in which nothing need be expected
        expected = self.expected_s(self.taken_bytes + load.size_bytes)
        if self.taken_bytes and expected * _PART > load.timeout:
            return When.LATER  # with nothing unanswered it is tried, whatever is expected
        # However slow the broker seems: while half of its time is left, a load may leave.
        if not load.patient and load.deadline - now < min(expected, load.timeout / 2):
            return When.NEVER
        return When.NOW

    def expected_s(self, size_bytes: int) -> float:
        """Return the expected seconds until the last of ``size_bytes`` bytes is answered."""
        pace = min(self._took_s / self._bytes, self._before)
        return _MARGIN * pace * max(size_bytes, self._whole)
