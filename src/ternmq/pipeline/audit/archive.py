"""The archive's rows of some windows, as runs that the audit compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.pipeline.archive.columns import checksums
from ternmq.pipeline.archive.commit import ArchivedQueue
from ternmq.pipeline.archive.rewrite import may_have
from ternmq.pipeline.audit.audit import Archived
from ternmq.pipeline.audit.kept import IN_QUEUES, KEPT, table
from ternmq.pipeline.audit.policy import names_of
from ternmq.pipeline.audit.runs import merged
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.pipeline.audit.spans import Bools, Ints, factor
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.numbers import ints, numbers
from ternmq.pipeline.tables.table import Table

_COLUMNS: Final = (
    "topic_number", "queue", "offset", "producer_id", "sequence", "born_time", "position",
)  # fmt: skip
_BODIES: Final = ("body", "body_crc")


@dataclass(slots=True, frozen=True)
class Wanted:
    """Which rows of the archive are compared; is sent to workers.

    Attributes:
        names: The topics, by number.
        buckets: The windows, in order.
        bodies: As in ``read_archive``.
        due: Runs of messages that were scheduled: ``fulfilled``, which belong to the window in
            which they were due, and ``scheduled``, which do not belong to that of their birth.
    """

    names: Mapping[int, str]
    buckets: Sequence[int]
    bodies: bool
    due: pa.Table = field(default_factory=KEPT.empty_table)


Gather = Callable[[Table, Sequence[DataFile], Wanted], pa.Table]
"""Returns the runs of files of the archive."""


def read_archive(
    archive: Table,
    excusing: Sequence[Table],
    runs: pa.Table,
    buckets: Sequence[int],
    *,
    bodies: bool = False,
    gather: Gather | None = None,
) -> Archived:
    """Return the archive's content in some windows.

    Args:
        archive: The table ``archive``.
        excusing: ``archive_gaps`` and ``erased``, as far as they exist.
        runs: The runs of stored messages.
        buckets: The windows, in order.
        bodies: Also check every body: one with a wrong checksum counts as missing.
        gather: Reads the files; by default this process does.
    """
    stored = runs.filter(pc.is_in(runs["kind"], pa.array(IN_QUEUES)))
    due = runs.filter(pc.is_in(runs["kind"], pa.array(["fulfilled", "scheduled"])))
    names = names_of(stored)
    keys = stored.group_by(["topic_number", "queue"]).aggregate([]).to_pylist()
    places = {
        ArchivedQueue("", one["topic_number"], one["queue"]).app: (
            one["topic_number"],
            one["queue"],
        )
        for one in keys
    }
    stands = {places[app]: at for app, at in archive.all_remembered(places).items()}
    wanted = Wanted(names, tuple(buckets), bodies, due)
    files = [one for one in archive.files() if _touches(one, wanted)]
    return Archived(
        (gather or gathered_from)(archive, files, wanted),
        stands,
        pa.concat_tables([table(0), *(_excused(one) for one in excusing)]),
    )


def gathered_from(archive: Table, files: Sequence[DataFile], wanted: Wanted) -> pa.Table:
    """Return the runs of files of the archive; a ``Gather``."""
    found = [runs_of(archive, one, wanted) for one in files]
    return merged(pa.concat_tables(found)) if found else table(0)


def runs_of(archive: Table, file: DataFile, wanted: Wanted, part: int = 0, of: int = 1) -> pa.Table:
    """Return the runs of a file of the archive.

    Args:
        archive: The table.
        file: The file.
        wanted: Which rows are compared.
        part: Which part of the file: every row group whose number modulo ``of`` is this.
        of: Number of parts.
    """
    rows = _rows(archive, file, part, of, bodies=wanted.bodies)
    found = [_runs(one, wanted) for one in rows]
    return merged(pa.concat_tables([table(0), *found]))


def _touches(file: DataFile, wanted: Wanted) -> bool:
    """Return whether a file may have rows of the windows."""
    low, high = file.low.get("born_time"), file.high.get("born_time")
    if not any(may_have(file, name) for name in wanted.names.values()):
        return False
    if not isinstance(low, int) or not isinstance(high, int):
        return True
    buckets = np.array(wanted.buckets, np.int64)
    at = int(np.searchsorted(buckets, low - low % BUCKET_US))
    return (at < len(buckets) and int(buckets[at]) <= high) or _has_due(file, wanted)


def _has_due(file: DataFile, wanted: Wanted) -> bool:
    """Return whether a file may have messages that were due in the windows."""
    due = wanted.due.filter(pc.equal(wanted.due["kind"], "fulfilled"))
    may = np.ones(len(due), np.bool_)
    for name, first, last in (
        ("topic_number", ints(due["topic_number"]), ints(due["topic_number"])),
        ("queue", ints(due["queue"]), ints(due["queue"])),
        ("offset", ints(due["start"]), ints(due["stop"]) - 1),
    ):
        low, high = file.low.get(name), file.high.get(name)
        if isinstance(low, int) and isinstance(high, int):
            may &= (last >= low) & (first <= high)
    return bool(may.any())


def _rows(
    archive: Table, file: DataFile, part: int, of: int, *, bodies: bool
) -> Iterator[pa.Table]:
    """Yield rows of a part of a file, a row group at a time."""
    columns = [*_COLUMNS, *(_BODIES if bodies else ())]
    with archive.folder.open(file.path) as source:
        parquet = pq.ParquetFile(source)
        for number in range(part, parquet.num_row_groups, of):
            yield parquet.read_row_group(number, columns)


def _runs(rows: pa.Table, wanted: Wanted) -> pa.Table:
    born = ints(rows["born_time"])
    bucket = born - born % BUCKET_US
    chosen = np.isin(bucket, np.array(wanted.buckets, np.int64))
    if len(wanted.due):
        elsewhere, due = _due(rows, wanted.due)
        chosen = (chosen & ~elsewhere) | (due >= 0)
        bucket = np.where(due >= 0, due, bucket)
    chosen &= np.isin(ints(rows["topic_number"]), list(wanted.names))
    rows, bucket = rows.filter(pa.array(chosen)), bucket[chosen]
    sequence = rows["sequence"].to_numpy().copy()
    if wanted.bodies:
        # No message has this sequence or one after it, so it counts as a different message.
        sequence[_damaged(rows)] = np.iinfo(np.int64).min
    offset = ints(rows["offset"])
    return merged(
        table(
            len(rows),
            kind="archived",
            bucket=bucket,
            start=offset,
            stop=offset + 1,
            sequence=sequence,
            late=np.zeros(len(rows), np.bool_),
            **{name: rows[name] for name in ("topic_number", "queue", "producer_id", "position")},
        )
    )


def _due(rows: pa.Table, due: pa.Table) -> tuple[Bools, Ints]:
    """Return which rows were scheduled, and the windows of those that were due in one of these."""
    fulfilled, scheduled = (
        due.filter(pc.equal(due["kind"], kind)) for kind in ("fulfilled", "scheduled")
    )
    run = _inside(
        fulfilled, ("topic_number", "queue"), ints(fulfilled["start"]), rows, ints(rows["offset"])
    )
    other = _inside(
        scheduled,
        ("topic_number", "producer_id"),
        scheduled["sequence"].to_numpy(),
        rows,
        rows["sequence"].to_numpy(),
    )
    buckets = np.append(ints(fulfilled["bucket"]), -1)
    return other >= 0, buckets[run]


def _inside(
    runs: pa.Table, keys: tuple[str, str], first: Ints, rows: pa.Table, number: Ints
) -> Ints:
    """Return for each row the run that contains it; -1: none does.

    Args:
        runs: The runs; they do not overlap.
        keys: Columns in which a row and its run are equal.
        first: Number of the first row of each run.
        rows: The rows.
        number: Number of each row.
    """
    count, length = len(runs), ints(runs["stop"]) - ints(runs["start"])
    columns = [np.concatenate([numbers(runs[name]), numbers(rows[name])]) for name in keys]
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    space, _ = factor(columns)
    value = np.concatenate([first, number])
    is_row = np.arange(len(value)) >= count
    order = np.lexsort((is_row, value, space))
    place = np.where(is_row[order], -1, np.arange(len(order)))
    before = np.maximum.accumulate(place)
    run = np.where(before < 0, 0, order[before])
    there = is_row[order] & (before >= 0) & (space[run] == space[order])
    there &= value[order] < value[run] + np.append(length, 0)[np.minimum(run, count)]
    found = np.full(len(value), -1)
    found[order] = np.where(there, run, -1)
    return found[count:]


def _damaged(rows: pa.Table) -> Bools:
    body = rows["body"].combine_chunks()
    there = pc.is_valid(body).to_numpy(zero_copy_only=False)
    crc = ints(checksums(pc.fill_null(body, b"")))
    damaged: Bools = ~there | (crc != ints(rows["body_crc"]))
    return damaged


def _excused(noted: Table) -> pa.Table:
    """Return the rows of ``archive_gaps`` or ``erased`` as runs."""
    spans = "offset" not in noted.spec.schema.names
    columns = ("start", "stop") if spans else ("offset",)
    rows = noted.read(["topic_number", "queue", *columns])
    start = rows["start" if spans else "offset"]
    return table(
        len(rows),
        kind="excused",
        topic_number=rows["topic_number"],
        queue=rows["queue"],
        start=start,
        stop=rows["stop"] if spans else pc.add(start, 1),
    )
