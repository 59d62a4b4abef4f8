"""The trace of a queue: finds the files with affected rows, folds, writes the new files.

This is the work of one worker, for a whole queue or for one of its cells (``cells``). It writes
files and returns which ones, and which files they replace; the process that commits them decides
what belongs to the table (``commits``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import STATS_MINUTE, STEPS_US
from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.numbers import NULL, Numbers, from_position, member, numbers
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import sharing
from ternmq.pipeline.trace.blocks import change, layers
from ternmq.pipeline.trace.fold import OF_GROUPS, OF_MESSAGES, Group, TracedQueue, fold
from ternmq.pipeline.trace.known import PIPELINE, Queue
from ternmq.pipeline.trace.reach import FOREVER, Reach, reach_of
from ternmq.pipeline.trace.sharedfiles import SharedFiles, missing, together
from ternmq.pipeline.trace.sharing import DROPPED, FILE, Small, is_shared

KINDS: Final = (*OF_GROUPS, *OF_MESSAGES)
"""Kinds of events about a queue."""


@dataclass(slots=True, frozen=True)
class Work:
    """The work to do for a queue, or for one of its cells.

    Attributes:
        place: The queue.
        groups: Groups of its topic.
        begin: Position from which on events are folded.
        counted: Position from which on events are counted in statistics.
        known_from: Position from which on events move ``end`` and ``cursors``.
        end: Offset after its newest message, before the events.
        cursors: Cursors of groups, before the events.
        files: Files of the table with rows of nothing but the queue or cell.
        within: Returns which offsets belong to the cell; None: all.
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
    within: Callable[[Numbers], npt.NDArray[np.bool_]] | None = None
    prepared: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Done:
    """The rows of a queue or of one of its cells, folded; or what several of them have in common.

    Attributes:
        place: The queue; None: several.
        add: Files written.
        remove: Files that they replace.
        rows: Number of rows written.
        stats: Statistics by minute.
        small: Rows that are not written yet, as they are few.
        dropped: Rows in shared files that changed; columns ``DROPPED``.
    """

    place: TracedQueue | None
    add: list[DataFile]
    remove: list[DataFile]
    rows: int
    stats: pa.Table
    small: Small | None = None
    dropped: pa.Table = field(default_factory=DROPPED.empty_table)


@dataclass(slots=True)
class Steps:
    """How the end of a queue and the cursors of its groups moved.

    Attributes:
        place: The queue.
        lags: ``begin`` (minute), ``group_number``, ``end``, ``cursor`` at the minute's end.
        end: As in ``Work``, after the events.
        cursors: Likewise.
    """

    place: TracedQueue
    lags: pa.Table
    end: int
    cursors: dict[int, int]


