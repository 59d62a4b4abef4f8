"""Which rows of a queue a group was given before: deliveries of them say so.

Progress keeps nothing of a row that is done. If an operator resets the group or replays the row, it
is delivered again, and its consumer must learn that it may have been delivered before. For this, a
group queue remembers spans of offsets:

* ``[since, cursor)``: the group reads from ``since`` on since its start, its last reset or its last
  skip;
* ``others``: what it was given since the last reset otherwise: before a skip, or by a replay;
* ``earlier``: what it was given before the last reset, or before a replay of what was done. Of all
  spans, pulls look only at these: if no delivery of a row is known since (it is unread, parked, or
  ready with a count of 0), its next one has the count 2.

Spans may contain rows that the group was not given: its filter passed over them, or they were
parked behind a busy key until a reset. What a group commits itself (COMMIT) counts as given: it
read it elsewhere. What it skipped does not, nor what is below its start.

Of rows with an expiry, pulls also look at ``since`` (`delivery.expiry`).

Values are immutable. CURSOR and REPLAY change them, pulls never do. In STATE they are entries of
GIVEN. Deterministic, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ternmq.broker.group.runs import split_all, union
from ternmq.record.fact.facts import CursorMoved, LeasedRun, Move, Span
from ternmq.record.fact.replay import Replayed

MOST_SPANS: Final = 32
"""Spans of each kind that a group queue remembers; the smallest gaps are closed beyond it."""
_FOREVER: Final = 1 << 63


@dataclass(slots=True, frozen=True)
class Given:
    """What a group was given of one queue."""

    since: int = 0
    """The first offset that it read since its start, its last reset or its last skip."""
    earlier: tuple[Span, ...] = ()
    """Spans given before the last reset, or before a replay; sorted, disjoint."""
    others: tuple[Span, ...] = ()
    """Spans given since then, outside of ``[since, cursor)``; sorted, disjoint."""
    stop: int = field(init=False)
    """End of ``earlier``: from here on, the first known delivery of a row is its first one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", self.earlier[-1][1] if self.earlier else 0)

    # -- questions --------------------------------------------------------------------------------

    def spans(self, cursor: int) -> list[Span]:
        """Return all spans that the group was given; sorted, disjoint.

        Args:
            cursor: The cursor of the group.
        """
        return union([*self.earlier, *self.others, *_span(self.since, cursor)])

    def part(self, start: int, stop: int) -> tuple[int, int]:
        """Return (end, deliveries) of the first rows of a span of which no delivery is known.

        ``deliveries`` is the count of their next delivery: 1, or 2 if they were given before.
        """
        for low, high in self.earlier:
            if start < low:
                return min(low, stop), 1
            if start < high:
                return min(high, stop), 2
        return stop, 1

    def deliveries(self, offset: int) -> int:
        """Return the count of the next delivery of a row of which none is known."""
        return self.part(offset, offset + 1)[1]

    def runs(self, start: int, stop: int, attempt: int) -> Iterator[LeasedRun]:
        """Yield the runs with which rows are delivered of which no delivery is known."""
        while start < stop:
            end, deliveries = self.part(start, stop)
            yield start, end, attempt, deliveries
            start = end

    # -- facts ------------------------------------------------------------------------------------

    def moved(self, cursor: int, fact: CursorMoved) -> Given:
        """Return the value after a CURSOR fact; ``cursor`` is the one before it."""
        if fact.move is Move.RESET:
            return began(fact.cursor, _few(self.spans(cursor)))
        if fact.move is Move.SKIP and fact.cursor > cursor:
            others = _few(union([*self.others, *_span(self.since, cursor)]))
            return Given(fact.cursor, self.earlier, others)
        return self

    def replayed(self, cursor: int, fact: Replayed) -> Given:
        """Return the value after a REPLAY fact; ``cursor`` is the one at it."""
        given = fact.given
        if given is None:
            given = [run[:2] for run in fact.runs if not run[3]]
        earlier = _few(union([*self.earlier, *given])) if given else self.earlier
        new, _ = split_all(list(fact.runs), self.spans(cursor))
        others = _few(union([*self.others, *[run[:2] for run in new]])) if new else self.others
        return Given(self.since, earlier, others)

    def below(self, stop: int) -> Given:
        """Return the value without the rows from ``stop`` on, which do not exist."""
        if self.stop <= stop:
            return self
        earlier = [(low, min(high, stop)) for low, high in self.earlier if low < stop]
        return Given(self.since, tuple(earlier), self.others)


NOTHING: Final = Given()
"""Of a group that began at offset 0 and was never reset; most group queues share it."""
UNKNOWN: Final = Given(0, ((0, _FOREVER),))
"""Of a group whose rows may have been given before, any of them."""


def began(since: int, earlier: tuple[Span, ...] = ()) -> Given:
    """Return the value of a group that begins at an offset."""
    return Given(since, earlier) if since or earlier else NOTHING


def _span(start: int, stop: int) -> list[Span]:
    return [(start, stop)] if start < stop else []


def _few(spans: list[Span]) -> tuple[Span, ...]:
    """Return spans (sorted, disjoint), joined over the smallest gaps if there are too many."""
    if len(spans) <= MOST_SPANS:
        return tuple(spans)
    by_gap = sorted(range(1, len(spans)), key=lambda at: spans[at - 1][1] - spans[at][0])
    cuts = [0, *sorted(by_gap[: MOST_SPANS - 1]), len(spans)]
    return tuple([(spans[low][0], spans[high - 1][1]) for low, high in pairwise(cuts)])
