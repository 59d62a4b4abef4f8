"""Rewrites files of the archive: without some of their rows, or several files as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.pipeline.archive.file import ArchiveFile, Sizes
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder

_EPOCH: Final = date(1970, 1, 1)

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

    The old files stay. One row group is in memory at a time.

    Args:
        folder: Folder of the archive.
        files: Files of one queue and one day, in order of their rows.
        keep: The rows to keep; None: all.
        sizes: Size limits of the new files.
        durable: On this machine, sync the files to the disk before they get their names.
    """
    if not files:
        return []
    sizes = sizes or Sizes()
    topic, number, queue = place_of_file(files[0])
    day = (date.fromisoformat(files[0].partition["day"]) - _EPOCH).days
    done: list[DataFile] = []
    open_: ArchiveFile | None = None
    try:
        for rows in _kept(folder, files, keep):
            while rows.num_rows:
                if open_ is not None and open_.full:
                    done.append(open_.finish(durable=durable))
                    open_ = None
                if open_ is None:
                    open_ = ArchiveFile(folder, topic, number, queue, day, sizes)
                rows = rows.slice(open_.add(rows))  # noqa: PLW2901 - what is left of them
        if open_ is not None:
            done.append(open_.finish(durable=durable))
    except BaseException:
        if open_ is not None:
            open_.abandon()
        folder.remove(one.path for one in done)
        raise
    return done


def place_of_file(one: DataFile) -> tuple[str, int, int]:
    """Return the topic, its number, and the queue of a file's rows."""
    number, queue = one.low["topic_number"], one.low["queue"]
    assert isinstance(number, int)
    assert isinstance(queue, int)
    return one.partition["topic"], number, queue


def _kept(folder: Folder, files: Sequence[DataFile], keep: Keep | None) -> Iterator[pa.RecordBatch]:
    for one in files:
        with folder.open(one.path) as source:
            for rows in pq.ParquetFile(source).iter_batches(batch_size=16_384):
                kept = rows if keep is None else rows.filter(keep(rows))
                if kept.num_rows:
                    yield kept
