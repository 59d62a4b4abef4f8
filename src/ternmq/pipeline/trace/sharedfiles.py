"""The rows of a queue in files that it shares with others (``sharing``), read as they are needed.

Of each file, an index is read first: which queues it has, and from which offset to which. The rows
of a queue follow each other in a file. Queues are folded in this order, too: so of each file that
was read some rows are held for the next queues, and a file is read a few times, not once for each
of its queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.numbers import NULL, Numbers, member, numbers
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.known import Queue
from ternmq.pipeline.trace.life import OF_GROUPS, spread
from ternmq.pipeline.trace.reach import Reach, overlapping
from ternmq.pipeline.trace.sharing import FILE, SHARED, is_quiet, is_shared

HELD_ROWS = 400_000
"""Most rows of all files together that are held for the next queues: some 200 MB. But at least
``LEAST_HELD`` of each file."""
LEAST_HELD = 1024
_PLACED: Final = ("topic_number", "queue", "offset")
_RUNS: Final = tuple(one for one in OF_GROUPS if one != "cursor")


class SharedFiles:
    """The shared files of the trace. Not thread-safe.

    Args:
        table: The trace.
        files: Its files.
    """

    def __init__(self, table: Table, files: Iterable[DataFile]) -> None:
        self._table = table
        shared = [one for one in files if is_shared(one)]
        self._open = _Bounded([one for one in shared if not is_quiet(one)])
        self._quiet = _Bounded([one for one in shared if is_quiet(one)])
        self._most = max(LEAST_HELD, HELD_ROWS // max(1, len(shared)))
        self._indexes: dict[str, _Index] = {}
        self._held: dict[str, _Held] = {}

    def queues(self, topics: set[int]) -> set[Queue]:
        """Return the queues of topics that have rows in shared files."""
        found: set[Queue] = set()
        for one in (*self._open.of(topics), *self._quiet.of(topics)):
            places = self._index_of(one).places.tolist()
            found.update((at >> 32, at & 0xFFFFFFFF) for at in places if at >> 32 in topics)
        return found

    def open_of(self, place: Queue, reach: Reach) -> pa.Table:
        """Return the open rows of a queue that events affect; columns ``SHARED``.

        With the other open rows that the queue has in the same files: see ``together``.
        """
        some = [SHARED.empty_table()]
        for one in self._open.touched(place[0], reach):
            run = self._index_of(one).run(place)
            if run is not None and reach.touches(*run.offsets, some_open=True)[0]:
                some.append(self._rows_of(one, run))
        return pa.concat_tables(some)

    def has_quiet(self, place: Queue) -> bool:
        """Return whether a queue may have quiet rows."""
        return bool(self._quiet.of({place[0]}))

    def quiet_of(self, place: Queue, start: Numbers, stop: Numbers) -> pa.Table:
        """Return the quiet rows of a queue with offsets in given ranges; columns ``SHARED``."""
        some = [SHARED.empty_table()]
        for one in self._quiet.touched(place[0], Reach(start, stop, _NEVER, 0)):
            run = self._index_of(one).run(place)
            if run is not None and overlapping(start, stop, *run.offsets)[0]:
                rows = self._rows_of(one, run)
                at = numbers(rows["offset"])
                some.append(rows.filter(pa.array(overlapping(start, stop, at, at))))
        return pa.concat_tables(some)

    def _index_of(self, one: DataFile) -> _Index:
        if one.path not in self._indexes:
            self._indexes[one.path] = _Index.of(self._table.read_files([one], _PLACED))
        return self._indexes[one.path]

    def _rows_of(self, one: DataFile, run: _Run) -> pa.Table:
        held = self._held.get(one.path)
        if held is None or not held.begin <= run.begin <= run.end <= held.end:
            rows = self._table.read_files([one])
            order = self._index_of(one).order
            begin, end = run.begin, min(len(rows), max(run.end, run.begin + self._most))
            if order is not None:
                rows = rows.take(pa.array(order[begin:end]))
            elif end - begin < len(rows):
                # Not a slice: it would hold all rows of the file.
                rows = rows.take(pa.array(np.arange(begin, end)))
            held = self._held[one.path] = _Held(begin, end, rows)
        mine = held.rows.slice(run.begin - held.begin, run.end - run.begin)
        return mine.append_column(SHARED.field(FILE), pa.repeat(one.path, len(mine)))


_NEVER: Final = np.iinfo(np.int64).max


@dataclass(slots=True, frozen=True)
class _Run:
    """The rows of a queue in a file: from which to which place, and offset."""

    begin: int
    end: int
    offsets: tuple[Numbers, Numbers]


@dataclass(slots=True, frozen=True)
class _Held:
    """Some rows of a file: from which to which place."""

    begin: int
    end: int
    rows: pa.Table


@dataclass(slots=True, frozen=True)
class _Index:
    """The queues of a file.

    Attributes:
        places: Topic and queue of each as a number, ascending.
        begins: Where the rows of each begin; and the end.
        low: Lowest offset of each.
        high: Highest offset of each.
        order: The rows in the order of queues; None: they are in this order.
    """

    places: Numbers
    begins: Numbers
    low: Numbers
    high: Numbers
    order: Numbers | None

    @staticmethod
    def of(keys: pa.Table) -> _Index:
        """Return the index of rows with the columns ``_PLACED``."""
        place = numbers(keys["topic_number"]) << 32 | numbers(keys["queue"])
        offset = numbers(keys["offset"])
        order = None
        if (np.diff(place) < 0).any():  # Another program has written the file again.
            order = np.argsort(place, kind="stable")
            place, offset = place[order], offset[order]
        places, begins = np.unique(place, return_index=True)
        low, high = (which.reduceat(offset, begins) for which in (np.minimum, np.maximum))
        return _Index(places, np.append(begins, len(place)), low, high, order)

    def run(self, place: Queue) -> _Run | None:
        """Return the rows of a queue; None if there are none."""
        at = int(np.searchsorted(self.places, wanted := place[0] << 32 | place[1]))
        if at == len(self.places) or self.places[at] != wanted:
            return None
        begin, end = self.begins[at : at + 2].tolist()
        return _Run(begin, end, (self.low[at : at + 1], self.high[at : at + 1]))


class _Bounded:
    """Files by the topics and the offsets that they may have."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = files
        self._low, self._high, self._first, self._last = (
            np.array([int_of(bound[name]) for bound in bounds], np.int64)
            for name in ("topic_number", "offset")
            for bounds in ([one.low for one in files], [one.high for one in files])
        )

    def of(self, topics: set[int]) -> list[DataFile]:
        """Return the files that may have rows of one of the topics."""
        wanted = np.array(sorted(topics), np.int64)
        first = np.searchsorted(wanted, self._low)
        after = np.searchsorted(wanted, self._high, side="right")
        return [self._files[at] for at in np.flatnonzero(first < after).tolist()]

    def touched(self, topic: int, reach: Reach) -> list[DataFile]:
        """Return the files that may have rows of a topic with offsets in a reach."""
        near = np.flatnonzero((self._low <= topic) & (self._high >= topic))
        touched = reach.touches(self._first[near], self._last[near], some_open=True)
        return [self._files[at] for at in near[touched].tolist()]


