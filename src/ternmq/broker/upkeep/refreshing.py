"""STATE sets written so that the oldest segment may be removed, not because the journal grew.

A segment is removed only when the two newest durable sets need nothing of it. Sets are written as
the journal grows. But the journal of a full disk does not grow, since sends are refused, and that
of an idle broker does not either. So when only the newest sets keep the oldest segment, sets are
written that need nothing below the active segment: objects whose chunk is older are written again,
and objects that never change are copied out of their chunk.

The cost is bounded:

* After a pair of sets, STATE needs no segment below a *goal*, which is at least one segment. The
  next pair is not written before all of these are removed, or while anything else keeps the oldest.
* A pair begins only if all of it fits. A set pauses while less than 1/``KEPT_PART`` of the reserve
  is left: that part is for settles, MOVED and EPOCH.
* If it does not fit, the goal is the end of the oldest segment: only what lies in that segment is
  written again, which is less than the segment that becomes free.
"""

from __future__ import annotations

from typing import Final

from ternmq.journal.log.journal import Journal
from ternmq.journal.state.sets import StateWriter
from ternmq.model.types import SECOND_US

PATIENCE_US: Final = 60 * SECOND_US
"""How long the oldest segment waits for regular sets while there is room."""
KEPT_PART: Final = 16
"""One part in this many of the reserve is never used for these sets."""
_PAIR: Final = 2


class Refreshing:
    """Decides when such a set begins.

    Not thread-safe: call it from the broker's loop.

    Args:
        journal: The journal whose oldest segment is to be removed.
        writer: Writes the sets.

    Attributes:
        active: Whether the set that is being written is one of these.
    """

    def __init__(self, journal: Journal, writer: StateWriter) -> None:
        self._journal = journal
        self._writer = writer
        self._end = 0
        self._since_us = 0
        self._goal = 0
        self._left = 0
        self.active = False

    def want(self, now_us: int, end: int, *, at_once: bool) -> None:
        """Request sets because only STATE keeps the oldest segment. Called again at each look.

        Args:
            now_us: Broker time.
            end: End of the segment.
            at_once: There is little or no room for sends; else regular sets may come first.
        """
        if end != self._end:
            self._end, self._since_us = end, now_us
        waits = self._left == _PAIR and not self.active and self.lacks_room
        if end <= self._goal and not waits:
            return  # a pair was written for it, or is being written
        if at_once or now_us - self._since_us >= PATIENCE_US:
            self._left = _PAIR
            self._goal = self._cheapest(end)
            if self.lacks_room and self._fits_at_least(end):
                self._goal = end

    def _fits_at_least(self, end: int) -> bool:
        """Return whether a pair fits that frees the oldest segment only, and takes less than it.

        Twice the estimate must fit: it does not contain what changed since the last set.
        """
        cost = self._cost(end)
        return cost < self._journal.segment_size and 2 * cost <= self._room()

    def _cheapest(self, end: int) -> int:
        """Return the goal: where the newest set begins to need the journal, if that is far enough.

        Then one more set that needs nothing below it completes a pair. This happens if a broker was
        killed or stopped before the segments were removed. Otherwise the goal is the active
        segment, and everything is written again.
        """
        size = self._journal.segment_size
        if self._writer.complete:
            needs_from = self._writer.complete[-1].needs_from
            if needs_from - needs_from % size >= end:
                return needs_from - needs_from % size
        return self._journal.base

    def goal(self) -> int:
        """Return the position below which the set to begin now names nothing; 0: none is needed."""
        if not self._left:
            return 0
        newest = self._writer.complete[-_PAIR:]
        if len([one for one in newest if one.needs_from >= self._goal]) == _PAIR:
            self._left = 0
            return 0
        return 0 if self.lacks_room else self._goal

    def goal_of_a_stop(self) -> int:
        """Return the goal for the set of a clean stop; 0 if that set would gain nothing.

        Only the first set of a pair gains something: the next start knows one set, and writes the
        other. So repeated starts and stops write no more than a pair.
        """
        goal = self.goal()
        newest = self._writer.complete[-1:]
        return 0 if newest and newest[0].needs_from >= goal else goal

    def begun(self) -> None:
        """Note that the set begins."""
        self._left -= 1
        self.active = True

    def ended(self) -> None:
        """Note that a set is complete."""
        self.active = False

    @property
    def lacks_room(self) -> bool:
        """Whether a set is wanted, or begun, and the rest of the reserve is too small for it."""
        if not self.active and not self._left:
            return False
        return self._room() < (0 if self.active else self._cost(self._goal))

    def _room(self) -> int:
        """Return how many bytes these sets may still take."""
        return self._journal.room(reserve=True) - self._journal.reserve_bytes // KEPT_PART

    def _cost(self, goal: int) -> int:
        """Return the approximate size in bytes of the sets that are still to be written.

        Args:
            goal: The position below which they are to need nothing.
        """
        writer = self._writer
        light = writer.estimate(whole=False)
        if writer.complete and (newest := writer.complete[-1]).needs_from >= goal:
            return light
        first = writer.estimate(whole=True)
        if writer.complete:
            # What is below the goal lies between the oldest chunk and the goal.
            first = min(first, light + max(0, goal - newest.oldest))
        return first + (self._left - 1) * light
