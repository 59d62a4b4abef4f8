"""Broker time: it never goes back, never jumps by itself, and stays close to the wall clock.

Broker time is a base plus the time that a monotonic clock has counted since; the base is the larger
of the last record's time and the wall clock at start. (A wall clock that is further ahead of the
last record than `start_jump` is not believed: ``start_time`` in `journal.recovery`.) While running
it drifts towards the wall clock by at most one part in a hundred. A gap of more than five seconds
is not followed but reported, until an operator accepts it or the broker starts again. Leases,
retries and due times use broker time, so that a jump of the wall clock makes none of them end early
or late.
"""

from __future__ import annotations

from typing import Final

from ternmq.model.types import DAY_US, SECOND_US

SLEW: Final = 100
"""Microseconds that must pass for each microsecond of correction."""
GAP_US: Final = 5 * SECOND_US
START_JUMP_US: Final = 90 * DAY_US
"""Default of how far ahead of the last record the wall clock is believed at a start."""


class BrokerClock:
    """Turns readings of the two clocks into broker time. Pure: readings are arguments.

    Args:
        start_us: Broker time to begin with: max(last record's time, wall clock).
        monotonic_us: Reading of the monotonic clock at that moment.
    """

    __slots__ = ("_at_us", "_monotonic_us", "accepted", "gap_us")

    def __init__(self, start_us: int, monotonic_us: int) -> None:
        self._at_us = start_us
        self._monotonic_us = monotonic_us
        self.gap_us = 0
        """How far the wall clock is ahead (negative: behind), as of the last reading."""
        self.accepted = False

    @property
    def alarmed(self) -> bool:
        """Whether the gap is too large to be followed."""
        return abs(self.gap_us) > GAP_US

    def read(self, monotonic_us: int, wall_us: int) -> int:
        """Return broker time now. If the monotonic clock went back, no time has passed."""
        passed = monotonic_us - self._monotonic_us
        if passed > 0:
            self._monotonic_us = monotonic_us
        else:
            passed = 0
        at_us = self._at_us + passed
        gap = wall_us - at_us
        if self.accepted and gap > 0:
            at_us, gap = wall_us, 0
        self.accepted = False
        if gap and -GAP_US <= gap <= GAP_US:
            most = passed // SLEW
            if gap > most:
                step = most
            elif gap < -most:
                step = -most
            else:
                step = gap
            at_us += step
            gap -= step
        self.gap_us = gap
        self._at_us = at_us
        return at_us

    def accept(self) -> None:
        """Follow the wall clock from the next reading on, at once if it is ahead.

        If it is behind, the gap stays until the wall clock has caught up: time never goes back.
        """
        self.accepted = True
