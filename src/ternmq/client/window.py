"""How much is on its way to the broker, and how long an answer takes: too late, nothing leaves.

A broker that is given more than it takes answers later and later. Whatever then leaves shortly
before its time is over is stored, and answered too late: its sender does not know what became of
it, sends it again, and the broker does everything and nobody has anything of it. So a load leaves
only if its answer can be expected in time; one that has waited too long for that is given up, and
it is known that it was not sent. What was given up while its answer was due still counts: the
broker has not done with it.

What is expected: bytes on their way, at the pace of the last seconds or of those before, whichever
is better, so that one pause of the broker's is not taken for its pace. Much less is let out than
could be answered in time: what waits here is known not to be sent, and the broker is no quicker
with more of it.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ternmq.client.options import Options
    from ternmq.client.outgoing import Load

_MARGIN: Final = 1.5
"""So many times what is expected must be left."""
_PART: Final = 4
"""No more leaves than is expected to be answered in this part of a load's timeout."""
_MEASURED_S: Final = 1.0
"""For so long a pace is measured."""


class When(Enum):
    """When a load is to leave."""

    NOW = auto()
    LATER = auto()
    NEVER = auto()


class Window:
    """Bytes of sends that the broker has not answered. Loop only.

    Attributes:
        taken_bytes: Of them.
    """

    __slots__ = ("_before", "_bytes", "_limit", "_since", "_took_s", "_whole", "taken_bytes")

    def __init__(self, options: Options) -> None:
        self.taken_bytes = 0
        self._limit = options.window_bytes
        self._whole = options.batch_bytes
        self._since = -math.inf
        # Since then, summed over answers: what they took, and the bytes that they waited for.
        self._took_s = 0.0
        self._bytes = 1
        self._before = 0.0
        """Seconds for each byte, as measured the time before; 0: nothing was."""

    @property
    def full(self) -> bool:
        """Nothing more may leave."""
        return self.taken_bytes >= self._limit

    def leaves(self, load: Load, now: float) -> None:
        """Count a load that leaves now."""
        self.taken_bytes += load.size_bytes
        load.in_window = True
        load.left = now
        load.ahead_bytes = self.taken_bytes

    def ends(self, load: Load) -> None:
        """Count a load no longer: it has its answer, or its connection was lost."""
        if load.in_window:
            load.in_window = False
            self.taken_bytes -= load.size_bytes

    def answered(self, load: Load, now: float) -> None:
        """Learn from the answer to a load that left once. A few bytes count as a whole batch."""
        if now - self._since >= _MEASURED_S:
            self._since = now
            self._before = self._took_s / self._bytes
            self._took_s, self._bytes = 0.0, 0
        self._took_s += now - load.left
        self._bytes += max(load.ahead_bytes, self._whole)

    def when(self, load: Load, now: float) -> When:
        """Return what to do with a load that waits."""
        expected = self.expected_s(self.taken_bytes + load.size_bytes)
        if self.taken_bytes and expected * _PART > load.timeout:
            return When.LATER  # with nothing on its way it is tried, whatever is expected
        # However slow the broker seems: while half of the time is left, a load may leave.
        if not load.patient and load.deadline - now < min(expected, load.timeout / 2):
            return When.NEVER
        return When.NOW

    def expected_s(self, size_bytes: int) -> float:
        """Return how long an answer may take that has so many bytes before it, its own included."""
        pace = min(self._took_s / self._bytes, self._before)
        return _MARGIN * pace * max(size_bytes, self._whole)
