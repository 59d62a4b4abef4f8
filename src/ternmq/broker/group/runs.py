"""Arithmetic of runs: half-open ranges of offsets, with or without attempts and deliveries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import lt
from typing import Final

from ternmq.record.fact.facts import LeasedRun, Span

_MANY: Final = 16
"""Number of runs from which one pass over all runs takes less time than a search for each."""


def split(runs: list[LeasedRun], start: int, stop: int) -> tuple[list[LeasedRun], list[LeasedRun]]:
    """Return (parts of the runs outside ``[start, stop)``, parts inside); the order is kept."""
    outside: list[LeasedRun] = []
    inside: list[LeasedRun] = []
    for run in runs:
        low, high, attempt, deliveries = run
        if high <= start or low >= stop:
            outside.append(run)
            continue
        if start <= low and high <= stop:
            inside.append(run)
            continue
        if low < start:
            outside.append((low, start, attempt, deliveries))
        inside.append((max(low, start), min(high, stop), attempt, deliveries))
        if high > stop:
            outside.append((stop, high, attempt, deliveries))
    return outside, inside


def union(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted; spans that touch or overlap are joined."""
    ordered = sorted(spans)
    if len(ordered) > _MANY:
        starts, stops = zip(*ordered, strict=True)
        if all(map(lt, stops, starts[1:])):  # as most requests name them: nothing to join
            return ordered
    joined: list[Span] = []
    for start, stop in ordered:
        if joined and start <= joined[-1][1]:
            if stop > joined[-1][1]:
                joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def split_all(
    runs: list[LeasedRun], spans: Sequence[Span]
) -> tuple[list[LeasedRun], list[LeasedRun]]:
    """Return the parts of the runs outside of all spans, and those inside; both sorted.

    One pass over both; calling ``split`` for each span would take quadratic time.

    Args:
        runs: Disjoint, in any order.
        spans: As ``union`` returns them.
    """
    outside: list[LeasedRun] = []
    inside: list[LeasedRun] = []
    at = 0
    for low, high, attempt, deliveries in sorted(runs):
        start = low
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        index = at
        while index < len(spans) and spans[index][0] < high:
            first, last = spans[index]
            if start < first:
                outside.append((start, first, attempt, deliveries))
                start = first
            if last > high:
                last = high
            inside.append((start, last, attempt, deliveries))
            start = last
            index += 1
        if start < high:
            outside.append((start, high, attempt, deliveries))
    return outside, inside


def cut(runs: list[LeasedRun], spans: Sequence[Span]) -> tuple[list[LeasedRun], list[LeasedRun]]:
    """Do the same as ``split_all`` for sorted runs: a few spans are looked for.

    O(log n + copied). The runs are not changed: a fact may refer to the list.
    """
    if len(runs) <= _MANY and len(spans) == 1:
        return split(runs, *spans[0])
    if len(spans) > _MANY or len(runs) <= _MANY:
        return split_all(runs, spans)
    outside, inside = runs, list[LeasedRun]()
    for start, stop in spans:
        low, high = _touched(outside, start, stop)
        if low < high:
            around, found = split(outside[low:high], start, stop)
            outside = [*outside[:low], *around, *outside[high:]]
            inside += found
    return outside, inside


def parts_in(runs: list[LeasedRun], spans: Sequence[Span]) -> list[LeasedRun]:
    """Return the parts of sorted runs that are in the spans; a few are looked for, in O(log n)."""
    if len(spans) > _MANY or len(runs) <= _MANY:
        return split_all(runs, spans)[1]
    found: list[LeasedRun] = []
    for start, stop in spans:
        low, high = _touched(runs, start, stop)
        found += split(runs[low:high], start, stop)[1]
    return found