def missing(events: pa.Table, rows: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the ranges of offsets that events are about and whose rows may be among quiet ones.

    A fact about a message and a group needs the row of both. If this row is there, or the message
    was stored just now, nothing else is needed. MOVED records tell the senders of messages; all
    rows of a message know its sender, or none.

    Args:
        events: Events of a queue.
        rows: Rows of the queue that are read already, among them all open rows of these offsets.
    """
    start, stop = numbers(events["start"], 0), numbers(events["stop"], 0)
    stored = np.flatnonzero(member(events["kind"], ("stored", "resolved")) >= 0)
    run, inside = spread((stop - start)[stored])
    new = start[stored][run] + inside
    group, of = numbers(events["group_number"], -1), numbers(rows["group_number"], -1)
    had = numbers(rows["offset"])
    about = member(events["kind"], _RUNS) >= 0
    asked = [(about & (group == one), of == one) for one in np.unique(group[about]).tolist()]
    moved = member(events["kind"], ("moved",)) >= 0
    if moved.any():
        asked.append((moved, numbers(rows["sequence"]) != NULL))
    lacking = np.zeros(len(events), bool)
    for which, there in asked:
        known = np.union1d(had[there], new)
        at = np.flatnonzero(which)
        count = np.searchsorted(known, stop[at]) - np.searchsorted(known, start[at])
        lacking[at[count < (stop - start)[at]]] = True
    return start[lacking], stop[lacking]


def together(rows: pa.Table, count: int) -> Numbers:
    """Return numbers that are the same for rows of a queue that leave shared files together.

    If one of its open rows in a file changed, the others are likely to change soon.

    Args:
        rows: Rows of the queue, the open ones first; columns ``SHARED``.
        count: How many open ones there are. Each of the others is by itself.
    """
    files = rows[FILE].slice(0, count).combine_chunks().dictionary_encode()
    found: Numbers = np.concatenate([numbers(files.indices), np.arange(count, len(rows))])
    return found
