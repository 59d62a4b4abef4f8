"""The cells of a bucket, folded by one worker; and what it tells the driver of it.

The worker writes the files. Only their description, sums by minute, and the steps of its queues go
to the driver, and from the first bucket the few facts from which ``Known`` is collected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.job.packets import packed, unpacked
from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.numbers import Numbers, from_position, numbers
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks
from ternmq.pipeline.trace.cells import ENTRIES, EVERY, KNOWN, NAMES, STEPS, Cells
from ternmq.pipeline.trace.entries import deleted_topics, known_before, with_senders
from ternmq.pipeline.trace.entryfiles import EntryFiles, fold_files
from ternmq.pipeline.trace.fold import Group, TracedQueue
from ternmq.pipeline.trace.known import Known, Queue, groups_of
from ternmq.pipeline.trace.queue import (
    Done,
    Steps,
    Work,
    by_queue,
    files_of,
    fold_queue,
    sharing_files,
    steps,
)
from ternmq.pipeline.trace.reach import FOREVER, reach_of
from ternmq.pipeline.trace.sharedfiles import SharedFiles
from ternmq.pipeline.trace.sharing import DROPPED

_OF_ALL: Final = ("group", "topic", "prepared")
_OF_STEPS: Final = "steps"
"""Column of packed lags: number of the queue's steps."""


@dataclass(slots=True, frozen=True)
class Piece:
    """A piece of the journal, and what is known before it; is sent to workers.

    Attributes:
        cells: The cells of the table.
        begin: Where it begins.
        stop: Where it ends.
        was: Position of the state before it.
        counted: As in ``queue.Work``.
        known: The state before it (``Known.table``), packed.
        entries_from: As ``TracePass.scheduled_from``.
        entries_since: As ``TracePass.since``.
    """

    cells: Cells
    begin: int
    stop: int
    was: int
    counted: int
    known: bytes
    entries_from: int
    entries_since: int

    @property
    def known_from(self) -> int:
        """As in ``queue.Work``."""
        return max(self.was, self.begin)


class Manifest(NamedTuple):
    """What a worker tells the driver of a bucket, packed.

    Attributes:
        told: JSON: the files written and replaced, ends and cursors of queues, files of scheduled
            messages.
        stats: Statistics by minute.
        lags: ``Steps.lags`` of the queues.
        learnt: Events for ``Known.learn``; only of the first bucket.
        dropped: Rows in shared files that changed.
    """

    told: str
    stats: bytes
    lags: bytes
    learnt: bytes
    dropped: bytes


def fold_bucket(
    table: Table, scheduled: Table, piece: Piece, bucket: int, facts: pa.Table
) -> Manifest:
    """Fold the cells of a bucket.

    Args:
        table: The trace.
        scheduled: The table of scheduled messages.
        piece: The piece.
        bucket: Number of the bucket.
        facts: What ``cells.Scan`` yielded for the bucket, in the order of the journal.
    """
    block = numbers(facts["block"])
    learnt = facts.filter(pa.array(np.isin(block, (KNOWN, NAMES)))).drop_columns("block")
    folding = _Folding(table, piece, bucket, learnt, facts)
    dones = list(sharing_files(table, folding.cells()))
    moved = [*folding.steps()]
    entries = with_senders(facts.filter(pa.array(block == ENTRIES)), folding.prepared)
    files = _entries(scheduled, piece, bucket, entries, learnt)
    return _packed(dones, moved, files, learnt if not bucket else learnt.slice(0, 0))


def _entries(
    scheduled: Table, piece: Piece, bucket: int, facts: pa.Table, learnt: pa.Table
) -> EntryFiles:
    """Fold the scheduled messages that are due in the days of a bucket."""
    later = from_position(facts.drop_columns("block"), piece.entries_from)
    some = known_before(later, piece.entries_since)
    gone = deleted_topics(learnt, piece.entries_from)
    return fold_files(scheduled, some, gone, bucket, piece.cells.buckets)