def of_users(events: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the events that are not about groups of the pipeline."""
    return pc.invert(pc.fill_null(pc.starts_with(events["group"], PIPELINE), False))


def files_of(files: Iterable[DataFile]) -> dict[Queue, list[DataFile]]:
    """Return files of the trace by queue, without those that queues share."""
    found: dict[Queue, list[DataFile]] = {}
    for one in files:
        if is_shared(one):
            continue
        place = int_of(one.low["topic_number"]), int_of(one.low["queue"])
        found.setdefault(place, []).append(one)
    return found


def by_queue(events: pa.Table) -> dict[Queue, pa.Table]:
    """Return events about queues by queue, each in order."""
    key = numbers(events["topic_number"]) << 32 | numbers(events["queue"])
    order = np.argsort(key, kind="stable")
    keys, begins = np.unique(key[order], return_index=True)
    sorted_ = events.take(pa.array(order))
    ends = [*begins.tolist(), len(order)][1:]
    return {
        (int(one) >> 32, int(one) & 0xFFFFFFFF): sorted_.slice(begin, end - begin)
        for one, begin, end in zip(keys, begins.tolist(), ends, strict=True)
    }


def about_queues(events: pa.Table) -> pa.Table:
    """Return the events about queues."""
    return events.filter(
        pc.and_(pc.is_in(events["kind"], value_set=pa.array(KINDS)), pc.is_valid(events["queue"]))
    )


def fold_queue(table: Table, work: Work, events: pa.Table, files: SharedFiles) -> Done:
    """Fold the events of a queue, or of one of its cells.

    Args:
        table: The trace.
        work: The work to do.
        events: Its events, of ``KINDS``, in the order of the journal.
        files: The shared files.
    """
    reach = reach_of(work.groups, work.begin, events)
    old = [one for one in work.files if reach.has(one)]
    rows = table.read_files(old)
    beside, still = _beside(work, reach, events, rows, files)
    rows = pa.concat_tables([rows, beside.drop_columns(FILE)])
    folded = fold(work.place, rows, events, work.groups, work.begin, work.prepared)
    own = np.repeat(np.arange(len(old)), [one.rows for one in old])
    shared = len(old) + together(beside, still)
    number = np.concatenate([own, shared])
    changed = change(number, len(old) + len(beside), rows, folded.rows)
    kept = [one for one in work.files if one not in old]
    remove: list[DataFile] = []
    for one, gone in zip(old, changed.files.tolist()[: len(old)], strict=True):
        (remove if gone else kept).append(one)
    counts = stats.of_events(work.place.topic, events, folded.done, work.counted)
    done = Done(work.place, [], remove, 0, counts)
    done.dropped = beside.filter(pa.array(changed.files[shared])).select(DROPPED.names)
    if len(changed.rows) < sharing.SMALL_QUEUE:
        done.small = Small(changed.rows, kept)
        return done
    for layer in layers(table, changed.rows, kept):
        done.add += table.stage(layer.rows)
        done.remove += layer.replaces
    done.rows = sum(one.rows for one in done.add)
    return done


def _beside(
    work: Work, reach: Reach, events: pa.Table, rows: pa.Table, files: SharedFiles
) -> tuple[pa.Table, int]:
    """Return the rows in shared files that the events may be about, and how many are open.

    The open ones are first; columns ``SHARED``.
    """
    place = work.place.topic_number, work.place.queue
    still = _of_cell(work, files.open_of(place, reach))
    if not files.has_quiet(place):
        return still, len(still)
    start, stop = missing(events, pa.concat_tables([rows, still.drop_columns(FILE)]))
    if reach.everything_from < FOREVER:
        start, stop = np.append(start, reach.everything_from), np.append(stop, FOREVER)
    quiet = _of_cell(work, files.quiet_of(place, start, stop))
    return pa.concat_tables([still, quiet]), len(still)


def _of_cell(work: Work, rows: pa.Table) -> pa.Table:
    if work.within is None:
        return rows
    return rows.filter(pa.array(work.within(numbers(rows["offset"]))))


def sharing_files(table: Table, dones: Iterable[Done]) -> Iterator[Done]:
    """Yield folded rows; of small queues, write them, and yield what several have in common.

    The rows of small queues are written before there are too many for the memory.
    """
    waiting: list[Small] = []
    rows = 0
    for one in dones:
        if one.small is not None:
            waiting.append(one.small)
            rows += len(one.small.rows)
            one.small = None
        yield one
        if rows >= sharing.AT_ONCE_ROWS:
            yield _share(table, waiting)
            waiting, rows = [], 0
    if waiting:
        yield _share(table, waiting)


def _share(table: Table, small: Iterable[Small]) -> Done:
    nothing = stats.complete(STATS_MINUTE.schema.empty_table())
    files = sharing.share(table, small)
    return Done(None, files.add, files.remove, sum(one.rows for one in files.add), nothing)


def steps(work: Work, events: pa.Table) -> Steps:
    """Return the end and the groups' cursors of the queue after each minute with events.

    Args:
        work: The work of the queue; its files do not matter.
        events: As in ``fold_queue``, for the whole queue; those of ``of_steps`` are enough.
    """
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
    return Steps(work.place, lags, end, cursors)


def of_steps(events: pa.Table, known_from: int) -> pa.Table:
    """Return the few events of one or more queues that ``steps`` needs.

    In each minute of a queue: the last event, the one that moved its end furthest, and the last
    that moved the cursor of each group.

    Args:
        events: Events of ``KINDS``, in the order of the journal.
        known_from: As in ``Work``.
    """
    later = from_position(events, known_from)
    minute = numbers(later["time"]) // STEPS_US["stats_minute"]
    queue = numbers(later["topic_number"]) << 32 | numbers(later["queue"])
    moved = numbers(later["cursor"]) != NULL
    stored = member(later["kind"], ("stored", "resolved")) >= 0
    stop, group = numbers(later["stop"], 0), numbers(later["group_number"], -1)
    every, nothing = np.ones(len(later), bool), np.zeros(len(later), np.int64)
    kept = [
        _last(which, queue, minute, told, order)
        for which, told, order in (
            (every, nothing, nothing), (stored, nothing, stop), (moved, group, nothing),
        )
    ]  # fmt: skip
    return later.take(pa.array(np.unique(np.concatenate(kept))))


def _last(
    which: npt.NDArray[np.bool_], queue: Numbers, minute: Numbers, told: Numbers, order: Numbers
) -> Numbers:
    """Return the chosen row that is last by ``order`` for each queue, minute and number."""
    row = np.flatnonzero(which)
    keys = queue[row], minute[row], told[row]
    by = np.lexsort((order[row], *keys))
    new = np.zeros(max(0, len(row) - 1), bool)
    for key in keys:
        new |= key[by][1:] != key[by][:-1]
    last: Numbers = row[by][np.append(new, [True] * bool(len(row))).astype(bool)]
    return last


def _steps(
    time: Numbers, value: Numbers, minutes: Numbers, step: int, before: int
) -> tuple[Numbers, int]:
    """Return a value at the end of each minute, and at the end."""
    at = np.searchsorted(time, minutes + step)
    whole = np.concatenate([[before], value])
    found: Numbers = whole[at]
    return found, int(whole[-1])
