"""The rule by which files join the archive: each row once, whatever was run twice.

The table stores for each queue where its archived rows end (``app archive/<topic number>-<queue>``,
in the same commit as the files). A written range is judged by this end alone::

    the end        |----------------- v
    equal                             |=====|      its files are added
    done                   |=====|                 nothing happens
    overlap                       |=======|        the rows below are cut off first
    gap                                  |=====|   DataLoss; or, if that is allowed, a row in
                                                   ``archive_gaps`` records what is missing

So a batch that Spark runs again, a lost or copied checkpoint, or two runners at once can neither
lose a row nor store one twice. Which batch a range belonged to does not matter. Of a file that
several ranges share, the rows of some ranges may be added, and those of others left out.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, assert_never

import numpy as np
import pyarrow as pa

from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive.ranges import Bundle, Missing, Range, Written
from ternmq.pipeline.archive.rewrite import queue_of, rewritten
from ternmq.pipeline.archive.schema import ARCHIVE, GAPS
from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.numbers import numbers
from ternmq.pipeline.tables.table import Table, deciding_anew

BEFORE: Final = "before"
EXPIRED: Final = "expired"


class ArchivedQueue(NamedTuple):
    """A queue of the archive."""

    topic: str
    topic_number: int
    queue: int

    @property
    def app(self) -> str:
        """The app under which the table stores the end of the queue's rows."""
        return f"archive/{self.topic_number}-{self.queue}"

    @property
    def gap_app(self) -> str:
        """The app under which the table of gaps stores the end of the recorded gaps."""
        return f"gap/{self.topic_number}-{self.queue}"


class Decision(enum.Enum):
    """The decision about a range."""

    COMMIT = enum.auto()
    SKIP = enum.auto()
    TRIM = enum.auto()
    GAP = enum.auto()


def judge(stands: int | None, start: int, stop: int) -> Decision:
    """Decide about rows ``[start, stop)``.

    Args:
        stands: End of the table's rows; None: it has none of this queue.
        start: The first offset.
        stop: The offset after the last.
    """
    if stands is None or start == stands:
        return Decision.COMMIT
    if stop <= stands:
        return Decision.SKIP
    return Decision.TRIM if start < stands else Decision.GAP


@dataclass(slots=True)
class Committed:
    """The result of a commit.

    Attributes:
        stands: For each queue written, the end of its rows in the table.
        added: Rows added.
        skipped: Ranges of which the table had every row.
        trimmed: Ranges of which the table had a part.
        lost: Missing rows, recorded in ``archive_gaps``.
    """

    stands: dict[ArchivedQueue, int] = field(default_factory=dict)
    added: int = 0
    skipped: int = 0
    trimmed: int = 0
    lost: int = 0


