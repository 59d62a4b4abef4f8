"""The trace of one queue: finds the files with affected rows, folds, writes the new files.

This is the work of one worker. It writes files and returns which ones, and which files they
replace; the process that commits them decides what belongs to the table (``commits``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import STEPS_US
from ternmq.pipeline.tables.datafile import DataFile, Value, parts
from ternmq.pipeline.tables.numbers import NULL, Numbers, from_position, member, numbers
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.fold import OF_GROUPS, OF_MESSAGES, Group, TracedQueue, fold

_FOREVER: Final = 1 << 62
BLOCK_BITS = 18
"""A file has rows of one hour and of at most 2^18 offsets: it is rewritten when one of its
messages changes."""
KINDS: Final = (*OF_GROUPS, *OF_MESSAGES)
"""Kinds of events about a queue."""


@dataclass(slots=True, frozen=True)
class Work:
    """The work to do for a queue.

    Attributes:
        place: The queue.
        groups: Groups of its topic.
        begin: Position from which on events are folded.
        counted: Position from which on events are counted in statistics.
        known_from: Position from which on events move ``end`` and ``cursors``.
        end: Offset after its newest message, before the events.
        cursors: Cursors of groups, before the events.
        files: Files of the table with rows of the queue.
        prepared: As in ``fold.fold``.
    """

    place: TracedQueue
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
    """The result of the work.

    Attributes:
        place: The queue.
        add: Files written.
        remove: Files that they replace.
        rows: Number of rows written.
        stats: Statistics by minute.
        lags: ``begin`` (minute), ``group_number``, ``end``, ``cursor`` at the minute's end.
        end: As in ``Work``, after the events.
        cursors: Likewise.
    """

    place: TracedQueue
    add: list[DataFile]
    remove: list[DataFile]
    rows: int
    stats: pa.Table
    lags: pa.Table
    end: int
    cursors: dict[int, int]


def fold_queue(table: Table, work: Work, events: pa.Table) -> Done:
    """Fold the events of a queue.

    Args:
        table: The trace.
        work: The work to do.
        events: Events of the queue, of ``KINDS``, in the order of the journal.
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
    """Write the blocks with changed rows; return the new files, and the files they replace."""
    was = dict(_blocks(before))
    add: list[DataFile] = []
    same: set[tuple[str, int]] = set()
    for key, rows in _blocks(after):
        if key in was and was[key].equals(rows):
            same.add(key)
        else:
            add += table.stage(rows)
    return add, [one for one in files if _block_of(one) not in same]


def _blocks(rows: pa.Table) -> Iterable[tuple[tuple[str, int], pa.Table]]:
    """Split rows by hour and block of offsets, as in files."""
    for partition, part in parts(rows, ("hour",)):
        block = numbers(part["offset"]) >> BLOCK_BITS
        numbered = np.unique(block).tolist()
        for one in numbered:
            some = part if len(numbered) == 1 else part.filter(pa.array(block == one))
            yield (partition["hour"], one), some


def _block_of(file: DataFile) -> tuple[str, int]:
    return file.partition["hour"], _number(file.low["offset"]) >> BLOCK_BITS


def touched(work: Work, events: pa.Table) -> list[DataFile]:
    """Return the files with rows that the events affect."""
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


def lag_steps(work: Work, events: pa.Table) -> tuple[pa.Table, int, dict[int, int]]:
    """Return the end and the groups' cursors of the queue after each minute with events."""
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
    """Return a value at the end of each minute, and at the end."""
    at = np.searchsorted(time, minutes + step)
    whole = np.concatenate([[before], value])
    found: Numbers = whole[at]
    return found, int(whole[-1])
