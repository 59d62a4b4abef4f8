"""Which records are read next: round after round through the sealed segments, suspects first.

A round begins at the oldest record and ends behind the newest sealed segment. A segment is a
**suspect** if a read of it failed: it is read at once. What is found damaged and is not mended yet
is remembered; the segments of it are suspects again after a restart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.journal.mending.progress import Progress
from ternmq.journal.mending.scrub import DamagedRange, Place, ScrubRead, beginning
from ternmq.model.types import Position

MOST_RANGES: Final = 1000
"""Most damaged ranges that are remembered; of more, the oldest are found again by a later round."""


class Span(NamedTuple):
    """What is to be read next.

    Attributes:
        place: Where to begin.
        stop: Position up to which may be read at once.
        suspect: Base of the segment of a failed read, that is why; None: it is the round's turn.
    """

    place: Place
    stop: Position
    suspect: Position | None


class Rounds:
    """Decides what is read, and remembers what was found. No I/O; not thread-safe.

    Args:
        segment_size: Bytes of every segment file.
        progress: How far the life before had come.
        on: Whether rounds are read; else suspects alone.

    Attributes:
        completed_us: When the last round ended, by the wall clock; 0: none did.
        damaged: Ranges that are damaged now, by where they begin.
        read_bytes: Bytes of records that were read in this life.
        found: Ranges that were found in this life.
    """

    def __init__(self, segment_size: int, progress: Progress, *, on: bool) -> None:
        self.completed_us = progress.completed_us
        self.damaged: dict[Position, DamagedRange] = {}
        self.read_bytes = self.found = 0
        self._size = segment_size
        self._on = on
        self._place = Place(Position(progress.position), None, 0)
        self._suspects: dict[Position, None] = {
            Position(base): None for base in progress.suspects if base % segment_size == 0
        }
        self._suspect: Position | None = None
        """Base of the suspect that is being read."""
        self._urgent: Place | None = None
        """Where its read goes on."""

    def suspect(self, base: Position) -> None:
        """Have a segment read before all others."""
        if base != self._suspect:
            self._suspects[base] = None

    def suspects(self, base: Position) -> bool:
        """Return whether a segment is a suspect, or is read as one."""
        return base == self._suspect or base in self._suspects

    def next(self, first: Position, safe: Position) -> Span | None:
        """Return what is to be read; None: nothing now.

        Args:
            first: Base of the oldest segment.
            safe: The smaller one of the commit mark and the durable mark.
        """
        for start in [one for one in self.damaged if self.damaged[one].stop <= first]:
            del self.damaged[start]  # retention has removed it
        while self._suspect is None and self._suspects:
            base = next(iter(self._suspects))
            del self._suspects[base]
            if first <= base < safe:
                self._suspect, self._urgent = base, beginning(base)
        if self._suspect is not None and self._urgent is not None:
            stop = Position(min(self._suspect + self._size, safe))
            if first <= self._urgent.position < stop:
                return Span(self._urgent, stop, self._suspect)
            self._suspect = self._urgent = None  # retention has removed it
            return self.next(first, safe)
        sealed = Position(safe - safe % self._size)
        if not self._on or first >= sealed:
            return None
        if not first <= self._place.position < sealed:
            self._place = beginning(first)
        return Span(self._place, sealed, None)

    def took(self, span: Span, read: ScrubRead, first: Position, now_us: int) -> bool:
        """Note what a read of a span has shown, but for its damage; return whether the span ended.

        Args:
            span: The span.
            read: The read that ended.
            first: Base of the oldest segment.
            now_us: Wall clock.
        """
        self.read_bytes += read.read_bytes
        for start in list(self.damaged):
            if read.begin.position <= start < read.place.position:
                del self.damaged[start]  # it was read, and it is sound
        return self._goes_on_at(span, read.place, first, now_us)

    def leave(self, span: Span, damage: DamagedRange, first: Position, now_us: int) -> bool:
        """Go on behind a damaged range that is not mended now; return whether the span ended."""
        place = Place(damage.stop, None, damage.place.epoch)
        return self._goes_on_at(span, place, first, now_us)

    def lacks_link(self, span: Span, damage: DamagedRange, first: Position) -> bool:
        """Return whether the record before a damaged range is not known, though there is one.

        It is known next time: the suspect is read from the segment before on.
        """
        begin = damage.start
        if damage.place.prev_crc is not None or begin <= first or begin % self._size:
            return False
        place = Place(Position(begin - self._size), None, 0)
        if span.suspect is None:
            self._place = place
        else:
            self._urgent = place
        return True

    def remember(self, damage: DamagedRange) -> bool:
        """Remember a damaged range; return whether it is new."""
        new = damage.start not in self.damaged
        self.damaged[damage.start] = damage
        while len(self.damaged) > MOST_RANGES:
            del self.damaged[next(iter(self.damaged))]
        self.found += new
        return new

    @property
    def progress(self) -> Progress:
        """What the next life has to know."""
        bases = {one - one % self._size for one in self.damaged} | self._suspects.keys()
        if self._suspect is not None:
            bases.add(self._suspect)
        position = self._place.position
        return Progress(position - position % self._size, self.completed_us, sorted(bases)[:64])

    def _goes_on_at(self, span: Span, place: Place, first: Position, now_us: int) -> bool:
        ended = place.position >= span.stop
        if span.suspect is not None:
            self._urgent = None if ended else place
            if ended:
                self._suspect = None
            return ended
        self._place = place
        if ended:
            self.completed_us = now_us
            self._place = beginning(first)
        return ended
