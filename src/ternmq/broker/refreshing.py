"""STATE sets that are written so that the oldest segment may go, not because the journal grew.

A segment goes only when two complete, durable sets need nothing of it. Sets are written as the
journal grows; but the journal of a full disk does not grow, since sends are refused, and that of an
idle broker does not either. So when the newest sets are all that keeps the oldest segment, sets are
written that need nothing below the active segment: objects whose chunk is older are written again,
those that never change are copied out of their chunk.

How much that may take is bounded:

* A pair of sets makes all segments below a *goal* free of STATE, one at least. Another pair is not
  written before all of these are gone, and none while anything else keeps the oldest segment.
* A pair does not begin unless all of it fits, and a set stops while less is left than ``KEPT_PART``
  of the reserve: that is for settles, MOVED and EPOCH.
"""

from __future__ import annotations

from typing import Final

from ternmq.journal.journal import Journal
from ternmq.journal.state import StateWriter
from ternmq.model.types import SECOND_US

PATIENCE_US: Final = 60 * SECOND_US
"""How long the oldest segment waits for sets that come by themselves while there is room."""
KEPT_PART: Final = 16
"""One in so many parts of the reserve is never used for these sets."""
_PAIR: Final = 2


class Refreshing:
    """Decides when such a set begins. Loop only.

    Args:
        journal: Whose oldest segment is to go.
        writer: Writes the sets.

    Attributes:
        active: The set that is being written is one of these.
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
        """Take note that nothing but STATE keeps the oldest segment. Asked again at each look.

        Args:
            now_us: Broker time.
            end: Of the segment.
            at_once: There is no room for sends, or little; else sets may come by themselves.
        """
        if end != self._end:
            self._end, self._since_us = end, now_us
        if end <= self._goal:
            return  # a pair was written for it, or is
        if at_once or now_us - self._since_us >= PATIENCE_US:
            self._goal = self._cheapest(end)
            self._left = _PAIR

    def _cheapest(self, end: int) -> int:
        """Return the goal: where the newest set begins to need the journal, if that is behind.

        Then another that names the same is enough: this comes up when a broker was killed, or
        stopped, before the segments went. Else the active segment, and all is written again.
        """
        size = self._journal.segment_size
        if self._writer.complete:
            needs_from = self._writer.complete[-1].needs_from
            if needs_from - needs_from % size >= end:
                return needs_from - needs_from % size
        return self._journal.base

    def goal(self) -> int:
        """Return below which position the set that is to begin now names nothing; 0: none is."""
        if not self._left:
            return 0
        newest = self._writer.complete[-_PAIR:]
        if len([one for one in newest if one.needs_from >= self._goal]) == _PAIR:
            self._left = 0
            return 0
        return 0 if self.lacks_room else self._goal

    def goal_of_a_stop(self) -> int:
        """Return the same for the set of a clean stop; 0 where that would gain nothing.

        Only the first of a pair does: the next start knows one set, and writes the other. However
        often a broker is started and stopped, no more is written.
        """
        goal = self.goal()
        newest = self._writer.complete[-1:]
        return 0 if newest and newest[0].needs_from >= goal else goal

    def begun(self) -> None:
        """Take note that the set begins."""
        self._left -= 1
        self.active = True

    def ended(self) -> None:
        """Take note that a set is complete."""
        self.active = False

    @property
    def lacks_room(self) -> bool:
        """Whether a set is wanted, or begun, and what is left of the reserve is too little."""
        if not self.active and not self._left:
            return False
        room = self._journal.room(reserve=True) - self._journal.reserve_bytes // KEPT_PART
        return room < (0 if self.active else self._cost())

    def _cost(self) -> int:
        """Return about how many bytes the sets take that are still to be written."""
        writer = self._writer
        light = writer.estimate(whole=False)
        if writer.complete and writer.complete[-1].needs_from >= self._goal:
            return light
        return writer.estimate(whole=True) + (self._left - 1) * light
