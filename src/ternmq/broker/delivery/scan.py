"""Finds the rows of a stored batch that pass a group's filter.

A filter of headers judges some rows at a time: as many as the pull has room for, then more and
more. So a small pull of a large batch does not judge all of it, and one whose filter passes little
is not slow.
"""

from __future__ import annotations

from itertools import compress
from typing import Final, NamedTuple

from ternmq.broker.catalog.filter import GroupFilter, Judged
from ternmq.record.batch.batch import Batch
from ternmq.record.fact.messages import Messages

LEAST_JUDGED: Final = 16
MOST_JUDGED: Final = 1024
"""Rows that a filter of headers judges at one time."""


class Scan(NamedTuple):
    """The rows that pass."""

    offsets: list[int]
    """In order."""
    stop: int
    """The rows below it were judged."""
    cost: int
    """What this cost beside the reading of the batch, see ``Judged``."""


def scan(
    wanted: GroupFilter, stored: Messages, start: int, end: int, most: int, budget: int
) -> Scan:
    """Return which rows ``[start, end)`` of a batch pass.

    Args:
        wanted: The filter.
        stored: The batch.
        start: The first row.
        end: After the last.
        most: No more rows are judged when more than this number pass.
        budget: No more rows are judged when this is spent. Some rows always are.
    """
    judge = wanted.judge(Batch(stored.batch))
    step = end - start if wanted.tree is None else max(most, LEAST_JUDGED)
    found: list[int] = []
    cost = 0
    offset = start
    while offset < end and len(found) <= most and cost <= budget:
        first = stored.row_of(offset)
        judged = judge.judge(first, stored.row_of(min(end, offset + step) - 1) + 1)
        cost += judged.cost
        offset = _take(found, stored, judged, offset, end)
        step = min(2 * step, max(step, MOST_JUDGED))
    return Scan(found, offset, cost)


def _take(found: list[int], stored: Messages, judged: Judged, offset: int, end: int) -> int:
    """Add the rows from an offset on that pass; return the offset after those judged."""
    passes = judged.passes
    if not stored.runs:  # rows and offsets go together
        stop = min(end, offset + judged.stop - judged.start)
        if passes is True:
            found += range(offset, stop)
        elif passes is not False:
            found += compress(range(offset, stop), passes)
        return stop
    while offset < end:
        row = stored.row_of(offset)
        if row >= judged.stop:
            break
        if judged.passed(row):
            found.append(offset)
        offset += 1
    return offset
