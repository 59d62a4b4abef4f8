"""How the facts of a piece of the journal are cut, so that many workers can fold them.

A cell is a queue's block of ``2^BLOCK_BITS`` offsets, as in the files of the trace. What a fold
does to a row depends on nothing but the facts about this row, the facts about its whole queue
(cursors) and the groups and transactions that are known (``Known``). So a cell is folded by itself,
and a queue with many messages by many workers. Each cell belongs to a bucket; a worker folds the
cells of a bucket, one after the other.

A file that an older version wrote may cover several blocks. As long as it belongs to the table, its
blocks are one cell: a file is replaced by one worker.

    tasks that scan             shuffle                   tasks that fold
    Scan.add, Scan.end   --->   by bucket, as told   --->  folding.fold_bucket
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.numbers import NULL, Numbers, numbers
from ternmq.pipeline.trace import blocks
from ternmq.pipeline.trace.entries import about_entries, days_of, first_rows
from ternmq.pipeline.trace.known import Queue
from ternmq.pipeline.trace.life import spread
from ternmq.pipeline.trace.queue import about_queues, files_of, of_steps, of_users

EVERY: Final = -1
"""Instead of a block: the fact is about all cells of its queue. Every bucket gets it."""
STEPS: Final = -2
"""The fact moves the end of its queue, or a cursor; for one bucket of the queue."""
KNOWN: Final = -3
"""The fact is one from which ``Known`` is collected. Every bucket gets it."""
NAMES: Final = -4
"""The number and the name of a topic, nothing else; for the first bucket."""
ENTRIES: Final = -5
"""The fact is about scheduled messages; for the bucket of the day in which they are due."""
_NAMED: Final = ["topic_number", "topic"]


@dataclass(slots=True, frozen=True)
class Cells:
    """The cells of a table.

    Attributes:
        buckets: Number of buckets.
        joined: First and last blocks that files of older versions join, ascending, by queue.
    """

    buckets: int
    joined: Mapping[Queue, tuple[Sequence[int], Sequence[int]]] = field(default_factory=dict)

    @staticmethod
    def of(files: Iterable[DataFile], buckets: int) -> Cells:
        """Return the cells of a table with these files."""
        joined: dict[Queue, tuple[Sequence[int], Sequence[int]]] = {}
        for place, some in files_of(files).items():
            spans = sorted({span for span in map(blocks.blocks_of, some) if span[0] != span[1]})
            firsts: list[int] = []
            lasts: list[int] = []
            for first, last in spans:
                if lasts and first <= lasts[-1]:
                    lasts[-1] = max(last, lasts[-1])
                else:
                    firsts.append(first)
                    lasts.append(last)
            if spans:
                joined[place] = firsts, lasts
        return Cells(buckets, joined)

    def cell(self, topic: Numbers, number: Numbers, block: Numbers) -> Numbers:
        """Return the first block of the cell that each block of a queue belongs to."""
        found = block
        for place, (firsts, lasts) in self.joined.items():
            mine = np.flatnonzero((topic == place[0]) & (number == place[1]))
            at = np.searchsorted(firsts, block[mine], side="right") - 1
            inside = (at >= 0) & (block[mine] <= np.array(lasts)[at])
            if inside.any():
                found = found.copy()
                found[mine[inside]] = np.array(firsts)[at[inside]]
        return found

    def of_file(self, file: DataFile) -> int:
        """Return the cell of a file: its first block."""
        (place,) = files_of([file])
        first = np.array([blocks.blocks_of(file)[0]])
        return int(self.cell(np.array([place[0]]), np.array([place[1]]), first)[0])

    def bucket(self, topic: Numbers, number: Numbers, cell: Numbers) -> Numbers:
        """Return the bucket of each cell; neighbours have different ones."""
        found: Numbers = (topic * 31 + number + cell) % self.buckets
        return found

    def bucket_of(self, place: Queue, cell: int = 0) -> int:
        """Return the bucket of a cell; by default of the one that gets the queue's steps."""
        return (place[0] * 31 + place[1] + cell) % self.buckets


