"""Ranges of queues as files of the archive.

Made where the rows are fetched, on a worker or not. The result (``Written``, ``Bundle``) is small
and travels to the process that commits it. A file holds rows of one day. In general they are of one
queue, in order of offset, and the file's name states which; small ranges of many queues share a
file, in which they follow each other. A name is never used twice: a second attempt at a range, or
two attempts at once, replace nothing that may already belong to the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, nullcontext
from typing import Final

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

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, its number, and queue."""
        return self.topic, self.topic_number, self.queue

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


class Bundle(msgspec.Struct, frozen=True):
    """The result of writing ranges together.

    Attributes:
        written: The result of each range, with the files that it has for itself.
        shared: Files with rows of more than one of the ranges.
    """

    written: tuple[Written, ...]
    shared: tuple[DataFile, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files."""
        return (*self.shared, *(file for one in self.written for file in one.files))

    def to_json(self) -> str:
        """Return it as JSON, to travel in a row."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of_json(text: str) -> Bundle:
        """Parse the result of ``to_json``."""
        return msgspec.json.decode(text, type=Bundle)


SMALL_BYTES: Final = 4 << 20
"""Ranges with fewer bytes of records share files with others."""
BUNDLE_BYTES: Final = 64 << 20
"""Bytes of records of ranges that share files, about."""
MOST_RANGES: Final = 1000
"""Most ranges that share files."""


def bundled(
    spans: Iterable[tuple[Range, int]], most: int = BUNDLE_BYTES
) -> list[tuple[Range, ...]]:
    """Return which ranges are written together: small ones, and each of the others by itself.

    Args:
        spans: Ranges of different queues, each with its bytes of records.
        most: Bytes of ranges that share files, about; at least ``SMALL_BYTES`` and at most
            ``BUNDLE_BYTES``.
    """
    most = min(max(most, SMALL_BYTES), BUNDLE_BYTES)
    found: list[tuple[Range, ...]] = []
    some: list[Range] = []
    size = 0
    for span, many in sorted(spans, key=lambda one: (one[0].topic_number, one[0].queue)):
        if many >= SMALL_BYTES:
            found.append((span,))
            continue
        some.append(span)
        size += many
        if size >= most or len(some) == MOST_RANGES:
            found.append(tuple(some))
            some, size = [], 0
    return [*found, tuple(some)] if some else found


class OpenFiles:
    """The files that are being written: one for each day whose rows came last.

    Args:
        folder: Folder of the table.
        place: As in ``ArchiveFile``.
        sizes: Size limits of files.
        durable: On this machine, sync files to the disk before they get their names.
    """

    _MOST: Final = 8
    """Most days with an open file; a range brings its days in order."""

    def __init__(
        self, folder: Folder, place: tuple[str, int, int] | None, sizes: Sizes, *, durable: bool
    ) -> None:
        self._folder = folder
        self._place = place
        self._sizes = sizes
        self._durable = durable
        self._open: dict[int, ArchiveFile] = {}
        self._done: list[DataFile] = []

    def add(self, rows: pa.RecordBatch, day: int) -> None:
        """Write rows of one day."""
        while rows.num_rows:
            if day in self._open and self._open[day].full:
                self._end(day)
            if day not in self._open:
                if len(self._open) >= (self._MOST if self._place is None else 1):
                    self._end(next(iter(self._open)))
                self._open[day] = ArchiveFile(self._folder, self._place, day, self._sizes)
            rows = rows.slice(self._open[day].add(rows))

    def _end(self, day: int) -> None:
        self._done.append(self._open[day].finish(durable=self._durable))
        del self._open[day]

    def finish(self) -> tuple[DataFile, ...]:
        """Return all files; they have their final names."""
        for day in list(self._open):
            self._end(day)
        return tuple(self._done)

    def abandon(self) -> None:
        """Remove what was written, after an error."""
        for one in self._open.values():
            one.abandon()
        self._open.clear()
        self._folder.remove(one.path for one in self._done)
        self._done.clear()


class RangeWriter:
    """Writes the rows of one range.

    Args:
        files: The files to which they go.
        span: The range.
        lenient: Rows may be missing; they are recorded. Otherwise that is an error.
    """

    def __init__(self, files: OpenFiles, span: Range, *, lenient: bool = False) -> None:
        self._files = files
        self._span = span
        self._lenient = lenient
        self._next = span.start
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
        made = archived(rows, self._span.topic, self._span.topic_number)
        dates = days(rows.column("stored_time"))
        edges = [0, *(np.flatnonzero(np.diff(dates)) + 1).tolist(), len(dates)]
        for begin, end in itertools.pairwise(edges):
            self._files.add(made.slice(begin, end - begin), int(dates[begin]))

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
                "were not received"
            )
        self._missing.append(Missing(start, stop))

    def finish(self) -> tuple[Missing, ...]:
        """End the range; return what is missing.

        Raises:
            DataLoss: The end of the range is missing, and ``lenient`` is not set.
        """
        if self._next < self._span.stop:
            self._miss(self._next, self._span.stop)
            self._next = self._span.stop
        return tuple(self._missing)


def write_range(
    folder: Folder,
    span: Range,
    batches: Iterable[pa.RecordBatch],
    sizes: Sizes | None = None,
    *,
    lenient: bool = False,
    durable: bool = True,
) -> Written:
    """Write a range into files of its own, whole or not at all.

    Args:
        folder: Folder of the table.
        span: The range.
        batches: Its rows, as ``record.coalesce`` returns them.
        sizes: Size limits of files.
        lenient: Rows may be missing.
        durable: As in ``OpenFiles``.

    Raises:
        DataLoss: Rows are missing, and ``lenient`` is not set.
    """
    (written,) = write_ranges(
        folder, (span,), lambda _span: batches, sizes, lenient=lenient, durable=durable
    ).written
    return written


def write_ranges(
    folder: Folder,
    spans: Sequence[Range],
    rows_of: Callable[[Range], Iterable[pa.RecordBatch]],
    sizes: Sizes | None = None,
    *,
    lenient: bool = False,
    durable: bool = True,
) -> Bundle:
    """Write ranges, all of them or none; several ones into files that they share.

    Args:
        folder: Folder of the table.
        spans: Ranges of different queues, as ``bundled`` returns them.
        rows_of: Returns the rows of a range, as ``record.coalesce`` does. A generator is closed.
        sizes: Size limits of files.
        lenient: Rows may be missing.
        durable: As in ``OpenFiles``.

    Raises:
        DataLoss: Rows are missing, and ``lenient`` is not set.
    """
    alone = len(spans) == 1
    files = OpenFiles(folder, spans[0].place if alone else None, sizes or Sizes(), durable=durable)
    written: list[Written] = []
    try:
        for span in spans:
            writer = RangeWriter(files, span, lenient=lenient)
            batches = rows_of(span)
            with closing(batches) if isinstance(batches, Generator) else nullcontext():
                for batch in batches:
                    writer.write(batch)
            written.append(Written(span, (), writer.finish()))
        done = files.finish()
    except BaseException:
        files.abandon()
        raise
    if alone:
        return Bundle((msgspec.structs.replace(written[0], files=done),))
    return Bundle(tuple(written), done)
