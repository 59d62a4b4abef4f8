"""Rewrites files of the archive: without some of their rows, several files as one, or converted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.pipeline.archive.file import ArchiveFile, Sizes
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.tables.datafile import DataFile, int_of
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import renewed

_EPOCH: Final = date(1970, 1, 1)
_BATCH_ROWS: Final = 16_384
_ORDER: Final = ("topic_number", "queue", "offset")
_PLACE: Final = ("topic", "topic_number", "queue")
Place = tuple[str, int, int]
"""Topic, its number, and queue."""

Keep = Callable[[pa.RecordBatch], pa.Array]
"""Returns a mask without nulls: the rows that stay."""


def rewritten(
    folder: Folder,
    files: Sequence[DataFile],
    keep: Keep | None = None,
    sizes: Sizes | None = None,
    *,
    durable: bool = True,
) -> list[DataFile]:
    """Write the rows of files into new ones, with which a commit may then replace these.

    The old files stay. One row group is in memory at a time; files of different queues are sorted
    in memory.

    Args:
        folder: Folder of the archive.
        files: Files of one day: of one queue, in order of their rows; or of any queues, with
            together few rows.
        keep: The rows to keep; None: all.
        sizes: Size limits of the new files.
        durable: On this machine, sync the files to the disk before they get their names.
    """
    if not files:
        return []
    place = queue_of(files[0])
    alike = all(queue_of(one) == place for one in files)
    rows = _kept(folder, files, keep)
    if len(files) > 1 and (not alike or place is None):
        rows = _sorted(rows)
    return written(folder, files[0], rows, place if alike else None, sizes, durable=durable)


def converted(folder: Folder, file: DataFile) -> list[DataFile]:
    """Write the rows of a file of an earlier version of the schema into new ones."""
    rows = (_renewed(one, file) for one in _kept(folder, [file], None))
    return written(folder, file, rows, queue_of(file))


def _renewed(rows: pa.RecordBatch, file: DataFile) -> pa.RecordBatch:
    """Return rows of a file in the newest schema."""
    (batch,) = renewed(pa.Table.from_batches([rows]), file, ARCHIVE, ARCHIVE.stored).to_batches()
    return batch


def written(
    folder: Folder,
    like: DataFile,
    rows: Iterator[pa.RecordBatch],
    place: Place | None,
    sizes: Sizes | None = None,
    *,
    durable: bool = True,
) -> list[DataFile]:
    """Write rows into new files.

    Args:
        folder: Folder of the archive.
        like: A file of the same day.
        rows: Rows as files store them, in order.
        place: As in ``ArchiveFile``.
        sizes: Size limits of the new files.
        durable: As in ``rewritten``.
    """
    sizes = sizes or Sizes()
    day = (date.fromisoformat(like.partition["day"]) - _EPOCH).days
    done: list[DataFile] = []
    open_: ArchiveFile | None = None
    try:
        for batch in rows:
            left = batch
            while left.num_rows:
                if open_ is not None and open_.full:
                    done.append(open_.finish(durable=durable))
                    open_ = None
                if open_ is None:
                    open_ = ArchiveFile(folder, place, day, sizes)
                left = left.slice(open_.add(left))
        if open_ is not None:
            done.append(open_.finish(durable=durable))
    except BaseException:
        if open_ is not None:
            open_.abandon()
        folder.remove(one.path for one in done)
        raise
    return done


def queue_of(one: DataFile) -> Place | None:
    """Return the topic, its number, and the queue of a file's rows; None: they are of several."""
    if any(one.low[name] != one.high[name] for name in _PLACE):
        return None
    return str(one.low["topic"]), int_of(one.low["topic_number"]), int_of(one.low["queue"])


def may_have(one: DataFile, topic: str | None) -> bool:
    """Return whether a file may have rows of a topic; None: of any."""
    low, high = str(one.low["topic"]), str(one.high["topic"])
    return topic is None or low <= topic <= high


def queues_in(folder: Folder, one: DataFile) -> list[Place]:
    """Return the topic, its number, and the queue of all rows of a file, each once."""
    place = queue_of(one)
    if place is not None:
        return [place]
    with folder.open(one.path) as source:
        rows = pq.ParquetFile(source).read(list(_PLACE))
    found = rows.group_by(list(_PLACE)).aggregate([]).to_pylist()
    return sorted((row["topic"], row["topic_number"], row["queue"]) for row in found)


class Inside(NamedTuple):
    """What a file contains.

    Attributes:
        raw: Bytes of its columns, not compressed.
        ranges: First and last offset of each queue.
    """

    raw: int
    ranges: Mapping[Place, tuple[int, int]]


def inside(folder: Folder, one: DataFile) -> Inside:
    """Read what a file contains; not its bodies."""
    place = queue_of(one)
    with folder.open(one.path) as source:
        parquet = pq.ParquetFile(source)
        known = parquet.metadata
        raw = sum(known.row_group(at).total_byte_size for at in range(known.num_row_groups))
        if place is not None:
            return Inside(raw, {place: (int_of(one.low["offset"]), int_of(one.high["offset"]))})
        rows = parquet.read([*_PLACE, "offset"])
    found = rows.group_by(list(_PLACE)).aggregate([("offset", "min"), ("offset", "max")])
    return Inside(
        raw,
        {
            (row["topic"], row["topic_number"], row["queue"]): (
                row["offset_min"],
                row["offset_max"],
            )
            for row in found.to_pylist()
        },
    )


def topics_in(folder: Folder, files: Iterable[DataFile]) -> list[str]:
    """Return the names of the topics of which files have rows."""
    return sorted({topic for one in files for topic, _, _ in queues_in(folder, one)})


def _kept(folder: Folder, files: Sequence[DataFile], keep: Keep | None) -> Iterator[pa.RecordBatch]:
    for one in files:
        with folder.open(one.path) as source:
            for rows in pq.ParquetFile(source).iter_batches(batch_size=_BATCH_ROWS):
                kept = rows if keep is None else rows.filter(keep(rows))
                if kept.num_rows:
                    yield kept


def _sorted(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(rows), ARCHIVE.stored)
    yield from table.sort_by([(name, "ascending") for name in _ORDER]).to_batches(_BATCH_ROWS)