class Archive:
    """The archive and its gaps, for adding to them.

    Args:
        tables: The folder of all tables.
        storage: Options of the Delta library for an object store.
        create: Create the tables if they do not exist.
    """

    def __init__(
        self, tables: Folder, storage: Mapping[str, str] | None = None, *, create: bool = True
    ) -> None:
        self.table = Table.open(tables, ARCHIVE, storage=storage, create=create)
        self.gaps = Table.open(tables, GAPS, storage=storage, create=create)

    def stands(self, place: ArchivedQueue) -> int | None:
        """Return the end of the archive's rows of a queue; None if it has none."""
        return self.table.remembered(place.app)

    def all_stand(self, places: Iterable[ArchivedQueue]) -> dict[ArchivedQueue, int]:
        """Return the end of the archive's rows for those of the queues of which it has any.

        For planning only: another runner may have added rows since.
        """
        by_app = {place.app: place for place in places}
        found = self.table.all_remembered(by_app)
        return {by_app[app]: stands for app, stands in found.items()}

    def commit(
        self, written: Iterable[Written | Bundle], now_us: int, *, lenient: bool = False
    ) -> Committed:
        """Add the written rows that are not in the table yet.

        Durable at return. May be called again with the same ranges, also after a crash.

        Args:
            written: Results of tasks, in any order.
            now_us: Time recorded with gaps.
            lenient: Rows may be missing; they are recorded.

        Raises:
            DataLoss: Rows are missing, and ``lenient`` is not set. Nothing was added.
            TableConflict: Another runner adds the same rows, twice in a row.
        """
        ranges: list[Written] = []
        shared: list[DataFile] = []
        for one in written:
            ranges += one.written if isinstance(one, Bundle) else (one,)
            shared += one.shared if isinstance(one, Bundle) else ()
        ranges.sort(key=lambda one: (place_of(one.span), one.span.start))
        self.table.refresh()
        return deciding_anew(
            self.table, lambda: self._attempt(ranges, shared, now_us, lenient=lenient)
        )

    def _attempt(
        self,
        ranges: Sequence[Written],
        shared: Sequence[DataFile],
        now_us: int,
        *,
        lenient: bool,
    ) -> Committed:
        done = Committed()
        added: list[DataFile] = []
        unused: list[DataFile] = []
        gaps: list[tuple[ArchivedQueue, Missing, str]] = []
        known: dict[ArchivedQueue, int] = {}
        for place, some in itertools.groupby(ranges, key=lambda one: place_of(one.span)):
            stands = self.stands(place)
            for one in some:
                if stands is not None and one.span.start < stands:
                    known[place] = stands
                stands = self._judged(one, stands, done, added, unused, gaps)
            assert stands is not None
            done.stands[place] = stands
        kept, dropped = self._trimmed(shared, known) if known else (list(shared), [])
        added += kept
        unused += dropped
        if gaps and not lenient and any(cause != BEFORE for _, _, cause in gaps):
            raise _loss(gaps)
        done.lost = self._note(gaps, now_us)
        done.added = sum(one.rows for one in added)
        moved = {
            place.app: stands
            for place, stands in done.stands.items()
            if stands != self.stands(place)
        }
        if moved:
            self.table.commit(added, remember=moved)
        self._forget(unused)
        return done

    def _judged(
        self,
        one: Written,
        stands: int | None,
        done: Committed,
        added: list[DataFile],
        unused: list[DataFile],
        gaps: list[tuple[ArchivedQueue, Missing, str]],
    ) -> int:
        """Judge a range; return the end of the table's rows after it."""
        place, start, stop = place_of(one.span), one.span.start, one.span.stop
        verdict = judge(stands, start, stop)
        match verdict:
            case Decision.SKIP:
                done.skipped += 1
                unused += one.files
                assert stands is not None
                return stands
            case Decision.TRIM:
                assert stands is not None
                done.trimmed += 1
                kept, dropped = self._trimmed(one.files, {place: stands})
                added += kept
                unused += dropped
            case Decision.GAP:
                assert stands is not None
                gaps.append((place, Missing(stands, start), EXPIRED))
                added += one.files
            case Decision.COMMIT:
                if stands is None and start > 0:
                    gaps.append((place, Missing(0, start), BEFORE))
                added += one.files
            case _:
                assert_never(verdict)
        floor = stands or 0
        gaps += [
            (place, Missing(max(floor, hole.start), hole.stop), EXPIRED)
            for hole in one.missing
            if hole.stop > floor
        ]
        return stop

    def _trimmed(
        self, files: Iterable[DataFile], known: Mapping[ArchivedQueue, int]
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Return files without the rows that the table has, and the files to be dropped.

        Args:
            files: Written files.
            known: End of the table's rows of each queue of which it has some of these.
        """
        kept: list[DataFile] = []
        dropped: list[DataFile] = []
        for one in files:
            place = queue_of(one)
            if place is not None:
                if int_of(one.low["offset"]) >= known.get(ArchivedQueue(*place), 0):
                    kept.append(one)
                    continue
                if int_of(one.high["offset"]) < known[ArchivedQueue(*place)]:
                    dropped.append(one)
                    continue
            dropped.append(one)
            kept += rewritten(self.table.folder, [one], partial(_new, known))
        return kept, dropped

    def _note(self, gaps: Iterable[tuple[ArchivedQueue, Missing, str]], now_us: int) -> int:
        """Record what is missing, unless it is recorded already; return the number of rows.

        Runs before the commit that passes over them. A crash between the two does not record them
        twice: the table of gaps stores up to where they are recorded.
        """
        rows: list[dict[str, object]] = []
        noted: dict[str, int] = {}
        lost = 0
        self.gaps.refresh()
        for place, hole, cause in gaps:
            known = noted.get(place.gap_app) or self.gaps.remembered(place.gap_app) or 0
            start = max(known, hole.start)
            if start >= hole.stop:
                continue
            noted[place.gap_app] = hole.stop
            lost += hole.stop - start
            rows.append(
                {
                    "topic": place.topic,
                    "topic_number": place.topic_number,
                    "queue": place.queue,
                    "start": start,
                    "stop": hole.stop,
                    "cause": cause,
                    "noted_time": now_us,
                    "schema_version": GAPS.version,
                }
            )
        if rows:
            self.gaps.append(pa.Table.from_pylist(rows, GAPS.schema), noted)
        return lost

    def _forget(self, unused: Sequence[DataFile]) -> None:
        """Remove files that will not be added, unless they were."""
        if not unused:
            return
        known = {one.path for one in self.table.files()}
        self.table.folder.remove(one.path for one in unused if one.path not in known)


def place_of(span: Range) -> ArchivedQueue:
    """Return the queue of a range."""
    return ArchivedQueue(*span.place)


def _new(known: Mapping[ArchivedQueue, int], rows: pa.RecordBatch) -> pa.Array:
    """Return a mask of the rows at or after the end of the known ones of their queue."""
    topic, queue, offset = (numbers(rows[name]) for name in ("topic_number", "queue", "offset"))
    old = np.zeros(len(rows), bool)
    for place, stands in known.items():
        old |= (topic == place.topic_number) & (queue == place.queue) & (offset < stands)
    return pa.array(~old)


def _loss(gaps: Iterable[tuple[ArchivedQueue, Missing, str]]) -> DataLoss:
    place, hole, _ = next(one for one in gaps if one[2] != BEFORE)
    return DataLoss(
        f"rows {hole.start} to {hole.stop - 1} of queue {place.queue} of {place.topic!r} are "
        "not in the archive, and no longer available; nothing was added"
    )