def _touched(runs: list[LeasedRun], start: int, stop: int) -> tuple[int, int]:
    """Return which of sorted runs have rows in a span: ``[low, high)``."""
    low = bisect_right(runs, (start,))
    if low and runs[low - 1][1] > start:
        low -= 1
    return low, bisect_left(runs, (stop,), low)


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the parts of the spans that are in none of the others; sorted and joined."""
    left, _ = split_all([(start, stop, 0, 0) for start, stop in union(spans)], union(others))
    return [run[:2] for run in left]


def missing(spans: Sequence[Span], runs: Sequence[LeasedRun]) -> list[Span]:
    """Return the parts of the spans (sorted and joined) that no run covers; the runs are sorted."""
    left: list[Span] = []
    at = 0
    for start, stop in spans:
        edge = start
        while at < len(runs) and runs[at][0] < stop:
            if edge < runs[at][0]:
                left.append((edge, runs[at][0]))
            edge = runs[at][1]
            at += 1
        if edge < stop:
            left.append((edge, stop))
    return left


def merge(runs: Iterable[LeasedRun]) -> list[LeasedRun]:
    """Return the runs sorted; neighbours with equal attempt and deliveries are joined."""
    merged: list[LeasedRun] = []
    for run in sorted(runs):
        if merged:
            start, stop, attempt, deliveries = run
            low, high, attempt_before, deliveries_before = merged[-1]
            if high == start and (attempt, deliveries) == (attempt_before, deliveries_before):
                merged[-1] = (low, stop, attempt, deliveries)
                continue
        merged.append(run)
    return merged


def put(runs: list[LeasedRun], start: int, stop: int, attempt: int, deliveries: int) -> None:
    """Put rows into sorted runs that do not have them; joined as by ``merge``. O(log n + moved)."""
    at = bisect_left(runs, (start,))
    if at and runs[at - 1][1] == start and runs[at - 1][2:] == (attempt, deliveries):
        at -= 1
        start = runs.pop(at)[0]
    if at < len(runs) and runs[at][0] == stop and runs[at][2:] == (attempt, deliveries):
        stop = runs.pop(at)[1]
    runs.insert(at, (start, stop, attempt, deliveries))


def put_all(runs: list[LeasedRun], more: Sequence[LeasedRun]) -> list[LeasedRun]:
    """Return sorted runs with further ones, as ``put``; ``runs`` may be changed."""
    if len(more) > _MANY:
        return merge([*runs, *more])
    for run in more:
        put(runs, *run)
    return runs


def first_rows(runs: Iterable[LeasedRun], limit: int) -> list[LeasedRun]:
    """Return the first rows, by offset, at most ``limit``."""
    found: list[LeasedRun] = []
    for start, stop, attempt, deliveries in sorted(runs):
        if limit <= 0:
            break
        rows = min(stop - start, limit)
        found.append((start, start + rows, attempt, deliveries))
        limit -= rows
    return found


def last_rows(runs: Iterable[LeasedRun], limit: int) -> list[LeasedRun]:
    """Return the last rows, by offset, at most ``limit``."""
    found: list[LeasedRun] = []
    for start, stop, attempt, deliveries in sorted(runs, reverse=True):
        if limit <= 0:
            break
        rows = min(stop - start, limit)
        found.append((stop - rows, stop, attempt, deliveries))
        limit -= rows
    return merge(found)


def row_count(runs: Iterable[LeasedRun]) -> int:
    """Return the number of rows in the runs."""
    return sum([stop - start for start, stop, _, _ in runs])


class RunList:
    """Disjoint runs sorted by offset: rows that wait to be delivered again."""

    __slots__ = ("rows", "runs")

    def __init__(self, runs: Iterable[LeasedRun] = ()) -> None:
        self.runs: list[LeasedRun] = sorted(runs)
        self.rows = row_count(self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, start: int, stop: int, attempt: int, deliveries: int) -> None:
        """Add rows that are not in the list yet; neighbours with equal counts are joined."""
        self.rows += stop - start
        put(self.runs, start, stop, attempt, deliveries)

    def add_all(self, runs: Sequence[LeasedRun]) -> None:
        """``add`` for several runs: many of them in one pass."""
        if len(runs) <= _MANY:
            for start, stop, attempt, deliveries in runs:
                self.add(start, stop, attempt, deliveries)
            return
        self.rows += row_count(runs)
        self.runs = put_all(self.runs, runs)

    def find(self, offset: int) -> LeasedRun | None:
        """Return the run that holds the offset, or None."""
        at = bisect_right(self.runs, (offset, 1 << 63)) - 1
        if at >= 0 and self.runs[at][0] <= offset < self.runs[at][1]:
            return self.runs[at]
        return None

    def inside(self, start: int, stop: int) -> list[LeasedRun]:
        """Return the parts of the runs in ``[start, stop)``. O(log n + found)."""
        if start >= stop:
            return []
        low, high = _touched(self.runs, start, stop)
        return split(self.runs[low:high], start, stop)[1]

    def take(self, start: int, stop: int) -> list[LeasedRun]:
        """Remove and return the parts of the runs in ``[start, stop)``. O(log n + moved)."""
        runs = self.runs
        low, high = _touched(runs, start, stop)
        if low == high:
            return []
        outside, taken = split(runs[low:high], start, stop)
        runs[low:high] = outside
        self.rows -= row_count(taken)
        return taken

    def take_all(self, spans: Sequence[Span]) -> list[LeasedRun]:
        """``take`` for disjoint spans: many of them in one pass."""
        if len(spans) <= _MANY:
            return [run for start, stop in spans for run in self.take(start, stop)]
        self.runs, taken = split_all(self.runs, union(spans))
        self.rows -= row_count(taken)
        return taken


class SpanSet:
    """Disjoint spans of offsets, sorted and merged."""

    __slots__ = ("starts", "stops")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Span]:
        return zip(self.starts, self.stops, strict=True)

    def add(self, start: int, stop: int) -> None:
        """Add a span; touching and overlapping ones merge."""
        if start >= stop:
            return
        low = bisect_left(self.stops, start)
        high = bisect_right(self.starts, stop)
        if low < high:
            start = min(start, self.starts[low])
            stop = max(stop, self.stops[high - 1])
        self.starts[low:high] = [start]
        self.stops[low:high] = [stop]

    def remove(self, start: int, stop: int) -> None:
        """Remove a span."""
        low = bisect_right(self.stops, start)
        high = bisect_left(self.starts, stop)
        if low >= high or start >= stop:
            return
        starts: list[int] = []
        stops: list[int] = []
        if self.starts[low] < start:
            starts.append(self.starts[low])
            stops.append(start)
        if self.stops[high - 1] > stop:
            starts.append(stop)
            stops.append(self.stops[high - 1])
        self.starts[low:high] = starts
        self.stops[low:high] = stops

    def covering_end(self, offset: int) -> int:
        """Return the end of the span that holds the offset, or the offset itself."""
        at = bisect_right(self.starts, offset) - 1
        if at >= 0 and self.stops[at] > offset:
            return self.stops[at]
        return offset

    def next_start(self, offset: int, limit: int) -> int:
        """Return the start of the next span at or after the offset, at most ``limit``."""
        at = bisect_left(self.starts, offset)
        return min(self.starts[at], limit) if at < len(self.starts) else limit

    def covers(self, start: int, stop: int) -> bool:
        """Return whether every offset of ``[start, stop)`` is in the set."""
        return self.covering_end(start) >= stop

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether any offset of ``[start, stop)`` is in the set."""
        return self.covering_end(start) > start or self.next_start(start, stop) < stop
