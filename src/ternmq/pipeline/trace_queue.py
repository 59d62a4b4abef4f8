"""The trace of one queue: which files hold rows that events are about, the fold, the files then.

What one worker does. It writes files and says which ones they are and which they stand for; what
belongs to the table is decided by whoever commits it (``trace_job``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline import stats
from ternmq.pipeline.files import DataFile, Value, parts
from ternmq.pipeline.stats_schema import STEPS_US
from ternmq.pipeline.table import Table
from ternmq.pipeline.trace_fold import OF_GROUPS, OF_MESSAGES, Group, Place, fold
from ternmq.pipeline.trace_rows import NULL, Numbers, from_position, member, numbers

_FOREVER = 1 << 62
KINDS = (*OF_GROUPS, *OF_MESSAGES)
"""Kinds of events that are about a queue."""


@dataclass(slots=True, frozen=True)
class Work:
    """What is to be done for a queue.

    Attributes:
        place: Which.
        groups: Of its topic.
        begin: Position from which on events are folded.
        counted: Position from which on events are counted in statistics.
        known_from: Position from which on ``end`` and ``cursors`` are to be moved on.
        end: Behind its newest message, before the events.
        cursors: Of groups, before the events.
        files: Of the table, that hold rows of the queue.
        prepared: See ``trace_fold.fold``.
    """

    place: Place
    groups: Sequence[Group]
    begin: int
    counted: int = 0
    known_from: int = 0
    end: int = 0
    cursors: Mapping[int, int] = field(default_factory=dict)
    files: Sequence[DataFile] = ()
    prepared: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Done:
    """What came of it.

    Attributes:
        place: Which queue.
        add: Files that were written.
        remove: Files that they stand for.
        rows: How many were written.
        stats: Statistics by minute.
        lags: ``begin`` (minute), ``group_number``, ``end``, ``cursor`` at the minute's end.
        end: As in ``Work``, after the events.
        cursors: The same.
    """

    place: Place
    add: list[DataFile]
    remove: list[DataFile]
    rows: int
    stats: pa.Table
    lags: pa.Table
    end: int
    cursors: dict[int, int]


def fold_queue(table: Table, work: Work, events: pa.Table) -> Done:
    """Fold events of a queue; see the module.

    Args:
        table: The trace.
        work: What is to be done.
        events: Of the queue, of ``KINDS``, in the order of the journal.
    """
    old = touched(work, events)
    rows = table.read_files(old)
    folded = fold(work.place, rows, events, work.groups, work.begin, work.prepared)
    add, old = _changed(table, old, rows, folded.rows)
    counts = stats.of_events(work.place.topic, events, folded.done, work.counted)
    lags, end, cursors = lag_steps(work, events)
    written = sum(one.rows for one in add)
    return Done(work.place, add, list(old), written, counts, lags, end, cursors)


def _changed(
    table: Table, files: Sequence[DataFile], before: pa.Table, after: pa.Table
) -> tuple[list[DataFile], list[DataFile]]:
    """Write the hours in which rows changed; return what was written, and what it stands for."""
    was = {partition["hour"]: part for partition, part in parts(before, ("hour",))}
    add: list[DataFile] = []
    same: set[str] = set()
    for partition, part in parts(after, ("hour",)):
        hour = partition["hour"]
        if hour in was and was[hour].equals(part):
            same.add(hour)
        else:
            add += table.stage(part)
    return add, [one for one in files if one.partition["hour"] not in same]


def touched(work: Work, events: pa.Table) -> list[DataFile]:
    """Return the files with rows that events are about."""
    start, stop = numbers(events["start"], 0), numbers(events["stop"], 0)
    kind = member(events["kind"], ("cursor",))
    reset = pc.fill_null(pc.equal(events["cause"], "reset"), False).to_numpy()
    cursor = numbers(events["cursor"], 0)
    cursors = kind == 0
    spans = list(_union(start[~cursors], stop[~cursors]))
    everything_from, open_below = _FOREVER, 0
    if (cursors & reset).any():
        everything_from = int(cursor[cursors & reset].min())
        open_below = _FOREVER
    if (cursors & ~reset).any():
        open_below = max(open_below, int(cursor[cursors & ~reset].max()))
    for group in work.groups:
        if group.since >= work.begin and group.cursor is not None:
            everything_from = min(everything_from, group.cursor)
        if group.gone is not None and group.gone >= work.begin:
            open_below = _FOREVER
    starts = np.array([one[0] for one in spans], np.int64)
    stops = np.array([one[1] for one in spans], np.int64)
    found = []
    for file in work.files:
        low, high = _number(file.low["offset"]), _number(file.high["offset"])
        is_open = _number(file.high["open"]) > 0
        if (
            high >= everything_from
            or (is_open and low < open_below)
            or bool(np.any((starts <= high) & (stops > low)))
        ):
            found.append(file)
    return found


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _union(start: Numbers, stop: Numbers) -> Iterable[tuple[int, int]]:
    """Yield the spans that runs cover, ascending."""
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


def lag_steps(work: Work, events: pa.Table) -> tuple[pa.Table, int, dict[int, int]]:
    """Return how far the queue and its groups were at the end of each minute with events."""
    later = from_position(events, work.known_from)
    time = numbers(later["time"])
    step = STEPS_US["stats_minute"]
    minutes = np.unique(time // step * step)
    stored = member(later["kind"], ("stored", "resolved")) >= 0
    behind = np.maximum.accumulate(np.maximum(numbers(later["stop"], 0)[stored], work.end))
    ends, end = _steps(time[stored], behind, minutes, step, work.end)
    group, cursor = numbers(later["group_number"], -1), numbers(later["cursor"])
    found: list[tuple[Numbers, int, Numbers, Numbers]] = []
    cursors = dict(work.cursors)
    for one in work.groups:
        if one.number not in cursors:
            if one.cursor is None and not (group == one.number).any():
                continue
            cursors[one.number] = one.cursor or 0
        mine = (group == one.number) & (cursor != NULL)
        at, last = _steps(time[mine], cursor[mine], minutes, step, cursors[one.number])
        cursors[one.number] = last
        if one.gone is not None:
            del cursors[one.number]
        found.append((minutes, one.number, ends, at))
    lags = pa.table(
        {
            "begin": np.concatenate([np.zeros(0, np.int64), *[one[0] for one in found]]),
            "group_number": np.concatenate(
                [np.zeros(0, np.int64), *[np.full(len(one[0]), one[1]) for one in found]]
            ),
            "end": np.concatenate([np.zeros(0, np.int64), *[one[2] for one in found]]),
            "cursor": np.concatenate([np.zeros(0, np.int64), *[one[3] for one in found]]),
        }
    )
    return lags, end, cursors


def _steps(
    time: Numbers, value: Numbers, minutes: Numbers, step: int, before: int
) -> tuple[Numbers, int]:
    """Return what a value is at the end of each minute, and at the end."""
    at = np.searchsorted(time, minutes + step)
    whole = np.concatenate([[before], value])
    found: Numbers = whole[at]
    return found, int(whole[-1])