class Scan:
    """Cuts the events of a stretch of the journal, in one or more calls.

    Args:
        cells: The cells.
        known_from: As in ``queue.Work``.
    """

    def __init__(self, cells: Cells, known_from: int) -> None:
        self._cells = cells
        self._known_from = known_from
        self._prepared: pa.Table | None = None
        """Events ``prepared`` of the stretch whose outcome it has not told yet."""
        self._named: set[int] = set()

    def add(self, events: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield the next events by bucket, in order; with a column ``block``.

        A block is the first of a cell, or ``EVERY``, ``STEPS``, ``KNOWN``, ``NAMES``, ``ENTRIES``.

        Args:
            events: Columns ``schema.EVENTS``, in the order of the journal.
        """
        names = self._names(events)
        events, learnt = self._decided(events)
        entries = events.filter(pa.array(about_entries(events)))
        some = about_queues(events.filter(of_users(events)))
        single = pc.is_valid(some["start"])
        runs, whole = clipped(some.filter(single)), some.filter(pc.invert(single))
        topic, number = numbers(runs["topic_number"]), numbers(runs["queue"])
        cell = self._cells.cell(topic, number, numbers(runs["start"]) >> blocks.BLOCK_BITS)
        moves = of_steps(some, self._known_from)
        head = np.zeros(len(moves), np.int64)
        of_queue = numbers(moves["topic_number"]), numbers(moves["queue"])
        yield from self._by_bucket(
            [
                (names, np.full(len(names), NAMES), np.zeros(len(names), np.int64)),
                (runs, cell, self._cells.bucket(topic, number, cell)),
                (moves, head + STEPS, self._cells.bucket(*of_queue, head)),
                self._everywhere(whole, EVERY),
                self._everywhere(learnt, KNOWN),
                (entries, np.full(len(entries), ENTRIES), days_of(entries) % self._cells.buckets),
            ]
        )

    def end(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield what only the end of the stretch tells: prepared rows that are not decided."""
        if self._prepared is not None:
            yield from self._by_bucket([self._everywhere(self._prepared, KNOWN)])

    def _names(self, events: pa.Table) -> pa.Table:
        """Return an event without a kind for each topic that was not named yet."""
        known = events.select(_NAMED).filter(pc.is_valid(events["topic"]))
        known = known.group_by(_NAMED).aggregate([])
        new = [n for n in known["topic_number"].to_pylist() if n not in self._named]
        self._named.update(new)
        known = known.filter(pc.is_in(known["topic_number"], pa.array(new, pa.int32())))
        return pa.table(
            [
                known[one.name] if one.name in _NAMED else pa.nulls(len(known), one.type)
                for one in events.schema
            ],
            schema=events.schema,
        )

    def _decided(self, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Fill in the senders of committed rows; return all events, and those to learn from.

        A transaction that is prepared and decided in one stretch is nobody else's concern, unless
        its records were copied.
        """
        kind = events["kind"]
        is_prepared = pc.equal(kind, "prepared")
        copies = pc.and_(is_prepared, pc.is_valid(events["refers_to"]))
        waiting = events.filter(pc.and_(is_prepared, pc.invert(copies)))
        if self._prepared is not None:
            waiting = pa.concat_tables([self._prepared, waiting])
        copied = events.filter(copies)["refers_to"].combine_chunks()
        waiting = waiting.filter(pc.invert(pc.is_in(waiting["position"], value_set=copied)))
        resolved = pc.and_(pc.equal(kind, "resolved"), pc.is_valid(events["refers_to"]))
        learnt = pc.or_(pc.equal(kind, "config"), copies)
        if pc.any(resolved).as_py():
            scheduled = pc.and_(pc.equal(kind, "scheduled"), pc.is_null(events["producer_id"]))
            at = pc.index_in(events["refers_to"], waiting["position"].combine_chunks())
            here = pc.and_(pc.or_(resolved, scheduled), pc.is_valid(at))
            at = pc.if_else(here, at, None)
            for name in ("producer_id", "sequence", "born_time"):
                told = pc.if_else(here, waiting[name].take(at), events[name])
                events = _replaced(events, name, told)
            events = _later_rows(events, pc.and_(here, scheduled))
            refers = pc.if_else(here, None, events["refers_to"])
            events = _replaced(events, "refers_to", refers)
            over = pc.is_in(pa.array(np.arange(len(waiting))), pc.cast(at, pa.int64()).drop_null())
            waiting = waiting.filter(pc.invert(over))
            learnt = pc.or_(learnt, pc.and_(resolved, pc.invert(here)))
        self._prepared = waiting if len(waiting) else None
        return events, events.filter(learnt)

    def _everywhere(self, events: pa.Table, block: int) -> tuple[pa.Table, Numbers, Numbers]:
        """Return events for every bucket."""
        count, buckets = len(events), self._cells.buckets
        rows = np.tile(np.arange(count), buckets)
        return (
            events.take(pa.array(rows)),
            np.full(len(rows), block),
            np.repeat(np.arange(buckets), count),
        )

    def _by_bucket(
        self, parts: Sequence[tuple[pa.Table, Numbers, Numbers]]
    ) -> Iterator[tuple[int, pa.Table]]:
        whole = pa.concat_tables([one[0] for one in parts])
        whole = whole.append_column("block", pa.array(np.concatenate([one[1] for one in parts])))
        bucket = np.concatenate([one[2] for one in parts])
        order = np.lexsort((numbers(whole["part"]), numbers(whole["position"]), bucket))
        sorted_ = whole.take(pa.array(order)).combine_chunks()
        begins = np.searchsorted(bucket[order], np.arange(self._cells.buckets + 1)).tolist()
        for number, (begin, end) in enumerate(pairwise(begins)):
            if begin < end:
                yield number, sorted_.slice(begin, end - begin)


def _later_rows(events: pa.Table, which: pa.ChunkedArray) -> pa.Table:
    """Return events of which those that are chosen begin at a later row of their batch."""
    rows = np.flatnonzero(pc.fill_null(which, False).to_numpy())
    if not len(rows):
        return events
    sequence = numbers(events["sequence"]).copy()
    sequence[rows] += first_rows(events.take(pa.array(rows)))
    return _replaced(events, "sequence", pa.array(sequence, mask=sequence == NULL))


def clipped(runs: pa.Table) -> pa.Table:
    """Cut runs of offsets where blocks begin.

    Args:
        runs: Events with offsets. The bytes of one stay with its first part. If the sender of a
            run is told elsewhere (``resolved``), a part has the number of earlier rows as sequence.
    """
    start, stop = numbers(runs["start"]), numbers(runs["stop"])
    first = start >> blocks.BLOCK_BITS
    count = (np.maximum(stop - 1, start) >> blocks.BLOCK_BITS) - first + 1
    if (count == 1).all():
        return runs
    ev, inside = spread(count)
    block = first[ev] + inside
    low = np.maximum(start[ev], block << blocks.BLOCK_BITS)
    high = np.minimum(stop[ev], (block + 1) << blocks.BLOCK_BITS)
    parts = runs.take(pa.array(ev))
    later = inside > 0
    sequence = numbers(parts["sequence"])
    elsewhere = pc.and_(
        pc.equal(parts["kind"], "resolved"), pc.is_valid(parts["refers_to"])
    ).to_numpy()
    told = np.where(sequence == NULL, np.where(elsewhere, 0, NULL), sequence)
    sequence = np.where(later & (told != NULL), told + low - start[ev], sequence)
    size = np.where(later, 0, numbers(parts["bytes"]))
    given = {"start": low, "stop": high, "rows": high - low, "sequence": sequence, "bytes": size}
    for name, values in given.items():
        parts = _replaced(parts, name, pa.array(values, mask=values == NULL))
    return parts


def _replaced(events: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = events.schema.get_field_index(name)
    return events.set_column(at, events.schema.field(at), values.cast(events.schema.field(at).type))
