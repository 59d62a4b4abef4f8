"""A range of a queue as files of the archive.

Made where the rows are fetched, in a worker or not; what it returns (``Written``) is small, and
travels to whoever commits it. A file holds rows of one queue and one day, in order of offset; its
name says which, and is never used twice, so that a second attempt at a range, or two at once,
replaces nothing that may already belong to the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa

from ternmq.model.errors import DataLoss
from ternmq.pipeline.archive_file import ArchiveFile, Sizes
from ternmq.pipeline.columns import archived, days
from ternmq.pipeline.files import DataFile
from ternmq.pipeline.folder import Folder


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
    """Rows ``[start, stop)`` of a range that were not there to be read."""

    start: int
    stop: int


class Written(msgspec.Struct, frozen=True):
    """What became of a range: files that a commit may add, and what is missing between them."""

    span: Range
    files: tuple[DataFile, ...] = ()
    missing: tuple[Missing, ...] = ()

    def to_json(self) -> str:
        """Return it as text, to travel in a row."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of_json(text: str) -> Written:
        """Return what ``to_json`` gave."""
        return msgspec.json.decode(text, type=Written)


class RangeWriter:
    """Writes one range; see the module.

    Args:
        folder: Of the table.
        span: The range.
        sizes: How large files become.
        lenient: Rows may be missing; they are noted. Otherwise that is an error.
        durable: On this machine, have files on the disk before they have their names.
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
        """Take rows as ``record.coalesce`` gives them, in order; what is outside the range is left.

        Raises:
            DataLoss: Rows between these and those before are missing, and that is not allowed.
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
        """See what is missing before and between rows."""
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
        """Return what was written, all of it under its final names.

        Raises:
            DataLoss: The range was not written to its end, and that is not allowed.
        """
        if self._next < self._span.stop:
            self._miss(self._next, self._span.stop)
            self._next = self._span.stop
        if self._open is not None:
            self._done.append(self._open.finish(durable=self._durable))
            self._open = None
        return Written(self._span, tuple(self._done), tuple(self._missing))

    def abandon(self) -> None:
        """Remove what was written; after an error."""
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
        folder: Of the table.
        span: The range.
        batches: Its rows, as ``record.coalesce`` gives them; closed when done.
        sizes: How large files become.
        lenient: Rows may be missing.
        durable: See ``RangeWriter``.
    """
    writer = RangeWriter(folder, span, sizes, lenient=lenient, durable=durable)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
