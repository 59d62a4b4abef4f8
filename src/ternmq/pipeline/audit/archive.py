"""The archive's rows of some windows, as runs that the audit compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.pipeline.archive.columns import checksums
from ternmq.pipeline.archive.commit import ArchivedQueue
from ternmq.pipeline.audit.audit import Archived
from ternmq.pipeline.audit.policy import names_of
from ternmq.pipeline.audit.runs import merged, table
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.pipeline.audit.spans import Bools
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.numbers import ints
from ternmq.pipeline.tables.table import Table

_COLUMNS: Final = (
    "topic_number", "queue", "offset", "producer_id", "sequence", "born_time", "position",
)  # fmt: skip
_BODIES: Final = ("body", "body_crc")


def read_archive(
    archive: Table,
    excusing: Sequence[Table],
    runs: pa.Table,
    buckets: Sequence[int],
    *,
    bodies: bool = False,
) -> Archived:
    """Return the archive's content in some windows.

    Args:
        archive: The table ``archive``.
        excusing: ``archive_gaps`` and ``erased``, as far as they exist.
        runs: The runs of stored messages.
        buckets: The windows, in order.
        bodies: Also check every body: one with a wrong checksum counts as missing.
    """
    stored = runs.filter(pc.equal(runs["kind"], "stored"))
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
    wanted = np.array(buckets, np.int64)
    found = [
        _runs(rows, names, wanted, bodies=bodies)
        for one in archive.files()
        if _touches(one, wanted, names)
        for rows in _rows(archive, one, bodies=bodies)
    ]
    empty = table(0)
    return Archived(
        merged(pa.concat_tables(found)) if found else empty,
        stands,
        pa.concat_tables([empty, *(_excused(one) for one in excusing)]),
    )


def _touches(file: DataFile, wanted: np.ndarray, names: Mapping[int, str]) -> bool:
    """Return whether a file may have rows of the windows."""
    low, high = file.low.get("born_time"), file.high.get("born_time")
    if file.partition.get("topic") not in names.values():
        return False
    if not isinstance(low, int) or not isinstance(high, int):
        return True
    at = int(np.searchsorted(wanted, low - low % BUCKET_US))
    return at < len(wanted) and int(wanted[at]) <= high


def _rows(archive: Table, file: DataFile, *, bodies: bool) -> Iterator[pa.Table]:
    """Yield a file's rows, a row group at a time."""
    columns = [*_COLUMNS, *(_BODIES if bodies else ())]
    with archive.folder.open(file.path) as source:
        parquet = pq.ParquetFile(source)
        for number in range(parquet.num_row_groups):
            yield parquet.read_row_group(number, columns)


def _runs(
    rows: pa.Table, names: Mapping[int, str], wanted: np.ndarray, *, bodies: bool
) -> pa.Table:
    born = ints(rows["born_time"])
    bucket = born - born % BUCKET_US
    chosen = np.isin(bucket, wanted) & np.isin(ints(rows["topic_number"]), list(names))
    rows, bucket = rows.filter(pa.array(chosen)), bucket[chosen]
    sequence = rows["sequence"].to_numpy().copy()
    if bodies:
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