class _Folding:
    def __init__(
        self, table: Table, piece: Piece, bucket: int, learnt: pa.Table, facts: pa.Table
    ) -> None:
        self._table = table
        self._piece = piece
        self._bucket = bucket
        self._facts = facts
        self._known = Known.of(self._known_rows(), piece.was)
        self._known.learn(learnt, piece.stop)
        named = facts.select(["topic_number", "topic"]).group_by(["topic_number", "topic"])
        for row in named.aggregate([]).to_pylist():
            if row["topic"] is not None:
                self._known.topics.setdefault(row["topic_number"], row["topic"])
        self.prepared = self._known.told()
        self._cursors = self._known.cursors_of()
        self._groups = self._known.by_topic()
        self._turns = self._known.turns(piece.begin)
        self._files = files_of(table.files())
        self._shared = SharedFiles(table, table.files())
        turned = {place for place in self._files if place[0] in self._turns}
        self._turned = turned | self._shared.queues(self._turns)

    def _known_rows(self) -> pa.Table:
        """Return the known rows that this bucket needs."""
        rows = unpacked(self._piece.known)
        topic, queue = numbers(rows["topic_number"], 0), numbers(rows["queue"], 0)
        mine = self._piece.cells.bucket(topic, queue, np.zeros(len(rows), np.int64)) == self._bucket
        return rows.filter(
            pc.or_(pc.is_in(rows["kind"], value_set=pa.array(_OF_ALL)), pa.array(mine))
        )

    def cells(self) -> Iterable[Done]:
        """Yield the cells with facts, and those with rows in which a group began or ended."""
        block = numbers(self._facts["block"])
        cut = self._cut(block >= EVERY)
        nothing = self._facts.slice(0, 0)
        places = sorted({*cut, *self._turned})
        for place in places:
            mine = cut.get(place, nothing)
            of = numbers(mine["block"])
            files = self._files_of(place)
            wanted = {*np.unique(of[of >= 0]).tolist()}
            if (of == EVERY).any() or place[0] in self._turns:
                whole = mine.filter(pa.array(of == EVERY))
                wanted |= files.keys() | self._cells_with_rows(place, whole)
            for cell in sorted(wanted):
                some = mine.filter(pa.array((of == cell) | (of == EVERY))).drop_columns("block")
                work = self._work(place, files.get(cell, []), cell)
                yield fold_queue(self._table, work, some, self._shared)

    def _cells_of(self, place: Queue, offset: Numbers) -> Numbers:
        """Return the cells of offsets of a queue."""
        topic, queue = np.full(len(offset), place[0]), np.full(len(offset), place[1])
        return self._piece.cells.cell(topic, queue, offset >> blocks.BLOCK_BITS)

    def _cells_with_rows(self, place: Queue, events: pa.Table) -> set[int]:
        """Return the cells of this bucket with rows in shared files that events may be about.

        Args:
            place: The queue.
            events: Events about all of its cells.
        """
        reach = reach_of(self._groups_of(place), self._piece.begin, events)
        start, stop = np.array([reach.everything_from]), np.array([FOREVER])
        some = self._shared.open_of(place, reach), self._shared.quiet_of(place, start, stop)
        offset = np.concatenate([numbers(rows["offset"]) for rows in some])
        bucket_of = self._piece.cells.bucket_of
        found = np.unique(self._cells_of(place, offset)).tolist()
        return {one for one in found if bucket_of(place, one) == self._bucket}

    def _groups_of(self, place: Queue) -> list[Group]:
        return groups_of(place, self._groups.get(place[0], ()))

    def steps(self) -> Iterable[Steps]:
        """Yield the steps of the queues that take them from this bucket."""
        cut = self._cut(numbers(self._facts["block"]) == STEPS)
        bucket_of = self._piece.cells.bucket_of
        turned = [place for place in self._turned if bucket_of(place) == self._bucket]
        nothing = self._facts.slice(0, 0)
        for place in sorted({*cut, *turned}):
            yield steps(self._work(place, []), cut.get(place, nothing))

    def _cut(self, which: npt.NDArray[np.bool_]) -> dict[Queue, pa.Table]:
        """Return the chosen facts by queue, each in order."""
        return by_queue(self._facts.filter(pa.array(which)))

    def _files_of(self, place: Queue) -> Mapping[int, list[DataFile]]:
        """Return the files of a queue by cell, for the cells of this bucket."""
        found: dict[int, list[DataFile]] = {}
        for one in self._files.get(place, ()):
            cell = self._piece.cells.of_file(one)
            if self._piece.cells.bucket_of(place, cell) == self._bucket:
                found.setdefault(cell, []).append(one)
        return found

    def _work(self, place: Queue, files: list[DataFile], cell: int = 0) -> Work:
        known = self._known
        return Work(
            TracedQueue(known.topics.get(place[0], f"topic-{place[0]}"), *place),
            self._groups_of(place),
            self._piece.begin,
            self._piece.counted,
            self._piece.known_from,
            known.ends.get(place, 0),
            self._cursors.get(place, {}),
            files,
            lambda offset: self._cells_of(place, offset) == cell,
            self.prepared,
        )


