"""Which rows of a queue its events affect: the only ones that a fold reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.numbers import Numbers, member, numbers
from ternmq.pipeline.trace.blocks import is_open
from ternmq.pipeline.trace.life import Group

FOREVER: Final = 1 << 62
"""An offset that no queue reaches."""


@dataclass(slots=True, frozen=True)
class Reach:
    """The rows that events affect.

    Attributes:
        start: First offsets of ranges, ascending.
        stop: Offsets after their ends.
        everything_from: All rows from this offset on.
        open_below: Open rows below this offset.
    """

    start: Numbers
    stop: Numbers
    everything_from: int
    open_below: int

    def has(self, file: DataFile) -> bool:
        """Return whether a file of the queue may have such rows."""
        low, high = (np.array([int_of(one["offset"])]) for one in (file.low, file.high))
        return bool(self.touches(low, high, some_open=is_open(file))[0])

    def touches(self, low: Numbers, high: Numbers, *, some_open: bool) -> npt.NDArray[np.bool_]:
        """Return whether there may be such rows from each lowest to its highest offset.

        Args:
            low: The lowest offsets.
            high: The highest ones.
            some_open: Whether some of the rows may be open.
        """
        found = (high >= self.everything_from) | overlapping(self.start, self.stop, low, high)
        return found | (low < self.open_below) if some_open else found


def overlapping(
    start: Numbers, stop: Numbers, low: Numbers, high: Numbers
) -> npt.NDArray[np.bool_]:
    """Return for each ``low`` to ``high`` whether one of the ranges has an offset of these.

    Args:
        start: First offsets of the ranges, in any order.
        stop: Offsets after their ends.
        low: The lowest offsets.
        high: The highest ones.
    """
    begun = np.searchsorted(np.sort(start), high, side="right")
    ended = np.searchsorted(np.sort(stop), low, side="right")
    found: npt.NDArray[np.bool_] = begun > ended
    return found


def reach_of(groups: Sequence[Group], begin: int, events: pa.Table) -> Reach:
    """Return which rows events affect, and groups that begin or end.

    Args:
        groups: Groups of the topic, as the queue sees them.
        begin: Position at which the events begin.
        events: Events of the queue, in the order of the journal.
    """
    start, stop = numbers(events["start"], 0), numbers(events["stop"], 0)
    kind = member(events["kind"], ("cursor",))
    reset = pc.fill_null(pc.equal(events["cause"], "reset"), False).to_numpy()
    cursor = numbers(events["cursor"], 0)
    cursors = kind == 0
    spans = list(_union(start[~cursors], stop[~cursors]))
    everything_from, open_below = FOREVER, 0
    if (cursors & reset).any():
        everything_from = int(cursor[cursors & reset].min())
        open_below = FOREVER
    if (cursors & ~reset).any():
        open_below = max(open_below, int(cursor[cursors & ~reset].max()))
    for group in groups:
        if group.since >= begin and group.cursor is not None:
            everything_from = min(everything_from, group.cursor)
        if group.gone is not None and group.gone >= begin:
            open_below = FOREVER
    return Reach(
        np.array([one[0] for one in spans], np.int64),
        np.array([one[1] for one in spans], np.int64),
        everything_from,
        open_below,
    )


def _union(start: Numbers, stop: Numbers) -> Iterable[tuple[int, int]]:
    """Yield the spans covered by runs, ascending."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(stop[order]) if len(stop) else stop
    if not len(start):
        return
    breaks = np.flatnonzero(start[1:] > reach[:-1]) + 1
    begins = np.concatenate([[0], breaks])
    ends = np.concatenate([breaks, [len(start)]]) - 1
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if reach[end] > start[begin]:
            yield int(start[begin]), int(reach[end])
