"""A range of a queue as files of the archive.

Made where the rows are fetched, on a worker or not. The result (``Written``) is small and travels
to the process that commits it. A file holds rows of one queue and one day, in order of offset; its
name states which, and is never used twice: a second attempt at a range, or two attempts at once,
replace nothing that may already belong to the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa

from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive.columns import archived, days
from ternmq.pipeline.archive.file import ArchiveFile, Sizes
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder


class Range(msgspec.Struct, frozen=True):
    """Rows ``[start, stop)`` of a queue."""

    topic: str
    topic_number: int
    queue: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"rows {self.start} to {self.stop - 1} of queue {self.queue} of {self.topic!r}"


class Missing(msgspec.Struct, frozen=True):
    """Rows ``[start, stop)`` of a range that could not be read."""

    start: int
    stop: int


class Written(msgspec.Struct, frozen=True):
    """The result of writing a range: files for a commit, and the rows missing between them."""

    span: Range
    files: tuple[DataFile, ...] = ()
    missing: tuple[Missing, ...] = ()

    def to_json(self) -> str:
        """Return it as JSON, to travel in a row."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of_json(text: str) -> Written:
        """Parse the result of ``to_json``."""
        return msgspec.json.decode(text, type=Written)


class RangeWriter:
    """Writes one range as files.

    Args:
        folder: Folder of the table.
        span: The range.
        sizes: Size limits of files.
        lenient: Rows may be missing; they are recorded. Otherwise that is an error.
        durable: On this machine, sync files to the disk before they get their names.
    """

    def __init__(
        self,
        folder: Folder,
        span: Range,
        sizes: Sizes | None = None,
        *,
        lenient: bool = False,
        durable: bool = True,
    ) -> None:
        self._folder = folder
        self._span = span
        self._sizes = sizes or Sizes()
        self._lenient = lenient
        self._durable = durable
        self._next = span.start
        self._open: ArchiveFile | None = None
        self._done: list[DataFile] = []
        self._missing: list[Missing] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows as ``record.coalesce`` returns them, in order; skip rows outside the range.

        Raises:
            DataLoss: Rows between these and the previous ones are missing, without ``lenient``.
        """
        offsets = rows.column("offset").to_numpy()
        low = int(np.searchsorted(offsets, self._next))
        high = int(np.searchsorted(offsets, self._span.stop))
        if low >= high:
            return
        rows, offsets = rows.slice(low, high - low), offsets[low:high]
        self._note(offsets)
        made = archived(rows, self._span.topic_number)
        dates = days(rows.column("stored_time"))
        edges = [0, *(np.flatnonzero(np.diff(dates)) + 1).tolist(), len(dates)]
        for begin, end in itertools.pairwise(edges):
            self._add(made.slice(begin, end - begin), int(dates[begin]))

    def _note(self, offsets: np.ndarray) -> None:
        """Find rows missing before and between these."""
        before = np.concatenate(([self._next - 1], offsets[:-1]))
        for index in np.flatnonzero(offsets != before + 1).tolist():
            self._miss(int(before[index]) + 1, int(offsets[index]))
        self._next = int(offsets[-1]) + 1

    def _miss(self, start: int, stop: int) -> None:
        if not self._lenient or stop < start:
            raise DataLoss(
                f"rows {start} to {stop - 1} of queue {self._span.queue} of {self._span.topic!r} "
                "did not come"
            )
        self._missing.append(Missing(start, stop))

    def _add(self, rows: pa.RecordBatch, day: int) -> None:
        """Write rows of one day."""
        while rows.num_rows:
            file = self._open
            if file is not None and (file.day != day or file.full):
                self._done.append(file.finish(durable=self._durable))
                file = self._open = None
            if file is None:
                at = self._span
                file = self._open = ArchiveFile(
                    self._folder, at.topic, at.topic_number, at.queue, day, self._sizes
                )
            rows = rows.slice(file.add(rows))

    def finish(self) -> Written:
        """Return the result; all files have their final names.

        Raises:
            DataLoss: The end of the range is missing, and ``lenient`` is not set.
        """
        if self._next < self._span.stop:
            self._miss(self._next, self._span.stop)
            self._next = self._span.stop
        if self._open is not None:
            self._done.append(self._open.finish(durable=self._durable))
            self._open = None
        return Written(self._span, tuple(self._done), tuple(self._missing))

    def abandon(self) -> None:
        """Remove what was written, after an error."""
        if self._open is not None:
            self._open.abandon()
            self._open = None
        self._folder.remove(one.path for one in self._done)
        self._done.clear()


def write_range(
    folder: Folder,
    span: Range,
    batches: Iterable[pa.RecordBatch],
    sizes: Sizes | None = None,
    *,
    lenient: bool = False,
    durable: bool = True,
) -> Written:
    """Write a range, whole or not at all.

    Args:
        folder: Folder of the table.
        span: The range.
        batches: Its rows, as ``record.coalesce`` returns them; closed when done.
        sizes: Size limits of files.
        lenient: Rows may be missing.
        durable: As in ``RangeWriter``.
    """
    writer = RangeWriter(folder, span, sizes, lenient=lenient, durable=durable)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