# -- to the driver --------------------------------------------------------------------------------


def _packed(
    dones: list[Done], moved: list[Steps], entries: EntryFiles, learnt: pa.Table
) -> Manifest:
    told = {
        "dones": [
            {
                "place": None if one.place is None else asdict(one.place),
                "add": [_plain(file) for file in one.add],
                "remove": [_plain(file) for file in one.remove],
                "rows": one.rows,
            }
            for one in dones
            if one.add or one.remove
        ],
        "moved": [
            {"place": asdict(one.place), "end": one.end, "cursors": sorted(one.cursors.items())}
            for one in moved
        ],
        "entries": {
            "add": [_plain(file) for file in entries.add],
            "remove": [_plain(file) for file in entries.remove],
        },
    }
    counts = stats.complete(STATS_MINUTE.schema.empty_table())
    if dones:
        new = pa.concat_tables([one.stats for one in dones])
        counts = stats.complete(stats.merge(new, STATS_MINUTE))
    lags = [
        one.lags.append_column(_OF_STEPS, pa.array(np.full(len(one.lags), number)))
        for number, one in enumerate(moved)
    ]
    return Manifest(
        json.dumps(told),
        packed(counts),
        packed(pa.concat_tables(lags)) if lags else b"",
        packed(learnt) if len(learnt) else b"",
        packed(pa.concat_tables([DROPPED.empty_table(), *[one.dropped for one in dones]])),
    )


def of_manifest(one: Manifest) -> tuple[list[Done], list[Steps], EntryFiles, pa.Table | None]:
    """Return what a manifest tells: rows, steps, scheduled messages, and events to learn from."""
    told = json.loads(one.told)
    nothing = stats.complete(STATS_MINUTE.schema.empty_table())
    dones = [
        Done(
            TracedQueue(**done["place"]) if done["place"] else None,
            [DataFile(**file) for file in done["add"]],
            [DataFile(**file) for file in done["remove"]],
            done["rows"],
            nothing,
        )
        for done in told["dones"]
    ]
    common = Done(None, [], [], 0, unpacked(one.stats))
    common.dropped = unpacked(one.dropped)
    dones.append(common)
    lags = unpacked(one.lags) if one.lags else None
    of = numbers(lags[_OF_STEPS]) if lags is not None else None
    moved = []
    for number, step in enumerate(told["moved"]):
        assert lags is not None
        mine = lags.filter(pa.array(of == number)).drop_columns(_OF_STEPS)
        moved.append(Steps(TracedQueue(**step["place"]), mine, step["end"], dict(step["cursors"])))
    entries = EntryFiles(
        *([DataFile(**file) for file in told["entries"][name]] for name in ("add", "remove"))
    )
    return dones, moved, entries, unpacked(one.learnt) if one.learnt else None


def _plain(file: DataFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in DataFile.__slots__}
