"""The files of the table ``scheduled``: which of them events affect, and which replace them.

Rows that are pending have files of their own, of a day in which they are due and, once some of them
were delivered, of a short time of this day: messages are delivered in the order of their due times,
so few rows are written again that did not change. Small files are joined with new rows of their
kind: a day has few of them, however many passes there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.numbers import Numbers, numbers
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.entries import DAY_US, days_of, fold_entries
from ternmq.pipeline.trace.life import spread
from ternmq.pipeline.trace.schema import SCHEDULED

OPEN_ROWS = 1 << 14
"""Rows of a file of pending rows."""
OVER_ROWS = 1 << 18
"""Rows of a file of others."""
_MS: Final = 1000


@dataclass(slots=True)
class EntryFiles:
    """What a fold changed in the files.

    Attributes:
        add: Files written.
        remove: Files that they replace.
    """

    add: list[DataFile] = field(default_factory=list)
    remove: list[DataFile] = field(default_factory=list)


def fold_files(
    table: Table, events: pa.Table, gone: dict[int, int], bucket: int = 0, buckets: int = 1
) -> EntryFiles:
    """Fold events about scheduled messages, and write the new files.

    Args:
        table: The table ``scheduled``.
        events: Events about scheduled messages that are due in the days of the bucket.
        gone: Topics that were deleted: number -> time.
        bucket: Number of the bucket: every day whose number modulo ``buckets`` is this.
        buckets: Number of buckets.
    """
    found = EntryFiles()
    files: dict[int, list[DataFile]] = {}
    for one in table.files():
        day = int_of(one.low["due_time"]) // DAY_US
        if day % buckets == bucket:
            files.setdefault(day, []).append(one)
    day_of = days_of(events)
    wanted = {*np.unique(day_of).tolist()}
    if gone:
        wanted |= {day for day, some in files.items() if any(_has(one, gone) for one in some)}
    for day in sorted(wanted):
        some = events.filter(pa.array(day_of == day))
        _fold_day(table, files.get(day, []), some, gone, found)
    return found


def is_open(file: DataFile) -> bool:
    """Return whether a file has pending rows."""
    return int_of(file.high["open"]) > 0


def _has(file: DataFile, topics: dict[int, int]) -> bool:
    """Return whether a file may have pending rows of topics."""
    low, high = int_of(file.low["topic_number"]), int_of(file.high["topic_number"])
    return is_open(file) and any(low <= one <= high for one in topics)


def _fold_day(
    table: Table,
    files: Sequence[DataFile],
    events: pa.Table,
    gone: dict[int, int],
    found: EntryFiles,
) -> None:
    """Fold the events of a day; add to ``found``."""
    asked = events.filter(pc.not_equal(events["kind"], "scheduled"))
    start = numbers(asked["entry"])
    stop, due = start + numbers(asked["rows"]), numbers(asked["due"])
    read = [
        one
        for one in files
        if is_open(one) and (_touches(one, start, stop, due) or _has(one, gone))
    ]
    before = [table.read_files([one]) for one in read]
    # Rows that are over change hardly ever: their files are read only for what is not found.
    known = np.concatenate([_expanded(events), *[numbers(one["entry"]) for one in before]])
    if not np.isin(_expanded(asked, every=True), known).all():
        for one in files:
            if not is_open(one) and _touches(one, start, stop, due):
                read.append(one)
                before.append(table.read_files([one]))
    nothing = SCHEDULED.schema.empty_table()
    after = fold_entries(pa.concat_tables([nothing, *before]), events, gone)
    entries = numbers(after["entry"])
    new = np.ones(len(after), bool)
    kept = [one for one in files if one not in read]
    for file, rows in zip(read, before, strict=True):
        at = np.searchsorted(entries, numbers(rows["entry"]))
        if after.take(pa.array(at)).equals(rows):
            new[at] = False
            kept.append(file)
        else:
            found.remove.append(file)
    _write(table, after.filter(pa.array(new)), kept, found)


def _expanded(events: pa.Table, *, every: bool = False) -> Numbers:
    """Return the entries that were scheduled; or all that events are about."""
    some = events if every else events.filter(pc.equal(events["kind"], "scheduled"))
    ev, inside = spread(numbers(some["rows"]))
    found: Numbers = numbers(some["entry"])[ev] + inside
    return found


def _touches(file: DataFile, start: Numbers, stop: Numbers, due: Numbers) -> bool:
    """Return whether a file may have some of the entries."""
    low, high = int_of(file.low["entry"]), int_of(file.high["entry"])
    first, last = int_of(file.low["due_time"]), int_of(file.high["due_time"])
    # Other programs that write the log may cut the bounds of times to milliseconds.
    near = (due > first - _MS) & (due < last + _MS)
    return bool(np.any((start <= high) & (stop > low) & near))


def _write(table: Table, rows: pa.Table, kept: Sequence[DataFile], found: EntryFiles) -> None:
    """Write rows of a day, those that are pending to files of their own."""
    is_pending = rows["open"].combine_chunks()
    for pending, most in ((True, OPEN_ROWS), (False, OVER_ROWS)):
        some = rows.filter(is_pending if pending else pc.invert(is_pending))
        if not len(some):
            continue
        small = list(_joined([one for one in kept if is_open(one) is pending], len(some), most))
        found.remove += small
        some = pa.concat_tables([some, table.read_files(small)])
        some = some.sort_by([("due_time", "ascending"), ("entry", "ascending")])
        for begin in range(0, len(some), most):
            found.add += table.stage(some.slice(begin, most))


def _joined(files: Sequence[DataFile], rows: int, most: int) -> Iterator[DataFile]:
    """Yield the files that are joined with new rows: none is twice as large as those before."""
    for one in sorted(files, key=lambda file: (file.rows, file.path)):
        if one.rows > 2 * rows or rows + one.rows > most:
            return
        rows += one.rows
        yield one
